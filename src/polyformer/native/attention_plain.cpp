// The functions of attention_body.h and stage_body.h with the instructions that every machine of this kind has.

#include <cstdint>
#include <cstring>

#include "attention.h"
#include "stage.h"

#define WIDEST 8
namespace {
#include "attention_body.h"
#include "stage_body.h"
}

const AttentionFunctions kAttentionPlain = {choose<true>, choose<false>, dropout, bias_relu, bias_relu_backward};
const StageFunctions kStagePlain = {gate_forward,   gate_backward,   column_moments,
                                    finish_forward, finish_backward, combine_columns};
