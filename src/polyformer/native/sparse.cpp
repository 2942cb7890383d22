// The sparse kernel: products of a CSR matrix with a block of a few columns, fused with the step of a recurrence,
// and the column-wise sums that keep the optimal basis orthogonal. Plain C functions on plain buffers, called
// through ctypes. Every row is summed by one thread in the order of its entries, and every column's sums are cut at
// fixed rows, so results do not depend on the number of threads or on how the columns are cut into blocks.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "targets.h"

namespace {

constexpr int64_t kRowsPerTask = 128;
constexpr int64_t kRowsPerSum = 8192;
constexpr int64_t kPrefetch = 32;
constexpr int64_t kRowsAhead = 4;
constexpr size_t kLine = 64;
constexpr int kMostTokens = 64;

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

template <typename T>
int run_product(int width, const Product<T>& product, int threads) {
    const RowFunction<T> run = choose<T>(width, product.values != nullptr);
    if (!run) return 1;
    const int64_t tasks = (product.rows + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) {
        const int64_t begin = task * kRowsPerTask;
        run(product, begin, std::min(product.rows, begin + kRowsPerTask));
    }
    return 0;
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

// The widest blocks of columns of which every thread gets one.
inline int block_width(int64_t columns, int threads) {
    for (int width : {32, 16})
        if ((columns + width - 1) / width >= threads) return width;
    return 8;
}

// What the tokens of all columns need: M = -S (A + loop I) S of `nodes` rows and, for each node, its row among the
// tokens (below 0: it has none).
template <typename T>
struct Recurrence {
    int64_t nodes, columns;
    int order;
    const int64_t* indptr;
    const int32_t* indices;
    const float* values;
    const double* squared;  // of S
    double loop;
    const T* scaling;
    const T* inverse;
    const int32_t* place;
    int64_t token_stride() const { return (order + 1) * columns; }
};

// One block of columns, with two buffers of its own: blocks need nothing of each other.
template <typename T>
struct Block {
    const Recurrence<T>& r;
    int width;
    int64_t start, used;
    RowFunction<T> run;
    size_t size;
    std::vector<T> room;
    T *first, *second;  // on borders of cache lines

    Block(const Recurrence<T>& recurrence, int block_columns)
        : r(recurrence), width(block_columns), start(0), used(0), run(choose<T>(width, r.values != nullptr)),
          size(static_cast<size_t>(r.nodes) * width), room(2 * size + kLine / sizeof(T)) {
        const uintptr_t address = reinterpret_cast<uintptr_t>(room.data());
        first = room.data() + (kLine - address % kLine) % kLine / sizeof(T);
        second = first + size;
    }

    void move_to(int64_t block) {
        start = block * width;
        used = std::min<int64_t>(width, r.columns - start);
    }

    // u_{k+1} = alpha S^2 (A + loop I) u_k - u_{k-1}; the last term is left out in the first step.
    void step(const T* x, T* out, double alpha, bool with_previous, T* emit) const {
        run(Product<T>{r.nodes, r.indptr, r.indices, r.values, r.squared, T(r.loop), 0, x, alpha,
                       with_previous ? out : nullptr, T(-1), out, emit, r.token_stride(), used, r.inverse, r.place},
            0, r.nodes);
    }

    // tokens[place[i], k] = (T_k(M) x)_i
    void forward(const T* x, T* tokens) {
        T *current = first, *other = second;
        for (int64_t i = 0; i < r.nodes; ++i) {
            const T* from = x + i * r.columns + start;
            T* u = current + i * width;
            for (int64_t c = 0; c < used; ++c) u[c] = r.scaling[i] * from[c];
            std::fill(u + used, u + width, T(0));
            if (r.place[i] >= 0) std::copy(from, from + used, tokens + r.place[i] * r.token_stride() + start);
        }
        for (int k = 1; k <= r.order; ++k) {
            step(current, other, k == 1 ? -1.0 : -2.0, k > 1, tokens + k * r.columns + start);
            std::swap(current, other);
        }
    }

    // result = sum_k T_k(M) gradient_k by Clenshaw's recurrence.
    void adjoint(const T* gradient, T* result) {
        T *later = first, *last = second;
        std::fill(first, first + 2 * size, T(0));
        add(gradient, r.order, later);
        for (int k = r.order - 1; k >= 0; --k) {
            step(later, last, k ? -2.0 : -1.0, true, nullptr);
            std::swap(later, last);
            add(gradient, k, later);
        }
        for (int64_t i = 0; i < r.nodes; ++i)
            for (int64_t c = 0; c < used; ++c) result[i * r.columns + start + c] = r.inverse[i] * later[i * width + c];
    }

    void add(const T* gradient, int k, T* buffer) const {
        for (int64_t i = 0; i < r.nodes; ++i) {
            if (r.place[i] < 0) continue;
            const T* from = gradient + r.place[i] * r.token_stride() + k * r.columns + start;
            for (int64_t c = 0; c < used; ++c) buffer[i * width + c] += r.scaling[i] * from[c];
        }
    }
};

template <bool Forward, typename T>
void run_blocks(const Recurrence<T>& recurrence, const T* from, T* to, int threads) {
    const int width = block_width(recurrence.columns, threads);
    const int64_t blocks = (recurrence.columns + width - 1) / width;
#pragma omp parallel num_threads(threads)
    {
        Block<T> block(recurrence, width);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < blocks; ++i) {
            block.move_to(i);
            if (Forward)
                block.forward(from, to);
            else
                block.adjoint(from, to);
        }
    }
}

namespace plain {
#include "mixing_body.h"
}
#if WIDE_TARGETS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "mixing_body.h"
}
#pragma GCC pop_options
#endif

}  // namespace

