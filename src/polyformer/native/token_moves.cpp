// Rows of tokens that follow their neighbours: how far tokens moved, which rows feel it, and these rows moved by as much.
#include "border.h"
#include "token_rows_body.h"

namespace {

struct Follow {
    Hop hop;
    const int32_t* move_place;  // of each node, plus one; 0: S T of the order before did not move
    const float* moves;         // how far S T of these nodes moved
    const double* gain;         // of each row, at least how far it moves
    double threshold;
    double* left_out;  // of each row, at least how far it is from where its neighbours put it
    int32_t* state;
};

enum State : int32_t { kStays, kMoves, kMadeAnew };

// Sums in float are off by at most so much of all that is added; a token is rounded by so much of itself.
constexpr double kSumError = 5e-6, kRounding = 1.2e-7, kUpwards = 1 + 1e-6;

INLINE void add_rows(const float* const* rows, const float* weights, int count, int width, double* sum) {
    float part[kTile] = {};
    for (int e = 0; e < count; ++e) {
        if (e + kAhead < count)
            for (int c = 0; c < width; c += 16) __builtin_prefetch(rows[e + kAhead] + c);
        const float *row = rows[e], weight = weights[e];
        for (int c = 0; c < width; ++c) part[c] += weight * row[c];
    }
    for (int c = 0; c < width; ++c) sum[c] += double(part[c]);
}

INLINE void add_moves(const Follow& f, int64_t node, int64_t first, int width, double* sum) {
    const Hop& h = f.hop;
    const float* rows[kChunk];
    float weights[kChunk];
    int count = 0;
    for (int64_t e = h.indptr[node]; e < h.indptr[node + 1]; ++e) {
        const int64_t place = f.move_place[h.indices[e]];
        if (!place) continue;
        rows[count] = f.moves + (place - 1) * h.layout.columns + first;
        weights[count++] = h.weights ? h.weights[e] : 1.0f;
        if (count < kChunk) continue;
        add_rows(rows, weights, count, width, sum);
        count = 0;
    }
    add_rows(rows, weights, count, width, sum);
}

// How far some columns of a node move, written to `out`; returns the square of the distance.
INLINE double move_tile(const Follow& f, int64_t i, int64_t first, int width) {
    const Hop& h = f.hop;
    double sum[kTile] = {};
    const int64_t node = h.nodes[i], place = f.move_place[node];
    add_moves(f, node, first, width, sum);
    if (h.loop != 0 && place) {
        const float* own = f.moves + (place - 1) * h.layout.columns + first;
        for (int c = 0; c < width; ++c) sum[c] += h.loop * double(own[c]);
    }
    const double factor = h.alpha * scaling(h, node);
    for (int c = 0; c < width; ++c) sum[c] *= factor;
    if (h.beta != 0 && h.previous.work_place && h.previous.work_place[node]) {
        const float* after = tokens_of(h.layout, h.previous, node) + first;
        const float* before = stored_tokens_of(h.layout, h.previous, node) + first;
        for (int c = 0; c < width; ++c) sum[c] += h.beta * (double(after[c]) - double(before[c]));
    }
    float* out = h.out + i * h.layout.columns + first;
    double square = 0;
    for (int c = 0; c < width; ++c) {
        out[c] = float(sum[c]);
        square += sum[c] * sum[c];
    }
    return square;
}

// The distance becomes the token that lies so far from the stored one.
INLINE void take_row(const Follow& f, int64_t i) {
    const Hop& h = f.hop;
    const float* before = stored_tokens_of(h.layout, h.now, h.nodes[i]);
    float* out = h.out + i * h.layout.columns;
    double moved = 0, length = 0;
    for (int64_t c = 0; c < h.layout.columns; ++c) {
        const double old = before[c], token = float(old + double(out[c])), distance = token - old;
        out[c] = float(token);
        moved += distance * distance;
        length += token * token;
    }
    h.moved[i] = std::sqrt(moved);
    f.left_out[i] = (f.left_out[i] + kRounding * std::sqrt(length) + kSumError * f.gain[i]) * kUpwards;
    f.state[i] = kMoves;
}

INLINE void follow_row(const Follow& f, int64_t i) {
    const Hop& h = f.hop;
    if (f.state[i] != kMadeAnew) {
        const int64_t columns = h.layout.columns;
        double square = 0;
        int64_t first = 0;
        for (; first + kTile <= columns; first += kTile) square += move_tile(f, i, first, kTile);
        for (; first + 16 <= columns; first += 16) square += move_tile(f, i, first, 16);
        if (first < columns) square += move_tile(f, i, first, int(columns - first));
        const double total = (f.left_out[i] + std::sqrt(square) + kSumError * f.gain[i]) * kUpwards;
        if (total <= f.threshold) {
            f.left_out[i] = total;
            f.state[i] = kStays;
            return;
        }
        if (f.left_out[i] <= f.threshold / 2) return take_row(f, i);
    }
    make_row(h, i);
    const bool stays = h.moved[i] <= f.threshold && h.nodes[i] < h.layout.stored_nodes;
    f.left_out[i] = stays ? h.moved[i] * kUpwards : 0.0;
    f.state[i] = stays ? kStays : kMoves;
}

void follow_plain(const Follow& f, int64_t i) { follow_row(f, i); }
#if WIDE_TARGETS
AVX2 void follow_avx2(const Follow& f, int64_t i) { follow_row(f, i); }
AVX512 void follow_avx512(const Follow& f, int64_t i) { follow_row(f, i); }
#endif

}  // namespace

