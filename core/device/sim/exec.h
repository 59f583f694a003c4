// exec: runs decoded PTX. A machine is one device address space with threads to run blocks on; any
// number of modules may be loaded into it, as a device has many kernels.
//
// A warp's 32 lanes go in lock step through arrays of 32 values; where they part they meet again at
// the branch's immediate post-dominator. Blocks are spread over the machine's threads. Results and
// reports are the same for any number of threads: a kernel whose result could depend on the order
// of blocks (global atomics whose value is used, float atomics, volatile or ordered loads) runs its
// blocks in the order of their index, taking turns only where one of them waits for another.
// docs/sim-semantics.md says what is computed how.
//
// It is not a model of time: nothing here says how long a kernel takes on a GPU.
//
// A machine serves one caller at a time.
#ifndef KILN_DEVICE_SIM_EXEC_H
#define KILN_DEVICE_SIM_EXEC_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_ptx_module; // device/sim/ptx.h

struct kiln_sim;        // the machine
struct kiln_sim_code;   // a module loaded into it
struct kiln_sim_kernel; // an entry of one; lives as long as its code
struct kiln_sim_report; // what launches found and counted

// ---- The machine --------------------------------------------------------------------------------
// threads >= 1: how many host threads run blocks.
KILN_MUST_CHECK enum kiln_status kiln_sim_create(
        struct kiln_sim **sim, uint32_t threads, struct kiln_err *err);
// Frees all memory of the address space; the codes must be gone. NULL is fine.
void kiln_sim_destroy(struct kiln_sim *sim);

// ---- Global memory ------------------------------------------------------------------------------
// An address is a device's, not a host's: the same from run to run, 256-byte aligned, with unused
// space behind each allocation. `name` is copied and stands in reports.

// `bytes` bytes that nobody wrote: reading one before it is written is a finding.
KILN_MUST_CHECK enum kiln_status kiln_sim_alloc(struct kiln_sim *sim, const char *name,
        uint64_t bytes, uint64_t *address, struct kiln_err *err);
// Memory of the caller's that kernels may read and, unless `read_only`, write. It counts as
// written. It must outlive the mapping.
KILN_MUST_CHECK enum kiln_status kiln_sim_map(struct kiln_sim *sim, const char *name, void *host,
        uint64_t bytes, int read_only, uint64_t *address, struct kiln_err *err);
// Ends an allocation or mapping; 0 is fine. `address` is what alloc or map gave.
void kiln_sim_free(struct kiln_sim *sim, uint64_t address);

