// The rows of largest inner product with queries, where all components are whole numbers of 16 bits
// and no sum leaves 32 bits: sums are exact, in whatever order a processor takes them.
//
// Sixteen rows are a pack. It has two components of the first row, two of the second and so on,
// then the next two of each: so the sums of a pack need no additions across a vector register.
#include "best.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define PACK 16
// Queries that read a pack together: their sums fill the registers.
#define TOGETHER 6

// Whether the processor adds up pairs of products: else float32 is faster.
KERNEL whole_is_fast(void) {
#ifdef __AVX2__
    return 1;
#else
    return 0;
#endif
}

// Write the inner products of n queries with the rows of a pack; dim is even.
static inline __attribute__((always_inline)) void
multiply(const int n, const int16_t *queries, const int16_t *pack, int64_t dim,
         int32_t (*sums)[PACK]) {
#ifdef __AVX2__
    __m256i first[TOGETHER], second[TOGETHER];
    for (int a = 0; a < n; a++) first[a] = second[a] = _mm256_setzero_si256();
    for (int64_t i = 0; i < dim; i += 2, pack += 2 * PACK) {
        const __m256i one = _mm256_loadu_si256((const __m256i *)pack);
        const __m256i other = _mm256_loadu_si256((const __m256i *)(pack + PACK));
        for (int a = 0; a < n; a++) {
            int32_t two;
            memcpy(&two, queries + a * dim + i, sizeof two);
            const __m256i both = _mm256_set1_epi32(two);
            first[a] = _mm256_add_epi32(first[a], _mm256_madd_epi16(both, one));
            second[a] = _mm256_add_epi32(second[a], _mm256_madd_epi16(both, other));
        }
    }
    for (int a = 0; a < n; a++) {
        _mm256_storeu_si256((__m256i *)sums[a], first[a]);
        _mm256_storeu_si256((__m256i *)(sums[a] + PACK / 2), second[a]);
    }
#else
    memset(sums, 0, n * sizeof *sums);
    for (int64_t i = 0; i < dim; i++)
        for (int a = 0; a < n; a++)
            for (int row = 0; row < PACK; row++)
                sums[a][row] += queries[a * dim + i] * pack[i / 2 * 2 * PACK + 2 * row + i % 2];
#endif
}

static void multiply_some(int64_t n, const int16_t *queries, const int16_t *pack, int64_t dim,
                          int32_t (*sums)[PACK]) {
    switch (n) { // as constants: all sums of a loop are in registers
    case 1: multiply(1, queries, pack, dim, sums); break;
    case 2: multiply(2, queries, pack, dim, sums); break;
    case 3: multiply(3, queries, pack, dim, sums); break;
    case 4: multiply(4, queries, pack, dim, sums); break;
    case 5: multiply(5, queries, pack, dim, sums); break;
    default: multiply(TOGETHER, queries, pack, dim, sums);
    }
}

// Offer the first rows of a pack, which are numbered from `start`.
static void offer_pack(best_list *best, const int32_t *sums, int64_t start, int64_t size) {
    int32_t most = INT32_MIN;
    for (int row = 0; row < PACK; row++) most = sums[row] > most ? sums[row] : most;
    if (best->size == best->k && (best->k == 0 || (float)most <= best->scores[0])) return;
    for (int64_t row = 0; row < size; row++) best_offer(best, start + row, (float)sums[row]);
}

// Write the m rows from `begin` to `end` of largest sum for each query, in no order, and the sums,
// rounded to float32. `begin` is a multiple of 16, and there are at least m rows.
KERNEL whole_nearest(const int16_t *queries, int64_t num_queries, const int16_t *packs,
                     int64_t begin, int64_t end, int64_t dim, int64_t m, int64_t *found,
                     float *sums) {
    best_list *best = malloc((num_queries + 1) * sizeof(best_list));
    if (!best) return OUT_OF_MEMORY;
    for (int64_t query = 0; query < num_queries; query++)
        best[query] = (best_list){found + query * m, sums + query * m, m, 0};
    for (int64_t start = begin; start < end; start += PACK) {
        const int64_t size = end - start < PACK ? end - start : PACK;
        for (int64_t query = 0; query < num_queries; query += TOGETHER) {
            const int64_t n = num_queries - query < TOGETHER ? num_queries - query : TOGETHER;
            int32_t products[TOGETHER][PACK];
            multiply_some(n, queries + query * dim, packs + start * dim, dim, products);
            for (int64_t i = 0; i < n; i++)
                offer_pack(best + query + i, products[i], start, size);
        }
    }
    free(best);
    return 0;
}
