// Products of a CSR matrix with a block of a few columns, fused with the step of a recurrence. Every row is summed by one
// thread in the order of its entries, so results do not depend on the number of threads or on how the columns are cut
// into blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "targets.h"

namespace {

constexpr int64_t kPrefetch = 32;
constexpr int64_t kRowsAhead = 4;

template <typename T>
struct Product {
    int64_t rows;
    const int64_t* indptr;
    const int32_t* indices;
    const float* values;      // null: all ones
    const double* row_scale;  // null: all ones
    T loop;                   // weight of the diagonal
    int64_t first_row;        // the diagonal of row i is at x[first_row + i]
    const T* x;
    double alpha;
    const T* previous;  // null: no term
    T beta;
    T* out;
    T* emit;  // null: nothing; else row i goes to emit + place * emit_stride, scaled
    int64_t emit_stride;
    int64_t emit_width;
    const T* emit_scale;
    const int32_t* emit_place;  // null: row i itself; below 0: nowhere
};

// A few columns in a register. Plain arrays of sums would live on the stack.
template <typename T>
struct Lanes {
    typedef T Vector __attribute__((vector_size(32)));
    static constexpr int kCount = 32 / sizeof(T);
};

template <typename T>
INLINE void load(typename Lanes<T>::Vector& vector, const T* from) {
    std::memcpy(&vector, from, sizeof vector);
}

template <typename T>
INLINE void store(T* to, const typename Lanes<T>::Vector& vector) {
    std::memcpy(to, &vector, sizeof vector);
}

// Keeps a product from being fused with the sum that it enters: of two products in one sum, the compiler would fuse
// either, at one width this and at another that, and results would depend on the width in their last bit.
template <typename V>
INLINE void keep_apart(V& product) {
    __asm__("" : "+m"(product));
}

template <int W, bool Write, typename T>
INLINE void prefetch_row(const T* row) {
    for (int c = 0; c < W; c += int(64 / sizeof(T))) __builtin_prefetch(row + c, Write);
}

// out[i] = alpha * row_scale[i] * (sum_e values[e] x[indices[e]] + loop * x[first_row + i]) + beta * previous[i]
template <typename T, int W, bool Weighted>
INLINE void product_rows(const Product<T> p, int64_t begin, int64_t end) {
    typedef typename Lanes<T>::Vector Vector;
    constexpr int kLanes = Lanes<T>::kCount, kVectors = W / kLanes;
    const int64_t last = p.indptr[p.rows];
    const bool whole_emit = p.emit && p.emit_width == W;
    for (int64_t i = begin; i < end; ++i) {
        // The rows of the output are far apart, so no hardware prefetcher follows them.
        if (whole_emit && !p.emit_place && i + kRowsAhead < end)
            prefetch_row<W, true>(p.emit + (i + kRowsAhead) * p.emit_stride);
        Vector sum[kVectors], row;
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[v] = Vector{};
        for (int64_t e = p.indptr[i]; e < p.indptr[i + 1]; ++e) {
            if (e + kPrefetch < last) prefetch_row<W, false>(p.x + int64_t(p.indices[e + kPrefetch]) * W);
            const T* from = p.x + int64_t(p.indices[e]) * W;
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) {
                load<T>(row, from + v * kLanes);
                sum[v] += Weighted ? T(p.values[e]) * row : row;
            }
        }
        if (p.loop != 0) {
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) {
                load<T>(row, p.x + (p.first_row + i) * W + v * kLanes);
                sum[v] += p.loop * row;
            }
        }
        // The scale in two parts: rounded to one float, its error would be the same in every hop and shift the spectrum.
        const double scale = p.row_scale ? p.alpha * p.row_scale[i] : p.alpha;
        const T high = static_cast<T>(scale), low = static_cast<T>(scale - static_cast<double>(high));
        T* out = p.out + i * W;
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
            Vector rest = low * sum[v];
            keep_apart(rest);
            sum[v] = high * sum[v] + rest;
        }
        if (p.previous) {  // a loop of its own: branches within the one above would keep some of its sums from being fused
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) {
                load<T>(row, p.previous + i * W + v * kLanes);
                sum[v] += p.beta * row;
            }
        }
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) store<T>(out + v * kLanes, sum[v]);
        const int64_t place = !p.emit ? -1 : p.emit_place ? p.emit_place[i] : i;
        if (place < 0) continue;
        T* emit = p.emit + place * p.emit_stride;
        const T factor = p.emit_scale ? p.emit_scale[i] : T(1);
        if (whole_emit) {
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) store<T>(emit + v * kLanes, factor * sum[v]);
        } else {
            for (int64_t c = 0; c < p.emit_width; ++c) emit[c] = factor * out[c];
        }
    }
}

template <typename T>
using RowFunction = void (*)(const Product<T>&, int64_t, int64_t);

template <typename T, int W, bool Weighted>
void rows_plain(const Product<T>& p, int64_t begin, int64_t end) {
    product_rows<T, W, Weighted>(p, begin, end);
}

#if WIDE_TARGETS
template <typename T, int W, bool Weighted>
AVX2 void rows_avx2(const Product<T>& p, int64_t begin, int64_t end) {
    product_rows<T, W, Weighted>(p, begin, end);
}
template <typename T, int W, bool Weighted>
AVX512 void rows_avx512(const Product<T>& p, int64_t begin, int64_t end) {
    product_rows<T, W, Weighted>(p, begin, end);
}
#endif

template <typename T, int W, bool Weighted>
RowFunction<T> best_rows() {
#if WIDE_TARGETS
    if (has_avx512()) return rows_avx512<T, W, Weighted>;
    if (has_avx2()) return rows_avx2<T, W, Weighted>;
#endif
    return rows_plain<T, W, Weighted>;
}

template <typename T>
RowFunction<T> choose(int width, bool weighted) {
    switch (width) {
        case 8: return weighted ? best_rows<T, 8, true>() : best_rows<T, 8, false>();
        case 16: return weighted ? best_rows<T, 16, true>() : best_rows<T, 16, false>();
        case 32: return weighted ? best_rows<T, 32, true>() : best_rows<T, 32, false>();
        case 64: return weighted ? best_rows<T, 64, true>() : best_rows<T, 64, false>();
        default: return nullptr;
    }
}

}  // namespace
