// The walk through boosted decision trees.
#include "kernels.h"

// A node: rows whose feature is above the threshold go the second way. Both ways from a leaf lead
// back to it, so that all rows take as many steps and no processor has to guess a branch.
typedef struct {
    float threshold;
    int32_t feature, ways[2];
} node;

typedef struct {
    const node *nodes;
    const double *values;
    const int64_t *roots, *depths;
    int64_t num_trees;
} trees;

enum { AT_ONCE = 8 };

static inline int32_t below(const node *nodes, int32_t at, const float *row) {
    return nodes[at].ways[row[nodes[at].feature] > nodes[at].threshold];
}

// Add the values of the leaves of one tree that so many rows get to.
//
// They walk at the same time: a step has to wait for the one before, but not for another row's.
static inline void walk(const node *nodes, const double *values, int32_t root, int64_t depth,
                        const float *rows, int64_t num_rows, int64_t width, double *totals) {
    int32_t at[AT_ONCE];
    for (int64_t row = 0; row < num_rows; row++) at[row] = root;
    for (int64_t step = 0; step < depth; step++)
        for (int64_t row = 0; row < num_rows; row++)
            at[row] = below(nodes, at[row], rows + row * width);
    for (int64_t row = 0; row < num_rows; row++) totals[row] += values[at[row]];
}

// Add the value of each tree's leaf to the total of each row, one tree after the other.
KERNEL boosted_trees_add(const trees *trees, const float *rows, int64_t num_rows, int64_t width,
                         double *totals) {
    const node *nodes = trees->nodes;
    const double *values = trees->values;
    for (int64_t tree = 0; tree < trees->num_trees; tree++) {
        const int32_t root = (int32_t)trees->roots[tree];
        const int64_t depth = trees->depths[tree];
        int64_t at = 0;
        for (; at + AT_ONCE <= num_rows; at += AT_ONCE)
            walk(nodes, values, root, depth, rows + at * width, AT_ONCE, width, totals + at);
        walk(nodes, values, root, depth, rows + at * width, num_rows - at, width, totals + at);
    }
    return 0;
}
