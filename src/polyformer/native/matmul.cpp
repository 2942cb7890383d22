// Products of dense matrices, group by group: what the layers of a model on tokens consist of. The matrix libraries that
// torch brings are slow for some processors and do not know our layouts; without AVX2 they are the better choice.

#include "matmul.h"

#include <algorithm>

#include "border.h"

namespace {

PanelFunction choose_panel_function() {
#if WIDE_TARGETS
    if (has_avx512()) return multiply_panel_avx512;
    if (has_avx2()) return multiply_panel_avx2;
#endif
    return nullptr;
}

// Rows of one task: as many as suit the cache, fewer where threads would be without work; a multiple of all tiles.
int64_t rows_per_task(const Matmul& p, int64_t panels, int threads) {
    constexpr int64_t kTile = 12, kLeastRows = 48, kTasksPerThread = 4;
    int64_t ranges = (p.m + kRowsAtOnce - 1) / kRowsAtOnce;
    while (threads > 1 && p.groups * panels * ranges < kTasksPerThread * threads && p.m > 2 * ranges * kLeastRows)
        ranges *= 2;
    const int64_t rows = (p.m + ranges - 1) / std::max<int64_t>(ranges, 1);
    return std::max((rows + kTile - 1) / kTile * kTile, kTile);
}

}  // namespace

extern "C" {

// Refused without AVX2. `b_sums` is written by the task of the first rows, so there must be a row of C.
int polyformer_matmul(int64_t groups, int64_t m, int64_t n, int64_t k, const float* a, int64_t a_group, int64_t a_row,
                      int64_t a_column, const float* b, int64_t b_group, int64_t b_row, int64_t b_column, float* c,
                      int64_t c_group, int64_t c_row, const float* bias, const float* gate, float* b_sums, int relu,
                      int accumulate, int threads) try {
    const PanelFunction function = choose_panel_function();
    if (!function) return kRefused;
    const Matmul p{groups, m,       n,       k,     a,    a_group, a_row,  a_column,  b,
                   b_group, b_row,  b_column, c,    c_group, c_row, bias,  gate,      b_sums,
                   relu != 0, accumulate != 0};
    const int64_t panels = (n + kPanel - 1) / kPanel, rows = rows_per_task(p, panels, threads);
    const int64_t ranges = (m + rows - 1) / rows, tasks = groups * ranges * panels;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) {
        alignas(64) float room[kDepth * kPanel];
        const int64_t begin = task / panels % ranges * rows;
        function(p, task / panels / ranges, task % panels * kPanel, begin, std::min(m, begin + rows), room);
    }
    return kDone;
}
POLYFORMER_BORDER
}
