// gguf: opening a file and checking all of it. Everything later may rely on what is checked here.
//
// The parser walks the file once, front to back, and never looks at a byte before it knows that the
// file has it. Counts are held against what the rest of the file can hold before anything is
// allocated for them. Names are indexed by sorting, which no choice of names can make slow.
//
// Not here: the tensor table (gguf_tensor.c), reading values (gguf_value.c), several files that
// make one model (gguf_split.c).
#include "model/gguf_impl.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_BYTES = 24,
    KEY_MIN_BYTES = 8 + 4 + 1, // name length, type, value: an empty name has its own error
    TENSOR_MIN_BYTES = 8 + 4 + 8 + 4 + 8, // name length, n_dims, a size, type, offset
    KEY_NAME_MAX = 65535,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MIN = 8,
    ALIGNMENT_MAX = 65536,
};

enum kiln_status kiln_gguf_fail(struct gguf_parser *p, const char *fmt, ...) {
    char text[700], name[KILN_GGUF_SHOWN];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (p->name.len == 0) {
        return kiln_err_set(p->err, KILN_STATUS_FILE,
                "%s number %" PRIu64 " at byte %" PRIu64 ": %s", p->kind, p->index, p->start, text);
    }
    return kiln_err_set(p->err, KILN_STATUS_FILE, "%s '%s' at byte %" PRIu64 ": %s", p->kind,
            kiln_gguf_show(name, p->name), p->start, text);
}

static enum kiln_status need(struct gguf_parser *p, uint64_t bytes, const char *what) {
    if (bytes <= p->size - p->at) {
        return KILN_STATUS_OK;
    }
    return kiln_gguf_fail(p,
            "the file is cut short: %s needs %" PRIu64 " bytes from byte %" PRIu64
            ", the file has %" PRIu64 " there",
            what, bytes, p->at, p->size - p->at);
}

