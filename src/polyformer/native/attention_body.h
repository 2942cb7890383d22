// Included once per instruction set, by attention_plain.cpp and attention_avx2.cpp.
//
// Dropout masks are hashes of a seed and a position, so the backward pass makes them again instead of reading them. Every
// node is one thread's, and sums over nodes are cut at fixed nodes, so results do not depend on the number of threads.

// Eight lanes at a time: what one register holds. Wider vectors are cut up well in sums, but not in comparisons.
typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));

template <int W>
struct Row {
    typedef float Floats __attribute__((vector_size(W * 4)));
    typedef float Loose __attribute__((vector_size(W * 4), aligned(4)));  // for loads and stores anywhere
};

template <int W>
static inline typename Row<W>::Floats load(const float* x) {
    return *reinterpret_cast<const typename Row<W>::Loose*>(x);
}

template <int W>
static inline void store(float* x, typename Row<W>::Floats value) {
    *reinterpret_cast<typename Row<W>::Loose*>(x) = value;
}

template <typename Integer>
static inline Integer hash(Integer x) {
    x ^= x >> 16;
    x *= 0x21f0aaadu;
    x ^= x >> 15;
    x *= 0x735a2d97u;
    x ^= x >> 15;
    return x;
}

// tanh to a few units in the last place: a polynomial below 0.625, else by the exponential. A cast keeps the bits.
static inline Floats tanh(Floats x) {
    const Ints sign = (Ints)x & static_cast<int32_t>(0x80000000);
    Ints magnitude = (Ints)x & 0x7fffffff;
    Floats a = (Floats)magnitude;
    a = a > 9.0f ? Floats{} + 9.0f : a;  // in this order NaN stays NaN
    const Floats y = -2.0f * a;
    const Floats n = (y * 1.44269504088896341f + 12582912.0f) - 12582912.0f;  // rounded to a whole number
    const Floats r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    Floats e = Floats{} + 1.9875691500e-4f;
    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * r * r + r + 1.0f;
    Ints bits = (__builtin_convertvector(n, Ints) + 127) << 23;
    e *= (Floats)bits;
    Floats large = (1.0f - e) / (1.0f + e);
    Ints signed_large = (Ints)large | sign;
    const Floats z = x * x;
    Floats s = Floats{} - 5.70498872745e-3f;
    s = s * z + 2.06390887954e-2f;
    s = s * z - 5.37397155531e-2f;
    s = s * z + 1.33314422036e-1f;
    s = s * z - 3.33332819422e-1f;
    return a < 0.625f ? x + x * z * s : (Floats)signed_large;
}

// rows (T, width) at the given stride -> columns (width, P), zero beyond T
template <int P>
static inline void turn(const float* rows, int64_t stride, int count, int width, float* columns) {
    std::memset(columns, 0, sizeof(float) * width * P);
    for (int t = 0; t < count; ++t)
        for (int d = 0; d < width; ++d) columns[d * P + t] = rows[t * stride + d];
}

// x . row_t for eight t at once, the rows turned
template <int P, int W>
static inline Floats multiply_turned(const float* x, const float* columns, int width) {
    Floats sum{};
    for (int d = 0; d < (W ? W : width); ++d) sum += x[d] * load<8>(columns + d * P);
    return sum;
}

// out = sum_j weight[j * weight_stride] * rows[j * row_stride], j < count
template <int W>
static inline void combine(const float* weight, int weight_stride, const float* rows, int64_t row_stride, int count,
                           int width, float* out) {
    if constexpr (W != 0) {
        typename Row<W>::Floats sum{};
        for (int j = 0; j < count; ++j) sum += weight[j * weight_stride] * load<W>(rows + j * row_stride);
        store<W>(out, sum);
    } else {
        for (int c = 0; c < width; ++c) out[c] = 0.0f;
        for (int j = 0; j < count; ++j)
            for (int c = 0; c < width; ++c) out[c] += weight[j * weight_stride] * rows[j * row_stride + c];
    }
}

// The dropout weights of eight scores, the first at `index`; all ones without dropout.
static inline Floats draw_mask(const Attention& p, uint32_t index) {
    if (!p.threshold) return Floats{} + 1.0f;
    const Words lane = {0, 1, 2, 3, 4, 5, 6, 7};
    // Signed comparison of numbers moved down by 2^31: there is no unsigned one.
    Words drawn = hash((lane + index) ^ p.seed) ^ 0x80000000u;
    const int32_t threshold = static_cast<int32_t>(p.threshold ^ 0x80000000u);
    return (Ints)drawn >= threshold ? Floats{} + p.keep : Floats{};
}

