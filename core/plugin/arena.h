// arena: memory that is given out in pieces and freed at once: copies of what a plugin hands over.
//
// Not a general allocator: nothing is freed singly, and every piece is one call of base/mem.h, so
// that sanitizers and the failure injection see each of them.
#ifndef KILN_PLUGIN_ARENA_H
#define KILN_PLUGIN_ARENA_H

#include <stddef.h>

// Zero-initialize; end with kiln_arena_finish.
struct kiln_arena {
    void **blocks;
    size_t count, cap;
};

// Each returns NULL when out of memory. The memory is zeroed and lives until kiln_arena_finish.
void *kiln_arena_calloc(struct kiln_arena *arena, size_t count, size_t size);
void *kiln_arena_copy(struct kiln_arena *arena, const void *bytes, size_t count, size_t size);
char *kiln_arena_strdup(struct kiln_arena *arena, const char *text);
void kiln_arena_finish(struct kiln_arena *arena);

#endif
