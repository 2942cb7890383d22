// Included once per instruction set, by matmul_avx2.cpp and matmul_avx512.cpp, which define LANES, ROWS and Lanes.
//
// A panel of B is copied to where its rows follow each other, and stays in the first-level cache; a tile of ROWS rows and
// up to two vectors of columns of C stays in registers while k runs. A is read where it lies.

typedef float Lanes __attribute__((vector_size(LANES * 4)));
typedef float LooseLanes __attribute__((vector_size(LANES * 4), aligned(4)));

static inline Lanes load_lanes(const float* x) { return *reinterpret_cast<const LooseLanes*>(x); }
static inline void store_lanes(float* x, Lanes value) { *reinterpret_cast<LooseLanes*>(x) = value; }

// C of R rows and V vectors of columns; the columns beyond `width` are not written.
template <int R, int V, bool RowsApart>
static inline __attribute__((always_inline)) void tile(const Matmul& p, const float* a, const float* panel, int64_t depth,
                                                       float* c, const float* bias, const float* gate, int64_t width,
                                                       bool first, bool last) {
    Lanes sum[R][V];
    const int64_t stride = RowsApart ? p.a_row : p.a_column;
    const bool whole = width == V * LANES;
    float edge[R][V * LANES];
    if (first && !p.accumulate) {
        for (int v = 0; v < V; ++v) {
            Lanes start{};
            if (bias) {
                if (whole) start = load_lanes(bias + v * LANES);
                else for (int i = 0; i < LANES; ++i) start[i] = v * LANES + i < width ? bias[v * LANES + i] : 0.0f;
            }
            for (int r = 0; r < R; ++r) sum[r][v] = start;
        }
    } else if (whole) {
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) sum[r][v] = load_lanes(c + r * p.c_row + v * LANES);
    } else {
        for (int r = 0; r < R; ++r) {
            for (int i = 0; i < V * LANES; ++i) edge[r][i] = i < width ? c[r * p.c_row + i] : 0.0f;
            for (int v = 0; v < V; ++v) sum[r][v] = load_lanes(edge[r] + v * LANES);
        }
    }
    for (int64_t k = 0; k < depth; ++k, panel += V * LANES) {
        Lanes b[V];
        for (int v = 0; v < V; ++v) b[v] = load_lanes(panel + v * LANES);
        for (int r = 0; r < R; ++r) {
            const Lanes factor = Lanes{} + (RowsApart ? a[r * stride + k] : a[k * stride + r]);
            for (int v = 0; v < V; ++v) sum[r][v] += factor * b[v];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) {
            Lanes value = sum[r][v];
            if (last && p.relu) value = value < 0.0f ? Lanes{} : value;  // in this order NaN stays NaN
            if (whole) {
                if (last && gate) value = load_lanes(gate + r * p.c_row + v * LANES) <= 0.0f ? Lanes{} : value;
                store_lanes(c + r * p.c_row + v * LANES, value);
            } else {
                store_lanes(edge[r] + v * LANES, value);
            }
        }
    if (whole) return;
    for (int r = 0; r < R; ++r)
        for (int64_t i = 0; i < width; ++i)
            c[r * p.c_row + i] = last && gate && gate[r * p.c_row + i] <= 0.0f ? 0.0f : edge[r][i];
}

