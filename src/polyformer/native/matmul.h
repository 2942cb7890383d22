// What a batched matrix product is given, and the functions that compute it: one of them for each instruction set.
#pragma once

#include <cstdint>

#include "targets.h"

// C = A B for every group, A (m, k), B (k, n), C (m, n). Strides count numbers; one stride of A and one of B is 1.
struct Matmul {
    int64_t groups, m, n, k;
    const float* a;
    int64_t a_group, a_row, a_column;
    const float* b;
    int64_t b_group, b_row, b_column;
    float* c;
    int64_t c_group, c_row;  // the columns of C lie side by side
    const float* bias;       // (groups, n), added to every row of C; null: none
    const float* gate;       // laid out as C, which becomes 0 where the gate is not above 0; null: none
    float* b_sums;           // (groups, n): the sums of B over k; null: not wanted
    bool relu, accumulate;   // C = max(C, 0) in the end; C += A B
};

constexpr int64_t kDepth = 256;       // rows of B that a panel holds
constexpr int64_t kPanel = 32;        // columns of B that a panel holds
constexpr int64_t kRowsAtOnce = 480;  // rows of A that one task multiplies by a panel: half of a second-level cache

// Computes rows [begin, end) of C in the panel of columns that begins at `column`; `room` holds kDepth * kPanel numbers.
using PanelFunction = void (*)(const Matmul&, int64_t group, int64_t column, int64_t begin, int64_t end, float* room);

#if WIDE_TARGETS
void multiply_panel_avx2(const Matmul&, int64_t group, int64_t column, int64_t begin, int64_t end, float* room);
void multiply_panel_avx512(const Matmul&, int64_t group, int64_t column, int64_t begin, int64_t end, float* room);
#endif
