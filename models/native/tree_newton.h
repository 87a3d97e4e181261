// Rows of one node of a label tree that is fitted, and the parts of a Newton step on them.
#ifndef LONGTAIL_TREE_NEWTON_H
#define LONGTAIL_TREE_NEWTON_H

#include "kernels.h"

#define TILE 64       // rows; a constant, so that loops over them become vector instructions
#define ROUNDING 1e-6 // relative error of a value that is summed from float32 rows

// Row r is in tile r % tiles, so the first tiles are a sample of the rows.
typedef struct {
    int64_t num_tiles, num_features;
    float *features;   // x of each row: (tile, feature, lane); zeros where there is none
    float *totals;     // its weight: (tile, lane), as all below
    float *right;      // the part of its weight whose labels are on the right
    float *curvatures; // weight of its outer product in the Hessian, where the ascent is
    float *tried;      // the same where it is tried to go
    double *sums;      // scratch: (feature, lane)
} tree_tiles;

double tree_evaluate(const tree_tiles *tiles, const double *weights, double strength,
                     double *gradient);
void tree_factorise(const tree_tiles *tiles, double strength, double *factor);
double tree_solve(const double *factor, const double *gradient, int64_t num_features,
                  double *direction);
void tree_gains(const double *sums, const double *weights, int64_t num_labels,
                int64_t num_features, double *gains);

#endif
