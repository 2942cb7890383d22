// The functions of matmul_body.h with AVX2 and FMA: a panel of 32 columns is done as two of 16.

#include <cstdint>

#include "matmul.h"

#if WIDE_TARGETS
#define LANES 8
#define ROWS 6
BEGIN_AVX2
namespace {
#include "matmul_body.h"
}

void multiply_panel_avx2(const Matmul& p, int64_t group, int64_t column, int64_t begin, int64_t end, float* room) {
    const int64_t stop = p.n < column + kPanel ? p.n : column + kPanel;
    for (; column < stop; column += 2 * LANES) {
        if (stop - column > LANES) multiply_panel_of<2>(p, group, column, begin, end, room);
        else multiply_panel_of<1>(p, group, column, begin, end, room);
    }
}
END_AVX2
#endif
