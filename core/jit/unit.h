// unit: one compile: everything that determines its result, gathered, and the cache key over it.
//
// Made from a kernel of a plugin, its launch and geometry, a target and the NVRTC at hand. Nothing
// is compiled here (compile.h).
#ifndef KILN_JIT_UNIT_H
#define KILN_JIT_UNIT_H

#include "base/status.h"
#include "jit/includes.h"
#include "jit/nvrtc.h"
#include "kiln/plugin.h"

#include <stddef.h>
#include <stdint.h>

enum {
    KILN_JIT_FORMAT = 1 // of keys and cache entries; raised when either changes
};

// What to compile. All pointers are the caller's.
struct kiln_jit_request {
    const char *plugin, *variant;     // names, for messages
    const struct kiln_kernel *kernel; // with a CUDA source
    const struct kiln_geometry *geometry;
    const struct kiln_launch *launch; // shared_bytes and defines
    // A file in place of the kernel's source if it spells its name, or NULL.
    const char *source;
    const char *target;               // "sm_90a"
    const struct kiln_device *device; // its limits, to be held to; NULL: not known
    int ptx;                          // PTX for the target instead of a cubin
};

// A cache key: XXH3-128 of the key text.
struct kiln_jit_key {
    char hex[33];
};

struct kiln_unit {
    char *label;    // "plugin/variant kernel": who, in messages
    char *geometry; // "FA_TKV=32 FA_TQ=64 KILN_SMEM=34816"
    char *file;     // how the source is called in messages: "fap2.cu", or the replacement's path
    char *program;  // the text that is compiled: defines, then the source with its own line numbers
    char *entry;    // kernel->name
    char *instance; // name expression, or NULL
    char *target;
    char arch[32]; // what NVRTC is asked for; "compute_…" gives PTX
    int ptx;
    struct kiln_includes includes;
    char **options;
    size_t n_options, cap_options;
    uint32_t shared_bytes; // of the launch
    // All of the above that matters, as lines of text, file contents as digests. Two units with
    // equal texts compile to the same image.
    char *key_text;
    struct kiln_jit_key key;
};

// KILN_STATUS_FILE: a source file cannot be read, a define or option is not allowed.
// KILN_STATUS_DEVICE: the target is unknown to this NVRTC, or CUDA's headers are wanted and not
// here. The caller ends *unit with kiln_unit_destroy.
KILN_MUST_CHECK enum kiln_status kiln_unit_make(struct kiln_unit **unit,
        const struct kiln_jit_request *request, const struct kiln_nvrtc *nvrtc,
        struct kiln_err *err);
void kiln_unit_destroy(struct kiln_unit *unit); // NULL is fine

#endif
