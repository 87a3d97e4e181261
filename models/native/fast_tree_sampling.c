// Draws from a label tree, with log p_n of what was drawn.
//
// Many walks go down together, level by level, so that a level's logistic functions are vector
// instructions and its look-ups don't wait for each other. With s the score of the decision at a
// node, a step has the probability 1 / (1 + e^-|s|) on the likely side, and e^-|s| times that on
// the other. So log p_n is minus the sum of |s| over the unlikely steps, less the logarithm of the
// product of all 1 + e^-|s|: one logarithm a walk.
#include <math.h>

#include "exponential.h"
#include "kernels.h"

enum { TOGETHER = 256 }; // walks

// Return w·x + b.
static double score_of(const float *features, const float *weights, int64_t num_features,
                       float bias) {
    double total = 0;
    for (int64_t i = 0; i < num_features; i++) total += (double)features[i] * (double)weights[i];
    return total + bias;
}

// State of walks that go together.
typedef struct {
    double scores[TOGETHER], widths[TOGETHER], products[TOGETHER], unlikely[TOGETHER];
} walks;

// Take one step of each walk, by inversion.
static void step(walks *state, int64_t num, double *restrict rests, int64_t *restrict nodes) {
    for (int64_t i = 0; i < num; i++) {
        const double score = state->scores[i], size = fabs(score), power = exp_of_minus(size);
        const double likely = state->widths[i] / (1.0 + power), less = power * likely;
        const double right = score >= 0 ? likely : less;
        // At an infinite score, whatever rounding left of `rests`.
        const bool goes_right = (rests[i] < right) | (score == INFINITY);
        const bool is_likely = goes_right == (score >= 0);
        rests[i] -= goes_right ? 0.0 : right;
        state->widths[i] = is_likely ? likely : less;
        state->unlikely[i] += is_likely ? 0.0 : size;
        state->products[i] *= 1.0 + power;
        nodes[i] = 2 * nodes[i] + (goes_right ? 2 : 1);
    }
}

KERNEL tree_draw_leaves(const float *weights, const float *biases, int64_t num_nodes,
                        const float *features, int64_t num_features, const int64_t *rows,
                        int64_t num_draws, double *uniform, int64_t *leaves, float *log_probs) {
    walks state;
    for (int64_t first = 0; first < num_draws; first += TOGETHER) {
        const int64_t num = num_draws - first < TOGETHER ? num_draws - first : TOGETHER;
        int64_t *nodes = leaves + first;
        for (int64_t i = 0; i < num; i++) {
            nodes[i] = 0;
            state.widths[i] = state.products[i] = 1, state.unlikely[i] = 0;
        }
        while (nodes[0] < num_nodes) {
            for (int64_t i = 0; i < num; i++)
                state.scores[i] = score_of(features + rows[first + i] * num_features,
                                           weights + nodes[i] * num_features, num_features,
                                           biases[nodes[i]]);
            step(&state, num, uniform + first, nodes);
        }
        for (int64_t i = 0; i < num; i++) {
            nodes[i] -= num_nodes;
            log_probs[first + i] = (float)(-state.unlikely[i] - log(state.products[i]));
        }
    }
    return 0;
}

// Add the step that each walk has taken: a sign is 1 where it went right, or else -1.
static void add_step(walks *state, const double *restrict signs) {
    for (int64_t i = 0; i < TOGETHER; i++) {
        const double size = fabs(state->scores[i]);
        state->products[i] *= 1.0 + exp_of_minus(size);
        state->unlikely[i] += state->scores[i] * signs[i] < 0 ? size : 0.0;
    }
}

// Write log p_n of one leaf of each document.
KERNEL tree_quick_log_prob(const float *weights, const float *biases, int64_t num_nodes,
                           const float *features, int64_t num_features, const int64_t *leaves,
                           int64_t num_leaves, float *log_probs) {
    walks state;
    memset(&state, 0, sizeof(state)); // the last walks of all are read though they don't go
    double signs[TOGETHER] = {0};
    int64_t nodes[TOGETHER];
    for (int64_t first = 0; first < num_leaves; first += TOGETHER) {
        const int64_t num = num_leaves - first < TOGETHER ? num_leaves - first : TOGETHER;
        for (int64_t i = 0; i < num; i++) nodes[i] = leaves[first + i] + num_nodes;
        for (int64_t i = 0; i < TOGETHER; i++) state.products[i] = 1, state.unlikely[i] = 0;
        while (nodes[0] > 0) {
            for (int64_t i = 0; i < num; i++) {
                signs[i] = nodes[i] % 2 ? -1 : 1;
                nodes[i] = (nodes[i] - 1) / 2;
                state.scores[i] = score_of(features + (first + i) * num_features,
                                           weights + nodes[i] * num_features, num_features,
                                           biases[nodes[i]]);
            }
            add_step(&state, signs);
        }
        for (int64_t i = 0; i < num; i++)
            log_probs[first + i] = (float)(-state.unlikely[i] - log(state.products[i]));
    }
    return 0;
}
