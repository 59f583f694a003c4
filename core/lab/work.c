// work: sums of a plan's records, less the keys of an attention that are not there.
#include "lab/work.h"

#include "plugin/describe.h"

#include <math.h>

// Of rows and keys: how many pairs there are, each row seeing itself and what is before it.
static double pairs_of(double rows, double keys, double window) {
    double seen = fmin(keys, rows); // rows that see a key
    double most = window > 0 ? fmin(window, keys) : keys;
    double full = fmin(keys - most, seen); // rows that see `most`; the others one fewer each
    double rest = seen - full;
    return full * most + rest * most - rest * (rest - 1) / 2;
}

// Keys that some row sees.
static double span_of(double rows, double keys, double window) {
    return window > 0 ? fmin(keys, window + rows) : keys;
}

static void take_off(struct kiln_work *work, const struct kiln_op *op, double keys) {
    const struct kiln_tensor *q = kiln_op_tensor(op, KILN_OPERAND_Q);
    const struct kiln_tensor *k = kiln_op_tensor(op, KILN_OPERAND_K_CACHE);
    const struct kiln_tensor *v = kiln_op_tensor(op, KILN_OPERAND_V_CACHE);
    if (!q || !k || !v || keys >= (double)k->dims[1]) {
        return;
    }
    const double rows = (double)q->dims[1], planned = (double)k->dims[1], window = op->window;
    const double row_bytes = (double)k->dims[0] * (double)(k->strides[0] + v->strides[0]);
    const double most = row_bytes * span_of(rows, planned, window);
    work->flops *= pairs_of(rows, keys, window) / pairs_of(rows, planned, window);
    if (work->bytes >= most) { // else the plan does not count the cache
        work->bytes -= most - row_bytes * span_of(rows, keys, window);
    }
}

struct kiln_work kiln_work_of(
        const struct kiln_planned *planned, const struct kiln_problem *problem, int64_t keys) {
    struct kiln_work work = {.flops = 0};
    for (uint32_t i = 0; i < planned->n_launches; i++) {
        const struct kiln_launch *launch = &planned->launches[i].record;
        work.flops += launch->flops;
        work.bytes += launch->bytes_read + launch->bytes_written;
    }
    for (uint32_t i = 0; keys >= 0 && i < problem->n_ops; i++) {
        if (problem->ops[i]->kind == KILN_OP_ATTENTION) {
            take_off(&work, problem->ops[i], (double)keys);
        }
    }
    return work;
}
