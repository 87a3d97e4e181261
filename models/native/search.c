// The documents of largest inner product with sparse rows, exactly.
//
// Postings (the documents of each feature) propose, and inner products of whole rows decide: these
// are summed in float64 in the order of the document's features and rounded once, whoever asks.
#include <math.h>

#include "best.h"
#include "sorting.h"

// Whether the rest can be left out is looked at when so large a share of the postings is left.
static const double CHECK_AT = 0.6;
// Postings that take as long to read as one feature of a document that is compared.
static const double COMPARED = 2;
enum { STRETCH = 32 }; // documents of which it is noted whether any has been reached

// The documents, and what is known of one query.
typedef struct {
    const csr *documents, *postings;
    const float *largest;
    double longest;
    int64_t num_features;
    float *query, *totals;  // by feature and by document; 0 between queries
    bool *is_reached;       // of each stretch of documents; so likewise
    bool is_dense;          // whether nearly all are reached, which is not noted one by one
    keyed *order, *spare;   // the query's entries in the order of reading
    double *left, *bounds;  // before each: postings that are left, and what they can add
} search;

static int64_t num_postings(const csr *postings, int64_t feature) {
    return row_start(postings, feature + 1) - row_start(postings, feature);
}

// Order the features of a query by falling squared weight to number of postings.
static void plan(search *search, const csr *queries, int64_t begin, int64_t size) {
    double squares = 0, products = 0;
    for (int64_t i = 0; i < size; i++) {
        const double weight = queries->data[begin + i];
        const double count = num_postings(search->postings, column(queries, begin + i));
        search->order[i] = (keyed){-(weight * weight) / (count > 1 ? count : 1), begin + i};
    }
    sort_keyed(search->order, search->spare, size);
    search->left[size] = search->bounds[size] = 0;
    for (int64_t place = size - 1; place >= 0; place--) {
        const int64_t entry = search->order[place].index, feature = column(queries, entry);
        const double weight = queries->data[entry];
        squares += weight * weight;
        products += weight * search->largest[feature];
        const double norm = sqrt(squares) * search->longest;
        search->left[place] = search->left[place + 1] + num_postings(search->postings, feature);
        search->bounds[place] = norm < products ? norm : products;
    }
}

// Add a feature's weight times its value in each document to the totals.
static void add_postings(search *search, int64_t feature, float weight) {
    const csr *postings = search->postings;
    const int64_t end = row_start(postings, feature + 1);
    const uint64_t num_documents = search->documents->num_rows;
    float *totals = search->totals;
    bool *is_reached = search->is_reached;
    const bool is_dense = search->is_dense;
    for (int64_t i = row_start(postings, feature); i < end; i++) {
        const uint64_t document = column(postings, i);
        if (document >= num_documents) continue;
        totals[document] += weight * of_half(postings->halves[i]);
        if (!is_dense) is_reached[document / STRETCH] = true;
    }
}

static double product(const search *search, int64_t document) {
    const csr *documents = search->documents;
    const int64_t end = row_start(documents, document + 1);
    const uint64_t num_features = search->postings->num_rows;
    double total = 0;
    for (int64_t i = row_start(documents, document); i < end; i++) {
        const uint64_t feature = column(documents, i);
        if (feature < num_features)
            total += (double)search->query[feature] * of_half(documents->halves[i]);
    }
    return total;
}

// Return where the first stretch from here on begins that has been reached; or an end of all.
static inline int64_t next_reached(const search *search, int64_t first) {
    const int64_t num_documents = search->documents->num_rows;
    while (first < num_documents && !search->is_reached[first / STRETCH]) first += STRETCH;
    return first;
}

// Return a product that k documents reach: the smallest of those with the largest totals; 0 with
// fewer than k documents. What the list holds is overwritten.
static double kth_product(const search *search, best_list *best) {
    const int64_t num_documents = search->documents->num_rows;
    best->size = 0;
    for (int64_t i = next_reached(search, 0); i < num_documents;
         i = next_reached(search, i + STRETCH))
        for (int64_t document = i; document < i + STRETCH; document++)
            if (search->totals[document] > 0)
                best_offer(best, document, search->totals[document]);
    if (best->size < best->k) return 0;
    double least = INFINITY;
    for (int64_t place = 0; place < best->size; place++) {
        const double reached = product(search, best->labels[place]);
        if (reached < least) least = reached;
    }
    return least;
}

// Return the smallest float32 that is not below a number.
static float least_float(double least) {
    const float near = (float)least;
    return near < least ? nextafterf(near, INFINITY) : near;
}

