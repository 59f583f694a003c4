// watch_clock: the checks on shared memory where order is kept by times (clock.h).
#include "device/sim/clock_impl.h"

#include "device/sim/lanes_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct look { // at cells, by one lane
    struct sim_warp *warp;
    const struct sim_op *op;
    struct sim_clocks *clocks;
    const struct sim_vector *mine;
    int lane, kind;
    int engine;         // it is the copy engine, for that lane
    uint32_t who, time; // as cells keep a write
    uint32_t at;        // where the lane begins; lane 0 of a contiguous access
    uint32_t bytes;     // what each lane has of a contiguous access; or 0
    int told;           // a finding of each kind once a lane is enough
};

static void tell(struct look *look, enum kiln_sim_check check, uint32_t byte, const char *what,
        uint32_t other) {
    uint32_t into = byte - look->at;
    if (look->told & 1 << check || !kiln_sim_checks(look->warp, check) ||
            !kiln_sim_is_wanted(look->warp, look->op, look->bytes ? into % look->bytes : into)) {
        return;
    }
    look->told |= 1 << check;
    char whom[48] = "";
    if (other < SIM_WARPS) {
        snprintf(whom, sizeof(whom), " warp %" PRIu32, other);
    } else if (other < SIM_AGENTS) {
        snprintf(whom, sizeof(whom), " the mbarrier at 0x%" PRIx32,
                look->warp->block->mbarriers[other - SIM_WARPS].at);
    }
    int lane = look->bytes ? (int)((byte - look->at) / look->bytes) : look->lane;
    kiln_sim_note(look->warp, look->op, check, lane, KILN_PTX_SHARED, byte, 1, "%s%s", what, whom);
}

// ---- One cell -----------------------------------------------------------------------------------
// Against the last write.
static void judge_writer(struct look *look, const struct sim_cell *cell, uint32_t byte) {
    int writes = (look->kind & SIM_WRITES) != 0, engine = look->engine;
    if (cell->time < look->clocks->begin) {
        if (look->kind & SIM_READS) {
            tell(look, KILN_SIM_CHECK_UNINIT_SHARED, byte, "nobody wrote it", SIM_AGENTS);
        }
        return;
    }
    if (cell->flags & SIM_CELL_MBARRIER) {
        tell(look, KILN_SIM_CHECK_MBARRIER, byte,
                writes ? "written, though an mbarrier, made by"
                       : "read, though an mbarrier, made by",
                cell->who);
        return;
    }
    if (cell->flags & SIM_CELL_ARRIVES) {
        tell(look, KILN_SIM_CHECK_ASYNC, byte,
                writes ? "written while a cp.async to it is under way, of"
                       : "read before the wait for its cp.async, of",
                cell->who);
        return;
    }
    if (cell->time > look->mine->seen[cell->who] && cell->who >= SIM_WARPS) {
        tell(look, KILN_SIM_CHECK_ASYNC, byte,
                writes ? "written while a copy to it is under way, in a phase of"
                       : "read before the wait for its copy, in a phase of",
                cell->who);
    } else if (cell->time > look->mine->seen[cell->who]) {
        if (!(look->kind & SIM_ATOMIC && cell->flags & SIM_CELL_ATOMIC)) {
            tell(look, KILN_SIM_CHECK_RACE, byte,
                    engine   ? "written by the copy engine, with no barrier since it was written by"
                    : writes ? "written, with no barrier between, also by"
                             : "read, with no barrier since it was written by",
                    cell->who);
        }
    } else if (engine && cell->who < SIM_WARPS && cell->time > look->mine->shown[cell->who]) {
        tell(look, KILN_SIM_CHECK_RACE, byte,
                "written by the copy engine, with no fence.proxy.async since it was written by",
                cell->who);
    } else if (look->kind & SIM_PROXY && cell->who < SIM_WARPS &&
               cell->time > look->mine->shown[cell->who]) {
        tell(look, KILN_SIM_CHECK_RACE, byte,
                "read by a product, with no fence.proxy.async since it was written by", cell->who);
    }
}

static void judge_readers(struct look *look, const uint32_t *reads, uint32_t byte) {
    uint32_t mine = look->warp->index, unknown = 0, reading = 0;
    for (uint32_t w = 0; w < look->clocks->n_warps; w++) {
        unknown |= reads[w] > look->mine->seen[w] && w != mine ? 1u << w : 0;
        reading |= reads[w] == SIM_READING ? 1u << w : 0;
    }
    if (reading) {
        tell(look, KILN_SIM_CHECK_RACE, byte,
                look->engine ? "written by the copy engine, while a product may still read it, of"
                             : "written while a product may still read it, of",
                (uint32_t)__builtin_ctz(reading));
    } else if (unknown) {
        tell(look, KILN_SIM_CHECK_RACE, byte,
                look->engine ? "written by the copy engine, with no barrier since it was read by"
                             : "written, with no barrier since it was read by",
                (uint32_t)__builtin_ctz(unknown));
    }
}

