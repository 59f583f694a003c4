// growth: a step of each engine with all edges read back, then row against row.
#include "lab/growth.h"

#include "base/mem.h"
#include "engine/schedule.h"
#include "model/dtype.h"
#include "model/quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// The last row of an edge.
struct seen {
    struct kiln_growth_row row; // who wrote it
    float *values;              // (cols); NULL: not written, or in a block format
    size_t order;               // among those written
};

struct watch {
    struct kiln_engine *engine;
    struct kiln_dev *dev;
    struct seen *edges; // by edge
    size_t n_edges, n_written;
    int64_t rows; // of the last chunk
};

static void to_floats(const uint8_t *bytes, uint32_t dtype, int64_t n, float *values) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        if (dtype == KILN_DTYPE_F32) {
            memcpy(&values[i], bytes + i * 4, sizeof(values[i]));
            continue;
        }
        memcpy(&half, bytes + i * 2, sizeof(half));
        uint32_t wide = (uint32_t)half << 16;
        if (dtype == KILN_DTYPE_F16) {
            values[i] = kiln_f16_to_f32(half);
        } else {
            memcpy(&values[i], &wide, sizeof(values[i]));
        }
    }
}

static enum kiln_status read_row(const struct watch *watch, const struct kiln_trace_edge *edge,
        uint32_t dtype, int64_t row, struct seen *seen, struct kiln_err *err) {
    uint8_t *bytes = kiln_alloc((size_t)edge->row_bytes);
    if (!seen->values) {
        seen->values = kiln_alloc((size_t)edge->cols * sizeof(*seen->values));
    }
    if (!bytes || !seen->values) {
        kiln_free(bytes);
        return kiln_err_nomem(err, "the values of an edge");
    }
    enum kiln_status status = watch->dev->ops->download(watch->dev, bytes,
            edge->address + row * edge->row_bytes, (uint64_t)edge->row_bytes, err);
    if (status == KILN_STATUS_OK) {
        to_floats(bytes, dtype, edge->cols, seen->values);
    }
    kiln_free(bytes);
    return status;
}

static enum kiln_status on_edge(void *arg, const struct kiln_trace_step *step,
        const struct kiln_trace_edge *edge, struct kiln_err *err) {
    struct watch *watch = arg;
    const struct kiln_dtype_info *info = kiln_dtype_by_name(edge->format);
    if (edge->edge < 0 || (size_t)edge->edge >= watch->n_edges) {
        return KILN_STATUS_OK;
    }
    struct seen *seen = &watch->edges[edge->edge];
    if (!info || (info->dtype != KILN_DTYPE_F32 && info->dtype != KILN_DTYPE_F16 &&
                         info->dtype != KILN_DTYPE_BF16)) {
        return KILN_STATUS_OK; // a copy that was quantized for a reader, or blocks alone
    }
    seen->row = (struct kiln_growth_row){.layer = step->layer, .cols = edge->cols};
    snprintf(seen->row.slot, sizeof(seen->row.slot), "%s", step->slot);
    snprintf(seen->row.role, sizeof(seen->row.role), "%s", edge->role);
    seen->order = ++watch->n_written;
    return read_row(watch, edge, info->dtype, step->head ? 0 : watch->rows - 1, seen, err);
}

static enum kiln_status feed(struct watch *watch, const struct kiln_twin *twin, const int32_t *ids,
        int64_t n, int64_t n_last, struct kiln_err *err) {
    const struct kiln_trace trace = {.wrote = on_edge, .arg = watch};
    float *logits = kiln_alloc((size_t)twin->model->params.n_vocab * sizeof(*logits));
    watch->edges = kiln_calloc(twin->model->graph.n_edges, sizeof(*watch->edges));
    if (!logits || !watch->edges) {
        kiln_free(logits);
        return kiln_err_nomem(err, "the values of a step");
    }
    watch->n_edges = twin->model->graph.n_edges;
    watch->rows = (n_last - 1) % kiln_engine_ubatch(watch->engine) + 1;
    kiln_engine_truncate(watch->engine, n - n_last);
    kiln_engine_trace(watch->engine, &trace);
    enum kiln_status status =
            kiln_engine_eval(watch->engine, ids + n - n_last, n_last, logits, err);
    kiln_engine_trace(watch->engine, NULL);
    kiln_free(logits);
    return status;
}

// ---- Row against row ----------------------------------------------------------------------------

static void compare(
        const struct seen *base, const struct seen *change, struct kiln_growth_row *row) {
    double square = 0, own = 0;
    *row = base->row;
    for (int64_t i = 0; i < row->cols; i++) {
        double a = (double)base->values[i], d = (double)change->values[i] - a;
        square += d * d;
        own += a * a;
        row->max = fmax(row->max, fabs(d));
    }
    row->rms = sqrt(square / (double)row->cols);
    row->relative_rms = own > 0 ? sqrt(square / own) : 0;
}

// The edge that was written as number `order`; NULL: its values were overwritten by a later chunk.
static const struct seen *written_as(const struct watch *watch, size_t order, size_t *edge) {
    for (size_t i = 0; i < watch->n_edges; i++) {
        if (watch->edges[i].order == order) {
            *edge = i;
            return &watch->edges[i];
        }
    }
    return NULL;
}

static enum kiln_status compare_all(
        const struct watch watches[2], struct kiln_growth *growth, struct kiln_err *err) {
    for (size_t order = 1; order <= watches[0].n_written; order++) {
        size_t edge = 0;
        const struct seen *base = written_as(&watches[0], order, &edge);
        const struct seen *change = base ? &watches[1].edges[edge] : NULL;
        if (!base || !base->values || !change->values) {
            growth->not_compared += base != NULL;
            continue;
        }
        if (kiln_grow(&growth->rows, &growth->cap, growth->n + 1, sizeof(*growth->rows)) != 0) {
            return kiln_err_nomem(err, "the growth of a difference");
        }
        compare(base, change, &growth->rows[growth->n++]);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_growth_measure(struct kiln_twin *twin, const int32_t *ids, int64_t n,
        int64_t n_last, struct kiln_growth *growth, struct kiln_err *err) {
    struct watch watches[2] = {{0}, {0}};
    enum kiln_status status = KILN_STATUS_OK;
    *growth = (struct kiln_growth){0};
    for (int side = 0; status == KILN_STATUS_OK && side < 2; side++) {
        watches[side].engine = twin->engine[side];
        watches[side].dev = twin->dev;
        status = feed(&watches[side], twin, ids, n, n_last, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "%s: ", kiln_side_name((enum kiln_side)side));
        }
    }
    if (status == KILN_STATUS_OK) {
        status = compare_all(watches, growth, err);
    }
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < watches[side].n_edges; i++) {
            kiln_free(watches[side].edges[i].values);
        }
        kiln_free(watches[side].edges);
    }
    return status;
}

void kiln_growth_finish(struct kiln_growth *growth) {
    kiln_free(growth->rows);
    *growth = (struct kiln_growth){0};
}

const struct kiln_growth_row *kiln_growth_first(const struct kiln_growth *growth) {
    for (size_t i = 0; i < growth->n; i++) {
        if (growth->rows[i].max > 0) {
            return &growth->rows[i];
        }
    }
    return NULL;
}
