// A random graph whose rows can be computed one by one, in any order, with nothing but one number per node in memory.
//
// Nodes are numbered twice: by id, and by position, a pseudo-random shuffle of the ids in which every community is one
// range. A node of planned degree d owns d consecutive stubs. A pseudo-random matching joins stubs in pairs: most within
// their community, the others across the whole graph. It is an involution that is evaluated, not stored: stub s meets
// f^-1(f(s) xor 1), f being a shuffle of the stubs. So the row of a node is the sorted list of the owners of its stubs'
// partners, both ends of an edge agree on it, and nothing is ever sorted across rows.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "border.h"
#include "targets.h"

namespace {

constexpr int kRounds = 4;
constexpr int64_t kRowsPerTask = 256;

INLINE uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// A pseudo-random permutation of 0..size-1: rounds of an odd factor, an addend and a shift that is its own inverse, on
// the smallest power of two that holds `size`; what falls outside goes round again.
struct Shuffle {
    uint64_t size = 0, mask = 0;
    int half = 1;
    uint64_t factor[kRounds], inverse[kRounds], addend[kRounds];

    Shuffle(uint64_t count, uint64_t seed) : size(count) {
        int bits = 1;
        while (bits < 63 && (uint64_t(1) << bits) < count) ++bits;
        mask = (uint64_t(1) << bits) - 1;
        half = (bits + 1) / 2;
        for (int r = 0; r < kRounds; ++r) {
            factor[r] = mix(seed + 2 * r) | 1;
            addend[r] = mix(seed + 2 * r + 1);
            uint64_t x = factor[r];  // Newton's iteration: each step doubles the correct bits
            for (int step = 0; step < 6; ++step) x *= 2 - factor[r] * x;
            inverse[r] = x;
        }
    }

    inline uint64_t forward(uint64_t x) const {
        if (size < 2) return x;
        do {
            for (int r = 0; r < kRounds; ++r) {
                x = (x * factor[r] + addend[r]) & mask;
                x ^= x >> half;
            }
        } while (x >= size);
        return x;
    }

    inline uint64_t backward(uint64_t x) const {
        if (size < 2) return x;
        do {
            for (int r = kRounds - 1; r >= 0; --r) {
                x ^= x >> half;
                x = ((x - addend[r]) * inverse[r]) & mask;
            }
        } while (x >= size);
        return x;
    }
};

struct Communities {
    int64_t count;
    const int64_t* first;   // (count + 1): positions at which each community begins
    const int64_t* stubs;   // (nodes + 1): stubs before each position
    const int64_t* within;  // (count): how many stubs of each are matched inside it, an even number
    std::vector<int64_t> across;  // (count + 1): the others, counted up
    std::vector<Shuffle> inner;
    Shuffle outer;

    Communities(int64_t count_, const int64_t* first_, const int64_t* stubs_, const int64_t* within_, uint64_t seed)
        : count(count_), first(first_), stubs(stubs_), within(within_), outer(1, 0) {
        across.push_back(0);
        for (int64_t k = 0; k < count; ++k) {
            const int64_t size = stubs[first[k + 1]] - stubs[first[k]];
            inner.emplace_back(static_cast<uint64_t>(size), mix(seed ^ mix(static_cast<uint64_t>(k) + 1)));
            across.push_back(across.back() + size - within[k]);
        }
        outer = Shuffle(static_cast<uint64_t>(across.back()), mix(seed ^ 0x6F75746572ull));
    }

    inline int64_t of_position(int64_t position) const {
        return std::upper_bound(first, first + count + 1, position) - first - 1;
    }

    // The stub that meets stub `s` of community `k`, or -1 for the one that is left over.
    inline int64_t partner(int64_t s, int64_t k) const {
        const int64_t begin = stubs[first[k]];
        const int64_t place = static_cast<int64_t>(inner[k].forward(static_cast<uint64_t>(s - begin)));
        if (place < within[k]) return begin + static_cast<int64_t>(inner[k].backward(static_cast<uint64_t>(place ^ 1)));
        const uint64_t other = outer.forward(static_cast<uint64_t>(across[k] + place - within[k])) ^ 1;
        if (other >= outer.size) return -1;
        const int64_t met = static_cast<int64_t>(outer.backward(other));
        const int64_t m = std::upper_bound(across.begin(), across.end(), met) - across.begin() - 1;
        return stubs[first[m]] + static_cast<int64_t>(inner[m].backward(static_cast<uint64_t>(within[m] + met - across[m])));
    }
};

}  // namespace

extern "C" {

// owners[b] = the position that owns stub b << shift; room for (stubs[nodes] >> shift) + 1.
int polyformer_synthetic_owners(int64_t nodes, const int64_t* stubs, int shift, int32_t* owners) try {
    int64_t b = 0;
    for (int64_t position = 0; position < nodes; ++position)
        for (; (b << shift) < stubs[position + 1]; ++b) owners[b] = static_cast<int32_t>(position);
    return kDone;
}
POLYFORMER_BORDER

// The community of the nodes begin, begin + 1, …: as many as there are rows.
int polyformer_synthetic_labels(int64_t nodes, int64_t communities, const int64_t* first, uint64_t seed, int64_t begin,
                                int64_t rows, int32_t* labels, int threads) try {
    const Shuffle ids(static_cast<uint64_t>(nodes), mix(seed));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < rows; ++i) {
        const int64_t position = static_cast<int64_t>(ids.forward(static_cast<uint64_t>(begin + i)));
        labels[i] = static_cast<int32_t>(std::upper_bound(first, first + communities + 1, position) - first - 1);
    }
    return kDone;
}
POLYFORMER_BORDER

