// shape: reads KEY=VALUE,KEY=VALUE into a shape.
#include "lab/shape.h"

#include "base/nearest.h"
#include "model/dtype.h"

#include <errno.h>
#include <stddef.h>
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
        uint32_t found = word_value(options, sizeof(options) / sizeof(options[0]), at, len);
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
