// dir: the names in a folder.
#ifndef KILN_BASE_DIR_H
#define KILN_BASE_DIR_H

#include <stddef.h>

// Zero-initialize; end with kiln_dir_finish.
struct kiln_dir {
    char **names; // sorted by bytes
    size_t count, cap;
};

// The names that begin with `prefix` and end in `suffix` ("" for any), "." and ".." left out. 0, or
// -1 with errno; the caller ends *dir either way.
int kiln_dir_read(struct kiln_dir *dir, const char *path, const char *prefix, const char *suffix);
void kiln_dir_finish(struct kiln_dir *dir);

#endif
