// shape: reads KEY=VALUE,KEY=VALUE into a shape, and says which keys a slot does not read.
#include "lab/shape.h"

#include "base/buf.h"
#include "base/nearest.h"
#include "config/slot.h"
#include "model/dtype.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    SIZE,  // int64_t, at least 1
    COUNT, // int32_t, at least 0
    INDEX, // uint32_t, at least 0
    TYPE,  // enum kiln_dtype by its name
    ACTIVATION,
    WITH, // words joined by +
    REAL, // float, at least 0
};

static const struct key {
    const char *name;
    enum kind kind;
    size_t offset;
} keys[] = {
        {"m", SIZE, offsetof(struct kiln_shape, m)},
        {"nt", SIZE, offsetof(struct kiln_shape, m)}, // tokens
        {"n", SIZE, offsetof(struct kiln_shape, n)},
        {"k", SIZE, offsetof(struct kiln_shape, k)},
        {"h", COUNT, offsetof(struct kiln_shape, n_heads)},
        {"hkv", COUNT, offsetof(struct kiln_shape, n_kv_heads)},
        {"hd", COUNT, offsetof(struct kiln_shape, head_size)},
        {"window", COUNT, offsetof(struct kiln_shape, window)},
        {"kv", SIZE, offsetof(struct kiln_shape, kv_len)},
        {"bound", SIZE, offsetof(struct kiln_shape, bound)},
        {"weight", TYPE, offsetof(struct kiln_shape, weight_dtype)},
        {"last", TYPE, offsetof(struct kiln_shape, last_dtype)},
        {"kvtype", TYPE, offsetof(struct kiln_shape, kv_dtype)},
        {"act", ACTIVATION, offsetof(struct kiln_shape, activation)},
        {"format", INDEX, offsetof(struct kiln_shape, format)},
        {"with", WITH, offsetof(struct kiln_shape, with)},
        {"softcap", REAL, offsetof(struct kiln_shape, softcap)},
};
enum {
    N_KEYS = sizeof(keys) / sizeof(keys[0]),
    MAX_SIZE = 1 << 30,
    MAX_COUNT = 1 << 20,
    MAX_WORD = 64
};

static const struct word {
    const char *name;
    uint32_t value;
} activations[] = {{"silu", KILN_ACTIVATION_SILU}, {"gelu_tanh", KILN_ACTIVATION_GELU_TANH}},
  options[] = {{"bias", KILN_WITH_BIAS}, {"residual", KILN_WITH_RESIDUAL},
          {"norms", KILN_WITH_NORMS}, {"in_place", KILN_WITH_IN_PLACE}, {"pairs", KILN_WITH_PAIRS},
          {"part", KILN_WITH_PART}};
enum {
    N_WITH = sizeof(options) / sizeof(options[0])
};

