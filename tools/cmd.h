// cmd: what the subcommands of the `kiln` program share: option tables, shared options, set-up.
//
// A subcommand is one file, cmd_<name>.c, with one struct kiln_cmd. main.c finds it in its table,
// prints its help from its option table, and turns the status it returns into the exit code.
// Results go to stdout, everything else to stderr.
#ifndef KILN_TOOLS_CMD_H
#define KILN_TOOLS_CMD_H

#include "base/status.h"
#include "config/config.h"
#include "plugin/registry.h"

#include <stddef.h>
#include <stdint.h>

enum kiln_opt_kind {
    KILN_OPT_FLAG,   // int *: set to 1
    KILN_OPT_STRING, // const char **
    KILN_OPT_PAIR,   // const char *[2]: two arguments
    KILN_OPT_INT,    // int64_t *, in [min, max]
    KILN_OPT_NUMBER, // double *, in [min, max]
    KILN_OPT_LIST,   // struct kiln_opt_list *: may be given several times
    KILN_OPT_ENTRY,  // const char **, an argument without a dash; filled in table order
    KILN_OPT_REST,   // struct kiln_opt_list *: all further arguments without a dash
};

struct kiln_opt_list {
    const char *items[64];
    size_t count;
};

struct kiln_opt {
    const char *name; // "-n", or an entry's name in help: "FILE"
    const char *alt;  // another spelling, "--tokens", or NULL
    enum kiln_opt_kind kind;
    void *dest;
    const char *value; // what help calls the value: "N"
    const char *help;  // one line
    double min, max;   // of INT and NUMBER; both 0: not negative
};

struct kiln_cmd {
    const char *name;    // "run", or "config show"
    const char *summary; // one line for the overview
    const char *usage;   // behind "kiln NAME ", e.g. "-m MODEL [-p TEXT]"
    const char *example; // a whole command line that works
    // argv[0] is the command's name. Called with the arguments behind it.
    enum kiln_status (*run)(
            const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err);
};

// Reads argv[1..] by the table (ended by a row whose name is NULL). "--name=value" works as "--name
// value" does. An unknown option, a missing or bad value is KILN_STATUS_USAGE with the nearest
// right name. `--help` prints the command's help to stdout and sets *done, after which the command
// returns OK at once.
KILN_MUST_CHECK enum kiln_status kiln_opt_parse(const struct kiln_cmd *cmd,
        const struct kiln_opt *table, int argc, char **argv, int *done, struct kiln_err *err);

// The options that most commands share.
struct kiln_common {
    const char *model;
    int64_t threads, ctx, ubatch; // 0: from the config
    const char *device;           // "auto", "cpu", "cuda", "cuda:1", "sim", "sim:sm_80"
    const char *graph;            // "on", "off"; NULL: from the config
    struct kiln_opt_list configs, sets, plugin_dirs;
    const char *sim_checks;   // of --device sim: "all", "none" or a list; NULL: none
    int64_t sim_instructions; // of a block there, at most; 0: its default
    int verbose;
    int json;
    const char *tuned; // an INI file below the --config files, or NULL: [tune] at_start
};
void kiln_common_init(struct kiln_common *common);

// Rows to put in front of a command's own table.
#define KILN_COMMON_MODEL(c) \
    { "-m", "--model", KILN_OPT_STRING, &(c)->model, "MODEL", "GGUF file", 0, 0 }
#define KILN_COMMON_ENGINE(c) \
    {"-t", "--threads", KILN_OPT_INT, &(c)->threads, "N", "CPU threads (default: all cores)", 1, \
            1024}, \
            {"-c", "--ctx", KILN_OPT_INT, &(c)->ctx, "N", "context length in tokens", 16, \
                    1048576}, \
            {"-ub", "--ubatch", KILN_OPT_INT, &(c)->ubatch, "N", "tokens of a prefill chunk", 1, \
                    65536}, \
    { \
        "--device", NULL, KILN_OPT_STRING, &(c)->device, "D", \
                "cpu, cuda[:N], sim[:sm_XX] or auto", 0, 0 \
    }
