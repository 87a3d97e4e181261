// Linear classifiers of labels by dual coordinate descent on working sets of documents.
//
// All that is random follows from seed and label: labels may be fitted on any thread in any order.
#include <math.h>

#include "kernels.h"
#include "sorting.h"

enum { ABSENT, POSITIVE, HARD, SAMPLED }; // what a document is to the label
enum { MAX_PASSES = 100 };                // the ranking no longer changes long before convergence

static const double TOLERANCE = 0.1;        // on the spread of projected gradients, as in liblinear
static const double ROUGH_TOLERANCE = 0.5;  // of classifiers that only search for hard negatives
static const float CENTROID_BELOW = 0.02f;  // smaller weights play no part in the first search
static const float SEARCH_BELOW = 0.1f;     // smaller weights play no part in later ones
static const uint64_t GOLDEN = 0x9E3779B97F4A7C15;

// The arrays of a sparse matrix by rows, and the squared length of each row.
typedef struct {
    const int64_t *indptr;
    const int32_t *indices;
    const float *data, *squares;
    int64_t num_rows, num_columns;
} sparse_rows;

// What to fit: `Plan` in coordinate_descent.py.
typedef struct {
    double cost;
    int64_t is_hinge;
    double prune_below;
    int64_t rounds, hard_negatives, hard_negatives_per_positive, sampled_negatives;
    int64_t postings, postings_per_positive, seed;
} fit_plan;

typedef struct {
    const sparse_rows *by_document, *by_feature, *by_label;
    const fit_plan *plan;
} problem;

// A document that a search has reached.
typedef struct {
    int32_t document;
    float score;
} reached_document;

// The memory of one call. The first four arrays are all zero between labels.
typedef struct {
    double *weights;     // w, and b as the last
    uint8_t *is_touched; // features that are in `touched`
    float *scores;       // of the documents in a search
    uint8_t *kind;       // what each document is to the label

    int32_t *touched; // features that may have a weight, once each
    int64_t num_touched;
    keyed *ranked, *spare; // features in order

    // The working set: documents, those of the label first, and for each its dual variable, whether
    // that was ever other than 0, what is added to its curvature, and its upper bound.
    int32_t *rows;
    double *alpha;
    uint8_t *is_updated;
    double *diagonal, *most;
    int64_t *order;
    int64_t size, num_positive;

    reached_document *reached;
    float *values;
    int64_t reached_capacity, values_capacity;
    int32_t *found; // hard documents
    uint64_t random;
} memory;

static void free_memory(memory *m) {
    void *arrays[] = {m->weights, m->is_touched, m->scores,  m->kind,   m->touched, m->ranked,
                      m->spare,   m->rows,       m->alpha,   m->is_updated, m->diagonal,
                      m->most,    m->order,      m->reached, m->values, m->found};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++) free(arrays[i]);
}

// Allocate all but what a search reaches; false without memory. To be freed in either case.
static bool allocate(memory *m, int64_t num_documents, int64_t num_features, int64_t capacity) {
    const size_t features = num_features + 1, documents = num_documents + 1, set = capacity + 1;
    *m = (memory){
        .weights = calloc(features, sizeof(double)),
        .is_touched = calloc(features, 1),
        .scores = calloc(documents, sizeof(float)),
        .kind = calloc(documents, 1),
        .touched = malloc(features * sizeof(int32_t)),
        .ranked = malloc(features * sizeof(keyed)),
        .spare = malloc(features * sizeof(keyed)),
        .rows = malloc(set * sizeof(int32_t)),
        .alpha = malloc(set * sizeof(double)),
        .is_updated = malloc(set),
        .diagonal = malloc(set * sizeof(double)),
        .most = malloc(set * sizeof(double)),
        .order = malloc(set * sizeof(int64_t)),
        .found = malloc(documents * sizeof(int32_t)),
    };
    return m->weights && m->is_touched && m->scores && m->kind && m->touched && m->ranked &&
           m->spare && m->rows && m->alpha && m->is_updated && m->diagonal && m->most &&
           m->order && m->found;
}

// Return the output of splitmix64 for a state.
static uint64_t mixed(uint64_t state) {
    state += GOLDEN;
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9;
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB;
    return state ^ (state >> 31);
}

// Return the next random whole number from 0 to limit - 1; documents are counted in int32.
static int64_t below(uint64_t *random, int64_t limit) {
    *random += GOLDEN;
    return (int64_t)(((mixed(*random) >> 32) * (uint64_t)limit) >> 32);
}

