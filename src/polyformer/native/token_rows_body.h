// One hop of the token recurrence on one node, from tokens that lie where they are stored: in the working array of an
// update, in the log of a token directory, or in its memory-mapped array. Sums of up to 64 neighbours are kept in float,
// those of more are added up in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "targets.h"

namespace {

constexpr int kTile = 128;
constexpr int kChunk = 64;
constexpr int kAhead = 6;

// Where the tokens of one order are: first in `work`, if the node has a place there, then in `log`, then in `stored`.
struct Order {
    const int32_t* work_place;  // of each node, plus one; 0 or null: not there
    const float* work;
    const int32_t* log_place;  // as above, of the nodes that were there before the change
    const float* log;
    const float* stored;  // tokens of this order of node 0
};

struct Layout {
    int64_t stored_nodes, tokens, columns;
};

struct Hop {
    Layout layout;
    const int64_t* nodes;
    const int64_t* indptr;
    const int32_t* indices;
    const float* weights;   // null: all ones
    const double* degrees;  // null: the lengths of the rows
    double loop;
    Order now, last, previous;  // orders k, k-1 and k-2
    double alpha, beta;
    float* out;
    double* moved;
};

INLINE const float* stored_tokens_of(const Layout& at, const Order& order, int64_t node) {
    if (node >= at.stored_nodes) return nullptr;
    if (order.log_place && order.log_place[node]) return order.log + int64_t(order.log_place[node] - 1) * at.columns;
    return order.stored + node * at.tokens * at.columns;
}

INLINE const float* tokens_of(const Layout& at, const Order& order, int64_t node) {
    const int64_t place = order.work_place ? order.work_place[node] : 0;
    return place ? order.work + (place - 1) * at.columns : stored_tokens_of(at, order, node);
}

INLINE double scaling(const Hop& h, int64_t node) {
    const double degree = (h.degrees ? h.degrees[node] : double(h.indptr[node + 1] - h.indptr[node])) + h.loop;
    return degree > 0 ? 1 / std::sqrt(degree) : 1.0;
}

INLINE void sum_neighbours(const Hop& h, int64_t node, int64_t first, int width, double* sum) {
    const float* rows[kChunk];
    float high[kChunk], low[kChunk];  // a factor in two parts: rounded to one float, it would shift the spectrum
    const int64_t end = h.indptr[node + 1];
    for (int64_t begin = h.indptr[node]; begin < end; begin += kChunk) {
        const int count = int(std::min<int64_t>(kChunk, end - begin));
        for (int e = 0; e < count; ++e) {
            const int64_t other = h.indices[begin + e];
            const float* row = tokens_of(h.layout, h.last, other);
            rows[e] = row + first;
            const double factor = scaling(h, other) * (h.weights ? double(h.weights[begin + e]) : 1.0);
            high[e] = float(factor);
            low[e] = float(factor - double(high[e]));
            if (e < kAhead)
                for (int c = 0; c < width; c += 16) __builtin_prefetch(rows[e] + c);
        }
        float part[kTile] = {};
        for (int e = 0; e < count; ++e) {
            if (e + kAhead < count)
                for (int c = 0; c < width; c += 16) __builtin_prefetch(rows[e + kAhead] + c);
            const float* row = rows[e];
            for (int c = 0; c < width; ++c) part[c] += high[e] * row[c] + low[e] * row[c];
        }
        for (int c = 0; c < width; ++c) sum[c] += double(part[c]);
    }
}

// One node, some columns; returns the square of the distance to the tokens before.
INLINE double make_tile(const Hop& h, int64_t i, int64_t first, int width) {
    double sum[kTile] = {};
    const int64_t node = h.nodes[i];
    sum_neighbours(h, node, first, width, sum);
    const double own_scaling = scaling(h, node), diagonal = h.loop * own_scaling * own_scaling;
    const float* last = tokens_of(h.layout, h.last, node) + first;
    float* out = h.out + i * h.layout.columns + first;
    for (int c = 0; c < width; ++c) sum[c] = h.alpha * (own_scaling * sum[c] + diagonal * double(last[c]));
    if (h.beta != 0) {
        const float* previous = tokens_of(h.layout, h.previous, node) + first;
        for (int c = 0; c < width; ++c) sum[c] += h.beta * double(previous[c]);
    }
    for (int c = 0; c < width; ++c) out[c] = float(sum[c]);
    const float* before = tokens_of(h.layout, h.now, node);
    double square = 0;
    for (int c = 0; c < width; ++c) {
        const double distance = double(out[c]) - (before ? double(before[first + c]) : 0.0);
        square += distance * distance;
    }
    return square;
}

INLINE void make_row(const Hop& h, int64_t i) {
    double square = 0;
    int64_t first = 0;
    for (; first + kTile <= h.layout.columns; first += kTile) square += make_tile(h, i, first, kTile);
    for (; first + 16 <= h.layout.columns; first += 16) square += make_tile(h, i, first, 16);
    if (first < h.layout.columns) square += make_tile(h, i, first, int(h.layout.columns - first));
    h.moved[i] = std::sqrt(square);
}

}  // namespace