extern "C" {

// How far S T_k of some nodes moved, k = order, and the norms: S now times tokens now less both as they were stored.
int polyformer_token_moves(int64_t count, int64_t stored_nodes, int64_t tokens, int64_t columns, int order,
                           const int64_t* nodes, const double* scale, const double* stored_scale, const float* stored,
                           const float* log, const int32_t* log_place, const int32_t* place, const float* work,
                           float* moves, double* norms, int threads) try {
    if (order < 0 || order >= tokens) return kRefused;
    const Layout layout{stored_nodes, tokens, columns};
    const Order tokens_now{place, work, log_place, log, stored + order * columns};
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; ++i) {
        const float* after = tokens_of(layout, tokens_now, nodes[i]);
        const float* before = stored_tokens_of(layout, tokens_now, nodes[i]);
        float* out = moves + i * columns;
        double square = 0;
        for (int64_t c = 0; c < columns; ++c) {
            const double move = scale[i] * double(after[c]) - (before ? stored_scale[i] * double(before[c]) : 0.0);
            out[c] = float(move);
            square += move * move;
        }
        norms[i] = std::sqrt(square);
    }
    return kDone;
}
POLYFORMER_BORDER

// Which rows feel moves of `count` nodes, and of the `direct` ones among themselves, and by how much at most, own S left
// out: `gain` holds a number for each node of the graph, zeros before; rows are written to `felt` once, in any order.
int polyformer_felt_moves(int64_t count, const int64_t* nodes, const double* norms, int64_t direct,
                          const int64_t* direct_nodes, const double* direct_norms, const int64_t* indptr,
                          const int32_t* indices, const float* weights, double loop, double* gain, int64_t* felt,
                          int64_t* num_felt) try {
    int64_t found = 0;
    const auto add = [&](int64_t node, double norm) {
        if (gain[node] == 0 && norm > 0) felt[found++] = node;
        gain[node] += norm;
    };
    for (int64_t i = 0; i < count; ++i) {
        const int64_t node = nodes[i];
        for (int64_t e = indptr[node]; e < indptr[node + 1]; ++e)
            add(indices[e], weights ? norms[i] * double(weights[e]) : norms[i]);
        if (loop != 0) add(node, loop * norms[i]);
    }
    for (int64_t i = 0; i < direct; ++i) add(direct_nodes[i], direct_norms[i]);
    *num_felt = found;
    return kDone;
}
POLYFORMER_BORDER

// T_k of some nodes, k = order, after neighbours moved. A row whose bound on what it leaves out stays within the
// threshold stays (state 0); another moves by what its neighbours send to it, or is made from all of them if it left out
// more than half of the threshold before, or if its state is 2; its state is then 1. Rows of state 1 are the first of
// `out`.
int polyformer_follow_rows(int64_t rows, int64_t stored_nodes, int64_t tokens, int64_t columns, int order,
                           const int64_t* nodes, const int64_t* indptr, const int32_t* indices, const float* weights,
                           const double* degrees, double loop, const float* stored, const float* log,
                           const int32_t* log_now, const int32_t* log_last, const int32_t* log_previous,
                           const int32_t* place_last, const float* work_last, const int32_t* place_previous,
                           const float* work_previous, const int32_t* move_place, const float* moves,
                           const double* gain, double threshold, double* left_out, int32_t* state, float* out,
                           double* moved, int threads) try {
    if (order < 1 || order >= tokens) return kRefused;
    const auto of_order = [&](int64_t k) { return stored + k * columns; };
    const Order now{nullptr, nullptr, log_now, log, of_order(order)};
    const Order last{place_last, work_last, log_last, log, of_order(order - 1)};
    const Order previous{place_previous, work_previous, log_previous, log, order < 2 ? nullptr : of_order(order - 2)};
    const Hop hop{{stored_nodes, tokens, columns}, nodes, indptr, indices, weights, degrees, loop,
                  now,          last,   previous, order < 2 ? -1.0 : -2.0, order < 2 ? 0.0 : -1.0, out, moved};
    const Follow follow{hop, move_place, moves, gain, threshold, left_out, state};
#if WIDE_TARGETS
    const auto function = has_avx512() ? follow_avx512 : has_avx2() ? follow_avx2 : follow_plain;
#else
    const auto function = follow_plain;
#endif
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads)
    for (int64_t i = 0; i < rows; ++i) function(follow, i);
    int64_t taken = 0;
    for (int64_t i = 0; i < rows; ++i) {
        if (state[i] == kStays) continue;
        if (taken < i) std::copy_n(out + i * columns, columns, out + taken * columns);
        ++taken;
    }
    return kDone;
}
POLYFORMER_BORDER
}
