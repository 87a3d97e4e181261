// Walks through a label tree.
//
// A node's two log-probabilities are computed in one place, in float64 from float32 numbers, with
// additions in one order: so log p_n of a label is the same number, to the bit, whoever asks.
#include <math.h>

#include "kernels.h"

// Inner nodes as in a heap: the children of node i are 2i + 1 and 2i + 2, leaves follow.
typedef struct {
    const float *weights, *biases;
    int64_t num_nodes, num_features;
} inner_nodes;

// Log-probabilities of going left and right.
typedef struct {
    double side[2];
} decision;

// Return log sigma(-w·x - b) and log sigma(w·x + b).
static decision decide(const inner_nodes *nodes, int64_t node, const float *features) {
    const float *weights = nodes->weights + node * nodes->num_features;
    double score = nodes->biases[node]; // s = w·x + b, Eq. 7; products are exact in float64
    for (int64_t i = 0; i < nodes->num_features; i++)
        score += (double)weights[i] * (double)features[i];
    // log sigma(s) = min(s, 0) - log(1 + e^-|s|), and log sigma(-s) = -max(s, 0) less the same:
    // neither overflows, and infinite biases, which padding forces, give 0 and -inf.
    const double rest = log1p(exp(-fabs(score)));
    return (decision){{-(score > 0 ? score : 0.0) - rest, (score < 0 ? score : 0.0) - rest}};
}

KERNEL label_tree_log_prob_of_leaves(const float *weights, const float *biases, int64_t num_nodes,
                                     const float *features, int64_t num_features,
                                     const int64_t *documents, const int64_t *leaves,
                                     int64_t num_pairs, double *found) {
    const inner_nodes nodes = {weights, biases, num_nodes, num_features};
    int64_t depth = 0;
    while ((INT64_C(1) << depth) - 1 < num_nodes) depth++;
    // Invariant: path[0 .. level] are the log-probabilities, for `document`, of coming to the nodes
    // above `leaf_before` on these levels.
    double path[64] = {0};
    int64_t document = -1, leaf_before = 0;
    for (int64_t i = 0; i < num_pairs; i++) {
        const int64_t leaf = leaves[i];
        int64_t level = 0;
        if (documents[i] == document) {
            // Bit depth - 1 of a leaf is the first decision: paths part at the highest bit in which
            // two leaves differ, and are one above it.
            level = depth;
            for (int64_t differing = leaf ^ leaf_before; differing; differing >>= 1) level--;
        }
        document = documents[i], leaf_before = leaf;
        for (; level < depth; level++) {
            const int64_t node = (INT64_C(1) << level) - 1 + (leaf >> (depth - level));
            const decision logs = decide(&nodes, node, features + document * num_features);
            path[level + 1] = path[level] + logs.side[(leaf >> (depth - level - 1)) & 1];
        }
        found[i] = path[depth]; // log p_n, the sum over the path (Eq. 7)
    }
    return 0;
}

// Write the log-probability of coming to each node, then leaf; those of the roots are 0 already.
KERNEL label_tree_log_reach(const float *weights, const float *biases, int64_t num_nodes,
                            const float *features, int64_t num_features, int64_t num_documents,
                            double *reach) {
    const inner_nodes nodes = {weights, biases, num_nodes, num_features};
    for (int64_t document = 0; document < num_documents; document++) {
        for (int64_t node = 0; node < num_nodes; node++) { // a node comes before its children
            const decision logs = decide(&nodes, node, features + document * num_features);
            for (int side = 0; side < 2; side++)
                reach[2 * node + 1 + side] = reach[node] + logs.side[side];
        }
        reach += 2 * num_nodes + 1;
    }
    return 0;
}

// A node, and the log-probability of coming to it: no leaf below it can have more.
typedef struct {
    double bound;
    int64_t node;
} reached;

typedef struct {
    float score;
    int64_t label;
} candidate;

// What the search for one document after another needs.
typedef struct {
    reached *heap; // a binary heap, the largest bound first
    candidate *found;
    int64_t heap_capacity, found_capacity;
} search;

