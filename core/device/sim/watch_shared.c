// watch_shared: the checks on shared memory, byte for byte where that matters.
#include "device/sim/access.h"
#include "device/sim/watch.h"

#include "base/mem.h"
#include "device/sim/clock.h"
#include "device/sim/lanes_impl.h"

#include <stdio.h>
#include <string.h>

#define ARRIVES    UINT32_C(0x80000000) // | warp: data of a cp.async is under way
#define SPLIT      UINT32_C(0x7fffffff) // the bytes have cells of their own
#define LAST_EPOCH UINT32_C(0x3fffff0)
#define SEVERAL    UINT32_C(0x80000000) // | epoch: atomics of more warps than the last writer
#define OTHERS     (SIM_WARPS + 1)      // for one warp's number: more than one, not known which

enum {
    CELL_ARRAYS = 6,
};

static void set_cells(struct sim_cells *cells, uint32_t *memory, size_t n) {
    cells->writer = memory;
    cells->atomics = memory + n;
    for (int i = 0; i < 2; i++) {
        cells->epoch[i] = memory + (2 + (size_t)i) * n;
        cells->readers[i] = memory + (4 + (size_t)i) * n;
    }
}

enum kiln_status kiln_sim_shadow_create(struct sim_shadow **out, uint32_t shared_bytes,
        uint32_t timed_warps, struct kiln_err *err) {
    struct sim_shadow *shadow = kiln_calloc(1, sizeof(*shadow));
    *out = shadow;
    if (!shadow) {
        return kiln_err_nomem(err, "the checks of shared memory");
    }
    if (timed_warps > 0) {
        enum kiln_status status =
                kiln_sim_clocks_create(&shadow->clocks, shared_bytes, timed_warps, err);
        if (status != KILN_STATUS_OK) {
            kiln_free(shadow);
            *out = NULL;
        }
        return status;
    }
    size_t words = (size_t)shared_bytes / 4 + 1;
    shadow->words = (uint32_t)words;
    shadow->memory = kiln_calloc(words * 5 * CELL_ARRAYS, sizeof(uint32_t));
    if (!shadow->memory) {
        kiln_free(shadow);
        *out = NULL;
        return kiln_err_nomem(err, "the checks of shared memory");
    }
    set_cells(&shadow->word, shadow->memory, words);
    set_cells(&shadow->byte, shadow->memory + words * CELL_ARRAYS, 4 * words);
    return KILN_STATUS_OK;
}

void kiln_sim_shadow_destroy(struct sim_shadow *shadow) {
    if (shadow) {
        kiln_sim_clocks_destroy(shadow->clocks);
        kiln_free(shadow->memory);
        kiln_free(shadow);
    }
}

// Epochs go on from block to block, so that nothing has to be cleared: what an earlier one left is
// older than `first`.
void kiln_sim_shadow_begin(struct sim_shadow *shadow) {
    if (shadow->clocks) {
        kiln_sim_clocks_begin(shadow->clocks);
        return;
    }
    if (shadow->epoch > LAST_EPOCH) {
        memset(shadow->memory, 0, (size_t)shadow->words * 5 * CELL_ARRAYS * sizeof(uint32_t));
        shadow->epoch = 0;
    }
    shadow->epoch += 2;
    shadow->first = shadow->epoch;
    shadow->atomic_epoch = 0;
    shadow->advise = 0;
    shadow->n_ended = 0;
}

void kiln_sim_shadow_written(struct sim_shadow *shadow, uint32_t from, uint32_t bytes) {
    if (shadow->clocks) {
        kiln_sim_clocks_written(shadow->clocks, from, bytes);
        return;
    }
    for (uint32_t word = from / 4; word < (from + bytes) / 4; word++) {
        shadow->word.writer[word] = shadow->first << 5;
    }
    // In an epoch of its own: no race with it.
    shadow->epoch = shadow->first + 1;
}

