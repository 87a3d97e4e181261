// The best labels, or documents, of those that come: a heap whose first one is the worst of them.
//
// A larger score is better; of equal scores the smaller label is.
#ifndef LONGTAIL_BEST_H
#define LONGTAIL_BEST_H

#include "kernels.h"

// Up to k labels and their scores, in arrays of this length; size is 0 at the beginning.
typedef struct {
    int64_t *labels;
    float *scores;
    int64_t k, size;
} best_list;

static inline bool is_worse(const best_list *best, int64_t first, int64_t second) {
    const float *scores = best->scores;
    return scores[first] < scores[second] ||
           (scores[first] == scores[second] && best->labels[first] > best->labels[second]);
}

static inline void best_swap(best_list *best, int64_t first, int64_t second) {
    const int64_t label = best->labels[first];
    const float score = best->scores[first];
    best->labels[first] = best->labels[second], best->scores[first] = best->scores[second];
    best->labels[second] = label, best->scores[second] = score;
}

// Restore the heap of the first so many below a place: every label is worse than those below it.
static inline void best_sink(best_list *best, int64_t place, int64_t size) {
    for (;;) {
        int64_t worst = place;
        for (int64_t below = 2 * place + 1; below <= 2 * place + 2; below++)
            if (below < size && is_worse(best, below, worst)) worst = below;
        if (worst == place) return;
        best_swap(best, place, worst);
        place = worst;
    }
}

static inline void best_heapify(best_list *best) {
    for (int64_t place = best->size / 2 - 1; place >= 0; place--)
        best_sink(best, place, best->size);
}

// Whether a label would be kept; of none that are wanted, no.
static inline bool best_takes(const best_list *best, int64_t label, float score) {
    if (best->size < best->k) return true;
    return best->k > 0 && (score > best->scores[0] ||
                           (score == best->scores[0] && label < best->labels[0]));
}

// Keep a label if it is among the k best so far; labels may come in any order.
static inline void best_offer(best_list *best, int64_t label, float score) {
    if (best->size < best->k) { // no heap until it is full
        best->labels[best->size] = label, best->scores[best->size++] = score;
        if (best->size == best->k) best_heapify(best);
    } else if (best_takes(best, label, score)) {
        best->labels[0] = label, best->scores[0] = score;
        best_sink(best, 0, best->size);
    }
}

// Order the labels, the best first; none may be offered afterwards.
static inline void best_in_order(best_list *best) {
    if (best->size < best->k) best_heapify(best);
    for (int64_t last = best->size - 1; last > 0; last--) { // the worst goes last
        best_swap(best, 0, last);
        best_sink(best, 0, last);
    }
}

#endif
