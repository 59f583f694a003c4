// ptx: PTX text, parsed once into what an interpreter runs: flat arrays of instructions whose
// operands are places in a frame of lanes.
//
// The front end (lexer, parser, control flow, decoding) makes this and never runs anything;
// execution (exec.h) reads it and never looks at text. Whatever is not understood is an error when
// the text is read, with its PTX line and, where a .loc stands before it, its CUDA line.
//
// THE FRAME. A function's registers lie in one block of memory a warp and activation, its frame. A
// register is an array of 32 lanes: 4 bytes a lane for registers of 8, 16 and 32 bits (whatever
// writes a 16-bit register leaves the upper 16 bits 0), 8 for those of 64, 16 for those of 128. A
// predicate is one uint32_t, bit l for lane l. Registers that are never alive at once may share a
// place, so a write must change the lanes that run the instruction and no others. The places of an
// instruction's destinations and of its sources never overlap, except where both name one register:
// a source is alive up to and with the instruction that reads it last.
//
// OPERANDS. A uint32_t: KILN_PTX_NONE (absent, or the sink `_`), or a byte offset into the frame,
// or, with KILN_PTX_CONST set, a byte offset into the kernel's constants: the same lane arrays,
// read only, every lane equal (a predicate: all ones or zero). Offsets of lane arrays are multiples
// of 64, those of predicates of 4. Width of a constant: as the register that would stand there.
// A list operand (a vector, a matrix fragment) is the index of its first element in
// function->lists, whose elements are operands; n_d, n_a, n_b, n_c say how many. With a count of 1
// the operand stands in the instruction itself, a list of one never occurs.
//
// ADDRESSES. [a + imm]: `a` holds 32 lanes of a_bytes (4 or 8; 4 is zero-extended), or is NONE and
// imm is the whole address. What the number means depends on the space: in GLOBAL, CONST and
// GENERIC an address (GLOBAL and CONST addresses are generic ones), in SHARED an offset into the
// block's shared memory, static variables first, then dynamic memory; in LOCAL an offset into the
// thread's local memory; in PARAM an offset into the kernel's parameters, the same for all threads;
// in CALL an offset into the activation's own call area, param_bytes a lane, which holds the
// function's formal parameters and results (device functions) and the .param variables that it
// declares for calls.
#ifndef KILN_DEVICE_SIM_PTX_H
#define KILN_DEVICE_SIM_PTX_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define KILN_PTX_NONE  UINT32_MAX
#define KILN_PTX_CONST UINT32_C(0x80000000)

// clang-format off
enum kiln_ptx_type {
    KILN_PTX_NOTYPE,
    KILN_PTX_PRED,
    KILN_PTX_B8, KILN_PTX_B16, KILN_PTX_B32, KILN_PTX_B64, KILN_PTX_B128, KILN_PTX_B1,
    KILN_PTX_U4, KILN_PTX_U8, KILN_PTX_U16, KILN_PTX_U32, KILN_PTX_U64,
    KILN_PTX_S4, KILN_PTX_S8, KILN_PTX_S16, KILN_PTX_S32, KILN_PTX_S64,
    KILN_PTX_F16, KILN_PTX_F16X2, KILN_PTX_BF16, KILN_PTX_BF16X2, KILN_PTX_TF32,
    KILN_PTX_F32, KILN_PTX_F64,
    KILN_PTX_U16X2, KILN_PTX_S16X2, // of min, max, add
    KILN_PTX_N_TYPES,
};

enum kiln_ptx_space {
    KILN_PTX_GENERIC, KILN_PTX_GLOBAL, KILN_PTX_CONSTANT, KILN_PTX_SHARED, KILN_PTX_LOCAL,
    KILN_PTX_PARAM, // the kernel's parameters
    KILN_PTX_CALLS, // the activation's call area
};

