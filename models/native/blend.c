// The blend that knows how rare a label is: of given scores, and the best of all labels.
#include "best.h"
#include "sums.h"
#include <float.h>
#include <math.h>

// What each member's score says, a line with bends, and what that weighs for each label.
//
// rows: (num_counts, term), for each training count that labels have: the intercept, the weight of
// each member, that of its scores below the floor and, where the sum is bent, the level and the
// slopes of its curve; row_of: of each label. knots and slopes: of all members, one after the
// other; a member has one slope more than knots. bends: of the sum.
typedef struct {
    const double *rows;
    const int64_t *row_of;
    const float *log_priors;
    const double *intercepts, *floors, *knots, *slopes, *bends;
    const int64_t *num_knots;
    int64_t num_members, num_bends, num_terms, num_counts;
} blend;

// The calibrated log-odds of a score (`log_odds_of`). Each piece adds its part of the rise, so the
// sum rises too, whatever rounding does.
static double log_odds(double score, double intercept, const double *knots, const double *slopes,
                       int64_t num_knots) {
    double found = intercept + slopes[0] * (score < knots[0] ? score - knots[0] : 0);
    for (int64_t i = 0; i < num_knots && score > knots[i]; i++) { // later pieces add 0
        const double stop = i + 1 < num_knots ? knots[i + 1] : INFINITY;
        found += slopes[i + 1] * ((score < stop ? score : stop) - knots[i]);
    }
    return found;
}

// Write the calibrated log-odds of scores.
KERNEL calibrated_log_odds(const double *values, int64_t num_values, double intercept,
                           const double *knots, const double *slopes, int64_t num_knots,
                           double *found) {
    for (int64_t i = 0; i < num_values; i++) // what is not a number stays so
        found[i] = isnan(values[i]) ? values[i]
                                    : log_odds(values[i], intercept, knots, slopes, num_knots);
    return 0;
}

// Of log-odds: as low as they count.
#define LEAST_LOG_ODDS -14.0

// h(n, a(n) + sum_i w_i(n) max(g_i(s_i), f_i) + v_i(n) min(g_i(s_i) - f_i, 0)); the members' scores
// are `stride` floats apart.
static double blended(const blend *of, int64_t label, const float *scores, int64_t stride) {
    const double *weights = of->rows + of->row_of[label] * of->num_terms;
    const double *knots = of->knots, *slopes = of->slopes, *below = weights + 1 + of->num_members;
    double total = weights[0] + 0.0;
    for (int64_t i = 0; i < of->num_members; i++) {
        const double score = scores[i * stride];
        double evidence = of->floors[i];
        if (score > -INFINITY) {
            const double own = log_odds(score, of->intercepts[i], knots, slopes, of->num_knots[i]);
            if (own > evidence) evidence = own;
            else if (below[i] > 0) total += below[i] * fmin(fmax(own, LEAST_LOG_ODDS) - evidence, 0);
        }
        total += weights[i + 1] * evidence;
        knots += of->num_knots[i], slopes += of->num_knots[i] + 1;
    }
    if (!of->num_bends) return total;
    const double *curve = below + of->num_members; // the level, then the slopes
    return log_odds(total, curve[0], of->bends, curve + 1, of->num_bends);
}

// Write the blends of given scores: (member, row, m); labels: (row, m), or (1, m) for all rows.
KERNEL blend_log_odds(const blend *of, const float *scores, const int64_t *labels,
                      int64_t label_rows, int64_t num_rows, int64_t m, double *found) {
    for (int64_t i = 0; i < num_rows * m; i++) {
        const int64_t label = labels[label_rows == 1 ? i % m : i];
        found[i] = blended(of, label < 0 ? 0 : label, scores + i, num_rows * m);
    }
    return 0;
}

// The same with the tail dial, rounded once.
static float dialled(const blend *of, double tail_dial, int64_t label, const float *scores) {
    double value = blended(of, label, scores, 1);
    if (tail_dial != 0) value -= tail_dial * of->log_priors[label];
    return (float)value;
}

// A score whose log-odds are at most a member's floor, as high as a bisection finds.
static float highest_at_floor(const blend *of, int64_t member) {
    const double *knots = of->knots, *slopes = of->slopes;
    for (int64_t i = 0; i < member; i++)
        knots += of->num_knots[i], slopes += of->num_knots[i] + 1;
    float low = -FLT_MAX, high = FLT_MAX;
    while (true) { // the log-odds rise with the score: those of low are at most the floor
        const float middle = low / 2 + high / 2;
        if (middle <= low || middle >= high) break;
        const double value =
            log_odds(middle, of->intercepts[member], knots, slopes, of->num_knots[member]);
        if (value <= of->floors[member]) low = middle;
        else high = middle;
    }
    return low == -FLT_MAX ? -INFINITY : low;
}

// The classifiers of the sparse member, and the blend of labels that no text speaks for.
//
// labels: of each classifier, rising. at_floor: its blend where its score is at the floor and no
// other member has one; order: the classifiers by that, the best first, or none of them: then all
// labels are scored.
typedef struct {
    const csr *weights;
    const float *bias;
    const int64_t *labels;
    const float *at_floor;
    const int64_t *order;
    int64_t num_covered, num_ordered, member;
} classifiers;

