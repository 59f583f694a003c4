// clock: times of warps and mbarriers, and who knows of them. What accesses make of that is
// watch_clock.c.
#include "device/sim/clock_impl.h"

#include "base/mem.h"

#include <string.h>

#define LAST_TIME UINT32_C(0xf0000000)

enum kiln_status kiln_sim_clocks_create(
        struct sim_clocks **out, uint32_t shared_bytes, uint32_t n_warps, struct kiln_err *err) {
    struct sim_clocks *clocks = kiln_calloc(1, sizeof(*clocks));
    *out = clocks;
    size_t words = (size_t)shared_bytes / 4 + 1;
    if (clocks) {
        clocks->n_warps = n_warps;
        clocks->words = (uint32_t)words;
        clocks->cells = kiln_calloc(words * 5, sizeof(*clocks->cells));
        clocks->reads = kiln_calloc(words * 5 * n_warps, sizeof(*clocks->reads));
    }
    if (!clocks || !clocks->cells || !clocks->reads) {
        kiln_sim_clocks_destroy(clocks);
        *out = NULL;
        return kiln_err_nomem(err, "the checks of shared memory");
    }
    return KILN_STATUS_OK;
}

void kiln_sim_clocks_destroy(struct sim_clocks *clocks) {
    if (clocks) {
        kiln_free(clocks->cells);
        kiln_free(clocks->reads);
        kiln_free(clocks);
    }
}

static void knows_of_nobody(const struct sim_clocks *clocks, struct sim_vector *vector) {
    for (int i = 0; i < SIM_AGENTS; i++) {
        vector->seen[i] = clocks->begin;
    }
    for (int i = 0; i < SIM_WARPS; i++) {
        vector->shown[i] = clocks->begin;
    }
}

// Times go on from block to block, so that nothing has to be cleared: what an earlier one left is
// older than `begin`.
void kiln_sim_clocks_begin(struct sim_clocks *clocks) {
    uint32_t latest = clocks->begin;
    for (uint32_t w = 0; w < clocks->n_warps; w++) {
        uint32_t time = clocks->warps[w].seen[w];
        latest = time > latest ? time : latest;
    }
    for (uint32_t m = 0; m < SIM_MBARRIERS; m++) { // copies are of the phase after
        uint32_t time = clocks->mbarriers[m].phases + 1;
        latest = time > latest ? time : latest;
    }
    if (latest > LAST_TIME) {
        memset(clocks->cells, 0, (size_t)clocks->words * 5 * sizeof(*clocks->cells));
        memset(clocks->reads, 0,
                (size_t)clocks->words * 5 * clocks->n_warps * sizeof(*clocks->reads));
        latest = 0;
    }
    clocks->begin = latest + 1;
    for (uint32_t w = 0; w < clocks->n_warps; w++) {
        knows_of_nobody(clocks, &clocks->warps[w]);
        clocks->warps[w].seen[w]++;
    }
    for (int i = 0; i < SIM_BARRIERS; i++) {
        knows_of_nobody(clocks, &clocks->barriers[i]);
    }
    for (uint32_t m = 0; m < SIM_MBARRIERS; m++) {
        clocks->mbarriers[m].phases = clocks->begin;
    }
}

// ---- Who knows what -----------------------------------------------------------------------------
static void learn(struct sim_vector *to, const struct sim_vector *from) {
    for (int i = 0; i < SIM_AGENTS; i++) {
        to->seen[i] = from->seen[i] > to->seen[i] ? from->seen[i] : to->seen[i];
    }
    for (int i = 0; i < SIM_WARPS; i++) {
        to->shown[i] = from->shown[i] > to->shown[i] ? from->shown[i] : to->shown[i];
    }
}

// What the warp has done so far can be known of; what it does from now on is later.
static void tell(struct sim_clocks *clocks, const struct sim_warp *warp, struct sim_vector *to) {
    learn(to, &clocks->warps[warp->index]);
    clocks->warps[warp->index].seen[warp->index]++;
}

