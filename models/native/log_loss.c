// The log loss of a blend, its gradient and its curvature, summed over pairs.
#include <math.h>

#include "kernels.h"

// Pairs of documents and labels: `_loss_and_gradient` in blends.py says what they are.
typedef struct {
    const double *evidence;
    const int64_t *knots;
    const double *shares, *weights, *at_knots;
    int64_t num_pairs, num_knots, num_terms;
} blended;

static int64_t next_knot(const blended *b, int64_t knot) {
    return knot + 1 < b->num_knots ? knot + 1 : knot;
}

// Return the log-odds of a pair, whose coefficients lie between those of two knots.
static double log_odds(const blended *b, int64_t pair) {
    const double *evidence = b->evidence + pair * b->num_terms;
    const double *below = b->at_knots + b->knots[pair] * b->num_terms;
    const double *above = b->at_knots + next_knot(b, b->knots[pair]) * b->num_terms;
    const double share = b->shares[pair];
    double score = 0;
    for (int64_t term = 0; term < b->num_terms; term++)
        score += ((1 - share) * below[term] + share * above[term]) * evidence[term];
    return score;
}

// Add up the losses of the pairs and their gradient.
static void add_up(const blended *b, const bool *is_true, double *gradient, double *total) {
    const int64_t num_terms = b->num_terms;
    for (int64_t pair = 0; pair < b->num_pairs; pair++) {
        const double score = log_odds(b, pair), share = b->shares[pair];
        // p = sigmoid(s); the loss is -ln p of a true pair, -ln (1 - p) of another
        const double small = exp(-fabs(score));
        const double p = score >= 0 ? 1 / (1 + small) : small / (1 + small);
        const double against = is_true[pair] ? -score : score;
        *total += b->weights[pair] * ((against > 0 ? against : 0) + log1p(small));
        const double residual = b->weights[pair] * (p - is_true[pair]);
        double *own = gradient + b->knots[pair] * num_terms;
        double *above = gradient + next_knot(b, b->knots[pair]) * num_terms;
        for (int64_t term = 0; term < num_terms; term++) {
            const double part = residual * b->evidence[pair * num_terms + term];
            own[term] += (1 - share) * part;
            above[term] += share * part;
        }
    }
}

// Add p (1 - p) x x^T of each pair: of a knot with itself, and with the next one.
static void add_curvature(const blended *b, double *own, double *next_one) {
    const int64_t num_terms = b->num_terms;
    for (int64_t pair = 0; pair < b->num_pairs; pair++) {
        const int64_t knot = b->knots[pair], above = next_knot(b, knot);
        const double *evidence = b->evidence + pair * num_terms;
        const double share = b->shares[pair], rest = 1 - share;
        const double small = exp(-fabs(log_odds(b, pair)));
        const double curve = b->weights[pair] * small / ((1 + small) * (1 + small));
        for (int64_t term = 0; term < num_terms; term++) {
            const double part = curve * evidence[term];
            const int64_t at_knot = (knot * num_terms + term) * num_terms;
            const int64_t at_next = (above * num_terms + term) * num_terms;
            for (int64_t other = 0; other < num_terms; other++) {
                const double entry = part * evidence[other];
                own[at_knot + other] += rest * rest * entry;
                own[at_next + other] += share * share * entry;
                next_one[at_knot + other] += rest * share * entry;
            }
        }
    }
}

KERNEL log_loss_add_up(const double *evidence, const int64_t *knots, const double *shares,
                       const double *weights, const double *at_knots, int64_t num_pairs,
                       int64_t num_knots, int64_t num_terms, const bool *is_true, double *gradient,
                       double *total) {
    const blended b = {evidence, knots, shares, weights, at_knots, num_pairs, num_knots, num_terms};
    add_up(&b, is_true, gradient, total);
    return 0;
}

KERNEL log_loss_add_curvature(const double *evidence, const int64_t *knots, const double *shares,
                              const double *weights, const double *at_knots, int64_t num_pairs,
                              int64_t num_knots, int64_t num_terms, double *own, double *next_one) {
    const blended b = {evidence, knots, shares, weights, at_knots, num_pairs, num_knots, num_terms};
    add_curvature(&b, own, next_one);
    return 0;
}
