// tokenizer_vocab: the spellings and types of all tokens, and the hash table that finds an id by
// spelling.
#include "model/tokenizer_impl.h"

#include "base/mem.h"

#include <string.h>
#include <xxhash.h>

static enum kiln_status read_spellings(struct kiln_vocab *vocab, const struct kiln_gguf *gguf,
        const struct kiln_gguf_key *tokens, struct kiln_err *err) {
    vocab->ends = kiln_calloc((size_t)tokens->count + 1, sizeof(*vocab->ends));
    if (!vocab->ends) {
        return kiln_err_nomem(err, "the vocabulary");
    }
    struct kiln_gguf_cursor cursor = {0};
    struct kiln_str text;
    int32_t id = 0;
    while (kiln_gguf_next_str(tokens, &cursor, &text)) {
        kiln_buf_append(&vocab->spelling, text.data, text.len);
        vocab->ends[++id] = vocab->spelling.len;
        vocab->max_len = text.len > vocab->max_len ? text.len : vocab->max_len;
    }
    if (vocab->spelling.failed) {
        return kiln_err_nomem(err, "the vocabulary");
    }
    if ((uint64_t)id != tokens->count) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key 'tokenizer.ggml.tokens': %d strings where %llu are announced",
                kiln_gguf_path(gguf), (int)id, (unsigned long long)tokens->count);
    }
    vocab->size = id;
    return KILN_STATUS_OK;
}

static enum kiln_status read_types(
        struct kiln_vocab *vocab, const struct kiln_gguf *gguf, struct kiln_err *err) {
    static const char name[] = "tokenizer.ggml.token_type";
    const struct kiln_gguf_key *types = NULL;
    KILN_TRY(kiln_gguf_get_array(gguf, name, KILN_GGUF_OPTIONAL, KILN_GGUF_I32, &types, err));
    vocab->types = kiln_alloc((size_t)vocab->size);
    if (!vocab->types) {
        return kiln_err_nomem(err, "the vocabulary");
    }
    memset(vocab->types, KILN_TOKEN_NORMAL, (size_t)vocab->size);
    if (!types) {
        return KILN_STATUS_OK;
    }
    if (types->count != (uint64_t)vocab->size) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key '%s' has %llu elements, 'tokenizer.ggml.tokens' has %d; they must agree",
                kiln_gguf_path(gguf), name, (unsigned long long)types->count, (int)vocab->size);
    }
    for (int32_t id = 0; id < vocab->size; id++) {
        double type = kiln_gguf_array_number(types, (uint64_t)id);
        if (type < 0 || type > KILN_TOKEN_BYTE) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s: key '%s': token %d has type %.0f; allowed are 0 to %d",
                    kiln_gguf_path(gguf), name, (int)id, type, KILN_TOKEN_BYTE);
        }
        // 0 is "undefined": such a token is text like any other.
        vocab->types[id] = type == 0 ? KILN_TOKEN_NORMAL : (uint8_t)type;
    }
    return KILN_STATUS_OK;
}

// The slot that holds this spelling, or the free one where it would go.
static struct kiln_vocab_slot *slot_of(
        const struct kiln_vocab *vocab, const char *text, size_t len, uint64_t hash) {
    size_t i = (size_t)hash & vocab->mask;
    uint32_t tag = (uint32_t)(hash >> 32);
    for (;; i = (i + 1) & vocab->mask) {
        struct kiln_vocab_slot *slot = &vocab->slots[i];
        if (slot->id < 0) {
            return slot;
        }
        if (slot->tag == tag) {
            struct kiln_str other = kiln_vocab_text(vocab, slot->id);
            if (other.len == len && memcmp(other.data, text, len) == 0) {
                return slot;
            }
        }
    }
}

static enum kiln_status build_table(struct kiln_vocab *vocab, struct kiln_err *err) {
    size_t cap = 16;
    while (cap < 2 * (size_t)vocab->size) {
        cap *= 2;
    }
    vocab->slots = kiln_alloc(cap * sizeof(*vocab->slots));
    if (!vocab->slots) {
        return kiln_err_nomem(err, "the vocabulary");
    }
    for (size_t i = 0; i < cap; i++) {
        vocab->slots[i] = (struct kiln_vocab_slot){.id = -1};
    }
    vocab->mask = cap - 1;
    for (int32_t id = 0; id < vocab->size; id++) {
        struct kiln_str text = kiln_vocab_text(vocab, id);
        if (text.len) { // an empty token is found by nothing
            uint64_t hash = XXH3_64bits(text.data, text.len);
            *slot_of(vocab, text.data, text.len, hash) =
                    (struct kiln_vocab_slot){.tag = (uint32_t)(hash >> 32), .id = id};
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_vocab_open(
        struct kiln_vocab *vocab, const struct kiln_gguf *gguf, struct kiln_err *err) {
    const struct kiln_gguf_key *tokens = NULL;
    KILN_TRY(kiln_gguf_get_array(
            gguf, "tokenizer.ggml.tokens", KILN_GGUF_REQUIRED, KILN_GGUF_STRING, &tokens, err));
    if (tokens->count == 0 || tokens->count > INT32_MAX / 2) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key 'tokenizer.ggml.tokens' has %llu elements; allowed are 1 to %d",
                kiln_gguf_path(gguf), (unsigned long long)tokens->count, INT32_MAX / 2);
    }
    KILN_TRY(read_spellings(vocab, gguf, tokens, err));
    KILN_TRY(read_types(vocab, gguf, err));
    return build_table(vocab, err);
}

void kiln_vocab_close(struct kiln_vocab *vocab) {
    kiln_buf_finish(&vocab->spelling);
    kiln_free(vocab->ends);
    kiln_free(vocab->types);
    kiln_free(vocab->slots);
    *vocab = (struct kiln_vocab){0};
}

struct kiln_str kiln_vocab_text(const struct kiln_vocab *vocab, int32_t id) {
    size_t start = vocab->ends[id], end = vocab->ends[id + 1];
    const char *base = vocab->spelling.data ? vocab->spelling.data : "";
    return (struct kiln_str){.data = base + start, .len = end - start};
}

int32_t kiln_vocab_find(const struct kiln_vocab *vocab, const char *text, size_t len) {
    if (len == 0 || len > vocab->max_len) {
        return -1;
    }
    return slot_of(vocab, text, len, XXH3_64bits(text, len))->id;
}

int32_t kiln_vocab_find_text(const struct kiln_vocab *vocab, const char *text, size_t len) {
    int32_t id = kiln_vocab_find(vocab, text, len);
    return id < 0 || kiln_vocab_is_control(vocab, id) || vocab->types[id] == KILN_TOKEN_BYTE ? -1
                                                                                             : id;
}

int kiln_vocab_is_control(const struct kiln_vocab *vocab, int32_t id) {
    return vocab->types[id] == KILN_TOKEN_CONTROL || vocab->types[id] == KILN_TOKEN_UNKNOWN;
}
