// The functions of matmul_body.h with AVX-512.

#include <cstdint>

#include "matmul.h"

#if WIDE_TARGETS
#define LANES 16
#define ROWS 12
BEGIN_AVX512
namespace {
#include "matmul_body.h"
}

void multiply_panel_avx512(const Matmul& p, int64_t group, int64_t column, int64_t begin, int64_t end, float* room) {
    if (p.n - column > LANES) multiply_panel_of<2>(p, group, column, begin, end, room);
    else multiply_panel_of<1>(p, group, column, begin, end, room);
}
END_AVX512
#endif
