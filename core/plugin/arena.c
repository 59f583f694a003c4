// arena: memory that is given out in pieces and freed at once.
#include "plugin/arena.h"

#include "base/mem.h"

#include <string.h>

void *kiln_arena_calloc(struct kiln_arena *arena, size_t count, size_t size) {
    if (kiln_grow(&arena->blocks, &arena->cap, arena->count + 1, sizeof(*arena->blocks)) != 0) {
        return NULL;
    }
    void *block = kiln_calloc(count, size);
    if (block) {
        arena->blocks[arena->count++] = block;
    }
    return block;
}

void *kiln_arena_copy(struct kiln_arena *arena, const void *bytes, size_t count, size_t size) {
    void *copy = kiln_arena_calloc(arena, count, size);
    if (copy && count && size) {
        memcpy(copy, bytes, count * size); // calloc has checked the product
    }
    return copy;
}

char *kiln_arena_strdup(struct kiln_arena *arena, const char *text) {
    return kiln_arena_copy(arena, text, strlen(text) + 1, 1);
}

void kiln_arena_finish(struct kiln_arena *arena) {
    for (size_t i = 0; i < arena->count; i++) {
        kiln_free(arena->blocks[i]);
    }
    kiln_free(arena->blocks);
    *arena = (struct kiln_arena){0};
}
