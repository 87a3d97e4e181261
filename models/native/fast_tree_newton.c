// One Newton step of the classifier of a label tree's node.
#include <math.h>

#include "exponential.h"
#include "tree_newton.h"

// Write w·x + b of a tile's rows, four features at a time.
static void score(const float *restrict features, const double *weights, int64_t num_features,
                  float *restrict scores) {
    for (int lane = 0; lane < TILE; lane++) scores[lane] = 0;
    const int64_t whole = num_features / 4 * 4;
    for (int64_t first = 0; first < whole; first += 4) {
        const float a = (float)weights[first], b = (float)weights[first + 1];
        const float c = (float)weights[first + 2], d = (float)weights[first + 3];
        const float *x = features + first * TILE;
        for (int lane = 0; lane < TILE; lane++)
            scores[lane] += (a * x[lane] + b * x[TILE + lane]) +
                            (c * x[2 * TILE + lane] + d * x[3 * TILE + lane]);
    }
    for (int64_t feature = whole; feature < num_features; feature++) {
        const float weight = (float)weights[feature];
        for (int lane = 0; lane < TILE; lane++)
            scores[lane] += weight * features[feature * TILE + lane];
    }
}

// Return the log likelihood of a tile's rows, and write its derivatives to the scores.
//
// Polynomials, not library functions, so that the loop becomes vector instructions; right to a few
// millionths.
static double logistic(const float *restrict scores, const float *restrict totals,
                       const float *restrict right, float *restrict residuals,
                       float *restrict curvatures) {
    double value = 0;
    for (int lane = 0; lane < TILE; lane++) {
        const float s = scores[lane], total = totals[lane];
        const float power = exp_of_minus_float32(fabsf(s)); // e^-|s|
        // log(1 + e^-|s|) as 2 artanh(e^-|s| / (2 + e^-|s|))
        const float z = power / (2 + power), y = z * z;
        const float series = 1.0f / 7 + y * (1.0f / 9 + y * (1.0f / 11 + y * (1.0f / 13)));
        const float rest = 2 * z * (1 + y * (1.0f / 3 + y * (1.0f / 5 + y * series)));
        const float larger = 1 / (1 + power);                   // sigma(|s|)
        const float probability = (s >= 0 ? 1 : power) * larger; // sigma(s)
        // log(1 + e^s) = max(s, 0) + log(1 + e^-|s|), which can't overflow
        value += right[lane] * s - total * ((s > 0 ? s : 0) + rest);
        residuals[lane] = right[lane] - total * probability;   // the derivative by s
        curvatures[lane] = total * power * larger * larger;    // minus the second: sigma(s) sigma(-s)
    }
    return value;
}

// Add a tile's part of the gradient, by lane.
static void add_gradient(const float *restrict features, const float *restrict residuals,
                         int64_t num_features, double *restrict sums) {
    for (int64_t feature = 0; feature < num_features; feature++)
        for (int lane = 0; lane < TILE; lane++)
            sums[feature * TILE + lane] += residuals[lane] * features[feature * TILE + lane];
}

// Return the objective; write its gradient, and the weights of its Hessian to `tried`.
double tree_evaluate(const tree_tiles *tiles, const double *weights, double strength,
                     double *gradient) {
    // Eq. 8 - lambda |w, b|^2: sum over rows of right s - total log(1 + e^s), s = w·x + b.
    const int64_t num_features = tiles->num_features;
    float scores[TILE], residuals[TILE];
    double value = 0;
    memset(tiles->sums, 0, num_features * TILE * sizeof(double));
    for (int64_t tile = 0; tile < tiles->num_tiles; tile++) {
        const float *features = tiles->features + tile * num_features * TILE;
        const int64_t rows = tile * TILE;
        score(features, weights, num_features, scores);
        value += logistic(scores, tiles->totals + rows, tiles->right + rows, residuals,
                          tiles->tried + rows);
        add_gradient(features, residuals, num_features, tiles->sums);
    }
    for (int64_t feature = 0; feature < num_features; feature++) {
        double total = 0;
        for (int lane = 0; lane < TILE; lane++) total += tiles->sums[feature * TILE + lane];
        gradient[feature] = total - 2 * strength * weights[feature]; // sum residual x - 2 lambda w
        value -= strength * weights[feature] * weights[feature];
    }
    return value;
}

// Add the outer products of a tile's rows, each by its curvature, to the lower triangle.
static void add_products(const float *restrict features, const float *restrict curvatures,
                         int64_t num_features, double *restrict hessian) {
    float weighted[TILE];
    for (int64_t i = 0; i < num_features; i++) {
        for (int lane = 0; lane < TILE; lane++)
            weighted[lane] = curvatures[lane] * features[i * TILE + lane];
        for (int64_t j = 0; j <= i; j++) {
            float total = 0;
            for (int lane = 0; lane < TILE; lane++)
                total += weighted[lane] * features[j * TILE + lane];
            hessian[i * num_features + j] += total;
        }
    }
}

// Replace the lower triangle of a positive definite matrix by its Cholesky factor.
static void cholesky(double *matrix, int64_t size) {
    for (int64_t i = 0; i < size; i++) {
        double *row = matrix + i * size;
        for (int64_t j = 0; j <= i; j++) {
            // Invariant: columns before j of row i, and all rows before i, are the factor's.
            const double *other = matrix + j * size;
            double rest = row[j];
            for (int64_t k = 0; k < j; k++) rest -= row[k] * other[k];
            row[j] = i == j ? sqrt(rest) : rest / other[j];
        }
    }
}

// Write the Cholesky factor of the Hessian, its sign turned, into the lower triangle.
void tree_factorise(const tree_tiles *tiles, double strength, double *factor) {
    // H = X^T diag(curvatures) X + 2 lambda I, minus the Hessian of the objective.
    const int64_t size = tiles->num_features;
    memset(factor, 0, size * size * sizeof(double));
    for (int64_t tile = 0; tile < tiles->num_tiles; tile++)
        add_products(tiles->features + tile * size * TILE, tiles->curvatures + tile * TILE, size,
                     factor);
    // Rounding must not make it indefinite: this only makes steps a little shorter.
    for (int64_t i = 0; i < size; i++)
        factor[i * size + i] = factor[i * size + i] * (1 + ROUNDING) + 2 * strength;
    cholesky(factor, size);
}

// Write the Newton direction H^-1 g; return g·H^-1 g, about twice what it promises to gain.
//
// With H = L L^T: L y = g from above, then L^T d = y from below.
double tree_solve(const double *factor, const double *gradient, int64_t num_features,
                  double *direction) {
    for (int64_t i = 0; i < num_features; i++) {
        double rest = gradient[i];
        for (int64_t j = 0; j < i; j++) rest -= factor[i * num_features + j] * direction[j];
        direction[i] = rest / factor[i * num_features + i];
    }
    double gain = 0;
    for (int64_t i = num_features - 1; i >= 0; i--) {
        double rest = direction[i];
        for (int64_t j = i + 1; j < num_features; j++)
            rest -= factor[j * num_features + i] * direction[j];
        direction[i] = rest / factor[i * num_features + i];
        gain += gradient[i] * direction[i];
    }
    return gain;
}

// Write the inner product of each label's sums with the weights: Delta_y of Eq. 9.
void tree_gains(const double *sums, const double *weights, int64_t num_labels,
                int64_t num_features, double *gains) {
    for (int64_t label = 0; label < num_labels; label++) {
        double total = 0;
        for (int64_t i = 0; i < num_features; i++)
            total += sums[label * num_features + i] * weights[i];
        gains[label] = total;
    }
}
