// cmd_gate: checks with a verdict: are the numbers and the tokens still right?
#include "cmd.h"

#include "gate.h"

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    const struct kiln_cmd table[] = {
            kiln_cmd_gate_parity, kiln_cmd_gate_greedy, kiln_cmd_gate_tolerance, {.name = NULL}};
    return kiln_cmd_dispatch(cmd, table, argc, argv, err);
}

const struct kiln_cmd kiln_cmd_gate = {
        .name = "gate",
        .summary = "checks with a verdict: are numbers and tokens still right?",
        .usage = "parity|greedy|tolerance …",
        .example = "kiln gate greedy base.ini change.ini -m model.gguf --prompts prompts.txt",
        .run = run,
};
