// Which labels' names occur in texts, and how.
//
// A label is touched if the text has a key word of one of its names. Of the touched labels those
// are matched that share enough of a name's idf with the text, or are among the nearest.
#include <math.h>

#include "best.h"
#include "sorting.h"

enum { NUM_SEEN = 16, SENTENCE_END = -2 };
enum { PARTLY = 0, IN_A_SENTENCE = 1, AS_A_PHRASE = 2, AS_A_CODE = 3 };

// The names of all labels: `NameIndex` in match_kernels.py.
typedef struct {
    const int64_t *starts;
    const int32_t *words;
    const bool *is_preferred, *is_code;
    const int64_t *num_alike, *starts_of_labels, *relatives, *starts_of_relatives;
    const float *weights, *idf;
    const int64_t *pair_keys;
    const float *pair_idf;
    const int64_t *key_starts, *key_labels, *vector_starts, *vector_features;
    const float *vector_weights;
    int64_t num_words, num_pairs, num_labels;
} name_index;

// One text, and what is known of it. Of all words: how often each occurs, where its places begin,
// and whether it is in the title. Of all words and then all pairs: the text's unit vector. Of all
// labels: the cosine with the text. Between texts these are 0, but for `first`.
typedef struct {
    const name_index *index;
    const int32_t *pieces;
    int64_t num_pieces, title_length, num_found, num_pairs, num_touched, num_chosen;
    int32_t *counts;
    int64_t *first;
    bool *in_title;
    float *vector, *dots;
    int64_t *found, *pairs;       // known words and pairs, rising; of pairs, each once
    double *weights;              // of words, and then of pairs
    int64_t *places, *sentences;  // where the known words stand, those of one word together
    int64_t *longest;             // words of the longest name that covers each place
    int64_t *touched, room;       // labels; the chosen ones come first, rising
    int64_t *nearest;
    float *nearest_dots;
    int64_t num_nearest;
} text;

// Where a name stands in the sentences that have most of it.
typedef struct {
    double share;
    int64_t num_whole, first, last;
} standing;

// The matches of all texts so far.
typedef struct {
    int64_t *labels, *terms, *kinds;
    float *seen;
    int64_t size, room[4];
} matches;

// ---- places of words ----

// Return whether a word of a term is one of those before it.
static bool is_repeat(const name_index *index, int64_t term, int64_t at) {
    for (int64_t earlier = index->starts[term]; earlier < at; earlier++)
        if (index->words[earlier] == index->words[at]) return true;
    return false;
}

// Return the idf of the different words of a term that are in the text.
static double shared_idf(const text *text, int64_t term) {
    const name_index *index = text->index;
    double total = 0;
    for (int64_t at = index->starts[term]; at < index->starts[term + 1]; at++)
        if (text->counts[index->words[at]] && !is_repeat(index, term, at))
            total += index->idf[index->words[at]];
    return total;
}

// Return whether all words of a term are in the text.
static bool is_whole(const text *text, int64_t term) {
    const name_index *index = text->index;
    for (int64_t at = index->starts[term]; at < index->starts[term + 1]; at++)
        if (!text->counts[index->words[at]]) return false;
    return true;
}

// Return whether the words of a term stand at a place, in their order.
static bool is_phrase(const text *text, int64_t place, const int32_t *words, int64_t size) {
    return place + size <= text->num_pieces &&
           !memcmp(text->pieces + place, words, size * sizeof(int32_t));
}

// Note at each place the size of the longest name that covers it in its order.
static void mark_phrases(text *text, int64_t term) {
    if (!is_whole(text, term)) return;
    const int32_t *words = text->index->words + text->index->starts[term];
    const int64_t size = text->index->starts[term + 1] - text->index->starts[term];
    const int64_t begin = text->first[*words], end = begin + text->counts[*words];
    for (int64_t at = begin; at < end; at++) {
        int64_t *longest = text->longest + text->places[at];
        if (!is_phrase(text, text->places[at], words, size)) continue;
        for (int64_t offset = 0; offset < size; offset++)
            if (longest[offset] < size) longest[offset] = size;
    }
}

