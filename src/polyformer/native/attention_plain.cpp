// The functions of attention_body.h with the instructions that every machine of this kind has.

#include <cstdint>
#include <cstring>

#include "attention.h"

namespace {
#include "attention_body.h"
}

const AttentionFunctions kAttentionPlain = {choose<true>, choose<false>, dropout, bias_relu, bias_relu_backward};
