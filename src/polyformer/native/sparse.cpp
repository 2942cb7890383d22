// Sparse products and the column-wise sums that keep the optimal basis orthogonal. Plain C functions on plain buffers,
// called through ctypes. Every column's sums are cut at fixed rows, so they do not depend on the number of threads.

#include <vector>

#include "border.h"
#include "product.h"

namespace {

constexpr int64_t kRowsPerTask = 128;
constexpr int64_t kRowsPerSum = 8192;
constexpr int kMostTokens = 64;

template <typename T>
int run_product(int width, const Product<T>& product, int threads) {
    const RowFunction<T> run = choose<T>(width, product.values != nullptr);
    if (!run) return kRefused;
    const int64_t tasks = (product.rows + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) {
        const int64_t begin = task * kRowsPerTask;
        run(product, begin, std::min(product.rows, begin + kRowsPerTask));
    }
    return kDone;
}

// out[i] = sum_e values[e] x[indices[e]] of rows of any width, a few columns at a time so that sums stay in registers.
template <typename T>
struct Wide {
    int64_t rows, columns;
    const int64_t* indptr;
    const int32_t* indices;
    const float* values;
    const T* x;
    T* out;
};

template <typename T>
INLINE void wide_rows(const Wide<T> p, int64_t begin, int64_t end) {
    typedef typename Lanes<T>::Vector Vector;
    constexpr int kLanes = Lanes<T>::kCount, kVectors = 4;
    constexpr int64_t kColumns = kLanes * kVectors;
    for (int64_t i = begin; i < end; ++i) {
        T* out = p.out + i * p.columns;
        int64_t c = 0;
        for (; c + kColumns <= p.columns; c += kColumns) {
            Vector sum[kVectors], row;
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) sum[v] = Vector{};
            for (int64_t e = p.indptr[i]; e < p.indptr[i + 1]; ++e) {
                const T* from = p.x + int64_t(p.indices[e]) * p.columns + c;
                const T value = p.values ? T(p.values[e]) : T(1);
#pragma GCC unroll 16
                for (int v = 0; v < kVectors; ++v) {
                    load<T>(row, from + v * kLanes);
                    sum[v] += value * row;
                }
            }
#pragma GCC unroll 16
            for (int v = 0; v < kVectors; ++v) store<T>(out + c + v * kLanes, sum[v]);
        }
        for (; c < p.columns; ++c) {
            T sum = 0;
            for (int64_t e = p.indptr[i]; e < p.indptr[i + 1]; ++e)
                sum += (p.values ? T(p.values[e]) : T(1)) * p.x[int64_t(p.indices[e]) * p.columns + c];
            out[c] = sum;
        }
    }
}

template <typename T>
void wide_plain(const Wide<T>& p, int64_t begin, int64_t end) {
    wide_rows<T>(p, begin, end);
}
#if WIDE_TARGETS
template <typename T>
AVX2 void wide_avx2(const Wide<T>& p, int64_t begin, int64_t end) {
    wide_rows<T>(p, begin, end);
}
#endif

template <typename T>
void run_wide(const Wide<T>& product, int threads) {
    auto run = wide_plain<T>;
#if WIDE_TARGETS
    if (has_avx2()) run = wide_avx2<T>;
#endif
    constexpr int64_t kRows = 32;
    const int64_t tasks = (product.rows + kRows - 1) / kRows;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task)
        run(product, task * kRows, std::min(product.rows, (task + 1) * kRows));
}

namespace plain {
#include "mixing_body.h"
}
#if WIDE_TARGETS
BEGIN_AVX2
namespace avx2 {
#include "mixing_body.h"
}
END_AVX2
#endif

}  // namespace

