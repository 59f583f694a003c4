// tokenizer_special: finds the tokens that are matched as they are spelled, before the raw text
// between them is tokenized: user-defined ones always, control and unknown ones on demand.
//
// Longer tokens win over shorter ones wherever they overlap, not only at the same place; among
// tokens of one length the leftmost wins. The spellings are ordered, so that all tokens that stand
// at one place are found by narrowing a range byte by byte, whatever lengths there are. The first
// scan counts what was found by length; then the matches are gathered and ordered, as many lengths
// at once as memory is set aside for.
#include "model/tokenizer_impl.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_MATCHES = 1 << 20 // gathered at once
};

static int get_bit(const uint64_t *bits, size_t i) {
    return (int)(bits[i / 64] >> (i % 64) & 1);
}

static void set_bit(uint64_t *bits, size_t i) {
    bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static int has_pair(const struct kiln_specials *specials, unsigned first, unsigned second) {
    return specials->pairs[first * 32 + second / 8] >> (second % 8) & 1;
}

// ---- the table

static void note_pairs(struct kiln_specials *specials, const struct kiln_str *text) {
    unsigned first = (unsigned char)text->data[0];
    // A token of one byte may be followed by anything.
    for (unsigned second = 0; second < 256; second++) {
        if (text->len == 1 || second == (unsigned char)text->data[1]) {
            uint8_t *bits = &specials->pairs[first * 32 + second / 8];
            *bits = (uint8_t)(*bits | 1u << (second % 8));
        }
    }
}

static int by_length(const void *a, const void *b) {
    uint32_t left = ((const struct kiln_special *)a)->len;
    uint32_t right = ((const struct kiln_special *)b)->len;
    return (left < right) - (left > right);
}

static int by_spelling(const void *a, const void *b) {
    const struct kiln_special *left = a, *right = b;
    size_t len = left->len < right->len ? left->len : right->len;
    int order = memcmp(left->text, right->text, len);
    return order != 0 ? order : (left->len > right->len) - (left->len < right->len);
}

static void order(struct kiln_specials *specials) {
    qsort(specials->at, specials->len, sizeof(*specials->at), by_length);
    for (size_t i = 0; i < specials->len; i++) {
        if (i == 0 || specials->at[i].len != specials->at[i - 1].len) {
            specials->n_ranks++;
        }
        specials->at[i].rank = (uint32_t)specials->n_ranks - 1;
    }
    qsort(specials->at, specials->len, sizeof(*specials->at), by_spelling);
}

enum kiln_status kiln_specials_open(
        struct kiln_specials *specials, const struct kiln_vocab *vocab, struct kiln_err *err) {
    size_t cap = 0;
    for (int32_t id = 0; id < vocab->size; id++) {
        struct kiln_str text = kiln_vocab_text(vocab, id);
        int special = vocab->types[id] == KILN_TOKEN_USER || kiln_vocab_is_control(vocab, id);
        // Of several tokens with one spelling only the one that is found counts. Texts are shorter.
        if (!special || text.len == 0 || text.len >= UINT32_MAX ||
                kiln_vocab_find(vocab, text.data, text.len) != id) {
            continue;
        }
        if (kiln_grow(&specials->at, &cap, specials->len + 1, sizeof(*specials->at)) != 0) {
            return kiln_err_nomem(err, "the table of special tokens");
        }
        specials->at[specials->len++] =
                (struct kiln_special){.text = text.data, .len = (uint32_t)text.len, .id = id};
        note_pairs(specials, &text);
    }
    if (specials->len > 0) {
        order(specials);
    }
    return KILN_STATUS_OK;
}

void kiln_specials_close(struct kiln_specials *specials) {
    kiln_free(specials->at);
    *specials = (struct kiln_specials){0};
}

// ---- all tokens that stand at one place

// The specials in [low, high) begin with the `depth` bytes at text.
struct walk {
    const char *text;
    size_t len; // to the end of the text
    size_t low;
    size_t high;
    size_t depth;
};

// The first in [walk->low, walk->high) whose byte at the walk's depth is at least `byte`.
static size_t first_from(const struct kiln_specials *specials, const struct walk *walk,
        unsigned byte, uint64_t *steps) {
    size_t low = walk->low, high = walk->high;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        ++*steps;
        if ((unsigned char)specials->at[mid].text[walk->depth] < byte) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

// The next token that stands there, shortest first; NULL when there is no more.
static const struct kiln_special *next_match(
        const struct kiln_specials *specials, struct walk *walk, uint64_t *steps) {
    while (walk->low < walk->high && walk->depth < walk->len) {
        if (walk->high - walk->low == 1) {
            const struct kiln_special *last = &specials->at[walk->low++];
            ++*steps;
            return last->len <= walk->len &&
                                   memcmp(last->text + walk->depth, walk->text + walk->depth,
                                           last->len - walk->depth) == 0
                           ? last
                           : NULL;
        }
        unsigned byte = (unsigned char)walk->text[walk->depth];
        walk->low = first_from(specials, walk, byte, steps);
        walk->high = first_from(specials, walk, byte + 1, steps);
        walk->depth++;
        if (walk->low < walk->high && specials->at[walk->low].len == walk->depth) {
            return &specials->at[walk->low++]; // the shortest comes first
        }
    }
    return NULL;
}

// ---- cutting

struct scan {
    const struct kiln_specials *specials;
    const struct kiln_vocab *vocab;
    const char *text;
    size_t len;
    int control;
    struct kiln_cuts *cuts;
    size_t from; // ranks of the lengths that are looked for: [from, to)
    size_t to;
    uint64_t *matches; // (n_matches) rank in the upper half, place in the lower
    size_t n_matches;
    uint32_t *counts; // (n_ranks)
};

// What is done with a match.
typedef void (*match_fn)(struct scan *scan, const struct kiln_special *special, size_t at);

static void for_matches(struct scan *scan, match_fn do_match) {
    const struct kiln_specials *specials = scan->specials;
    const unsigned char *text = (const unsigned char *)scan->text;
    for (size_t at = 0; at < scan->len; at++) {
        if (!has_pair(specials, text[at], at + 1 < scan->len ? text[at + 1] : 0) ||
                (scan->cuts->covered && get_bit(scan->cuts->covered, at))) {
            continue;
        }
        struct walk walk = {.text = scan->text + at, .len = scan->len - at, .high = specials->len};
        const struct kiln_special *special;
        while ((special = next_match(specials, &walk, &scan->cuts->steps)) != NULL) {
            if (special->rank >= scan->from && special->rank < scan->to &&
                    (scan->control || scan->vocab->types[special->id] == KILN_TOKEN_USER)) {
                do_match(scan, special, at);
            }
        }
    }
}

static void count(struct scan *scan, const struct kiln_special *special, size_t at) {
    (void)at;
    scan->counts[special->rank]++;
}

static void gather(struct scan *scan, const struct kiln_special *special, size_t at) {
    scan->matches[scan->n_matches++] = (uint64_t)special->rank << 32 | at;
}

// No token in place is shorter than this one, so one that overlaps it covers an end of it.
static void place(struct kiln_cuts *cuts, size_t at, size_t len) {
    if (get_bit(cuts->covered, at) || get_bit(cuts->covered, at + len - 1)) {
        return;
    }
    set_bit(cuts->starts, at);
    for (size_t i = at; i < at + len; i++) {
        set_bit(cuts->covered, i);
    }
}

static void place_match(struct scan *scan, const struct kiln_special *special, size_t at) {
    place(scan->cuts, at, special->len);
}

static int by_value(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

// Looks the match's length up again: the token of that rank that stands there.
static void place_gathered(struct scan *scan) {
    qsort(scan->matches, scan->n_matches, sizeof(*scan->matches), by_value);
    for (size_t i = 0; i < scan->n_matches; i++) {
        size_t at = scan->matches[i] & UINT32_MAX, rank = scan->matches[i] >> 32;
        struct walk walk = {
                .text = scan->text + at, .len = scan->len - at, .high = scan->specials->len};
        const struct kiln_special *special;
        while ((special = next_match(scan->specials, &walk, &scan->cuts->steps)) != NULL) {
            if (special->rank == rank) {
                place(scan->cuts, at, special->len);
                break;
            }
        }
    }
    scan->n_matches = 0;
}

// Places the matches of as many lengths at once as there is memory for, longest first.
static enum kiln_status place_all(struct scan *scan, struct kiln_err *err) {
    size_t most = 0;
    for (size_t to = 0; to < scan->specials->n_ranks;) {
        size_t sum = scan->counts[to];
        scan->from = to++;
        for (; to < scan->specials->n_ranks && sum + scan->counts[to] <= MAX_MATCHES; to++) {
            sum += scan->counts[to];
        }
        scan->to = to;
        if (sum == 0) {
            continue;
        }
        if (to == scan->from + 1) { // of one length they come in the right order
            for_matches(scan, place_match);
            continue;
        }
        if (sum > most) {
            kiln_free(scan->matches);
            scan->matches = kiln_alloc(sum * sizeof(*scan->matches));
            most = sum;
        }
        if (!scan->matches) {
            return kiln_err_nomem(err, "the special tokens of a text");
        }
        for_matches(scan, gather);
        place_gathered(scan);
    }
    return KILN_STATUS_OK;
}

static int has_any(const struct scan *scan) {
    for (size_t rank = 0; rank < scan->specials->n_ranks; rank++) {
        if (scan->counts[rank]) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_status cut(struct scan *scan, struct kiln_err *err) {
    scan->counts = kiln_calloc(scan->specials->n_ranks, sizeof(*scan->counts));
    if (!scan->counts) {
        return kiln_err_nomem(err, "the special tokens of a text");
    }
    scan->to = scan->specials->n_ranks;
    for_matches(scan, count);
    if (!has_any(scan)) {
        return KILN_STATUS_OK;
    }
    scan->cuts->covered = kiln_calloc(scan->len / 64 + 1, sizeof(*scan->cuts->covered));
    scan->cuts->starts = kiln_calloc(scan->len / 64 + 1, sizeof(*scan->cuts->starts));
    if (!scan->cuts->covered || !scan->cuts->starts) {
        return kiln_err_nomem(err, "the special tokens of a text");
    }
    return place_all(scan, err);
}

enum kiln_status kiln_specials_cut(const struct kiln_specials *specials,
        const struct kiln_vocab *vocab, const char *text, size_t len, int control,
        struct kiln_cuts *cuts, struct kiln_err *err) {
    *cuts = (struct kiln_cuts){.len = len};
    if (specials->len == 0 || len == 0) {
        return KILN_STATUS_OK;
    }
    struct scan scan = {.specials = specials,
            .vocab = vocab,
            .text = text,
            .len = len,
            .control = control,
            .cuts = cuts};
    enum kiln_status status = cut(&scan, err);
    kiln_free(scan.counts);
    kiln_free(scan.matches);
    return status;
}

size_t kiln_cuts_end(const struct kiln_cuts *cuts, size_t at, int *token) {
    *token = 0;
    if (!cuts->covered) {
        return cuts->len;
    }
    *token = get_bit(cuts->covered, at);
    size_t end = at + 1;
    while (end < cuts->len && get_bit(cuts->covered, end) == *token &&
            !(*token && get_bit(cuts->starts, end))) {
        end++;
    }
    return end;
}

void kiln_cuts_finish(struct kiln_cuts *cuts) {
    kiln_free(cuts->covered);
    kiln_free(cuts->starts);
    *cuts = (struct kiln_cuts){0};
}