// ---- One access, cell by cell -------------------------------------------------------------------
struct look { // at cells, by one lane
    struct sim_warp *warp;
    const struct sim_op *op;
    struct sim_shadow *shadow;
    uint32_t mine; // epoch << 5 | warp
    int lane, kind;
    uint32_t at;    // where the lane begins; lane 0 of a contiguous access
    uint32_t bytes; // what each lane has of a contiguous access; or 0
    int told;       // a finding of each kind once a lane is enough
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
    if (other == OTHERS) {
        snprintf(whom, sizeof(whom), " other warps");
    } else if (other < SIM_WARPS) {
        snprintf(whom, sizeof(whom), " warp %u", other);
    }
    int lane = look->bytes ? (int)((byte - look->at) / look->bytes) : look->lane;
    kiln_sim_note(look->warp, look->op, check, lane, KILN_PTX_SHARED, byte, 1, "%s%s", what, whom);
}

static void mark_needed(struct sim_block *block) {
    struct sim_shadow *shadow = block->shadow;
    for (uint32_t i = 0; i < shadow->n_ended; i++) {
        block->worker->barrier_needed[shadow->ended[i]] = 1;
    }
    shadow->advise = 0;
}

// What one cell says of this access.
static void judge(struct look *look, const struct sim_cells *cells, size_t at, uint32_t byte) {
    struct sim_shadow *shadow = look->shadow;
    uint32_t writer = cells->writer[at], epoch = shadow->epoch, warp = look->mine & 31;
    uint32_t now = epoch & 1, others = ~(1u << warp);
    int writes = (look->kind & SIM_WRITES) != 0, atomic = (look->kind & SIM_ATOMIC) != 0;
    uint32_t atomics = cells->atomics[at];
    int both_atomic = atomic && (atomics & ~SEVERAL) == epoch;
    // The last writer may be this warp, and others' atomics have gone before.
    uint32_t wrote = (writer & 31) != warp          ? writer & 31
                     : atomics == (epoch | SEVERAL) ? OTHERS
                                                    : warp;
    if (writer & ARRIVES && writer != SPLIT) {
        tell(look, KILN_SIM_CHECK_ASYNC, byte,
                writes ? "written while a cp.async to it is under way, of"
                       : "read before the wait for its cp.async, of",
                writer & 31);
        if (shadow->advise && (writer & 31) != warp) {
            mark_needed(look->warp->block); // with the wait in its place it orders this
        }
        return;
    }
    int written = writer >> 5 >= shadow->first;
    if (!written && look->kind & SIM_READS) {
        tell(look, KILN_SIM_CHECK_UNINIT_SHARED, byte, "nobody wrote it", SIM_WARPS);
    }
    if (written && writer >> 5 == epoch && wrote != warp && !both_atomic) {
        tell(look, KILN_SIM_CHECK_RACE, byte,
                writes ? "written, with no barrier between, also by"
                       : "read, with no barrier since it was written by",
                wrote);
    }
    if (writes && cells->epoch[now][at] == epoch && cells->readers[now][at] & others) {
        tell(look, KILN_SIM_CHECK_RACE, byte, "written, with no barrier since it was read by",
                (uint32_t)__builtin_ctz(cells->readers[now][at] & others));
    }
    if (shadow->advise) {
        int after_write = written && writer >> 5 == epoch - 1 &&
                          ((writer & 31) != warp || atomics == ((epoch - 1) | SEVERAL));
        int after_read =
                writes && cells->epoch[!now][at] == epoch - 1 && cells->readers[!now][at] & others;
        // After an atomic others may follow in this epoch, and see its write alone.
        int before_atomic = atomic && ((written && writer >> 5 == epoch - 1) ||
                                              cells->epoch[!now][at] == epoch - 1);
        if (after_write || after_read || before_atomic) {
            mark_needed(look->warp->block);
        }
    }
}

