// Linear classifiers of labels by dual coordinate descent on working sets of documents.
//
// All that is random follows from seed and label: labels may be fitted on any thread in any order.
#include <math.h>

#include "kernels.h"
#include "sorting.h"

enum { ABSENT, POSITIVE, HARD, SAMPLED }; // what a document is to the label
enum { MAX_PASSES = 100 };                // the ranking no longer changes long before convergence
enum { AHEAD = 8 };                       // documents between fetching one and adding it
enum { RARE_BELOW = 10 };                 // documents of a label from which on its cost is `cost`

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
    double cost, rare_cost;
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

// Rows of documents close together, with their features numbered from 0 in the order in which they
// first occur, so that the weights of frequent ones lie close together, too.
typedef struct {
    int64_t *starts;
    int32_t *indices; // numbers of features
    float *data, *squares;
    int64_t num_rows, indices_capacity, data_capacity;

    int32_t *number_of;  // 1 + the number of a feature; 0 if it has none
    int32_t *feature_of; // the feature of a number
    double *weights;     // of each number
    int64_t num_features;
} close_rows;

// The memory of one call.
typedef struct {
    close_rows close;
    double bias;
    float *scores; // of the documents in a search; all zero between searches
    uint8_t *kind; // what each document is to the label; all ABSENT between labels

    keyed *ranked, *spare; // features in order

    // The working set: documents, those of the label first, and for each its row among the close
    // ones, its dual variable, what is added to its curvature, and its upper bound.
    int32_t *documents;
    int64_t *rows;
    double *alpha, *diagonal, *most;
    int64_t *order;
    int64_t size, num_positive;

    reached_document *reached;
    float *values;
    int64_t reached_capacity, values_capacity;
    int32_t *found; // hard documents
    uint64_t random;
} memory;

static void free_memory(memory *m) {
    close_rows *c = &m->close;
    void *arrays[] = {c->starts,     c->indices, c->data,    c->squares, c->number_of, c->feature_of,
                      c->weights,    m->scores,  m->kind,    m->ranked,  m->spare,     m->documents,
                      m->rows,       m->alpha,   m->diagonal, m->most,   m->order,     m->reached,
                      m->values,     m->found};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++) free(arrays[i]);
}