// Return the inner product of a row and the weights, by four sums that don't wait for another.
static double product(const sparse_rows *rows, int64_t row, const double *weights) {
    const int32_t *indices = rows->indices;
    const float *data = rows->data;
    const int64_t end = rows->indptr[row + 1];
    double a = 0, b = 0, c = 0, d = 0;
    int64_t k = rows->indptr[row];
    for (; k + 4 <= end; k += 4) {
        a += weights[indices[k]] * data[k];
        b += weights[indices[k + 1]] * data[k + 1];
        c += weights[indices[k + 2]] * data[k + 2];
        d += weights[indices[k + 3]] * data[k + 3];
    }
    for (; k < end; k++) a += weights[indices[k]] * data[k];
    return (a + b) + (c + d);
}

// Update the alpha of each active document once; return the spread of the projected gradients,
// which is 0 at the optimum. Documents at a bound become inactive.
static double pass_over(const sparse_rows *by_document, memory *m, int64_t *num_active) {
    double *weights = m->weights, *bias = weights + by_document->num_columns;
    int64_t *order = m->order;
    double highest = 0, lowest = 0;
    for (int64_t s = 0; s < *num_active;) {
        const int64_t i = order[s], document = m->rows[i];
        const double sign = i < m->num_positive ? 1 : -1; // y_i: positives come first
        const double alpha = m->alpha[i], most = m->most[i];
        const double score = *bias + product(by_document, document, weights);
        // G_i = y_i (w x_i + b) - 1 + D_ii alpha_i
        const double gradient = sign * score - 1 + alpha * m->diagonal[i];
        if ((alpha == 0 && gradient >= 0) || (alpha == most && gradient <= 0)) {
            // The projected gradient is 0 at this bound: swap it out of the active part.
            order[s] = order[--*num_active], order[*num_active] = i;
            continue;
        }
        s++;
        if (gradient > highest) highest = gradient;
        if (gradient < lowest) lowest = gradient;
        // alpha_i <- min(max(alpha_i - G_i / (Q_ii + D_ii), 0), U_i), exact along this coordinate
        const double curvature = (double)by_document->squares[document] + 1 + m->diagonal[i];
        double updated = alpha - gradient / curvature;
        if (updated < 0) updated = 0;
        if (updated > most) updated = most;
        const double step = (updated - alpha) * sign;
        m->alpha[i] = updated;
        m->is_updated[i] = 1;
        // Invariant: w = sum of alpha_i y_i x_i, and b = sum of alpha_i y_i.
        *bias += step;
        const int64_t end = by_document->indptr[document + 1];
        for (int64_t k = by_document->indptr[document]; k < end; k++)
            weights[by_document->indices[k]] += step * by_document->data[k];
    }
    return highest - lowest;
}

// Minimise the dual problem over the working set, from the alphas that stand.
//
// A sampled document counts as `share` documents. Unlike in liblinear, a document at its bound is
// left out at once; all come back when the others are done, until none moves.
static void descend(const problem *p, memory *m, double share, double tolerance) {
    // The dual: minimise alpha' (Q + D) alpha / 2 - sum of alpha over 0 <= alpha_i <= U_i, with
    // Q_ij = y_i y_j (x_i x_j + 1); the 1 is that of the bias.
    // Hinge: U_i = C_i, D = 0. Squared hinge: U_i = inf, D_ii = 1 / (2 C_i).
    for (int64_t i = 0; i < m->size; i++) {
        const double cost = p->plan->cost * (m->kind[m->rows[i]] == SAMPLED ? share : 1);
        m->most[i] = p->plan->is_hinge ? cost : INFINITY;
        m->diagonal[i] = p->plan->is_hinge ? 0 : 0.5 / cost;
        m->order[i] = i;
    }
    int64_t num_active = m->size;
    // order[:num_active] are the active positions, order[num_active:] those left out at a bound.
    for (int64_t pass = 0; pass < MAX_PASSES; pass++) {
        const bool is_complete = num_active == m->size;
        for (int64_t i = 0; i < num_active; i++) { // Fisher-Yates: a new order for every pass
            const int64_t j = i + below(&m->random, num_active - i), position = m->order[i];
            m->order[i] = m->order[j], m->order[j] = position;
        }
        if (pass_over(p->by_document, m, &num_active) <= tolerance) {
            if (is_complete) return;
            num_active = m->size; // the active ones are done: let all come back, and check
        }
    }
}

