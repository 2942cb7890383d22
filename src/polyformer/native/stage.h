// What a stage of the cascade is given, and the functions that compute it: one set of them for each instruction set.
#pragma once

#include <cstdint>

#include "targets.h"

constexpr float kNormEpsilon = 1e-5f;

struct Gate {
    int heads, tokens, channels;
    const float* token_rows;   // (nodes, tokens, channels)
    const float* products;     // (nodes, heads * tokens): tokens times the weights of the scores
    const float* weight_sums;  // (heads * tokens): of each score's weights
    const float* bias;         // (heads * tokens)
    const float* order_bias;   // (heads * tokens)
    float* statistics;         // (nodes, 2): mean and 1 / deviation of a node's tokens; null: not normalised
    float* kept;               // (nodes, heads * tokens): tanh values
    float* out;                // (nodes, tokens, channels)
    const float* out_grad;
    float* token_grad;    // without the part that goes through `products`
    float* product_grad;  // (nodes, heads * tokens)
};

struct Finish {
    int64_t width;
    const float *x, *scale, *shift, *residual;
    uint32_t seed, threshold;  // an entry is dropped if its hash is below the threshold
    float keep;                // 1 / (1 - p)
    float* out;                // of the forward pass, or what passes back
    const float *out_grad, *centre;
};

struct StageFunctions {
    void (*gate_forward)(const Gate&, int64_t begin, int64_t end);
    void (*gate_backward)(const Gate&, int64_t begin, int64_t end, float* sums);
    void (*column_moments)(int64_t rows, int64_t width, const float* x, const float* centre, float* sums);
    void (*finish_forward)(const Finish&, int64_t begin, int64_t end);
    void (*finish_backward)(const Finish&, int64_t begin, int64_t end, float* sums);
    void (*combine_columns)(int64_t rows, int64_t width, const float* factors, const float* x, float* out);
};

extern const StageFunctions kStagePlain;
#if WIDE_TARGETS
extern const StageFunctions kStageAvx2, kStageAvx512;
#endif
