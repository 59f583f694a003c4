// cache_impl: what cache.c (one entry) and cache_folder.c (all of them) share.
#ifndef KILN_JIT_CACHE_IMPL_H
#define KILN_JIT_CACHE_IMPL_H

#include "jit/cache.h"

#include <stdatomic.h>
#include <sys/stat.h>

#define KILN_CACHE_SUFFIX ".kernel"

struct kiln_cache {
    struct kiln_cache_params params;
    char *base;        // the cache folder
    char *path;        // base/kernels
    atomic_int warned; // that the folder cannot be used
};

// What kiln_cache_read says when it is the memory and not the file that fails; compared by address.
extern const char kiln_cache_no_memory[];

extern const char kiln_cache_foreign[]; // what is wrong with a file or folder of another user

// Reads a whole entry file. NULL on success, else what is wrong ("it belongs to another user"). No
// file is "". The caller frees *bytes. `touch`: notes that it was used.
const char *kiln_cache_read(
        const char *path, int touch, uint8_t **bytes, size_t *size, struct stat *st);

// Whether the file's owner is one whose files are taken.
int kiln_cache_trusts(const struct stat *st);

// Removes what is beyond max_size, least recently used first, and what killed writers left long
// ago. Never removes the entry of `key`.
void kiln_cache_sweep(struct kiln_cache *cache, const struct kiln_jit_key *key);

#endif
