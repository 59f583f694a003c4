// directed: float arithmetic that rounds toward zero, down or up. Built with -frounding-math: the
// host's own rounding mode does it, one lane at a time.
#include "device/sim/run_impl.h"

#include "device/sim/lanes_impl.h"

#include <fenv.h>

static float single(int what, float a, float b, float c) {
    volatile float x = a, y = b, z = c, r;
    switch (what) {
    case KILN_PTX_OP_ADD:
        r = x + y;
        break;
    case KILN_PTX_OP_SUB:
        r = x - y;
        break;
    case KILN_PTX_OP_MUL:
        r = x * y;
        break;
    case KILN_PTX_OP_DIV:
        r = x / y;
        break;
    case KILN_PTX_OP_RCP:
        r = 1.0f / x;
        break;
    case KILN_PTX_OP_SQRT:
        r = sqrtf(x);
        break;
    default:
        r = fmaf(x, y, z);
        break;
    }
    return r;
}

static double twice(int what, double a, double b, double c) {
    volatile double x = a, y = b, z = c, r;
    switch (what) {
    case KILN_PTX_OP_ADD:
        r = x + y;
        break;
    case KILN_PTX_OP_SUB:
        r = x - y;
        break;
    case KILN_PTX_OP_MUL:
        r = x * y;
        break;
    case KILN_PTX_OP_DIV:
        r = x / y;
        break;
    case KILN_PTX_OP_RCP:
        r = 1.0 / x;
        break;
    case KILN_PTX_OP_SQRT:
        r = sqrt(x);
        break;
    default:
        r = fma(x, y, z);
        break;
    }
    return r;
}

const struct sim_op *kiln_sim_run_directed(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    int what = insn->op;
    int ftz = (op->mode & SIM_MODE_FTZ) != 0, sat = (op->mode & SIM_MODE_SAT) != 0;
    const void *a = sim_at(warp, op->a), *b = sim_at(warp, op->b), *c = sim_at(warp, op->c);
    void *d = sim_at(warp, op->d);
    float f[SIM_LANES] = {0};
    double g[SIM_LANES] = {0};
    fesetround(insn->round == KILN_PTX_RZ   ? FE_TOWARDZERO
               : insn->round == KILN_PTX_RM ? FE_DOWNWARD
                                            : FE_UPWARD);
    for (int i = 0; i < SIM_LANES; i++) {
        if (!(warp->mask >> i & 1)) {
            continue;
        }
        if (insn->type == KILN_PTX_F32) {
            float x = ((const f32 *)a)[i], y = ((const f32 *)b)[i], z = ((const f32 *)c)[i];
            f[i] = ftz ? single(what, f32_flush(x), f32_flush(y), f32_flush(z))
                       : single(what, x, y, z);
        } else {
            g[i] = twice(what, ((const f64 *)a)[i], ((const f64 *)b)[i], ((const f64 *)c)[i]);
        }
    }
    fesetround(FE_TONEAREST);
    for (int i = 0; i < SIM_LANES; i++) {
        if (warp->mask >> i & 1 && insn->type == KILN_PTX_F32) {
            ((f32 *)d)[i] = f32_result(f[i], ftz, sat);
        } else if (warp->mask >> i & 1) {
            ((f64 *)d)[i] = sat ? f64_saturate(g[i]) : f64_canonical(g[i]);
        }
    }
    return op + 1;
}
