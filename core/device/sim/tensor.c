// tensor: cp.async.bulk.tensor, tiles: the box at some coordinates of a tensor goes to shared
// memory, row after row, outside of the tensor the map's fill. As with cp.async.bulk the bytes are
// copied and counted at their mbarrier when the instruction runs.
//
// A swizzle is of addresses in shared memory: to the number of a 16-byte piece in its row of 32, 64
// or 128 bytes the number of the row of 128 bytes is added, bit by bit (CUDA Programming Guide,
// "Tensor Memory Access", "Swizzle modes").
#include "device/sim/tensor_map.h"

#include "device/sim/access.h"
#include "device/sim/lanes_impl.h"
#include "device/sim/mbarrier.h"
#include "device/sim/run_impl.h"

#include <inttypes.h>
#include <string.h>

enum {
    PIECE = 16,
    TARGET_ALIGN = 128,
};

struct box { // a copy of one lane
    struct sim_warp *warp;
    const struct sim_op *op;
    int lane;
    struct sim_tensor_map map;
    int32_t corner[SIM_MAP_RANK];
    uint64_t to; // offset in shared memory
    int reaches; // rows of it that nobody wrote are no finding
};

static uint64_t address(const struct sim_warp *warp, uint32_t ref, uint32_t bytes, int lane) {
    return bytes == 8   ? ((const u64 *)sim_at(warp, ref))[lane]
           : bytes == 4 ? ((const u32 *)sim_at(warp, ref))[lane]
                        : 0;
}

// The bytes of a map at a generic address, NULL: none lie there.
static const unsigned char *map_bytes(const struct sim_warp *warp, uint64_t at) {
    if (kiln_sim_space_of(at) == KILN_PTX_PARAM) {
        uint64_t offset = at - SIM_PARAM_WINDOW, all = warp->worker->kernel->ptx->param_bytes;
        return all >= SIM_MAP_BYTES && offset <= all - SIM_MAP_BYTES
                       ? kiln_sim_params(warp->worker) + offset
                       : NULL;
    }
    const struct sim_allocation *a = kiln_sim_lookup(warp->worker->sim, at);
    return a && a->bytes - (at - a->address) >= SIM_MAP_BYTES ? a->host + (at - a->address) : NULL;
}

// 0: the launch ends.
static int find_map(struct box *box) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(box->warp, box->op);
    uint64_t at = address(box->warp, box->op->b, insn->b_bytes, box->lane) +
                  (uint64_t)(int64_t)insn->imm2;
    const unsigned char *bytes = map_bytes(box->warp, at);
    if (!bytes || !kiln_sim_map_decode(&box->map, bytes)) {
        kiln_sim_fail(box->warp, box->op, KILN_STATUS_DEVICE, "no tensor map at 0x%" PRIx64, at);
        return 0;
    }
    if (box->map.rank != insn->n_c) {
        kiln_sim_fail(box->warp, box->op, KILN_STATUS_DEVICE,
                "%u coordinates for a tensor map of rank %u", insn->n_c, box->map.rank);
        return 0;
    }
    if (at % SIM_MAP_ALIGN && kiln_sim_checks(box->warp, KILN_SIM_CHECK_ALIGN)) {
        kiln_sim_note(box->warp, box->op, KILN_SIM_CHECK_ALIGN, box->lane, -1, 0, 0,
                "the tensor map at 0x%" PRIx64 " is not at a multiple of %d", at, SIM_MAP_ALIGN);
    }
    const uint32_t *list = box->warp->lists + box->op->lists + box->op->list_c;
    for (uint32_t i = 0; i < box->map.rank; i++) {
        box->corner[i] = ((const s32 *)sim_at(box->warp, list[i]))[box->lane];
    }
    return 1;
}

// The elements [first, last) of a row of the box that the tensor has, and where they begin. `row`
// counts rows of the box, dimension 1 fastest.
static uint64_t row_source(const struct box *box, uint32_t row, uint32_t *first, uint32_t *last) {
    const struct sim_tensor_map *map = &box->map;
    int64_t x = box->corner[0], n = map->box[0], end = (int64_t)map->dims[0];
    *first = (uint32_t)(x >= 0 ? 0 : -x < n ? -x : n);
    *last = (uint32_t)(x + n <= end ? n : x < end ? end - x : 0);
    uint64_t at = map->address + (uint64_t)(x + *first) * map->bytes;
    for (uint32_t i = 1; i < map->rank; i++) {
        uint32_t count = kiln_sim_map_count(map, i);
        int64_t where = box->corner[i] + (int64_t)(row % count) * map->steps[i];
        row /= count;
        if (where < 0 || where >= (int64_t)map->dims[i]) {
            *last = 0;
        }
        at += (uint64_t)where * map->strides[i];
    }
    *last = *last > *first ? *last : *first;
    return at;
}