extern "C" {

// Changes whenever a signature below does; the caller refuses any other.
int polyformer_abi() { return 10; }

// Both return 0, or 1 if `width` is none of 8, 16, 32, 64.
#define POLYFORMER_PRODUCT(name, T)                                                                                     \
    int name(int64_t rows, int width, const int64_t* indptr, const int32_t* indices, const float* values,              \
             const double* row_scale, double loop, int64_t first_row, const T* x, double alpha, const T* previous,     \
             double beta, T* out, T* emit, int64_t emit_stride, int64_t emit_width, const T* emit_scale, int threads) {\
        const Product<T> product{rows, indptr, indices, values, row_scale, T(loop), first_row, x, alpha, previous,     \
                                 T(beta), out, emit, emit_stride, emit_width, emit_scale, nullptr};                    \
        return run_product<T>(width, product, threads);                                                                \
    }

POLYFORMER_PRODUCT(polyformer_product_float32, float)
POLYFORMER_PRODUCT(polyformer_product_float64, double)

// tokens (B, order + 1, columns) of x (nodes, columns) at B chosen nodes, and the adjoint of that map.
#define POLYFORMER_CHEBYSHEV(name, T, Forward)                                                                         \
    void name(int64_t nodes, int64_t columns, int order, const int64_t* indptr, const int32_t* indices,               \
              const float* values, const double* squared, double loop, const T* scaling, const T* inverse,            \
              const int32_t* place, const T* from, T* to, int threads) {                                              \
        const Recurrence<T> recurrence{nodes,   columns, order,   indptr,  indices, values,                           \
                                       squared, loop,    scaling, inverse, place};                                    \
        run_blocks<Forward>(recurrence, from, to, threads);                                                           \
    }

POLYFORMER_CHEBYSHEV(polyformer_chebyshev_float32, float, true)
POLYFORMER_CHEBYSHEV(polyformer_chebyshev_float64, double, true)
POLYFORMER_CHEBYSHEV(polyformer_chebyshev_adjoint_float32, float, false)
POLYFORMER_CHEBYSHEV(polyformer_chebyshev_adjoint_float64, double, false)

// out (rows, columns) = B x for a CSR matrix B and x (any, columns).
#define POLYFORMER_WIDE(name, T)                                                                                       \
    void name(int64_t rows, int64_t columns, const int64_t* indptr, const int32_t* indices, const float* values,      \
              const T* x, T* out, int threads) {                                                                      \
        run_wide<T>(Wide<T>{rows, columns, indptr, indices, values, x, out}, threads);                                \
    }

POLYFORMER_WIDE(polyformer_wide_product_float32, float)
POLYFORMER_WIDE(polyformer_wide_product_float64, double)

// dots[j, c] = sum_i basis[j, i, c] * x[i, c]; basis is (count, rows, width).
void polyformer_column_dots(int64_t count, int64_t rows, int64_t width, const double* basis, const double* x,
                            double* dots, int threads) {
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
}

// x[i, c] -= sum_j weights[j, c] * basis[j, i, c]
void polyformer_column_subtract(int64_t count, int64_t rows, int64_t width, const double* basis, const double* weights,
                                double* x, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < count; ++j) {
            const double* b = basis + (j * rows + i) * width;
            for (int64_t c = 0; c < width; ++c) x[i * width + c] -= weights[j * width + c] * b[c];
        }
    }
}

// Mix the orders of tokens (rows, count, width) in place. Returns 0, or 1 if there are too many orders.
int polyformer_mix(int64_t rows, int count, int64_t width, const float* matrix, float* tokens, int threads) {
    if (count > kMostTokens) return 1;
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
    return 0;
}
}
