// Fit of a label tree's nodes, one node after another (Bamler & Mandt 2020, section 3).
//
// The best split of a node's labels for given w, b (Eq. 9) and the best w, b for that split (Eq. 8)
// are found in turn. A node's rows lie in tiles of 64 that are read feature by feature, so that
// scores, losses and gradients are computed for many rows in one instruction.
#include <math.h>

#include "tree_newton.h"

#define FEW_TILES 128 // that a larger node is first split by
// Nats a pair left to gain: before labels are split again, and at the end.
#define LOOSE 1e-2
#define TIGHT 1e-6
#define STALE 0.1               // a step that leaves more of the gain asks for a new Hessian
#define LEAST_STEP (1.0 / 1024) // of a full Newton step; no shorter one is tried
#define MAX_STEPS 200 // an ascent; where float32 can't tell whether there is more to gain
// Shares of the labels of a node that change sides.
#define FEW (1.0 / 128)
#define HARDLY_ANY (1.0 / 1024)
#define MAX_SWEEPS 60 // of rotations; ten are enough for large matrices

// Some nodes of a level and what comes to them: NodeArrays of `cpu_kernel.py`.
typedef struct {
    const float *features;
    const int64_t *row_starts, *row_documents, *pair_starts, *pair_labels;
    const float *pair_weights;
    const int64_t *label_starts;
    const double *label_sums;
} node_arrays;

// What the fit of one node after another needs; one block of memory for each type.
typedef struct {
    tree_tiles tiles;
    double *factor;                                 // (feature, feature)
    double *gradient, *there, *direction, *reached; // (feature,)
    double *gram, *vectors, *mean;                  // of the first split
    double *gains, *unordered;                      // (label,)
    bool *better;                                   // (label,)
    double *doubles;
    float *floats;
} scratch;

static bool allocate(scratch *s, int64_t num_tiles, int64_t num_features, int64_t num_labels) {
    const int64_t f = num_features, rows = num_tiles * TILE;
    s->doubles = calloc(3 * f * f + (5 + TILE) * f + 2 * num_labels, sizeof(double));
    s->floats = calloc(rows * (f + 4), sizeof(float));
    s->better = calloc(num_labels + 1, sizeof(bool));
    if (!s->doubles || !s->floats || !s->better) return false;
    double *next = s->doubles;
    s->factor = next, s->gram = next += f * f, s->vectors = next += f * f;
    s->gradient = next += f * f, s->there = next += f, s->direction = next += f;
    s->reached = next += f, s->mean = next += f;
    s->tiles.sums = next += f, s->gains = next += TILE * f, s->unordered = next + num_labels;
    s->tiles.num_features = f, s->tiles.features = s->floats;
    s->tiles.totals = s->floats + rows * f, s->tiles.right = s->tiles.totals + rows;
    s->tiles.curvatures = s->tiles.right + rows, s->tiles.tried = s->tiles.curvatures + rows;
    return true;
}

static void release(scratch *s) {
    free(s->doubles), free(s->floats), free(s->better);
}

// Lay the node's rows out in tiles.
static void pack(const node_arrays *nodes, int64_t node, tree_tiles *tiles) {
    const int64_t num_features = tiles->num_features, end = nodes->row_starts[node + 1];
    int64_t row = nodes->row_starts[node];
    for (int64_t lane = 0; lane < TILE; lane++)
        // Row after row goes to the next tile, not to the next lane.
        for (int64_t tile = 0; tile < tiles->num_tiles; tile++, row++) {
            float *to = tiles->features + tile * num_features * TILE + lane;
            float total = 0;
            if (row >= end) { // lanes that no row fills: weight 0, and features that are finite
                for (int64_t feature = 0; feature < num_features; feature++) to[feature * TILE] = 0;
            } else {
                const float *from = nodes->features + nodes->row_documents[row] * num_features;
                for (int64_t feature = 0; feature < num_features; feature++)
                    to[feature * TILE] = from[feature];
                for (int64_t i = nodes->pair_starts[row]; i < nodes->pair_starts[row + 1]; i++)
                    total += nodes->pair_weights[i];
            }
            tiles->totals[tile * TILE + lane] = total;
        }
}

// Sum the weights of each row's pairs whose labels are on the right, for the tiles in use out of so
// many of the whole node.
static void set_right(const node_arrays *nodes, int64_t node, int64_t num_tiles,
                      const bool *goes_right, const tree_tiles *tiles) {
    const int64_t first = nodes->row_starts[node], end = nodes->row_starts[node + 1];
    const int64_t first_label = nodes->label_starts[node];
    for (int64_t tile = 0; tile < tiles->num_tiles; tile++)
        for (int64_t lane = 0; lane < TILE; lane++) {
            const int64_t row = first + lane * num_tiles + tile; // where `pack` put it
            float total = 0;
            if (row < end)
                for (int64_t i = nodes->pair_starts[row]; i < nodes->pair_starts[row + 1]; i++)
                    if (goes_right[nodes->pair_labels[i] - first_label])
                        total += nodes->pair_weights[i];
            tiles->right[tile * TILE + lane] = total;
        }
}

