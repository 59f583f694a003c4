// tokenizer_special: finds the tokens that are matched as they are spelled, before the raw text
// between them is tokenized: user-defined ones always, control and unknown ones on demand.
//
// Longer tokens win over shorter ones wherever they overlap, not only at the same place; among
// tokens of one length the leftmost wins. So the text is scanned once for each length, longest
// first, and a scan looks only at what the earlier ones left raw.
#include "model/tokenizer_impl.h"

#include "base/mem.h"

#include <string.h>

static int get_bit(const uint8_t *bits, unsigned i) {
    return bits[i / 8] >> (i % 8) & 1;
}

static void set_bit(uint8_t *bits, unsigned i) {
    bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << (i % 8));
}

// The group of a length, made when there is none; NULL when memory runs out. The list stays in
// order, longest first.
static struct kiln_special_group *group_of(struct kiln_specials *specials, size_t len) {
    size_t low = 0, high = specials->n_groups;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (specials->groups[mid].len > len) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low < specials->n_groups && specials->groups[low].len == len) {
        return &specials->groups[low];
    }
    if (kiln_grow(&specials->groups, &specials->cap, specials->n_groups + 1,
                sizeof(*specials->groups)) != 0) {
        return NULL;
    }
    struct kiln_special_group *group = &specials->groups[low];
    memmove(group + 1, group, (specials->n_groups - low) * sizeof(*group));
    *group = (struct kiln_special_group){.len = len};
    specials->n_groups++;
    return group;
}

enum kiln_status kiln_specials_open(
        struct kiln_specials *specials, const struct kiln_vocab *vocab, struct kiln_err *err) {
    for (int32_t id = 0; id < vocab->size; id++) {
        int user = vocab->types[id] == KILN_TOKEN_USER;
        struct kiln_str text = kiln_vocab_text(vocab, id);
        if (text.len == 0 || (!user && !kiln_vocab_is_control(vocab, id))) {
            continue;
        }
        struct kiln_special_group *group = group_of(specials, text.len);
        if (!group) {
            return kiln_err_nomem(err, "the table of special tokens");
        }
        group->user |= user;
        unsigned first = (unsigned char)text.data[0];
        set_bit(group->first, first);
        // A token of one byte may be followed by anything.
        for (unsigned second = 0; second < 256; second++) {
            if (text.len == 1 || second == (unsigned char)text.data[1]) {
                set_bit(specials->pairs, first * 256 + second);
            }
        }
    }
    return KILN_STATUS_OK;
}

void kiln_specials_close(struct kiln_specials *specials) {
    kiln_free(specials->groups);
    *specials = (struct kiln_specials){0};
}

static enum kiln_status add(
        struct kiln_fragments *list, const struct kiln_fragment *fragment, struct kiln_err *err) {
    if (kiln_grow(&list->at, &list->cap, list->len + 1, sizeof(*list->at)) != 0) {
        return kiln_err_nomem(err, "the pieces of the text");
    }
    list->at[list->len++] = *fragment;
    return KILN_STATUS_OK;
}

// The token of the group that stands at text[0..len), or -1.
static int32_t token_at(const struct kiln_specials *specials,
        const struct kiln_special_group *group, const struct kiln_vocab *vocab, const char *text,
        size_t len, int control) {
    unsigned first = (unsigned char)text[0];
    unsigned second = len > 1 ? (unsigned char)text[1] : 0;
    if (len < group->len || !get_bit(group->first, first) ||
            !get_bit(specials->pairs, first * 256 + second)) {
        return -1;
    }
    int32_t id = kiln_vocab_find(vocab, text, group->len);
    if (id < 0 || vocab->types[id] == KILN_TOKEN_USER) {
        return id;
    }
    return control && kiln_vocab_is_control(vocab, id) ? id : -1;
}

// Cuts one raw fragment at the group's tokens. The pieces take its place in the list.
static enum kiln_status cut(const struct kiln_specials *specials,
        const struct kiln_special_group *group, const struct kiln_vocab *vocab, const char *text,
        size_t index, int control, struct kiln_fragments *list, struct kiln_err *err) {
    size_t from = list->at[index].start, end = from + list->at[index].len;
    for (size_t at = from; at + group->len <= end; at++) {
        int32_t id = token_at(specials, group, vocab, text + at, end - at, control);
        if (id < 0) {
            continue;
        }
        // index: what lies before the token; then the token; then the rest, which is scanned on.
        struct kiln_fragment token = {
                .start = at, .len = group->len, .id = id, .next = list->len + 1};
        struct kiln_fragment rest = {.start = at + group->len,
                .len = end - at - group->len,
                .id = -1,
                .next = list->at[index].next};
        size_t token_index = list->len;
        KILN_TRY(add(list, &token, err));
        KILN_TRY(add(list, &rest, err));
        list->at[index].len = at - from;
        list->at[index].next = token_index;
        index = token_index + 1;
        from = at + group->len;
        at = from - 1;
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_specials_split(const struct kiln_specials *specials,
        const struct kiln_vocab *vocab, const char *text, size_t len, int control,
        struct kiln_fragments *list, struct kiln_err *err) {
    struct kiln_fragment whole = {.len = len, .id = -1, .next = SIZE_MAX};
    KILN_TRY(add(list, &whole, err));
    for (size_t g = 0; g < specials->n_groups; g++) {
        const struct kiln_special_group *group = &specials->groups[g];
        if (!group->user && !control) {
            continue;
        }
        for (size_t i = 0, next; i != SIZE_MAX; i = next) {
            next = list->at[i].next;
            if (list->at[i].id < 0 && list->at[i].len >= group->len) {
                KILN_TRY(cut(specials, group, vocab, text, i, control, list, err));
            }
        }
    }
    return KILN_STATUS_OK;
}
