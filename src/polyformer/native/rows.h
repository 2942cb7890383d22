// Functions of rows of numbers between the matrix products of a block: one set of them for each instruction set.
#pragma once

#include <cstdint>

#include "targets.h"

struct Norm {
    int64_t width;
    const float *x, *weight, *bias;
    float epsilon;
    float* statistics;  // (rows, 2): mean and 1 / deviation
    float* out;
    const float *out_grad, *residual_grad;  // the latter is added to x_grad; null: nothing is
    float* x_grad;
};

struct RowFunctions {
    void (*norm_forward)(const Norm&, int64_t begin, int64_t end);
    void (*norm_backward)(const Norm&, int64_t begin, int64_t end, float* sums);
    void (*gelu_forward)(int64_t count, const float* x, float* out);
    void (*gelu_backward)(int64_t count, const float* x, float* grad);
};

extern const RowFunctions kRowsPlain;
#if WIDE_TARGETS
extern const RowFunctions kRowsAvx2, kRowsAvx512;
#endif
