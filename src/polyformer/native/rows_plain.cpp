// The functions of rows_body.h with the instructions that every machine of this kind has.

#include <cstdint>
#include <cstring>

#include "rows.h"

#define LANES 8
namespace {
#include "rows_body.h"
}

const RowFunctions kRowsPlain = {norm_forward, norm_backward, gelu_forward, gelu_backward};