// W is the width of a head where queries and values share it and it is a common one, else 0.
template <int P, int W>
static void forward_nodes(const Attention& p, int64_t begin, int64_t end, float* scratch) {
    const int T = p.tokens, D = W ? W : p.head_width, C = W ? W : p.value_width;
    const int64_t channels = int64_t(p.heads) * C;
    for (int64_t b = begin; b < end; ++b) {
        for (int h = 0; h < p.heads; ++h) {
            const int64_t head = b * p.heads + h, place = b * T * channels + h * C;
            const float* query = p.query + b * p.node_stride + h * D;
            float* scores = p.scores + head * T * P;
            float bias[P] = {};
            for (int j = 0; j < T; ++j) bias[j] = p.bias[h * T + j];
            turn<P>(p.key + b * p.node_stride + h * D, p.token_stride, T, D, scratch);
            for (int q = 0; q < T; ++q) {
                float weight[P];
                for (int g = 0; g < P; g += 8) {
                    const Floats sum = multiply_turned<P, W>(query + q * p.token_stride, scratch + g, D);
                    const Floats score = tanh(sum * p.factor);
                    const Floats mask = draw_mask(p, static_cast<uint32_t>((head * T + q) * P + g));
                    store<8>(scores + q * P + g, score);
                    store<8>(weight + g, score * load<8>(bias + g) * mask);
                }
                combine<W>(weight, 1, p.values + place, channels, T, C, p.out + place + q * channels);
            }
        }
    }
}

template <int P, int W>
static void backward_nodes(const Attention& p, int64_t begin, int64_t end, float* scratch) {
    const int T = p.tokens, D = W ? W : p.head_width, C = W ? W : p.value_width;
    const int64_t channels = int64_t(p.heads) * C;
    float* bias_grad = p.bias_grad + begin / kNodesPerTask * p.heads * T;
    float weights[P * P], products[P * P];
    for (int64_t b = begin; b < end; ++b) {
        for (int h = 0; h < p.heads; ++h) {
            const int64_t head = b * p.heads + h, place = b * T * channels + h * C;
            const int64_t offset = b * p.node_stride + h * D;
            const float* scores = p.scores + head * T * P;
            float bias[P] = {}, bias_sum[P] = {};
            for (int j = 0; j < T; ++j) bias[j] = p.bias[h * T + j];
            turn<P>(p.values + place, channels, T, C, scratch);
            for (int q = 0; q < T; ++q) {
                for (int g = 0; g < P; g += 8) {
                    const Floats mask = draw_mask(p, static_cast<uint32_t>((head * T + q) * P + g));
                    const Floats score = load<8>(scores + q * P + g), factor = load<8>(bias + g) * mask;
                    const Floats grad = multiply_turned<P, W>(p.out_grad + place + q * channels, scratch + g, C);
                    store<8>(bias_sum + g, load<8>(bias_sum + g) + grad * mask * score);
                    store<8>(weights + q * P + g, score * factor);
                    store<8>(products + q * P + g, grad * factor * (1.0f - score * score) * p.factor);
                }
            }
            for (int t = 0; t < T; ++t) {
                combine<W>(weights + t, P, p.out_grad + place, channels, T, C, p.values_grad + place + t * channels);
                const int64_t row = offset + t * p.token_stride;
                combine<W>(products + t * P, 1, p.key + offset, p.token_stride, T, D, p.query_grad + row);
                combine<W>(products + t, P, p.query + offset, p.token_stride, T, D, p.key_grad + row);
            }
            for (int j = 0; j < T; ++j) bias_grad[h * T + j] += bias_sum[j];
        }
    }
}

template <int P, bool Forward>
static NodeFunction choose_width(const Attention& p) {
    switch (p.head_width == p.value_width ? p.head_width : 0) {
        case 4: return Forward ? forward_nodes<P, 4> : backward_nodes<P, 4>;
        case 8: return Forward ? forward_nodes<P, 8> : backward_nodes<P, 8>;
        case 16: return Forward ? forward_nodes<P, 16> : backward_nodes<P, 16>;
        case 32: return Forward ? forward_nodes<P, 32> : backward_nodes<P, 32>;
        default: return Forward ? forward_nodes<P, 0> : backward_nodes<P, 0>;
    }
}

template <bool Forward>
static NodeFunction choose(const Attention& p, int padded) {
    switch (padded) {
        case 8: return choose_width<8, Forward>(p);
        case 16: return choose_width<16, Forward>(p);
        case 32: return choose_width<32, Forward>(p);
        case 64: return choose_width<64, Forward>(p);
        default: return nullptr;
    }
}

static void dropout(int64_t begin, int64_t end, const float* x, const float* residual, uint32_t seed, uint32_t threshold,
                    float keep, float* out) {
    for (int64_t i = begin; i < end; ++i) {
        const float kept = hash(static_cast<uint32_t>(i) ^ seed) >= threshold ? keep : 0.0f;
        out[i] = residual ? residual[i] + x[i] * kept : x[i] * kept;
    }
}

// x = max(x + bias, 0) for the rows of one group
static void bias_relu(int64_t rows, int64_t width, const float* bias, float* x) {
    for (int64_t i = 0; i < rows; ++i, x += width)
        for (int64_t c = 0; c < width; ++c) {
            const float sum = x[c] + bias[c];
            x[c] = sum < 0.0f ? 0.0f : sum;  // in this order NaN stays NaN
        }
}

// grad passes where out is not zero; bias_grad is its sum over the rows
static void bias_relu_backward(int64_t rows, int64_t width, const float* out, const float* grad, float* x_grad,
                               float* bias_grad) {
    for (int64_t c = 0; c < width; ++c) bias_grad[c] = 0.0f;
    for (int64_t i = 0; i < rows; ++i, out += width, grad += width, x_grad += width)
        for (int64_t c = 0; c < width; ++c) {
            const float passed = out[c] <= 0.0f ? 0.0f : grad[c];
            x_grad[c] = passed;
            bias_grad[c] += passed;
        }
}