enum kiln_status kiln_gguf_read_u32(struct gguf_parser *p, const char *what, uint32_t *out) {
    KILN_TRY(need(p, 4, what));
    *out = kiln_gguf_u32_at(p->data + p->at);
    p->at += 4;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_gguf_read_u64(struct gguf_parser *p, const char *what, uint64_t *out) {
    KILN_TRY(need(p, 8, what));
    *out = kiln_gguf_u64_at(p->data + p->at);
    p->at += 8;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_gguf_read_string(
        struct gguf_parser *p, const char *what, struct kiln_str *out) {
    uint64_t len;
    KILN_TRY(kiln_gguf_read_u64(p, what, &len));
    KILN_TRY(need(p, len, what));
    *out = (struct kiln_str){.data = (const char *)p->data + p->at, .len = (size_t)len};
    p->at += len;
    return KILN_STATUS_OK;
}

// Steps over `count` values of one type, none of them an array.
static enum kiln_status skip_values(struct gguf_parser *p, uint32_t type, uint64_t count) {
    if (type == KILN_GGUF_STRING) {
        if (count > (p->size - p->at) / 8) { // each has its length at least
            return kiln_gguf_fail(p,
                    "the file is cut short: %" PRIu64 " strings do not fit into the %" PRIu64
                    " bytes from byte %" PRIu64,
                    count, p->size - p->at, p->at);
        }
        struct kiln_str text;
        for (uint64_t i = 0; i < count; i++) {
            KILN_TRY(kiln_gguf_read_string(p, "a string", &text));
        }
        return KILN_STATUS_OK;
    }
    uint32_t size = kiln_gguf_type_size(type);
    if (size == 0) {
        return kiln_gguf_fail(p,
                "value type %" PRIu32 " at byte %" PRIu64 " is unknown; types are 0 to 12", type,
                p->at);
    }
    if (count > (p->size - p->at) / size) {
        return kiln_gguf_fail(p,
                "the file is cut short: %" PRIu64 " values of %" PRIu32
                " bytes do not fit into the %" PRIu64 " bytes from byte %" PRIu64,
                count, size, p->size - p->at, p->at);
    }
    if (type == KILN_GGUF_BOOL) {
        for (uint64_t i = 0; i < count; i++) {
            if (p->data[p->at + i] > 1) {
                return kiln_gguf_fail(p, "the bool at byte %" PRIu64 " is %d; 0 and 1 are allowed",
                        p->at + i, p->data[p->at + i]);
            }
        }
    }
    p->at += count * size;
    return KILN_STATUS_OK;
}

static enum kiln_status parse_key(struct gguf_parser *p, struct kiln_gguf_key *key) {
    struct kiln_str name;
    KILN_TRY(kiln_gguf_read_string(p, "its name", &name));
    if (name.len == 0 || name.len > KEY_NAME_MAX) {
        return kiln_gguf_fail(
                p, "its name has %zu bytes; 1 to %d are allowed", name.len, KEY_NAME_MAX);
    }
    p->name = name;
    uint32_t type, elem_type = 0;
    uint64_t count = 1;
    KILN_TRY(kiln_gguf_read_u32(p, "the type of its value", &type));
    if (type == KILN_GGUF_ARRAY) {
        KILN_TRY(kiln_gguf_read_u32(p, "the type of its elements", &elem_type));
        KILN_TRY(kiln_gguf_read_u64(p, "the count of its elements", &count));
        if (elem_type == KILN_GGUF_ARRAY) {
            return kiln_gguf_fail(
                    p, "is an array of arrays; elements may be numbers, bools and strings");
        }
    }
    uint64_t start = p->at;
    KILN_TRY(skip_values(p, type == KILN_GGUF_ARRAY ? elem_type : type, count));
    *key = (struct kiln_gguf_key){
            .name = name,
            .type = (enum kiln_gguf_type)type,
            .elem_type = (enum kiln_gguf_type)(type == KILN_GGUF_ARRAY ? elem_type : type),
            .count = count,
            .value = p->data + start,
            .offset = p->start,
            .value_bytes = p->at - start,
    };
    return KILN_STATUS_OK;
}

static int compare_names(const void *a_ptr, const void *b_ptr) {
    const struct gguf_name *a = a_ptr, *b = b_ptr;
    size_t len = a->name.len < b->name.len ? a->name.len : b->name.len;
    int order = memcmp(a->name.data, b->name.data, len);
    if (order != 0) {
        return order;
    }
    if (a->name.len != b->name.len) {
        return a->name.len < b->name.len ? -1 : 1;
    }
    return a->index < b->index ? -1 : a->index > b->index;
}

const struct gguf_name *kiln_gguf_sort_names(struct gguf_name *names, size_t count) {
    if (count > 1) {
        qsort(names, count, sizeof(*names), compare_names);
    }
    for (size_t i = 1; i < count; i++) {
        struct kiln_str a = names[i - 1].name, b = names[i].name;
        if (a.len == b.len && memcmp(a.data, b.data, a.len) == 0) {
            return &names[i - 1];
        }
    }
    return NULL;
}

// The place of a name in a sorted list; SIZE_MAX when it is not there.
static size_t find_name(const struct gguf_name *names, size_t count, const char *text) {
    struct gguf_name wanted = {.name = {.data = text, .len = strlen(text)}, .index = 0};
    size_t low = 0, high = count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (compare_names(&names[mid], &wanted) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low < count && names[low].name.len == wanted.name.len &&
            memcmp(names[low].name.data, text, wanted.name.len) == 0) {
        return names[low].index;
    }
    return SIZE_MAX;
}

enum kiln_status kiln_gguf_twice(
        struct gguf_parser *p, const struct gguf_name *repeated, uint64_t first, uint64_t second) {
    char name[KILN_GGUF_SHOWN];
    return kiln_err_set(p->err, KILN_STATUS_FILE,
            "%s '%s' is there twice, at byte %" PRIu64 " and at byte %" PRIu64
            "; names must be unique",
            p->kind, kiln_gguf_show(name, repeated->name), first, second);
}

static enum kiln_status parse_keys(struct gguf_parser *p) {
    struct kiln_gguf *gguf = p->gguf;
    gguf->keys = kiln_calloc(gguf->n_keys, sizeof(*gguf->keys));
    gguf->key_names = kiln_calloc(gguf->n_keys, sizeof(*gguf->key_names));
    if (!gguf->keys || !gguf->key_names) {
        return kiln_err_nomem(p->err, "the key table");
    }
    p->kind = "key";
    for (size_t i = 0; i < gguf->n_keys; i++) {
        p->index = i;
        p->start = p->at;
        p->name = (struct kiln_str){0};
        KILN_TRY(parse_key(p, &gguf->keys[i]));
        gguf->key_names[i] = (struct gguf_name){.name = p->name, .index = i};
    }
    const struct gguf_name *repeated = kiln_gguf_sort_names(gguf->key_names, gguf->n_keys);
    return repeated ? kiln_gguf_twice(p, repeated, gguf->keys[repeated[0].index].offset,
                              gguf->keys[repeated[1].index].offset)
                    : KILN_STATUS_OK;
}

static enum kiln_status find_alignment(struct gguf_parser *p) {
    static const char name[] = "general.alignment";
    p->gguf->alignment = ALIGNMENT_DEFAULT;
    const struct kiln_gguf_key *key = kiln_gguf_find_key(p->gguf, name);
    if (!key) {
        return KILN_STATUS_OK;
    }
    if (key->type != KILN_GGUF_U32) {
        return kiln_err_set(p->err, KILN_STATUS_FILE,
                "key '%s' at byte %" PRIu64 ": has type %s; a u32 is needed", name, key->offset,
                kiln_gguf_type_name(key->type));
    }
    uint32_t alignment = kiln_gguf_u32_at(key->value);
    if (alignment < ALIGNMENT_MIN || alignment > ALIGNMENT_MAX || (alignment & (alignment - 1))) {
        return kiln_err_set(p->err, KILN_STATUS_FILE,
                "key '%s' at byte %" PRIu64 ": is %" PRIu32
                "; a power of two from %d to %d is allowed",
                name, key->offset, alignment, ALIGNMENT_MIN, ALIGNMENT_MAX);
    }
    p->gguf->alignment = alignment;
    return KILN_STATUS_OK;
}

static enum kiln_status check_version(struct gguf_parser *p, uint32_t version) {
    if (version == 2 || version == 3) {
        p->gguf->version = version;
        return KILN_STATUS_OK;
    }
    if (version != 0 && (version & 0xffff) == 0) {
        return kiln_err_set(p->err, KILN_STATUS_FILE,
                "is a big-endian GGUF file (version bytes %02x %02x %02x %02x at byte 4); kiln "
                "reads "
                "little-endian ones: convert it",
                p->data[4], p->data[5], p->data[6], p->data[7]);
    }
    return kiln_err_set(p->err, KILN_STATUS_FILE,
            "is GGUF version %" PRIu32 " (at byte 4); kiln reads 2 and 3%s", version,
            version == 1 ? ": convert it again with a newer converter" : "");
}

static enum kiln_status check_count(
        struct gguf_parser *p, const char *kind, uint64_t at, uint64_t count, uint64_t min_bytes) {
    uint64_t rest = p->size - HEADER_BYTES;
    if (count <= rest / min_bytes) {
        return KILN_STATUS_OK;
    }
    return kiln_err_set(p->err, KILN_STATUS_FILE,
            "the header says %" PRIu64 " %ss (at byte %" PRIu64 "); the %" PRIu64
            " bytes after it hold at most %" PRIu64 ": the file is damaged or cut short",
            count, kind, at, rest, rest / min_bytes);
}

static enum kiln_status parse_header(struct gguf_parser *p) {
    if (p->size == 0) {
        return kiln_err_set(p->err, KILN_STATUS_FILE,
                "is empty: the header needs %d bytes from byte 0", HEADER_BYTES);
    }
    uint64_t seen = p->size < 4 ? p->size : 4;
    if (memcmp(p->data, "GGUF", (size_t)seen) != 0) {
        char found[KILN_GGUF_SHOWN];
        kiln_gguf_show(found, (struct kiln_str){(const char *)p->data, (size_t)seen});
        return kiln_err_set(p->err, KILN_STATUS_FILE,
                "is no GGUF file: it starts with '%s' at byte 0 instead of 'GGUF'", found);
    }
    if (p->size < HEADER_BYTES) {
        return kiln_err_set(p->err, KILN_STATUS_FILE,
                "the file is cut short: it has %" PRIu64 " bytes, the header needs %d from byte 0",
                p->size, HEADER_BYTES);
    }
    KILN_TRY(check_version(p, kiln_gguf_u32_at(p->data + 4)));
    uint64_t n_tensors = kiln_gguf_u64_at(p->data + 8);
    uint64_t n_keys = kiln_gguf_u64_at(p->data + 16);
    KILN_TRY(check_count(p, "tensor", 8, n_tensors, TENSOR_MIN_BYTES));
    KILN_TRY(check_count(p, "key", 16, n_keys, KEY_MIN_BYTES));
    p->gguf->n_keys = (size_t)n_keys;
    p->gguf->n_tensors = (size_t)n_tensors;
    p->at = HEADER_BYTES;
    return KILN_STATUS_OK;
}

static enum kiln_status parse_all(struct kiln_gguf *gguf, struct kiln_err *err) {
    struct gguf_parser p = {.gguf = gguf, .data = gguf->data, .size = gguf->size, .err = err};
    enum kiln_status status = parse_header(&p);
    if (status == KILN_STATUS_OK) {
        status = parse_keys(&p);
    }
    if (status == KILN_STATUS_OK) {
        status = find_alignment(&p);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_gguf_parse_tensors(&p);
    }
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "%s: ", gguf->path);
    }
    return status;
}

