// The functions of attention_body.h with AVX2 and FMA. Nothing but the body is compiled with them, so that no function
// of the standard library with these instructions can replace the one that other files use.

#include <cstdint>
#include <cstring>

#include "attention.h"

#if WIDE_TARGETS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace {
#include "attention_body.h"
}
#pragma GCC pop_options

const AttentionFunctions kAttentionAvx2 = {choose<true>, choose<false>, dropout, bias_relu, bias_relu_backward};
#endif
