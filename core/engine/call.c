// call: addresses of arguments, and launches queued.
#include "engine/call.h"

#include "base/mem.h"

#include <string.h>

static void *operand_address(const struct kiln_call_places *places, uint32_t op, uint32_t operand) {
    return op < places->n_ops && operand < KILN_PREPARE_OPERANDS
                   ? places->operands[op * KILN_PREPARE_OPERANDS + operand]
                   : NULL;
}

static void *arg_address(const struct kiln_call_places *places, const struct kiln_arg *arg) {
    uint8_t *base = NULL;
    uint32_t kind = arg->kind == KILN_ARG_TENSOR_MAP ? arg->map->base : arg->kind;
    if (kind == KILN_ARG_BYTES) {
        memcpy(&base, &arg->bytes, sizeof(base));
        return base;
    }
    if (kind == KILN_ARG_WORKSPACE) {
        base = places->workspaces[arg->index];
    } else if (kind == KILN_ARG_PREPARED) {
        const struct kiln_prepared *prepared =
                arg->index == KILN_PREP_SELF ? places->self : places->prepared[arg->index];
        base = prepared->buffers[arg->buffer];
    } else {
        base = operand_address(places, arg->op, arg->operand);
    }
    return base ? base + arg->offset : NULL;
}

enum kiln_status kiln_call_init(struct kiln_call *call, const struct kiln_planned *planned,
        const struct kiln_call_places *places, struct kiln_err *err) {
    size_t n_args = 0;
    for (uint32_t i = 0; i < planned->n_launches; i++) {
        n_args += planned->launches[i].record.n_args;
    }
    *call = (struct kiln_call){.planned = planned,
            .ready = kiln_calloc(planned->n_launches, sizeof(*call->ready)),
            .args = kiln_calloc(n_args, sizeof(*call->args)),
            .n_args = n_args,
            .workspaces = kiln_calloc(planned->n_workspaces, sizeof(*call->workspaces))};
    if (!call->ready || !call->args || !call->workspaces) {
        return kiln_err_nomem(err, "a call");
    }
    for (uint32_t i = 0; i < planned->n_workspaces; i++) {
        call->workspaces[i] = places->workspaces[i];
    }
    size_t at = 0;
    for (uint32_t i = 0; i < planned->n_launches; i++) {
        const struct kiln_launch *launch = &planned->launches[i].record;
        for (uint32_t j = 0; j < launch->n_args; j++) {
            call->args[at++] = arg_address(places, launch->args[j]);
        }
    }
    return KILN_STATUS_OK;
}

void kiln_call_finish(struct kiln_call *call, struct kiln_dev *dev) {
    for (uint32_t i = 0; call->ready && i < call->planned->n_launches; i++) {
        dev->ops->unload(dev, call->ready[i]);
    }
    kiln_free(call->ready);
    kiln_free(call->args);
    kiln_free(call->workspaces);
    *call = (struct kiln_call){.planned = NULL};
}

static enum kiln_status clear(
        const struct kiln_call *call, uint32_t flags, struct kiln_dev *dev, struct kiln_err *err) {
    for (uint32_t i = 0; i < call->planned->n_workspaces; i++) {
        const struct kiln_planned_workspace *workspace = &call->planned->workspaces[i];
        if (workspace->flags == flags) {
            KILN_TRY(dev->ops->zero(dev, call->workspaces[i], workspace->bytes, err));
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_call_clear_kept(
        const struct kiln_call *call, struct kiln_dev *dev, struct kiln_err *err) {
    return clear(call, KILN_WORKSPACE_ZERO | KILN_WORKSPACE_KEPT, dev, err);
}

enum kiln_status kiln_call_clear(
        const struct kiln_call *call, struct kiln_dev *dev, struct kiln_err *err) {
    return clear(call, KILN_WORKSPACE_ZERO, dev, err);
}

enum kiln_status kiln_call_queue(
        const struct kiln_call *call, struct kiln_dev *dev, struct kiln_err *err) {
    const struct kiln_planned *planned = call->planned;
    KILN_TRY(kiln_call_clear(call, dev, err));
    void *const *args = call->args;
    for (uint32_t i = 0; i < planned->n_launches; i++) {
        const struct kiln_launch *launch = &planned->launches[i].record;
        KILN_TRY(dev->ops->launch(dev, call->ready[i], launch, args, err));
        args += launch->n_args;
    }
    return KILN_STATUS_OK;
}