static const struct key *find_key(const char *name) {
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

static enum kiln_status unknown_key(const char *name, struct kiln_err *err) {
    const char *names[N_KEYS];
    for (size_t i = 0; i < N_KEYS; i++) {
        names[i] = keys[i].name;
    }
    const char *near = kiln_nearest(name, names, N_KEYS);
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "--shape: no such key '%s'%s%s%s; known: m, n, k, h, hkv, hd, kv, window, bound, "
            "weight, last, kvtype, act, format, with, softcap",
            name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum kiln_status bad(
        const char *name, const char *wants, const char *value, struct kiln_err *err) {
    return kiln_err_set(
            err, KILN_STATUS_USAGE, "--shape: %s takes %s, not '%s'", name, wants, value);
}

static enum kiln_status store_whole(
        const struct key *key, void *at, const char *value, struct kiln_err *err) {
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    long long least = key->kind == SIZE, most = key->kind == SIZE ? MAX_SIZE : MAX_COUNT;
    if (errno || end == value || *end || number < least || number > most) {
        return bad(key->name,
                key->kind == SIZE ? "a whole number from 1 to 1073741824"
                                  : "a whole number from 0 to 1048576",
                value, err);
    }
    if (key->kind == SIZE) {
        *(int64_t *)at = number;
    } else if (key->kind == COUNT) {
        *(int32_t *)at = (int32_t)number;
    } else {
        *(uint32_t *)at = (uint32_t)number;
    }
    return KILN_STATUS_OK;
}

// The value of a word; 0: it is none of them.
static uint32_t word_value(const struct word *words, size_t count, const char *text, size_t len) {
    for (size_t i = 0; i < count; i++) {
        if (strlen(words[i].name) == len && strncmp(words[i].name, text, len) == 0) {
            return words[i].value;
        }
    }
    return 0;
}

static enum kiln_status store_with(uint32_t *to, const char *value, struct kiln_err *err) {
    for (const char *at = value;; at++) {
        size_t len = strcspn(at, "+");
        uint32_t found = word_value(options, N_WITH, at, len);
        if (!found) {
            return bad("with", "words joined by +: bias, residual, norms, in_place, pairs, part",
                    value, err);
        }
        *to |= found;
        at += len;
        if (!*at) {
            return KILN_STATUS_OK;
        }
    }
}

static enum kiln_status store(
        const struct key *key, struct kiln_shape *shape, const char *value, struct kiln_err *err) {
    void *at = (char *)shape + key->offset;
    if (key->kind == TYPE) {
        const struct kiln_dtype_info *info = kiln_dtype_by_name(value);
        if (!info) {
            return bad(key->name, "a type such as q4_K or f16", value, err);
        }
        *(uint32_t *)at = info->dtype == KILN_DTYPE_F32 ? KILN_SHAPE_F32 : info->dtype;
        return KILN_STATUS_OK;
    }
    if (key->kind == ACTIVATION) {
        *(uint32_t *)at = word_value(activations, 2, value, strlen(value));
        return *(uint32_t *)at ? KILN_STATUS_OK : bad(key->name, "silu or gelu_tanh", value, err);
    }
    if (key->kind == WITH) {
        return store_with(at, value, err);
    }
    if (key->kind == REAL) {
        char *end;
        float number = strtof(value, &end);
        if (end == value || *end || !(number >= 0 && number < 1e9f)) {
            return bad(key->name, "a number that is not negative", value, err);
        }
        *(float *)at = number;
        return KILN_STATUS_OK;
    }
    return store_whole(key, at, value, err);
}

enum kiln_status kiln_shape_parse(
        struct kiln_shape *shape, const char *text, struct kiln_err *err) {
    uint64_t seen = 0; // by offset of the key's first spelling
    for (const char *at = text; *at; at++) {
        char word[MAX_WORD];
        size_t len = strcspn(at, ",");
        if (len >= sizeof(word)) {
            return bad("it", "KEY=VALUE,KEY=VALUE", text, err);
        }
        memcpy(word, at, len);
        word[len] = '\0';
        char *equals = strchr(word, '=');
        if (!equals) {
            return bad("it", "KEY=VALUE,KEY=VALUE", text, err);
        }
        *equals = '\0';
        const struct key *key = find_key(word);
        if (!key) {
            return unknown_key(word, err);
        }
        for (size_t i = 0; i < N_KEYS; i++) { // "nt" is "m"
            if (keys[i].offset == key->offset && (seen >> i & 1)) {
                return kiln_err_set(
                        err, KILN_STATUS_USAGE, "--shape: %s is given twice", key->name);
            }
        }
        seen |= UINT64_C(1) << (key - keys);
        KILN_TRY(store(key, shape, equals + 1, err));
        at += len;
        if (!*at) {
            break;
        }
    }
    return KILN_STATUS_OK;
}

// ---- What is read -------------------------------------------------------------------------------

// What the oracle's problems (op_case.c) take from a shape.
struct reads {
    unsigned ops;  // by enum kiln_op_kind, a bit each
    uint32_t with; // enum kiln_shape_with
    int n, k, heads, weight, last, format;
};

enum {
    ATTENDS = 1u << KILN_OP_ATTENTION | 1u << KILN_OP_ROPE_KV
};

static void add_reads(struct reads *reads, const char *name, int first, int alone) {
    uint32_t kind = kiln_op_kind_of(name);
    reads->ops |= 1u << kind;
    reads->n |= kind == KILN_OP_MATMUL || kind == KILN_OP_EMBED || kind == KILN_OP_ARGMAX;
    // Ops behind another one have its columns.
    reads->k |= kind == KILN_OP_MATMUL || kind == KILN_OP_NORM || kind == KILN_OP_EMBED ||
                (first && (kind == KILN_OP_ACTIVATION || kind == KILN_OP_QUANTIZE));
    reads->weight |= kind == KILN_OP_EMBED || (kind == KILN_OP_MATMUL && !first);
    reads->with |= kind == KILN_OP_MATMUL ? KILN_WITH_BIAS : 0;
    if (kind == KILN_OP_ROPE_KV) {
        reads->with |= KILN_WITH_NORMS | KILN_WITH_PAIRS | KILN_WITH_PART | KILN_WITH_IN_PLACE;
    }
    if (kind == KILN_OP_ACTIVATION && first) {
        reads->with |= KILN_WITH_IN_PLACE;
    }
    if (alone && (kind == KILN_OP_MATMUL || kind == KILN_OP_NORM)) {
        reads->with |= KILN_WITH_RESIDUAL | KILN_WITH_IN_PLACE;
    }
}

static struct reads reads_of(const char *slot, const struct kiln_variant *variant) {
    struct reads reads = {.ops = 0};
    uint32_t n_follows = variant ? variant->n_follows : 0;
    add_reads(&reads, slot, 1, n_follows == 0);
    for (uint32_t i = 0; i < n_follows; i++) {
        const char *role = strchr(variant->follows[i], ':');
        add_reads(&reads, variant->follows[i], 0, 0);
        // Of q, k and v the last two have fewer rows, by the heads.
        reads.heads |= role && (strcmp(role, ":attn_k") == 0 || strcmp(role, ":attn_v") == 0);
        reads.last |= role && (strcmp(role, ":attn_v") == 0 || strcmp(role, ":ffn_up") == 0);
    }
    if (kiln_op_kind_of(slot) == KILN_OP_MATMUL) {
        reads.weight = 0; // the slot names it
    }
    for (uint32_t i = 0; variant && i < variant->n_ios; i++) {
        reads.format |= variant->ios[i]->n_formats > 0;
    }
    return reads;
}

static int reads_key(const struct reads *reads, const struct key *key) {
    int attends = (reads->ops & ATTENDS) != 0;
    const struct {
        size_t offset;
        int read;
    } known[] = {
            {offsetof(struct kiln_shape, m), 1},
            {offsetof(struct kiln_shape, bound), 1},
            {offsetof(struct kiln_shape, n), reads->n},
            {offsetof(struct kiln_shape, k), reads->k},
            {offsetof(struct kiln_shape, n_heads), attends || reads->heads},
            {offsetof(struct kiln_shape, n_kv_heads), attends || reads->heads},
            {offsetof(struct kiln_shape, weight_dtype), reads->weight},
            {offsetof(struct kiln_shape, last_dtype), reads->last},
            {offsetof(struct kiln_shape, activation), (reads->ops >> KILN_OP_ACTIVATION & 1) != 0},
            {offsetof(struct kiln_shape, format), reads->format},
            {offsetof(struct kiln_shape, with), reads->with != 0},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].offset == key->offset) {
            return known[i].read;
        }
    }
    return attends; // hd, window, kv, kvtype, softcap
}