// Allocate all but what a search reaches; false without memory. To be freed in either case.
static bool allocate(memory *m, int64_t num_documents, int64_t num_features, int64_t capacity) {
    const size_t features = num_features + 1, documents = num_documents + 1, set = capacity + 1;
    *m = (memory){
        .scores = calloc(documents, sizeof(float)),
        .kind = calloc(documents, 1),
        .ranked = malloc(features * sizeof(keyed)),
        .spare = malloc(features * sizeof(keyed)),
        .documents = malloc(set * sizeof(int32_t)),
        .rows = malloc(set * sizeof(int64_t)),
        .alpha = malloc(set * sizeof(double)),
        .diagonal = malloc(set * sizeof(double)),
        .most = malloc(set * sizeof(double)),
        .order = malloc(set * sizeof(int64_t)),
        .found = malloc(documents * sizeof(int32_t)),
    };
    close_rows *c = &m->close;
    c->starts = calloc(set + 1, sizeof(int64_t));
    c->squares = malloc(set * sizeof(float));
    c->number_of = calloc(features, sizeof(int32_t));
    c->feature_of = malloc(features * sizeof(int32_t));
    c->weights = malloc(features * sizeof(double));
    return m->scores && m->kind && m->ranked && m->spare && m->documents && m->rows && m->alpha &&
           m->diagonal && m->most && m->order && m->found && c->starts && c->squares &&
           c->number_of && c->feature_of && c->weights;
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
static double product(const close_rows *c, int64_t row) {
    const int32_t *indices = c->indices;
    const float *data = c->data;
    const double *weights = c->weights;
    const int64_t end = c->starts[row + 1];
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int64_t k = c->starts[row];
    for (; k + 4 <= end; k += 4) {
        s0 += weights[indices[k]] * data[k];
        s1 += weights[indices[k + 1]] * data[k + 1];
        s2 += weights[indices[k + 2]] * data[k + 2];
        s3 += weights[indices[k + 3]] * data[k + 3];
    }
    for (; k < end; k++) s0 += weights[indices[k]] * data[k];
    return (s0 + s1) + (s2 + s3);
}

// Add a multiple of a row to the weights.
static void add_row(close_rows *c, int64_t row, double multiple) {
    const int64_t end = c->starts[row + 1];
    for (int64_t k = c->starts[row]; k < end; k++)
        c->weights[c->indices[k]] += multiple * c->data[k];
}

// Return the number of a feature; a new one has the weight 0.
static inline int32_t number_of(close_rows *c, int32_t feature) {
    const int32_t number = c->number_of[feature] - 1;
    if (number >= 0) return number;
    c->number_of[feature] = (int32_t)c->num_features + 1;
    c->feature_of[c->num_features] = feature;
    c->weights[c->num_features] = 0;
    return (int32_t)c->num_features++;
}

// Copy the row of a document behind the close ones; false without memory.
static bool draw_close(const sparse_rows *by_document, int64_t document, close_rows *c) {
    const int64_t begin = by_document->indptr[document], end = by_document->indptr[document + 1];
    int64_t to = c->starts[c->num_rows];
    if (!reserve(&c->indices, &c->indices_capacity, to + end - begin, sizeof(int32_t)) ||
        !reserve(&c->data, &c->data_capacity, to + end - begin, sizeof(float)))
        return false;
    for (int64_t k = begin; k < end; k++, to++) {
        c->indices[to] = number_of(c, by_document->indices[k]);
        c->data[to] = by_document->data[k];
    }
    c->squares[c->num_rows] = by_document->squares[document];
    c->starts[++c->num_rows] = to;
    return true;
}

static void forget_rows(close_rows *c) {
    for (int64_t i = 0; i < c->num_features; i++) c->number_of[c->feature_of[i]] = 0;
    c->num_features = c->num_rows = 0;
}

static void forget_weights(close_rows *c) {
    for (int64_t i = 0; i < c->num_features; i++) c->weights[i] = 0;
}

// Update the alpha of each active document once; return the spread of the projected gradients,
// which is 0 at the optimum. Documents at a bound become inactive.
static double pass_over(memory *m, int64_t *num_active) {
    int64_t *order = m->order;
    double highest = 0, lowest = 0;
    for (int64_t s = 0; s < *num_active;) {
        const int64_t i = order[s], row = m->rows[i];
        const double sign = i < m->num_positive ? 1 : -1; // y_i: positives come first
        const double alpha = m->alpha[i], most = m->most[i];
        const double score = m->bias + product(&m->close, row);
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
        const double curvature = (double)m->close.squares[row] + 1 + m->diagonal[i];
        double updated = alpha - gradient / curvature;
        if (updated < 0) updated = 0;
        if (updated > most) updated = most;
        const double step = (updated - alpha) * sign;
        m->alpha[i] = updated;
        // Invariant: w = sum of alpha_i y_i x_i, and b = sum of alpha_i y_i.
        if (step == 0) continue;
        m->bias += step;
        add_row(&m->close, row, step);
    }
    return highest - lowest;
}

// Set the bounds and curvatures of the dual problem, in which a sampled document counts as `share`
// documents.
static void set_bounds(const problem *p, memory *m, double share) {
    // The dual: minimise alpha' (Q + D) alpha / 2 - sum of alpha over 0 <= alpha_i <= U_i, with
    // Q_ij = y_i y_j (x_i x_j + 1); the 1 is that of the bias.
    // Hinge: U_i = C_i, D = 0. Squared hinge: U_i = inf, D_ii = 1 / (2 C_i).
    const double full = m->num_positive < RARE_BELOW ? p->plan->rare_cost : p->plan->cost; // C
    for (int64_t i = 0; i < m->size; i++) {
        const double cost = full * (m->kind[m->documents[i]] == SAMPLED ? share : 1);
        m->most[i] = p->plan->is_hinge ? cost : INFINITY;
        m->diagonal[i] = p->plan->is_hinge ? 0 : 0.5 / cost;
        m->order[i] = i;
    }
}

// Minimise the dual problem over the working set, from the alphas that stand.
//
// Unlike in liblinear, a document at its bound is left out at once; all come back when the others
// are done, until none moves.
static void descend(memory *m, double tolerance) {
    int64_t num_active = m->size;
    // order[:num_active] are the active positions, order[num_active:] those left out at a bound.
    for (int64_t pass = 0; pass < MAX_PASSES; pass++) {
        const bool is_complete = num_active == m->size;
        for (int64_t i = 0; i < num_active; i++) { // Fisher-Yates: a new order for every pass
            const int64_t j = i + below(&m->random, num_active - i), position = m->order[i];
            m->order[i] = m->order[j], m->order[j] = position;
        }
        if (pass_over(m, &num_active) <= tolerance) {
            if (is_complete) return;
            num_active = m->size; // the active ones are done: let all come back, and check
        }
    }
}

// List the features of at least this weight, as float32 has it, and of any: in falling order of the
// weight's magnitude, or rising; ties by the smaller feature. Return how many.
static int64_t rank_features(memory *m, double least, bool is_by_weight) {
    int64_t count = 0;
    for (int64_t i = 0; i < m->close.num_features; i++) {
        const double weight = m->close.weights[i];
        const float magnitude = fabsf((float)weight);
        if (magnitude >= least && magnitude > 0)
            m->ranked[count++] = (keyed){is_by_weight ? -fabs(weight) : 0, m->close.feature_of[i]};
    }
    sort_keyed(m->ranked, m->spare, count);
    return count;
}

static double weight_of(const memory *m, int64_t feature) {
    return m->close.weights[m->close.number_of[feature] - 1];
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
// Features are read in falling order of their weights' magnitude until the budget of
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
        const float weight = (float)weight_of(m, feature);
        for (int64_t k = by_feature->indptr[feature]; k < end; k++) {
            const int32_t document = by_feature->indices[k];
            const float score = scores[document];
            if (score == 0) m->reached[size++].document = document;
            scores[document] = score + weight * by_feature->data[k];
        }
    }
    return best_of(m, size, above, expected);
}