template <int R, int V, bool RowsApart>
static void rows_of_tiles(const Matmul& p, const float* a, const float* panel, int64_t depth, float* c, const float* bias,
                          const float* gate, int64_t width, bool first, bool last, int64_t rows) {
    if constexpr (R > 0) {
        const int64_t a_step = (RowsApart ? p.a_row : 1) * R;
        int64_t row = 0;
        for (; row + R <= rows; row += R) {
            tile<R, V, RowsApart>(p, a, panel, depth, c, bias, gate, width, first, last);
            a += a_step, c += R * p.c_row, gate = gate ? gate + R * p.c_row : gate;
        }
        constexpr int Less = R > 8 ? 8 : R > 4 ? 4 : R > 2 ? 2 : R > 1 ? 1 : 0;
        if (row < rows)
            rows_of_tiles<Less, V, RowsApart>(p, a, panel, depth, c, bias, gate, width, first, last, rows - row);
    }
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TURNS_IN_REGISTERS 1
#endif
#endif

#ifdef TURNS_IN_REGISTERS
typedef float Eight __attribute__((vector_size(32)));
typedef float LooseEight __attribute__((vector_size(32), aligned(4)));

// Eight rows of eight numbers, `stride` apart, become columns.
static inline __attribute__((always_inline)) void turn_eight(const float* from, int64_t stride, float* to, int64_t to_stride) {
    Eight row[8], pair[8], four[8];
    for (int i = 0; i < 8; ++i) row[i] = *reinterpret_cast<const LooseEight*>(from + i * stride);
    for (int i = 0; i < 8; i += 2) {
        pair[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pair[i + 1] = __builtin_shufflevector(row[i], row[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; ++j) {
            four[i + 2 * j] = __builtin_shufflevector(pair[i + j], pair[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
            four[i + 2 * j + 1] = __builtin_shufflevector(pair[i + j], pair[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; ++i) {
        const Eight low = __builtin_shufflevector(four[i], four[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        const Eight high = __builtin_shufflevector(four[i], four[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
        *reinterpret_cast<LooseEight*>(to + i * to_stride) = low;
        *reinterpret_cast<LooseEight*>(to + (i + 4) * to_stride) = high;
    }
}
#endif

// A panel of a B whose columns lie side by side in memory.
static inline void turn_panel(const Matmul& p, const float* b, int64_t depth, int64_t width, int64_t padded, float* panel) {
    int64_t done = 0;
#ifdef TURNS_IN_REGISTERS
    if (width == padded && p.b_row == 1) {
        done = depth / 8 * 8;
        for (int64_t k = 0; k < done; k += 8)
            for (int64_t i = 0; i < padded; i += 8)
                turn_eight(b + i * p.b_column + k, p.b_column, panel + k * padded + i, padded);
    }
#endif
    for (int64_t i = 0; i < padded; ++i)
        for (int64_t k = done; k < depth; ++k)
            panel[k * padded + i] = i < width ? b[i * p.b_column + k * p.b_row] : 0.0f;
}

// Columns [column, column + width) of rows [begin, begin + depth) of B, one row after the other, zeros beyond width.
static inline void fill_panel(const Matmul& p, const float* b, int64_t depth, int64_t width, int64_t padded, float* panel,
                              float* sums) {
    if (p.b_column == 1 && width == padded) {
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t i = 0; i < padded; i += LANES) store_lanes(panel + k * padded + i, load_lanes(b + k * p.b_row + i));
    } else if (p.b_column == 1) {
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t i = 0; i < padded; ++i) panel[k * padded + i] = i < width ? b[k * p.b_row + i] : 0.0f;
    } else {
        turn_panel(p, b, depth, width, padded, panel);
    }
    if (!sums) return;
    for (int64_t k = 0; k < depth; ++k)
        for (int64_t i = 0; i < width; ++i) sums[i] += panel[k * padded + i];
}

template <int V>
static void multiply_panel_of(const Matmul& p, int64_t group, int64_t column, int64_t begin, int64_t end, float* room) {
    const int64_t width = p.n - column < V * LANES ? p.n - column : V * LANES;
    const float* bias = p.bias ? p.bias + group * p.n + column : nullptr;
    float* sums = p.b_sums && begin == 0 ? p.b_sums + group * p.n + column : nullptr;
    if (sums)
        for (int64_t i = 0; i < width; ++i) sums[i] = 0.0f;
    const int64_t place = group * p.c_group + begin * p.c_row + column;
    for (int64_t k = 0; k < p.k || k == 0; k += kDepth) {
        const int64_t depth = p.k - k < kDepth ? p.k - k : kDepth;
        const bool first = k == 0, last = k + kDepth >= p.k;
        fill_panel(p, p.b + group * p.b_group + k * p.b_row + column * p.b_column, depth, width, V * LANES, room, sums);
        const float* a = p.a + group * p.a_group + begin * p.a_row + k * p.a_column;
        const float* gate = p.gate ? p.gate + place : nullptr;
        if (p.a_column == 1)
            rows_of_tiles<ROWS, V, true>(p, a, room, depth, p.c + place, bias, gate, width, first, last, end - begin);
        else
            rows_of_tiles<ROWS, V, false>(p, a, room, depth, p.c + place, bias, gate, width, first, last, end - begin);
    }
}