enum kiln_ptx_round {
    KILN_PTX_RN, // to nearest even; also what an instruction without a rounding modifier means
    KILN_PTX_RZ, KILN_PTX_RM, KILN_PTX_RP, KILN_PTX_RNA,
    KILN_PTX_RNI, KILN_PTX_RZI, KILN_PTX_RMI, KILN_PTX_RPI, // to an integral value
    KILN_PTX_APPROX, // .approx, of div, rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh
    KILN_PTX_FULL,   // div.full
};

enum kiln_ptx_cmp { // of setp and set; LO LS HI HS are LT LE GT GE of unsigned types
    KILN_PTX_EQ, KILN_PTX_NE, KILN_PTX_LT, KILN_PTX_LE, KILN_PTX_GT, KILN_PTX_GE,
    KILN_PTX_EQU, KILN_PTX_NEU, KILN_PTX_LTU, KILN_PTX_LEU, KILN_PTX_GTU, KILN_PTX_GEU,
    KILN_PTX_NUM, KILN_PTX_NAN,
};

enum kiln_ptx_bool { KILN_PTX_NOBOOL, KILN_PTX_BOOL_AND, KILN_PTX_BOOL_OR, KILN_PTX_BOOL_XOR };

enum kiln_ptx_sreg {
    KILN_PTX_TID_X, KILN_PTX_TID_Y, KILN_PTX_TID_Z,
    KILN_PTX_NTID_X, KILN_PTX_NTID_Y, KILN_PTX_NTID_Z,
    KILN_PTX_CTAID_X, KILN_PTX_CTAID_Y, KILN_PTX_CTAID_Z,
    KILN_PTX_NCTAID_X, KILN_PTX_NCTAID_Y, KILN_PTX_NCTAID_Z,
    KILN_PTX_LANEID, KILN_PTX_WARPID, KILN_PTX_NWARPID, KILN_PTX_SMID, KILN_PTX_NSMID,
    KILN_PTX_GRIDID, // 64 bits when d_bytes is 8
    KILN_PTX_LANEMASK_EQ, KILN_PTX_LANEMASK_LE, KILN_PTX_LANEMASK_LT, KILN_PTX_LANEMASK_GE,
    KILN_PTX_LANEMASK_GT,
    KILN_PTX_CLOCK, KILN_PTX_CLOCK_HI, KILN_PTX_CLOCK64, KILN_PTX_GLOBALTIMER,
    KILN_PTX_GLOBALTIMER_LO, KILN_PTX_GLOBALTIMER_HI,
    KILN_PTX_TOTAL_SMEM, KILN_PTX_DYNAMIC_SMEM, // bytes a block
    KILN_PTX_CLUSTER_CTAID, KILN_PTX_CLUSTER_NCTAID, // in each direction, and the rank and size
};

