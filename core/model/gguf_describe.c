// gguf_describe: keys as "name = value", tensors as "name type shape offset".
#include "model/gguf_describe.h"

#include "model/dtype.h"
#include "model/gguf_impl.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

enum {
    SHOWN_ELEMS = 6
};

static struct kiln_str read_string(const struct kiln_gguf_key *key) {
    struct kiln_gguf_key one = *key;
    one.type = KILN_GGUF_ARRAY;
    one.elem_type = KILN_GGUF_STRING;
    one.count = 1;
    struct kiln_gguf_cursor cursor = {0};
    struct kiln_str text = {0};
    kiln_gguf_next_str(&one, &cursor, &text);
    return text;
}

// Element i of an array, the value itself of any other key: not as a double, which holds integers
// up to 2^53 only.
static const uint8_t *element(const struct kiln_gguf_key *key, uint64_t i) {
    return key->value + i * kiln_gguf_type_size(key->elem_type);
}

static double number_at(enum kiln_gguf_type type, const uint8_t *at) {
    struct kiln_gguf_key one = {.elem_type = type, .count = 1, .value = at};
    return kiln_gguf_array_number(&one, 0);
}

// ---- Text ---------------------------------------------------------------------------------------

static void put_number(struct kiln_buf *text, enum kiln_gguf_type type, const uint8_t *at) {
    uint64_t value;
    int negative;
    if (type == KILN_GGUF_BOOL) {
        kiln_buf_puts(text, *at ? "true" : "false");
    } else if (kiln_gguf_integer_at(type, at, &value, &negative)) {
        kiln_buf_printf(text, "%s%" PRIu64, negative ? "-" : "", value);
    } else {
        kiln_buf_printf(text, "%.9g", number_at(type, at));
    }
}

static void put_array(struct kiln_buf *text, const struct kiln_gguf_key *key) {
    struct kiln_gguf_cursor cursor = {0};
    char shown[KILN_GGUF_SHOWN];
    kiln_buf_printf(text, "%s[%" PRIu64 "] = [", kiln_gguf_type_name(key->elem_type), key->count);
    for (uint64_t i = 0; i < key->count && i < SHOWN_ELEMS; i++) {
        struct kiln_str piece;
        kiln_buf_puts(text, i ? ", " : "");
        if (key->elem_type == KILN_GGUF_STRING && kiln_gguf_next_str(key, &cursor, &piece)) {
            kiln_buf_printf(text, "'%s'", kiln_gguf_show(shown, piece));
        } else {
            put_number(text, key->elem_type, element(key, i));
        }
    }
    kiln_buf_puts(text, key->count > SHOWN_ELEMS ? ", …]\n" : "]\n");
}

static void put_key(struct kiln_buf *text, const struct kiln_gguf_key *key) {
    char shown[KILN_GGUF_SHOWN];
    kiln_buf_printf(text, "  %s ", kiln_gguf_show(shown, key->name));
    if (key->type == KILN_GGUF_ARRAY) {
        put_array(text, key);
        return;
    }
    kiln_buf_printf(text, "%s = ", kiln_gguf_type_name(key->type));
    if (key->type == KILN_GGUF_STRING) {
        kiln_buf_printf(text, "'%s'\n", kiln_gguf_show(shown, read_string(key)));
        return;
    }
    put_number(text, key->type, element(key, 0));
    kiln_buf_puts(text, "\n");
}

static void put_types(struct kiln_buf *text, const struct kiln_gguf *gguf) {
    const struct kiln_dtype_info *info;
    for (uint32_t i = 0; (info = kiln_dtype_at(i)) != NULL; i++) {
        uint64_t count = 0, bytes = 0;
        for (size_t j = 0; j < kiln_gguf_n_tensors(gguf); j++) {
            const struct kiln_gguf_tensor *tensor = kiln_gguf_tensor_at(gguf, j);
            if (tensor->dtype == info->dtype) {
                count++;
                bytes += tensor->bytes;
            }
        }
        if (count > 0) {
            kiln_buf_printf(text, "  %-6s %6" PRIu64 " tensors %14" PRIu64 " bytes\n", info->name,
                    count, bytes);
        }
    }
}

