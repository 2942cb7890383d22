// The Chebyshev recurrence of all columns in one call, and its adjoint. Blocks of columns need nothing of each other: each
// thread runs whole blocks to the end, so there is no step at which threads wait.

#include "border.h"
#include "product.h"

namespace {

// M = -S (A + loop I) S of `nodes` rows and, for each node, its row among the tokens (below 0: it has none).
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

// One block of columns after the other, in two buffers of (nodes, width).
template <typename T>
struct Block {
    const Recurrence<T>& r;
    const int width;
    T *const first, *const second;
    const RowFunction<T> run;
    int64_t start, used;

    Block(const Recurrence<T>& recurrence, int block_columns, T* room)
        : r(recurrence), width(block_columns), first(room), second(room + r.nodes * width),
          run(choose<T>(width, r.values != nullptr)), start(0), used(0) {}

    void move_to(int64_t block) {
        start = block * width;
        used = std::min<int64_t>(width, r.columns - start);
    }

    // out = alpha S^2 (A + loop I) x - out; the last term is left out in the first step.
    void step(const T* x, T* out, double alpha, bool with_previous, T* emit) const {
        run(Product<T>{r.nodes, r.indptr, r.indices, r.values, r.squared, T(r.loop), 0, x, alpha,
                       with_previous ? out : nullptr, T(-1), out, emit, r.token_stride(), used, r.inverse, r.place},
            0, r.nodes);
    }

    // tokens[place[i], k] = (T_k(M) x)_i, on u_k = S T_k(M) x
    void forward(const T* x, T* tokens) const {
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

    // result = sum_k T_k(M) gradient_k by Clenshaw's recurrence
    void adjoint(const T* gradient, T* result) const {
        T *later = first, *last = second;
        std::fill(first, first + 2 * r.nodes * width, T(0));
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

// `room` holds two buffers of (nodes, width) for each thread.
template <bool Forward, typename T>
void run_blocks(const Recurrence<T>& recurrence, int width, const T* from, T* to, T* room, int threads) {
    const int64_t blocks = (recurrence.columns + width - 1) / width;
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int thread = 0; thread < threads; ++thread) {
        Block<T> block(recurrence, width, room + 2 * thread * recurrence.nodes * width);
        for (int64_t i = thread; i < blocks; i += threads) {
            block.move_to(i);
            if (Forward)
                block.forward(from, to);
            else
                block.adjoint(from, to);
        }
    }
}

}  // namespace

extern "C" {

// tokens (B, order + 1, columns) of x (nodes, columns) at B chosen nodes, and the adjoint of that map; `width` is one of
// 8, 16, 32, 64, or else the call is refused.
#define POLYFORMER_CHEBYSHEV(name, T, Forward)                                                                          \
    int name(int64_t nodes, int64_t columns, int order, const int64_t* indptr, const int32_t* indices,                 \
             const float* values, const double* squared, double loop, const T* scaling, const T* inverse,              \
             const int32_t* place, const T* input, T* output, T* room, int width, int threads) try {                   \
        if (!choose<T>(width, false)) return kRefused;                                                                 \
        const Recurrence<T> recurrence{nodes,   columns, order,   indptr,  indices, values,                            \
                                       squared, loop,    scaling, inverse, place};                                     \
        run_blocks<Forward>(recurrence, width, input, output, room, threads);                                          \
        return kDone;                                                                                                  \
    }                                                                                                                  \
    POLYFORMER_BORDER

POLYFORMER_CHEBYSHEV(polyformer_chebyshev_float32, float, true)
POLYFORMER_CHEBYSHEV(polyformer_chebyshev_float64, double, true)
POLYFORMER_CHEBYSHEV(polyformer_chebyshev_adjoint_float32, float, false)
POLYFORMER_CHEBYSHEV(polyformer_chebyshev_adjoint_float64, double, false)
}
