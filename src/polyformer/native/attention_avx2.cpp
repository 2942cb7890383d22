// The functions of attention_body.h and stage_body.h with AVX2 and FMA. Nothing but these bodies is compiled with them, so that
// no function of the standard library with these instructions can replace the one that other files use.

#include <cstdint>
#include <cstring>

#include "attention.h"
#include "stage.h"

#if WIDE_TARGETS
BEGIN_AVX2
#define WIDEST 8
namespace {
#include "attention_body.h"
#include "stage_body.h"
}
END_AVX2

const AttentionFunctions kAttentionAvx2 = {choose<true>, choose<false>, dropout, bias_relu, bias_relu_backward};
const StageFunctions kStageAvx2 = {gate_forward,   gate_backward,   column_moments,
                                   finish_forward, finish_backward, combine_columns};
#endif
