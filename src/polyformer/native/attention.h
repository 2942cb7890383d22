// What the core of PolyAttn is given, and the functions that compute it: one set of them for each instruction set.
#pragma once

#include <cstdint>

#include "targets.h"

constexpr int64_t kNodesPerTask = 32;

struct Attention {
    int64_t nodes;
    int heads, tokens, head_width, value_width;
    const float* query;  // query and key of token t of node b: at t * token_stride + b * node_stride
    const float* key;
    int64_t node_stride, token_stride;
    const float* values;  // (nodes, tokens, heads * value_width)
    const float* bias;    // (heads, tokens): beta_j / (j+1)^r
    float factor;
    uint32_t seed, threshold;  // a score is dropped if its hash is below the threshold
    float keep;                // 1 / (1 - p)
    float* scores;             // (nodes, heads, tokens, padded): tanh values, kept for the backward pass
    float* out;                // (nodes, tokens, heads * value_width)
    const float* out_grad;
    float* query_grad;  // laid out as query and key
    float* key_grad;
    float* values_grad;
    float* bias_grad;  // (tasks, heads, tokens): partial sums
};

using NodeFunction = void (*)(const Attention&, int64_t, int64_t, float*);

struct AttentionFunctions {
    NodeFunction (*choose_forward)(const Attention&, int padded);  // gives null if there is none for `padded`
    NodeFunction (*choose_backward)(const Attention&, int padded);
    void (*dropout)(int64_t begin, int64_t end, const float* x, const float* residual, uint32_t seed, uint32_t threshold,
                    float keep, float* out);
    void (*bias_relu)(int64_t rows, int64_t width, const float* bias, float* x);
    void (*bias_relu_backward)(int64_t rows, int64_t width, const float* out, const float* grad, float* x_grad,
                               float* bias_grad);
};

extern const AttentionFunctions kAttentionPlain;
#if WIDE_TARGETS
extern const AttentionFunctions kAttentionAvx2, kAttentionAvx512;
#endif
