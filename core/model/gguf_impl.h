// gguf_impl: what the parts of gguf share: gguf.c checks a file and its keys, gguf_tensor.c its
// tensors, gguf_value.c reads values, gguf_split.c joins the parts of a split model.
//
// Not for anyone else: the rest of kiln includes model/gguf.h.
#ifndef KILN_MODEL_GGUF_IMPL_H
#define KILN_MODEL_GGUF_IMPL_H

#include "base/file.h"
#include "model/gguf.h"

// A name and whose it is. An array of them, sorted by name, is the index for look-up.
struct gguf_name {
    struct kiln_str name;
    size_t index;
};

struct gguf_tensor {
    struct kiln_gguf_tensor tensor;
    uint64_t at; // of its description in the file, for messages
};

struct kiln_gguf {
    struct kiln_map map; // closed when the bytes are someone else's
    char *path;          // the file's, or what stands for it
    const uint8_t *data; // (size)
    uint64_t size;
    uint32_t version;
    uint32_t alignment;
    struct kiln_gguf_key *keys;  // (n_keys)
    struct gguf_name *key_names; // (n_keys), sorted
    size_t n_keys;
    struct gguf_tensor *tensors;    // (n_tensors)
    struct gguf_name *tensor_names; // (n_tensors), sorted
    size_t n_tensors;
    // Of a split model: the other parts, which keep their mappings and keys. Their tensors stand in
    // the tables above. Entries are NULL until opened.
    struct kiln_gguf **parts; // (n_parts)
    size_t n_parts;
};

struct gguf_parser {
    struct kiln_gguf *gguf;
    const uint8_t *data; // (size)
    uint64_t size;
    uint64_t at; // next byte to read
    struct kiln_err *err;
    // What is being read, for messages:
    const char *kind;     // "key" or "tensor"
    uint64_t index;       // which one
    uint64_t start;       // its first byte
    struct kiln_str name; // empty until it has been read
};

// KILN_STATUS_FILE with kind, name and place of what is being read in front of the text.
enum kiln_status kiln_gguf_fail(struct gguf_parser *p, const char *fmt, ...) KILN_PRINTF(2, 3);

// The next bytes of the file; `what` they are is named when the file does not have them.
KILN_MUST_CHECK enum kiln_status kiln_gguf_read_u32(
        struct gguf_parser *p, const char *what, uint32_t *out);
KILN_MUST_CHECK enum kiln_status kiln_gguf_read_u64(
        struct gguf_parser *p, const char *what, uint64_t *out);
KILN_MUST_CHECK enum kiln_status kiln_gguf_read_string(
        struct gguf_parser *p, const char *what, struct kiln_str *out);

// Sorts names; gives the first of two equal neighbours, or NULL when all differ.
const struct gguf_name *kiln_gguf_sort_names(struct gguf_name *names, size_t count);

// The error for a name that sort_names found twice, described at these two bytes.
enum kiln_status kiln_gguf_twice(
        struct gguf_parser *p, const struct gguf_name *repeated, uint64_t first, uint64_t second);

// The tensor table and everything about it; p->at stands behind the last key.
KILN_MUST_CHECK enum kiln_status kiln_gguf_parse_tensors(struct gguf_parser *p);

// One file as it is, whatever its split.* keys say.
KILN_MUST_CHECK enum kiln_status kiln_gguf_open_file(
        struct kiln_gguf **gguf, const char *path, struct kiln_err *err);

// Bytes of one value of a type of fixed size; 0 for strings, arrays and unknown types.
uint32_t kiln_gguf_type_size(uint32_t type);

// The integer at `at`, as its magnitude and whether it is below 0; 0 when the type is no integer.
int kiln_gguf_integer_at(
        enum kiln_gguf_type type, const uint8_t *at, uint64_t *value, int *negative);

// Little-endian reads at any alignment.
uint32_t kiln_gguf_u32_at(const uint8_t *at);
uint64_t kiln_gguf_u64_at(const uint8_t *at);

#endif
