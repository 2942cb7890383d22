// The core of PolyAttn, forward and backward, for the K+1 tokens of each node: far too small for a matrix library, and
// small enough to stay in registers and first-level cache. The body, in attention_body.h, is compiled once per
// instruction set, in attention_plain.cpp and attention_avx2.cpp, and chosen here at run time.

#include "attention.h"

#include <algorithm>
#include <vector>

namespace {

const AttentionFunctions& functions() {
#if WIDE_TARGETS
    if (has_avx2()) return kAttentionAvx2;
#endif
    return kAttentionPlain;
}

int run(const Attention& p, NodeFunction function, int padded, int threads) {
    if (!function || p.tokens > padded) return 1;
    const int64_t tasks = (p.nodes + kNodesPerTask - 1) / kNodesPerTask;
#pragma omp parallel num_threads(threads)
    {
        std::vector<float> scratch(static_cast<size_t>(std::max(p.head_width, p.value_width)) * padded);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; ++task)
            function(p, task * kNodesPerTask, std::min(p.nodes, (task + 1) * kNodesPerTask), scratch.data());
    }
    return 0;
}

}  // namespace

extern "C" {

// Returns 0, or 1 if `padded` is none of 8, 16, 32, 64 or smaller than `tokens`.
int polyformer_attention_forward(int64_t nodes, int heads, int tokens, int padded, int head_width, int value_width,
                                 const float* query, const float* key, int64_t node_stride, int64_t token_stride,
                                 const float* values, const float* bias, float factor, uint32_t seed,
                                 uint32_t threshold, float keep, float* scores, float* out, int threads) {
    Attention p{};
    p.nodes = nodes, p.heads = heads, p.tokens = tokens, p.head_width = head_width, p.value_width = value_width;
    p.query = query, p.key = key, p.node_stride = node_stride, p.token_stride = token_stride;
    p.values = values, p.bias = bias, p.factor = factor, p.seed = seed, p.threshold = threshold, p.keep = keep;
    p.scores = scores, p.out = out;
    return run(p, functions().choose_forward(p, padded), padded, threads);
}

int polyformer_attention_backward(int64_t nodes, int heads, int tokens, int padded, int head_width, int value_width,
                                  const float* query, const float* key, int64_t node_stride, int64_t token_stride,
                                  const float* values, const float* bias, float factor, uint32_t seed,
                                  uint32_t threshold, float keep, float* scores, const float* out_grad,
                                  float* query_grad, float* key_grad, float* values_grad, float* bias_grad,
                                  int threads) {
    Attention p{};
    p.nodes = nodes, p.heads = heads, p.tokens = tokens, p.head_width = head_width, p.value_width = value_width;
    p.query = query, p.key = key, p.node_stride = node_stride, p.token_stride = token_stride;
    p.values = values, p.bias = bias, p.factor = factor, p.seed = seed, p.threshold = threshold, p.keep = keep;
    p.scores = scores, p.out_grad = out_grad, p.query_grad = query_grad, p.key_grad = key_grad;
    p.values_grad = values_grad;
    const int64_t tasks = (nodes + kNodesPerTask - 1) / kNodesPerTask;
    std::vector<float> partial(static_cast<size_t>(tasks) * heads * tokens, 0.0f);
    p.bias_grad = partial.data();
    const int failed = run(p, functions().choose_backward(p, padded), padded, threads);
    std::fill(bias_grad, bias_grad + heads * tokens, 0.0f);
    for (int64_t task = 0; task < tasks; ++task)
        for (int i = 0; i < heads * tokens; ++i) bias_grad[i] += partial[static_cast<size_t>(task) * heads * tokens + i];
    return failed;
}

// out = residual + x * mask / (1 - p); the mask of position i is a hash of i and the seed.
void polyformer_dropout(int64_t count, const float* x, const float* residual, uint32_t seed, uint32_t threshold,
                        float keep, float* out, int threads) {
    const auto function = functions().dropout;
    constexpr int64_t kPerTask = 1 << 15;
    const int64_t tasks = (count + kPerTask - 1) / kPerTask;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task)
        function(task * kPerTask, std::min(count, (task + 1) * kPerTask), x, residual, seed, threshold, keep, out);
}

// In place on x (groups, rows, width) with bias (groups, width).
void polyformer_bias_relu(int64_t groups, int64_t rows, int64_t width, const float* bias, float* x, int threads) {
    const auto function = functions().bias_relu;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t group = 0; group < groups; ++group)
        function(rows, width, bias + group * width, x + group * rows * width);
}

void polyformer_bias_relu_backward(int64_t groups, int64_t rows, int64_t width, const float* out, const float* grad,
                                   float* x_grad, float* bias_grad, int threads) {
    const auto function = functions().bias_relu_backward;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t start = group * rows * width;
        function(rows, width, out + start, grad + start, x_grad + start, bias_grad + group * width);
    }
}
}