// Flags of an instruction.
enum kiln_ptx_flag {
    KILN_PTX_GUARD_NOT = 1 << 0,  // the guard predicate is negated
    KILN_PTX_C_NOT = 1 << 1,      // the predicate source c is negated (setp, set, selp's is not)
    KILN_PTX_A_NOT = 1 << 2,      // the predicate source a is negated (vote, bar.red, mov.pred …)
    KILN_PTX_FTZ = 1 << 3,        // denormal inputs and results are 0 of their sign
    KILN_PTX_SAT = 1 << 4,        // float: to [0, 1], NaN to 0; integer: to the type's range
    KILN_PTX_RELU = 1 << 5,       // negative results, and NaN's sign, as .relu says
    KILN_PTX_CC_OUT = 1 << 6,     // add, sub, mad: the carry (borrow) goes to predicate d2
    KILN_PTX_CC_IN = 1 << 7,      // add, sub, mad: the carry (borrow) in is predicate e
    KILN_PTX_NAN_FLAG = 1 << 8,   // min, max: .NaN
    KILN_PTX_XORSIGN = 1 << 9,    // min, max: .xorsign.abs
    KILN_PTX_UNI = 1 << 10,       // bra.uni, call.uni, ret.uni: all lanes go one way
    KILN_PTX_TRANS = 1 << 11,     // ldmatrix, stmatrix: .trans
    KILN_PTX_ALIGNED = 1 << 12,   // bar.*, barrier.*.aligned, …: all lanes are meant
    KILN_PTX_VOLATILE = 1 << 13,  // ld, st: .volatile, .relaxed, .acquire, .release, .mmio
    KILN_PTX_CG = 1 << 14,        // cp.async.cg (else .ca)
    KILN_PTX_NOFTZ = 1 << 15,     // atom.add.noftz.f16
    KILN_PTX_SHIFTAMT = 1 << 16,  // bfind.shiftamt
    KILN_PTX_A_COL = 1 << 17,     // wmma, mma: layout of a is .col (else .row)
    KILN_PTX_B_COL = 1 << 18,     // layout of b is .col; wmma.load, wmma.store: of the one at hand
    KILN_PTX_SATFINITE = 1 << 19, // mma.satfinite of integers; cvt.satfinite
    KILN_PTX_HAS_SIZE = 1 << 20,  // cp.async: src-size is c
    KILN_PTX_B_NOT = 1 << 21,     // the predicate source b is negated
    KILN_PTX_RELAXED = 1 << 22,   // mbarrier: orders nothing
    KILN_PTX_PARITY = 1 << 23,    // mbarrier waits: for a parity, not for a state
    KILN_PTX_NO_PHASE = 1 << 24,  // mbarrier.arrive.noComplete: must not end the phase
};

