// The functions of rows_body.h with AVX2 and FMA.

#include <cstdint>
#include <cstring>

#include "rows.h"

#if WIDE_TARGETS
#define LANES 8
BEGIN_AVX2
namespace {
#include "rows_body.h"
}
END_AVX2

const RowFunctions kRowsAvx2 = {norm_forward, norm_backward, gelu_forward, gelu_backward};
#endif
