// source_files: the files that a CUDA source on disk stands for: itself, and what it and they
// include from their folders. To notice an edit of any of them. CUDA's own headers and those that a
// plugin brings are not among them.
#ifndef KILN_JIT_SOURCE_FILES_H
#define KILN_JIT_SOURCE_FILES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_source_file {
    char *path, *text;
};

struct kiln_source_files {
    struct kiln_source_file *items; // the source first
    size_t count, cap;
    uint64_t digest; // of all their contents; never 0
};

// KILN_STATUS_FILE: one of them cannot be read. The caller ends *files with
// kiln_source_files_finish, also after a failure, when it holds what was reached.
KILN_MUST_CHECK enum kiln_status kiln_source_files_read(
        struct kiln_source_files *files, const char *path, struct kiln_err *err);
// Whether one of them spells the name, as a word, outside of comments and strings. A file that
// takes the place of a variant's source stands for those of its kernels that it spells.
int kiln_source_files_spell(const struct kiln_source_files *files, const char *name);
void kiln_source_files_finish(struct kiln_source_files *files);

#endif
