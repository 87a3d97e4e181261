// Scores of the labels that nearest documents carry.
//
// A neighbour counts for exp(similarity / temperature), divided by the sum of these; a label's score
// is the logarithm of the sum over the neighbours that carry it. Sums are in float64 in the order of
// the neighbours, and the score is rounded once, whoever asks.
#include <math.h>

#include "best.h"

#define NO_DOCUMENT (-1)

// The neighbours of some texts, and the labels that documents carry.
typedef struct {
    const int64_t *documents;
    const float *similarities;
    int64_t num_neighbours;
    double temperature;
    const csr *labels;
    const double *raised; // added to the score of each label
    int64_t num_labels, num_rows;
} neighbours;

// What the neighbours of one text count for.
typedef struct {
    double *totals; // of each label; 0 between texts
    double *weights, total;
    int64_t *carried, size, room; // labels, each once
} votes;

// Write exp(similarity / temperature) of each neighbour, that of the first being 1, and the sum.
// A label that all carry has a total that is this sum to the bit, so that its share is 1.
static int64_t weigh(const int64_t *documents, const float *similarities, int64_t num_neighbours,
                     double temperature, double *weights, double *total) {
    int64_t size = 0;
    *total = 0;
    for (; size < num_neighbours && documents[size] != NO_DOCUMENT; size++) {
        const double difference = (double)similarities[size] - (double)similarities[0];
        weights[size] = exp(difference / temperature);
        *total += weights[size];
    }
    return size;
}

// Return how many labels the first documents of a row carry, each as often as it is carried.
static int64_t num_carried(const csr *labels, const int64_t *documents, int64_t size) {
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++)
        count += row_start(labels, documents[i] + 1) - row_start(labels, documents[i]);
    return count;
}

// Add each neighbour's weight to its labels' totals, and list these labels; false without memory.
static bool count_votes(const neighbours *all, int64_t row, votes *votes) {
    const int64_t *documents = all->documents + row * all->num_neighbours;
    const float *similarities = all->similarities + row * all->num_neighbours;
    const int64_t num_voters = weigh(documents, similarities, all->num_neighbours,
                                     all->temperature, votes->weights, &votes->total);
    const int64_t most = num_carried(all->labels, documents, num_voters);
    votes->size = 0;
    if (!reserve(&votes->carried, &votes->room, most, sizeof(int64_t))) return false;
    double *totals = votes->totals;
    int64_t *carried = votes->carried, size = 0;
    for (int64_t i = 0; i < num_voters; i++) {
        const double weight = votes->weights[i];
        const int64_t end = row_start(all->labels, documents[i] + 1);
        for (int64_t j = row_start(all->labels, documents[i]); j < end; j++) {
            const int64_t label = column(all->labels, j);
            if (totals[label] == 0) carried[size++] = label;
            totals[label] += weight;
        }
    }
    votes->size = size;
    return true;
}

static void wipe(votes *votes) {
    for (int64_t i = 0; i < votes->size; i++) votes->totals[votes->carried[i]] = 0;
}

static float score_of(const neighbours *all, const votes *votes, int64_t label) {
    return (float)(log(votes->totals[label] / votes->total) + all->raised[label]);
}

static bool allocate(const neighbours *all, votes *votes) {
    votes->totals = calloc(all->num_labels + 1, sizeof(double));
    votes->weights = malloc((all->num_neighbours + 1) * sizeof(double));
    return votes->totals && votes->weights;
}

static int64_t finish(votes *votes, bool has_memory) {
    free(votes->totals), free(votes->weights), free(votes->carried);
    return has_memory ? 0 : OUT_OF_MEMORY;
}

KERNEL label_best(const int64_t *documents, const float *similarities, int64_t num_neighbours,
                  double temperature, const csr *carried, const double *raised,
                  int64_t num_labels, int64_t num_rows, int64_t m, int64_t *labels,
                  float *scores) {
    const neighbours all = {documents, similarities, num_neighbours, temperature,
                            carried,   raised,       num_labels,     num_rows};
    votes votes = {0};
    bool has_memory = allocate(&all, &votes);
    for (int64_t row = 0; has_memory && row < all.num_rows; row++) {
        has_memory = count_votes(&all, row, &votes);
        best_list best = {labels + row * m, scores + row * m, m, 0};
        for (int64_t i = 0; i < votes.size; i++)
            best_offer(&best, votes.carried[i], score_of(&all, &votes, votes.carried[i]));
        best_in_order(&best);
        for (int64_t place = best.size; place < m; place++)
            best.labels[place] = NO_LABEL, best.scores[place] = -INFINITY;
        wipe(&votes);
    }
    return finish(&votes, has_memory);
}

KERNEL label_scores(const int64_t *documents, const float *similarities, int64_t num_neighbours,
                    double temperature, const csr *carried, const double *raised,
                    int64_t num_labels, int64_t num_rows, int64_t m, const int64_t *labels,
                    float *scores) {
    const neighbours all = {documents, similarities, num_neighbours, temperature,
                            carried,   raised,       num_labels,     num_rows};
    votes votes = {0};
    bool has_memory = allocate(&all, &votes);
    for (int64_t row = 0; has_memory && row < all.num_rows; row++) {
        has_memory = count_votes(&all, row, &votes);
        for (int64_t i = row * m; i < (row + 1) * m; i++) {
            const bool is_carried = labels[i] != NO_LABEL && votes.totals[labels[i]] > 0;
            scores[i] = is_carried ? score_of(&all, &votes, labels[i]) : -INFINITY;
        }
        wipe(&votes);
    }
    return finish(&votes, has_memory);
}

KERNEL label_shares(const int64_t *documents, const float *similarities, int64_t num_neighbours,
                    double temperature, double *shares) {
    double total;
    const int64_t size =
        weigh(documents, similarities, num_neighbours, temperature, shares, &total);
    for (int64_t i = 0; i < num_neighbours; i++) shares[i] = i < size ? shares[i] / total : 0;
    return 0;
}