// Count how often the words of a term stand in order, and how often in no longer name.
static void count_phrases(const text *text, int64_t term, int64_t *count, int64_t *num_free) {
    *count = *num_free = 0;
    if (!is_whole(text, term)) return;
    const int32_t *words = text->index->words + text->index->starts[term];
    const int64_t size = text->index->starts[term + 1] - text->index->starts[term];
    const int64_t begin = text->first[*words], end = begin + text->counts[*words];
    for (int64_t at = begin; at < end; at++)
        if (is_phrase(text, text->places[at], words, size)) {
            *count += 1;
            *num_free += text->longest[text->places[at]] <= size;
        }
}

// Return the word of a term that occurs in the text the fewest times; -1 if none does.
static int32_t rarest_word(const text *text, int64_t term) {
    const name_index *index = text->index;
    int32_t rarest = -1;
    for (int64_t at = index->starts[term]; at < index->starts[term + 1]; at++) {
        const int32_t word = index->words[at], count = text->counts[word];
        if (count && (rarest < 0 || count < text->counts[rarest])) rarest = word;
    }
    return rarest;
}

// Return whether a word of the text occurs in a sentence.
static bool occurs(const text *text, int32_t word, int64_t sentence) {
    const int64_t *sentences = text->sentences + text->first[word], count = text->counts[word];
    const int64_t place = place_among(sentences, count, sentence);
    return place < count && sentences[place] == sentence;
}

// Return the share of a term's idf that is in one sentence.
static double share_in(const text *text, int64_t term, int64_t sentence) {
    const name_index *index = text->index;
    double total = 0;
    for (int64_t at = index->starts[term]; at < index->starts[term + 1]; at++) {
        const int32_t word = index->words[at];
        if (text->counts[word] && !is_repeat(index, term, at) && occurs(text, word, sentence))
            total += index->idf[word];
    }
    return total / index->weights[term];
}

// Return the largest share of a term's idf in a sentence with its rarest word; the number of
// sentences with all of its words; and the first and last place of that word, in the text, in a
// sentence of the largest share.
static standing in_sentences(const text *text, int64_t term) {
    const int32_t rarest = rarest_word(text, term);
    if (rarest < 0) return (standing){0, 0, 0, 0};
    const int64_t *places = text->places + text->first[rarest];
    const int64_t *sentences = text->sentences + text->first[rarest];
    standing found = {0, 0, *places, *places};
    for (int64_t at = 0; at < text->counts[rarest]; at++) {
        if (at && sentences[at] == sentences[at - 1]) continue;
        const double share = share_in(text, term, sentences[at]);
        found.num_whole += share > 0.999;
        if (share > found.share) found.share = share, found.first = places[at];
        if (share == found.share) found.last = places[at];
    }
    return found;
}

// ---- what a text has ----

// Count the known words, list them, and note the places and sentences of each.
static void read_words(text *text) {
    int64_t sentence = 0, size = 0;
    text->num_found = 0;
    for (int64_t place = 0; place < text->num_pieces; place++) {
        const int32_t word = text->pieces[place];
        if (word >= 0 && !text->counts[word]++) text->found[text->num_found++] = word;
    }
    sort_numbers(text->found, text->num_found);
    for (int64_t i = 0; i < text->num_found; i++) {
        text->first[text->found[i]] = size;
        size += text->counts[text->found[i]];
    }
    for (int64_t place = 0; place < text->num_pieces; place++) {
        const int32_t word = text->pieces[place];
        if (word >= 0) {
            text->places[text->first[word]] = place;
            text->sentences[text->first[word]++] = sentence;
        } else if (word == SENTENCE_END) {
            sentence++;
        }
    }
    for (int64_t i = 0; i < text->num_found; i++)
        text->first[text->found[i]] -= text->counts[text->found[i]];
}

static double square(double number) { return number * number; }

