// gguf_split: a model in several files, NAME-00001-of-0000N.gguf, opened as one.
//
// Each part is a whole GGUF file with three keys more: split.no (from 0), split.count and
// split.tensors.count (of all parts). Only the first has the model's own keys. Parts find each
// other by name, in one folder.
//
// Not here: a single file (gguf.c), writing parts.
#include "model/gguf_impl.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_PARTS = 65535, // split.count is a u16 in the files that are around
    SUFFIX_LEN = 20,   // "-00001-of-00003.gguf"
};

struct split {
    struct kiln_gguf **parts; // (count), NULL until opened
    uint32_t count;
    uint32_t given;   // the part that was asked for, from 0
    const char *path; // of that part
    size_t stem_len;  // of path: what stands before "-00001-of-..."
    uint64_t tensors; // split.tensors.count of the part that was asked for
    struct kiln_err *err;
};

// Five digits as a number; -1 when they are none.
static int32_t five_digits(const char *at) {
    int32_t value = 0;
    for (int i = 0; i < 5; i++) {
        if (at[i] < '0' || at[i] > '9') {
            return -1;
        }
        value = value * 10 + (at[i] - '0');
    }
    return value;
}

static enum kiln_status read_name(struct split *s) {
    size_t len = strlen(s->path);
    const char *at = len >= SUFFIX_LEN ? s->path + len - SUFFIX_LEN : "";
    if (len < SUFFIX_LEN || at[0] != '-' || five_digits(at + 1) < 1 ||
            memcmp(at + 6, "-of-", 4) != 0 || five_digits(at + 10) != (int32_t)s->count ||
            five_digits(at + 1) > (int32_t)s->count || strcmp(at + 15, ".gguf") != 0) {
        return kiln_err_set(s->err, KILN_STATUS_FILE,
                "%s: key 'split.count' is %" PRIu32 ", so this is a part of a split model, but its "
                "name does not end in -00001-of-%05" PRIu32 ".gguf (or another number up to "
                "%" PRIu32 "); the parts find each other by name: give it its own back",
                s->path, s->count, s->count, s->count);
    }
    s->given = (uint32_t)five_digits(at + 1) - 1;
    s->stem_len = len - SUFFIX_LEN;
    return KILN_STATUS_OK;
}

static enum kiln_status check_part(struct split *s, uint32_t index) {
    const struct kiln_gguf *part = s->parts[index];
    uint64_t number = 0, count = 0, tensors = 0;
    KILN_TRY(kiln_gguf_get_u64(
            part, "split.count", KILN_GGUF_REQUIRED, 0, UINT64_MAX, &count, s->err));
    KILN_TRY(kiln_gguf_get_u64(
            part, "split.no", KILN_GGUF_REQUIRED, 0, UINT64_MAX, &number, s->err));
    KILN_TRY(kiln_gguf_get_u64(
            part, "split.tensors.count", KILN_GGUF_REQUIRED, 0, UINT64_MAX, &tensors, s->err));
    if (index == s->given) {
        s->tensors = tensors;
    }
    if (number != index) {
        return kiln_err_set(s->err, KILN_STATUS_FILE,
                "%s: key 'split.no' at byte %" PRIu64 " is %" PRIu64 "; by its name the file is "
                "number %" PRIu32 " (counted from 0): a part was renamed",
                kiln_gguf_path(part), kiln_gguf_find_key(part, "split.no")->offset, number, index);
    }
    if (count == s->count && tensors == s->tensors) {
        return KILN_STATUS_OK;
    }
    const char *key = count != s->count ? "split.count" : "split.tensors.count";
    return kiln_err_set(s->err, KILN_STATUS_FILE,
            "%s: key '%s' at byte %" PRIu64 " is %" PRIu64 ", in %s it is %" PRIu64
            ": these are not parts of one model",
            kiln_gguf_path(part), key, kiln_gguf_find_key(part, key)->offset,
            count != s->count ? count : tensors, s->path,
            count != s->count ? s->count : s->tensors);
}

static enum kiln_status open_part(struct split *s, uint32_t index) {
    if (index == s->given) {
        return KILN_STATUS_OK; // open and checked
    }
    char *path = kiln_asprintf("%.*s-%05" PRIu32 "-of-%05" PRIu32 ".gguf", (int)s->stem_len,
            s->path, index + 1, s->count);
    if (!path) {
        return kiln_err_nomem(s->err, "a path");
    }
    enum kiln_status status;
    if (kiln_file_exists(path)) {
        status = kiln_gguf_open_file(&s->parts[index], path, s->err);
    } else {
        status = kiln_err_set(s->err, KILN_STATUS_FILE,
                "%s: part %" PRIu32 " of %" PRIu32 " is missing; key 'split.count' of %s is "
                "%" PRIu32 ": put all parts into one folder",
                path, index + 1, s->count, s->path, s->count);
    }
    kiln_free(path);
    return status == KILN_STATUS_OK ? check_part(s, index) : status;
}

