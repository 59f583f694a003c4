// jit: compiled kernels on demand: from the cache, else by NVRTC, on all cores.
//
// What a device or a command uses. Opens NVRTC when the first kernel is asked for.
// KILN_NO_COMPILE=1 in the environment turns every compile into an error that names the kernel:
// with it, a run that succeeds has shown that its cache was warm.
#ifndef KILN_JIT_JIT_H
#define KILN_JIT_JIT_H

#include "base/status.h"
#include "jit/cache.h"
#include "jit/fit.h"
#include "jit/image.h"
#include "jit/layout.h"
#include "jit/nvrtc.h"
#include "jit/unit.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_jit;

// Compiles a unit, as kiln_compile does.
typedef enum kiln_status (*kiln_compile_fn)(void *arg, const struct kiln_unit *unit,
        struct kiln_image *image, char **log, struct kiln_err *err);

struct kiln_jit_params {
    struct kiln_cache_params cache; // [cache] dir, max_size
    uint32_t threads;               // compiles at once; 0: all cores
    // Optional: what the caller holds under a key already, so that no image is needed; NULL:
    // nothing. Called from kiln_jit_run's thread, once an item.
    void *(*have)(void *arg, const struct kiln_jit_key *key);
    void *have_arg;
    // For tests: in place of NVRTC. `nvrtc` then only lends its identity and targets.
    const struct kiln_nvrtc *nvrtc;
    kiln_compile_fn compile;
    void *compile_arg;
};

// Fails only when out of memory. The caller ends *jit with kiln_jit_close. Used from one thread at
// a time.
KILN_MUST_CHECK enum kiln_status kiln_jit_open(
        struct kiln_jit **jit, const struct kiln_jit_params *params, struct kiln_err *err);
void kiln_jit_close(struct kiln_jit *jit); // NULL is fine

struct kiln_cache *kiln_jit_cache(struct kiln_jit *jit);
// The NVRTC in use; NULL before the first kernel and when there is none.
const struct kiln_nvrtc *kiln_jit_nvrtc(const struct kiln_jit *jit);
// Opens NVRTC now. KILN_STATUS_DEVICE when there is none, as every kernel would be.
KILN_MUST_CHECK enum kiln_status kiln_jit_need_nvrtc(struct kiln_jit *jit, struct kiln_err *err);

// One kernel wanted, and what came of it.
struct kiln_jit_item {
    struct kiln_jit_request request;
    // Filled in:
    enum kiln_status status;
    struct kiln_err err; // when status is not OK
    struct kiln_image image;
    struct kiln_jit_key key;         // equal keys: equal images
    struct kiln_layout_check layout; // of the kernel against its launcher
    struct kiln_layout regions;      // as the kernel exports them
    struct kiln_fit fit;             // of the launch on the request's device
    int cached;                      // it came from the cache
    void *held;                      // what `have` gave; the image is empty then
    double ms;                       // it took this long now; 0 for a twin of an item before it
    char *log;                       // of the compile, if there was one
    char *source; // the text that was compiled, when kiln_jit_run was asked for it
};

// Gets all items, compiles side by side. Every item is tried; the first failure in list order is
// returned, its whole compile log written to the log as a warning. A launcher that asks for more
// shared memory than its kernel's layout is a warning. keep_sources: fill in `source`.
KILN_MUST_CHECK enum kiln_status kiln_jit_run(struct kiln_jit *jit, struct kiln_jit_item *items,
        size_t count, int keep_sources, struct kiln_err *err);
void kiln_jit_items_finish(struct kiln_jit_item *items, size_t count);

#endif
