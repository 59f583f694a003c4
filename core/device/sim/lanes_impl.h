// lanes_impl: what the files that are compiled once for each instruction set have in common. Such
// a file is built with SIM_ISA set to its suffix.
#ifndef KILN_DEVICE_SIM_LANES_IMPL_H
#define KILN_DEVICE_SIM_LANES_IMPL_H

#include "device/sim/exec_impl.h"
#include "device/sim/lanes_math.h"

#ifndef SIM_ISA
#    define SIM_ISA generic
#endif
#define SIM_PASTE_(a, b) a##b
#define SIM_PASTE(a, b)  SIM_PASTE_(a, b)
#define SIM_NAMED(name)  SIM_PASTE(name, SIM_ISA)

// A loop over lanes whose iterations do not depend on each other: a result may lie exactly over an
// operand, never askew.
#ifdef __clang__
#    define SIM_EACH_LANE \
        _Pragma("clang loop vectorize(assume_safety) interleave(disable)") for (int i = 0; \
                                                                                i < SIM_LANES; \
                                                                                i++)
#else
#    define SIM_EACH_LANE _Pragma("GCC ivdep") for (int i = 0; i < SIM_LANES; i++)
#endif

// How a value of a type lies in a register.
typedef u32 lane_u16;
typedef u32 lane_s16;
typedef u32 lane_u32;
typedef s32 lane_s32;
typedef u64 lane_u64;
typedef s64 lane_s64;
typedef f32 lane_f32;
typedef f64 lane_f64;

SIM_INLINE void *sim_at(const struct sim_warp *warp, uint32_t ref) {
    return warp->bank[ref & 1] + (ref & ~1u);
}

SIM_INLINE void *sim_aligned(const struct sim_warp *warp, uint32_t ref) {
    return __builtin_assume_aligned(sim_at(warp, ref), 64);
}

static const uint32_t sim_bit32[SIM_LANES] __attribute__((aligned(64), unused)) = {1u << 0, 1u << 1,
        1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7, 1u << 8, 1u << 9, 1u << 10, 1u << 11,
        1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20,
        1u << 21, 1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29,
        1u << 30, 1u << 31};

#endif