// List the pairs of words of names that stand side by side, and write (1 + ln tf) idf of each.
// Returns the sum of the squares of these.
static double read_pairs(text *text) {
    const name_index *index = text->index;
    double *weights = text->weights + text->num_found, total = 0;
    int64_t *pairs = text->pairs, size = 0;
    for (int64_t place = 0; place + 1 < text->num_pieces; place++) {
        if (text->pieces[place] < 0 || text->pieces[place + 1] < 0) continue;
        const int64_t key = (int64_t)text->pieces[place] << 32 | text->pieces[place + 1];
        const int64_t number = place_among(index->pair_keys, index->num_pairs, key);
        if (number < index->num_pairs && index->pair_keys[number] == key) pairs[size++] = number;
    }
    sort_numbers(pairs, size);
    text->num_pairs = 0;
    for (int64_t begin = 0, end = 0; begin < size; begin = end) {
        while (end < size && pairs[end] == pairs[begin]) end++;
        const double weight = (1 + log((double)(end - begin))) * index->pair_idf[pairs[begin]];
        weights[text->num_pairs] = weight;
        pairs[text->num_pairs++] = pairs[begin];
        total += square(weight);
    }
    return total;
}

// Write the unit vector of a text.
static void write_vector(text *text) {
    const name_index *index = text->index;
    double total = 0;
    for (int64_t i = 0; i < text->num_found; i++) {
        const int64_t word = text->found[i];
        text->weights[i] = (1 + log((double)text->counts[word])) * index->idf[word];
        total += square(text->weights[i]);
    }
    total += read_pairs(text);
    const double scale = 1 / sqrt(total > 1e-12 ? total : 1e-12);
    for (int64_t i = 0; i < text->num_found; i++)
        text->vector[text->found[i]] = text->weights[i] * scale;
    float *of_pairs = text->vector + index->num_words;
    for (int64_t i = 0; i < text->num_pairs; i++)
        of_pairs[text->pairs[i]] = text->weights[text->num_found + i] * scale;
}

static float cosine(const text *text, int64_t label) {
    const name_index *index = text->index;
    float total = 0;
    for (int64_t at = index->vector_starts[label]; at < index->vector_starts[label + 1]; at++)
        total += text->vector[index->vector_features[at]] * index->vector_weights[at];
    return total;
}

// List the labels of which the text has a key word, with the cosine of each; false without memory.
static bool touch(text *text) {
    const name_index *index = text->index;
    text->num_touched = 0;
    for (int64_t i = 0; i < text->num_found; i++) {
        const int64_t word = text->found[i];
        for (int64_t at = index->key_starts[word]; at < index->key_starts[word + 1]; at++) {
            const int64_t label = index->key_labels[at];
            if (text->dots[label] != 0) continue;
            if (!reserve(&text->touched, &text->room, text->num_touched + 1, sizeof(int64_t)))
                return false;
            text->touched[text->num_touched++] = label;
            text->dots[label] = fmaxf(cosine(text, label), 1e-9f);  // a code has none
        }
    }
    return true;
}

// Return the cosine that a label must have to be among the nearest.
static float least_dot(text *text) {
    if (text->num_touched <= text->num_nearest) return 0;
    best_list nearest = {text->nearest, text->nearest_dots, text->num_nearest, 0};
    for (int64_t i = 0; i < text->num_touched; i++)
        best_offer(&nearest, text->touched[i], text->dots[text->touched[i]]);
    return text->num_nearest > 0 ? nearest.scores[0] : INFINITY;
}

// Return whether one of a label's names has enough of its idf in the text.
static bool shares_enough(const text *text, int64_t label, double least_share) {
    const name_index *index = text->index;
    const int64_t end = index->starts_of_labels[label + 1];
    for (int64_t term = index->starts_of_labels[label]; term < end; term++)
        if (shared_idf(text, term) >= least_share * index->weights[term]) return true;
    return false;
}

// Bring the labels that are matched to the front of the touched ones.
static void choose(text *text, double least_share) {
    const float least = least_dot(text);
    int64_t size = 0;
    for (int64_t i = 0; i < text->num_touched; i++) {
        const int64_t label = text->touched[i];
        if (!(text->dots[label] >= least || shares_enough(text, label, least_share))) continue;
        text->touched[i] = text->touched[size];
        text->touched[size++] = label;
    }
    sort_numbers(text->touched, size);
    text->num_chosen = size;
}

// ---- what is told of a match ----

