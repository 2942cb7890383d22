// Rows of one order of the token recurrence, each made from all its neighbours.
#include "border.h"
#include "token_rows_body.h"

namespace {

void row_plain(const Hop& h, int64_t i) { make_row(h, i); }
#if WIDE_TARGETS
AVX2 void row_avx2(const Hop& h, int64_t i) { make_row(h, i); }
AVX512 void row_avx512(const Hop& h, int64_t i) { make_row(h, i); }
#endif

}  // namespace

extern "C" {

// T_k of some nodes, k = order, and how far each is from the T_k before: alpha * P T_(k-1) + beta * T_(k-2).
int polyformer_token_rows(int64_t rows, int64_t stored_nodes, int64_t tokens, int64_t columns, int order,
                          const int64_t* nodes, const int64_t* indptr, const int32_t* indices, const float* weights,
                          const double* degrees, double loop, const float* stored, const float* log,
                          const int32_t* log_now, const int32_t* log_last, const int32_t* log_previous,
                          const int32_t* place_last, const float* work_last, const int32_t* place_previous,
                          const float* work_previous, float* out, double* moved, int threads) try {
    if (order < 1 || order >= tokens) return kRefused;
    const auto of_order = [&](int64_t k) { return stored + k * columns; };
    const Order now{nullptr, nullptr, log_now, log, of_order(order)};
    const Order last{place_last, work_last, log_last, log, of_order(order - 1)};
    const Order previous{place_previous, work_previous, log_previous, log, order < 2 ? nullptr : of_order(order - 2)};
    const Hop hop{{stored_nodes, tokens, columns}, nodes, indptr, indices, weights, degrees, loop,
                  now,          last,   previous, order < 2 ? -1.0 : -2.0, order < 2 ? 0.0 : -1.0, out, moved};
#if WIDE_TARGETS
    const auto function = has_avx512() ? row_avx512 : has_avx2() ? row_avx2 : row_plain;
#else
    const auto function = row_plain;
#endif
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
    for (int64_t i = 0; i < rows; ++i) function(hop, i);
    return kDone;
}
POLYFORMER_BORDER
}