static void exchange(double *values, int64_t first, int64_t second) {
    const double value = values[first];
    values[first] = values[second], values[second] = value;
}

// Return the value that has this place among all in order (Hoare's selection); the order changes.
static double in_order(double *values, int64_t num, int64_t place) {
    // Invariant: the value of this place is among values[first .. last]; all before are at most,
    // all behind at least those.
    int64_t first = 0, last = num - 1;
    while (first < last) {
        const double pivot = values[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i <= j) exchange(values, i++, j--);
        }
        if (place <= j)
            last = j;
        else if (place >= i)
            first = i;
        else
            break;
    }
    return values[place];
}

// Put the labels of lowest gains on the left, as far as fits; equal ones go by the labels' order.
// Return how many labels change sides.
static int64_t cut(const scratch *s, int64_t num_labels, int64_t num_left, int64_t half,
                   bool *goes_right) {
    // No side has more labels than leaves: labels - half <= num_left <= half.
    if (num_left > half) num_left = half;
    if (num_left < num_labels - half) num_left = num_labels - half;
    double least_right = INFINITY;
    if (num_left < num_labels) {
        memcpy(s->unordered, s->gains, num_labels * sizeof(double));
        least_right = in_order(s->unordered, num_labels, num_left);
    }
    int64_t num_equal = num_left, num_changed = 0; // of those on the left
    for (int64_t label = 0; label < num_labels; label++) num_equal -= s->gains[label] < least_right;
    for (int64_t label = 0; label < num_labels; label++) {
        const bool is_last_left = s->gains[label] == least_right && num_equal-- > 0;
        const bool is_right = !is_last_left && s->gains[label] >= least_right;
        num_changed += goes_right[label] != is_right;
        goes_right[label] = is_right;
    }
    return num_changed;
}

// Turn two vectors, whose elements are so far apart, into c a - s b and s a + c b.
static void rotate(double *a, double *b, int64_t size, int64_t stride, double c, double s) {
    for (int64_t i = 0; i < size * stride; i += stride) {
        const double x = a[i], y = b[i];
        a[i] = c * x - s * y, b[i] = s * x + c * y;
    }
}

// Return whether what is off the diagonal is but rounding.
static bool is_diagonal(const double *matrix, int64_t size) {
    double diagonal = 0, others = 0;
    for (int64_t i = 0; i < size; i++) {
        diagonal += matrix[i * size + i] * matrix[i * size + i];
        for (int64_t j = 0; j < i; j++) others += matrix[i * size + j] * matrix[i * size + j];
    }
    return others <= 1e-30 * diagonal;
}

// Return the eigenvector of the largest eigenvalue of a symmetric matrix, by Jacobi's rotations:
// one of the rows of `vectors`. The matrix is overwritten.
static const double *dominant(double *matrix, double *vectors, int64_t size) {
    memset(vectors, 0, size * size * sizeof(double));
    for (int64_t i = 0; i < size; i++) vectors[i * size + i] = 1;
    for (int sweep = 0; sweep < MAX_SWEEPS && !is_diagonal(matrix, size); sweep++)
        for (int64_t q = 1; q < size; q++)
            for (int64_t p = 0; p < q; p++) {
                const double off = matrix[p * size + q];
                if (off == 0) continue;
                // The tangent t of the smaller angle that makes entry (p, q) zero.
                const double cotangent =
                    (matrix[q * size + q] - matrix[p * size + p]) / (2 * off);
                const double size_of_t = 1 / (fabs(cotangent) + sqrt(cotangent * cotangent + 1));
                const double t = cotangent < 0 ? -size_of_t : size_of_t;
                const double c = 1 / sqrt(t * t + 1);
                rotate(matrix + p, matrix + q, size, size, c, t * c);
                rotate(matrix + p * size, matrix + q * size, size, 1, c, t * c);
                rotate(vectors + p * size, vectors + q * size, size, 1, c, t * c);
                matrix[p * size + q] = matrix[q * size + p] = 0;
            }
    int64_t best = 0;
    for (int64_t i = 1; i < size; i++)
        if (matrix[i * size + i] >= matrix[best * size + best]) best = i;
    return vectors + best * size;
}

// Add the outer product of a vector to a matrix.
static void add_outer(const double *restrict vector, int64_t size, double *restrict matrix) {
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++) matrix[i * size + j] += vector[i] * vector[j];
}

