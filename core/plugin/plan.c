// plan: hands a variant the callbacks of struct kiln_plan and judges what it did with them.
//
// Copying is plan_copy.c's, contents plan_check.c's, text plan_print.c's.
#include "plugin/plan.h"

#include "base/crash.h"
#include "base/mem.h"
#include "plugin/plan_impl.h"
#include "plugin/schema.h"

#include <inttypes.h>
#include <string.h>

// Grows an array in the planned arena: the old one stays there until the plan goes, which is cheap
// for the handful of entries that plans have.
static int grow_in_arena(
        struct kiln_arena *arena, void *array, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) {
        return 0;
    }
    size_t want = *cap ? *cap * 2 : 4;
    void *grown = kiln_arena_calloc(arena, want, size), *old;
    if (!grown) {
        return -1;
    }
    memcpy(&old, array, sizeof(old));
    if (*cap) {
        memcpy(grown, old, *cap * size);
    }
    memcpy(array, &grown, sizeof(grown));
    *cap = want;
    return 0;
}

// ---- What the plugin calls ---------------------------------------------------------------------
// Keeps the first refusal: what comes after it may be its consequence.
static int32_t refuse(struct kiln_plan_builder *builder, const struct kiln_err *why,
        const char *what, uint32_t number) {
    if (builder->refused.status == KILN_STATUS_OK) {
        builder->refused = *why;
        if (why->status != KILN_STATUS_NOMEM) {
            kiln_err_prefix(&builder->refused, "%s %u: ", what, number);
        }
    }
    return -1;
}

static int32_t on_workspace(struct kiln_plan *plan, uint64_t bytes, uint32_t flags) {
    struct kiln_plan_builder *builder = plan->data;
    struct kiln_planned *planned = builder->planned;
    struct kiln_err err = {0};
    if (bytes == 0 || (flags != 0 && flags != KILN_WORKSPACE_ZERO &&
                              flags != (KILN_WORKSPACE_ZERO | KILN_WORKSPACE_KEPT))) {
        (void)kiln_err_set(&err, KILN_STATUS_FILE,
                "%" PRIu64
                " bytes, flags %u; allowed: at least 1 byte, flags 0, ZERO or ZERO | KEPT",
                bytes, flags);
    } else if (grow_in_arena(&planned->arena, &planned->workspaces, &builder->cap_workspaces,
                       planned->n_workspaces + 1, sizeof(*planned->workspaces)) != 0) {
        (void)kiln_err_nomem(&err, "a plan");
    }
    if (err.status != KILN_STATUS_OK) {
        return refuse(builder, &err, "workspace", planned->n_workspaces);
    }
    planned->workspaces[planned->n_workspaces] =
            (struct kiln_planned_workspace){.bytes = bytes, .flags = flags};
    return (int32_t)planned->n_workspaces++;
}

static int32_t on_prepare(struct kiln_plan *plan, const struct kiln_preparation *preparation) {
    struct kiln_plan_builder *builder = plan->data;
    struct kiln_planned *planned = builder->planned;
    struct kiln_planned_preparation copy = {0};
    struct kiln_err err = {0};
    enum kiln_status status =
            preparation ? kiln_plan_copy_preparation(builder, preparation, &copy, &err)
                        : kiln_err_set(&err, KILN_STATUS_FILE, "it is NULL");
    if (status == KILN_STATUS_OK) {
        status = kiln_plan_check_preparation(builder, &copy, &err);
    }
    if (status == KILN_STATUS_OK &&
            grow_in_arena(&planned->arena, &planned->preparations, &builder->cap_preparations,
                    planned->n_preparations + 1, sizeof(copy)) != 0) {
        status = kiln_err_nomem(&err, "a plan");
    }
    if (status != KILN_STATUS_OK) {
        return refuse(builder, &err, "preparation", planned->n_preparations);
    }
    planned->preparations[planned->n_preparations] = copy;
    return (int32_t)planned->n_preparations++;
}

static int32_t on_launch(struct kiln_plan *plan, const struct kiln_launch *launch) {
    struct kiln_plan_builder *builder = plan->data;
    struct kiln_planned *planned = builder->planned;
    const struct kiln_plan_place place = {.builder = builder};
    struct kiln_planned_launch copy = {0};
    struct kiln_err err = {0};
    enum kiln_status status = launch ? kiln_plan_copy_launch(builder, launch, &copy, &err)
                                     : kiln_err_set(&err, KILN_STATUS_FILE, "it is NULL");
    if (status == KILN_STATUS_OK) {
        status = kiln_plan_check_launch(&place, &copy, &err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(&err, "'%s': ", copy.record.kernel);
        }
    }
    if (status == KILN_STATUS_OK &&
            grow_in_arena(&planned->arena, &planned->launches, &builder->cap_launches,
                    planned->n_launches + 1, sizeof(copy)) != 0) {
        status = kiln_err_nomem(&err, "a plan");
    }
    if (status != KILN_STATUS_OK) {
        return refuse(builder, &err, "launch", planned->n_launches);
    }
    planned->launches[planned->n_launches] = copy;
    return (int32_t)planned->n_launches++;
}

