// tokenizer_merge: the merge loop of both kinds: the pair with the lowest key first, the leftmost
// of equals.
//
// The key of each pair stands at its left symbol; a tree of minima over them finds the next one. A
// merge changes three keys. Unlike a heap, which keeps the pairs that have since gone, this takes
// the same memory whatever the text is: 9 bytes a byte.
#include "model/tokenizer_impl.h"

#include "base/mem.h"

#include <string.h>

enum {
    FAN = 16,
    MAX_SLACK = 1 << 16 // numbers
};

static int is_start(const struct kiln_merger *merger, uint32_t at) {
    return (int)(merger->starts[at / 32] >> (at % 32) & 1);
}

// ---- the tree

static uint32_t lowest(const uint32_t *keys, uint32_t count) {
    uint32_t low = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        low = keys[i] < low ? keys[i] : low;
    }
    return low;
}

// The lowest key of the group of FAN that makes entry `group` of the level above.
static uint32_t group_lowest(const struct kiln_merger *merger, int level, uint32_t group) {
    uint32_t from = group * FAN, left = merger->level_len[level] - from;
    return lowest(merger->levels[level] + from, left < FAN ? left : FAN);
}

static void build_tree(struct kiln_merger *merger) {
    for (int level = 1; level < merger->n_levels; level++) {
        for (uint32_t i = 0; i < merger->level_len[level]; i++) {
            merger->levels[level][i] = group_lowest(merger, level - 1, i);
        }
    }
}

static void set_key(struct kiln_merger *merger, uint32_t at, uint32_t key) {
    merger->keys[at] = key;
    for (int level = 1; level < merger->n_levels; level++) {
        at /= FAN;
        uint32_t low = group_lowest(merger, level - 1, at);
        if (merger->levels[level][at] == low) {
            return;
        }
        merger->levels[level][at] = low;
    }
}

// The leftmost of the lowest keys; 0 when no pair is left.
static int find_lowest(const struct kiln_merger *merger, uint32_t *at) {
    int level = merger->n_levels - 1;
    uint32_t key = lowest(merger->levels[level], merger->level_len[level]);
    if (key == UINT32_MAX) {
        return 0;
    }
    uint32_t i = 0;
    for (; level >= 0; level--) {
        while (merger->levels[level][i] != key) {
            i++;
        }
        i *= level > 0 ? FAN : 1;
    }
    *at = i;
    return 1;
}

// ---- the symbols

static void lay_out(struct kiln_merger *merger) {
    uint32_t *at = merger->block;
    merger->slots = at;
    merger->keys = at + merger->len;
    merger->starts = merger->keys + merger->len;
    at = merger->starts + merger->len / 32 + 1;
    merger->levels[0] = merger->keys;
    merger->level_len[0] = merger->len;
    merger->n_levels = 1;
    for (uint32_t count = merger->len; count > FAN;) {
        count = (count + FAN - 1) / FAN;
        merger->levels[merger->n_levels] = at;
        merger->level_len[merger->n_levels++] = count;
        at += count;
    }
}

enum kiln_status kiln_merger_start(
        struct kiln_merger *merger, const char *text, size_t len, struct kiln_err *err) {
    // Slots and keys, a bit each, and a fifteenth of the keys for the levels above them.
    size_t need = 2 * len + len / 32 + len / (FAN - 1) + KILN_MERGER_LEVELS + 1;
    if (len >= (size_t)1 << 31) {
        return kiln_err_nomem(err, "the symbols of a word");
    }
    if (need > merger->block_cap) {
        kiln_free(merger->block);
        // Words that get longer and longer are few blocks, and a word that is a file has its size.
        merger->block_cap = need + (need < MAX_SLACK ? need : MAX_SLACK);
        merger->block = kiln_alloc(merger->block_cap * sizeof(*merger->block));
        if (!merger->block) {
            merger->block_cap = 0;
            return kiln_err_nomem(err, "the symbols of a word");
        }
    }
    merger->text = text;
    merger->len = (uint32_t)len;
    lay_out(merger);
    memset(merger->keys, 0xff, len * sizeof(*merger->keys));
    memset(merger->starts, 0, (len / 32 + 1) * sizeof(*merger->starts));
    return KILN_STATUS_OK;
}

void kiln_merger_put(struct kiln_merger *merger, uint32_t at, uint32_t len, int32_t id) {
    merger->slots[at] = (uint32_t)id;
    merger->starts[at / 32] |= 1u << (at % 32);
    if (len > 1) {
        merger->slots[at + 1] = len;
        merger->slots[at + len - 1] = len;
    }
}

int32_t kiln_merger_id(const struct kiln_merger *merger, uint32_t at) {
    return (int32_t)merger->slots[at];
}

uint32_t kiln_merger_len(const struct kiln_merger *merger, uint32_t at) {
    return at + 1 == merger->len || is_start(merger, at + 1) ? 1 : merger->slots[at + 1];
}

// ---- merging

// The key of the pair whose left symbol is at `left`.
static uint32_t key_of(struct kiln_merger *merger, const struct kiln_tokenizer *tokenizer,
        kiln_merge_fn find, uint32_t left) {
    uint32_t right = left + kiln_merger_len(merger, left);
    struct kiln_merge merge;
    return right < merger->len && find(tokenizer, merger, left, right,
                                          right - left + kiln_merger_len(merger, right), &merge)
                   ? merge.key
                   : UINT32_MAX;
}

// Makes one symbol of the pair at `left`.
static void merge_pair(struct kiln_merger *merger, const struct kiln_tokenizer *tokenizer,
        kiln_merge_fn find, uint32_t left) {
    uint32_t right = left + kiln_merger_len(merger, left);
    uint32_t len = right - left + kiln_merger_len(merger, right);
    struct kiln_merge merge;
    if (!find(tokenizer, merger, left, right, len, &merge)) { // out of memory: the caller sees it
        set_key(merger, left, UINT32_MAX);
        return;
    }
    set_key(merger, right, UINT32_MAX);
    merger->starts[right / 32] &= ~(1u << (right % 32));
    kiln_merger_put(merger, left, len, merge.id);
    set_key(merger, left, key_of(merger, tokenizer, find, left));
    if (left > 0) {
        uint32_t prev = left - (is_start(merger, left - 1) ? 1 : merger->slots[left - 1]);
        set_key(merger, prev, key_of(merger, tokenizer, find, prev));
    }
}

enum kiln_status kiln_merger_run(struct kiln_merger *merger, const struct kiln_tokenizer *tokenizer,
        kiln_merge_fn find, struct kiln_err *err) {
    for (uint32_t at = 0; at < merger->len; at += kiln_merger_len(merger, at)) {
        merger->keys[at] = key_of(merger, tokenizer, find, at);
    }
    build_tree(merger);
    for (uint32_t left; find_lowest(merger, &left);) {
        merge_pair(merger, tokenizer, find, left);
    }
    return merger->buf.failed ? kiln_err_nomem(err, "merging a word of the text") : KILN_STATUS_OK;
}

void kiln_merger_finish(struct kiln_merger *merger) {
    kiln_free(merger->block);
    kiln_buf_finish(&merger->buf);
    *merger = (struct kiln_merger){0};
}