// Memory for one row. slots: of each label, 0 or 1 + its place among those that a list has. beaten:
// of each training count, a score with which a label that no list has is not among the best.
typedef struct {
    float *totals, *scores, *beaten;
    int32_t *slots;
    int64_t *listed;
} scratch;

static void release(scratch *memory) {
    free(memory->totals), free(memory->scores), free(memory->slots), free(memory->listed);
    free(memory->beaten);
}

// Return the classifier of a label, or -1.
static int64_t classifier_of(const classifiers *sparse, int64_t label) {
    int64_t low = 0, high = sparse->num_covered;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sparse->labels[middle] < label) low = middle + 1;
        else high = middle;
    }
    return low < sparse->num_covered && sparse->labels[low] == label ? low : -1;
}

// Note the labels that the lists of a row have, and their scores; returns their number.
static int64_t note_lists(const int64_t *labels, const float *scores, const int64_t *member_of,
                          int64_t width, int64_t num_members, scratch *memory) {
    int64_t size = 0;
    for (int64_t i = 0; i < width; i++) {
        const int64_t label = labels[i];
        if (label < 0 || scores[i] == -INFINITY) continue;
        if (!memory->slots[label]) {
            memory->listed[size] = label;
            for (int64_t member = 0; member < num_members; member++)
                memory->scores[size * num_members + member] = -INFINITY;
            memory->slots[label] = (int32_t)++size;
        }
        memory->scores[(memory->slots[label] - 1) * num_members + member_of[i]] = scores[i];
    }
    return size;
}

// Write the k best labels of each row by the blend of a sparse model and of listed scores; return
// how many labels were scored for that.
//
// A label that no list has, with a sparse score at the floor or below it, has at most a blend that
// no text changes: those that may be among the best are known beforehand. All others are scored.
//
// sums: (place, classifier), and the place of each row among them; where there are none, they are
// summed here. listed, listed_scores: (row, width), NO_LABEL where there is none; member_of: of each
// column.
KERNEL blend_rank(const blend *of, const classifiers *sparse, const csr *features,
                  const float *sums, const int64_t *places, int64_t num_places,
                  const int64_t *listed, const float *listed_scores, const int64_t *member_of,
                  int64_t width, const bool *is_allowed, int64_t num_labels, double tail_dial,
                  int64_t k, int64_t *labels, float *scores) {
    const int64_t members = of->num_members, covered = sparse->num_covered;
    scratch memory = {calloc(covered + 1, sizeof(float)),
                      malloc((width + 1) * members * sizeof(float)),
                      malloc((of->num_counts + 1) * sizeof(float)),
                      calloc(num_labels + 1, sizeof(int32_t)),
                      malloc((width + 1) * sizeof(int64_t))};
    if (!memory.totals || !memory.scores || !memory.beaten || !memory.slots || !memory.listed) {
        release(&memory);
        return OUT_OF_MEMORY;
    }
    const float floor = sparse->num_ordered ? highest_at_floor(of, sparse->member) : -INFINITY;
    float *alone = memory.scores + width * members; // of a label that no list has
    for (int64_t i = 0; i < members; i++) alone[i] = -INFINITY;
    int64_t num_scored = 0;
    for (int64_t row = 0; row < features->num_rows; row++) {
        best_list best = {labels + row * k, scores + row * k, k, 0};
        const int64_t size = note_lists(listed + row * width, listed_scores + row * width, member_of,
                                        width, members, &memory);
        if (num_places)
            memcpy(memory.totals, sums + places[row] * covered, covered * sizeof(float));
        else add_up(features, row, sparse->weights, memory.totals, covered);
        for (int64_t i = 0; i < size; i++) {
            const int64_t label = memory.listed[i], place = classifier_of(sparse, label);
            float *own = memory.scores + i * members;
            if (place >= 0) own[sparse->member] = memory.totals[place] + sparse->bias[place];
            if (is_allowed[label]) best_offer(&best, label, dialled(of, tail_dial, label, own));
        }
        for (int64_t i = 0; i < of->num_counts; i++) memory.beaten[i] = -INFINITY;
        for (int64_t i = 0; i < covered; i++) { // by rising labels
            const float score = memory.totals[i] + sparse->bias[i];
            if (!(score > floor)) continue;
            const int64_t label = sparse->labels[i];
            float *beaten = memory.beaten + of->row_of[label];
            if (score <= *beaten || memory.slots[label] || !is_allowed[label]) continue;
            alone[sparse->member] = score;
            num_scored++;
            const float value = dialled(of, tail_dial, label, alone);
            if (best_takes(&best, label, value)) best_offer(&best, label, value);
            else if (tail_dial == 0) *beaten = score; // the blend rises with the score
        }
        for (int64_t i = 0; i < sparse->num_ordered; i++) {
            const int64_t place = sparse->order[i], label = sparse->labels[place];
            if (!best_takes(&best, label, sparse->at_floor[place])) break; // nor any later one
            const float score = memory.totals[place] + sparse->bias[place];
            if (is_allowed[label] && !memory.slots[label] && !(score > floor)) {
                alone[sparse->member] = score;
                best_offer(&best, label, dialled(of, tail_dial, label, alone));
            }
        }
        best_in_order(&best);
        num_scored += size;
        for (int64_t i = 0; i < size; i++) memory.slots[memory.listed[i]] = 0;
        if (row + 1 < features->num_rows) memset(memory.totals, 0, covered * sizeof(float));
    }
    release(&memory);
    return num_scored;
}