static void enter_cell(const struct look *look, struct sim_cells *cells, size_t at) {
    uint32_t epoch = look->shadow->epoch, now = epoch & 1, bit = 1u << (look->mine & 31);
    // An atomic's read is part of its write.
    if (look->kind & SIM_READS && !(look->kind & SIM_ATOMIC)) {
        cells->readers[now][at] =
                (cells->epoch[now][at] == epoch ? cells->readers[now][at] : 0) | bit;
        cells->epoch[now][at] = epoch;
    }
    if (look->kind & SIM_WRITES) {
        uint32_t atomics = cells->atomics[at], writer = cells->writer[at];
        int atomic_before = (atomics & ~SEVERAL) == epoch;
        int plain_before = writer >> 5 == epoch && !atomic_before;
        int other_before = atomic_before && (atomics & SEVERAL || (writer ^ look->mine) & 31);
        cells->writer[at] = look->kind & SIM_ASYNC ? ARRIVES | (look->mine & 31) : look->mine;
        // One write that is none, and the others' atomics race with it.
        cells->atomics[at] = !(look->kind & SIM_ATOMIC) || plain_before ? 0
                             : other_before                             ? epoch | SEVERAL
                                                                        : epoch;
    }
}

static void split(struct sim_shadow *shadow, uint32_t word) {
    for (size_t b = 4 * (size_t)word; b < 4 * (size_t)word + 4; b++) {
        shadow->byte.writer[b] = shadow->word.writer[word];
        shadow->byte.atomics[b] = shadow->word.atomics[word];
        for (int i = 0; i < 2; i++) {
            shadow->byte.epoch[i][b] = shadow->word.epoch[i][word];
            shadow->byte.readers[i][b] = shadow->word.readers[i][word];
        }
    }
    shadow->word.writer[word] = SPLIT;
}

static void look_at_bytes(struct look *look, uint32_t from, uint32_t to) {
    struct sim_shadow *shadow = look->shadow;
    for (uint32_t byte = from; byte < to; byte++) {
        if (shadow->word.writer[byte / 4] != SPLIT) {
            split(shadow, byte / 4);
        }
        judge(look, &shadow->byte, byte, byte);
        enter_cell(look, &shadow->byte, byte);
    }
}

static void look_at_word(struct look *look, uint32_t word) {
    struct sim_shadow *shadow = look->shadow;
    if (shadow->word.writer[word] == SPLIT) {
        look_at_bytes(look, 4 * word, 4 * word + 4);
        if (look->kind & SIM_WRITES) {
            // Written as a whole: one cell again, with all its readers.
            shadow->word.writer[word] = shadow->byte.writer[4 * (size_t)word];
            shadow->word.atomics[word] = shadow->byte.atomics[4 * (size_t)word];
            for (int i = 0; i < 2; i++) {
                uint32_t newest = 0, readers = 0;
                for (size_t b = 4 * (size_t)word; b < 4 * (size_t)word + 4; b++) {
                    uint32_t epoch = shadow->byte.epoch[i][b];
                    readers = epoch > newest ? 0 : readers;
                    newest = epoch > newest ? epoch : newest;
                    readers |= epoch == newest ? shadow->byte.readers[i][b] : 0;
                }
                shadow->word.epoch[i][word] = newest;
                shadow->word.readers[i][word] = readers;
            }
        }
        return;
    }
    judge(look, &shadow->word, word, 4 * word);
    enter_cell(look, &shadow->word, word);
}

// ---- Many words at once -------------------------------------------------------------------------
// Nothing to say of any of these words, which is nearly always so.
static int quiet_read(const struct look *look, uint32_t word, uint32_t n) {
    const struct sim_shadow *shadow = look->shadow;
    const uint32_t *writer = shadow->word.writer + word;
    const uint32_t oldest = shadow->first << 5, current = shadow->epoch << 5, mine = look->mine;
    // With advice wanted, the last epoch is looked at too, by the slow way.
    const uint32_t span = current - oldest - (shadow->advise ? 32 : 0);
    uint32_t loud = 0;
    for (uint32_t i = 0; i < n; i++) {
        loud |= (uint32_t)(writer[i] - oldest >= span) & (uint32_t)(writer[i] != mine);
    }
    return !loud;
}