extern "C" {

// A digest of the table of signatures that this library was built from; the caller refuses any other.
int polyformer_abi() { return POLYFORMER_ABI; }

// Both are refused if `width` is none of 8, 16, 32, 64.
#define POLYFORMER_PRODUCT(name, T)                                                                                     \
    int name(int64_t rows, int width, const int64_t* indptr, const int32_t* indices, const float* values,              \
             const double* row_scale, double loop, int64_t first_row, const T* x, double alpha, const T* previous,     \
             double beta, T* out, T* emit, int64_t emit_stride, int64_t emit_width, const T* emit_scale,             \
             int threads) try {                                                                                        \
        const Product<T> product{rows, indptr, indices, values, row_scale, T(loop), first_row, x, alpha, previous,     \
                                 T(beta), out, emit, emit_stride, emit_width, emit_scale, nullptr};                    \
        return run_product<T>(width, product, threads);                                                                \
    }                                                                                                                  \
    POLYFORMER_BORDER

POLYFORMER_PRODUCT(polyformer_product_float32, float)
POLYFORMER_PRODUCT(polyformer_product_float64, double)

// out (rows, columns) = B x for a CSR matrix B and x (any, columns).
#define POLYFORMER_WIDE(name, T)                                                                                       \
    int name(int64_t rows, int64_t columns, const int64_t* indptr, const int32_t* indices, const float* values,       \
             const T* x, T* out, int threads) try {                                                                   \
        run_wide<T>(Wide<T>{rows, columns, indptr, indices, values, x, out}, threads);                                \
        return kDone;                                                                                                 \
    }                                                                                                                 \
    POLYFORMER_BORDER

POLYFORMER_WIDE(polyformer_wide_product_float32, float)
POLYFORMER_WIDE(polyformer_wide_product_float64, double)

// dots[j, c] = sum_i basis[j, i, c] * x[i, c]; basis is (count, rows, width).
int polyformer_column_dots(int64_t count, int64_t rows, int64_t width, const double* basis, const double* x,
                           double* dots, int threads) try {
    const int64_t tasks = (rows + kRowsPerSum - 1) / kRowsPerSum;
    std::vector<double> partial(static_cast<size_t>(tasks * count * width), 0.0);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) {
        const int64_t begin = task * kRowsPerSum, end = std::min(rows, begin + kRowsPerSum);
        for (int64_t j = 0; j < count; ++j) {
            double* sum = partial.data() + (task * count + j) * width;
            for (int64_t i = begin; i < end; ++i) {
                const double* b = basis + (j * rows + i) * width;
                const double* v = x + i * width;
                for (int64_t c = 0; c < width; ++c) sum[c] += b[c] * v[c];
            }
        }
    }
    std::fill(dots, dots + count * width, 0.0);
    for (int64_t task = 0; task < tasks; ++task)
        for (int64_t k = 0; k < count * width; ++k) dots[k] += partial[static_cast<size_t>(task * count * width + k)];
    return kDone;
}
POLYFORMER_BORDER

// x[i, c] -= sum_j weights[j, c] * basis[j, i, c]
int polyformer_column_subtract(int64_t count, int64_t rows, int64_t width, const double* basis, const double* weights,
                               double* x, int threads) try {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < count; ++j) {
            const double* b = basis + (j * rows + i) * width;
            for (int64_t c = 0; c < width; ++c) x[i * width + c] -= weights[j * width + c] * b[c];
        }
    }
    return kDone;
}
POLYFORMER_BORDER

// Mix the orders of tokens (rows, count, width) in place. Refused if there are too many orders.
int polyformer_mix(int64_t rows, int count, int64_t width, const float* matrix, float* tokens, int threads) try {
    if (count > kMostTokens) return kRefused;
#if WIDE_TARGETS
    const auto function = has_avx2() ? avx2::mix_rows : plain::mix_rows;
#else
    const auto function = plain::mix_rows;
#endif
    const int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) {
        const int64_t begin = task * kRowsPerTask;
        function(begin, std::min(rows, begin + kRowsPerTask), count, width, matrix, tokens);
    }
    return kDone;
}
POLYFORMER_BORDER
}
