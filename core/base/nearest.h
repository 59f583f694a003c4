// nearest: "did you mean": the known name that a misspelled one most probably stands for.
#ifndef KILN_BASE_NEAREST_H
#define KILN_BASE_NEAREST_H

#include <stddef.h>

// Edit distance in bytes (insert, delete, substitute, swap of neighbours), letter case ignored.
size_t kiln_edit_distance(const char *a, const char *b);

// The nearest of `count` names, or NULL when none is near enough to be worth naming (more than a
// third of the longer one differs). Points into `names`.
const char *kiln_nearest(const char *word, const char *const *names, size_t count);

#endif
