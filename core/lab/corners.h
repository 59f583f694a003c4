// corners: every corner of a plugin's CUDA schemas run on the simulator, its checks on, and judged
// by the oracle: the part of `kiln plugins verify` behind the plans.
//
// Stands on parity.h, which knows oracle and bounds. Not here: plans for sample problems, the child
// process (plugin/verify.h).
#ifndef KILN_LAB_CORNERS_H
#define KILN_LAB_CORNERS_H

#include <stdint.h>

struct kiln_corners_params {
    const char *path; // of the plugin's library
    // "sim:sm_XX", or NULL: sim's default target, then sm_90a for slots whose variant declines
    // every corner there.
    const char *device;
    uint32_t threads; // corners at once, 0: all cores
    int all_types;    // every corner with every weight type, not with one of them in turn
};

// For `more` of struct kiln_verify_params, `arg` a struct kiln_corners_params: runs in the child
// and says on fd what came out, a line a corner: ok, declined, refused (its plan exceeds what sim's
// device has) or failed. Without NVRTC one line says that nothing was run. A plugin without kernels
// for CUDA devices: nothing.
void kiln_corners_try(void *arg, int fd);

#endif