// `count` nodes drawn without repeats, in no order.
int polyformer_synthetic_sample(int64_t nodes, uint64_t seed, int64_t count, int64_t* drawn, int threads) try {
    const Shuffle order(static_cast<uint64_t>(nodes), mix(seed ^ 0x73616D706C65ull));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; ++i)
        drawn[i] = static_cast<int64_t>(order.backward(static_cast<uint64_t>(i)));
    return kDone;
}
POLYFORMER_BORDER

// Rows begin, begin + 1, … of the adjacency: sorted, without repeats and loops, one after the other in `indices`, their
// lengths in `lengths`. Stops after `most_rows`, or when planned degrees no longer fit into `capacity`. `counts` receives
// the number of rows and how many stubs those rows own; a single row must fit.
int polyformer_synthetic_rows(int64_t nodes, int64_t communities, const int64_t* first, const int64_t* stubs,
                              const int64_t* within, const int32_t* owners, int shift, uint64_t seed, int64_t begin,
                              int64_t most_rows, int32_t* indices, int64_t capacity, int32_t* lengths, int64_t* counts,
                              int threads) try {
    const Shuffle ids(static_cast<uint64_t>(nodes), mix(seed));
    const Communities graph(communities, first, stubs, within, seed);
    most_rows = std::min(most_rows, nodes - begin);
    std::vector<int64_t> starts(static_cast<size_t>(most_rows + 1), 0);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < most_rows; ++i) {
        const int64_t position = static_cast<int64_t>(ids.forward(static_cast<uint64_t>(begin + i)));
        starts[i + 1] = stubs[position + 1] - stubs[position];
    }
    int64_t rows = 0;
    while (rows < most_rows && starts[rows] + starts[rows + 1] <= capacity) {
        starts[rows + 1] += starts[rows];
        ++rows;
    }
    counts[0] = rows;
    counts[1] = starts[rows];
    const int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
    std::atomic<bool> out_of_memory{false};
#pragma omp parallel num_threads(threads)
    {
        std::vector<int64_t> met;
#pragma omp for schedule(dynamic, 4)
        for (int64_t task = 0; task < tasks; ++task) {
            const int64_t from = task * kRowsPerTask, to = std::min(rows, from + kRowsPerTask);
            met.clear();
            try {
                met.reserve(static_cast<size_t>(starts[to] - starts[from]));
            } catch (const std::bad_alloc&) {
                out_of_memory = true;
                continue;
            }
            for (int64_t i = from; i < to; ++i) {
                const int64_t position = static_cast<int64_t>(ids.forward(static_cast<uint64_t>(begin + i)));
                const int64_t community = graph.of_position(position);
                for (int64_t s = stubs[position]; s < stubs[position + 1]; ++s) {
                    const int64_t other = graph.partner(s, community);
                    met.push_back(other);
                    if (other >= 0) __builtin_prefetch(owners + (other >> shift));
                }
            }
            // Three passes, so that the cache misses of many stubs overlap.
            const int64_t size = static_cast<int64_t>(met.size());
            int32_t* out = indices + starts[from];
            for (int64_t e = 0; e < size; ++e) {
                out[e] = met[e] < 0 ? -1 : owners[met[e] >> shift];
                if (met[e] >= 0) __builtin_prefetch(stubs + out[e] + 1);
            }
            for (int64_t e = 0; e < size; ++e) {
                if (met[e] < 0) continue;
                int64_t owner = out[e];
                while (stubs[owner + 1] <= met[e]) ++owner;
                out[e] = static_cast<int32_t>(ids.backward(static_cast<uint64_t>(owner)));
            }
            for (int64_t i = from; i < to; ++i) {
                int32_t* row = indices + starts[i];
                int32_t* stop = indices + starts[i + 1];
                const int32_t self = static_cast<int32_t>(begin + i);
                stop = std::remove_if(row, stop, [self](int32_t id) { return id < 0 || id == self; });
                std::sort(row, stop);
                lengths[i] = static_cast<int32_t>(std::unique(row, stop) - row);
            }
        }
    }
    if (out_of_memory) return kOutOfMemory;
    int64_t written = 0;
    for (int64_t i = 0; i < rows; ++i) {
        if (written != starts[i]) std::memmove(indices + written, indices + starts[i], sizeof(int32_t) * lengths[i]);
        written += lengths[i];
    }
    return kDone;
}
POLYFORMER_BORDER

// out[i, j] = signal * centres[labels[i], j] + noise * g, g of mean 0 and variance 1: the sum of four uniform numbers.
int polyformer_synthetic_features(uint64_t seed, int64_t begin, int64_t rows, int64_t width, const int32_t* labels,
                                  const float* centres, float signal, float noise, float* out, int threads) try {
    const float scale = noise * 2.6429e-5f;  // sqrt(12 / 4) / 65536
    const uint64_t key = mix(seed ^ 0x6E6F697365ull);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < rows; ++i) {
        const float* centre = centres + static_cast<int64_t>(labels[i]) * width;
        float* row = out + i * width;
        const uint64_t base = key + static_cast<uint64_t>(begin + i) * static_cast<uint64_t>(width);
        for (int64_t j = 0; j < width; ++j) {
            const uint64_t x = mix(base + static_cast<uint64_t>(j));
            const int32_t sum = static_cast<int32_t>((x & 0xFFFF) + ((x >> 16) & 0xFFFF) + ((x >> 32) & 0xFFFF) + (x >> 48));
            row[j] = signal * centre[j] + scale * static_cast<float>(sum - 131070);
        }
    }
    return kDone;
}
POLYFORMER_BORDER
}