// ---- Instructions -------------------------------------------------------------------------------
// Behind each: the fields that it uses, beside guard and flags. type is the instruction's type (of
// the result where there are two), type2 that of the source. d_bytes: bytes of the register d (2, 4
// 8, 16; 0 a predicate), a_bytes of the register a; a destination wider than the type is sign- or
// zero-extended, of a wider source the low bits are taken.
#define KILN_PTX_OPS(X) \
    /* -- moves -- */ \
    X(MOV)       /* d = a, bits; type PRED: predicates, A_NOT */ \
    X(PACK)      /* d = list a (n_a of them), the first in the lowest bits; a_bytes an element */ \
    X(UNPACK)    /* list d (n_d) = pieces of a, lowest first; d_bytes a piece; NONE: dropped */ \
    X(SREG)      /* d = special register sub */ \
    X(LEA_LOCAL) /* d = imm + where this activation's local memory begins, an address in LOCAL */ \
    X(CVT)       /* d (type) = a (type2), round, FTZ, SAT, RELU, SATFINITE; F16X2, BF16X2 from \
                    F32: d = {b low, a high} as in PTX: a is the first source, the upper half */ \
    X(CVT_PACK)  /* cvt.pack.sat.type.type2 d, a, b {, c}: sat(a) above sat(b), then c's low bits \
                    shifted up (c NONE: 0); type U16 S16 (no c), U8 S8 U4.. S4 */ \
    X(CVTA)      /* d = generic address of a, which is in `space`; d_bytes */ \
    X(CVTA_TO)   /* d = address in `space` of the generic address a */ \
    X(ISSPACEP)  /* predicate d = generic address a lies in `space` */ \
    X(PRMT)      /* d = bytes of {b, a} by selector c; sub: enum kiln_ptx_prmt */ \
    /* -- integers; ADD SUB MUL MAD MIN MAX ABS NEG also of floats (FTZ, SAT, round) -- */ \
    X(ADD)       /* d = a + b; CC_OUT: d2, CC_IN: e */ \
    X(SUB)       /* d = a - b; CC_OUT: d2 is the borrow, CC_IN: e */ \
    X(MUL)       /* d = a * b; integers: sub LO HI WIDE (type: of the sources) */ \
    X(MAD)       /* d = a * b + c; sub as MUL; SAT (hi.s32); CC_OUT: d2, CC_IN: e */ \
    X(FMA)       /* d = a * b + c, one rounding; RELU; floats */ \
    X(MUL24)     /* d = low 24 bits' product; sub LO HI */ \
    X(MAD24)     /* d = mul24 + c; sub LO HI; SAT */ \
    X(SAD)       /* d = |a - b| + c */ \
    X(DIV)       /* d = a / b; floats: round RN RZ RM RP APPROX FULL */ \
    X(REM)       /* d = a % b */ \
    X(ABS)       /* d = |a| */ \
    X(NEG)       /* d = -a */ \
    X(MIN)       /* NAN_FLAG, XORSIGN, RELU (s16x2, s32: max(…, 0)) */ \
    X(MAX) \
    X(POPC)      /* d (32 bits) = ones in a (type) */ \
    X(CLZ)       /* d (32 bits) = leading zeros of a */ \
    X(BFIND)     /* d (32 bits); SHIFTAMT; none: 0xffffffff */ \
    X(BREV) \
    X(BFE)       /* d = bits of a from b (32 bits), c (32 bits) of them */ \
    X(BFI)       /* d = b with the low e (32 bits) bits of a at c (32 bits): bfi d, a, b, c, e */ \
    X(SZEXT)     /* sub: 0 clamp, 1 wrap */ \
    X(BMSK)      /* sub: 0 clamp, 1 wrap */ \
    X(FNS)       /* d = position of the c-th set bit of a from base b */ \
    X(DP4A)      /* d = dot of 4 bytes + c; type: of a (U32 S32), type2: of b */ \
    X(DP2A)      /* the same of two halves of a and two bytes of b; sub LO HI */ \
    /* -- floats -- */ \
    X(RCP) X(SQRT) X(RSQRT) /* round or APPROX; FTZ */ \
    X(SIN) X(COS) X(LG2) X(EX2) X(TANH) /* approx; FTZ; EX2, TANH also F16 F16X2 BF16 BF16X2 */ \
    X(TESTP)     /* predicate d = class of a; sub: enum kiln_ptx_testp */ \
    X(COPYSIGN)  /* d = b with the sign of a */ \
    /* -- comparison; type2 is what is compared -- */ \
    X(SETP)      /* predicates d, d2 (NONE: absent) = (a cmp b) [boolop c], !(a cmp b) [boolop c]; \
                    c: predicate, C_NOT; FTZ; F16X2, BF16X2: d low halves, d2 high ones */ \
    X(SET)       /* d (type: U32 S32: all ones, F32: 1.0, …) = (a cmp b) [boolop c] */ \
    X(SELP)      /* d = predicate c ? a : b */ \
    X(SLCT)      /* d = c >= 0 ? a : b; type2: of c, S32 or F32; FTZ */ \
    /* -- bits; type PRED: predicates, A_NOT, B_NOT -- */ \
    X(AND) X(OR) X(XOR) X(NOT) X(CNOT) /* NOT, CNOT: d, a */ \
    X(LOP3)      /* d = table imm (8 bits) of a, b, c; d2 (NONE: absent): lop3.BoolOp's predicate \
                    (d != 0) boolop e, e a predicate, flag C_NOT for e */ \
    X(SHL) X(SHR) /* b: 32 bits, clamped; SHR of a signed type fills with the sign */ \
    X(SHF)       /* funnel: sub 0 l.clamp, 1 l.wrap, 2 r.clamp, 3 r.wrap; a low, b high, c by */ \
    /* -- memory; space; [a + imm]; type a single element -- */ \
    X(LD)        /* list d (n_d 1, 2, 4, 8); NONE: of a vector, what nobody reads */ \
    X(ST)        /* list b (n_b): the values; b_bytes of each register */ \
    X(PREFETCH)  /* touches nothing; of tensor maps, too */ \
    X(ATOM)      /* d (NONE for red) = old; b, c: operands; sub: enum kiln_ptx_atom; n_d, n_b > 1: \
                    .v2 .v4 .v8 of f32, f16, bf16 and pairs */ \
    X(CP_ASYNC)  /* shared [a + imm] <- global [b + imm2], imm3 bytes (4, 8, 16); HAS_SIZE: c (32 \
                    bits) bytes are read, the rest 0; e (predicate or NONE): ignore-src; CG */ \
    X(CP_COMMIT) \
    X(CP_WAIT)   /* imm: groups that may be under way; -1: wait_all */ \
    X(CP_BULK)   /* shared [a + imm] <- global [b + imm2], c (32 bits) bytes, counted at the \
                    mbarrier [e + imm4] */ \
    X(CP_TENSOR) /* shared [a + imm] <- the box at coordinates list c (n_c, 32 bits) of the tensor \
                    map at the generic address [b + imm2], counted at the mbarrier [e + imm4] */ \
    X(MBARRIER)  /* sub: enum kiln_ptx_mbarrier, of [a + imm], shared or generic; b: arrivals \
                    (INIT, ARRIVE: NONE is 1, DROP), parity (32 bits, PARITY) or state (64 bits) \
                    of waits; c: bytes, NONE: none; d: state (64 bits, NONE: absent) of arrivals, \
                    predicate of waits; RELAXED, NO_PHASE */ \
    X(LDMATRIX)  /* list d (n_d 1, 2, 4) of 32-bit registers; shared or generic; TRANS */ \
    X(STMATRIX)  /* list b (n_b 1, 2, 4) */ \
    X(MOVMATRIX) /* d, a: 8x8 of b16, transposed */ \
    /* -- warps and blocks -- */ \
    X(SHFL)      /* d, predicate d2 (NONE: absent); a, b lane, c clamp; sub: enum kiln_ptx_shfl; e \
                    member mask, NONE for the form without .sync */ \
    X(VOTE)      /* sub: enum kiln_ptx_vote; d: predicate, BALLOT: 32 bits; a: predicate, A_NOT; e \
                    member mask, NONE without .sync */ \
    X(MATCH)     /* sub 0 any, 1 all; d mask, d2 predicate (all) or NONE; a; e member mask */ \
    X(REDUX)     /* d = over members of e, of a; sub: enum kiln_ptx_atom, ADD … XOR */ \
    X(ACTIVEMASK) /* d */ \
    X(WARPSYNC)  /* e: member mask */ \
    X(ELECT)     /* d (NONE: absent) leader's lane, predicate d2; e member mask */ \
    X(BAR)       /* sub: enum kiln_ptx_bar; a: barrier number, b: threads (NONE: all of the block) \
                    ; RED: d (POPC: 32 bits; AND, OR: predicate), c: predicate, C_NOT */ \
    X(MEMBAR)    /* membar, fence; sub: enum kiln_ptx_fence */ \
    /* -- control -- */ \
    X(BRA)       /* target; join */ \
    X(BRX)       /* a (32 bits): index into imm targets lists[b] …, instruction numbers; join */ \
    X(CALL)      /* target: number of the function in kernel->functions; copies: lists[a] … n_a \
                    triples (offset in the caller's call area, in the callee's, bytes) before, \
                    lists[b] … n_b such triples after the return (callee to caller: the same \
                    order caller, callee, bytes) */ \
    X(CALL_REG)  /* through register c (64 bits): a function's address as KILN_PTX_FUNCTION_BASE \
                    + its number; copies as CALL, callee offsets being those of any function with \
                    that prototype */ \
    X(CALL_HOST) /* sub: enum kiln_ptx_host; lists[a] … n_a offsets in the call area, of the \
                    arguments; target: offset of the result, NONE: none */ \
    X(RET)       /* in the kernel: as EXIT */ \
    X(EXIT) \
    X(TRAP) \
    X(NOP)       /* brkpt, nanosleep, pmevent, griddepcontrol, discard, … */ \
    /* -- matrices: sub: enum kiln_ptx_shape; type: of d, type2: of a, type3: of b, type4: of c; \
       fragments as the PTX ISA lays them out -- */ \
    X(MMA)       /* lists d, a, b, c; A_COL, B_COL (m8n8k4); imm: 1 .xor.popc, 2 .and.popc */ \
    X(WMMA_MMA)  /* the same; SAT, round (f64) */ \
    X(WMMA_LOAD) /* list d; [a + imm]; c: stride in elements (32 bits, NONE: packed); space; type; \
                    sub: shape; imm2: 0 a, 1 b, 2 c; B_COL: .col */ \
    X(WMMA_STORE) /* list b; [a + imm]; c: stride; space; type; sub: shape; B_COL: .col */ \
    /* -- matrices of warpgroups: wgmma; sub: N / 8 -- */ \
    X(WGMMA)       /* list d += a times b; lists d and c: the same registers; a: list of 4 (n_a) \
                      or a matrix's description (n_a 1, 64 bits); b: description; e (predicate): \
                      false: d begins with 0; A_COL: a is M-major, TRANS: b is N-major; imm: 1 a \
                      is negated, 2 b is */ \
    X(WGMMA_FENCE) \
    X(WGMMA_COMMIT) \
    X(WGMMA_WAIT)  /* imm: groups that may be under way */

