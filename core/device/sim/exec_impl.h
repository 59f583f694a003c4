// exec_impl: the machine from inside. For the files of this folder.
//
// memory.c the address space; prepare.c decoded functions -> operations ready to run; select.c
// which code runs an instruction; lanes_*.c arithmetic, 32 lanes at a time; convert.c, directed.c
// conversions and rounding modes; mma.c matrices; wgmma.c those of warpgroups; access.c loads and
// stores; async.c cp.async; bulk.c and tensor.c cp.async.bulk; mbarrier.c; atomic.c; warp.c
// branches, calls, exits; collect.c shuffles and votes; barrier.c; run.c blocks and warps in turn,
// launches; watch_*.c the checks; report.c findings and counters.
#ifndef KILN_DEVICE_SIM_EXEC_IMPL_H
#define KILN_DEVICE_SIM_EXEC_IMPL_H

#include "device/sim/exec.h"
#include "device/sim/lanes.h"
#include "device/sim/ptx.h"

#include <stdatomic.h>

struct kiln_pool;

// ---- Addresses ----------------------------------------------------------------------------------
// Global memory begins at SIM_GLOBAL_BASE. Local and shared memory and the kernel's parameters have
// windows of the generic space in front of it; below them, where a null pointer with a field's
// offset lands, nothing is mapped.
#define SIM_LOCAL_WINDOW  UINT64_C(0x0000000400000000)
#define SIM_SHARED_WINDOW UINT64_C(0x0000000800000000)
#define SIM_PARAM_WINDOW  UINT64_C(0x0000000c00000000)
#define SIM_WINDOW_BYTES  UINT64_C(0x0000000100000000)
#define SIM_GLOBAL_BASE   UINT64_C(0x0000001000000000)

// Where a space's window begins; 0: its addresses are generic ones.
static inline uint64_t kiln_sim_window(int space) {
    return space == KILN_PTX_SHARED  ? SIM_SHARED_WINDOW
           : space == KILN_PTX_LOCAL ? SIM_LOCAL_WINDOW
           : space == KILN_PTX_PARAM ? SIM_PARAM_WINDOW
                                     : 0;
}

// The space that a generic address lies in.
static inline int kiln_sim_space_of(uint64_t address) {
    return address - SIM_SHARED_WINDOW < SIM_WINDOW_BYTES  ? KILN_PTX_SHARED
           : address - SIM_LOCAL_WINDOW < SIM_WINDOW_BYTES ? KILN_PTX_LOCAL
           : address - SIM_PARAM_WINDOW < SIM_WINDOW_BYTES ? KILN_PTX_PARAM
                                                           : KILN_PTX_GLOBAL;
}

struct sim_allocation {
    uint64_t address, bytes;
    unsigned char *host;
    unsigned char *written; // (bytes): 1 where somebody wrote; NULL: everywhere
    char *name;
    int owned, read_only;
};

struct kiln_sim {
    struct kiln_pool *pool;
    uint32_t threads;
    struct sim_allocation *allocations; // (n_allocations), by address
    size_t n_allocations, cap_allocations;
    uint64_t next_address;
    sim_handler handlers[SIM_OP_COUNT];
};

// The allocation that holds the address, NULL: none.
struct sim_allocation *kiln_sim_lookup(const struct kiln_sim *sim, uint64_t address);
// The one that holds it, or the nearer of those that end shortly before or begin shortly behind it.
struct sim_allocation *kiln_sim_nearest(const struct kiln_sim *sim, uint64_t address);
void kiln_sim_handlers(sim_handler handlers[SIM_OP_COUNT]); // the best that this host runs

// ---- Code ---------------------------------------------------------------------------------------
struct sim_function {
    struct sim_op *ops; // (n_ops)
    uint32_t n_ops;
    uint32_t first_insn;  // number of its first instruction in the kernel
    uint32_t frame_bytes; // with the sink behind the registers
    uint32_t *op_of;      // (ptx->n_insns + 1): first operation of each instruction
    const struct kiln_ptx_function *ptx;
};

struct sim_block_info {    // a basic block
    uint32_t first, count; // instructions, numbered through the kernel
};