// Write the dominant direction of the labels' centred feature sums, and 0 for the 1 behind them.
static void find_direction(const scratch *s, const double *sums, int64_t num_labels) {
    const int64_t width = s->tiles.num_features, num_features = width - 1;
    memset(s->mean, 0, width * sizeof(double));
    for (int64_t label = 0; label < num_labels; label++)
        for (int64_t i = 0; i < num_features; i++) s->mean[i] += sums[label * width + i];
    for (int64_t i = 0; i < num_features; i++) s->mean[i] /= num_labels;
    // C is (label, feature). The eigenvector of C^T C, (feature, feature), of largest eigenvalue is
    // C^T u of that of C C^T, (label, label).
    const bool is_wide = num_labels < num_features;
    const int64_t side = is_wide ? num_labels : num_features;
    memset(s->gram, 0, side * side * sizeof(double));
    for (int64_t i = 0; i < (is_wide ? num_features : num_labels); i++) {
        for (int64_t j = 0; j < side; j++)
            s->reached[j] = is_wide ? sums[j * width + i] - s->mean[i]
                                    : sums[i * width + j] - s->mean[j];
        add_outer(s->reached, side, s->gram);
    }
    const double *found = dominant(s->gram, s->vectors, side);
    memset(s->direction, 0, width * sizeof(double));
    for (int64_t i = 0; i < num_features; i++)
        for (int64_t j = is_wide ? 0 : i; j < (is_wide ? num_labels : i + 1); j++)
            s->direction[i] += found[j] * (is_wide ? sums[j * width + i] - s->mean[i] : 1);
}

// Split in the middle along the dominant direction of the feature sums.
static void split_first(const scratch *s, const double *sums, int64_t num_labels, int64_t half,
                        bool *goes_right) {
    const int64_t num_features = s->tiles.num_features;
    find_direction(s, sums, num_labels);
    double least = 0, largest = 0;
    for (int64_t i = 0; i < num_features; i++) {
        least = fmin(least, s->direction[i]);
        largest = fmax(largest, s->direction[i]);
    }
    // A direction's sign is arbitrary: its largest entry decides.
    if (largest < -least)
        for (int64_t i = 0; i < num_features; i++) s->direction[i] = -s->direction[i];
    tree_gains(sums, s->direction, num_labels, num_features, s->gains);
    cut(s, num_labels, num_labels / 2, half, goes_right);
}

// Split as is best for the weights (Eq. 9); return the share of labels that change sides.
static double split_again(const scratch *s, const double *sums, const double *weights,
                          int64_t num_labels, int64_t half, bool *goes_right) {
    tree_gains(sums, weights, num_labels, s->tiles.num_features, s->gains);
    // Labels go right where Delta_y is above 0; those with 0 may go either way: nearest to the
    // middle.
    int64_t num_below = 0, num_not_above = 0;
    for (int64_t label = 0; label < num_labels; label++) {
        num_below += s->gains[label] < 0;
        num_not_above += s->gains[label] <= 0;
    }
    int64_t num_left = num_labels / 2 > num_below ? num_labels / 2 : num_below;
    if (num_left > num_not_above) num_left = num_not_above;
    return (double)cut(s, num_labels, num_left, half, goes_right) / (double)num_labels;
}

// Write the Newton direction, by a new Hessian if the one that is known leaves more than so much to
// gain; return about twice what the direction promises.
static double aim(const scratch *s, const tree_tiles *tiles, double strength, double most_gain,
                  bool *is_fresh) {
    for (;;) {
        const double gain = s->factor[0] > 0 ? tree_solve(s->factor, s->gradient,
                                                          tiles->num_features, s->direction)
                                             : INFINITY;
        if (*is_fresh || gain <= most_gain) return gain;
        tree_factorise(tiles, strength, s->factor);
        *is_fresh = true;
    }
}

// Move the weights to within a tolerance, in nats, of the maximum of Eq. 8 minus
// strength |w, b|^2; return Eq. 8 there. `factor` is that of an earlier Hessian, or zeros.
static double ascend(const scratch *s, tree_tiles tiles, double strength, double tolerance,
                     double *weights) {
    const int64_t num_features = tiles.num_features;
    const size_t size = num_features * sizeof(double);
    memcpy(s->reached, weights, size);
    double value = -INFINITY, step = 1, gain_before = s->factor[0] > 0 ? INFINITY : 0;
    bool is_fresh = false;
    // Invariant: value, gradient and curvatures are those of `weights`; `reached` is tried.
    for (int turn = 0; turn < MAX_STEPS; turn++) {
        const double found = tree_evaluate(&tiles, s->reached, strength, s->there);
        if (found >= value - ROUNDING * fabs(value)) { // no loss but by rounding: go there
            value = found, step = 1, is_fresh = false;
            memcpy(weights, s->reached, size);
            memcpy(s->gradient, s->there, size);
            float *const tried = tiles.tried;
            tiles.tried = tiles.curvatures, tiles.curvatures = tried;
        } else if (is_fresh) { // the same Hessian serves again, for a shorter step
            step /= 4;
        }
        const double gain = aim(s, &tiles, strength, STALE * gain_before, &is_fresh);
        if (gain <= 2 * tolerance || step <= LEAST_STEP) break;
        gain_before = gain;
        for (int64_t i = 0; i < num_features; i++)
            s->reached[i] = weights[i] + step * s->direction[i];
    }
    for (int64_t i = 0; i < num_features; i++) // Eq. 8 itself, the regulariser taken off again
        value += strength * weights[i] * weights[i];
    return value;
}

