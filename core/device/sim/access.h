// access: one memory access of a warp: where each lane's bytes lie. For the files of this folder.
#ifndef KILN_DEVICE_SIM_ACCESS_H
#define KILN_DEVICE_SIM_ACCESS_H

#include "device/sim/exec_impl.h"

enum sim_access_kind {
    SIM_READS = 1,
    SIM_WRITES = 2,
    SIM_ATOMIC = 4, // with both: other atomics may touch the bytes at the same time
    SIM_ASYNC = 8,  // cp.async: its data arrives later
    SIM_CONSTANT = 16,
    SIM_MBARRIER = 32, // an operation on an mbarrier: no access to bytes
    SIM_PROXY = 64,    // by a product of a warpgroup; its banks are not counted
};

// Lanes that are not in `mask` have the address of one that is, and readable memory behind it.
struct sim_access {
    uint64_t at[SIM_LANES]; // GLOBAL: address; SHARED, LOCAL, PARAM, CALLS: offset
    unsigned char *p[SIM_LANES];
    uint32_t mask;
    uint32_t bytes; // of each lane
    int kind;       // mask of enum sim_access_kind
    int contiguous; // all 32 lanes, each behind the one before
};

// Fills at: [a + imm] of the active lanes. a_bytes: 0 (no register), 4 or 8.
void kiln_sim_addresses(struct sim_access *access, const struct sim_warp *warp, uint32_t a,
        uint32_t a_bytes, int64_t imm);
// Fills p. Lanes whose bytes are not there, or misaligned, are reported and taken out of mask; for
// all others the checks and counters have been told. GENERIC spaces are found out and at becomes
// what the space says. NULL: the launch failed; else the space, or MIXED when lanes differ.
int kiln_sim_resolve(
        struct sim_access *access, struct sim_warp *warp, const struct sim_op *op, int space);

// One lane's access to many bytes, in GLOBAL or SHARED memory.
struct sim_range {
    int lane, space;
    uint32_t unit; // address and size are multiples of it
    int kind;      // mask of enum sim_access_kind
    uint64_t at;
    uint32_t bytes;
    int more; // a further piece of a copy, which is counted as one
};
// Where they lie. NULL: outside or misaligned, which is a finding or has ended the launch (then
// warp->stop says so). The checks have not been told.
unsigned char *kiln_sim_resolve_range(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_range *range);

enum {
    SIM_SPACE_MIXED = 100,
    SIM_SPACE_FAILED = -1
};

// Whether anybody wants that byte of each lane's access: compilers load four elements where three
// are used, and what nobody looks at is no access.
int kiln_sim_is_wanted(const struct sim_warp *warp, const struct sim_op *op, uint32_t byte);

// A piece of memory of an access: one lane's, or all of it where lanes lie side by side.
struct sim_piece {
    uint32_t left; // lanes to come; begin with the access's mask and all else 0
    int lane;      // the first that it is of
    uint32_t at, bytes;
    uint32_t each; // bytes of each lane; 0: of one lane alone
};

// The next piece of an access to SHARED memory; 0: there is none. Lanes that read what the lane
// before them reads are left out.
static inline int kiln_sim_next_piece(const struct sim_access *access, struct sim_piece *piece) {
    if (access->contiguous && (access->at[0] & 3) == 0) {
        int first = piece->left != 0;
        *piece = (struct sim_piece){.at = (uint32_t)access->at[0],
                .bytes = SIM_LANES * access->bytes,
                .each = access->bytes};
        return first;
    }
    while (piece->left) {
        int lane = __builtin_ctz(piece->left);
        uint32_t at = (uint32_t)access->at[lane];
        int again = piece->bytes && at == piece->at && !(access->kind & SIM_WRITES);
        piece->left &= piece->left - 1;
        piece->at = at;
        if (!again) {
            piece->lane = lane;
            piece->bytes = access->bytes;
            return 1;
        }
    }
    return 0;
}

// What checks and counters want to know of (watch_global.c, watch_shared.c, count.c).
void kiln_sim_watch_global(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access);
void kiln_sim_watch_shared(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access);
// A copy of cp.async.bulk reads one range and writes the other.
void kiln_sim_watch_bulk_source(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_range *range);
void kiln_sim_watch_bulk_target(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_range *range, const struct sim_mbarrier *barrier);
void kiln_sim_count_sectors(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access);
void kiln_sim_count_bulk(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_range *source);
void kiln_sim_count_halves(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_access *from, const struct sim_access *to);
void kiln_sim_count_banks(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access);

#endif
