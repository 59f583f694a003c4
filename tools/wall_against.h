// wall_against: `kiln wall --against FILE`: what FILE is, what is stale about it, the table.
#ifndef KILN_TOOLS_WALL_AGAINST_H
#define KILN_TOOLS_WALL_AGAINST_H

#include "cmd.h"

#include "lab/wall.h"

struct json_t;
struct kiln_wall_other; // an older wall, or a profile with its table of kernels

// path: what --save wrote, a --json document, or a profile (lab/profile.h), told apart by the first
// byte. Of a profile, and an error of a wall: kernels: the table (lab/kernel_map.h), NULL: that of
// llama.cpp; passes: how often it ran the workload, 0: once. The caller owns *other.
KILN_MUST_CHECK enum kiln_status kiln_wall_other_read(const char *path, const char *kernels,
        int64_t passes, struct kiln_wall_other **other, struct kiln_err *err);
void kiln_wall_other_destroy(struct kiln_wall_other *other); // NULL is fine

// Puts the comparison into `now`'s result as "against", and prints it unless `json`. now: the
// envelope of this run. What is stale goes to stderr.
KILN_MUST_CHECK enum kiln_status kiln_wall_compare(const struct kiln_wall_other *other,
        const struct kiln_wall *wall, struct json_t *now, int json, struct kiln_err *err);

#endif