void kiln_gguf_describe(const struct kiln_gguf *gguf, int tensors, struct kiln_buf *text) {
    kiln_buf_printf(text, "%s\n  GGUF v%u, %" PRIu64 " bytes, alignment %u\n", kiln_gguf_path(gguf),
            kiln_gguf_version(gguf), kiln_gguf_file_size(gguf), kiln_gguf_alignment(gguf));
    kiln_buf_printf(text, "keys: %zu\n", kiln_gguf_n_keys(gguf));
    for (size_t i = 0; i < kiln_gguf_n_keys(gguf); i++) {
        put_key(text, kiln_gguf_key_at(gguf, i));
    }
    kiln_buf_printf(text, "tensors: %zu\n", kiln_gguf_n_tensors(gguf));
    put_types(text, gguf);
    for (size_t i = 0; tensors && i < kiln_gguf_n_tensors(gguf); i++) {
        const struct kiln_gguf_tensor *t = kiln_gguf_tensor_at(gguf, i);
        kiln_buf_printf(text, "  %-32s %-6s", t->name, kiln_dtype_info(t->dtype)->name);
        for (uint32_t d = 0; d < t->n_dims; d++) {
            kiln_buf_printf(text, "%s%" PRIu64, d ? " x " : " ", t->dims[d]);
        }
        kiln_buf_printf(text, ", %" PRIu64 " bytes at %" PRIu64 "\n", t->bytes, t->file_offset);
    }
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *text_json(struct kiln_str text) {
    json_t *json = json_stringn(text.data, text.len); // NULL when the bytes are no UTF-8
    char shown[KILN_GGUF_SHOWN];
    return json ? json : json_string(kiln_gguf_show(shown, text));
}

// JSON has no infinity, and jansson no integer above 2^63: such a one comes as a real.
static json_t *number_json(enum kiln_gguf_type type, const uint8_t *at) {
    uint64_t value;
    int negative;
    if (type == KILN_GGUF_BOOL) {
        return json_boolean(*at);
    }
    if (kiln_gguf_integer_at(type, at, &value, &negative) && value <= INT64_MAX) {
        return json_integer(negative ? -(json_int_t)value : (json_int_t)value);
    }
    double number = number_at(type, at);
    return isfinite(number) ? json_real(number) : json_null();
}

static json_t *array_json(const struct kiln_gguf_key *key) {
    json_t *first = json_array();
    struct kiln_gguf_cursor cursor = {0};
    for (uint64_t i = 0; first && i < key->count && i < SHOWN_ELEMS; i++) {
        struct kiln_str piece;
        if (key->elem_type == KILN_GGUF_STRING && kiln_gguf_next_str(key, &cursor, &piece)) {
            json_array_append_new(first, text_json(piece));
        } else {
            json_array_append_new(first, number_json(key->elem_type, element(key, i)));
        }
    }
    return json_pack("{s:s, s:I, s:o}", "type", kiln_gguf_type_name(key->elem_type), "count",
            (json_int_t)key->count, "first", first);
}

static json_t *value_json(const struct kiln_gguf_key *key) {
    if (key->type == KILN_GGUF_ARRAY) {
        return array_json(key);
    }
    return key->type == KILN_GGUF_STRING ? text_json(read_string(key))
                                         : number_json(key->type, element(key, 0));
}

static json_t *keys_json(const struct kiln_gguf *gguf) {
    json_t *keys = json_object();
    for (size_t i = 0; keys && i < kiln_gguf_n_keys(gguf); i++) {
        const struct kiln_gguf_key *key = kiln_gguf_key_at(gguf, i);
        char shown[KILN_GGUF_SHOWN];
        json_object_set_new(keys, kiln_gguf_show(shown, key->name), value_json(key));
    }
    return keys;
}

static json_t *tensors_json(const struct kiln_gguf *gguf) {
    json_t *tensors = json_array();
    for (size_t i = 0; tensors && i < kiln_gguf_n_tensors(gguf); i++) {
        const struct kiln_gguf_tensor *t = kiln_gguf_tensor_at(gguf, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; shape && d < t->n_dims; d++) {
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        }
        json_array_append_new(
                tensors, json_pack("{s:s, s:s, s:o, s:I, s:I}", "name", t->name, "type",
                                 kiln_dtype_info(t->dtype)->name, "shape", shape, "offset",
                                 (json_int_t)t->file_offset, "bytes", (json_int_t)t->bytes));
    }
    return tensors;
}

struct json_t *kiln_gguf_describe_json(const struct kiln_gguf *gguf) {
    return json_pack("{s:o, s:i, s:i, s:I, s:o, s:o}", "path",
            text_json((struct kiln_str){
                    .data = kiln_gguf_path(gguf), .len = strlen(kiln_gguf_path(gguf))}),
            "version", (int)kiln_gguf_version(gguf), "alignment", (int)kiln_gguf_alignment(gguf),
            "size", (json_int_t)kiln_gguf_file_size(gguf), "keys", keys_json(gguf), "tensors",
            tensors_json(gguf));
}