static int quiet_write(const struct look *look, uint32_t word, uint32_t n) {
    const struct sim_shadow *shadow = look->shadow;
    const uint32_t *writer = shadow->word.writer + word;
    const uint32_t now = shadow->epoch & 1, epoch = shadow->epoch, mine = look->mine;
    const uint32_t *read_in = shadow->word.epoch[now] + word;
    const uint32_t *readers = shadow->word.readers[now] + word;
    const uint32_t limit = (epoch - (shadow->advise ? 1 : 0)) << 5, others = ~(1u << (mine & 31));
    uint32_t loud = 0;
    for (uint32_t i = 0; i < n; i++) {
        loud |= (uint32_t)(writer[i] >= limit) & (uint32_t)(writer[i] != mine);
        loud |= (uint32_t)(read_in[i] == epoch) & (uint32_t)((readers[i] & others) != 0);
    }
    if (shadow->advise) {
        const uint32_t *before = shadow->word.epoch[!now] + word;
        const uint32_t *them = shadow->word.readers[!now] + word;
        for (uint32_t i = 0; i < n; i++) {
            loud |= (uint32_t)(before[i] == epoch - 1) & (uint32_t)((them[i] & others) != 0);
        }
    }
    return !loud;
}

static void enter_reads(const struct look *look, uint32_t word, uint32_t n) {
    const struct sim_shadow *shadow = look->shadow;
    const uint32_t now = shadow->epoch & 1, epoch = shadow->epoch, bit = 1u << (look->mine & 31);
    uint32_t *read_in = shadow->word.epoch[now] + word;
    uint32_t *readers = shadow->word.readers[now] + word;
    for (uint32_t i = 0; i < n; i++) {
        readers[i] = (read_in[i] == epoch ? readers[i] : 0) | bit;
        read_in[i] = epoch;
    }
}

static void look_at_words(struct look *look, uint32_t word, uint32_t n) {
    // What atomics have written in this epoch is looked at by the slow way.
    int plain = !(look->kind & SIM_ATOMIC) && look->shadow->atomic_epoch != look->shadow->epoch;
    if (plain && look->kind & SIM_READS && quiet_read(look, word, n)) {
        enter_reads(look, word, n);
        return;
    }
    if (plain && look->kind & SIM_WRITES && quiet_write(look, word, n)) {
        uint32_t value = look->kind & SIM_ASYNC ? ARRIVES | (look->mine & 31) : look->mine;
        uint32_t *writer = look->shadow->word.writer + word;
        for (uint32_t i = 0; i < n; i++) {
            writer[i] = value;
        }
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        look_at_word(look, word + i);
    }
}

static void look_at_range(struct look *look, uint32_t from, uint32_t bytes) {
    if ((from | bytes) & 3) {
        look_at_bytes(look, from, from + bytes);
    } else {
        look_at_words(look, from / 4, bytes / 4);
    }
}

void kiln_sim_watch_shared(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access) {
    struct sim_worker *worker = warp->worker;
    struct sim_shadow *shadow = warp->block->shadow;
    uint32_t end = 0;
    for (int i = 0; i < SIM_LANES; i++) {
        end = (uint32_t)access->at[i] > end ? (uint32_t)access->at[i] : end;
    }
    end += access->bytes;
    worker->shared_used = end > worker->shared_used ? end : worker->shared_used;
    if (access->kind & SIM_MBARRIER) {
        return;
    }
    if (worker->counters && !(access->kind & SIM_PROXY)) {
        kiln_sim_count_banks(warp, op, access);
    }
    if (!worker->check_shared) {
        return;
    }
    if (shadow->clocks) {
        kiln_sim_clock_access(warp, op, access);
        return;
    }
    struct look look = {.warp = warp,
            .op = op,
            .shadow = shadow,
            .mine = shadow->epoch << 5 | warp->index,
            .kind = access->kind};
    if (access->kind & SIM_ATOMIC) {
        shadow->atomic_epoch = shadow->epoch;
    }
    struct sim_piece piece = {.left = access->mask};
    while (kiln_sim_next_piece(access, &piece)) {
        look.lane = piece.lane;
        look.at = piece.at;
        look.bytes = piece.each;
        look_at_range(&look, piece.at, piece.bytes);
    }
}

