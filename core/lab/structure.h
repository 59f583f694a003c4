// structure: which stage of a kernel runs where (tensor cores, shared memory, arithmetic), read
// from its PTX: instructions by class and by line of the kernel's own source, barriers by loop.
//
// Counts are of the program's text, not of a run: an unrolled loop counts each copy, a rolled one
// counts once. A line is where the instruction stands in the kernel function itself: what was
// inlined into it counts for the line of the call or, where the PTX does not say which call that
// was, for its own line in its header. Not here: what machine code ptxas makes of it.
#ifndef KILN_LAB_STRUCTURE_H
#define KILN_LAB_STRUCTURE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum kiln_structure_class {
    KILN_STRUCTURE_MMA,      // mma, wgmma, tcgen05.mma: tensor cores
    KILN_STRUCTURE_LDMATRIX, // ldmatrix, stmatrix, movmatrix
    KILN_STRUCTURE_ASYNC,    // cp.async and bulk copies; not their commits and waits
    KILN_STRUCTURE_LD_SHARED,
    KILN_STRUCTURE_ST_SHARED, // atomics as well
    KILN_STRUCTURE_SHUFFLE,   // shfl, redux, match, vote
    KILN_STRUCTURE_BARRIER,   // of the block: bar, barrier
    KILN_STRUCTURE_MBARRIER,  // waits for an mbarrier
    KILN_STRUCTURE_LD_GLOBAL,
    KILN_STRUCTURE_ST_GLOBAL, // atomics as well
    KILN_STRUCTURE_SPECIAL,   // ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, div of floats
    KILN_STRUCTURE_FLOAT,     // other arithmetic on floats
    KILN_STRUCTURE_INTEGER,   // dp4a and dp2a: products of small integers
    KILN_STRUCTURE_OTHER,
    KILN_STRUCTURE_CLASSES
};

struct kiln_structure_line {
    char file[48]; // without folders; "" where the PTX has no line
    uint32_t line;
    uint32_t counts[KILN_STRUCTURE_CLASSES];
};

// A loop of the kernel, an inner one not counted in the outer.
struct kiln_structure_loop {
    char file[48]; // of the statement that begins it
    uint32_t line;
    uint32_t depth;     // 1: in no other loop
    uint32_t barriers;  // of the block, in one turn
    uint32_t sometimes; // of them, those that a turn may leave out
    uint32_t counts[KILN_STRUCTURE_CLASSES];
};

struct kiln_structure {
    struct kiln_structure_line *lines; // by file and line
    size_t n_lines;
    struct kiln_structure_loop *loops; // in the order of the program
    size_t n_loops;
    uint32_t barriers_outside; // of any loop
    uint32_t calls;            // of functions, whose instructions are not counted
    int loops_known;           // 0: the PTX has a branch that this reader does not follow
};

// ptx: NUL-terminated; entry: the kernel's name there. KILN_STATUS_FILE: no such entry, or text
// that is cut short. The caller ends *structure with kiln_structure_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_structure_read(
        struct kiln_structure *structure, const char *ptx, const char *entry, struct kiln_err *err);
void kiln_structure_finish(struct kiln_structure *structure); // a zeroed one is fine

#endif
