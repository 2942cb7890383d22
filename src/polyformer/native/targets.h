// Instruction sets chosen at run time: a function body is inlined into one wrapper per set.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define WIDE_TARGETS 1
// Between a BEGIN and its END, functions are compiled for these instructions. clang knows the attribute in its own words
// only and would ignore gcc's without a word.
#ifdef __clang__
#define BEGIN_AVX2 _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define BEGIN_AVX512 \
    _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512vl,avx512dq,avx2,fma\"))), apply_to = function)")
#define END_AVX2 _Pragma("clang attribute pop")
#else
#define BEGIN_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define BEGIN_AVX512 _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512vl,avx512dq,avx2,fma\")")
#define END_AVX2 _Pragma("GCC pop_options")
#endif
#define END_AVX512 END_AVX2
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma")))
#else
#define WIDE_TARGETS 0
#endif

#define INLINE static inline __attribute__((always_inline))

#if WIDE_TARGETS
static inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static inline bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif
