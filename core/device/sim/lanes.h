// lanes: what an operation in its ready form is, and the table of the code that runs it. For the
// files of this folder.
//
// A handler runs one operation for a warp and returns the next one, or NULL when the warp stops
// (warp->stop says why, warp->pc where it goes on). Handlers of arithmetic are compiled once for
// any host and once for AVX2; the bits are the same.
#ifndef KILN_DEVICE_SIM_LANES_H
#define KILN_DEVICE_SIM_LANES_H

#include "device/sim/lanes_list.inc"

#include <stdint.h>

enum {
    SIM_LANES = 32,
    SIM_LIST_MAX = 128, // elements of a list operand
};

#define SIM_ALL UINT32_MAX // all lanes

struct sim_warp;
struct sim_op;

typedef const struct sim_op *(*sim_handler)(struct sim_warp *warp, const struct sim_op *op);

// Modifiers, in sim_op.mode of arithmetic.
enum {
    SIM_MODE_FTZ = 1,
    SIM_MODE_SAT = 2,
    SIM_MODE_NAN = 4,
    SIM_MODE_RELU = 8,
    SIM_MODE_XORSIGN = 16,
};

// An operand is where its lanes are: a byte offset into bank 0, the frame, or bank 1, the kernel's
// constants; the bank is bit 0.
struct sim_op {
    sim_handler fn;
    uint32_t d, d2, a, b, c, e;
    uint32_t mode; // modifiers; ENTER: instructions in the block
    uint32_t id;   // of its instruction, or of the block, in the kernel
    int64_t imm;
    union {
        struct {
            uint16_t list_d, list_a, list_b, list_c; // distances of the lists from `lists`
            uint32_t lists;                          // index into the kernel's operand lists
            uint8_t n, bytes, space, type;
        };
        struct {
            const struct sim_op *target, *join;
        };
    };
};

// Numbers of the operations that lanes_*.c implement.
#define SIM_ENUM(name, ...)      SIM_OP_##name,
#define SIM_ENUM_SETP(name, ...) SIM_OP_SETP_##name,
enum sim_op_number {
    SIM_MAP1(SIM_ENUM)
    SIM_MAP2(SIM_ENUM) SIM_MAP3(SIM_ENUM) SIM_MAP_FMA(SIM_ENUM) SIM_SLOW1(SIM_ENUM)
            SIM_SLOW2(SIM_ENUM) SIM_SLOW3(SIM_ENUM) SIM_COMPARE(SIM_ENUM_SETP)
            // Of predicates
            SIM_OP_MOV_PRED,
    SIM_OP_NOT_PRED,
    SIM_OP_AND_PRED,
    SIM_OP_OR_PRED,
    SIM_OP_XOR_PRED,
    // Select by a predicate
    SIM_OP_SELP_B32,
    SIM_OP_SELP_B64,
    // Carries and fields
    SIM_OP_CARRY,
    SIM_OP_BFI_B32,
    SIM_OP_BFI_B64,
    SIM_OP_LOP3_PRED,
    // Matrices
    SIM_OP_MMA_F16_F32, // m16n8k16 and m16n8k8, the sums in f32
    SIM_OP_MMA_BF16_F32,
    SIM_OP_MMA_S8,
    SIM_OP_WGMMA, // of warp->product
    SIM_OP_COUNT
};

// One handler for each number; generic works on every host.
void kiln_sim_lanes_generic(sim_handler handlers[SIM_OP_COUNT]);
#if defined(__x86_64__)
void kiln_sim_lanes_avx2(sim_handler handlers[SIM_OP_COUNT]);
void kiln_sim_mma_avx2(sim_handler handlers[SIM_OP_COUNT]);
#endif
void kiln_sim_mma_generic(sim_handler handlers[SIM_OP_COUNT]);

#endif
