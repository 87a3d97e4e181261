// The vectors of largest inner product with others, exactly: components are bytes, so that products
// are whole numbers, the same on every processor, in every batch and in every order.
#include <math.h>

#include "best.h"

// Vectors whose components are bytes times a scale; `num_rows` of `dim` bytes each.
typedef struct {
    const int8_t *bytes;
    const float *scales;
    int64_t num_rows, dim;
} byte_rows;

// Queries that read a vector together, so that it is widened once.
#define TOGETHER 4
// Bytes of vectors that stay in the first cache while all queries pass over them.
#define BLOCK_BYTES 16384

// Add up the products of a row with four queries; components of queries are widened beforehand.
static void products(const int16_t *queries, const int8_t *row, int64_t dim, int32_t *found) {
    const int16_t *second = queries + dim, *third = second + dim, *fourth = third + dim;
    int32_t first_sum = 0, second_sum = 0, third_sum = 0, fourth_sum = 0;
    for (int64_t i = 0; i < dim; i++) {
        const int16_t value = row[i];
        first_sum += queries[i] * value;
        second_sum += second[i] * value;
        third_sum += third[i] * value;
        fourth_sum += fourth[i] * value;
    }
    found[0] = first_sum, found[1] = second_sum, found[2] = third_sum, found[3] = fourth_sum;
}

static int32_t product(const int16_t *query, const int8_t *row, int64_t dim) {
    int32_t sum = 0;
    for (int64_t i = 0; i < dim; i++) sum += query[i] * (int16_t)row[i];
    return sum;
}

// Widen the queries; a group that is not full repeats zeros.
static int16_t *widened(const byte_rows *queries) {
    const int64_t size = queries->num_rows * queries->dim;
    int16_t *wide = calloc(size + TOGETHER * queries->dim, sizeof(int16_t));
    for (int64_t i = 0; wide && i < size; i++) wide[i] = queries->bytes[i];
    return wide;
}

static void offer(best_list *best, const byte_rows *queries, const byte_rows *rows, int64_t query,
                  int64_t row, int32_t sum) {
    const double scale = (double)queries->scales[query] * rows->scales[row];
    best_offer(best, row, (float)(scale * sum));
}

static void finish(best_list *best) {
    best_in_order(best);
    for (int64_t place = best->size; place < best->k; place++)
        best->labels[place] = NO_LABEL, best->scores[place] = 0;
}

// Write the k vectors of largest inner product with each query, and these products, the largest
// first, ties by the smaller number; `NO_LABEL` and 0 where there are fewer.
//
// At most 2^16 dimensions, so that sums fit 32 bits.
KERNEL dense_nearest(const byte_rows *queries, const byte_rows *rows, int64_t k, int64_t *found,
                     float *similarities) {
    const int64_t dim = rows->dim, num_queries = queries->num_rows;
    int16_t *wide = widened(queries);
    best_list *best = malloc((num_queries + 1) * sizeof(best_list));
    const bool has_memory = wide && best;
    for (int64_t query = 0; has_memory && query < num_queries; query++)
        best[query] = (best_list){found + query * k, similarities + query * k, k, 0};
    const int64_t block = BLOCK_BYTES / (dim + 1) + 1;
    for (int64_t start = 0; has_memory && start < rows->num_rows; start += block) {
        const int64_t end = start + block < rows->num_rows ? start + block : rows->num_rows;
        for (int64_t query = 0; query < num_queries; query += TOGETHER) {
            const int64_t size = num_queries - query < TOGETHER ? num_queries - query : TOGETHER;
            for (int64_t row = start; row < end; row++) {
                int32_t sums[TOGETHER];
                if (size == 1) sums[0] = product(wide + query * dim, rows->bytes + row * dim, dim);
                else products(wide + query * dim, rows->bytes + row * dim, dim, sums);
                for (int64_t i = 0; i < size; i++)
                    offer(best + query + i, queries, rows, query + i, row, sums[i]);
            }
        }
    }
    for (int64_t query = 0; has_memory && query < num_queries; query++) finish(best + query);
    free(wide), free(best);
    return has_memory ? 0 : OUT_OF_MEMORY;
}

// The same among the vectors of some clusters alone, whose vectors lie one after the other.
//
// starts: first vector of each cluster, and where the last one ends. probed: of each query, the
// clusters that are looked at; a number that is none of a cluster is passed over.
KERNEL dense_nearest_probed(const byte_rows *queries, const byte_rows *rows, const int64_t *starts,
                            int64_t num_clusters, const int64_t *probed, int64_t num_probed,
                            int64_t k, int64_t *found, float *similarities) {
    const int64_t dim = rows->dim;
    int16_t *wide = widened(queries);
    for (int64_t query = 0; wide && query < queries->num_rows; query++) {
        best_list best = {found + query * k, similarities + query * k, k, 0};
        for (int64_t i = query * num_probed; i < (query + 1) * num_probed; i++) {
            if (probed[i] < 0 || probed[i] >= num_clusters) continue;
            for (int64_t row = starts[probed[i]]; row < starts[probed[i] + 1]; row++)
                offer(&best, queries, rows, query, row,
                      product(wide + query * dim, rows->bytes + row * dim, dim));
        }
        finish(&best);
    }
    free(wide);
    return wide ? 0 : OUT_OF_MEMORY;
}
