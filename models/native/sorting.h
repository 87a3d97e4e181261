// Sorting and selection, the same with every compiler.
#ifndef LONGTAIL_SORTING_H
#define LONGTAIL_SORTING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Something numbered, and what it is sorted by.
typedef struct {
    double key;
    int64_t index;
} keyed;

static inline bool comes_before(keyed first, keyed second) {
    return first.key < second.key || (first.key == second.key && first.index < second.index);
}

static inline int64_t smaller(int64_t first, int64_t second) {
    return first < second ? first : second;
}

// Sort short runs by insertion.
static inline void sort_runs(keyed *items, int64_t size, int64_t run) {
    for (int64_t begin = 0; begin < size; begin += run)
        for (int64_t i = begin + 1; i < smaller(begin + run, size); i++) {
            const keyed item = items[i];
            int64_t place = i;
            for (; place > begin && comes_before(item, items[place - 1]); place--)
                items[place] = items[place - 1];
            items[place] = item;
        }
}

// Merge two sorted runs that lie one after the other.
static inline void merge(const keyed *items, int64_t middle, int64_t size, keyed *merged) {
    int64_t left = 0, right = middle, count = 0;
    while (left < middle && right < size) {
        const bool is_right = comes_before(items[right], items[left]);
        merged[count++] = items[is_right ? right : left];
        right += is_right, left += !is_right;
    }
    memcpy(merged + count, items + left, (middle - left) * sizeof(keyed));
    memcpy(merged + count + middle - left, items + right, (size - right) * sizeof(keyed));
}

// Sort by rising key, ties by rising index; `spare` has as many places.
static inline void sort_keyed(keyed *items, keyed *spare, int64_t size) {
    keyed *from = items, *to = spare;
    int64_t run = 8;
    sort_runs(items, size, run);
    for (; run < size; run *= 2) {
        for (int64_t begin = 0; begin < size; begin += 2 * run) {
            const int64_t rest = size - begin;
            merge(from + begin, smaller(run, rest), smaller(2 * run, rest), to + begin);
        }
        keyed *last = from;
        from = to, to = last;
    }
    if (from != items) memcpy(items, from, size * sizeof(keyed));
}

static inline int compare_numbers(const void *first, const void *second) {
    const int64_t a = *(const int64_t *)first, b = *(const int64_t *)second;
    return (a > b) - (a < b);
}

// Sort numbers, rising.
static inline void sort_numbers(int64_t *numbers, int64_t size) {
    if (size > 1) qsort(numbers, size, sizeof(int64_t), compare_numbers);
}

// Return the first place of rising numbers that holds none below this one.
static inline int64_t place_among(const int64_t *numbers, int64_t size, int64_t number) {
    int64_t begin = 0, end = size;
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (numbers[middle] < number)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

// Return the value at a place of the sorted array, 0 <= place < size; reorders the values.
static inline float nth_value(float *values, int64_t size, int64_t place) {
    int64_t begin = 0, last = size - 1;
    // Invariant: values[:begin] <= values[begin:last + 1] <= values[last + 1:], place in the middle.
    while (begin < last) {
        const float pivot = values[begin + (last - begin) / 2];
        int64_t low = begin, high = last;
        while (low <= high) {
            while (values[low] < pivot) low++;
            while (pivot < values[high]) high--;
            if (low > high) break;
            const float value = values[low];
            values[low++] = values[high], values[high--] = value;
        }
        if (high < place) begin = low;
        if (place < low) last = high;
    }
    return values[place];
}

#endif
