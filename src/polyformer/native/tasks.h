// Loops over ranges of rows that threads share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

constexpr int64_t kRowsPerTask = 256;

// Run `body(begin, end)` for ranges of rows.
template <typename Body>
void for_tasks(int64_t rows, int threads, const Body& body) {
    const int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t task = 0; task < tasks; ++task) body(task * kRowsPerTask, std::min(rows, (task + 1) * kRowsPerTask));
}

// The same where each range leaves `count` sums: they are added in the order of the ranges, whatever the threads.
template <typename Body>
void sum_tasks(int64_t rows, int64_t count, int threads, float* sums, const Body& body) {
    const int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
    std::vector<float> partial(static_cast<size_t>(tasks * count), 0.0f);
    for_tasks(rows, threads, [&](int64_t begin, int64_t end) {
        body(begin, end, partial.data() + begin / kRowsPerTask * count);
    });
    for (int64_t i = 0; i < count; ++i) {
        double total = 0.0;
        for (int64_t task = 0; task < tasks; ++task) total += partial[static_cast<size_t>(task * count + i)];
        sums[i] = static_cast<float>(total);
    }
}