// Of a command that compiles the kernels of an engine and runs none.
#define KILN_COMMON_COMPILE(c) \
    {"-t", "--threads", KILN_OPT_INT, &(c)->threads, "N", "compiles at once (default: all cores)", \
            1, 1024}, \
    { \
        "-c", "--ctx", KILN_OPT_INT, &(c)->ctx, "N", "context length in tokens", 16, 1048576 \
    }
#define KILN_COMMON_GRAPH(c) \
    { \
        "--graph", NULL, KILN_OPT_STRING, &(c)->graph, "STATE", \
                "on or off: a GPU's decode step as one recorded graph", 0, 0 \
    }
#define KILN_COMMON_SIM(c) \
    {"--sim-check", NULL, KILN_OPT_STRING, &(c)->sim_checks, "LIST", \
            "on sim, look for faults: all, none (default) or checks: bounds,race", 0, 0}, \
            KILN_COMMON_SIM_LIMIT(c)
#define KILN_COMMON_SIM_LIMIT(c) \
    { \
        "--max-instructions", NULL, KILN_OPT_INT, &(c)->sim_instructions, "N", \
                "on sim, of a block's warps before it is given up (default: 2^28)", 1, 1e15 \
    }
#define KILN_COMMON_CONFIG(c) \
    {"--config", NULL, KILN_OPT_LIST, &(c)->configs, "FILE", "INI file; later ones win", 0, 0}, \
            {"--set", NULL, KILN_OPT_LIST, &(c)->sets, "SECTION.KEY=VALUE", \
                    "one setting; wins over every file", 0, 0}, \
            KILN_COMMON_PLUGINS(c)
#define KILN_COMMON_PLUGINS(c) \
    { \
        "--plugin-dir", NULL, KILN_OPT_LIST, &(c)->plugin_dirs, "DIR", \
                "look for plugins there too", 0, 0 \
    }
#define KILN_COMMON_OUTPUT(c) \
    {"--json", NULL, KILN_OPT_FLAG, &(c)->json, NULL, "one JSON document on stdout", 0, 0}, { \
        "-v", "--verbose", KILN_OPT_FLAG, &(c)->verbose, NULL, "say more on stderr", 0, 0 \
    }
#define KILN_OPT_END \
    { NULL, NULL, KILN_OPT_FLAG, NULL, NULL, NULL, 0, 0 }

// Plugins from the default folders and --plugin-dir. Refused ones are reported as warnings on
// stderr. The caller owns *registry (kiln_registry_destroy).
KILN_MUST_CHECK enum kiln_status kiln_common_registry(
        const struct kiln_common *common, struct kiln_registry **registry, struct kiln_err *err);
// Built-in defaults, configs/default.ini, --config, --set, then -t, -c, -ub as settings; checked
// against the plugins. The caller owns *config.
KILN_MUST_CHECK enum kiln_status kiln_common_config(const struct kiln_common *common,
        const struct kiln_registry *registry, struct kiln_config **config, struct kiln_err *err);

// Writes to stdout and checks: a full disk or a closed pipe is KILN_STATUS_FILE.
KILN_MUST_CHECK enum kiln_status kiln_out(const char *bytes, size_t len, struct kiln_err *err);
// A jansson value as one JSON document on stdout; takes the reference (NULL: out of memory).
struct json_t;
KILN_MUST_CHECK enum kiln_status kiln_out_json(struct json_t *json, struct kiln_err *err);

// Dispatch for commands with subcommands ("config show"): argv[1] picks from the table, ended by a
// NULL name.
KILN_MUST_CHECK enum kiln_status kiln_cmd_dispatch(const struct kiln_cmd *cmd,
        const struct kiln_cmd *table, int argc, char **argv, struct kiln_err *err);

// Every command's description, defined in cmd_<name>.c.
extern const struct kiln_cmd kiln_cmd_run, kiln_cmd_tokenize, kiln_cmd_perplexity, kiln_cmd_bench,
        kiln_cmd_plugins, kiln_cmd_config, kiln_cmd_devices, kiln_cmd_model, kiln_cmd_jit,
        kiln_cmd_audit, kiln_cmd_cache, kiln_cmd_ab, kiln_cmd_gate, kiln_cmd_wall, kiln_cmd_op,
        kiln_cmd_tune, kiln_cmd_record, kiln_cmd_report, kiln_cmd_sim, kiln_cmd_model_synth,
        kiln_cmd_model_widen, kiln_cmd_plugins_new;

#endif