void kiln_sim_clock_meet(struct sim_warp *warp, uint32_t number) {
    struct sim_clocks *clocks = kiln_sim_clocks_of(warp->block);
    if (clocks) {
        tell(clocks, warp, &clocks->barriers[number]);
    }
}

void kiln_sim_clock_part(struct sim_block *block, uint32_t number, uint32_t waiting, int whole) {
    struct sim_clocks *clocks = kiln_sim_clocks_of(block);
    if (!clocks) {
        return;
    }
    for (uint32_t w = 0; whole && w < block->n_warps; w++) {
        if (block->warps[w].stop == SIM_EXITED) {
            learn(&clocks->barriers[number], &clocks->warps[w]);
        }
    }
    for (uint32_t w = 0; w < block->n_warps; w++) {
        if (waiting >> w & 1) {
            learn(&clocks->warps[w], &clocks->barriers[number]);
        }
    }
    knows_of_nobody(clocks, &clocks->barriers[number]);
}

// ---- mbarriers ----------------------------------------------------------------------------------
struct sim_mbarrier_clock *kiln_sim_clock_of(
        struct sim_clocks *clocks, const struct sim_block *block, const struct sim_mbarrier *b) {
    return &clocks->mbarriers[b - block->mbarriers];
}

void kiln_sim_clock_arrives(struct sim_warp *warp, struct sim_mbarrier *barrier) {
    struct sim_clocks *clocks = kiln_sim_clocks_of(warp->block);
    if (clocks) {
        tell(clocks, warp, &kiln_sim_clock_of(clocks, warp->block, barrier)->coming);
    }
}

void kiln_sim_clock_phase_ends(struct sim_block *block, struct sim_mbarrier *barrier) {
    struct sim_clocks *clocks = kiln_sim_clocks_of(block);
    if (clocks) {
        struct sim_mbarrier_clock *clock = kiln_sim_clock_of(clocks, block, barrier);
        clock->coming.seen[SIM_WARPS + (barrier - block->mbarriers)] = ++clock->phases;
        clock->over = clock->coming;
    }
}

void kiln_sim_clock_learns(struct sim_warp *warp, struct sim_mbarrier *barrier) {
    struct sim_clocks *clocks = kiln_sim_clocks_of(warp->block);
    if (clocks) {
        learn(&clocks->warps[warp->index], &kiln_sim_clock_of(clocks, warp->block, barrier)->over);
    }
}

void kiln_sim_clock_new(struct sim_clocks *clocks, const struct sim_warp *warp,
        const struct sim_mbarrier *barrier) {
    struct sim_mbarrier_clock *clock = kiln_sim_clock_of(clocks, warp->block, barrier);
    knows_of_nobody(clocks, &clock->coming);
    clock->over = clock->coming;
    clock->maker = clock->shower = warp->index;
    clock->made = clocks->warps[warp->index].seen[warp->index];
    clock->shown = UINT32_MAX;
}

void kiln_sim_clock_fence(struct sim_warp *warp, int mbarriers_alone) {
    struct sim_block *block = warp->block;
    struct sim_clocks *clocks = kiln_sim_clocks_of(block);
    if (!clocks) {
        return;
    }
    struct sim_vector *mine = &clocks->warps[warp->index];
    for (int i = 0; !mbarriers_alone && i < SIM_WARPS; i++) {
        mine->shown[i] = mine->seen[i];
    }
    for (uint32_t m = 0; m < block->n_mbarriers; m++) {
        struct sim_mbarrier_clock *clock = &clocks->mbarriers[m];
        if (clock->shown == UINT32_MAX && clock->made <= mine->seen[clock->maker]) {
            clock->shower = warp->index;
            clock->shown = mine->seen[warp->index];
        }
    }
    mine->seen[warp->index]++;
}