// Leave the mean of the label's documents, which are the first close rows, in the weights.
static void set_centroid(memory *m) {
    close_rows *c = &m->close;
    for (int64_t k = 0; k < c->starts[m->num_positive]; k++)
        c->weights[c->indices[k]] += c->data[k] / (double)m->num_positive;
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
        set_centroid(m);
        const int64_t count = search(p->by_feature, m, CENTROID_BELOW, 0, expected, budget);
        forget_weights(&m->close);
        return count;
    }
    // A negative violates the margin where -(w x + b) < 1, that is w x > -1 - b.
    return search(p->by_feature, m, SEARCH_BELOW, (float)(-1 - m->bias), expected, budget);
}

// Take a document into the set; one that was in it as a sample stands for itself now. False without
// memory.
static bool add(const problem *p, memory *m, int64_t document, uint8_t kind) {
    if (m->kind[document] == ABSENT) {
        const bool are_all_close = p->plan->rounds == 0;
        if (!are_all_close && !draw_close(p->by_document, document, &m->close)) return false;
        m->documents[m->size] = (int32_t)document;
        m->rows[m->size] = are_all_close ? document : m->close.num_rows - 1;
        m->alpha[m->size++] = 0;
        m->kind[document] = kind;
    } else if (m->kind[document] == SAMPLED) { // it keeps its place in the set, and its alpha
        m->kind[document] = kind;
    }
    return true;
}

// Have the processor fetch a document's row, which a later call of `fetch_row` finishes: most time
// of many labels with few documents would go into waiting for memory.
static void fetch_bounds(const sparse_rows *rows, const memory *m, int64_t document) {
    __builtin_prefetch(rows->indptr + document);
    __builtin_prefetch(rows->squares + document);
    __builtin_prefetch(m->kind + document);
}

static void fetch_row(const sparse_rows *rows, int64_t document) {
    const int64_t begin = rows->indptr[document];
    __builtin_prefetch(rows->indices + begin);
    __builtin_prefetch(rows->data + begin);
}

// Return the document that `below` draws some calls later. To fetch it early saves a fifth of the
// time, of 200,000 documents and as many labels with 3 each.
static int64_t drawn_later(uint64_t random, int64_t calls, int64_t limit) {
    random += (calls - 1) * GOLDEN;
    return below(&random, limit);
}

// Add documents drawn uniformly, without repeats, from those that are not in the set; false without
// memory.
static bool sample(const problem *p, memory *m, int64_t expected) {
    const int64_t num_documents = p->by_document->num_rows;
    int64_t num_absent = num_documents - m->size;
    expected = smaller(expected, num_absent);
    if (2 * expected < num_absent) { // few: draw until one is outside of the set
        while (expected > 0) {
            const int64_t document = below(&m->random, num_documents);
            fetch_bounds(p->by_document, m, drawn_later(m->random, 2 * AHEAD, num_documents));
            fetch_row(p->by_document, drawn_later(m->random, AHEAD, num_documents));
            if (m->kind[document] != ABSENT) continue;
            if (!add(p, m, document, SAMPLED)) return false;
            expected--;
        }
        return true;
    }
    for (int64_t document = 0; document < num_documents; document++) {
        if (m->kind[document] != ABSENT) continue;
        // each with the probability that fills the sample
        if (below(&m->random, num_absent--) < expected) {
            if (!add(p, m, document, SAMPLED)) return false;
            expected--;
        }
    }
    return true;
}

