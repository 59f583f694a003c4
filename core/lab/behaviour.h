// behaviour: what the kernels of an audit do, counted on the simulator: each op runs once, alone,
// at a small problem of the same geometry, and its kernels' accesses, barriers and tensor-core
// operations are counted by source line. Grade: simulated. Products of one row have the audited
// op's columns: their kernels are compiled for these.
//
// What depends on the size of the problem alone (blocks, bytes) is not here: the plan says it.
#ifndef KILN_LAB_BEHAVIOUR_H
#define KILN_LAB_BEHAVIOUR_H

#include "base/status.h"
#include "plugin/registry.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_audit;

// A source line that accesses memory, by the instruction that it does so with.
struct kiln_behaviour_site {
    char file[48];
    uint32_t line;
    char opcode[40];   // "ldmatrix.x4.shared"
    int global;        // else shared
    uint64_t requests; // by warps
    uint32_t ways;     // shared: the worst conflict of a request; 1: none
    double wavefronts; // shared: a request, over what would do without conflicts; 1: none
    double sectors;    // global: of 32 bytes, a request
    double bytes;      // global: asked for, a request
};

struct kiln_behaviour_line {
    char file[48];
    uint32_t line;
};

struct kiln_behaviour {
    char problem[96]; // "m=130 kv=130 heads=7/1 hd=128"
    char *why_not;    // it was not simulated: the reason; nothing below holds
    uint64_t blocks, instructions;
    double barriers;                    // of the block, a block
    double tensor_ops;                  // a block, by warps
    uint32_t smem_requested, smem_used; // bytes: asked for, and touched
    struct kiln_behaviour_site *sites;  // in the order of the program
    size_t n_sites, cap_sites;
    struct kiln_behaviour_line *idle; // barriers across which no warps conflict
    size_t n_idle, cap_idle;
    uint32_t faults; // findings of the checks
};

// Simulates every kernel of the audit that has CUDA source and puts the result beside it. One that
// the simulator or the oracle's problems do not know keeps the reason. cache_dir: of compiled
// kernels, or NULL; threads: 0: all cores. The audit owns what is made.
KILN_MUST_CHECK enum kiln_status kiln_audit_simulate(struct kiln_audit *audit,
        struct kiln_registry *registry, const char *cache_dir, uint32_t threads, int (*stop)(void),
        struct kiln_err *err);

void kiln_behaviour_destroy(struct kiln_behaviour *behaviour); // NULL is fine

#endif
