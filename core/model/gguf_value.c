// gguf_value: typed reads from a file that gguf.c has checked, and the words for its parts.
//
// Not here: bounds. Every value lies in the file, strings with all their bytes, bools are 0 or 1.
#include "model/gguf_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t size;
} types[] = {
        [KILN_GGUF_U8] = {"u8", 1},
        [KILN_GGUF_I8] = {"i8", 1},
        [KILN_GGUF_U16] = {"u16", 2},
        [KILN_GGUF_I16] = {"i16", 2},
        [KILN_GGUF_U32] = {"u32", 4},
        [KILN_GGUF_I32] = {"i32", 4},
        [KILN_GGUF_F32] = {"f32", 4},
        [KILN_GGUF_BOOL] = {"bool", 1},
        [KILN_GGUF_STRING] = {"string", 0},
        [KILN_GGUF_ARRAY] = {"array", 0},
        [KILN_GGUF_U64] = {"u64", 8},
        [KILN_GGUF_I64] = {"i64", 8},
        [KILN_GGUF_F64] = {"f64", 8},
};

enum {
    N_TYPES = sizeof(types) / sizeof(types[0])
};

const char *kiln_gguf_type_name(enum kiln_gguf_type type) {
    return (unsigned)type < N_TYPES ? types[type].name : "unknown";
}

uint32_t kiln_gguf_type_size(uint32_t type) {
    return type < N_TYPES ? types[type].size : 0;
}

uint32_t kiln_gguf_u32_at(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint64_t kiln_gguf_u64_at(const uint8_t *at) {
    return kiln_gguf_u32_at(at) | (uint64_t)kiln_gguf_u32_at(at + 4) << 32;
}

const char *kiln_gguf_show(char out[KILN_GGUF_SHOWN], struct kiln_str text) {
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (len >= KILN_GGUF_SHOWN - 16) {
            snprintf(out + len, KILN_GGUF_SHOWN - len, "...");
            return out;
        }
        if (c >= 0x20 && c < 0x7f && c != '\\') {
            out[len++] = (char)c;
        } else {
            snprintf(out + len, KILN_GGUF_SHOWN - len, "\\x%02x", c);
            len += 4;
        }
    }
    out[len] = '\0';
    return out;
}

const char *kiln_gguf_path(const struct kiln_gguf *gguf) {
    return gguf->path;
}

uint32_t kiln_gguf_version(const struct kiln_gguf *gguf) {
    return gguf->version;
}

uint32_t kiln_gguf_alignment(const struct kiln_gguf *gguf) {
    return gguf->alignment;
}

uint64_t kiln_gguf_file_size(const struct kiln_gguf *gguf) {
    uint64_t size = gguf->size;
    for (size_t i = 0; i < gguf->n_parts; i++) {
        size += gguf->parts[i] ? gguf->parts[i]->size : 0;
    }
    return size;
}

size_t kiln_gguf_n_files(const struct kiln_gguf *gguf) {
    return gguf->n_parts ? gguf->n_parts : 1;
}

// Finds a key for a typed read. *key is NULL when it is absent and need not be there.
static enum kiln_status find(const struct kiln_gguf *gguf, const char *name, int required,
        const struct kiln_gguf_key **key, struct kiln_err *err) {
    *key = kiln_gguf_find_key(gguf, name);
    if (!*key && required) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: the key '%s' is missing among its %zu keys; the model cannot be used without "
                "it",
                gguf->path, name, gguf->n_keys);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status wrong_type(const struct kiln_gguf *gguf, const struct kiln_gguf_key *key,
        const char *wanted, struct kiln_err *err) {
    char name[KILN_GGUF_SHOWN];
    int is_array = key->type == KILN_GGUF_ARRAY;
    return kiln_err_set(err, KILN_STATUS_FILE,
            "%s: key '%s' at byte %" PRIu64 ": has type %s%s; %s is needed", gguf->path,
            kiln_gguf_show(name, key->name), key->offset, is_array ? "array of " : "",
            kiln_gguf_type_name(key->elem_type), wanted);
}

int kiln_gguf_integer_at(
        enum kiln_gguf_type type, const uint8_t *at, uint64_t *value, int *negative) {
    int64_t number = 0;
    *negative = 0;
    switch (type) {
    case KILN_GGUF_U8:
        *value = at[0];
        return 1;
    case KILN_GGUF_U16:
        *value = (uint64_t)at[0] | (uint64_t)at[1] << 8;
        return 1;
    case KILN_GGUF_U32:
        *value = kiln_gguf_u32_at(at);
        return 1;
    case KILN_GGUF_U64:
        *value = kiln_gguf_u64_at(at);
        return 1;
    case KILN_GGUF_I8:
        number = (int8_t)at[0]; // NOLINT(bugprone-signed-char-misuse): a signed byte is meant
        break;
    case KILN_GGUF_I16:
        number = (int16_t)(uint16_t)(at[0] | at[1] << 8);
        break;
    case KILN_GGUF_I32:
        number = (int32_t)kiln_gguf_u32_at(at);
        break;
    case KILN_GGUF_I64:
        number = (int64_t)kiln_gguf_u64_at(at);
        break;
    case KILN_GGUF_F32:
    case KILN_GGUF_F64:
    case KILN_GGUF_BOOL:
    case KILN_GGUF_STRING:
    case KILN_GGUF_ARRAY:
    default:
        return 0;
    }
    *negative = number < 0;
    *value = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    return 1;
}

