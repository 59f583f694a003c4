// includes: the files that a CUDA source includes, found and read the way NVRTC will see them.
//
// NVRTC gets every file that is not CUDA's own by name and content, so that nothing enters a
// compile that is not in its key. Conditionals are not evaluated: a file behind a false #if is read
// too, one that is not found is left for the compiler to miss.
#ifndef KILN_JIT_INCLUDES_H
#define KILN_JIT_INCLUDES_H

#include "base/status.h"
#include "kiln/plugin.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_include {
    char *name; // as the #include line spells it; the path when on_disk
    char *text;
    size_t len;
    char *path;  // the file it came from, or NULL: the plugin's own header
    int on_disk; // under an include folder: the compiler reads it itself, here it enters the key
};

struct kiln_includes {
    struct kiln_include *items; // in the order in which they are first reached
    size_t count, cap;
};

struct kiln_include_search {
    const char *dir; // folder of the source file, looked in first for "…"; NULL: none
    const struct kiln_header *const *headers; // the plugin's, by name
    uint32_t n_headers;
    const char *const *dirs; // include folders, in order
    size_t n_dirs;
};

// Reads everything that `text` includes, to any depth. KILN_STATUS_FILE: a file cannot be read, or
// two files come under one name. The caller ends *includes with kiln_includes_finish, also after a
// failure.
KILN_MUST_CHECK enum kiln_status kiln_includes_read(struct kiln_includes *includes,
        const char *text, const struct kiln_include_search *search, struct kiln_err *err);
void kiln_includes_finish(struct kiln_includes *includes);

#endif
