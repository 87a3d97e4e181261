// Scores of given labels, and the pass over all labels of blends without an encoder.
#include "kernels.h"
#include <math.h>

// Inner products in float64, rounded to float32 once, of each query with each of its rows.
//
// Each is summed by itself and always in the same order, so it is the same number whoever else is
// asked for. Eight sums side by side, as additions wait for the one before.
KERNEL products_with_rows(const float *queries, int64_t num_queries, int64_t dim,
                          const float *vectors, int64_t stored, const int64_t *rows, int64_t m,
                          float *products) {
    const int64_t whole = dim - dim % 8;
    for (int64_t i = 0; i < num_queries; i++) {
        const float *query = queries + i * dim;
        for (int64_t j = i * m; j < (i + 1) * m; j++) {
            const float *vector = vectors + rows[j] * stored;
            double sums[8] = {0};
            for (int64_t at = 0; at < whole; at += 8)
                for (int lane = 0; lane < 8; lane++)
                    sums[lane] += (double)query[at + lane] * vector[at + lane];
            double total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
                           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
            for (int64_t at = whole; at < dim; at++) total += (double)query[at] * vector[at];
            products[j] = (float)total;
        }
    }
    return 0;
}

// Write the listed scores of given labels; others stay as they are.
KERNEL listed_scores(const int64_t *starts, const int64_t *listed, const float *scores,
                     const int64_t *rows, int64_t num_rows, const int64_t *labels, int64_t m,
                     float *found) {
    for (int64_t i = 0; i < num_rows; i++) {
        const int64_t begin = starts[rows[i]], end = starts[rows[i] + 1];
        for (int64_t j = i * m; j < (i + 1) * m; j++) {
            int64_t low = begin, high = end; // the first that is not smaller is in low .. high
            while (low < high) {
                const int64_t middle = low + (high - low) / 2;
                if (listed[middle] < labels[j]) low = middle + 1;
                else high = middle;
            }
            if (low < end && listed[low] == labels[j]) found[j] = scores[low];
        }
    }
    return 0;
}

// Restore the heap after its smallest value was replaced.
static void sink(double *heap, int64_t size) {
    for (int64_t place = 0;;) {
        int64_t smallest = place;
        for (int64_t below = 2 * place + 1; below <= 2 * place + 2; below++)
            if (below < size && heap[below] < heap[smallest]) smallest = below;
        if (smallest == place) return;
        const double value = heap[place];
        heap[place] = heap[smallest], heap[smallest] = value;
        place = smallest;
    }
}

// A label's calibrated log-odds, a broken line of its score, with a weight and a constant.
typedef struct {
    const double *base, *weights, *knots, *at_knots, *slopes;
    double floor;
    int64_t num_knots;
} line_blend;

static double blended(const line_blend *blend, int64_t label, double score) {
    int64_t piece = 0;
    while (piece < blend->num_knots && score > blend->knots[piece]) piece++;
    const int64_t start = piece ? piece - 1 : 0;
    const double evidence =
        blend->at_knots[start] + blend->slopes[piece] * (score - blend->knots[start]);
    return blend->base[label] + blend->weights[label] * fmax(evidence, blend->floor);
}

// Collect the labels whose blend is at most a slack below the k-th best of their row.
//
// `scratch` has room for the blends of all labels and k more; the labels of all rows come one after
// the other, `counts` of each row.
KERNEL scan(const float *sums, int64_t num_rows, const float *bias, const uint8_t *is_allowed,
            int64_t num_labels, const line_blend *blend, int64_t k, double slack, double *scratch,
            int64_t *counts, grown *candidates) {
    double *heap = scratch, *values = scratch + k;
    int64_t *labels = NULL, capacity = 0, size = 0;
    for (int64_t row = 0; row < num_rows; row++) {
        for (int64_t i = 0; i < k; i++) heap[i] = -INFINITY;
        for (int64_t label = 0; label < num_labels; label++) {
            values[label] = -INFINITY;
            if (!is_allowed[label]) continue;
            const float score = sums[row * num_labels + label] + bias[label];
            values[label] = blended(blend, label, score);
            if (k && values[label] > heap[0]) {
                heap[0] = values[label];
                sink(heap, k);
            }
        }
        double least = k ? heap[0] : INFINITY;
        if (isfinite(least)) least -= slack * (1 + fabs(least));
        const int64_t before = size;
        for (int64_t label = 0; label < num_labels; label++) {
            if (values[label] < least || values[label] == -INFINITY) continue;
            if (!reserve(&labels, &capacity, size + 1, sizeof *labels)) {
                free(labels);
                return OUT_OF_MEMORY;
            }
            labels[size++] = label;
        }
        counts[row] = size - before;
    }
    *candidates = (grown){labels, size};
    return 0;
}