enum kiln_ptx_op {
#define KILN_PTX_OP_ENUM(name) KILN_PTX_OP_##name,
    KILN_PTX_OPS(KILN_PTX_OP_ENUM)
#undef KILN_PTX_OP_ENUM
    KILN_PTX_N_OPS
};

enum kiln_ptx_half { KILN_PTX_LO, KILN_PTX_HI, KILN_PTX_WIDE };
enum kiln_ptx_prmt {
    KILN_PTX_PRMT_INDEX, KILN_PTX_PRMT_F4E, KILN_PTX_PRMT_B4E, KILN_PTX_PRMT_RC8,
    KILN_PTX_PRMT_ECL, KILN_PTX_PRMT_ECR, KILN_PTX_PRMT_RC16,
};
enum kiln_ptx_testp {
    KILN_PTX_FINITE, KILN_PTX_INFINITE, KILN_PTX_NUMBER, KILN_PTX_NOTANUMBER, KILN_PTX_NORMAL,
    KILN_PTX_SUBNORMAL,
};
enum kiln_ptx_atom {
    KILN_PTX_ATOM_ADD, KILN_PTX_ATOM_MIN, KILN_PTX_ATOM_MAX, KILN_PTX_ATOM_AND, KILN_PTX_ATOM_OR,
    KILN_PTX_ATOM_XOR, KILN_PTX_ATOM_INC, KILN_PTX_ATOM_DEC, KILN_PTX_ATOM_EXCH, KILN_PTX_ATOM_CAS,
};
enum kiln_ptx_shfl { KILN_PTX_SHFL_UP, KILN_PTX_SHFL_DOWN, KILN_PTX_SHFL_BFLY, KILN_PTX_SHFL_IDX };
enum kiln_ptx_vote {
    KILN_PTX_VOTE_ALL, KILN_PTX_VOTE_ANY, KILN_PTX_VOTE_UNI, KILN_PTX_VOTE_BALLOT,
};
enum kiln_ptx_bar {
    KILN_PTX_BAR_SYNC, KILN_PTX_BAR_ARRIVE, KILN_PTX_BAR_RED_POPC, KILN_PTX_BAR_RED_AND,
    KILN_PTX_BAR_RED_OR,
};
enum kiln_ptx_mbarrier {
    KILN_PTX_MBARRIER_INIT, KILN_PTX_MBARRIER_INVAL, KILN_PTX_MBARRIER_ARRIVE,
    KILN_PTX_MBARRIER_DROP, KILN_PTX_MBARRIER_EXPECT, KILN_PTX_MBARRIER_COMPLETE,
    KILN_PTX_MBARRIER_TEST, KILN_PTX_MBARRIER_TRY,
};
enum kiln_ptx_fence {
    KILN_PTX_FENCE_CTA, KILN_PTX_FENCE_GPU, KILN_PTX_FENCE_SYS,
    KILN_PTX_FENCE_PROXY_SHARED, // .proxy.async of shared memory, or of all
    KILN_PTX_FENCE_PROXY_GLOBAL, // of global memory alone
    KILN_PTX_FENCE_MBARRIER, // .mbarrier_init
};
enum kiln_ptx_host { // functions that a CUDA program finds on every device
    KILN_PTX_VPRINTF, // (format: u64 generic, arguments: u64 generic) -> b32
    KILN_PTX_ASSERTFAIL, // (message u64, file u64, line u32, function u64, size u64)
    KILN_PTX_MALLOC, // (u64) -> u64
    KILN_PTX_FREE, // (u64)
};
enum kiln_ptx_shape {
    KILN_PTX_M8N8K4, KILN_PTX_M8N8K16, KILN_PTX_M8N8K32, KILN_PTX_M8N8K128,
    KILN_PTX_M16N8K4, KILN_PTX_M16N8K8, KILN_PTX_M16N8K16, KILN_PTX_M16N8K32, KILN_PTX_M16N8K64,
    KILN_PTX_M16N8K128, KILN_PTX_M16N8K256,
    KILN_PTX_M16N16K16, KILN_PTX_M32N8K16, KILN_PTX_M8N32K16, KILN_PTX_M16N16K8, // wmma
};
// clang-format on

// Generic addresses of functions, for calls through a register.
#define KILN_PTX_FUNCTION_BASE UINT64_C(0x7f00000000000000)

struct kiln_ptx_insn {
    void *run;           // execution's own; NULL as decoded
    uint32_t guard;      // predicate operand, NONE: always
    uint32_t d, d2;      // destinations
    uint32_t a, b, c, e; // sources
    uint32_t flags;      // enum kiln_ptx_flag
    uint32_t target;     // instruction number in the same function
    uint32_t join;       // branches: where the ways meet again (immediate post-dominator), an
                         // instruction number; n_insns: only at the function's end
    int64_t imm;
    int32_t imm2, imm4;
    uint16_t op;                       // enum kiln_ptx_op
    uint8_t sub;                       // as the opcode says
    uint8_t space;                     // enum kiln_ptx_space
    uint8_t type, type2, type3, type4; // enum kiln_ptx_type
    uint8_t round, cmp, boolop, imm3;
    uint8_t n_d, n_a, n_b, n_c;                 // elements of list operands, 1: in place, 0: absent
    uint8_t d_bytes, a_bytes, b_bytes, c_bytes; // of their registers, 0: predicate or absent
    uint8_t e_bytes;                            // of e where it is an address
};

// Where an instruction comes from.
struct kiln_ptx_where {
    uint32_t ptx_line;
    uint32_t file;    // index into module->files, NONE: no .loc stands before it
    uint32_t line;    // CUDA line
    uint32_t inlined; // index into module->wheres of the place it was inlined at, NONE: nowhere
};

