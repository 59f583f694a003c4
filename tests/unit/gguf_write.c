// gguf_write: little-endian bytes into three buffers, joined at the end. See core/model/gguf.h.
#include "gguf_write.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

static void put(struct kiln_buf *buf, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        char byte = (char)(value >> (8 * i) & 0xff);
        kiln_buf_append(buf, &byte, 1);
    }
}

static void put_str(struct kiln_buf *buf, const char *text, size_t len) {
    put(buf, len, 8);
    kiln_buf_append(buf, text, len);
}

static void pad(struct kiln_buf *buf, uint32_t alignment) {
    while (buf->len % alignment != 0) {
        kiln_buf_append(buf, "", 1);
    }
}

void gguf_write_init(struct gguf_write *w) {
    *w = (struct gguf_write){.magic = {'G', 'G', 'U', 'F'}, .version = 3, .alignment = 32};
}

uint8_t *gguf_write_finish(struct gguf_write *w, size_t *size) {
    struct kiln_buf all = {0};
    kiln_buf_append(&all, w->magic, sizeof(w->magic));
    put(&all, w->version, 4);
    put(&all, w->n_tensors, 8);
    put(&all, w->n_keys, 8);
    kiln_buf_append(&all, w->keys.data, w->keys.len);
    kiln_buf_append(&all, w->tensors.data, w->tensors.len);
    if (w->data.len > 0) {
        pad(&all, w->alignment);
        kiln_buf_append(&all, w->data.data, w->data.len);
    }
    assert(!w->keys.failed && !w->tensors.failed && !w->data.failed && !all.failed);
    *size = all.len;
    // Copied, so that a sanitizer sees a read past the last byte.
    uint8_t *bytes = kiln_alloc(all.len);
    assert(bytes);
    memcpy(bytes, all.data, all.len);
    kiln_buf_finish(&all);
    kiln_buf_finish(&w->keys);
    kiln_buf_finish(&w->tensors);
    kiln_buf_finish(&w->data);
    gguf_write_init(w);
    return bytes;
}

void gguf_write_value(struct gguf_write *w, const char *key, size_t key_len, uint32_t type,
        const void *value, size_t bytes) {
    put_str(&w->keys, key, key_len);
    put(&w->keys, type, 4);
    kiln_buf_append(&w->keys, value, bytes);
    w->n_keys++;
}

static void number(
        struct gguf_write *w, const char *key, uint32_t type, uint64_t value, int bytes) {
    gguf_write_value(w, key, strlen(key), type, NULL, 0);
    put(&w->keys, value, bytes);
}

void gguf_write_u32(struct gguf_write *w, const char *key, uint32_t value) {
    number(w, key, KILN_GGUF_U32, value, 4);
}

void gguf_write_u64(struct gguf_write *w, const char *key, uint64_t value) {
    number(w, key, KILN_GGUF_U64, value, 8);
}

void gguf_write_i32(struct gguf_write *w, const char *key, int32_t value) {
    number(w, key, KILN_GGUF_I32, (uint32_t)value, 4);
}

void gguf_write_f32(struct gguf_write *w, const char *key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    number(w, key, KILN_GGUF_F32, bits, 4);
}

void gguf_write_f64(struct gguf_write *w, const char *key, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    number(w, key, KILN_GGUF_F64, bits, 8);
}

void gguf_write_bool(struct gguf_write *w, const char *key, uint8_t value) {
    number(w, key, KILN_GGUF_BOOL, value, 1);
}

void gguf_write_str(struct gguf_write *w, const char *key, const char *value) {
    gguf_write_value(w, key, strlen(key), KILN_GGUF_STRING, NULL, 0);
    put_str(&w->keys, value, strlen(value));
}

void gguf_write_array(struct gguf_write *w, const char *key, uint32_t elem_type, uint64_t count,
        const void *elems, size_t bytes) {
    gguf_write_value(w, key, strlen(key), KILN_GGUF_ARRAY, NULL, 0);
    put(&w->keys, elem_type, 4);
    put(&w->keys, count, 8);
    kiln_buf_append(&w->keys, elems, bytes);
}

void gguf_write_strs(
        struct gguf_write *w, const char *key, const char *const *values, uint64_t count) {
    gguf_write_array(w, key, KILN_GGUF_STRING, count, NULL, 0);
    for (uint64_t i = 0; i < count; i++) {
        put_str(&w->keys, values[i], strlen(values[i]));
    }
}

void gguf_write_tensor_at(struct gguf_write *w, const char *name, size_t name_len, uint32_t dtype,
        uint32_t n_dims, const uint64_t *dims, uint64_t offset) {
    put_str(&w->tensors, name, name_len);
    put(&w->tensors, n_dims, 4);
    for (uint32_t i = 0; i < n_dims && i < 8; i++) {
        put(&w->tensors, dims[i], 8);
    }
    put(&w->tensors, dtype, 4);
    put(&w->tensors, offset, 8);
    w->n_tensors++;
}

void gguf_write_tensor(struct gguf_write *w, const char *name, uint32_t dtype, uint32_t n_dims,
        const uint64_t *dims, const void *data, size_t bytes) {
    pad(&w->data, w->alignment);
    gguf_write_tensor_at(w, name, strlen(name), dtype, n_dims, dims, w->data.len);
    for (size_t i = 0; data == NULL && i < bytes; i++) {
        kiln_buf_append(&w->data, "", 1);
    }
    if (data) {
        kiln_buf_append(&w->data, data, bytes);
    }
}
