// The functions of rows_body.h with AVX-512.

#include <cstdint>
#include <cstring>

#include "rows.h"

#if WIDE_TARGETS
#define LANES 16
BEGIN_AVX512
namespace {
#include "rows_body.h"
}
END_AVX512

const RowFunctions kRowsAvx512 = {norm_forward, norm_backward, gelu_forward, gelu_backward};
#endif