// at: of a word, or 4 words + a byte.
static void look_at_cell(struct look *look, size_t at, uint32_t byte) {
    struct sim_clocks *clocks = look->clocks;
    struct sim_cell *cell = &clocks->cells[at];
    uint32_t *reads = clocks->reads + at * clocks->n_warps, mine = look->warp->index;
    int quiet = cell->flags == 0 && cell->who == mine && cell->time >= clocks->begin;
    if (!quiet || look->engine || look->kind & SIM_PROXY) {
        judge_writer(look, cell, byte);
    }
    // An atomic's read is part of its write.
    if (look->kind & SIM_READS && !(look->kind & SIM_ATOMIC) && reads[mine] != SIM_READING) {
        reads[mine] = look->mine->seen[mine];
    }
    if (look->kind & SIM_WRITES && !(cell->flags & SIM_CELL_MBARRIER)) {
        judge_readers(look, reads, byte);
        cell->time = look->time;
        cell->who = (uint16_t)look->who;
        cell->flags = (uint16_t)((look->kind & SIM_ATOMIC ? SIM_CELL_ATOMIC : 0) |
                                 (look->kind & SIM_ASYNC ? SIM_CELL_ARRIVES : 0));
    }
}

// ---- Words and their bytes ----------------------------------------------------------------------
static size_t byte_cell(const struct sim_clocks *clocks, uint32_t byte) {
    return (size_t)clocks->words + byte;
}

static void split(struct sim_clocks *clocks, uint32_t word) {
    struct sim_cell *whole = &clocks->cells[word];
    uint32_t n = clocks->n_warps;
    for (uint32_t b = 0; b < 4; b++) {
        size_t at = byte_cell(clocks, 4 * word + b);
        clocks->cells[at] = *whole;
        memcpy(clocks->reads + at * n, clocks->reads + (size_t)word * n, n * sizeof(uint32_t));
    }
    whole->flags = SIM_CELL_SPLIT;
}

static void look_at_bytes(struct look *look, uint32_t from, uint32_t to) {
    for (uint32_t byte = from; byte < to; byte++) {
        if (!(look->clocks->cells[byte / 4].flags & SIM_CELL_SPLIT)) {
            split(look->clocks, byte / 4);
        }
        look_at_cell(look, byte_cell(look->clocks, byte), byte);
    }
}

// Written as a whole: one cell again, with the last reads of all its bytes.
static void join(struct sim_clocks *clocks, uint32_t word) {
    uint32_t n = clocks->n_warps, *reads = clocks->reads + (size_t)word * n;
    clocks->cells[word] = clocks->cells[byte_cell(clocks, 4 * word)];
    for (uint32_t b = 0; b < 4; b++) {
        const uint32_t *of_byte = clocks->reads + byte_cell(clocks, 4 * word + b) * n;
        for (uint32_t w = 0; w < n; w++) {
            reads[w] = of_byte[w] > reads[w] ? of_byte[w] : reads[w];
        }
    }
}

static void look_at_range(struct look *look, uint32_t from, uint32_t bytes) {
    if ((from | bytes) & 3) {
        look_at_bytes(look, from, from + bytes);
        return;
    }
    for (uint32_t word = from / 4; word < (from + bytes) / 4; word++) {
        if (look->clocks->cells[word].flags & SIM_CELL_SPLIT) {
            look_at_bytes(look, 4 * word, 4 * word + 4);
            if (look->kind & SIM_WRITES) {
                join(look->clocks, word);
            }
        } else {
            look_at_cell(look, word, 4 * word);
        }
    }
}

// ---- Accesses -----------------------------------------------------------------------------------
static struct look look_of(struct sim_warp *warp, const struct sim_op *op, int lane, int kind) {
    struct sim_clocks *clocks = warp->block->shadow->clocks;
    const struct sim_vector *mine = &clocks->warps[warp->index];
    return (struct look){.warp = warp,
            .op = op,
            .clocks = clocks,
            .mine = mine,
            .lane = lane,
            .kind = kind,
            .who = warp->index,
            .time = mine->seen[warp->index]};
}

void kiln_sim_clock_access(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access) {
    struct look look = look_of(warp, op, 0, access->kind);
    struct sim_piece piece = {.left = access->mask};
    while (kiln_sim_next_piece(access, &piece)) {
        look.lane = piece.lane;
        look.at = piece.at;
        look.bytes = piece.each;
        look_at_range(&look, piece.at, piece.bytes);
    }
}

