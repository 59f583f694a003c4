// mem: the one allocator of the core. It never aborts, and a test can make the n-th call fail.
#ifndef KILN_BASE_MEM_H
#define KILN_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

// Each returns NULL on failure or overflow; the caller owns the result and ends it with kiln_free.
// A size of 0 gives a valid pointer to no bytes, so that NULL always means failure.
void *kiln_alloc(size_t size);
void *kiln_calloc(size_t count, size_t size); // zeroed
// Grows or shrinks to count elements. On failure the old block is untouched.
void *kiln_realloc(void *ptr, size_t count, size_t size);
void *kiln_alloc_aligned(size_t alignment, size_t size); // alignment: a power of two
char *kiln_strdup(const char *text);
char *kiln_strndup(const char *text, size_t len);
char *kiln_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void kiln_free(void *ptr); // NULL is fine

// Grows an array so that it holds at least `need` elements: *ptr, *cap are updated together.
// Returns 0, or -1 on failure with the array untouched. Doubling keeps appending linear.
int kiln_grow(void *ptr_to_array, size_t *cap, size_t need, size_t elem_size);

// Failure injection: the n-th allocation from now on fails (1 = the next), and all after it too
// when `sticky`; 0 switches it off. kiln_mem_count() tells how many allocations were asked for
// since.
void kiln_mem_fail_at(uint64_t n, int sticky);
uint64_t kiln_mem_count(void);

// Bounds: between kiln_mem_watch(1) and kiln_mem_watch(0), kiln_mem_peak() is the most bytes that
// were allocated at one time since the former. For one thread at a time.
void kiln_mem_watch(int on);
uint64_t kiln_mem_peak(void);

#endif