void kiln_sim_watch_bulk_target(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_range *range, const struct sim_mbarrier *barrier) {
    struct sim_worker *worker = warp->worker;
    uint32_t end = (uint32_t)range->at + range->bytes;
    worker->shared_used = end > worker->shared_used ? end : worker->shared_used;
    if (worker->check_shared) {
        kiln_sim_clock_bulk(warp, op, range, barrier);
    }
}

// ---- Time ---------------------------------------------------------------------------------------
// The write counts as one of the epoch in which its warp waited for it.
void kiln_sim_copy_arrived(struct sim_warp *warp, const struct sim_copy *copy, uint32_t lanes) {
    struct sim_shadow *shadow = warp->block->shadow;
    if (shadow->clocks) {
        kiln_sim_clock_arrived(warp, copy, lanes);
        return;
    }
    uint32_t mine = shadow->epoch << 5 | warp->index, under_way = ARRIVES | warp->index;
    for (; lanes; lanes &= lanes - 1) {
        uint32_t word = copy->at[__builtin_ctz(lanes)] / 4;
        for (uint32_t i = 0; i < copy->bytes / 4; i++) {
            uint32_t *writer = &shadow->word.writer[word + i];
            for (size_t b = 0; *writer == SPLIT && b < 4; b++) {
                uint32_t *byte = &shadow->byte.writer[4 * (size_t)(word + i) + b];
                *byte = *byte == under_way ? mine : *byte;
            }
            *writer = *writer == under_way ? mine : *writer;
        }
    }
}

// Global memory that warps hand to each other around a barrier counts as ordered by it: known by
// whole allocations, so that advice is left out rather than wrong.
static void look_at_global(struct sim_block *block) {
    uint32_t now = block->shadow->epoch & 1;
    uint64_t reads = 0, writes = 0;
    for (uint32_t w = 0; w < block->n_warps; w++) {
        reads |= block->warps[w].global_reads[!now];
        writes |= block->warps[w].global_writes[!now];
    }
    for (uint32_t w = 0; w < block->n_warps; w++) {
        const struct sim_warp *warp = &block->warps[w];
        if (warp->global_reads[now] & writes || warp->global_writes[now] & (reads | writes)) {
            mark_needed(block);
            return;
        }
    }
}

void kiln_sim_epochs_end(struct sim_block *block) {
    if (block->shadow->advise) {
        look_at_global(block);
    }
}

void kiln_sim_epoch_ends(struct sim_block *block, uint32_t warps) {
    struct sim_shadow *shadow = block->shadow;
    struct sim_worker *worker = block->worker;
    kiln_sim_epochs_end(block);
    shadow->epoch++;
    shadow->n_ended = 0;
    shadow->advise = 0;
    for (uint32_t w = 0; w < block->n_warps; w++) {
        struct sim_warp *warp = &block->warps[w];
        warp->global_reads[shadow->epoch & 1] = 0;
        warp->global_writes[shadow->epoch & 1] = 0;
        if (!(warps >> w & 1)) {
            continue;
        }
        uint32_t id = warp->barrier_op->id;
        // bar.red hands values on, which is reason enough.
        worker->barrier_needed[id] |= kiln_sim_insn(worker->kernel, id)->sub != KILN_PTX_BAR_SYNC;
        if (!shadow->n_ended || shadow->ended[shadow->n_ended - 1] != id) {
            shadow->ended[shadow->n_ended++] = id;
        }
        shadow->advise |=
                worker->checks >> KILN_SIM_CHECK_ORDERS_NOTHING & 1 && !worker->barrier_needed[id];
    }
}
