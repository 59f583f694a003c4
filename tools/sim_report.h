// sim_report: what a run on sim found and counted, as text and as JSON.
#ifndef KILN_TOOLS_SIM_REPORT_H
#define KILN_TOOLS_SIM_REPORT_H

#include "base/buf.h"
#include "device/sim/exec.h"

#include <jansson.h>

// Findings, then counters by kernel; with `lines` those of every source line as well. Appends.
void kiln_sim_report_text(struct kiln_sim_report *report, int lines, struct kiln_buf *out);
// {"findings": [...], "kernels": [...]}; NULL when out of memory.
json_t *kiln_sim_report_json(struct kiln_sim_report *report);

#endif
