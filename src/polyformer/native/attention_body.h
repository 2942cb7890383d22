// Included once per instruction set, by files that define WIDEST, the numbers that one register holds: 8 or 16.
//
// Dropout masks are hashes of a seed and a position, so the backward pass makes them again instead of reading them. Every
// node is one thread's, and sums over nodes are cut at fixed nodes, so results do not depend on the number of threads.

template <int W>
struct Row {
    typedef float Floats __attribute__((vector_size(W * 4)));
    typedef float Loose __attribute__((vector_size(W * 4), aligned(4)));  // for loads and stores anywhere
    typedef uint32_t Words __attribute__((vector_size(W * 4)));
    typedef int32_t Ints __attribute__((vector_size(W * 4)));
};

// Vectors wider than a register are cut up well in sums, but not in comparisons.
typedef Row<8>::Floats Floats;
typedef Row<8>::Words Words;
typedef Row<8>::Ints Ints;

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
template <int L>
static inline typename Row<L>::Floats tanh_of(typename Row<L>::Floats x) {
    typedef typename Row<L>::Floats Vector;
    typedef typename Row<L>::Ints Bits;
    const Bits sign = (Bits)x & static_cast<int32_t>(0x80000000);
    const Bits magnitude = (Bits)x & 0x7fffffff;
    Vector a = (Vector)magnitude;
    a = a > 9.0f ? Vector{} + 9.0f : a;  // in this order NaN stays NaN
    const Vector y = -2.0f * a;
    const Vector n = (y * 1.44269504088896341f + 12582912.0f) - 12582912.0f;  // rounded to a whole number
    const Vector r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    Vector e = Vector{} + 1.9875691500e-4f;
    e = e * r + 1.3981999507e-3f;
    e = e * r + 8.3334519073e-3f;
    e = e * r + 4.1665795894e-2f;
    e = e * r + 1.6666665459e-1f;
    e = e * r + 5.0000001201e-1f;
    e = e * r * r + r + 1.0f;
    const Bits power = (__builtin_convertvector(n, Bits) + 127) << 23;
    e *= (Vector)power;
    const Vector large = (1.0f - e) / (1.0f + e);
    const Bits signed_large = (Bits)large | sign;
    const Vector z = x * x;
    Vector s = Vector{} - 5.70498872745e-3f;
    s = s * z + 2.06390887954e-2f;
    s = s * z - 5.37397155531e-2f;
    s = s * z + 1.33314422036e-1f;
    s = s * z - 3.33332819422e-1f;
    return a < 0.625f ? x + x * z * s : (Vector)signed_large;
}

static inline Floats tanh(Floats x) { return tanh_of<8>(x); }

// rows (T, width) at the given stride -> columns (width, P), zero beyond T
template <int P>
static inline void turn(const float* rows, int64_t stride, int count, int width, float* columns) {
    std::memset(columns, 0, sizeof(float) * width * P);
    for (int t = 0; t < count; ++t)
        for (int d = 0; d < width; ++d) columns[d * P + t] = rows[t * stride + d];
}

// x . row_t for L t at once, the rows turned
template <int P, int W, int L>
static inline typename Row<L>::Floats multiply_turned(const float* x, const float* columns, int width) {
    typename Row<L>::Floats sum{};
    for (int d = 0; d < (W ? W : width); ++d) sum += x[d] * load<L>(columns + d * P);
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

// The dropout weights of L scores, the first at `index`; all ones without dropout.
template <int L>
static inline typename Row<L>::Floats draw_mask(const Attention& p, uint32_t index) {
    typedef typename Row<L>::Floats Vector;
    typedef typename Row<L>::Words Bits;
    if (!p.threshold) return Vector{} + 1.0f;
    Bits place;
    for (int i = 0; i < L; ++i) place[i] = index + static_cast<uint32_t>(i);
    // Signed comparison of numbers moved down by 2^31: there is no unsigned one.
    Bits drawn = hash(place ^ p.seed) ^ 0x80000000u;
    const int32_t threshold = static_cast<int32_t>(p.threshold ^ 0x80000000u);
    return (typename Row<L>::Ints)drawn >= threshold ? Vector{} + p.keep : Vector{};
}

// W is the width of a head where queries and values share it and it is a common one, else 0.
template <int P, int W>
static void forward_nodes(const Attention& p, int64_t begin, int64_t end, float* scratch) {
    constexpr int L = P < WIDEST ? P : WIDEST;
    typedef typename Row<L>::Floats Lanes;
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
                for (int g = 0; g < P; g += L) {
                    const Lanes sum = multiply_turned<P, W, L>(query + q * p.token_stride, scratch + g, D);
                    const Lanes score = tanh_of<L>(sum * p.factor);
                    const Lanes mask = draw_mask<L>(p, static_cast<uint32_t>((head * T + q) * P + g));
                    store<L>(scores + q * P + g, score);
                    store<L>(weight + g, score * load<L>(bias + g) * mask);
                }
                combine<W>(weight, 1, p.values + place, channels, T, C, p.out + place + q * channels);
            }
        }
    }
}