// Return how many documents stand for others.
static int64_t count_sampled(const memory *m) {
    int64_t count = 0;
    for (int64_t i = 0; i < m->size; i++) count += m->kind[m->documents[i]] == SAMPLED;
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

// Add hard negatives that a search found, and in the first round the sample of the rest; set the
// bounds of all. False without memory.
static bool grow_set(const problem *p, memory *m, int64_t num_hard, bool is_first) {
    if (num_hard == OUT_OF_MEMORY) return false;
    for (int64_t i = 0; i < num_hard; i++) {
        if (i + 2 * AHEAD < num_hard) fetch_bounds(p->by_document, m, m->found[i + 2 * AHEAD]);
        if (i + AHEAD < num_hard) fetch_row(p->by_document, m->found[i + AHEAD]);
        if (!add(p, m, m->found[i], HARD)) return false;
    }
    if (is_first && !sample(p, m, p->plan->sampled_negatives)) return false;
    // A sampled document that has become a hard one stands for itself: count what is left.
    const int64_t num_sampled = count_sampled(m);
    // Documents outside of positives and hard ones, a sampled one: N - (size - sampled) in all,
    // so that the weighted sum over the set estimates that over all documents: without bias in
    // the first round, too heavily later (see `longtail.training.sparse.svm`).
    const double num_rest = (double)(p->by_document->num_rows - m->size + num_sampled);
    set_bounds(p, m, num_rest / (double)(num_sampled ? num_sampled : 1));
    return true;
}

// Look for hard negatives and train on them, so often; false without memory.
static bool fit_rounds(const problem *p, memory *m, int64_t expected) {
    for (int64_t round = 0; round < p->plan->rounds; round++) {
        const int64_t num_hard = find_hard(p, m, expected, round == 0);
        if (!grow_set(p, m, num_hard, round == 0)) return false;
        // alpha stays from round to round, so each starts from the solution of the one before.
        descend(m, round + 1 == p->plan->rounds ? TOLERANCE : ROUGH_TOLERANCE);
    }
    return true;
}

// Leave a label's weights in the memory; false without memory.
static bool fit_label(const problem *p, int64_t label, memory *m) {
    const int64_t num_documents = p->by_document->num_rows, num_own = num_positive(p, label);
    m->bias = 0;
    if (num_own == num_documents) { // there is nothing to tell apart
        m->bias = 1;
        return true;
    }
    m->random = mixed((uint64_t)p->plan->seed ^ mixed((uint64_t)label));
    m->size = 0, m->num_positive = num_own;
    const int32_t *own = p->by_label->indices + p->by_label->indptr[label];
    for (int64_t i = 0; i < num_own; i++)
        if (!add(p, m, own[i], POSITIVE)) return false;
    if (p->plan->rounds == 0) {
        // Exact: min |w|^2 / 2 + b^2 / 2 + C sum over all documents of the loss of y (w x + b).
        for (int64_t document = 0; document < num_documents; document++)
            add(p, m, document, HARD);
        set_bounds(p, m, 1);
        descend(m, TOLERANCE);
    } else if (!fit_rounds(p, m, num_expected(p, label))) {
        return false;
    }
    for (int64_t i = 0; i < m->size; i++) m->kind[m->documents[i]] = ABSENT;
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
        f->weights[f->size++] = (float)weight_of(m, feature);
    }
    forget_weights(&m->close);
    if (p->plan->rounds > 0) forget_rows(&m->close);
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
    if (plan->rounds == 0) // every label is trained on all documents
        for (int64_t i = 0; i < by_document->num_rows && is_done; i++)
            is_done = draw_close(by_document, i, &m.close);
    for (int64_t i = 0; i < num_labels && is_done; i++) {
        is_done = fit_label(&p, labels[i], &m) && keep(&p, &m, &f);
        starts[i + 1] = f.size;
        bias[i] = (float)m.bias;
    }
    free_memory(&m);
    if (!is_done) {
        free(f.features), free(f.weights);
        return OUT_OF_MEMORY;
    }
    results[0] = (grown){f.features, f.size}, results[1] = (grown){f.weights, f.size};
    return 0;
}
