// sim: the interpreter as a device: plugins' CUDA kernels, compiled to PTX, run and checked on the
// host (exec.h). Opened by kiln_dev_open as "sim" or "sim:sm_XX".
#ifndef KILN_DEVICE_SIM_SIM_H
#define KILN_DEVICE_SIM_SIM_H

#include "base/status.h"
#include "device/device.h"
#include "device/sim/exec.h"
#include "device/sim/ptx.h"

// target: "sm_80". KILN_STATUS_USAGE: there is no description of it in configs/devices.
KILN_MUST_CHECK enum kiln_status kiln_sim_open(struct kiln_dev **dev, const char *target,
        const struct kiln_dev_settings *settings, struct kiln_err *err);

// What all launches of the device found and counted so far; NULL when it is another kind of device.
struct kiln_sim_report *kiln_sim_dev_report(struct kiln_dev *dev);

// Names of source files as their author knows them: kiln hands sources to the compiler under
// "/fap2.cu", so a file that is not there loses its slash.
void kiln_sim_file_names(struct kiln_ptx_module *module);

#endif