// Note the features of a document as touched.
static void touch(const sparse_rows *by_document, int64_t document, memory *m) {
    const int64_t end = by_document->indptr[document + 1];
    for (int64_t k = by_document->indptr[document]; k < end; k++) {
        const int32_t feature = by_document->indices[k];
        if (!m->is_touched[feature]) {
            m->is_touched[feature] = 1;
            m->touched[m->num_touched++] = feature;
        }
    }
}

// Touch the features of all documents that have played a part.
//
// w = sum of alpha_i y_i x_i, so w_f can differ from 0 only where some x_i with alpha_i > 0, now or
// earlier, has the feature.
static void touch_updated(const sparse_rows *by_document, memory *m) {
    m->num_touched = 0;
    for (int64_t i = 0; i < m->size; i++)
        if (m->is_updated[i]) touch(by_document, m->rows[i], m);
    for (int64_t i = 0; i < m->num_touched; i++) m->is_touched[m->touched[i]] = 0;
}

// Leave the mean of the label's documents in the weights, and touch its features.
static void set_centroid(const sparse_rows *by_document, memory *m) {
    m->num_touched = 0;
    for (int64_t i = 0; i < m->num_positive; i++) {
        const int64_t document = m->rows[i];
        const int64_t end = by_document->indptr[document + 1];
        for (int64_t k = by_document->indptr[document]; k < end; k++)
            m->weights[by_document->indices[k]] += by_document->data[k] / (double)m->num_positive;
        touch(by_document, document, m);
    }
}

// Forget the weights of touched features.
static void forget(memory *m) {
    for (int64_t i = 0; i < m->num_touched; i++) {
        m->weights[m->touched[i]] = 0;
        m->is_touched[m->touched[i]] = 0;
    }
    m->num_touched = 0;
}

// List the touched features of at least this weight, as float32 has it, and of any: in falling
// order of the weight's magnitude, or rising; ties by the smaller feature. Return how many.
static int64_t rank_features(memory *m, double least, bool is_by_weight) {
    int64_t count = 0;
    for (int64_t i = 0; i < m->num_touched; i++) {
        const int32_t feature = m->touched[i];
        const double weight = m->weights[feature];
        const float magnitude = fabsf((float)weight);
        if (magnitude >= least && magnitude > 0)
            m->ranked[count++] = (keyed){is_by_weight ? -fabs(weight) : 0, feature};
    }
    sort_keyed(m->ranked, m->spare, count);
    return count;
}

// Find the highest-scoring of the documents that a search reached, and forget the scores; return
// how many.
static int64_t best_of(memory *m, int64_t num_reached, float above, int64_t expected) {
    int64_t count = 0;
    for (int64_t i = 0; i < num_reached; i++) {
        const int32_t document = m->reached[i].document;
        const float score = m->scores[document];
        m->scores[document] = 0; // a document reached twice has no score the second time
        if (score > above && score != 0 && m->kind[document] != POSITIVE) {
            m->reached[count] = (reached_document){document, score};
            m->values[count++] = score;
        }
    }
    if (expected <= 0) return 0;
    const bool is_all = count <= expected;
    const float least = is_all ? 0 : nth_value(m->values, count, count - expected);
    int64_t size = 0;
    for (int64_t i = 0; i < count; i++)
        if (is_all || m->reached[i].score > least) m->found[size++] = m->reached[i].document;
    for (int64_t i = 0; i < count && size < expected && !is_all; i++) // the first of those equal
        if (m->reached[i].score == least) m->found[size++] = m->reached[i].document;
    return size;
}