struct kiln_ptx_param {
    char *name;
    uint32_t offset, bytes, align;
    uint8_t type;    // of an element; B8 for aggregates
    uint8_t pointer; // .ptr was said of it
};

struct kiln_ptx_function {
    char *name;
    struct kiln_ptx_param
            *params; // formal parameters; of a device function, offsets in the call area
    uint32_t n_params;
    struct kiln_ptx_param *results; // of a device function, offsets in the call area
    uint32_t n_results;
    struct kiln_ptx_insn *insns;
    uint32_t *where; // of each instruction: index into module->wheres
    uint32_t n_insns;
    uint32_t *lists;
    uint32_t n_lists;
    uint32_t frame_bytes; // of registers a warp, multiple of 64
    // Registers of 32 bits that a WGMMA names, or that are moved to or from one that it names: each
    // has a place of its own, at watched_at + 128 i.
    uint32_t watched_at, n_watched;
    uint32_t call_bytes;  // call area a lane, multiple of 16
    uint32_t local_bytes; // local memory a lane of one activation, multiple of 16
};

// A variable of the module. Execution gives GLOBAL and CONSTANT ones addresses.
struct kiln_ptx_var {
    char *name;
    uint8_t space; // GLOBAL, CONSTANT, SHARED
    uint8_t is_extern;
    uint32_t align;
    uint64_t bytes;                // 0: dynamic shared memory
    uint8_t *init;                 // the first init_bytes bytes; those behind them are 0
    uint64_t init_bytes;           // 0: all 0
    struct kiln_ptx_reloc *relocs; // addresses that stand in init
    uint32_t n_relocs;
};