static int32_t on_decline(struct kiln_plan *plan, const char *reason) {
    struct kiln_plan_builder *builder = plan->data;
    builder->declined = 1;
    (void)kiln_err_set(&builder->said, KILN_STATUS_OK, "%s", reason ? reason : "no reason given");
    return KILN_RESULT_DECLINED;
}

static int32_t on_fail(struct kiln_plan *plan, const char *text) {
    struct kiln_plan_builder *builder = plan->data;
    builder->failed = 1;
    (void)kiln_err_set(&builder->said, KILN_STATUS_FILE, "%s", text ? text : "no text given");
    return KILN_RESULT_FAILED;
}

// ---- What came of it -----------------------------------------------------------------------
static enum kiln_status judge_ok(const struct kiln_plan_builder *builder, struct kiln_err *err) {
    if (builder->declined || builder->failed) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "plan() called %s() and returned OK; return what the call returns",
                builder->declined ? "decline" : "fail");
    }
    if (builder->planned->n_launches == 0) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "plan() returned OK without a launch; decline instead");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status judge(const struct kiln_plan_builder *builder, int32_t result,
        enum kiln_plan_outcome *outcome, struct kiln_err *err) {
    // First: a plugin that was refused something returns FAILED, and its own text knows less.
    if (builder->refused.status != KILN_STATUS_OK && result != KILN_RESULT_DECLINED) {
        return kiln_err_set(err, builder->refused.status, "%s", builder->refused.text);
    }
    *outcome = KILN_PLAN_DONE;
    switch (result) {
    case KILN_RESULT_OK:
        return judge_ok(builder, err);
    case KILN_RESULT_DECLINED:
        *outcome = KILN_PLAN_DECLINED;
        (void)kiln_err_set(err, KILN_STATUS_OK, "%s",
                builder->declined ? builder->said.text : "no reason given");
        return KILN_STATUS_OK;
    case KILN_RESULT_FAILED:
        return kiln_err_set(err, KILN_STATUS_FILE, "plan() failed: %s",
                builder->failed ? builder->said.text : "no text given");
    default:
        return kiln_err_set(err, KILN_STATUS_FILE,
                "plan() returned %d; allowed: 0 OK, 1 DECLINED, 2 FAILED", result);
    }
}

static void prefix_with_call(const struct kiln_plan_builder *builder, struct kiln_err *err) {
    struct kiln_buf text = {0};
    kiln_geometry_print(builder->geometry, &text);
    kiln_err_prefix(err, "plugin '%s', variant '%s', slot %s, geometry%s: ", builder->plugin->name,
            builder->variant->name, builder->problem->slot,
            text.data && !text.failed ? text.data : " (none)");
    kiln_buf_finish(&text);
}

enum kiln_status kiln_plan_attempt(struct kiln_plan_builder *builder, void *instance,
        enum kiln_plan_outcome *outcome, struct kiln_planned **planned, struct kiln_err *err) {
    *planned = NULL;
    builder->planned = kiln_calloc(1, sizeof(*builder->planned));
    if (!builder->planned) {
        return kiln_err_nomem(err, "a plan");
    }
    builder->planned->variant = builder->variant;
    builder->callbacks = (struct kiln_plan){.struct_size = sizeof(builder->callbacks),
            .data = builder,
            .workspace = on_workspace,
            .prepare = on_prepare,
            .launch = on_launch,
            .decline = on_decline,
            .fail = on_fail};
    const struct kiln_foreign_call call = {
            .plugin = builder->plugin->name, .variant = builder->variant->name, .what = "plan()"};
    kiln_crash_note(&call);
    int32_t result = builder->variant->plan(
            instance, builder->problem, builder->geometry, builder->device, &builder->callbacks);
    kiln_crash_note(NULL);
    enum kiln_status status = judge(builder, result, outcome, err);
    if (status == KILN_STATUS_OK && *outcome == KILN_PLAN_DONE) {
        *planned = builder->planned;
        return KILN_STATUS_OK;
    }
    kiln_planned_destroy(builder->planned);
    builder->planned = NULL;
    return status;
}

enum kiln_status kiln_plan_make(const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, void *instance, const struct kiln_problem *problem,
        const struct kiln_geometry *geometry, const struct kiln_device *device,
        enum kiln_plan_outcome *outcome, struct kiln_planned **planned, struct kiln_err *err) {
    struct kiln_plan_builder builder = {.plugin = plugin,
            .variant = variant,
            .problem = problem,
            .geometry = geometry,
            .device = device};
    enum kiln_status status = kiln_plan_attempt(&builder, instance, outcome, planned, err);
    if (status == KILN_STATUS_DEVICE) {
        kiln_plan_advise(&builder, instance, err);
    }
    if (status == KILN_STATUS_FILE || status == KILN_STATUS_DEVICE) {
        prefix_with_call(&builder, err);
    }
    return status;
}

void kiln_planned_destroy(struct kiln_planned *planned) {
    if (planned) {
        kiln_arena_finish(&planned->arena);
        kiln_free(planned);
    }
}