static double read_float(enum kiln_gguf_type type, const uint8_t *at) {
    uint32_t bits32 = kiln_gguf_u32_at(at);
    if (type == KILN_GGUF_F32) {
        float value;
        memcpy(&value, &bits32, sizeof(value));
        return (double)value;
    }
    uint64_t bits64 = kiln_gguf_u64_at(at);
    double value;
    memcpy(&value, &bits64, sizeof(value));
    return value;
}

enum kiln_status kiln_gguf_get_u64(const struct kiln_gguf *gguf, const char *name, int required,
        uint64_t min, uint64_t max, uint64_t *out, struct kiln_err *err) {
    const struct kiln_gguf_key *key;
    KILN_TRY(find(gguf, name, required, &key, err));
    if (!key) {
        return KILN_STATUS_OK;
    }
    uint64_t value;
    int negative;
    if (!kiln_gguf_integer_at(key->type, key->value, &value, &negative)) {
        return wrong_type(gguf, key, "an integer", err);
    }
    if (negative || value < min || value > max) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key '%s' at byte %" PRIu64 ": is %s%" PRIu64 "; %" PRIu64 " to %" PRIu64
                " is allowed",
                gguf->path, name, key->offset, negative ? "-" : "", value, min, max);
    }
    *out = value;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_gguf_get_f32(const struct kiln_gguf *gguf, const char *name, int required,
        float min, float max, float *out, struct kiln_err *err) {
    const struct kiln_gguf_key *key;
    KILN_TRY(find(gguf, name, required, &key, err));
    if (!key) {
        return KILN_STATUS_OK;
    }
    if (key->type != KILN_GGUF_F32 && key->type != KILN_GGUF_F64) {
        return wrong_type(gguf, key, "an f32 or f64", err);
    }
    double value = read_float(key->type, key->value);
    if (!isfinite(value) || value < (double)min || value > (double)max) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: key '%s' at byte %" PRIu64 ": is %g; %g to %g is allowed", gguf->path, name,
                key->offset, value, (double)min, (double)max);
    }
    *out = (float)value;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_gguf_get_bool(const struct kiln_gguf *gguf, const char *name, int required,
        int *out, struct kiln_err *err) {
    const struct kiln_gguf_key *key;
    KILN_TRY(find(gguf, name, required, &key, err));
    if (!key) {
        return KILN_STATUS_OK;
    }
    if (key->type != KILN_GGUF_BOOL) {
        return wrong_type(gguf, key, "a bool", err);
    }
    *out = key->value[0];
    return KILN_STATUS_OK;
}

enum kiln_status kiln_gguf_get_str(const struct kiln_gguf *gguf, const char *name, int required,
        struct kiln_str *out, struct kiln_err *err) {
    const struct kiln_gguf_key *key;
    KILN_TRY(find(gguf, name, required, &key, err));
    if (!key) {
        return KILN_STATUS_OK;
    }
    if (key->type != KILN_GGUF_STRING) {
        return wrong_type(gguf, key, "a string", err);
    }
    *out = (struct kiln_str){
            .data = (const char *)key->value + 8,
            .len = (size_t)kiln_gguf_u64_at(key->value),
    };
    return KILN_STATUS_OK;
}

enum kiln_status kiln_gguf_get_array(const struct kiln_gguf *gguf, const char *name, int required,
        enum kiln_gguf_type elem_type, const struct kiln_gguf_key **out, struct kiln_err *err) {
    *out = NULL;
    const struct kiln_gguf_key *key;
    KILN_TRY(find(gguf, name, required, &key, err));
    if (!key) {
        return KILN_STATUS_OK;
    }
    if (key->type != KILN_GGUF_ARRAY || key->elem_type != elem_type) {
        char wanted[40];
        snprintf(wanted, sizeof(wanted), "an array of %s", kiln_gguf_type_name(elem_type));
        return wrong_type(gguf, key, wanted, err);
    }
    *out = key;
    return KILN_STATUS_OK;
}

int kiln_gguf_next_str(
        const struct kiln_gguf_key *array, struct kiln_gguf_cursor *cursor, struct kiln_str *out) {
    if (array->type != KILN_GGUF_ARRAY || array->elem_type != KILN_GGUF_STRING ||
            cursor->index >= array->count) {
        return 0;
    }
    const uint8_t *at = cursor->index == 0 ? array->value : cursor->at;
    *out = (struct kiln_str){.data = (const char *)at + 8, .len = (size_t)kiln_gguf_u64_at(at)};
    cursor->at = at + 8 + out->len;
    cursor->index++;
    return 1;
}

double kiln_gguf_array_number(const struct kiln_gguf_key *array, uint64_t i) {
    uint32_t size = kiln_gguf_type_size(array->elem_type);
    if (size == 0 || i >= array->count) {
        return 0.0;
    }
    const uint8_t *at = array->value + i * size;
    if (array->elem_type == KILN_GGUF_F32 || array->elem_type == KILN_GGUF_F64) {
        return read_float(array->elem_type, at);
    }
    uint64_t value;
    int negative;
    if (!kiln_gguf_integer_at(array->elem_type, at, &value, &negative)) {
        return at[0]; // a bool
    }
    return negative ? -(double)value : (double)value;
}