// Whether somebody wrote a byte of what the tensor has of a row.
static int is_written(const struct box *box, uint32_t row) {
    uint32_t first, last;
    uint64_t at = row_source(box, row, &first, &last), bytes = (last - first) * box->map.bytes;
    const struct sim_allocation *a = kiln_sim_lookup(box->warp->worker->sim, at);
    if (bytes == 0 || !a || a->bytes - (at - a->address) < bytes) {
        return 0;
    }
    return !a->written || memchr(a->written + (at - a->address), 1, bytes) != NULL;
}

// A box reaches over what a call has: its rows are as many as the tile's, and those behind the last
// one in use are brought and thrown away. So rows that nobody wrote are told of only where there is
// no other.
static int reaches_over(const struct box *box, uint32_t rows) {
    uint32_t row = 0;
    while (row < rows && !is_written(box, row)) {
        row++;
    }
    return row < rows;
}

static void put_row(const struct box *box, uint64_t to, const unsigned char *row, uint32_t bytes) {
    static const unsigned char added[] = {0, 1, 3, 7}; // by enum kiln_swizzle
    for (uint32_t i = 0; i < bytes; i += PIECE) {
        uint64_t at = to + i;
        at ^= (at >> 7 & added[box->map.swizzle]) * PIECE;
        memcpy(box->warp->block->shared + at, row + i, PIECE);
    }
}

// 0: the launch ends.
static int copy_row(const struct box *box, uint32_t row, int there) {
    unsigned char bytes[256 * 4];
    uint32_t first, last, size = box->map.bytes, all = box->map.box[0];
    uint64_t from = row_source(box, row, &first, &last);
    for (uint32_t i = 0; i < all; i++) {
        memcpy(bytes + i * size, &box->map.fill, size); // little-endian, like the GPU
    }
    if (last > first) {
        struct sim_range source = {.lane = box->lane,
                .space = KILN_PTX_GLOBAL,
                .unit = 1,
                .kind = box->reaches && !is_written(box, row) ? 0 : SIM_READS,
                .at = from,
                .bytes = (last - first) * size,
                .more = 1};
        const unsigned char *read = kiln_sim_resolve_range(box->warp, box->op, &source);
        if (box->warp->stop == SIM_FAILED) {
            return 0;
        }
        if (read) {
            kiln_sim_watch_bulk_source(box->warp, box->op, &source);
            memcpy(bytes + first * size, read, source.bytes);
        }
    }
    if (there) {
        put_row(box, box->to + (uint64_t)row * all * size, bytes, all * size);
    }
    return 1;
}

// 0: the launch ends. A copy that is refused is a finding, and its bytes are still counted, so that
// one fault is not two.
static int copy(struct sim_warp *warp, const struct sim_op *op, int lane) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    struct box box = {.warp = warp, .op = op, .lane = lane};
    if (!find_map(&box)) {
        return 0;
    }
    uint32_t bytes = kiln_sim_map_box_bytes(&box.map),
             rows = bytes / box.map.bytes / box.map.box[0];
    uint64_t at = address(warp, op->e, insn->e_bytes, lane) + (uint64_t)(int64_t)insn->imm4;
    box.to = address(warp, op->a, insn->a_bytes, lane) + (uint64_t)insn->imm;
    struct sim_mbarrier *barrier = kiln_sim_mbarrier_live(warp, op, lane, (uint32_t)at);
    struct sim_range target = {.lane = lane,
            .space = KILN_PTX_SHARED,
            .unit = PIECE,
            .kind = SIM_WRITES | SIM_ASYNC,
            .at = box.to,
            .bytes = bytes};
    int there = kiln_sim_resolve_range(warp, op, &target) != NULL;
    if (warp->stop == SIM_FAILED) {
        return 0;
    }
    if (there && box.to % TARGET_ALIGN && kiln_sim_checks(warp, KILN_SIM_CHECK_ALIGN)) {
        kiln_sim_note(warp, op, KILN_SIM_CHECK_ALIGN, lane, KILN_PTX_SHARED, box.to, bytes,
                "a box goes to an address that is not a multiple of %d", TARGET_ALIGN);
    }
    if (there && barrier) {
        kiln_sim_watch_bulk_target(warp, op, &target, barrier);
    }
    // One copy, of as many bytes as its rows have in the tensor.
    kiln_sim_watch_bulk_source(
            warp, op, &(struct sim_range){.lane = lane, .space = KILN_PTX_GLOBAL, .unit = 1});
    box.reaches = warp->worker->check_global && reaches_over(&box, rows);
    for (uint32_t row = 0; row < rows; row++) {
        if (!copy_row(&box, row, there)) {
            return 0;
        }
    }
    return !barrier || kiln_sim_mbarrier_bytes(warp, op, lane, barrier, bytes);
}

const struct sim_op *kiln_sim_run_copy_tensor(struct sim_warp *warp, const struct sim_op *op) {
    for (uint32_t mask = warp->mask; mask; mask &= mask - 1) {
        if (!copy(warp, op, __builtin_ctz(mask))) {
            return NULL;
        }
    }
    return op + 1;
}
