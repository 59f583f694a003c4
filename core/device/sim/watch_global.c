// watch_global: the checks on global memory: who reads what nobody wrote; what warps may hand to
// each other around a barrier.
#include "device/sim/access.h"
#include "device/sim/watch.h"

#include "device/sim/lanes_impl.h"

#include <inttypes.h>
#include <string.h>

static uint64_t bit_of(const struct kiln_sim *sim, const struct sim_allocation *allocation) {
    return UINT64_C(1) << ((size_t)(allocation - sim->allocations) % 64);
}

static void note_unwritten(struct sim_warp *warp, const struct sim_op *op, int lane,
        uint64_t address, uint32_t bytes) {
    if (kiln_sim_checks(warp, KILN_SIM_CHECK_UNINIT_GLOBAL)) {
        kiln_sim_note(warp, op, KILN_SIM_CHECK_UNINIT_GLOBAL, lane, KILN_PTX_GLOBAL, address, bytes,
                "nobody wrote all of these %u bytes", bytes);
    }
}

static int all_written(const unsigned char *written, uint64_t bytes) {
    return memchr(written, 0, bytes) == NULL;
}

// Of one lane's bytes, those that somebody wants.
static int all_wanted_written(const struct sim_warp *warp, const struct sim_op *op,
        const unsigned char *written, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++) {
        if (!written[i] && kiln_sim_is_wanted(warp, op, i)) {
            return 0;
        }
    }
    return 1;
}

// Bytes of one lane, or of all lanes of a contiguous access.
static void look_at_range(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_access *access, const struct sim_allocation *a, int lane, uint64_t bytes) {
    if (!a->written) {
        return;
    }
    unsigned char *written = a->written + (access->at[lane] - a->address);
    if (access->kind & SIM_READS && !all_written(written, bytes)) {
        if (bytes > access->bytes) {
            for (int i = 0; i < SIM_LANES; i++) {
                look_at_range(warp, op, access, a, i, access->bytes);
            }
            return;
        }
        if (!all_wanted_written(warp, op, written, access->bytes)) {
            note_unwritten(warp, op, lane, access->at[lane], access->bytes);
        }
    }
    if (access->kind & SIM_WRITES) {
        memset(written, 1, bytes);
    }
}

static const struct sim_allocation *allocation_of(
        const struct sim_warp *warp, const struct sim_op *op, uint64_t address) {
    const struct kiln_sim *sim = warp->worker->sim;
    uint32_t guess = warp->worker->last_allocation[op->id];
    const struct sim_allocation *a = guess < sim->n_allocations ? &sim->allocations[guess] : NULL;
    return a && address - a->address < a->bytes ? a : kiln_sim_lookup(sim, address);
}

static void look_at_access(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access) {
    struct sim_worker *worker = warp->worker;
    const struct sim_shadow *shadow = warp->block->shadow;
    uint64_t touched = 0;
    if (access->contiguous) {
        const struct sim_allocation *a = allocation_of(warp, op, access->at[0]);
        if (a) {
            touched = bit_of(worker->sim, a);
            look_at_range(warp, op, access, a, 0, (uint64_t)SIM_LANES * access->bytes);
        }
    } else {
        for (uint32_t mask = access->mask; mask; mask &= mask - 1) {
            int lane = __builtin_ctz(mask);
            const struct sim_allocation *a = allocation_of(warp, op, access->at[lane]);
            if (a) {
                touched |= bit_of(worker->sim, a);
                look_at_range(warp, op, access, a, lane, access->bytes);
            }
        }
    }
    if (shadow && !shadow->clocks) {
        uint32_t now = shadow->epoch & 1;
        warp->global_reads[now] |= access->kind & SIM_READS ? touched : 0;
        warp->global_writes[now] |= access->kind & SIM_WRITES ? touched : 0;
    }
}

void kiln_sim_watch_global(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access) {
    if (warp->worker->counters) {
        kiln_sim_count_sectors(warp, op, access);
    }
    if (warp->worker->check_global) {
        look_at_access(warp, op, access);
    }
}

void kiln_sim_watch_bulk_source(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_range *range) {
    if (warp->worker->counters) {
        kiln_sim_count_bulk(warp, op, range);
    }
    if (warp->worker->check_global && range->bytes > 0) {
        struct sim_access access = {
                .bytes = range->bytes, .kind = range->kind, .mask = 1u << range->lane};
        access.at[range->lane] = range->at;
        look_at_access(warp, op, &access);
    }
}
