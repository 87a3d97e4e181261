// Scores and best labels of tf-idf rows under sparse linear classifiers.
//
// A label's score is summed in float32 in the order of the row's features, whoever asks.
#include "best.h"
#include "sums.h"

// Write the k best labels of one row and their scores, the best first.
static void best_of(const float *totals, const float *bias, int64_t num_labels, int64_t k,
                    int64_t *labels, float *scores) {
    best_list best = {labels, scores, k, 0};
    for (int64_t label = 0; label < num_labels; label++)
        best_offer(&best, label, totals[label] + bias[label]);
    best_in_order(&best);
}

KERNEL sparse_sum_up(const csr *features, const csr *weights, const int64_t *rows, int64_t num_rows,
                     float *sums, int64_t num_labels) {
    for (int64_t row = 0; row < num_rows; row++)
        add_up(features, row, weights, sums + rows[row] * num_labels, num_labels);
    return 0;
}

KERNEL sparse_best_of_sums(const float *sums, const int64_t *rows, int64_t num_rows,
                           const float *bias, int64_t num_labels, int64_t k, int64_t *labels,
                           float *scores) {
    for (int64_t row = 0; row < num_rows; row++)
        best_of(sums + rows[row] * num_labels, bias, num_labels, k, labels + row * k,
                scores + row * k);
    return 0;
}

KERNEL sparse_best_of_rows(const csr *features, const csr *weights, const float *bias,
                           int64_t num_labels, int64_t k, int64_t *labels, float *scores) {
    float *totals = calloc(num_labels + 1, sizeof(float));
    if (!totals) return OUT_OF_MEMORY;
    for (int64_t row = 0; row < features->num_rows; row++) {
        add_up(features, row, weights, totals, num_labels);
        best_of(totals, bias, num_labels, k, labels + row * k, scores + row * k);
        if (row + 1 < features->num_rows) memset(totals, 0, num_labels * sizeof(float));
    }
    free(totals);
    return 0;
}

KERNEL sparse_scores_of_labels(const csr *features, const csr *weights, const float *bias,
                               int64_t num_labels, const int64_t *labels, int64_t m,
                               float *scores) {
    float *totals = calloc(num_labels + 1, sizeof(float));
    if (!totals) return OUT_OF_MEMORY;
    for (int64_t row = 0; row < features->num_rows; row++) {
        add_up(features, row, weights, totals, num_labels);
        for (int64_t i = row * m; i < (row + 1) * m; i++)
            scores[i] = totals[labels[i]] + bias[labels[i]];
        if (row + 1 < features->num_rows) memset(totals, 0, num_labels * sizeof(float));
    }
    free(totals);
    return 0;
}