// An address that is known when the module is loaded: 8 bytes (4 when bytes is 4) at `at` become
// address of vars[var] + addend; with var NONE: KILN_PTX_FUNCTION_BASE + function + addend.
struct kiln_ptx_reloc {
    uint32_t at, var, function, bytes;
    int64_t addend;
};

// A static or dynamic variable in a kernel's shared memory.
struct kiln_ptx_shared {
    const char *name;       // of the module's
    uint32_t offset, bytes; // bytes 0: dynamic, up to the end
};

// One entry with everything that it can reach. Device functions are decoded for each kernel anew,
// as the places of shared variables differ.
struct kiln_ptx_kernel {
    char *name;
    struct kiln_ptx_function *functions; // [0] is the kernel
    uint32_t n_functions;
    // Constants: lane arrays. Execution copies the block if it likes, and writes each reloc's
    // address into all 32 lanes of 8 bytes at `at`.
    uint8_t *constants;
    uint32_t constant_bytes;
    struct kiln_ptx_reloc *relocs;
    uint32_t n_relocs;
    uint32_t param_bytes;  // of parameters
    uint32_t shared_bytes; // static; dynamic memory begins at dynamic_at
    uint32_t dynamic_at;   // shared_bytes, aligned as the dynamic variables ask for
    struct kiln_ptx_shared *shared;
    uint32_t n_shared;
    uint32_t max_threads;  // .maxntid's product, 0: not said
    uint32_t max_block[3]; // .maxntid, 0: not said
    uint32_t req_block[3]; // .reqntid, 0: not said
    uint32_t min_blocks;   // .minnctapersm
};

struct kiln_ptx_module {
    char *name;       // of the text, for messages
    uint32_t version; // of PTX: 90 is 9.0
    uint32_t target;  // 80 is sm_80
    char feature;     // 'a' of sm_90a; 0: none
    uint32_t address_bits;
    char **files; // by index, as .file numbers are found; NULL for numbers that were left out
    uint32_t n_files;
    struct kiln_ptx_where *wheres;
    uint32_t n_wheres;
    struct kiln_ptx_var *vars;
    uint32_t n_vars;
    struct kiln_ptx_kernel *kernels;
    uint32_t n_kernels;
};

// Reads a module. name: of the file, for messages. KILN_STATUS_FILE: the text is not PTX that kiln
// understands; the message names line, instruction and CUDA line. The caller ends *module with
// kiln_ptx_close. The text is not needed afterwards.
KILN_MUST_CHECK enum kiln_status kiln_ptx_open(struct kiln_ptx_module **module, const char *name,
        const char *text, size_t len, struct kiln_err *err);
void kiln_ptx_close(struct kiln_ptx_module *module); // NULL is fine

// The kernel of that name, NULL: none.
struct kiln_ptx_kernel *kiln_ptx_kernel_find(struct kiln_ptx_module *module, const char *name);

const char *kiln_ptx_op_name(enum kiln_ptx_op op);       // "LD"
const char *kiln_ptx_type_name(enum kiln_ptx_type type); // "f32"
uint32_t kiln_ptx_type_bits(enum kiln_ptx_type type);    // 32; 1 for predicates

#endif