static int64_t count_from(const search *search, float least) {
    const int64_t num_documents = search->documents->num_rows;
    int64_t count = 0;
    for (int64_t i = next_reached(search, 0); i < num_documents;
         i = next_reached(search, i + STRETCH))
        for (int64_t document = i; document < i + STRETCH; document++)
            count += search->totals[document] >= least;
    return count;
}

// List the best of the documents whose totals are large enough, the best first.
static void compare(const search *search, float least, best_list *best) {
    const int64_t num_documents = search->documents->num_rows;
    best->size = 0;
    for (int64_t i = next_reached(search, 0); i < num_documents;
         i = next_reached(search, i + STRETCH))
        for (int64_t document = i; document < i + STRETCH; document++) {
            if (!(search->totals[document] >= least && search->totals[document] > 0)) continue;
            const float found = (float)product(search, document);
            if (found > 0) best_offer(best, document, found);
        }
    best_in_order(best);
}

// Add up postings until few documents can be among the best, and compare these.
static void propose(search *search, const csr *queries, int64_t size, best_list *best) {
    const int64_t num_documents = search->documents->num_rows;
    const double cost = COMPARED * row_start(search->documents, num_documents) /
                        (num_documents > 1 ? num_documents : 1);
    const double slack = (size + 8) * 0x1p-23 * search->bounds[0]; // more than rounding can do
    double check_at = search->left[0] * CHECK_AT;
    for (int64_t place = 0; place < size; place++) {
        const int64_t entry = search->order[place].index;
        const double rest = search->left[place + 1];
        const bool is_last = place + 1 == size;
        add_postings(search, column(queries, entry), queries->data[entry]);
        if (!is_last && rest > check_at) continue;
        check_at = rest * CHECK_AT;
        const double reached = kth_product(search, best) - slack - search->bounds[place + 1];
        const float least = least_float(reached);
        if (!is_last && (reached <= 0 || count_from(search, least) * cost > rest)) continue;
        compare(search, least, best);
        return;
    }
}

// Search the neighbours of one row.
static void search_row(search *search, const csr *queries, int64_t row, best_list *best) {
    const int64_t begin = row_start(queries, row), end = row_start(queries, row + 1);
    const int64_t num_documents = search->documents->num_rows;
    for (int64_t i = begin; i < end; i++) search->query[column(queries, i)] = queries->data[i];
    plan(search, queries, begin, end - begin);
    search->is_dense = search->left[0] > num_documents;
    if (search->is_dense) memset(search->is_reached, true, num_documents / STRETCH + 1);
    propose(search, queries, end - begin, best);
    for (int64_t i = begin; i < end; i++) search->query[column(queries, i)] = 0;
    for (int64_t i = next_reached(search, 0); i < num_documents;
         i = next_reached(search, i + STRETCH)) {
        memset(search->totals + i, 0, STRETCH * sizeof(float));
        search->is_reached[i / STRETCH] = false;
    }
}

static bool allocate(search *search, const csr *queries) {
    int64_t longest = 0;
    for (int64_t row = 0; row < queries->num_rows; row++) {
        const int64_t size = num_postings(queries, row);
        if (size > longest) longest = size;
    }
    search->query = calloc(search->postings->num_rows + 1, sizeof(float));
    search->totals = calloc(search->documents->num_rows + STRETCH, sizeof(float));
    search->is_reached = calloc(search->documents->num_rows / STRETCH + 1, sizeof(bool));
    search->order = malloc((longest + 1) * sizeof(keyed));
    search->spare = malloc((longest + 1) * sizeof(keyed));
    search->left = malloc((longest + 1) * sizeof(double));
    search->bounds = malloc((longest + 1) * sizeof(double));
    return search->query && search->totals && search->is_reached && search->order &&
           search->spare && search->left && search->bounds;
}

KERNEL search_nearest(const csr *queries, const csr *documents, const csr *postings,
                      const float *largest, double longest, int64_t k, int64_t *found,
                      float *similarities) {
    search search = {
        .documents = documents, .postings = postings, .largest = largest, .longest = longest};
    const bool has_memory = allocate(&search, queries);
    for (int64_t row = 0; has_memory && row < queries->num_rows; row++) {
        best_list best = {found + row * k, similarities + row * k, k, 0};
        search_row(&search, queries, row, &best);
        for (int64_t place = best.size; place < k; place++)
            best.labels[place] = NO_LABEL, best.scores[place] = 0;
    }
    free(search.query), free(search.totals), free(search.is_reached), free(search.order);
    free(search.spare), free(search.left), free(search.bounds);
    return has_memory ? 0 : OUT_OF_MEMORY;
}
