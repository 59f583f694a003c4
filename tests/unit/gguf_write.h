// gguf_write: builds a small GGUF file in memory, right by default, wrong wherever a test wants it.
//
// Order of use: init, add keys and tensors in any order, change the header fields, finish. The
// bytes may then be changed or cut at will. Running out of memory is an assertion: tests have
// enough.
#ifndef KILN_TESTS_GGUF_WRITE_H
#define KILN_TESTS_GGUF_WRITE_H

#include "base/buf.h"
#include "model/gguf.h"

#include <stddef.h>
#include <stdint.h>

struct gguf_write {
    // The header, as it will be written. Adding counts up; a test may then put in any number.
    char magic[4];
    uint32_t version;
    uint64_t n_tensors;
    uint64_t n_keys;

    uint32_t alignment; // of the data; the key general.alignment is the test's to add
    struct kiln_buf keys;
    struct kiln_buf tensors;
    struct kiln_buf data;
};

void gguf_write_init(struct gguf_write *w); // version 3, alignment 32, nothing in it
// The whole file; the caller ends it with kiln_free. w is empty afterwards.
uint8_t *gguf_write_finish(struct gguf_write *w, size_t *size);

// Keys. `type` and `elem_type` are written as they are, right or wrong.
void gguf_write_u32(struct gguf_write *w, const char *key, uint32_t value);
void gguf_write_u64(struct gguf_write *w, const char *key, uint64_t value);
void gguf_write_i32(struct gguf_write *w, const char *key, int32_t value);
void gguf_write_f32(struct gguf_write *w, const char *key, float value);
void gguf_write_f64(struct gguf_write *w, const char *key, double value);
void gguf_write_bool(struct gguf_write *w, const char *key, uint8_t value);
void gguf_write_str(struct gguf_write *w, const char *key, const char *value);
void gguf_write_strs(
        struct gguf_write *w, const char *key, const char *const *values, uint64_t count);
void gguf_write_array(struct gguf_write *w, const char *key, uint32_t elem_type, uint64_t count,
        const void *elems, size_t bytes);
void gguf_write_value(struct gguf_write *w, const char *key, size_t key_len, uint32_t type,
        const void *value, size_t bytes);

// A tensor whose data, `bytes` long (zeros when data is NULL), goes behind what is there, aligned.
void gguf_write_tensor(struct gguf_write *w, const char *name, uint32_t dtype, uint32_t n_dims,
        const uint64_t *dims, const void *data, size_t bytes);
// Only the description; n_dims sizes are written, whatever it is, but at most 8.
void gguf_write_tensor_at(struct gguf_write *w, const char *name, size_t name_len, uint32_t dtype,
        uint32_t n_dims, const uint64_t *dims, uint64_t offset);

#endif
