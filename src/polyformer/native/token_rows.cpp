// One hop of the token recurrence on some rows, from tokens that lie where they are stored: in a small working array, in
// the memory-mapped array of a token directory, or in its log. Sums are kept in double: there are few rows, and reading
// takes the time.
#include <algorithm>
#include <cstdint>

#include "border.h"
#include "targets.h"

namespace {

constexpr int kTile = 64;
constexpr int64_t kAhead = 8;

struct Hop {
    int64_t tokens, columns;
    int order;  // of the tokens that are made, 1 or more
    const int64_t* target;  // rows of `work` whose tokens are made
    const int64_t* indptr;
    const int64_t* source;  // where a row's tokens begin, times 4, plus the number of the array that holds them
    const double* coefficient;
    const double* diagonal;
    const float* arrays[3];  // 0: work, 1: stored, 2: log
    double alpha, beta;
    float* out;
};

INLINE const float* tokens_of(const Hop& h, int64_t source, int64_t order) {
    return h.arrays[source & 3] + (source >> 2) + order * h.columns;
}

INLINE void sum_tile(const Hop& h, int64_t i, int64_t first, int width) {
    double sum[kTile] = {};
    const int64_t end = h.indptr[i + 1];
    for (int64_t e = h.indptr[i]; e < end; ++e) {
        if (e + kAhead < end) {
            const float* next = tokens_of(h, h.source[e + kAhead], h.order - 1) + first;
            for (int c = 0; c < width; c += 16) __builtin_prefetch(next + c);
        }
        const float* from = tokens_of(h, h.source[e], h.order - 1) + first;
        const double factor = h.coefficient[e];
        for (int c = 0; c < width; ++c) sum[c] += factor * double(from[c]);
    }
    const float* own = h.arrays[0] + h.target[i] * h.tokens * h.columns + first;
    const float* last = own + (h.order - 1) * h.columns;
    float* out = h.out + i * h.columns + first;
    for (int c = 0; c < width; ++c) {
        double value = h.alpha * (sum[c] + h.diagonal[i] * double(last[c]));
        if (h.beta != 0) value += h.beta * double(last[c - h.columns]);
        out[c] = float(value);
    }
}

INLINE void sum_rows(const Hop& h, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        int64_t first = 0;
        for (; first + kTile <= h.columns; first += kTile) sum_tile(h, i, first, kTile);
        if (first < h.columns) sum_tile(h, i, first, int(h.columns - first));
    }
}

void rows_plain(const Hop& h, int64_t begin, int64_t end) { sum_rows(h, begin, end); }
#if WIDE_TARGETS
AVX2 void rows_avx2(const Hop& h, int64_t begin, int64_t end) { sum_rows(h, begin, end); }
AVX512 void rows_avx512(const Hop& h, int64_t begin, int64_t end) { sum_rows(h, begin, end); }
#endif

}  // namespace

extern "C" {

// out[i] = alpha * (sum_e coefficient[e] T_(order-1)[source[e]] + diagonal[i] T_(order-1)[i]) + beta * T_(order-2)[i]
int polyformer_token_rows(int64_t rows, int64_t tokens, int64_t columns, int order, const int64_t* target,
                          const int64_t* indptr, const int64_t* source, const double* coefficient,
                          const double* diagonal, const float* work, const float* stored, const float* log,
                          double alpha, double beta, float* out, int threads) try {
    if (order < 1 || order >= tokens || (order < 2 && beta != 0)) return kRefused;
    const Hop hop{tokens,   columns, order, target, indptr, source, coefficient, diagonal, {work, stored, log},
                  alpha, beta, out};
#if WIDE_TARGETS
    const auto function = has_avx512() ? rows_avx512 : has_avx2() ? rows_avx2 : rows_plain;
#else
    const auto function = rows_plain;
#endif
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
    for (int64_t i = 0; i < rows; ++i) function(hop, i, i + 1);
    return kDone;
}
POLYFORMER_BORDER
}
