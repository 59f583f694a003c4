// note: a finding where it is made: one record for each line's instruction and kind, with the first
// of its kind in the order of blocks and how often it came.
#include "device/sim/exec_impl.h"

#include "base/mem.h"
#include "device/sim/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_RECORDS = 4096, // of a worker: kernels with more faulty instructions have one cause
};

// The worker's record of that kind and instruction; a new one has count 0. NULL: no room.
static struct sim_record *record_of(
        struct sim_worker *worker, enum kiln_sim_check check, uint32_t id) {
    for (size_t i = 0; i < worker->n_records; i++) {
        if (worker->records[i].check == check && worker->records[i].id == id) {
            return &worker->records[i];
        }
    }
    if (worker->n_records >= MAX_RECORDS ||
            kiln_grow(&worker->records, &worker->cap_records, worker->n_records + 1,
                    sizeof(*worker->records)) != 0) {
        return NULL;
    }
    struct sim_record *record = &worker->records[worker->n_records++];
    *record = (struct sim_record){.check = check, .id = id, .block = UINT64_MAX};
    return record;
}

static void place(struct sim_record *record, const struct sim_warp *warp, uint32_t thread) {
    const struct kiln_sim_launch *launch = warp->worker->run->launch;
    record->block = warp->block->index;
    memcpy(record->at, warp->block->at, sizeof(record->at));
    record->thread[0] = thread % launch->block[0];
    record->thread[1] = thread / launch->block[0] % launch->block[1];
    record->thread[2] = thread / launch->block[0] / launch->block[1];
}

void kiln_sim_note(struct sim_warp *warp, const struct sim_op *op, enum kiln_sim_check check,
        int lane, int space, uint64_t address, uint64_t bytes, const char *fmt, ...) {
    struct sim_record *record = record_of(warp->worker, check, op->id);
    if (!record) {
        return;
    }
    record->count++;
    if (record->block <= warp->block->index) {
        return;
    }
    place(record, warp, warp->index * SIM_LANES + (uint32_t)lane);
    record->space = space;
    record->address = address;
    record->bytes = bytes;
    va_list args;
    va_start(args, fmt);
    vsnprintf(record->note, sizeof(record->note), fmt, args);
    va_end(args);
    record->allocation[0] = '\0';
    const struct sim_allocation *near =
            space == KILN_PTX_GLOBAL ? kiln_sim_nearest(warp->worker->sim, address) : NULL;
    if (near) {
        snprintf(record->allocation, sizeof(record->allocation), "%s", near->name);
    }
}

void kiln_sim_note_thread(struct sim_warp *warp, const struct sim_op *op, enum kiln_sim_check check,
        uint32_t of_warp, int lane, const char *text) {
    struct sim_record *record = record_of(warp->worker, check, op->id);
    if (!record) {
        return;
    }
    record->count++;
    if (record->block > warp->block->index) {
        place(record, warp, of_warp * SIM_LANES + (uint32_t)lane);
        record->space = -1;
        snprintf(record->note, sizeof(record->note), "%s", text);
    }
}

// Lanes that ended may be named by a mask: they take no part, nobody waits for them. A matrix has
// no use for that: its fragments lie in all lanes.
void kiln_sim_lanes_needed(struct sim_warp *warp, const struct sim_op *op, uint32_t wanted) {
    uint32_t away = wanted & ~warp->mask;
    if (away == 0 || !kiln_sim_checks(warp, KILN_SIM_CHECK_LANES)) {
        return;
    }
    enum kiln_sim_class class_ = kiln_sim_class_of(kiln_sim_insn_of(warp, op));
    away &= class_ == KILN_SIM_CLASS_SHUFFLE ? warp->live : SIM_ALL;
    if (away) {
        kiln_sim_note(warp, op, KILN_SIM_CHECK_LANES, __builtin_ctz(away), -1, 0, 0,
                "lanes 0x%08x should take part, 0x%08x do not", wanted, away);
    }
}

void kiln_sim_lanes_not_named(struct sim_warp *warp, const struct sim_op *op, uint32_t named) {
    uint32_t lanes = warp->mask & ~named;
    if (kiln_sim_checks(warp, KILN_SIM_CHECK_LANES)) {
        kiln_sim_note(warp, op, KILN_SIM_CHECK_LANES, __builtin_ctz(lanes), -1, 0, 0,
                "lanes 0x%08x run it with a mask of 0x%08x, in which they are not", lanes, named);
    }
}
