// plan_advise: what to change so that a plan fits the device, found by planning again.
//
// plan() is pure and quick, so kiln asks it: one key at a time, its nearest other values first.
#include "plugin/plan_impl.h"

#include "base/buf.h"
#include "base/mem.h"
#include "plugin/schema.h"

#include <inttypes.h>
#include <string.h>

enum {
    MAX_TRIES = 128 // values of one key
};

static int fits(const struct kiln_plan_builder *refused, void *instance,
        const struct kiln_geometry *geometry) {
    struct kiln_plan_builder builder = {.plugin = refused->plugin,
            .variant = refused->variant,
            .problem = refused->problem,
            .geometry = geometry,
            .device = refused->device};
    enum kiln_plan_outcome outcome = KILN_PLAN_DECLINED;
    struct kiln_planned *planned = NULL;
    struct kiln_err ignored = {0};
    int good =
            kiln_plan_attempt(&builder, instance, &outcome, &planned, &ignored) == KILN_STATUS_OK &&
            outcome == KILN_PLAN_DONE;
    kiln_planned_destroy(planned);
    return good;
}

// The next value beyond `from` in the direction of `step` (1 or -1) that the parameter allows; 0:
// there is none.
static int next_value(const struct kiln_param *param, int64_t from, int step, int64_t *value) {
    int64_t best = 0;
    int found = 0;
    for (uint32_t i = 0; i < param->n_allowed; i++) {
        int64_t at = param->allowed[i];
        int beyond = step > 0 ? at > from : at < from;
        if (beyond && (!found || (step > 0 ? at < best : at > best))) {
            best = at;
            found = 1;
        }
    }
    if (!param->allowed) {
        int64_t unit = param->multiple_of > 1 ? param->multiple_of : 1;
        found = step > 0 ? from <= param->max - unit : from >= param->min + unit;
        best = found ? from + step * unit : 0;
    }
    *value = best;
    return found;
}

// Tries the values below and above in turn. 1 and *value: the nearest that fits.
static int find_value(const struct kiln_plan_builder *refused, void *instance,
        struct kiln_geometry *geometry, int64_t *values, uint32_t key) {
    const struct kiln_param *param = refused->variant->params[key];
    const int64_t bound = values[key];
    int64_t at[2] = {bound, bound};
    int there[2] = {1, 1};
    for (int tries = 0; tries < MAX_TRIES && (there[0] || there[1]); tries++) {
        int up = tries % 2;
        there[up] = there[up] && next_value(param, at[up], up ? 1 : -1, &at[up]);
        if (there[up]) {
            values[key] = at[up];
            if (fits(refused, instance, geometry)) {
                return 1;
            }
        }
    }
    values[key] = bound;
    return 0;
}

static void put_advice(const struct kiln_plan_builder *refused, void *instance,
        struct kiln_geometry *geometry, int64_t *values, struct kiln_buf *text) {
    uint32_t found = 0;
    for (uint32_t key = 0; key < geometry->n_values; key++) {
        const int64_t bound = values[key];
        if (find_value(refused, instance, geometry, values, key)) {
            kiln_buf_printf(text, "%s%s=%" PRId64, found++ ? " or " : "; it fits with ",
                    geometry->names[key], values[key]);
        }
        values[key] = bound;
    }
    for (uint32_t key = 0; found == 0 && key < geometry->n_values; key++) {
        kiln_buf_printf(text, "%s%s",
                key ? ", " : "; no value of one key alone makes it fit: ", geometry->names[key]);
    }
}

void kiln_plan_advise(
        const struct kiln_plan_builder *refused, void *instance, struct kiln_err *err) {
    const struct kiln_geometry *bound = refused->geometry;
    struct kiln_buf text = {0};
    int64_t *values = kiln_calloc(bound->n_values + 1, sizeof(*values));
    if (values && err && bound->n_values == refused->variant->n_params) {
        struct kiln_geometry geometry = *bound;
        memcpy(values, bound->values, bound->n_values * sizeof(*values));
        geometry.values = values;
        kiln_buf_puts(&text, err->text);
        put_advice(refused, instance, &geometry, values, &text);
        if (!text.failed) {
            (void)kiln_err_set(err, err->status, "%s", text.data);
        }
    }
    kiln_buf_finish(&text);
    kiln_free(values);
}