static double sum_of_totals(const tree_tiles *tiles) {
    double total = 0;
    for (int64_t i = 0; i < tiles->num_tiles * TILE; i++) total += tiles->totals[i];
    return total;
}

// Split and fit one node; return Eq. 8.
static double fit_node(scratch *s, const node_arrays *nodes, int64_t node, int64_t half,
                       double strength, int64_t most_rounds, double *weights, bool *goes_right) {
    const int64_t num_rows = nodes->row_starts[node + 1] - nodes->row_starts[node];
    const int64_t num_tiles = num_rows > TILE ? (num_rows + TILE - 1) / TILE : 1;
    const int64_t num_labels = nodes->label_starts[node + 1] - nodes->label_starts[node];
    const int64_t num_features = s->tiles.num_features;
    const double *sums = nodes->label_sums + nodes->label_starts[node] * num_features;
    tree_tiles used = s->tiles;
    used.num_tiles = num_tiles;
    pack(nodes, node, &used);
    split_first(s, sums, num_labels, half, goes_right);
    memcpy(s->better, goes_right, num_labels * sizeof(bool));
    memset(s->factor, 0, num_features * num_features * sizeof(double));
    // Two labels that fill a node have but one split.
    const bool is_forced = num_labels == 2 && half == 1;
    bool is_tight = is_forced, is_sampled = num_tiles > FEW_TILES && !is_forced;
    for (int64_t turn = 0;; turn++) {
        const bool is_last = turn == most_rounds;
        is_sampled = is_sampled && !is_last;
        // The first tiles hold rows spread evenly over all of the node (see `tree_tiles`).
        used.num_tiles = is_sampled ? FEW_TILES : num_tiles;
        const double share = (double)used.num_tiles / (double)num_tiles;
        set_right(nodes, node, num_tiles, goes_right, &used);
        const double tolerance =
            (is_tight || is_last ? TIGHT : LOOSE) * fmax(sum_of_totals(&used), 1e-30);
        // Eq. 8 for the split as it is; then the best split for these weights (Eq. 9).
        const double value = ascend(s, used, share * strength, tolerance, weights);
        const double changed =
            is_forced ? 0 : split_again(s, sums, weights, num_labels, half, s->better);
        if (is_last || (is_tight && changed <= HARDLY_ANY)) return value;
        int64_t num_right = 0;
        for (int64_t label = 0; label < num_labels; label++) num_right += s->better[label];
        const bool has_two_sides = num_right > 0 && num_right < num_labels;
        if (has_two_sides || !is_sampled)
            memcpy(goes_right, s->better, num_labels * sizeof(bool));
        if (is_sampled && (changed <= FEW || !has_two_sides)) {
            is_sampled = false, is_tight = true;
            // H over all rows is about H / share, and H = L L^T.
            for (int64_t i = 0; i < num_features * num_features; i++) s->factor[i] /= sqrt(share);
        } else if (!has_two_sides) {
            return 0;
        } else if (!is_sampled) {
            is_tight = changed <= (is_tight ? FEW : HARDLY_ANY);
        }
    }
}

static int64_t largest_step(const int64_t *starts, int64_t num) {
    int64_t largest = 1;
    for (int64_t i = 0; i < num; i++)
        if (starts[i + 1] - starts[i] > largest) largest = starts[i + 1] - starts[i];
    return largest;
}

// Split the labels of each node, with so many leaves below it, and fit its decision.
KERNEL tree_fit_nodes(const node_arrays *nodes, int64_t num_nodes, int64_t num_features,
                      int64_t capacity, double strength, int64_t most_rounds, double *weights,
                      bool *goes_right, double *log_likelihoods) {
    scratch s = {0};
    const int64_t num_tiles = (largest_step(nodes->row_starts, num_nodes) + TILE - 1) / TILE;
    const bool is_ready =
        allocate(&s, num_tiles, num_features, largest_step(nodes->label_starts, num_nodes));
    for (int64_t node = 0; is_ready && node < num_nodes; node++)
        log_likelihoods[node] =
            fit_node(&s, nodes, node, capacity / 2, strength, most_rounds,
                     weights + node * num_features, goes_right + nodes->label_starts[node]);
    release(&s);
    return is_ready ? 0 : OUT_OF_MEMORY;
}
