// tokenizer_merge: the merge loop of both kinds: the pair with the lowest key first, the leftmost
// of equals.
//
// Candidate pairs wait in a binary heap. A pair whose symbols have since been merged stays there
// and is recognised when it comes up: symbols only grow, so it is stale exactly when the length is
// another.
#include "model/tokenizer_impl.h"

#include "base/mem.h"

static int before(const struct kiln_merge *a, const struct kiln_merge *b) {
    return a->key < b->key || (a->key == b->key && a->left < b->left);
}

static enum kiln_status heap_push(
        struct kiln_merger *merger, const struct kiln_merge *merge, struct kiln_err *err) {
    if (kiln_grow(&merger->heap, &merger->heap_cap, merger->heap_len + 1, sizeof(*merger->heap)) !=
            0) {
        return kiln_err_nomem(err, "merging a word of the text");
    }
    size_t at = merger->heap_len++;
    while (at > 0 && before(merge, &merger->heap[(at - 1) / 2])) {
        merger->heap[at] = merger->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    merger->heap[at] = *merge;
    return KILN_STATUS_OK;
}

static struct kiln_merge heap_pop(struct kiln_merger *merger) {
    struct kiln_merge *heap = merger->heap;
    struct kiln_merge top = heap[0];
    struct kiln_merge last = heap[--merger->heap_len];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < merger->heap_len; at = child) {
        if (child + 1 < merger->heap_len && before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!before(&heap[child], &last)) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

enum kiln_status kiln_merger_start(
        struct kiln_merger *merger, const char *text, size_t len, struct kiln_err *err) {
    if (len >= UINT32_MAX ||
            kiln_grow(&merger->symbols, &merger->symbols_cap, len, sizeof(*merger->symbols)) != 0) {
        return kiln_err_nomem(err, "the symbols of a word");
    }
    merger->text = text;
    merger->len = (uint32_t)len;
    merger->heap_len = 0;
    return KILN_STATUS_OK;
}

static enum kiln_status try_pair(struct kiln_merger *merger, const struct kiln_tokenizer *tokenizer,
        kiln_merge_fn find, uint32_t left, struct kiln_err *err) {
    uint32_t right = left + merger->symbols[left].len;
    if (right >= merger->len) {
        return KILN_STATUS_OK;
    }
    struct kiln_merge merge = {
            .left = left, .len = merger->symbols[left].len + merger->symbols[right].len};
    return find(tokenizer, merger, left, right, &merge) ? heap_push(merger, &merge, err)
                                                        : KILN_STATUS_OK;
}

enum kiln_status kiln_merger_run(struct kiln_merger *merger, const struct kiln_tokenizer *tokenizer,
        kiln_merge_fn find, struct kiln_err *err) {
    struct kiln_symbol *symbols = merger->symbols;
    for (uint32_t at = 0; at < merger->len; at += symbols[at].len) {
        KILN_TRY(try_pair(merger, tokenizer, find, at, err));
    }
    while (merger->heap_len > 0) {
        struct kiln_merge merge = heap_pop(merger);
        struct kiln_symbol *left = &symbols[merge.left];
        uint32_t right = merge.left + left->len;
        if (left->len == 0 || right >= merger->len || left->len + symbols[right].len != merge.len) {
            continue;
        }
        left->len = merge.len;
        left->id = merge.id;
        symbols[right].len = 0;
        uint32_t next = merge.left + merge.len;
        if (next < merger->len) {
            symbols[next].prev = merge.left;
        }
        if (left->prev != UINT32_MAX) {
            KILN_TRY(try_pair(merger, tokenizer, find, left->prev, err));
        }
        KILN_TRY(try_pair(merger, tokenizer, find, merge.left, err));
    }
    return KILN_STATUS_OK;
}

void kiln_merger_finish(struct kiln_merger *merger) {
    kiln_free(merger->symbols);
    kiln_free(merger->heap);
    *merger = (struct kiln_merger){0};
}
