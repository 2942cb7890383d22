// The functions of attention_body.h and stage_body.h with AVX-512. Nothing but these bodies is compiled with them, so that
// no function of the standard library with these instructions can replace the one that other files use.

#include <cstdint>
#include <cstring>

#include "attention.h"
#include "stage.h"

#if WIDE_TARGETS
BEGIN_AVX512
#define WIDEST 16
namespace {
#include "attention_body.h"
#include "stage_body.h"
}
END_AVX512

const AttentionFunctions kAttentionAvx512 = {choose<true>, choose<false>, dropout, bias_relu, bias_relu_backward};
const StageFunctions kStageAvx512 = {gate_forward,   gate_backward,   column_moments,
                                   finish_forward, finish_backward, combine_columns};
#endif
