// scratch: a folder for a test's files, and a disk that is full.
#ifndef KILN_TESTS_SCRATCH_H
#define KILN_TESTS_SCRATCH_H

#include <stddef.h>

// Makes an empty folder; cmocka's group setup and teardown.
int scratch_setup(void **state);
int scratch_teardown(void **state); // with all in it

// A path in the folder; valid until the eighth call from now.
const char *scratch_path(const char *name);
size_t scratch_count(void); // files in the folder, hidden ones too
void scratch_empty(void);   // removes them
void scratch_fill_disk(
        size_t bytes); // files can grow to so many bytes only, until scratch_free_disk
void scratch_free_disk(void);

#endif