template <int P, int W>
static void backward_nodes(const Attention& p, int64_t begin, int64_t end, float* scratch) {
    constexpr int L = P < WIDEST ? P : WIDEST;
    typedef typename Row<L>::Floats Lanes;
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
                for (int g = 0; g < P; g += L) {
                    const Lanes mask = draw_mask<L>(p, static_cast<uint32_t>((head * T + q) * P + g));
                    const Lanes score = load<L>(scores + q * P + g), factor = load<L>(bias + g) * mask;
                    const Lanes grad = multiply_turned<P, W, L>(p.out_grad + place + q * channels, scratch + g, C);
                    store<L>(bias_sum + g, load<L>(bias_sum + g) + grad * mask * score);
                    store<L>(weights + q * P + g, score * factor);
                    store<L>(products + q * P + g, grad * factor * (1.0f - score * score) * p.factor);
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

// The same where heads are narrower than a vector. Here a lane is a query, and scores are (nodes, heads, keys, padded):
// so no product has fewer than L lanes, and the forward pass adds up no lanes.
template <int P, int W>
static void forward_narrow(const Attention& p, int64_t begin, int64_t end, float* scratch) {
    constexpr int L = P < WIDEST ? P : WIDEST;
    typedef typename Row<L>::Floats Lanes;
    const int T = p.tokens;
    const int64_t channels = int64_t(p.heads) * W;
    for (int64_t b = begin; b < end; ++b) {
        for (int h = 0; h < p.heads; ++h) {
            const int64_t head = b * p.heads + h, place = b * T * channels + h * W, offset = b * p.node_stride + h * W;
            turn<P>(p.query + offset, p.token_stride, T, W, scratch);
            float sums[W * P];
            for (int g = 0; g < P; g += L) {
                Lanes sum[W] = {};
                for (int j = 0; j < T; ++j) {
                    const int64_t index = (head * T + j) * P + g;
                    const Lanes product = multiply_turned<P, W, L>(p.key + offset + j * p.token_stride, scratch + g, W);
                    const Lanes score = tanh_of<L>(product * p.factor);
                    store<L>(p.scores + index, score);
                    const Lanes weight = score * p.bias[h * T + j] * draw_mask<L>(p, static_cast<uint32_t>(index));
                    for (int c = 0; c < W; ++c) sum[c] += weight * p.values[place + j * channels + c];
                }
                for (int c = 0; c < W; ++c) store<L>(sums + c * P + g, sum[c]);
            }
            for (int q = 0; q < T; ++q)
                for (int c = 0; c < W; ++c) p.out[place + q * channels + c] = sums[c * P + q];
        }
    }
}

// out[c, lane] = sum_t matrix[t, lane] rows[t, c]
template <int P, int W, int L>
static inline void combine_turned(const float* matrix, const float* rows, int64_t stride, int count, float* out) {
    for (int g = 0; g < P; g += L) {
        typename Row<L>::Floats sum[W] = {};
        for (int t = 0; t < count; ++t)
            for (int c = 0; c < W; ++c) sum[c] += load<L>(matrix + t * P + g) * rows[t * stride + c];
        for (int c = 0; c < W; ++c) store<L>(out + c * P + g, sum[c]);
    }
}

template <int P, int W>
static void backward_narrow(const Attention& p, int64_t begin, int64_t end, float* scratch) {
    constexpr int L = P < WIDEST ? P : WIDEST;
    typedef typename Row<L>::Floats Lanes;
    const int T = p.tokens;
    const int64_t channels = int64_t(p.heads) * W;
    float* bias_grad = p.bias_grad + begin / kNodesPerTask * p.heads * T;
    float dropped[P * P], products[P * P], by_query[P * P] = {}, products_by_query[P * P] = {};
    float queries[W * P], keys[W * P], values[W * P];
    for (int64_t b = begin; b < end; ++b) {
        for (int h = 0; h < p.heads; ++h) {
            const int64_t head = b * p.heads + h, place = b * T * channels + h * W, offset = b * p.node_stride + h * W;
            const float *out_grad = p.out_grad + place, *value = p.values + place;
            turn<P>(out_grad, channels, T, W, scratch);
            for (int j = 0; j < T; ++j)
                for (int g = 0; g < P; g += L) {
                    const int64_t index = (head * T + j) * P + g;
                    const Lanes mask = draw_mask<L>(p, static_cast<uint32_t>(index)), score = load<L>(p.scores + index);
                    const Lanes grad = multiply_turned<P, W, L>(value + j * channels, scratch + g, W);
                    store<L>(dropped + j * P + g, score * mask);
                    store<L>(products + j * P + g,
                             grad * mask * (p.bias[h * T + j] * p.factor) * (1.0f - score * score));
                }
            for (int j = 0; j < T; ++j)
                for (int q = 0; q < T; ++q) {
                    by_query[q * P + j] = dropped[j * P + q];
                    products_by_query[q * P + j] = products[j * P + q];
                }
            combine_turned<P, W, L>(products, p.key + offset, p.token_stride, T, queries);
            combine_turned<P, W, L>(products_by_query, p.query + offset, p.token_stride, T, keys);
            combine_turned<P, W, L>(by_query, out_grad, channels, T, values);
            for (int t = 0; t < T; ++t)
                for (int c = 0; c < W; ++c) {
                    const float unweighted = values[c * P + t];
                    p.values_grad[place + t * channels + c] = p.bias[h * T + t] * unweighted;
                    bias_grad[h * T + t] += unweighted * value[t * channels + c];
                    p.query_grad[offset + t * p.token_stride + c] = queries[c * P + t];
                    p.key_grad[offset + t * p.token_stride + c] = keys[c * P + t];
                }
        }
    }
}

template <int P, bool Forward>
static NodeFunction choose_width(const Attention& p) {
    switch (p.head_width == p.value_width ? p.head_width : 0) {
        case 1: return Forward ? forward_narrow<P, 1> : backward_narrow<P, 1>;
        case 2: return Forward ? forward_narrow<P, 2> : backward_narrow<P, 2>;
        case 4: return Forward ? forward_narrow<P, 4> : backward_narrow<P, 4>;
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
