// Included once per instruction set, after attention_body.h, whose vectors, hash and tanh it uses.
//
// What a stage of the cascade does between its matrix products: weights of tokens node by node, and normalisation over
// nodes with ReLU, dropout and residual. Sums over nodes are cut at fixed nodes, one range a task.

static inline float sum_lanes(Floats x) {
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

// Eight numbers, or as many as are left of a row; lanes beyond them are zero and are not written. `Whole` says that
// there always are eight, which spares asking.
template <bool Whole = false>
static inline Floats load_some(const float* x, int64_t left) {
    if (Whole || left >= 8) return load<8>(x);
    float buffer[8] = {};
    std::memcpy(buffer, x, sizeof(float) * static_cast<size_t>(left));
    return load<8>(buffer);
}

template <bool Whole = false>
static inline void store_some(float* x, Floats value, int64_t left) {
    if (Whole || left >= 8) {
        store<8>(x, value);
        return;
    }
    float buffer[8];
    store<8>(buffer, value);
    std::memcpy(x, buffer, sizeof(float) * static_cast<size_t>(left));
}

template <bool Whole = false>
static inline void add_some(float* x, Floats value, int64_t left) {
    store_some<Whole>(x, load_some<Whole>(x, left) + value, left);
}

// The dropout weights of eight entries, the first at `place`.
static inline Floats stage_mask(const Finish& p, uint32_t place) {
    if (!p.threshold) return Floats{} + 1.0f;
    const Words lane = {0, 1, 2, 3, 4, 5, 6, 7};
    Words drawn = hash((lane + place) ^ p.seed) ^ 0x80000000u;  // a signed comparison: there is no unsigned one
    const int32_t threshold = static_cast<int32_t>(p.threshold ^ 0x80000000u);
    return (Ints)drawn >= threshold ? Floats{} + p.keep : Floats{};
}

// Mean and 1 / deviation of a row, in two passes: it is in the first-level cache.
static inline void moments(const float* x, int64_t count, float* mean, float* inverse) {
    Floats sum{};
    int64_t c = 0;
    for (; c + 8 <= count; c += 8) sum += load<8>(x + c);
    float total = sum_lanes(sum);
    for (; c < count; ++c) total += x[c];
    const float m = total / static_cast<float>(count);
    Floats squares{};
    for (c = 0; c + 8 <= count; c += 8) {
        const Floats apart = load<8>(x + c) - m;
        squares += apart * apart;
    }
    total = sum_lanes(squares);
    for (; c < count; ++c) total += (x[c] - m) * (x[c] - m);
    *mean = m, *inverse = 1.0f / __builtin_sqrtf(total / static_cast<float>(count) + kNormEpsilon);
}

// kept = tanh(inverse (products - mean weight_sums) + bias), out = order_bias * kept * tokens
template <bool Whole>
static void gate_forward_rows(const Gate& p, int64_t begin, int64_t end) {
    const int count = p.heads * p.tokens, width = p.channels / p.heads;
    const int64_t row = int64_t(p.tokens) * p.channels;
    for (int64_t i = begin; i < end; ++i) {
        const float* tokens = p.token_rows + i * row;
        float *kept = p.kept + i * count, *out = p.out + i * row;
        float mean = 0.0f, inverse = 1.0f;
        if (p.statistics) {
            moments(tokens, row, &mean, &inverse);
            p.statistics[2 * i] = mean, p.statistics[2 * i + 1] = inverse;
        }
        for (int j = 0; j < count; j += 8) {
            const int left = count - j;
            const Floats product = load_some(p.products + i * count + j, left) - mean * load_some(p.weight_sums + j, left);
            store_some(kept + j, tanh(inverse * product + load_some(p.bias + j, left)), left);
        }
        for (int h = 0, j = 0; h < p.heads; ++h)
            for (int k = 0; k < p.tokens; ++k, ++j) {
                const int64_t at = int64_t(k) * p.channels + h * width;
                const float alpha = p.order_bias[j] * kept[j];
                for (int c = 0; c < width; c += 8)
                    store_some<Whole>(out + at + c, alpha * load_some<Whole>(tokens + at + c, width - c), width - c);
            }
    }
}

// `sums` (3, heads * tokens) of this range: gradients of order_bias, bias and weight_sums
template <bool Whole>
static void gate_backward_rows(const Gate& p, int64_t begin, int64_t end, float* sums) {
    const int count = p.heads * p.tokens, width = p.channels / p.heads;
    const int64_t row = int64_t(p.tokens) * p.channels;
    for (int64_t i = begin; i < end; ++i) {
        const float *tokens = p.token_rows + i * row, *grad = p.out_grad + i * row, *kept = p.kept + i * count;
        float *token_grad = p.token_grad + i * row, *product_grad = p.product_grad + i * count;
        const float mean = p.statistics ? p.statistics[2 * i] : 0.0f;
        const float inverse = p.statistics ? p.statistics[2 * i + 1] : 1.0f;
        for (int h = 0, j = 0; h < p.heads; ++h)
            for (int k = 0; k < p.tokens; ++k, ++j) {
                const int64_t at = int64_t(k) * p.channels + h * width;
                const float alpha = p.order_bias[j] * kept[j];
                Floats sum{};
                for (int c = 0; c < width; c += 8) {
                    const Floats passed = load_some<Whole>(grad + at + c, width - c);
                    sum += passed * load_some<Whole>(tokens + at + c, width - c);
                    store_some<Whole>(token_grad + at + c, alpha * passed, width - c);
                }
                product_grad[j] = sum_lanes(sum);  // of alpha, so far
            }
        Floats of_mean{}, of_inverse{};
        for (int j = 0; j < count; j += 8) {
            const int left = count - j;
            const Floats alpha_grad = load_some(product_grad + j, left), tanh_value = load_some(kept + j, left);
            const Floats weight_sum = load_some(p.weight_sums + j, left);
            const Floats score = alpha_grad * load_some(p.order_bias + j, left) * (1.0f - tanh_value * tanh_value);
            add_some(sums + j, alpha_grad * tanh_value, left);
            add_some(sums + count + j, score, left);
            add_some(sums + 2 * count + j, -inverse * mean * score, left);
            store_some(product_grad + j, inverse * score, left);
            of_mean += weight_sum * score;
            of_inverse += score * (load_some(p.products + i * count + j, left) - mean * weight_sum);
        }
        if (!p.statistics) continue;
        const float share = 1.0f / static_cast<float>(row), constant = -inverse * sum_lanes(of_mean) * share;
        const float factor = -sum_lanes(of_inverse) * inverse * inverse * inverse * share;
        for (int64_t c = 0; c < row; c += 8)
            add_some<Whole>(token_grad + c, constant + factor * (load_some<Whole>(tokens + c, row - c) - mean), row - c);
    }
}

// `sums` (2, width): of x - centre and of its square, over the rows of this range
template <bool Whole>
static void column_moments_rows(int64_t rows, int64_t width, const float* x, const float* centre, float* sums) {
    for (int64_t c = 0; c < width; c += 8) {
        const int64_t left = width - c;
        const Floats middle = load_some<Whole>(centre + c, left);
        Floats sum{}, squares{};
        for (int64_t i = 0; i < rows; ++i) {
            const Floats apart = load_some<Whole>(x + i * width + c, left) - middle;
            sum += apart, squares += apart * apart;
        }
        store_some<Whole>(sums + c, sum, left), store_some<Whole>(sums + width + c, squares, left);
    }
}

// out = residual + mask * max(scale x + shift, 0)
template <bool Whole>
static void finish_forward_rows(const Finish& p, int64_t begin, int64_t end) {
    for (int64_t c = 0; c < p.width; c += 8) {
        const int64_t left = p.width - c;
        const Floats scale = load_some<Whole>(p.scale + c, left), shift = load_some<Whole>(p.shift + c, left);
        for (int64_t at = begin * p.width + c; at < end * p.width; at += p.width) {
            const Floats value = scale * load_some<Whole>(p.x + at, left) + shift;
            Floats passed = value < 0.0f ? Floats{} : value;  // in this order NaN stays NaN
            passed *= stage_mask(p, static_cast<uint32_t>(at));
            if (p.residual) passed += load_some<Whole>(p.residual + at, left);
            store_some<Whole>(p.out + at, passed, left);
        }
    }
}

// What passes back through mask and ReLU; `sums` (2, width) of it and of its product with x, over this range.
template <bool Whole>
static void finish_backward_rows(const Finish& p, int64_t begin, int64_t end, float* sums) {
    for (int64_t c = 0; c < p.width; c += 8) {
        const int64_t left = p.width - c;
        const Floats scale = load_some<Whole>(p.scale + c, left), shift = load_some<Whole>(p.shift + c, left);
        const Floats centre = load_some<Whole>(p.centre + c, left);
        Floats sum{}, products{};
        for (int64_t at = begin * p.width + c; at < end * p.width; at += p.width) {
            const Floats x = load_some<Whole>(p.x + at, left), value = scale * x + shift;
            Floats passed = load_some<Whole>(p.out_grad + at, left) * stage_mask(p, static_cast<uint32_t>(at));
            passed = value <= 0.0f ? Floats{} : passed;
            store_some<Whole>(p.out + at, passed, left);
            sum += passed, products += passed * (x - centre);
        }
        store_some<Whole>(sums + c, sum, left), store_some<Whole>(sums + p.width + c, products, left);
    }
}

// out = factors[0] out + factors[1] x + factors[2], column by column
template <bool Whole>
static void combine_columns_rows(int64_t rows, int64_t width, const float* factors, const float* x, float* out) {
    for (int64_t c = 0; c < width; c += 8) {
        const int64_t left = width - c;
        const Floats of_out = load_some<Whole>(factors + c, left), of_x = load_some<Whole>(factors + width + c, left);
        const Floats constant = load_some<Whole>(factors + 2 * width + c, left);
        for (int64_t at = c; at < rows * width; at += width)
            store_some<Whole>(out + at, of_out * load_some<Whole>(out + at, left) + of_x * load_some<Whole>(x + at, left) + constant, left);
    }
}

static void gate_forward(const Gate& p, int64_t begin, int64_t end) {
    (p.channels / p.heads % 8 ? gate_forward_rows<false> : gate_forward_rows<true>)(p, begin, end);
}

static void gate_backward(const Gate& p, int64_t begin, int64_t end, float* sums) {
    (p.channels / p.heads % 8 ? gate_backward_rows<false> : gate_backward_rows<true>)(p, begin, end, sums);
}

static void column_moments(int64_t rows, int64_t width, const float* x, const float* centre, float* sums) {
    (width % 8 ? column_moments_rows<false> : column_moments_rows<true>)(rows, width, x, centre, sums);
}

static void finish_forward(const Finish& p, int64_t begin, int64_t end) {
    (p.width % 8 ? finish_forward_rows<false> : finish_forward_rows<true>)(p, begin, end);
}

static void finish_backward(const Finish& p, int64_t begin, int64_t end, float* sums) {
    (p.width % 8 ? finish_backward_rows<false> : finish_backward_rows<true>)(p, begin, end, sums);
}

static void combine_columns(int64_t rows, int64_t width, const float* factors, const float* x, float* out) {
    (width % 8 ? combine_columns_rows<false> : combine_columns_rows<true>)(rows, width, factors, x, out);
}