// Write the features of a match that its places decide, and its best term with the kind.
static void describe_places(const text *text, int64_t label, int64_t *best_term, int64_t *best_kind,
                            float *seen) {
    const name_index *index = text->index;
    const double size = (double)(text->num_pieces + 1);
    int64_t num_phrases = 0, num_free = 0, own_phrases, own_free;
    double best = -1;
    *best_term = *best_kind = 0;
    for (int64_t term = index->starts_of_labels[label]; term < index->starts_of_labels[label + 1];
         term++) {
        count_phrases(text, term, &own_phrases, &own_free);
        num_phrases += own_phrases, num_free += own_free;
        const standing place = in_sentences(text, term);
        const double shared = shared_idf(text, term) / index->weights[term];
        const int64_t whole = index->is_code[term] ? AS_A_CODE : AS_A_PHRASE;
        const int64_t kind = own_free ? whole : place.num_whole ? IN_A_SENTENCE : PARTLY;
        // The kind decides, then the share in a sentence, then that anywhere; ties: the first.
        const double value = (double)(4 * kind) + 2 * place.share + shared;
        if (!(value > best)) continue;
        best = value, *best_term = term, *best_kind = kind;
        seen[0] = shared, seen[1] = place.share;
        seen[3] = log1p((double)place.num_whole);
        seen[4] = (double)(place.first + 1) / size;
        seen[5] = (double)(place.last + 1) / size;
    }
    seen[2] = log1p((double)num_free);
    seen[11] = num_phrases ? (double)num_free / (double)num_phrases : 1;
}

// Write the features of a match that its term and the title decide.
static void describe_term(const text *text, int64_t term, float *seen) {
    const name_index *index = text->index;
    double total = 0;
    for (int64_t at = index->starts[term]; at < index->starts[term + 1]; at++)
        if (text->in_title[index->words[at]] && !is_repeat(index, term, at))
            total += index->idf[index->words[at]];
    seen[6] = total / index->weights[term];
    seen[7] = index->is_preferred[term];
    seen[8] = (float)(index->starts[term + 1] - index->starts[term]);
    seen[9] = index->weights[term];
    seen[10] = log1p((double)index->num_alike[term]);
}

// Return how many broader and narrower labels are found with all words of a name.
static int64_t num_whole_relatives(const text *text, int64_t label, const int64_t *kinds) {
    const name_index *index = text->index;
    const int64_t *chosen = text->touched, size = text->num_chosen;
    int64_t count = 0;
    for (int64_t at = index->starts_of_relatives[label];
         at < index->starts_of_relatives[label + 1]; at++) {
        const int64_t other = place_among(chosen, size, index->relatives[at]);
        if (other < size && chosen[other] == index->relatives[at]) count += kinds[other] != PARTLY;
    }
    return count;
}

static void mark_title(text *text, bool is_there) {
    for (int64_t place = 0; place < text->title_length; place++)
        if (text->pieces[place] >= 0) text->in_title[text->pieces[place]] = is_there;
}

// Note the longest names of the text; return the largest cosine of the matched labels.
static float mark_names(text *text) {
    const int64_t *starts = text->index->starts_of_labels;
    float largest = 1e-9f;
    memset(text->longest, 0, text->num_pieces * sizeof(int64_t));
    for (int64_t i = 0; i < text->num_chosen; i++) {
        const int64_t label = text->touched[i];
        if (text->dots[label] > largest) largest = text->dots[label];
        for (int64_t term = starts[label]; term < starts[label + 1]; term++)
            mark_phrases(text, term);
    }
    return largest;
}

// Write the best term of each matched label, and the features of the match.
static void describe(text *text, int64_t *labels, int64_t *terms, int64_t *kinds, float *seen) {
    const float largest = mark_names(text);
    mark_title(text, true);
    for (int64_t i = 0; i < text->num_chosen; i++) {
        const int64_t label = labels[i] = text->touched[i];
        float *own = seen + i * NUM_SEEN;
        describe_places(text, label, &terms[i], &kinds[i], own);
        describe_term(text, terms[i], own);
        own[12] = text->dots[label];
        own[13] = text->dots[label] / largest;
        own[14] = log1p((double)text->num_pieces);
    }
    for (int64_t i = 0; i < text->num_chosen; i++)
        seen[i * NUM_SEEN + 15] = (float)num_whole_relatives(text, labels[i], kinds);
    mark_title(text, false);
}

// ---- all texts ----