// Put the last of so many entries in place of the first, and restore the heap.
static void remove_first(reached *heap, int64_t size) {
    const reached last = heap[size - 1];
    int64_t place = 0, child = 1;
    while (child < size - 1) {
        if (child + 1 < size - 1 && heap[child + 1].bound > heap[child].bound) child++;
        if (heap[child].bound <= last.bound) break;
        heap[place] = heap[child];
        place = child, child = 2 * child + 1;
    }
    heap[place] = last;
}

// Add an entry to a heap of this size.
static void add(reached *heap, int64_t size, reached entry) {
    int64_t place = size;
    while (place && heap[(place - 1) / 2].bound < entry.bound) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = entry;
}

// Find the m most probable leaves with labels, and all that equal the last one in float32; return
// how many there are, or OUT_OF_MEMORY.
static int64_t find(search *state, const inner_nodes *nodes, const int64_t *label_of_leaf,
                    const float *features, int64_t m) {
    int64_t size = 0, num_found = 0;
    if (!reserve(&state->heap, &state->heap_capacity, 256, sizeof(reached))) return OUT_OF_MEMORY;
    state->heap[size++] = (reached){0.0, 0};
    // Leaves come out in falling order of their scores; float32 rounding keeps that order.
    while (size &&
           (num_found < m || (float)state->heap[0].bound >= state->found[m - 1].score)) {
        const reached best = state->heap[0];
        remove_first(state->heap, size--);
        if (best.node >= nodes->num_nodes) { // a leaf: what is left has a bound of at most this one
            if (!reserve(&state->found, &state->found_capacity, num_found + 1, sizeof(candidate)))
                return OUT_OF_MEMORY;
            const int64_t label = label_of_leaf[best.node - nodes->num_nodes];
            state->found[num_found++] = (candidate){(float)best.bound, label};
            continue;
        }
        if (!reserve(&state->heap, &state->heap_capacity, size + 2, sizeof(reached)))
            return OUT_OF_MEMORY;
        const decision logs = decide(nodes, best.node, features);
        for (int side = 0; side < 2; side++) {
            const reached child = {best.bound + logs.side[side], 2 * best.node + 1 + side};
            const bool has_labels =
                child.node < nodes->num_nodes || label_of_leaf[child.node - nodes->num_nodes] >= 0;
            if (has_labels && (float)child.bound > -INFINITY) add(state->heap, size++, child);
        }
    }
    return num_found;
}

static int by_label(const void *first, const void *second) {
    const int64_t one = ((const candidate *)first)->label;
    const int64_t other = ((const candidate *)second)->label;
    return (one > other) - (one < other);
}

// Order labels of equal scores, which came in the order of their bounds in float64.
static void order_ties(candidate *found, int64_t num_found) {
    for (int64_t start = 0, stop; start < num_found; start = stop) {
        stop = start + 1;
        while (stop < num_found && found[stop].score == found[start].score) stop++;
        if (stop - start > 1) qsort(found + start, stop - start, sizeof(candidate), by_label);
    }
}

// Write the best m labels of each document and their scores; where there are fewer, the rest of a
// row stays as it is.
KERNEL label_tree_best_leaves(const float *weights, const float *biases, int64_t num_nodes,
                              const int64_t *label_of_leaf, const float *features,
                              int64_t num_features, int64_t num_documents, int64_t m,
                              int64_t *labels, float *scores) {
    const inner_nodes nodes = {weights, biases, num_nodes, num_features};
    search state = {0};
    int64_t status = 0;
    for (int64_t row = 0; row < num_documents; row++) {
        const int64_t num_found =
            find(&state, &nodes, label_of_leaf, features + row * num_features, m);
        if (num_found == OUT_OF_MEMORY) {
            status = OUT_OF_MEMORY;
            break;
        }
        order_ties(state.found, num_found);
        for (int64_t i = 0; i < num_found && i < m; i++) {
            labels[row * m + i] = state.found[i].label;
            scores[row * m + i] = state.found[i].score;
        }
    }
    free(state.heap), free(state.found);
    return status;
}
