// A step of the recurrence as in product.h, on blocks of columns that are kept in half precision: a cache line holds
// twice as many columns, so half as many are gathered. Sums are float.

#include <algorithm>
#include <cstdint>

#include "border.h"
#include "targets.h"

#if WIDE_TARGETS
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace {

constexpr int64_t kRowsPerTask = 128;
constexpr int64_t kPrefetch = 32;

struct HalfProduct {
    int64_t rows;
    const int64_t* indptr;
    const int32_t* indices;
    const float* values;  // null: all ones
    const double* row_scale;
    float loop;
    int64_t first_row;
    const uint16_t* x;
    double alpha;
    const uint16_t* previous;  // null: no term
    float beta;
    uint16_t* out;
};

using HalfFunction = void (*)(const HalfProduct&, int64_t begin, int64_t end);

#if WIDE_TARGETS
bool has_half() {
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

// Eight numbers at a time, by the conversions that processors have had since 2012.
template <int W, bool Weighted>
__attribute__((target("avx2,fma,f16c"))) void half_rows(const HalfProduct& p, int64_t begin, int64_t end) {
    constexpr int kVectors = W / 8;
    const int64_t last = p.indptr[p.rows];
    for (int64_t i = begin; i < end; ++i) {
        __m256 sum[kVectors];
        for (int v = 0; v < kVectors; ++v) sum[v] = _mm256_setzero_ps();
        for (int64_t e = p.indptr[i]; e < p.indptr[i + 1]; ++e) {
            if (e + kPrefetch < last)
                for (int c = 0; c < W; c += 32) __builtin_prefetch(p.x + int64_t(p.indices[e + kPrefetch]) * W + c);
            const uint16_t* from = p.x + int64_t(p.indices[e]) * W;
            const __m256 weight = _mm256_set1_ps(Weighted ? p.values[e] : 1.0f);
            for (int v = 0; v < kVectors; ++v) {
                const __m256 row = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8 * v)));
                sum[v] = Weighted ? _mm256_fmadd_ps(weight, row, sum[v]) : _mm256_add_ps(sum[v], row);
            }
        }
        const uint16_t* own = p.x + (p.first_row + i) * W;
        const float scale = static_cast<float>(p.row_scale ? p.alpha * p.row_scale[i] : p.alpha);
        for (int v = 0; v < kVectors; ++v) {
            __m256 value = sum[v];
            if (p.loop != 0.0f) {
                const __m256 row = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(own + 8 * v)));
                value = _mm256_fmadd_ps(_mm256_set1_ps(p.loop), row, value);
            }
            value = _mm256_mul_ps(_mm256_set1_ps(scale), value);
            if (p.previous) {
                const __m128i* at = reinterpret_cast<const __m128i*>(p.previous + i * W + 8 * v);
                value = _mm256_fmadd_ps(_mm256_set1_ps(p.beta), _mm256_cvtph_ps(_mm_loadu_si128(at)), value);
            }
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p.out + i * W + 8 * v),
                             _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
        }
    }
}

template <int W>
HalfFunction with_weights(bool weighted) {
    return weighted ? half_rows<W, true> : half_rows<W, false>;
}

HalfFunction choose_half(int width, bool weighted) {
    if (!has_half()) return nullptr;
    switch (width) {
        case 8: return with_weights<8>(weighted);
        case 16: return with_weights<16>(weighted);
        case 32: return with_weights<32>(weighted);
        case 64: return with_weights<64>(weighted);
        default: return nullptr;
    }
}
#else
HalfFunction choose_half(int, bool) { return nullptr; }
#endif

}  // namespace

extern "C" {

// Refused if `width` is none of 8, 16, 32, 64, or the processor does not convert halves.
int polyformer_product_float16(int64_t rows, int width, const int64_t* indptr, const int32_t* indices,
                               const float* values, const double* row_scale, double loop, int64_t first_row,
                               const uint16_t* x, double alpha, const uint16_t* previous, double beta, uint16_t* out,
                               int threads) try {
    const HalfFunction function = choose_half(width, values != nullptr);
    if (!function) return kRefused;
    const HalfProduct product{rows,      indptr, indices, values,   row_scale,   float(loop),
                              first_row, x,      alpha,   previous, float(beta), out};
    const int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task)
        function(product, task * kRowsPerTask, std::min(rows, (task + 1) * kRowsPerTask));
    return kDone;
}
POLYFORMER_BORDER
}
