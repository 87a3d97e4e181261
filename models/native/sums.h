// Sums of sparse rows over sparse weights.
#ifndef LONGTAIL_SUMS_H
#define LONGTAIL_SUMS_H

#include "kernels.h"

// Add the inner products of a row with every label to the totals.
static inline void add_up(const csr *features, int64_t row, const csr *weights, float *totals,
                          int64_t num_labels) {
    for (int64_t i = row_start(features, row); i < row_start(features, row + 1); i++) {
        const int64_t feature = column(features, i);
        const float value = features->data[i];
        const int64_t begin = row_start(weights, feature), end = row_start(weights, feature + 1);
        if (weights->is_wide) {
            const int64_t *labels = weights->indices;
            for (int64_t j = begin; j < end; j++)
                if ((uint64_t)labels[j] < (uint64_t)num_labels)
                    totals[labels[j]] += value * weights->data[j];
        } else {
            const int32_t *labels = weights->indices;
            const uint32_t bound = num_labels > INT32_MAX ? INT32_MAX : (uint32_t)num_labels;
            for (int64_t j = begin; j < end; j++)
                if ((uint32_t)labels[j] < bound) totals[labels[j]] += value * weights->data[j];
        }
    }
}

#endif
