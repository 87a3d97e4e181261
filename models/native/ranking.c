// Scores of given labels.
#include "kernels.h"

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
