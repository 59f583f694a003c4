// cache: compiled kernels on disk, one file an entry: DIR/kernels/KEY.kernel.
//
// The cache can never make a run fail or run a wrong kernel. An entry is checked on every read
// (owner, length, digest, key); one that is damaged, cut, empty, of another format, under another's
// key or another user's is dropped with a warning and made anew. Entries are written under a
// temporary name, flushed and renamed. A folder that cannot be used (not there and not to be made,
// read-only, full, a file in its place, another user's) costs one warning, which names it and the
// setting, and compiles. Beyond max_size the entries that were not used for longest go.
//
// Another user is one who is neither the effective user nor root, whose files are taken: a folder
// that root filled may serve everyone. Functions may be called from any thread and process at once.
#ifndef KILN_JIT_CACHE_H
#define KILN_JIT_CACHE_H

#include "base/status.h"
#include "jit/image.h"
#include "jit/unit.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_cache;

struct kiln_cache_params {
    const char *dir;  // [cache] dir; NULL: kiln_cache_dir()
    int64_t max_size; // [cache] max_size: bytes of all entries; 0 stores none
    // For tests: called before every step of a write, with its name, and may end the process.
    void (*step)(void *arg, const char *name);
    void *step_arg;
};

// Touches nothing on disk. Fails only when out of memory. The caller ends *cache with
// kiln_cache_close.
KILN_MUST_CHECK enum kiln_status kiln_cache_open(
        struct kiln_cache **cache, const struct kiln_cache_params *params, struct kiln_err *err);
void kiln_cache_close(struct kiln_cache *cache); // NULL is fine

const char *kiln_cache_path(const struct kiln_cache *cache); // the folder of the entries

// Whether there is a good entry: 1, and *image is the caller's; or 0.
int kiln_cache_get(struct kiln_cache *cache, const struct kiln_jit_key *key, const char *key_text,
        struct kiln_image *image);
// Stores. What stops it is a warning at most.
void kiln_cache_put(struct kiln_cache *cache, const struct kiln_jit_key *key, const char *key_text,
        const struct kiln_image *image);

// Held while a key is compiled, so that however many processes want it one compiles it: take the
// lock, look again. Waits at most two minutes for another holder; a lock that cannot be had is no
// lock (-1).
int kiln_cache_lock(struct kiln_cache *cache, const struct kiln_jit_key *key);
void kiln_cache_unlock(struct kiln_cache *cache, const struct kiln_jit_key *key, int lock);

// ---- What is in it ------------------------------------------------------------------------------

struct kiln_cache_entry {
    char *name; // of the file
    uint64_t bytes;
    int64_t used; // seconds since the epoch
    char *fault;  // what is wrong with it, NULL: it is good
    // Of a good one:
    struct kiln_image image; // without its data
    char *key_text;
};

struct kiln_cache_list {
    struct kiln_cache_entry *entries; // by name
    size_t count, cap;
    const char *fault; // why none of them is used, NULL: the folder is trusted
};

// Reads and checks all entries; a folder that is not there is an empty list. KILN_STATUS_FILE: it
// cannot be read. The caller ends *list, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_cache_list(
        struct kiln_cache *cache, struct kiln_cache_list *list, struct kiln_err *err);
void kiln_cache_list_finish(struct kiln_cache_list *list);

// Removes all entries, or only those that are not good, and what killed writers left. *removed,
// *bytes count entries. KILN_STATUS_FILE: one could not be removed; the others are.
KILN_MUST_CHECK enum kiln_status kiln_cache_clear(struct kiln_cache *cache, int only_bad,
        size_t *removed, uint64_t *bytes, struct kiln_err *err);

#endif
