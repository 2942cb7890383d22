// Included once per instruction set, by files that define LANES.

typedef float Lanes __attribute__((vector_size(LANES * 4)));
typedef float LooseLanes __attribute__((vector_size(LANES * 4), aligned(4)));
typedef int32_t IntLanes __attribute__((vector_size(LANES * 4)));

static inline Lanes load_lanes(const float* x) { return *reinterpret_cast<const LooseLanes*>(x); }
static inline void store_lanes(float* x, Lanes value) { *reinterpret_cast<LooseLanes*>(x) = value; }

static inline float sum_of(Lanes x) {
    float buffer[LANES];
    store_lanes(buffer, x);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; ++i) buffer[i] += buffer[i + width];
    return buffer[0];
}

// Runs `whole(c)` for every LANES columns and `single(c)` for each column that is left.
template <typename Whole, typename Single>
static inline __attribute__((always_inline)) void for_columns(int64_t width, const Whole& whole, const Single& single) {
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) whole(c);
    for (; c < width; ++c) single(c);
}

// out = (x - mean) / deviation * weight + bias, row by row
static void norm_forward(const Norm& p, int64_t begin, int64_t end) {
    const float share = 1.0f / static_cast<float>(p.width);
    for (int64_t i = begin; i < end; ++i) {
        const float* x = p.x + i * p.width;
        float* out = p.out + i * p.width;
        Lanes sum{}, squares{};
        float rest = 0.0f;
        for_columns(p.width, [&](int64_t c) { sum += load_lanes(x + c); }, [&](int64_t c) { rest += x[c]; });
        const float mean = (sum_of(sum) + rest) * share;
        rest = 0.0f;
        for_columns(
            p.width, [&](int64_t c) { const Lanes apart = load_lanes(x + c) - mean; squares += apart * apart; },
            [&](int64_t c) { rest += (x[c] - mean) * (x[c] - mean); });
        const float inverse = 1.0f / __builtin_sqrtf((sum_of(squares) + rest) * share + p.epsilon);
        p.statistics[2 * i] = mean, p.statistics[2 * i + 1] = inverse;
        for_columns(
            p.width,
            [&](int64_t c) {
                store_lanes(out + c, (load_lanes(x + c) - mean) * inverse * load_lanes(p.weight + c) + load_lanes(p.bias + c));
            },
            [&](int64_t c) { out[c] = (x[c] - mean) * inverse * p.weight[c] + p.bias[c]; });
    }
}

// `sums` (2, width): gradients of weight and bias from these rows
static void norm_backward(const Norm& p, int64_t begin, int64_t end, float* sums) {
    const float share = 1.0f / static_cast<float>(p.width);
    float *weight_grad = sums, *bias_grad = sums + p.width;
    for (int64_t i = begin; i < end; ++i) {
        const float *x = p.x + i * p.width, *grad = p.out_grad + i * p.width;
        const float* residual = p.residual_grad ? p.residual_grad + i * p.width : nullptr;
        float* x_grad = p.x_grad + i * p.width;
        const float mean = p.statistics[2 * i], inverse = p.statistics[2 * i + 1];
        Lanes sum{}, products{};
        float rest = 0.0f, rest_products = 0.0f;
        for_columns(
            p.width,
            [&](int64_t c) {
                const Lanes normal = (load_lanes(x + c) - mean) * inverse, passed = load_lanes(grad + c);
                const Lanes weighted = passed * load_lanes(p.weight + c);
                sum += weighted, products += weighted * normal;
                store_lanes(weight_grad + c, load_lanes(weight_grad + c) + passed * normal);
                store_lanes(bias_grad + c, load_lanes(bias_grad + c) + passed);
            },
            [&](int64_t c) {
                const float normal = (x[c] - mean) * inverse;
                rest += grad[c] * p.weight[c], rest_products += grad[c] * p.weight[c] * normal;
                weight_grad[c] += grad[c] * normal, bias_grad[c] += grad[c];
            });
        const float centre = (sum_of(sum) + rest) * share, slope = (sum_of(products) + rest_products) * share;
        for_columns(
            p.width,
            [&](int64_t c) {
                const Lanes normal = (load_lanes(x + c) - mean) * inverse;
                Lanes value = inverse * (load_lanes(grad + c) * load_lanes(p.weight + c) - centre - normal * slope);
                if (residual) value += load_lanes(residual + c);
                store_lanes(x_grad + c, value);
            },
            [&](int64_t c) {
                const float normal = (x[c] - mean) * inverse;
                x_grad[c] = inverse * (grad[c] * p.weight[c] - centre - normal * slope) + (residual ? residual[c] : 0.0f);
            });
    }
}

// The normal distribution at x: Φ(x), and exp(-x² / 2). erf by Abramowitz and Stegun 7.1.26, to 1.5e-7.
static inline __attribute__((always_inline)) void normal_distribution(Lanes x, Lanes* below, Lanes* bell) {
    const Lanes a = (Lanes)((IntLanes)x & 0x7fffffff) * 0.70710678118654752f;
    Lanes y = -a * a;
    y = y < -87.0f ? Lanes{} - 87.0f : y;
    const Lanes n = (y * 1.44269504088896341f + 12582912.0f) - 12582912.0f;  // rounded to a whole number
    const Lanes r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    Lanes e = Lanes{} + 1.9875691500e-4f;
    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * r * r + r + 1.0f;
    const IntLanes power = (__builtin_convertvector(n, IntLanes) + 127) << 23;
    e *= (Lanes)power;
    const Lanes t = 1.0f / (1.0f + 0.3275911f * a);
    Lanes tail = Lanes{} + 0.5f * 1.061405429f;
    tail = tail * t - 0.5f * 1.453152027f;
    tail = tail * t + 0.5f * 1.421413741f;
    tail = tail * t - 0.5f * 0.284496736f;
    tail = tail * t + 0.5f * 0.254829592f;
    tail = tail * t * e;
    *below = x < 0.0f ? tail : 1.0f - tail;
    *bell = e;
}

template <bool Backward>
static inline __attribute__((always_inline)) void gelu(int64_t count, const float* x, float* out) {
    for (int64_t i = 0; i < count; i += LANES) {
        float buffer[LANES] = {}, made[LANES];
        const int64_t left = count - i < LANES ? count - i : LANES;
        if (left < LANES) std::memcpy(buffer, x + i, sizeof(float) * static_cast<size_t>(left));
        const Lanes value = left < LANES ? load_lanes(buffer) : load_lanes(x + i);
        Lanes below, bell;
        normal_distribution(value, &below, &bell);
        Lanes result = Backward ? below + value * 0.39894228040143268f * bell : value * below;
        if (left == LANES) {
            store_lanes(out + i, Backward ? result * load_lanes(out + i) : result);
            continue;
        }
        store_lanes(made, result);
        for (int64_t j = 0; j < left; ++j) out[i + j] = Backward ? made[j] * out[i + j] : made[j];
    }
}

static void gelu_forward(int64_t count, const float* x, float* out) { gelu<false>(count, x, out); }

// grad becomes the gradient of x
static void gelu_backward(int64_t count, const float* x, float* grad) { gelu<true>(count, x, grad); }
