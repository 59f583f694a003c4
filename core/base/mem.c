// mem: thin wrappers over libc that check products and can be told to fail.
#include "base/mem.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t alloc_count;
static atomic_uint_fast64_t fail_at;
static atomic_int fail_sticky;
static atomic_int watching;
static atomic_int_fast64_t live; // below 0 when blocks from before the watch are freed
static atomic_int_fast64_t peak;

static int must_fail(void) {
    uint64_t n = atomic_fetch_add(&alloc_count, 1) + 1;
    uint64_t at = atomic_load(&fail_at);
    return at != 0 && (n == at || (n > at && atomic_load(&fail_sticky)));
}

void kiln_mem_fail_at(uint64_t n, int sticky) {
    atomic_store(&fail_at, 0);
    atomic_store(&alloc_count, 0);
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_at, n);
}

uint64_t kiln_mem_count(void) {
    return atomic_load(&alloc_count);
}

void kiln_mem_watch(int on) {
    atomic_store(&live, 0);
    atomic_store(&peak, 0);
    atomic_store(&watching, on);
}

uint64_t kiln_mem_peak(void) {
    return (uint64_t)atomic_load(&peak);
}

// Counts a block; returns it.
static void *came(void *ptr) {
    if (ptr && atomic_load_explicit(&watching, memory_order_relaxed)) {
        int64_t bytes = (int64_t)malloc_usable_size(ptr);
        int64_t now = atomic_fetch_add(&live, bytes) + bytes;
        if (now > atomic_load(&peak)) {
            atomic_store(&peak, now);
        }
    }
    return ptr;
}

static void goes(void *ptr) {
    if (ptr && atomic_load_explicit(&watching, memory_order_relaxed)) {
        atomic_fetch_sub(&live, (int64_t)malloc_usable_size(ptr));
    }
}

void *kiln_alloc(size_t size) {
    return must_fail() ? NULL : came(malloc(size ? size : 1));
}

void *kiln_calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || must_fail()) {
        return NULL;
    }
    return came(bytes ? calloc(count, size) : calloc(1, 1));
}

void *kiln_realloc(void *ptr, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || must_fail()) {
        return NULL;
    }
    int64_t before = 0;
    if (ptr && atomic_load_explicit(&watching, memory_order_relaxed)) {
        before = (int64_t)malloc_usable_size(ptr);
    }
    void *grown = came(realloc(ptr, bytes ? bytes : 1)); // the peak has both, as a move needs both
    if (grown) {
        atomic_fetch_sub(&live, before);
    }
    return grown;
}

void *kiln_alloc_aligned(size_t alignment, size_t size) {
    void *ptr = NULL;
    if (must_fail() || posix_memalign(&ptr, alignment, size ? size : 1) != 0) {
        return NULL;
    }
    return came(ptr);
}

char *kiln_strndup(const char *text, size_t len) {
    char *copy = len == SIZE_MAX ? NULL : kiln_alloc(len + 1);
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

char *kiln_strdup(const char *text) {
    return kiln_strndup(text, strlen(text));
}

char *kiln_asprintf(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = len < 0 ? NULL : kiln_alloc((size_t)len + 1);
    if (text) {
        va_start(args, fmt);
        vsnprintf(text, (size_t)len + 1, fmt, args);
        va_end(args);
    }
    return text;
}

void kiln_free(void *ptr) {
    goes(ptr);
    free(ptr);
}

int kiln_grow(void *ptr_to_array, size_t *cap, size_t need, size_t elem_size) {
    if (need <= *cap) {
        return 0;
    }
    size_t want = *cap < 8 ? 8 : *cap;
    while (want < need) {
        if (want > SIZE_MAX / 2) {
            return -1;
        }
        want *= 2;
    }
    void *old;
    memcpy(&old, ptr_to_array, sizeof(old));
    void *grown = kiln_realloc(old, want, elem_size);
    if (!grown) {
        return -1;
    }
    memcpy(ptr_to_array, &grown, sizeof(grown));
    *cap = want;
    return 0;
}