struct kiln_sim_kernel {
    struct kiln_sim_code *code;
    const struct kiln_ptx_kernel *ptx;
    struct sim_function *functions; // (n_functions)
    uint32_t n_functions, n_insns;
    struct sim_block_info *blocks; // (n_blocks)
    size_t n_blocks, cap_blocks;
    uint32_t *lists; // operand lists, in ready form
    size_t n_lists, cap_lists;
    unsigned char *constants;
    uint32_t local_bytes; // a lane, all activations
    int ordered;          // blocks run in the order of their index
    int partial;          // shared memory ordered by atomics
    int timed;            // warps meet at mbarriers, or at barriers for part of a block; WGMMA
    int products;         // it has a WGMMA
};

struct kiln_sim_code {
    struct kiln_sim *sim;
    const struct kiln_ptx_module *module;
    struct kiln_sim_kernel *kernels; // (n_kernels)
    uint32_t n_kernels;
    uint64_t *var_address; // (module->n_vars), 0: none
};

// Fills kernel->functions and what belongs to them.
KILN_MUST_CHECK enum kiln_status kiln_sim_prepare(
        struct kiln_sim_kernel *kernel, struct kiln_err *err);
void kiln_sim_unprepare(struct kiln_sim_kernel *kernel);
// Of the instruction with that number in the kernel.
const struct kiln_ptx_insn *kiln_sim_insn(const struct kiln_sim_kernel *kernel, uint32_t id);
const struct kiln_ptx_where *kiln_sim_where(const struct kiln_sim_kernel *kernel, uint32_t id);
// Sets op->fn, mode and what else the handler looks at; operands are in place. 0: there is none.
int kiln_sim_select(
        const struct kiln_sim *sim, const struct kiln_ptx_insn *insn, struct sim_op *op);

// ---- Running ------------------------------------------------------------------------------------
enum sim_stop {  // why a warp stopped
    SIM_YIELDS,  // used its turn up
    SIM_BARRIER, // waits at warp->barrier
    SIM_WAITS,   // for a phase of the mbarrier at warp->wait_at to end
    SIM_EXITED,
    SIM_FAILED, // the launch is over
};

struct sim_split { // lanes that wait for those that run
    const struct sim_op *pc, *reconverge;
    uint32_t mask;
};

struct sim_frame { // of a call
    const struct sim_op *back, *reconverge;
    uint32_t mask, returned;             // lanes that called, that came back
    size_t base;                         // splits below belong to callers
    const struct sim_function *function; // the caller
    const struct kiln_ptx_insn *call;
    size_t frame_at, call_at;
    uint32_t local_at;
};

struct sim_copy {           // cp.async under way
    uint32_t at[SIM_LANES]; // shared offsets
    uint32_t group[SIM_LANES];
    uint32_t mask, bytes;
};

struct sim_warp {
    unsigned char *bank[2];
    const uint32_t *lists; // operand lists of the kernel
    uint32_t mask, live;   // lanes that run; that have not exited
    const struct sim_op *reconverge;
    const struct sim_op *pc;
    int64_t turn; // instructions left in this turn
    enum sim_stop stop;
    struct sim_block *block;
    struct sim_worker *worker;
    const struct sim_function *function;
    uint32_t index;        // in the block
    uint32_t first;        // lanes that it began with
    unsigned char *frames; // registers, one activation behind the other
    size_t frames_cap, frame_at;
    unsigned char *calls; // call areas: of an activation, 32 lanes of its call_bytes
    size_t calls_cap, call_at;
    unsigned char *local; // 32 lanes of kernel->local_bytes
    uint32_t local_at;
    struct sim_split *splits;
    size_t n_splits, cap_splits;
    struct sim_frame *call_frames;
    size_t n_call_frames, cap_call_frames;
    uint32_t barrier; // number of the one that it waits at
    uint32_t barrier_threads;
    const struct sim_op *barrier_op;
    uint32_t barrier_vote; // bar.red: lanes whose predicate was true
    const struct sim_op *wait_op;
    const struct sim_mbarrier *wait_at;
    uint64_t wait_seen; // block->phases_ended when it began to wait
    struct sim_copy *copies;
    size_t n_copies, cap_copies;
    uint32_t group[SIM_LANES];                  // groups committed so far
    uint64_t global_reads[2], global_writes[2]; // allocations touched, by parity of the epoch
    const struct sim_product *product;          // of the WGMMA that runs
};

