// against: a wall beside an older one or another engine's profile, slot by slot.
#ifndef KILN_LAB_AGAINST_H
#define KILN_LAB_AGAINST_H

#include "lab/kernel_map.h"
#include "lab/profile.h"
#include "lab/wall.h"

struct json_t;

// Seconds of one pass; paced: of paced runs, 0 where a wall has none (a profile's kernels count as
// such). slot: as a config names it; of a profile it may be a pattern
// ("matmul.*.prefill": what no exact row has) or a name that is no slot of kiln's.
struct kiln_against_row {
    char slot[64];
    double then, now;
    double then_paced, now_paced;
};

struct kiln_against {
    struct kiln_against_row *rows; // longest first, by the larger of the two
    size_t n, cap;
    // Kernels of a profile that no section of the table has, longest first: seconds a pass.
    struct kiln_profile_kernel *unmapped;
    size_t n_unmapped, cap_unmapped;
    int paced;        // whether both sides have paced times
    double then, now; // of all rows and unmapped kernels; of kiln's walls the walls themselves
};

// saved: the result of `wall`. KILN_STATUS_FILE: it is none; path is for messages. The caller ends
// *against with kiln_against_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_against_saved(const struct kiln_wall *wall,
        const struct json_t *saved, const char *path, struct kiln_against *against,
        struct kiln_err *err);
// passes: how often the profile ran what the wall ran, warming up included.
KILN_MUST_CHECK enum kiln_status kiln_against_profile(const struct kiln_wall *wall,
        const struct kiln_profile *profile, const struct kiln_kernel_map *map, int64_t passes,
        struct kiln_against *against, struct kiln_err *err);
void kiln_against_finish(struct kiln_against *against); // a zeroed one is fine

#endif