// Copies between host and device. A range that is not inside one allocation is USAGE.
KILN_MUST_CHECK enum kiln_status kiln_sim_write(struct kiln_sim *sim, uint64_t address,
        const void *from, uint64_t bytes, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_sim_read(
        struct kiln_sim *sim, void *to, uint64_t address, uint64_t bytes, struct kiln_err *err);
KILN_MUST_CHECK enum kiln_status kiln_sim_fill(
        struct kiln_sim *sim, uint64_t address, int byte, uint64_t bytes, struct kiln_err *err);
// Device to device; the ranges may not overlap. What was not written stays so.
KILN_MUST_CHECK enum kiln_status kiln_sim_copy(
        struct kiln_sim *sim, uint64_t to, uint64_t from, uint64_t bytes, struct kiln_err *err);
// Where the range lies on the host, NULL when it is not inside one allocation.
void *kiln_sim_host(struct kiln_sim *sim, uint64_t address, uint64_t bytes);

// ---- Code ---------------------------------------------------------------------------------------
// Makes a module ready to run: its global variables get memory and their initial values, operands
// are resolved, control flow is analysed. `module` must outlive *code. What the decoded form holds
// but the machine cannot run is DEVICE, naming the instruction, its PTX line and its source line.
KILN_MUST_CHECK enum kiln_status kiln_sim_load(struct kiln_sim *sim,
        const struct kiln_ptx_module *module, struct kiln_sim_code **code, struct kiln_err *err);
void kiln_sim_unload(struct kiln_sim *sim, struct kiln_sim_code *code); // NULL is fine

// NULL when the module has no such entry.
const struct kiln_sim_kernel *kiln_sim_find(const struct kiln_sim_code *code, const char *name);
// A .global or .const variable. 0 when there is none; *bytes may be asked for with NULL.
uint64_t kiln_sim_symbol(const struct kiln_sim_code *code, const char *name, uint64_t *bytes);
uint32_t kiln_sim_param_bytes(const struct kiln_sim_kernel *kernel); // of the parameter block
uint32_t kiln_sim_static_shared(const struct kiln_sim_kernel *kernel);

// ---- Checks -------------------------------------------------------------------------------------
// name as in --sim-check, what is wrong
#define KILN_SIM_CHECK_TABLE(X) \
    X(BOUNDS, "bounds", "access outside of an allocation, of shared, local or parameter memory") \
    X(ALIGN, "align", "address not a multiple of the access's size") \
    X(RACE, "race", "two warps touch a shared byte with no barrier between, one writes") \
    X(UNINIT_SHARED, "uninit-shared", "read of shared memory that nobody wrote") \
    X(ASYNC, "async", "data of a copy, or registers of a product, touched before its wait") \
    X(BARRIER, "barrier", "a barrier that part of the block never reaches") \
    X(LANES, "lanes", "a .sync instruction with lanes missing") \
    X(DEADLOCK, "deadlock", "warps wait for what cannot happen") \
    X(UNINIT_GLOBAL, "uninit-global", "read of global memory that nobody wrote") \
    X(MBARRIER, "mbarrier", "an mbarrier used against its rules") \
    X(ORDERS_NOTHING, "orders-nothing", "advice: a barrier across which no warps conflict")

enum kiln_sim_check {
#define KILN_SIM_CHECK_ENUM(name, text, meaning) KILN_SIM_CHECK_##name,
    KILN_SIM_CHECK_TABLE(KILN_SIM_CHECK_ENUM)
#undef KILN_SIM_CHECK_ENUM
    KILN_SIM_CHECK_COUNT,
};

#define KILN_SIM_CHECK_ALL ((1u << KILN_SIM_CHECK_COUNT) - 1)

const char *kiln_sim_check_name(enum kiln_sim_check check);    // "race"
const char *kiln_sim_check_meaning(enum kiln_sim_check check); // a phrase
// "all", "none" or names with commas between them -> *mask of 1 << check. USAGE names the bad word
// and those allowed.
KILN_MUST_CHECK enum kiln_status kiln_sim_check_parse(
        const char *text, uint32_t *mask, struct kiln_err *err);

// ---- Launching ----------------------------------------------------------------------------------
// Warp instructions that a block may run where nobody says otherwise: far more than a block of any
// kernel here, and a core is through with them in some ten seconds.
#define KILN_SIM_MAX_INSTRUCTIONS (UINT64_C(1) << 28)

struct kiln_sim_options {
    uint32_t checks; // mask of 1 << enum kiln_sim_check; 0: none
    int counters;    // count by line, beyond the instructions of the whole launch
    // Warp instructions that one block may run before the launch is given up (it is looked at when
    // every warp has had its turn, so that somewhat more are run); 0: KILN_SIM_MAX_INSTRUCTIONS.
    uint64_t max_block_instructions;
    // What the kernel is run as: "sm_86", and the bytes of shared memory that a block may have
    // there. NULL and 0: any GPU, the most that one has.
    const char *target;
    uint32_t max_shared_bytes;
    // Called now and then from the launching thread; nonzero ends the launch as INTERRUPTED. NULL
    // is fine.
    int (*progress)(void *arg, uint64_t blocks_done, uint64_t blocks);
    void *progress_arg;
    // Gets what the kernel's printf wrote, block after block. NULL: it goes to stdout.
    void (*print)(void *arg, const char *text, size_t bytes);
    void *print_arg;
};

struct kiln_sim_launch {
    const struct kiln_sim_kernel *kernel;
    uint32_t grid[3], block[3]; // x, y, z; each at least 1, a block at most 1024 threads
    uint32_t shared_bytes;      // dynamic shared memory
    const void *params;         // the parameter block, laid out as the entry's .param list
    uint32_t param_bytes;       // at least kiln_sim_param_bytes
};

// Runs a launch to its end. Findings and counters are added to *report, which may be NULL.
// OK also when a check found something: ask the report. DEVICE: the kernel trapped, failed an
// assertion, ran past its limit, or did what no report can be given of because that check is off
// (an access outside of memory, a deadlock). USAGE: a bad shape.
KILN_MUST_CHECK enum kiln_status kiln_sim_launch(struct kiln_sim *sim,
        const struct kiln_sim_launch *launch, const struct kiln_sim_options *options,
        struct kiln_sim_report *report, struct kiln_err *err);

// ---- Reports ------------------------------------------------------------------------------------
// A report gathers any number of launches. Strings in it belong to it: the code may be gone.
KILN_MUST_CHECK enum kiln_status kiln_sim_report_create(
        struct kiln_sim_report **report, struct kiln_err *err);
void kiln_sim_report_destroy(struct kiln_sim_report *report); // NULL is fine
void kiln_sim_report_clear(struct kiln_sim_report *report);   // as if nothing had been launched

// One line's faults of one kind, and the first of them in the order of blocks.
struct kiln_sim_finding {
    enum kiln_sim_check check;
    int advice;         // nothing is wrong: exit codes do not count it
    const char *kernel; // entry
    const char *file;   // of the CUDA source; "" where the PTX has no .loc
    uint32_t line, ptx_line;
    const char *from_file; // outermost place: of the call that was inlined, else file and line
    uint32_t from_line;
    uint32_t block[3], thread[3];
    const char *space;      // "global", "shared", "local", "param", "" for what has no address
    uint64_t address;       // in that space
    const char *allocation; // name, "" where there is none
    const char *text;       // one sentence that says all of the above
    uint64_t count;         // how often, this one included
};

// Both lists are made anew by each call and hold until the next launch or call; on lack of memory
// they are shorter.
uint32_t kiln_sim_findings(
        struct kiln_sim_report *report, const struct kiln_sim_finding **findings);
// Findings that are no advice, each counted once.
uint32_t kiln_sim_faults(struct kiln_sim_report *report);

// Instruction classes: name in reports
#define KILN_SIM_CLASS_TABLE(X) \
    X(INT, "integer") \
    X(FLOAT, "float") \
    X(HALF, "half") \
    X(DOUBLE, "double") \
    X(SPECIAL, "special function") \
    X(CONVERT, "convert") \
    X(MOVE, "move") \
    X(TENSOR, "tensor") \
    X(GLOBAL, "global memory") \
    X(SHARED, "shared memory") \
    X(LOCAL, "local memory") \
    X(ASYNC, "asynchronous copy") \
    X(ATOMIC, "atomic") \
    X(SHUFFLE, "shuffle") \
    X(VOTE, "vote, match, reduce") \
    X(BARRIER, "barrier and fence") \
    X(BRANCH, "branch and call") \
    X(OTHER, "other")

enum kiln_sim_class {
#define KILN_SIM_CLASS_ENUM(name, text) KILN_SIM_CLASS_##name,
    KILN_SIM_CLASS_TABLE(KILN_SIM_CLASS_ENUM)
#undef KILN_SIM_CLASS_ENUM
    KILN_SIM_CLASS_COUNT,
};

const char *kiln_sim_class_name(enum kiln_sim_class class_);

// What happened at one place: a source line, or a whole kernel (line 0).
struct kiln_sim_counts {
    uint64_t instructions; // by warps
    uint64_t lanes;        // sum of active lanes: / instructions is the average
    uint64_t by_class[KILN_SIM_CLASS_COUNT];
    // Global and local requests are of a warp. bytes: asked for by lanes. sectors: of 32 bytes.
    uint64_t global_loads, global_stores, global_load_bytes, global_store_bytes;
    uint64_t global_load_sectors, global_store_sectors;
    // Shared memory: wavefronts, and how many would do without bank conflicts.
    uint64_t shared_loads, shared_stores, shared_load_wavefronts, shared_store_wavefronts;
    uint64_t shared_load_ideal, shared_store_ideal;
    uint32_t shared_ways; // the worst conflict of one request; 1: none, 0: no request
    uint64_t barriers;    // warps that arrived at a block barrier
    uint64_t mbarriers;   // operations on mbarriers, by warps; a wait that stands still is one
    uint64_t bulk_copies, bulk_bytes, bulk_sectors; // of cp.async.bulk, by threads
    uint64_t branches, divergent_branches;
};

struct kiln_sim_line {
    const char *file;
    uint32_t line;
    struct kiln_sim_counts counts;
};

// One tensor-core shape: "m16n8k16.f32.f16.f16.f32", by warps.
struct kiln_sim_mma {
    const char *shape;
    uint64_t count;
};

// One instruction that accesses memory, waits at a barrier or multiplies on the tensor cores.
struct kiln_sim_site {
    const char *file;
    uint32_t line, ptx_line;
    const char *opcode; // "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    struct kiln_sim_counts counts;
};

struct kiln_sim_kernel_counts {
    const char *kernel;
    uint64_t launches, blocks, warps;
    uint32_t shared_requested; // bytes: static and dynamic, most of any launch
    uint32_t shared_used;      // one past the highest byte touched in any block
    struct kiln_sim_counts total;
    uint32_t n_lines, n_sites, n_mma;
    const struct kiln_sim_line *lines; // (n_lines), by file and line; none without counters
    const struct kiln_sim_site *sites; // (n_sites), in the order of the PTX
    const struct kiln_sim_mma *mma;    // (n_mma)
};

uint32_t kiln_sim_kernels(
        struct kiln_sim_report *report, const struct kiln_sim_kernel_counts **kernels);
uint64_t kiln_sim_instructions(const struct kiln_sim_report *report); // by warps, all kernels

#endif