enum {
    SIM_WARPS = 32, // of a block
    SIM_BARRIERS = 16,
    SIM_MBARRIERS = 128,
    SIM_MOST_SHARED = 227 * 1024, // bytes of a block on any GPU
};

struct sim_barrier {
    uint32_t arrived; // threads that arrived and went on
    uint32_t waiting; // warps
};

struct sim_mbarrier {
    uint32_t at;                   // offset in shared memory
    int live;                      // made, and not ended since
    uint32_t expected, pending;    // arrivals: of a phase, still to come in this one
    int32_t bytes;                 // expected less arrived, in this phase
    uint64_t phase;                // phases that have ended
    const struct sim_op *bytes_op; // who changed bytes last
};

struct sim_block {
    struct sim_worker *worker;
    uint32_t at[3];
    uint64_t index;
    uint32_t n_warps, exited;
    struct sim_warp warps[SIM_WARPS];
    unsigned char *shared;
    uint32_t shared_bytes;
    struct sim_barrier barriers[SIM_BARRIERS];
    struct sim_mbarrier mbarriers[SIM_MBARRIERS];
    uint32_t n_mbarriers;
    uint64_t phases_ended;     // of all of them
    struct sim_shadow *shadow; // NULL: no check needs it
    struct sim_wgmma *wgmma;   // NULL: the kernel has no WGMMA, or no check needs it
    uint64_t executed;
    int running;
    char *printed;
    size_t n_printed, cap_printed;
};

// What one instruction did, beyond how often it ran.
struct sim_traffic {
    uint64_t requests, bytes, units, ideal; // units: sectors or wavefronts
};

// cp.async has both, and so may what has a generic address; of cp.async.bulk, global is what the
// copy engine reads.
struct sim_site {
    struct sim_traffic global, shared;
    uint32_t ways;
};

struct sim_record { // a finding, before it is text
    enum kiln_sim_check check;
    uint32_t id; // instruction
    uint64_t block, count;
    uint32_t at[3], thread[3];
    int space; // enum kiln_ptx_space, -1: none
    uint64_t address, bytes;
    char note[200]; // what the text says beyond the check's meaning
    char allocation[64];
};

struct sim_worker {
    struct kiln_sim *sim;
    const struct kiln_sim_kernel *kernel;
    struct sim_run *run;
    uint32_t checks;
    int counters;
    int watch_shared, check_shared; // accesses are looked at; by the checks
    int watch_global, check_global;
    uint64_t *block_count, *block_lanes; // by basic block
    uint64_t *diverged;                  // by instruction
    struct sim_site *sites;              // by instruction; NULL without counters
    uint32_t *last_allocation;           // by instruction: where its last access was
    unsigned char *barrier_needed;       // by instruction: warps conflict across it
    struct sim_record *records;
    size_t n_records, cap_records;
    uint32_t shared_used;
    uint64_t executed;
};

// ---- Between the files --------------------------------------------------------------------------
// Ends the launch with a message that begins with the kernel and its line. Returns NULL.
const struct sim_op *kiln_sim_fail(struct sim_warp *warp, const struct sim_op *op,
        enum kiln_status status, const char *fmt, ...) KILN_PRINTF(4, 5);
// Notes a finding at one lane; `note` may be "".
void kiln_sim_note(struct sim_warp *warp, const struct sim_op *op, enum kiln_sim_check check,
        int lane, int space, uint64_t address, uint64_t bytes, const char *fmt, ...)
        KILN_PRINTF(8, 9);
// A .sync instruction whose lanes `wanted` do not all run it: a finding.
void kiln_sim_lanes_needed(struct sim_warp *warp, const struct sim_op *op, uint32_t wanted);
// Some of the lanes here are not in the mask that they named.
void kiln_sim_lanes_not_named(struct sim_warp *warp, const struct sim_op *op, uint32_t named);
const struct kiln_sim_launch *kiln_sim_launch_of(const struct sim_warp *warp);
unsigned char *kiln_sim_params(const struct sim_worker *worker);
// The same of a thread of another warp, for what has no address.
void kiln_sim_note_thread(struct sim_warp *warp, const struct sim_op *op, enum kiln_sim_check check,
        uint32_t of_warp, int lane, const char *text);
int kiln_sim_checks(const struct sim_warp *warp, enum kiln_sim_check check);
const struct kiln_ptx_insn *kiln_sim_insn_of(const struct sim_warp *warp, const struct sim_op *op);

#endif