static int is_named(const struct kiln_shape *shape, const struct key *key) {
    const char *at = (const char *)shape + key->offset;
    switch (key->kind) {
    case SIZE:
        return *(const int64_t *)(const void *)at != 0;
    case COUNT:
        return *(const int32_t *)(const void *)at != 0;
    case REAL:
        return *(const float *)(const void *)at > 0;
    case INDEX:
    case TYPE:
    case ACTIVATION:
    case WITH:
    default:
        return *(const uint32_t *)(const void *)at != 0;
    }
}

static enum kiln_status not_read(const struct reads *reads, const char *slot,
        const struct kiln_variant *variant, const char *what, struct kiln_err *err) {
    struct kiln_buf list = {0};
    for (size_t i = 0; i < N_KEYS; i++) {
        if (reads_key(reads, &keys[i])) {
            kiln_buf_printf(&list, "%s%s", list.len ? ", " : "", keys[i].name);
        }
    }
    for (size_t i = 0; i < N_WITH; i++) {
        if (reads->with & options[i].value) {
            int begun = (reads->with & (options[i].value - 1)) != 0;
            kiln_buf_printf(&list, "%s%s", begun ? "+" : "=", options[i].name);
        }
    }
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_USAGE,
            "--shape: nothing in %s%s%s reads %s; read are %s", slot, variant ? " " : "",
            variant ? variant->name : "", what, list.failed ? "?" : list.data);
    kiln_buf_finish(&list);
    return status;
}

enum kiln_status kiln_shape_check_read(const struct kiln_shape *shape, const char *slot,
        const struct kiln_variant *variant, struct kiln_err *err) {
    struct reads reads = reads_of(slot, variant);
    for (size_t i = 0; i < N_KEYS; i++) {
        if (is_named(shape, &keys[i]) && !reads_key(&reads, &keys[i])) {
            return not_read(&reads, slot, variant, keys[i].name, err);
        }
    }
    for (size_t i = 0; i < N_WITH; i++) {
        if (shape->with & ~reads.with & options[i].value) {
            char what[MAX_WORD];
            (void)snprintf(what, sizeof(what), "with=%s", options[i].name);
            return not_read(&reads, slot, variant, what, err);
        }
    }
    return KILN_STATUS_OK;
}