static bool allocate(text *text, int64_t longest, int64_t num_nearest) {
    const name_index *index = text->index;
    text->num_nearest = num_nearest;
    text->counts = calloc(index->num_words + 1, sizeof(int32_t));
    text->first = malloc((index->num_words + 1) * sizeof(int64_t));
    text->in_title = calloc(index->num_words + 1, sizeof(bool));
    text->vector = calloc(index->num_words + index->num_pairs + 1, sizeof(float));
    text->dots = calloc(index->num_labels + 1, sizeof(float));
    text->found = malloc((longest + 1) * sizeof(int64_t));
    text->pairs = malloc((longest + 1) * sizeof(int64_t));
    text->weights = malloc((2 * longest + 1) * sizeof(double));
    text->places = malloc((longest + 1) * sizeof(int64_t));
    text->sentences = malloc((longest + 1) * sizeof(int64_t));
    text->longest = malloc((longest + 1) * sizeof(int64_t));
    text->nearest = malloc((num_nearest + 1) * sizeof(int64_t));
    text->nearest_dots = malloc((num_nearest + 1) * sizeof(float));
    return text->counts && text->first && text->in_title && text->vector && text->dots &&
           text->found && text->pairs && text->weights && text->places && text->sentences &&
           text->longest && text->nearest && text->nearest_dots;
}

static void release(text *text) {
    free(text->counts), free(text->first), free(text->in_title), free(text->vector);
    free(text->dots), free(text->found), free(text->pairs), free(text->weights);
    free(text->places), free(text->sentences), free(text->longest), free(text->touched);
    free(text->nearest), free(text->nearest_dots);
}

// Set to 0 what is so between texts, but for the cosines.
static void wipe_vector(text *text) {
    for (int64_t i = 0; i < text->num_found; i++)
        text->vector[text->found[i]] = 0, text->counts[text->found[i]] = 0;
    for (int64_t i = 0; i < text->num_pairs; i++)
        text->vector[text->index->num_words + text->pairs[i]] = 0;
}

static bool make_room(matches *all, int64_t more) {
    const int64_t size = all->size + more;
    return reserve(&all->labels, &all->room[0], size, sizeof(int64_t)) &&
           reserve(&all->terms, &all->room[1], size, sizeof(int64_t)) &&
           reserve(&all->kinds, &all->room[2], size, sizeof(int64_t)) &&
           reserve(&all->seen, &all->room[3], size, NUM_SEEN * sizeof(float));
}

// Append the matches of one text; false without memory.
static bool match(text *text, double least_share, matches *all) {
    read_words(text);
    write_vector(text);
    if (!touch(text)) return false;
    choose(text, least_share);
    const int64_t at = all->size;
    if (!make_room(all, text->num_chosen)) return false;
    describe(text, all->labels + at, all->terms + at, all->kinds + at, all->seen + at * NUM_SEEN);
    all->size += text->num_chosen;
    for (int64_t i = 0; i < text->num_touched; i++) text->dots[text->touched[i]] = 0;
    wipe_vector(text);
    return true;
}

KERNEL match_texts(const int32_t *pieces, const int64_t *starts, int64_t num_texts,
                   const int64_t *title_lengths, const name_index *index, double least_share,
                   int64_t num_nearest, int64_t *match_starts, grown *found) {
    matches all = {0};
    text text = {.index = index};
    int64_t longest = 0;
    for (int64_t i = 0; i < num_texts; i++)
        if (starts[i + 1] - starts[i] > longest) longest = starts[i + 1] - starts[i];
    bool has_memory = allocate(&text, longest, num_nearest);
    match_starts[0] = 0;
    for (int64_t i = 0; has_memory && i < num_texts; i++) {
        text.pieces = pieces + starts[i], text.num_pieces = starts[i + 1] - starts[i];
        text.title_length = smaller(title_lengths[i], text.num_pieces);
        has_memory = match(&text, least_share, &all);
        match_starts[i + 1] = all.size;
    }
    release(&text);
    if (!has_memory) {
        free(all.labels), free(all.terms), free(all.kinds), free(all.seen);
        return OUT_OF_MEMORY;
    }
    found[0] = (grown){all.labels, all.size}, found[1] = (grown){all.terms, all.size};
    found[2] = (grown){all.kinds, all.size}, found[3] = (grown){all.seen, all.size * NUM_SEEN};
    return 0;
}