// The part that has tensor `index` of all.
static const struct kiln_gguf *owner(const struct split *s, size_t index) {
    uint32_t part = 0;
    while (index >= s->parts[part]->n_tensors) {
        index -= s->parts[part++]->n_tensors;
    }
    return s->parts[part];
}

// Fills the joined tables, which the parts' own do not notice.
static enum kiln_status join_tables(
        struct split *s, struct gguf_tensor *tensors, struct gguf_name *names, size_t total) {
    size_t at = 0;
    for (uint32_t part = 0; part < s->count; part++) {
        for (size_t i = 0; i < s->parts[part]->n_tensors; i++, at++) {
            tensors[at] = s->parts[part]->tensors[i];
            const char *name = tensors[at].tensor.name;
            names[at] = (struct gguf_name){.name = {name, strlen(name)}, .index = at};
        }
    }
    const struct gguf_name *repeated = kiln_gguf_sort_names(names, total);
    if (repeated) {
        return kiln_err_set(s->err, KILN_STATUS_FILE,
                "%s: tensor '%s' at byte %" PRIu64 " is also in %s, at byte %" PRIu64
                "; each tensor of a split model lies in one part",
                kiln_gguf_path(owner(s, repeated[1].index)), repeated[0].name.data,
                tensors[repeated[1].index].at, kiln_gguf_path(owner(s, repeated[0].index)),
                tensors[repeated[0].index].at);
    }
    return KILN_STATUS_OK;
}

// The first part takes the tensors of all.
static enum kiln_status join(struct split *s) {
    size_t total = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        total += s->parts[i]->n_tensors; // each is backed by bytes in a file: no overflow
    }
    if (total != s->tensors) {
        return kiln_err_set(s->err, KILN_STATUS_FILE,
                "%s: key 'split.tensors.count' at byte %" PRIu64 " is %" PRIu64 ", the %" PRIu32
                " parts have %zu tensors",
                s->path, kiln_gguf_find_key(s->parts[s->given], "split.tensors.count")->offset,
                s->tensors, s->count, total);
    }
    struct gguf_tensor *tensors = kiln_calloc(total, sizeof(*tensors));
    struct gguf_name *names = kiln_calloc(total, sizeof(*names));
    enum kiln_status status = tensors && names ? join_tables(s, tensors, names, total)
                                               : kiln_err_nomem(s->err, "the tensor table");
    if (status != KILN_STATUS_OK) {
        kiln_free(tensors);
        kiln_free(names);
        return status;
    }
    struct kiln_gguf *first = s->parts[0];
    for (uint32_t i = 0; i < s->count; i++) {
        s->parts[i]->n_tensors = 0; // their names have moved
    }
    kiln_free(first->tensors);
    kiln_free(first->tensor_names);
    first->tensors = tensors;
    first->tensor_names = names;
    first->n_tensors = total;
    first->parts = s->parts;
    first->n_parts = s->count;
    return KILN_STATUS_OK;
}

// Takes s->parts.
static enum kiln_status open_others(struct split *s, struct kiln_gguf **first) {
    enum kiln_status status = check_part(s, s->given);
    for (uint32_t i = 0; i < s->count && status == KILN_STATUS_OK; i++) {
        status = open_part(s, i);
    }
    if (status == KILN_STATUS_OK) {
        status = join(s);
    }
    if (status == KILN_STATUS_OK) {
        *first = s->parts[0];
        s->parts[0] = NULL; // it does not own itself
        return KILN_STATUS_OK;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        kiln_gguf_close(s->parts[i]);
    }
    kiln_free(s->parts);
    return status;
}

enum kiln_status kiln_gguf_open(struct kiln_gguf **gguf, const char *path, struct kiln_err *err) {
    KILN_TRY(kiln_gguf_open_file(gguf, path, err));
    uint64_t count = 0;
    enum kiln_status status =
            kiln_gguf_get_u64(*gguf, "split.count", KILN_GGUF_OPTIONAL, 0, MAX_PARTS, &count, err);
    if (status == KILN_STATUS_OK && count <= 1) {
        return KILN_STATUS_OK;
    }
    struct kiln_gguf *given = *gguf;
    *gguf = NULL;
    struct split s = {.count = (uint32_t)count, .path = path, .err = err};
    if (status == KILN_STATUS_OK) {
        status = read_name(&s);
    }
    if (status == KILN_STATUS_OK && !(s.parts = kiln_calloc(count, sizeof(struct kiln_gguf *)))) {
        status = kiln_err_nomem(err, "the parts of a split model");
    }
    if (status != KILN_STATUS_OK) {
        kiln_gguf_close(given);
        return status;
    }
    s.parts[s.given] = given;
    return open_others(&s, gguf);
}
