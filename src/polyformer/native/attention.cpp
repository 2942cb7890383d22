// The core of PolyAttn, forward and backward, for the K+1 tokens of each node: far too small for a matrix library, and
// small enough to stay in registers and first-level cache. The body, in attention_body.h, is compiled once per
// instruction set, in attention_plain.cpp, attention_avx2.cpp and attention_avx512.cpp, and chosen here at run time.

#include "attention.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "border.h"

namespace {

const AttentionFunctions& functions() {
#if WIDE_TARGETS
    if (has_avx512()) return kAttentionAvx512;
    if (has_avx2()) return kAttentionAvx2;
#endif
    return kAttentionPlain;
}

int run(const Attention& p, NodeFunction function, int padded, int threads) {
    if (!function || p.tokens > padded) return kRefused;
    const int64_t tasks = (p.nodes + kNodesPerTask - 1) / kNodesPerTask;
    const size_t size = static_cast<size_t>(std::max(p.head_width, p.value_width)) * padded;
    std::atomic<bool> out_of_memory{false};
#pragma omp parallel num_threads(threads)
    {
        const std::unique_ptr<float[]> scratch(new (std::nothrow) float[size]());
        if (!scratch) out_of_memory = true;
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; ++task)
            if (scratch)
                function(p, task * kNodesPerTask, std::min(p.nodes, (task + 1) * kNodesPerTask), scratch.get());
    }
    return out_of_memory ? kOutOfMemory : kDone;
}

// query_key (tokens, nodes, 2 * heads * head_width) holds the queries of a token and then its keys.
Attention inputs(int64_t nodes, int heads, int tokens, int head_width, int value_width, const float* query_key,
                 const float* values, const float* bias, float factor, uint32_t seed, uint32_t threshold, float keep,
                 float* scores) {
    const int64_t half = int64_t(heads) * head_width;
    Attention p{};
    p.nodes = nodes, p.heads = heads, p.tokens = tokens, p.head_width = head_width, p.value_width = value_width;
    p.query = query_key, p.key = query_key + half, p.node_stride = 2 * half, p.token_stride = nodes * 2 * half;
    p.values = values, p.bias = bias, p.factor = factor, p.seed = seed, p.threshold = threshold, p.keep = keep;
    p.scores = scores;
    return p;
}

}  // namespace

extern "C" {

// Both are refused if `padded` is none of 8, 16, 32, 64 or smaller than `tokens`.
int polyformer_attention_forward(int64_t nodes, int heads, int tokens, int padded, int head_width, int value_width,
                                 const float* query_key, const float* values, const float* bias, float factor,
                                 uint32_t seed, uint32_t threshold, float keep, float* scores, float* out,
                                 int threads) try {
    Attention p = inputs(nodes, heads, tokens, head_width, value_width, query_key, values, bias, factor, seed,
                         threshold, keep, scores);
    p.out = out;
    return run(p, functions().choose_forward(p, padded), padded, threads);
}
POLYFORMER_BORDER

int polyformer_attention_backward(int64_t nodes, int heads, int tokens, int padded, int head_width, int value_width,
                                  const float* query_key, const float* values, const float* bias, float factor,
                                  uint32_t seed, uint32_t threshold, float keep, float* scores, const float* out_grad,
                                  float* query_key_grad, float* values_grad, float* bias_grad, int threads) try {
    Attention p = inputs(nodes, heads, tokens, head_width, value_width, query_key, values, bias, factor, seed,
                         threshold, keep, scores);
    p.out_grad = out_grad, p.values_grad = values_grad;
    p.query_grad = query_key_grad, p.key_grad = query_key_grad + int64_t(heads) * head_width;
    const int64_t tasks = (nodes + kNodesPerTask - 1) / kNodesPerTask;
    std::vector<float> partial(static_cast<size_t>(tasks) * heads * tokens, 0.0f);
    p.bias_grad = partial.data();
    const int status = run(p, functions().choose_backward(p, padded), padded, threads);
    std::fill(bias_grad, bias_grad + heads * tokens, 0.0f);
    for (int64_t task = 0; task < tasks; ++task)
        for (int i = 0; i < heads * tokens; ++i) bias_grad[i] += partial[static_cast<size_t>(task) * heads * tokens + i];
    return status;
}
POLYFORMER_BORDER

// out = residual + x * mask / (1 - p); the mask of position i is a hash of i and the seed.
int polyformer_dropout(int64_t count, const float* x, const float* residual, uint32_t seed, uint32_t threshold,
                       float keep, float* out, int threads) try {
    const auto function = functions().dropout;
    constexpr int64_t kPerTask = 1 << 15;
    const int64_t tasks = (count + kPerTask - 1) / kPerTask;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task)
        function(task * kPerTask, std::min(count, (task + 1) * kPerTask), x, residual, seed, threshold, keep, out);
    return kDone;
}
POLYFORMER_BORDER

// In place on x (groups, rows, width) with bias (groups, width).
int polyformer_bias_relu(int64_t groups, int64_t rows, int64_t width, const float* bias, float* x, int threads) try {
    const auto function = functions().bias_relu;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t group = 0; group < groups; ++group)
        function(rows, width, bias + group * width, x + group * rows * width);
    return kDone;
}
POLYFORMER_BORDER

int polyformer_bias_relu_backward(int64_t groups, int64_t rows, int64_t width, const float* out, const float* grad,
                                  float* x_grad, float* bias_grad, int threads) try {
    const auto function = functions().bias_relu_backward;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t start = group * rows * width;
        function(rows, width, out + start, grad + start, x_grad + start, bias_grad + group * width);
    }
    return kDone;
}
POLYFORMER_BORDER
}
