// What all kernels share: sparse matrices, arrays that grow, and the end of memory.
#ifndef LONGTAIL_KERNELS_H
#define LONGTAIL_KERNELS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define KERNEL __declspec(dllexport) int64_t
#else
#define KERNEL __attribute__((visibility("default"))) int64_t
#endif

// Sizes of arrays are int64 and become size_t when memory is asked for.
_Static_assert(sizeof(size_t) == 8, "the kernels need a processor of 64 bits");

// What a kernel returns where malloc gave nothing; library.py raises MemoryError then.
#define OUT_OF_MEMORY (-(INT64_C(1) << 62))
#define NO_LABEL (-1)

// A sparse matrix of float32 or float16 by rows; indices and row pointers are int32, or both int64.
// Values and indices may lie in a file that is mapped: loops compare an index with its bound.
typedef struct {
    const void *indptr, *indices;
    union {
        const float *data;
        const uint16_t *halves;
    };
    int64_t is_wide, num_rows;
} csr;

// Return the value of a float16 that is finite and not negative: its bits, shifted, have the
// exponent of float32 but for a factor of 2^112.
static inline float of_half(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value * 0x1p112f;
}

static inline int64_t row_start(const csr *matrix, int64_t row) {
    return matrix->is_wide ? ((const int64_t *)matrix->indptr)[row]
                           : ((const int32_t *)matrix->indptr)[row];
}

static inline int64_t column(const csr *matrix, int64_t entry) {
    return matrix->is_wide ? ((const int64_t *)matrix->indices)[entry]
                           : ((const int32_t *)matrix->indices)[entry];
}

// An array that a kernel hands over: library.py copies and frees it (`taken`).
typedef struct {
    void *data;
    int64_t size;
} grown;

// Make room for so many elements, at least doubling; false without memory.
static inline bool reserve(void *array, int64_t *capacity, int64_t needed, size_t width) {
    if (needed <= *capacity) return true;
    const int64_t more = needed > 2 * *capacity ? needed : 2 * *capacity;
    void *larger = realloc(*(void **)array, more * width);
    if (!larger) return false;
    *(void **)array = larger, *capacity = more;
    return true;
}

#endif