void kiln_sim_clock_bulk(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_range *range, const struct sim_mbarrier *barrier) {
    struct look look = look_of(warp, op, range->lane, SIM_WRITES);
    const struct sim_mbarrier_clock *clock = kiln_sim_clock_of(look.clocks, warp->block, barrier);
    int shown = clock->made <= look.mine->shown[clock->maker] ||
                clock->shown <= look.mine->seen[clock->shower];
    if (!shown) {
        tell(&look, KILN_SIM_CHECK_MBARRIER, barrier->at,
                "used by the copy engine, with no fence.mbarrier_init or fence.proxy.async since "
                "it was made by",
                clock->maker);
    }
    look.engine = 1;
    look.who = SIM_WARPS + (uint32_t)(barrier - warp->block->mbarriers);
    look.time = clock->phases + 1;
    look_at_range(&look, (uint32_t)range->at, range->bytes);
}

void kiln_sim_clock_reading(struct sim_warp *warp, uint32_t at, uint32_t bytes, int under_way) {
    struct sim_clocks *clocks = kiln_sim_clocks_of(warp->block);
    uint32_t now = under_way ? SIM_READING : clocks->warps[warp->index].seen[warp->index];
    for (uint32_t word = at / 4; word < (at + bytes) / 4; word++) {
        clocks->reads[(size_t)word * clocks->n_warps + warp->index] = now;
        for (uint32_t b = 0; clocks->cells[word].flags & SIM_CELL_SPLIT && b < 4; b++) {
            size_t cell = byte_cell(clocks, 4 * word + b);
            clocks->reads[cell * clocks->n_warps + warp->index] = now;
        }
    }
}

// The write counts as one of the time at which its warp waited for it.
void kiln_sim_clock_arrived(struct sim_warp *warp, const struct sim_copy *copy, uint32_t lanes) {
    struct sim_clocks *clocks = warp->block->shadow->clocks;
    uint32_t now = clocks->warps[warp->index].seen[warp->index];
    for (; lanes; lanes &= lanes - 1) {
        uint32_t from = copy->at[__builtin_ctz(lanes)];
        for (uint32_t byte = from; byte < from + copy->bytes; byte++) {
            int whole = !(clocks->cells[byte / 4].flags & SIM_CELL_SPLIT);
            struct sim_cell *cell = &clocks->cells[whole ? byte / 4 : byte_cell(clocks, byte)];
            if (cell->flags & SIM_CELL_ARRIVES && cell->who == warp->index) {
                cell->flags = 0;
                cell->time = now;
            }
        }
    }
}

void kiln_sim_clocks_written(struct sim_clocks *clocks, uint32_t from, uint32_t bytes) {
    for (uint32_t word = from / 4; word < (from + bytes) / 4; word++) {
        clocks->cells[word] = (struct sim_cell){.time = clocks->begin};
    }
}

// ---- mbarriers ----------------------------------------------------------------------------------
void kiln_sim_clock_made(
        struct sim_warp *warp, const struct sim_op *op, int lane, struct sim_mbarrier *barrier) {
    if (!kiln_sim_clocks_of(warp->block)) {
        return;
    }
    struct look look = look_of(warp, op, lane, SIM_WRITES);
    struct sim_cell *cells = look.clocks->cells;
    for (uint32_t byte = barrier->at; byte < barrier->at + 8; byte++) {
        cells[byte / 4].flags &= (uint16_t)~SIM_CELL_MBARRIER;
        cells[byte_cell(look.clocks, byte)].flags &= (uint16_t)~SIM_CELL_MBARRIER;
    }
    look_at_range(&look, barrier->at, 8);
    for (uint32_t word = barrier->at / 4; barrier->live && word < barrier->at / 4 + 2; word++) {
        cells[word].flags |= SIM_CELL_MBARRIER;
    }
    if (barrier->live) {
        kiln_sim_clock_new(look.clocks, warp, barrier);
    }
}

void kiln_sim_clock_used(
        struct sim_warp *warp, const struct sim_op *op, int lane, struct sim_mbarrier *barrier) {
    struct sim_clocks *clocks = kiln_sim_clocks_of(warp->block);
    if (!clocks) {
        return;
    }
    struct look look = look_of(warp, op, lane, SIM_READS);
    const struct sim_mbarrier_clock *clock = kiln_sim_clock_of(clocks, warp->block, barrier);
    if (clock->made > look.mine->seen[clock->maker]) {
        tell(&look, KILN_SIM_CHECK_RACE, barrier->at,
                "an mbarrier used, with no barrier since it was made by", clock->maker);
    }
}
