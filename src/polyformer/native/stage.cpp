// Stages of the cascade: each function is one pass over memory where torch takes five to ten. The bodies, in stage_body.h,
// are compiled once per instruction set, in attention_plain.cpp, attention_avx2.cpp and attention_avx512.cpp, and chosen
// here.

#include "stage.h"

#include "border.h"
#include "tasks.h"

namespace {

const StageFunctions& functions() {
#if WIDE_TARGETS
    if (has_avx512()) return kStageAvx512;
    if (has_avx2()) return kStageAvx2;
#endif
    return kStagePlain;
}

}  // namespace

extern "C" {

int polyformer_gate_forward(int64_t nodes, int heads, int tokens, int channels, const float* token_rows,
                            const float* products, const float* weight_sums, const float* bias, const float* order_bias,
                            float* statistics, float* kept, float* out, int threads) try {
    Gate p{};
    p.heads = heads, p.tokens = tokens, p.channels = channels, p.token_rows = token_rows, p.products = products;
    p.weight_sums = weight_sums, p.bias = bias, p.order_bias = order_bias, p.statistics = statistics, p.kept = kept;
    p.out = out;
    const auto function = functions().gate_forward;
    for_tasks(nodes, threads, [&](int64_t begin, int64_t end) { function(p, begin, end); });
    return kDone;
}
POLYFORMER_BORDER

// `sums` (3, heads * tokens): the gradients of order_bias, bias and weight_sums.
int polyformer_gate_backward(int64_t nodes, int heads, int tokens, int channels, const float* token_rows,
                             const float* products, const float* weight_sums, const float* order_bias,
                             float* statistics, float* kept, const float* out_grad, float* token_grad,
                             float* product_grad, float* sums, int threads) try {
    Gate p{};
    p.heads = heads, p.tokens = tokens, p.channels = channels, p.token_rows = token_rows, p.products = products;
    p.weight_sums = weight_sums, p.order_bias = order_bias, p.statistics = statistics, p.kept = kept;
    p.out_grad = out_grad, p.token_grad = token_grad, p.product_grad = product_grad;
    const auto function = functions().gate_backward;
    sum_tasks(nodes, 3 * heads * tokens, threads, sums,
              [&](int64_t begin, int64_t end, float* partial) { function(p, begin, end, partial); });
    return kDone;
}
POLYFORMER_BORDER

// `sums` (2, width): of x - centre and of its square, column by column.
int polyformer_column_moments(int64_t rows, int64_t width, const float* x, const float* centre, float* sums,
                              int threads) try {
    const auto function = functions().column_moments;
    sum_tasks(rows, 2 * width, threads, sums, [&](int64_t begin, int64_t end, float* partial) {
        function(end - begin, width, x + begin * width, centre, partial);
    });
    return kDone;
}
POLYFORMER_BORDER

// out = residual + mask * max(scale x + shift, 0); the mask of position i is a hash of i and the seed.
int polyformer_finish_forward(int64_t rows, int64_t width, const float* x, const float* scale, const float* shift,
                              const float* residual, uint32_t seed, uint32_t threshold, float keep, float* out,
                              int threads) try {
    Finish p{};
    p.width = width, p.x = x, p.scale = scale, p.shift = shift, p.residual = residual, p.seed = seed;
    p.threshold = threshold, p.keep = keep, p.out = out;
    const auto function = functions().finish_forward;
    for_tasks(rows, threads, [&](int64_t begin, int64_t end) { function(p, begin, end); });
    return kDone;
}
POLYFORMER_BORDER

// `out` is what passes back through mask and ReLU; `sums` (2, width) of it and of its product with x - centre.
int polyformer_finish_backward(int64_t rows, int64_t width, const float* x, const float* scale, const float* shift,
                               const float* centre, uint32_t seed, uint32_t threshold, float keep,
                               const float* out_grad, float* out, float* sums, int threads) try {
    Finish p{};
    p.width = width, p.x = x, p.scale = scale, p.shift = shift, p.centre = centre, p.seed = seed;
    p.threshold = threshold, p.keep = keep, p.out_grad = out_grad, p.out = out;
    const auto function = functions().finish_backward;
    sum_tasks(rows, 2 * width, threads, sums,
              [&](int64_t begin, int64_t end, float* partial) { function(p, begin, end, partial); });
    return kDone;
}
POLYFORMER_BORDER

// out = factors[0] out + factors[1] x + factors[2], column by column.
int polyformer_combine_columns(int64_t rows, int64_t width, const float* factors, const float* x, float* out,
                               int threads) try {
    const auto function = functions().combine_columns;
    for_tasks(rows, threads, [&](int64_t begin, int64_t end) {
        function(end - begin, width, factors, x + begin * width, out + begin * width);
    });
    return kDone;
}
POLYFORMER_BORDER
}