// Find up to `expected` documents without the label whose scores are highest, and > `above`; return
// how many, or OUT_OF_MEMORY.
//
// Touched features are read in falling order of their weights' magnitude until the budget of
// postings, documents with a feature, is spent.
static int64_t search(const sparse_rows *by_feature, memory *m, float least, float above,
                      int64_t expected, int64_t budget) {
    const int64_t num_ranked = rank_features(m, least, true);
    int64_t num_read = 0, num_postings = 0;
    for (; num_read < num_ranked; num_read++) {
        const int64_t *bounds = by_feature->indptr + m->ranked[num_read].index;
        if (num_postings + bounds[1] - bounds[0] > budget) break;
        num_postings += bounds[1] - bounds[0];
    }
    if (!reserve(&m->reached, &m->reached_capacity, num_postings, sizeof(*m->reached)) ||
        !reserve(&m->values, &m->values_capacity, num_postings, sizeof(*m->values)))
        return OUT_OF_MEMORY;
    // scores[d] is the sum of w_f x_df over the features read so far; a document is reached at its
    // first, and again where its score has come back to 0 (see `best_of`).
    float *scores = m->scores;
    int64_t size = 0;
    for (int64_t i = 0; i < num_read; i++) {
        const int64_t feature = m->ranked[i].index, end = by_feature->indptr[feature + 1];
        const float weight = (float)m->weights[feature];
        for (int64_t k = by_feature->indptr[feature]; k < end; k++) {
            const int32_t document = by_feature->indices[k];
            const float score = scores[document];
            if (score == 0) m->reached[size++].document = document;
            scores[document] = score + weight * by_feature->data[k];
        }
    }
    return best_of(m, size, above, expected);
}

// Find the documents without the label that its weights rank highest; return how many, or
// OUT_OF_MEMORY.
//
// In the first round, the mean of its documents stands for the weights; later, only documents that
// violate the margin are found.
static int64_t find_hard(const problem *p, memory *m, int64_t expected, bool is_first) {
    const int64_t budget =
        p->plan->postings + p->plan->postings_per_positive * m->num_positive;
    if (is_first) { // every document that shares a feature with the centroid has a score above 0
        set_centroid(p->by_document, m);
        const int64_t count = search(p->by_feature, m, CENTROID_BELOW, 0, expected, budget);
        forget(m);
        return count;
    }
    touch_updated(p->by_document, m);
    // A negative violates the margin where -(w x + b) < 1, that is w x > -1 - b.
    const float above = (float)(-1 - m->weights[p->by_document->num_columns]);
    return search(p->by_feature, m, SEARCH_BELOW, above, expected, budget);
}

// Take a document into the set; one that was in it as a sample stands for itself now.
static void add(memory *m, int32_t document, uint8_t kind) {
    if (m->kind[document] == ABSENT) {
        m->rows[m->size] = document;
        m->alpha[m->size] = 0;
        m->is_updated[m->size++] = 0;
        m->kind[document] = kind;
    } else if (m->kind[document] == SAMPLED) { // it keeps its place in the set, and its alpha
        m->kind[document] = kind;
    }
}

// Add documents drawn uniformly, without repeats, from those that are not in the set.
static void sample(memory *m, int64_t num_documents, int64_t expected) {
    int64_t num_absent = num_documents - m->size;
    expected = smaller(expected, num_absent);
    if (2 * expected < num_absent) { // few: draw until one is outside of the set
        while (expected > 0) {
            const int64_t document = below(&m->random, num_documents);
            if (m->kind[document] != ABSENT) continue;
            add(m, (int32_t)document, SAMPLED);
            expected--;
        }
        return;
    }
    for (int64_t document = 0; document < num_documents; document++) {
        if (m->kind[document] != ABSENT) continue;
        // each with the probability that fills the sample
        if (below(&m->random, num_absent--) < expected) {
            add(m, (int32_t)document, SAMPLED);
            expected--;
        }
    }
}

// Return how many documents stand for others.
static int64_t count_sampled(const memory *m) {
    int64_t count = 0;
    for (int64_t i = 0; i < m->size; i++) count += m->kind[m->rows[i]] == SAMPLED;
    return count;
}

static int64_t num_positive(const problem *p, int64_t label) {
    return p->by_label->indptr[label + 1] - p->by_label->indptr[label];
}

static int64_t num_expected(const problem *p, int64_t label) {
    return p->plan->hard_negatives + p->plan->hard_negatives_per_positive * num_positive(p, label);
}

// Return how many documents a label is trained on at most: positives, the hard negatives of each
// round and the sample; or all documents, if those are fewer.
static int64_t capacity_for(const problem *p, int64_t label) {
    const int64_t num_documents = p->by_document->num_rows;
    if (p->plan->rounds == 0) return num_documents;
    return smaller(num_documents, num_positive(p, label) + p->plan->sampled_negatives +
                                      p->plan->rounds * num_expected(p, label));
}

