// gguf: a GGUF v2 or v3 file, mapped and checked, as a table of keys and a table of tensors.
//
// Nothing is copied but the tables: names, strings, arrays and tensor data point into the mapping.
// Every count, length, type, offset, product and alignment is checked before it is used, against
// what the rest of the file can hold; the memory used is bounded by 16 bytes for each byte of the
// file plus 64 MB.
//
// The format (all little-endian; source: the GGUF page of ggml's docs):
//
//   offset  size
//        0     4  magic "GGUF" (47 47 55 46)
//        4     4  u32 version, 2 or 3
//        8     8  u64 tensor count
//       16     8  u64 key count
//       24        keys:    string key, u32 value type, value
//                          string = u64 length, bytes (no NUL); array = u32 element type, u64
//                          count, elements
//                 tensors: string name, u32 dimensions (1..4), u64 size[dimensions] (fastest
//                 first),
//                          u32 type, u64 offset from the start of the data
//                 padding to general.alignment (u32, a power of two, default 32)
//                 data
//
// A model may be split into files NAME-00001-of-0000N.gguf in one folder: opening any of them opens
// all. The keys are then those of the first, the tensors those of all.
//
// Not here: what the keys mean (core/model/model.h).
#ifndef KILN_MODEL_GGUF_H
#define KILN_MODEL_GGUF_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum kiln_gguf_type {
    KILN_GGUF_U8 = 0,
    KILN_GGUF_I8 = 1,
    KILN_GGUF_U16 = 2,
    KILN_GGUF_I16 = 3,
    KILN_GGUF_U32 = 4,
    KILN_GGUF_I32 = 5,
    KILN_GGUF_F32 = 6,
    KILN_GGUF_BOOL = 7,
    KILN_GGUF_STRING = 8,
    KILN_GGUF_ARRAY = 9,
    KILN_GGUF_U64 = 10,
    KILN_GGUF_I64 = 11,
    KILN_GGUF_F64 = 12,
};

// A view into the file: not NUL-terminated, may hold any byte.
struct kiln_str {
    const char *data;
    size_t len;
};

enum {
    KILN_GGUF_SHOWN = 96
};
// Bytes from a file as they may be shown on a terminal: printable ASCII as it is, all else as \xNN,
// cut with "..." after some 80 characters. Returns out.
const char *kiln_gguf_show(char out[KILN_GGUF_SHOWN], struct kiln_str text);

struct kiln_gguf_key {
    struct kiln_str name;
    enum kiln_gguf_type type;      // of the value
    enum kiln_gguf_type elem_type; // of the elements when type is ARRAY
    uint64_t count;                // elements of an array, else 1
    const uint8_t *value;          // first byte of the value (of the first element)
    uint64_t offset;               // of the key in the file, for messages
    uint64_t value_bytes;          // bytes of all elements, string lengths included
};

struct kiln_gguf_tensor {
    char *name;           // NUL-terminated, valid UTF-8 without control characters
    uint32_t dtype;       // enum kiln_dtype: one that kiln_dtype_info knows
    uint32_t n_dims;      // 1..4
    uint64_t dims[4];     // fastest first, unused ones 1; each > 0; dims[0] a multiple of the block
    uint64_t elems;       // product of dims
    uint64_t bytes;       // of the data
    uint64_t file_offset; // of the data, from the start of the file (of its part, when split)
    const uint8_t *data;  // in the mapping
};

struct kiln_gguf;

// Opens and checks a file, or all parts of a split model when path is one of them (the key
// split.count is above 1). Errors are KILN_STATUS_FILE and name the file, the key or tensor and the
// byte offset, what was found and what is allowed; a part that is missing is named. *gguf is the
// caller's, ended with kiln_gguf_close.
KILN_MUST_CHECK enum kiln_status kiln_gguf_open(
        struct kiln_gguf **gguf, const char *path, struct kiln_err *err);
// The same on bytes in memory, which must outlive the result; `name` stands for the path in
// messages. A part of a split model stays alone.
KILN_MUST_CHECK enum kiln_status kiln_gguf_parse(struct kiln_gguf **gguf, const uint8_t *data,
        size_t size, const char *name, struct kiln_err *err);
void kiln_gguf_close(struct kiln_gguf *gguf); // NULL is fine

const char *kiln_gguf_path(const struct kiln_gguf *gguf);
uint32_t kiln_gguf_version(const struct kiln_gguf *gguf);
uint32_t kiln_gguf_alignment(const struct kiln_gguf *gguf);
uint64_t kiln_gguf_file_size(const struct kiln_gguf *gguf); // of all parts
size_t kiln_gguf_n_files(const struct kiln_gguf *gguf);     // 1, or the parts of a split model

size_t kiln_gguf_n_keys(const struct kiln_gguf *gguf);
const struct kiln_gguf_key *kiln_gguf_key_at(const struct kiln_gguf *gguf, size_t index);
const struct kiln_gguf_key *kiln_gguf_find_key(const struct kiln_gguf *gguf, const char *name);

size_t kiln_gguf_n_tensors(const struct kiln_gguf *gguf);
const struct kiln_gguf_tensor *kiln_gguf_tensor_at(const struct kiln_gguf *gguf, size_t index);
const struct kiln_gguf_tensor *kiln_gguf_find_tensor(
        const struct kiln_gguf *gguf, const char *name);

const char *kiln_gguf_type_name(enum kiln_gguf_type type); // "u32", "string" …

// Typed reads. A missing key gives `KILN_STATUS_OK` and leaves *out at the caller's default, unless
// `required`; a key of another type, or a value out of [min, max], is KILN_STATUS_FILE naming key,
// offset, value and what is allowed. Integers accept every integer type.
enum {
    KILN_GGUF_OPTIONAL = 0,
    KILN_GGUF_REQUIRED = 1
};
KILN_MUST_CHECK enum kiln_status kiln_gguf_get_u64(const struct kiln_gguf *gguf, const char *name,
        int required, uint64_t min, uint64_t max, uint64_t *out, struct kiln_err *err);
// F32 or F64; NaN and infinity are refused.
KILN_MUST_CHECK enum kiln_status kiln_gguf_get_f32(const struct kiln_gguf *gguf, const char *name,
        int required, float min, float max, float *out, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_gguf_get_bool(const struct kiln_gguf *gguf, const char *name,
        int required, int *out, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_gguf_get_str(const struct kiln_gguf *gguf, const char *name,
        int required, struct kiln_str *out, struct kiln_err *err);
// An array of `elem_type`; *out is NULL when the key is absent and not required.
KILN_MUST_CHECK enum kiln_status kiln_gguf_get_array(const struct kiln_gguf *gguf, const char *name,
        int required, enum kiln_gguf_type elem_type, const struct kiln_gguf_key **out,
        struct kiln_err *err);

// Walks the strings of a string array from the front; start with a zeroed cursor. 0 at the end.
struct kiln_gguf_cursor {
    uint64_t index;
    const uint8_t *at;
};
int kiln_gguf_next_str(
        const struct kiln_gguf_key *array, struct kiln_gguf_cursor *cursor, struct kiln_str *out);

// Element i of an array of integers, floats or bools as a double (exact up to 2^53).
double kiln_gguf_array_number(const struct kiln_gguf_key *array, uint64_t i);

#endif