static enum kiln_status create(struct kiln_gguf **gguf, const char *name, struct kiln_err *err) {
    *gguf = kiln_calloc(1, sizeof(**gguf));
    if (*gguf && ((*gguf)->path = kiln_strdup(name))) {
        return KILN_STATUS_OK;
    }
    kiln_gguf_close(*gguf);
    *gguf = NULL;
    return kiln_err_nomem(err, "a model file");
}

enum kiln_status kiln_gguf_open_file(
        struct kiln_gguf **gguf, const char *path, struct kiln_err *err) {
    KILN_TRY(create(gguf, path, err));
    enum kiln_status status = kiln_map_open(&(*gguf)->map, path, err);
    if (status == KILN_STATUS_OK) {
        (*gguf)->data = (*gguf)->map.data;
        (*gguf)->size = (*gguf)->map.size;
        status = parse_all(*gguf, err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_gguf_close(*gguf);
        *gguf = NULL;
    }
    return status;
}

enum kiln_status kiln_gguf_parse(struct kiln_gguf **gguf, const uint8_t *data, size_t size,
        const char *name, struct kiln_err *err) {
    KILN_TRY(create(gguf, name, err));
    (*gguf)->data = data;
    (*gguf)->size = size;
    enum kiln_status status = parse_all(*gguf, err);
    if (status != KILN_STATUS_OK) {
        kiln_gguf_close(*gguf);
        *gguf = NULL;
    }
    return status;
}

void kiln_gguf_close(struct kiln_gguf *gguf) {
    if (!gguf) {
        return;
    }
    for (size_t i = 0; i < gguf->n_parts; i++) {
        kiln_gguf_close(gguf->parts[i]);
    }
    kiln_free(gguf->parts);
    for (size_t i = 0; gguf->tensors && i < gguf->n_tensors; i++) {
        kiln_free(gguf->tensors[i].tensor.name);
    }
    kiln_free(gguf->tensors);
    kiln_free(gguf->tensor_names);
    kiln_free(gguf->keys);
    kiln_free(gguf->key_names);
    kiln_free(gguf->path);
    kiln_map_close(&gguf->map);
    kiln_free(gguf);
}

size_t kiln_gguf_n_keys(const struct kiln_gguf *gguf) {
    return gguf->n_keys;
}

const struct kiln_gguf_key *kiln_gguf_key_at(const struct kiln_gguf *gguf, size_t index) {
    return index < gguf->n_keys ? &gguf->keys[index] : NULL;
}

const struct kiln_gguf_key *kiln_gguf_find_key(const struct kiln_gguf *gguf, const char *name) {
    return kiln_gguf_key_at(gguf, find_name(gguf->key_names, gguf->n_keys, name));
}

size_t kiln_gguf_n_tensors(const struct kiln_gguf *gguf) {
    return gguf->n_tensors;
}

const struct kiln_gguf_tensor *kiln_gguf_tensor_at(const struct kiln_gguf *gguf, size_t index) {
    return index < gguf->n_tensors ? &gguf->tensors[index].tensor : NULL;
}

const struct kiln_gguf_tensor *kiln_gguf_find_tensor(
        const struct kiln_gguf *gguf, const char *name) {
    return kiln_gguf_tensor_at(gguf, find_name(gguf->tensor_names, gguf->n_tensors, name));
}