// Look for hard negatives and train on them, so often; false without memory.
static bool fit_rounds(const problem *p, memory *m, int64_t expected) {
    const int64_t num_documents = p->by_document->num_rows;
    for (int64_t round = 0; round < p->plan->rounds; round++) {
        const int64_t num_hard = find_hard(p, m, expected, round == 0);
        if (num_hard == OUT_OF_MEMORY) return false;
        for (int64_t i = 0; i < num_hard; i++) add(m, m->found[i], HARD);
        if (round == 0) sample(m, num_documents, p->plan->sampled_negatives);
        // A sampled document that has become a hard one stands for itself: count what is left.
        const int64_t num_sampled = count_sampled(m);
        // Documents outside of positives and hard ones, a sampled one: N - (size - sampled) in all,
        // so that the weighted sum over the set estimates that over all documents: without bias in
        // the first round, too heavily later (see `longtail.training.sparse.svm`).
        const double num_rest = (double)(num_documents - m->size + num_sampled);
        const double share = num_rest / (double)(num_sampled ? num_sampled : 1);
        // alpha stays from round to round, so each starts from the solution of the one before.
        descend(p, m, share, round + 1 == p->plan->rounds ? TOLERANCE : ROUGH_TOLERANCE);
    }
    return true;
}

// Leave a label's weights in the memory, and touch the features that may have one; false without
// memory.
static bool fit_label(const problem *p, int64_t label, memory *m) {
    const int64_t num_documents = p->by_document->num_rows, num_own = num_positive(p, label);
    if (num_own == num_documents) { // there is nothing to tell apart
        m->weights[p->by_document->num_columns] = 1;
        return true;
    }
    m->random = mixed((uint64_t)p->plan->seed ^ mixed((uint64_t)label));
    m->size = 0, m->num_positive = num_own;
    const int32_t *own = p->by_label->indices + p->by_label->indptr[label];
    for (int64_t i = 0; i < num_own; i++) add(m, own[i], POSITIVE);
    if (p->plan->rounds == 0) {
        // Exact: min |w|^2 / 2 + b^2 / 2 + C sum over all documents of the loss of y (w x + b).
        for (int64_t document = 0; document < num_documents; document++)
            add(m, (int32_t)document, HARD);
        descend(p, m, 1, TOLERANCE);
    }
    if (!fit_rounds(p, m, num_expected(p, label))) return false;
    for (int64_t i = 0; i < m->size; i++) m->kind[m->rows[i]] = ABSENT;
    touch_updated(p->by_document, m);
    return true;
}

// The weights of the labels fitted so far, one label after the other.
typedef struct {
    int32_t *features;
    float *weights;
    int64_t size, features_capacity, weights_capacity;
} fitted;

// Move a label's weights, but small ones, from the memory to the result; false without memory.
static bool keep(const problem *p, memory *m, fitted *f) {
    const int64_t count = rank_features(m, p->plan->prune_below, false), end = f->size + count;
    if (!reserve(&f->features, &f->features_capacity, end, sizeof(int32_t)) ||
        !reserve(&f->weights, &f->weights_capacity, end, sizeof(float)))
        return false;
    for (int64_t i = 0; i < count; i++) {
        const int64_t feature = m->ranked[i].index;
        f->features[f->size] = (int32_t)feature;
        f->weights[f->size++] = (float)m->weights[feature];
    }
    forget(m);
    return true;
}

KERNEL descent_fit(const sparse_rows *by_document, const sparse_rows *by_feature,
                   const sparse_rows *by_label, const int64_t *labels, int64_t num_labels,
                   const fit_plan *plan, int64_t *starts, float *bias, grown *results) {
    const problem p = {by_document, by_feature, by_label, plan};
    const int64_t num_features = by_document->num_columns;
    int64_t capacity = 0;
    for (int64_t i = 0; i < num_labels; i++) {
        const int64_t needed = capacity_for(&p, labels[i]);
        if (needed > capacity) capacity = needed;
    }
    memory m;
    fitted f = {0};
    bool is_done = allocate(&m, by_document->num_rows, num_features, capacity);
    for (int64_t i = 0; i < num_labels && is_done; i++) {
        is_done = fit_label(&p, labels[i], &m) && keep(&p, &m, &f);
        starts[i + 1] = f.size;
        bias[i] = (float)m.weights[num_features]; // b is the weight of a feature that is always 1
        m.weights[num_features] = 0;
    }
    free_memory(&m);
    if (!is_done) {
        free(f.features), free(f.weights);
        return OUT_OF_MEMORY;
    }
    results[0] = (grown){f.features, f.size}, results[1] = (grown){f.weights, f.size};
    return 0;
}
