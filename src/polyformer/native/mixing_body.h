// Included by sparse.cpp once per instruction set, inside a namespace of its own: no include guard.

typedef float Floats __attribute__((vector_size(32)));
typedef float Loose __attribute__((vector_size(32), aligned(4)));

// after[k] = sum_j matrix[k, j] before[j], four orders at a time so that each loaded vector is used four times
static inline void mix_lanes(int count, const float* matrix, const Floats* before, Floats* after) {
    int k = 0;
    for (; k + 4 <= count; k += 4) {
        const float* row = matrix + k * count;
        Floats a{}, b{}, c{}, d{};
        for (int j = 0; j < count; ++j) {
            a += row[j] * before[j];
            b += row[count + j] * before[j];
            c += row[2 * count + j] * before[j];
            d += row[3 * count + j] * before[j];
        }
        after[k] = a, after[k + 1] = b, after[k + 2] = c, after[k + 3] = d;
    }
    for (; k < count; ++k) {
        Floats a{};
        for (int j = 0; j < count; ++j) a += matrix[k * count + j] * before[j];
        after[k] = a;
    }
}

// tokens[i, k, :] = sum_j matrix[k, j] tokens[i, j, :], eight columns at a time
static void mix_rows(int64_t begin, int64_t end, int count, int64_t width, const float* matrix, float* tokens) {
    Floats before[kMostTokens], after[kMostTokens];
    for (int64_t i = begin; i < end; ++i) {
        float* rows = tokens + i * count * width;
        for (int64_t start = 0; start < width; start += 8) {
            const size_t bytes = sizeof(float) * static_cast<size_t>(std::min<int64_t>(8, width - start));
            if (bytes == sizeof(Floats)) {
                for (int j = 0; j < count; ++j) before[j] = *reinterpret_cast<const Loose*>(rows + j * width + start);
                mix_lanes(count, matrix, before, after);
                for (int k = 0; k < count; ++k) *reinterpret_cast<Loose*>(rows + k * width + start) = after[k];
            } else {
                for (int j = 0; j < count; ++j) before[j] = Floats{};
                for (int j = 0; j < count; ++j) std::memcpy(&before[j], rows + j * width + start, bytes);
                mix_lanes(count, matrix, before, after);
                for (int k = 0; k < count; ++k) std::memcpy(rows + k * width + start, &after[k], bytes);
            }
        }
    }
}
