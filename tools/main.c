// main: finds the subcommand, prints the overview and errors, decides the exit code.
#include "cmd.h"

#include "base/crash.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kiln_cmd *const commands[] = {
        &kiln_cmd_run,
        &kiln_cmd_tokenize,
        &kiln_cmd_perplexity,
        &kiln_cmd_bench,
        &kiln_cmd_ab,
        &kiln_cmd_gate,
        &kiln_cmd_op,
        &kiln_cmd_wall,
        &kiln_cmd_tune,
        &kiln_cmd_record,
        &kiln_cmd_report,
        &kiln_cmd_model,
        &kiln_cmd_plugins,
        &kiln_cmd_config,
        &kiln_cmd_devices,
        &kiln_cmd_jit,
        &kiln_cmd_audit,
        &kiln_cmd_sim,
        &kiln_cmd_cache,
};
enum {
    N_COMMANDS = sizeof(commands) / sizeof(commands[0])
};

static void print_overview(FILE *out) {
    fprintf(out, "kiln runs GGUF language models through kernels that come as plugins.\n\n"
                 "usage: kiln COMMAND [OPTION …]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(out, "\n`kiln COMMAND --help` says more and gives an example. Exit codes: 0 done, 1 a "
                 "check\n"
                 "was not met, 2 bad usage or config, 3 bad file, 4 device or compile failure,\n"
                 "130 interrupted.\n\nenvironment:\n"
                 "  KILN_PLUGIN_PATH  folders with plugins, separated by ':'\n"
                 "  KILN_CACHE_DIR    where compiled kernels are kept\n"
                 "  KILN_LEDGER       the ledger of `kiln record`\n"
                 "  KILN_CUDA         the CUDA driver library, instead of libcuda.so.1\n"
                 "  KILN_NVRTC        CUDA's runtime compiler: the library or its folder\n"
                 "  KILN_NO_COMPILE   1: a kernel that is not in the cache is an error\n"
                 "  KILN_MODEL_DIR    where tools/fetch-model keeps models\n"
                 "  KILN_LOG          error, warn (default), info or debug\n"
                 "  NVTX_INJECTION64_PATH  a profiler's library, which is then shown ranges\n");
}

static void set_log_level(void) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    const char *wanted = getenv("KILN_LOG");
    if (!wanted || !*wanted) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (strcmp(wanted, names[i]) == 0) {
            kiln_log_set_level((enum kiln_log_level)i);
            return;
        }
    }
    const char *near = kiln_nearest(wanted, names, 4);
    kiln_log(KILN_LOG_WARN,
            "KILN_LOG is '%.40s'; allowed are error, warn, info and debug%s%s%s; it stays at warn",
            wanted, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static const struct kiln_cmd *find_command(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static enum kiln_status unknown_command(const char *name, struct kiln_err *err) {
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i]->name;
    }
    const char *near = kiln_nearest(name, names, N_COMMANDS);
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "unknown command '%s'%s%s%s; `kiln --help` lists the commands", name,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

// A file that is opened must not come to lie where input or output were closed, for what is printed
// would be written into it. Reading and writing there still fail.
static void fill_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            (void)!open(
                    "/dev/null", fd == 0 ? O_WRONLY : O_RDONLY); // the lowest number that is free
        }
    }
}

int main(int argc, char **argv) {
    fill_standard_files();
    set_log_level();
    signal(SIGPIPE, SIG_IGN); // a closed pipe is an error of the write, reported like any other
    kiln_map_guard();
    kiln_crash_guard();
    signal(SIGXFSZ, SIG_IGN); // so is a file that grows past `ulimit -f`
    if (argc < 2) {
        print_overview(stderr);
        return kiln_status_exit_code(KILN_STATUS_USAGE);
    }
    struct kiln_err err = {0};
    enum kiln_status status = KILN_STATUS_OK;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
            strcmp(argv[1], "help") == 0) {
        print_overview(stdout);
    } else if (strcmp(argv[1], "--version") == 0) {
        printf("kiln %s (plugin ABI %d.%d)\n", KILN_VERSION, KILN_ABI_MAJOR, KILN_ABI_MINOR);
    } else {
        const struct kiln_cmd *cmd = find_command(argv[1]);
        status = cmd ? cmd->run(cmd, argc - 1, argv + 1, &err) : unknown_command(argv[1], &err);
    }
    errno = 0;
    if (status == KILN_STATUS_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        status = kiln_err_set(&err, KILN_STATUS_FILE, "standard output could not be written: %s",
                errno ? strerror(errno) : "an earlier write failed");
    }
    if (status != KILN_STATUS_OK) {
        fflush(stdout);
        kiln_say("%s", err.text[0] ? err.text : kiln_status_text(status));
    }
    return kiln_status_exit_code(status);
}
