// wgmma: products of warpgroups: what one needs to run, and what the checks keep about those under
// way. For the files of this folder.
//
// Each warp runs its part by itself, 16 of the 64 rows, when the instruction comes. What a GPU does
// later is only remembered: on which registers a product may still be at work, and what the warps
// of each group have begun.
#ifndef KILN_DEVICE_SIM_WGMMA_H
#define KILN_DEVICE_SIM_WGMMA_H

#include "device/sim/exec_impl.h"
#include "device/sim/lanes_math.h"

enum {
    SIM_GROUP_WARPS = 4, // of a warpgroup
};

// A warp's part. Fragments lie as those of mma.m16n8k16: 32 lanes a register.
struct sim_product {
    u32 a[4][SIM_LANES] __attribute__((aligned(64)));
    u32 b[32][2][SIM_LANES] __attribute__((aligned(64))); // (n): 8 columns each
    uint32_t n;
    int bf16;
    int halves; // the sums are f16
    int zero;   // they begin with 0
};

#define SIM_UNWATCHED UINT32_MAX

// The number of a register with a place of its own (ptx.h: watched_at), SIM_UNWATCHED: it is none.
static inline uint32_t kiln_sim_watched(
        const struct kiln_ptx_function *function, uint32_t operand) {
    uint32_t at = operand - function->watched_at;
    uint32_t number = at / (4 * SIM_LANES);
    return operand == KILN_PTX_NONE || operand & KILN_PTX_CONST || operand < function->watched_at ||
                           number >= function->n_watched
                   ? SIM_UNWATCHED
                   : number;
}

struct sim_wgmma_register {
    uint32_t group;   // of the product that works on it, from 1 on; 0: none
    uint32_t shape;   // of the sums that it is one of; 0: it is of a factor
    uint32_t written; // wgmma.fence so far, + 1, when another instruction wrote it
};

struct sim_wgmma_reading { // a product that may still read shared memory
    uint32_t group;
    const struct kiln_ptx_insn *insn;
    uint64_t a, b; // descriptions
};

struct sim_wgmma_warp {
    uint32_t issued;          // products
    uint32_t committed, done; // groups
    uint32_t fences;
    struct sim_wgmma_register *registers; // (n_watched) of the kernel's function
    struct sim_wgmma_reading *readings;   // (n_readings)
    size_t n_readings, cap_readings;
};

struct sim_wgmma_issue { // one product of a warpgroup
    const struct sim_op *op;
    uint64_t a, b;  // descriptions; a: 0 where it is in registers
    uint32_t warps; // that have come to it
};

struct sim_wgmma_group {
    struct sim_wgmma_issue *issues; // (n)
    size_t n, cap;
};

struct sim_wgmma { // of a block
    uint32_t n_registers;
    struct sim_wgmma_warp warps[SIM_WARPS];
    struct sim_wgmma_group groups[SIM_WARPS / SIM_GROUP_WARPS];
    struct sim_wgmma_register *registers;
};

// wgmma.c: tells the clocks of all bytes that the warp's part of a product reads.
void kiln_sim_wgmma_reads(
        struct sim_warp *warp, const struct sim_wgmma_reading *reading, int under_way);

// watch_wgmma.c
KILN_MUST_CHECK enum kiln_status kiln_sim_wgmma_create(
        struct sim_wgmma **wgmma, const struct kiln_sim_kernel *kernel, struct kiln_err *err);
void kiln_sim_wgmma_destroy(struct sim_wgmma *wgmma); // NULL is fine
void kiln_sim_wgmma_begin(struct sim_wgmma *wgmma);
// The block is over: products that some warps of a group never came to.
void kiln_sim_wgmma_end(struct sim_block *block);
// The warp begins a product: judges its registers and its warpgroup. 0: no memory, the launch
// failed.
int kiln_sim_wgmma_issue(struct sim_warp *warp, const struct sim_op *op, uint64_t a, uint64_t b);
// It has fetched its operands, and on a GPU may go on doing so.
void kiln_sim_wgmma_begun(struct sim_warp *warp);

#endif
