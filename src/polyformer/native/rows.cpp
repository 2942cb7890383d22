// Layer normalisation and GELU, each one pass over memory. The bodies, in rows_body.h, are compiled once per instruction
// set and chosen here.

#include "rows.h"

#include "border.h"
#include "tasks.h"

namespace {

const RowFunctions& functions() {
#if WIDE_TARGETS
    if (has_avx512()) return kRowsAvx512;
    if (has_avx2()) return kRowsAvx2;
#endif
    return kRowsPlain;
}

}  // namespace

extern "C" {

int polyformer_norm_forward(int64_t rows, int64_t width, const float* x, const float* weight, const float* bias,
                            float epsilon, float* statistics, float* out, int threads) try {
    Norm p{};
    p.width = width, p.x = x, p.weight = weight, p.bias = bias, p.epsilon = epsilon, p.statistics = statistics, p.out = out;
    const auto function = functions().norm_forward;
    for_tasks(rows, threads, [&](int64_t begin, int64_t end) { function(p, begin, end); });
    return kDone;
}
POLYFORMER_BORDER

// `sums` (2, width): the gradients of weight and bias.
int polyformer_norm_backward(int64_t rows, int64_t width, const float* x, const float* weight, float* statistics,
                             const float* out_grad, const float* residual_grad, float* x_grad, float* sums,
                             int threads) try {
    Norm p{};
    p.width = width, p.x = x, p.weight = weight, p.statistics = statistics, p.out_grad = out_grad;
    p.residual_grad = residual_grad, p.x_grad = x_grad;
    const auto function = functions().norm_backward;
    sum_tasks(rows, 2 * width, threads, sums,
              [&](int64_t begin, int64_t end, float* partial) { function(p, begin, end, partial); });
    return kDone;
}
POLYFORMER_BORDER

int polyformer_gelu_forward(int64_t rows, int64_t width, const float* x, float* out, int threads) try {
    const auto function = functions().gelu_forward;
    for_tasks(rows, threads, [&](int64_t begin, int64_t end) {
        function((end - begin) * width, x + begin * width, out + begin * width);
    });
    return kDone;
}
POLYFORMER_BORDER

// `grad` becomes the gradient of x.
int polyformer_gelu_backward(int64_t rows, int64_t width, const float* x, float* grad, int threads) try {
    const auto function = functions().gelu_backward;
    for_tasks(rows, threads, [&](int64_t begin, int64_t end) {
        function((end - begin) * width, x + begin * width, grad + begin * width);
    });
    return kDone;
}
POLYFORMER_BORDER
}
