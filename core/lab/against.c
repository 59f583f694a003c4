// against: two lists of times joined by slot.
#include "lab/against.h"

#include "base/mem.h"
#include "plugin/registry.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum kiln_status row_of(struct kiln_against *against, const char *slot,
        struct kiln_against_row **row, struct kiln_err *err) {
    for (size_t i = 0; i < against->n; i++) {
        if (strcmp(against->rows[i].slot, slot) == 0) {
            *row = &against->rows[i];
            return KILN_STATUS_OK;
        }
    }
    if (kiln_grow(&against->rows, &against->cap, against->n + 1, sizeof(*against->rows)) != 0) {
        return kiln_err_nomem(err, "a comparison of walls");
    }
    *row = &against->rows[against->n++];
    **row = (struct kiln_against_row){.then = 0};
    snprintf((*row)->slot, sizeof((*row)->slot), "%s", slot);
    return KILN_STATUS_OK;
}

static enum kiln_status add_then(struct kiln_against *against, const char *slot, double seconds,
        double paced, struct kiln_err *err) {
    struct kiln_against_row *row;
    KILN_TRY(row_of(against, slot, &row, err));
    row->then += seconds;
    row->then_paced += paced;
    return KILN_STATUS_OK;
}

// The row that a slot of the wall belongs to: its own, else that of a pattern, else a new one.
static enum kiln_status add_now(
        struct kiln_against *against, const struct kiln_wall_slice *slice, struct kiln_err *err) {
    const char *slot = slice->slot;
    struct kiln_against_row *row = NULL;
    for (size_t i = 0; i < against->n && !row; i++) {
        row = strcmp(against->rows[i].slot, slot) == 0 ? &against->rows[i] : NULL;
    }
    for (size_t i = 0; i < against->n && !row; i++) {
        row = kiln_slot_matches(against->rows[i].slot, slot) ? &against->rows[i] : NULL;
    }
    if (!row) {
        KILN_TRY(row_of(against, slot, &row, err));
    }
    row->now += slice->seconds;
    row->now_paced += slice->paced;
    return KILN_STATUS_OK;
}

static int longest_first(const void *a, const void *b) {
    const struct kiln_against_row *x = a, *y = b;
    double one = x->then > x->now ? x->then : x->now, other = y->then > y->now ? y->then : y->now;
    return one != other ? (one < other) - (one > other) : strcmp(x->slot, y->slot);
}

static enum kiln_status join(
        const struct kiln_wall *wall, struct kiln_against *against, struct kiln_err *err) {
    for (size_t i = 0; i < wall->n; i++) {
        KILN_TRY(add_now(against, &wall->slices[i], err));
    }
    if (against->n > 0) {
        qsort(against->rows, against->n, sizeof(*against->rows), longest_first);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_against_saved(const struct kiln_wall *wall, const struct json_t *saved,
        const char *path, struct kiln_against *against, struct kiln_err *err) {
    const json_t *slices = json_object_get(saved, "slices"), *slice;
    const json_t *wall_ms = json_object_get(saved, "wall_ms");
    size_t i;
    *against = (struct kiln_against){.now = wall->wall};
    if (!json_is_array(slices) || !json_is_number(wall_ms) || json_number_value(wall_ms) <= 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: no \"slices\" and \"wall_ms\": not what `kiln wall --save` writes", path);
    }
    json_array_foreach(slices, i, slice) {
        const char *slot = json_string_value(json_object_get(slice, "slot"));
        const json_t *ms = json_object_get(slice, "ms");
        if (!slot || !json_is_number(ms)) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s: slice %zu has no \"slot\" and \"ms\": not what `kiln wall --save` writes",
                    path, i);
        }
        const double paced = json_number_value(json_object_get(slice, "paced_ms"));
        KILN_TRY(add_then(against, slot, json_number_value(ms) / 1e3, paced / 1e3, err));
    }
    against->then = json_number_value(wall_ms) / 1e3;
    against->paced = wall->pace.runs > 0 && json_is_object(json_object_get(saved, "paced"));
    return join(wall, against, err);
}

static enum kiln_status add_unmapped(struct kiln_against *against,
        const struct kiln_profile_kernel *kernel, double seconds, struct kiln_err *err) {
    char *name = kiln_strdup(kernel->name);
    if (!name || kiln_grow(&against->unmapped, &against->cap_unmapped, against->n_unmapped + 1,
                         sizeof(*against->unmapped)) != 0) {
        kiln_free(name);
        return kiln_err_nomem(err, "a comparison of walls");
    }
    against->unmapped[against->n_unmapped++] = (struct kiln_profile_kernel){
            .name = name, .seconds = seconds, .launches = kernel->launches};
    return KILN_STATUS_OK;
}

enum kiln_status kiln_against_profile(const struct kiln_wall *wall,
        const struct kiln_profile *profile, const struct kiln_kernel_map *map, int64_t passes,
        struct kiln_against *against, struct kiln_err *err) {
    *against = (struct kiln_against){
            .then = profile->seconds / (double)passes, .paced = wall->pace.runs > 0};
    for (size_t i = 0; i < profile->n; i++) {
        const struct kiln_profile_kernel *kernel = &profile->kernels[i];
        const char *slot = kiln_kernel_map_find(map, kernel->name);
        double seconds = kernel->seconds / (double)passes;
        KILN_TRY(slot ? add_then(against, slot, seconds, seconds, err)
                      : add_unmapped(against, kernel, seconds, err));
    }
    for (size_t i = 0; i < wall->n; i++) {
        against->now += wall->slices[i].seconds;
    }
    return join(wall, against, err);
}

void kiln_against_finish(struct kiln_against *against) {
    for (size_t i = 0; i < against->n_unmapped; i++) {
        kiln_free(against->unmapped[i].name);
    }
    kiln_free(against->unmapped);
    kiln_free(against->rows);
    *against = (struct kiln_against){0};
}
