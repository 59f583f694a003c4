// report: findings and counters on their way from workers into a report. For the files of this
// folder.
#ifndef KILN_DEVICE_SIM_REPORT_H
#define KILN_DEVICE_SIM_REPORT_H

#include "device/sim/run.h"

// Adds what a launch's workers found and counted.
KILN_MUST_CHECK enum kiln_status kiln_sim_report_add(
        struct kiln_sim_report *report, const struct sim_run *run, struct kiln_err *err);

// The source file of a place, "" where there is none.
const char *kiln_sim_file(const struct kiln_sim_kernel *kernel, const struct kiln_ptx_where *where);
// "ldmatrix.x4.trans.shared"
void kiln_sim_opcode(const struct kiln_ptx_insn *insn, char *text, size_t size);
enum kiln_sim_class kiln_sim_class_of(const struct kiln_ptx_insn *insn);

#endif
