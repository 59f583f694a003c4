// entry: encodes, checks and decodes.
#include "jit/entry.h"

#include "base/mem.h"

#include <string.h>
#include <xxhash.h>

enum {
    AT_FORMAT = 8,
    AT_FLAGS = 12,
    AT_KEY = 16,
    AT_SIZE = 48,
    AT_LENGTHS = 56,
    AT_RESOURCES = 80,
    AT_MICROSECONDS = 104,
    AT_IMAGE_SIZE = 112,
    HEADER = 120,
    DIGEST = 16,
    N_TEXTS = 5,
    FLAG_PTX = 1
};

static const char magic[] = "KILNJIT\n";

static void put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static void put64(uint8_t *at, uint64_t value) {
    put32(at, (uint32_t)value);
    put32(at + 4, (uint32_t)(value >> 32));
}

static uint32_t get32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get64(const uint8_t *at) {
    return get32(at) | (uint64_t)get32(at + 4) << 32;
}

static void digest(const uint8_t *bytes, size_t size, uint8_t out[DIGEST]) {
    XXH128_hash_t hash = XXH3_128bits(bytes, size);
    put64(out, hash.high64);
    put64(out + 8, hash.low64);
}

enum kiln_status kiln_entry_encode(const struct kiln_jit_key *key, const char *key_text,
        const struct kiln_image *image, uint8_t **bytes, size_t *size, struct kiln_err *err) {
    const char *texts[N_TEXTS] = {
            key_text, image->entry, image->target, image->label, image->geometry};
    *size = HEADER + image->size + DIGEST;
    for (int i = 0; i < N_TEXTS; i++) {
        *size += strlen(texts[i]);
    }
    uint8_t *data = kiln_calloc(*size, 1);
    if (!data) {
        return kiln_err_nomem(err, "a cache entry");
    }
    memcpy(data, magic, 8); // NOLINT(bugprone-not-null-terminated-result): 8 bytes of a file
    put32(data + AT_FORMAT, KILN_JIT_FORMAT);
    put32(data + AT_FLAGS, image->ptx ? FLAG_PTX : 0);
    memcpy(data + AT_KEY, key->hex, 32);
    put64(data + AT_SIZE, *size);
    const struct kiln_resources *r = &image->resources;
    const int32_t resources[5] = {
            r->registers, r->stack, r->spill_stores, r->spill_loads, r->smem_static};
    for (size_t i = 0; i < 5; i++) {
        put32(data + AT_RESOURCES + 4 * i, (uint32_t)resources[i]);
    }
    put64(data + AT_MICROSECONDS, (uint64_t)(image->compile_ms * 1e3));
    put64(data + AT_IMAGE_SIZE, image->size);
    uint8_t *at = data + HEADER;
    for (size_t i = 0; i < N_TEXTS; i++) {
        size_t len = strlen(texts[i]);
        put32(data + AT_LENGTHS + 4 * i, (uint32_t)len);
        memcpy(at, texts[i], len);
        at += len;
    }
    memcpy(at, image->data, image->size);
    digest(data, *size - DIGEST, data + *size - DIGEST);
    *bytes = data;
    return KILN_STATUS_OK;
}

// Whether the lengths of the parts add up to the size.
static int adds_up(const uint8_t *bytes, size_t size) {
    uint64_t rest = size - HEADER - DIGEST;
    for (size_t i = 0; i < N_TEXTS; i++) {
        uint64_t len = get32(bytes + AT_LENGTHS + 4 * i);
        if (len > rest) {
            return 0;
        }
        rest -= len;
    }
    return get64(bytes + AT_IMAGE_SIZE) == rest;
}

const char *kiln_entry_fault(
        const uint8_t *bytes, size_t size, const struct kiln_jit_key *key, const char *key_text) {
    uint8_t seen[DIGEST];
    if (size == 0) {
        return "it is empty";
    }
    if (size < HEADER + DIGEST) {
        return "it is cut short";
    }
    if (memcmp(bytes, magic, 8) != 0) {
        return "it is no cache entry";
    }
    if (get32(bytes + AT_FORMAT) != KILN_JIT_FORMAT) {
        return "it has another format";
    }
    if (get64(bytes + AT_SIZE) != size) {
        return "its length is wrong";
    }
    digest(bytes, size - DIGEST, seen);
    if (memcmp(seen, bytes + size - DIGEST, DIGEST) != 0 || !adds_up(bytes, size)) {
        return "its digest is wrong";
    }
    if (memcmp(bytes + AT_KEY, key->hex, 32) != 0) {
        return "it belongs to another key";
    }
    if (key_text && (get32(bytes + AT_LENGTHS) != strlen(key_text) ||
                            memcmp(bytes + HEADER, key_text, strlen(key_text)) != 0)) {
        return "it was made from other sources";
    }
    return NULL;
}

enum kiln_status kiln_entry_decode(
        const uint8_t *bytes, struct kiln_image *image, char **key_text, struct kiln_err *err) {
    char *texts[N_TEXTS];
    const uint8_t *at = bytes + HEADER;
    int failed = 0;
    for (size_t i = 0; i < N_TEXTS; i++) {
        size_t len = get32(bytes + AT_LENGTHS + 4 * i);
        texts[i] = kiln_strndup((const char *)at, len);
        failed |= !texts[i];
        at += len;
    }
    *image = (struct kiln_image){.entry = texts[1],
            .target = texts[2],
            .label = texts[3],
            .geometry = texts[4],
            .size = get64(bytes + AT_IMAGE_SIZE),
            .ptx = (get32(bytes + AT_FLAGS) & FLAG_PTX) != 0,
            .compile_ms = (double)get64(bytes + AT_MICROSECONDS) / 1e3,
            .resources = {(int32_t)get32(bytes + AT_RESOURCES),
                    (int32_t)get32(bytes + AT_RESOURCES + 4),
                    (int32_t)get32(bytes + AT_RESOURCES + 8),
                    (int32_t)get32(bytes + AT_RESOURCES + 12),
                    (int32_t)get32(bytes + AT_RESOURCES + 16)}};
    image->data = failed ? NULL : kiln_alloc(image->size + 1);
    if (!image->data) {
        kiln_free(texts[0]);
        kiln_image_finish(image);
        return kiln_err_nomem(err, "a cache entry");
    }
    memcpy(image->data, at, image->size);
    image->data[image->size] = '\0';
    if (key_text) {
        *key_text = texts[0];
    } else {
        kiln_free(texts[0]);
    }
    return KILN_STATUS_OK;
}
