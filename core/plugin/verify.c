// verify: the parent: starts the child, gathers its lines, keeps the time, explains its end.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // strsignal
#endif
#include "plugin/verify_impl.h"

#include "base/crash.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct watch {
    const struct kiln_verify_params *params;
    unsigned limit_ms; // from `start`
    struct timespec start;
    struct kiln_buf line;    // being received
    struct kiln_buf now;     // what the child tries
    struct kiln_buf refusal; // not empty: it was refused
    struct kiln_buf *report;
    unsigned n_checks, n_failed;
    int nomem;
    int64_t done, total; // the last step
};

static int left_ms(const struct watch *watch) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long spent = (long long)(now.tv_sec - watch->start.tv_sec) * 1000 +
                      (now.tv_nsec - watch->start.tv_nsec) / 1000000;
    return spent >= (long long)watch->limit_ms ? 0 : (int)((long long)watch->limit_ms - spent);
}

static void count(struct watch *watch, const char *verdict, const char *text) {
    watch->n_checks++;
    kiln_buf_printf(watch->report, "%-8s  %s\n", verdict, text);
}

// The clock starts again, with the limit of a step.
static void on_step(struct watch *watch, const char *text) {
    char *end;
    watch->done = strtoll(text, &end, 10);
    watch->total = strtoll(end, NULL, 10);
    watch->limit_ms = watch->params->step_ms;
    clock_gettime(CLOCK_MONOTONIC, &watch->start);
    if (watch->params->progress) {
        watch->params->progress(watch->params->progress_arg, watch->done, watch->total);
    }
}

// However the child ended, its last step is behind it.
static void end_steps(const struct watch *watch) {
    if (watch->params->progress && watch->done < watch->total) {
        watch->params->progress(watch->params->progress_arg, watch->total, watch->total);
    }
}

static void on_line(struct watch *watch) {
    const char *text = watch->line.data + 1;
    switch (watch->line.data[0]) {
    case KILN_VERIFY_OK:
        count(watch, "ok", text);
        break;
    case KILN_VERIFY_DECLINED:
        count(watch, "declined", text);
        break;
    case KILN_VERIFY_BEYOND:
        count(watch, "refused", text);
        break;
    case KILN_VERIFY_SKIPPED:
        count(watch, "skipped", text);
        break;
    case KILN_VERIFY_STEP:
        on_step(watch, text);
        break;
    case KILN_VERIFY_FAILED:
        watch->n_failed++;
        count(watch, "failed", text);
        break;
    case KILN_VERIFY_NOW:
        kiln_buf_clear(&watch->now);
        kiln_buf_puts(&watch->now, text);
        break;
    case KILN_VERIFY_REFUSED:
        kiln_buf_clear(&watch->refusal);
        kiln_buf_puts(&watch->refusal, text);
        count(watch, "failed", text);
        break;
    default:
        watch->nomem = 1;
        break;
    }
}

static void on_bytes(struct watch *watch, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            kiln_buf_append(&watch->line, &bytes[i], 1);
        } else if (watch->line.len > 0) {
            on_line(watch);
            kiln_buf_clear(&watch->line);
        }
    }
}

// Reads until the child closes its end. 0: it did; -1: the time is over.
static int gather(struct watch *watch, int fd) {
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        int ready = poll(&poll_fd, 1, left_ms(watch));
        if (ready == 0) {
            return -1;
        }
        char bytes[4096];
        ssize_t n = ready < 0 ? -1 : read(fd, bytes, sizeof(bytes));
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return 0;
        }
        if (n > 0) {
            on_bytes(watch, bytes, (size_t)n);
        }
    }
}

// Waits for the child's end, or makes one when the time is over. 1: the time was over.
static int reap(const struct watch *watch, pid_t child, int late, int *status) {
    const struct timespec pause = {.tv_nsec = 2000000};
    while (!late) {
        pid_t got = waitpid(child, status, WNOHANG);
        if (got == child || (got < 0 && errno != EINTR)) {
            return 0;
        }
        late = left_ms(watch) == 0;
        nanosleep(&pause, NULL);
    }
    (void)kill(-child, SIGKILL); // its group: what the plugin may have started goes too
    (void)kill(child, SIGKILL);
    while (waitpid(child, status, 0) < 0 && errno == EINTR) {
    }
    return 1;
}

static void judge_end(struct watch *watch, int late, int status) {
    char text[256];
    const char *now = watch->now.data ? watch->now.data : "loading";
    if (late) {
        (void)snprintf(
                text, sizeof(text), "%.160s: did not return within %u ms", now, watch->limit_ms);
    } else if (WIFSIGNALED(status)) {
        (void)snprintf(text, sizeof(text), "%.160s: crashed with signal %d (%s)", now,
                WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) != 0) {
        (void)snprintf(text, sizeof(text), "%.160s: ended the process with exit code %d", now,
                WEXITSTATUS(status));
    } else {
        return;
    }
    watch->n_failed++;
    count(watch, "failed", text);
}

static enum kiln_status conclude(const struct watch *watch, struct kiln_err *err) {
    if (watch->nomem || watch->report->failed || watch->line.failed || watch->now.failed ||
            watch->refusal.failed) {
        return kiln_err_nomem(err, "the report on a plugin");
    }
    if (watch->refusal.len > 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s", watch->refusal.data);
    }
    return watch->n_failed == 0 ? KILN_STATUS_OK
                                : kiln_err_set(err, KILN_STATUS_CHECK, "%s: %u of %u checks failed",
                                          watch->params->path, watch->n_failed, watch->n_checks);
}

// The child's first steps: its own group, no core file, crashes that kill, no output among kiln's
// results.
static _Noreturn void be_child(const struct kiln_verify_params *params, int fd) {
    (void)setpgid(0, 0); // Ctrl-C ends kiln alone, and this with it: the group is another
    kiln_crash_expendable();
    (void)signal(SIGINT, SIG_DFL);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    kiln_verify_child(params, fd);
    _exit(0);
}

enum kiln_status kiln_plugin_verify(
        const struct kiln_verify_params *params, struct kiln_buf *report, struct kiln_err *err) {
    int ends[2];
    if (pipe(ends) != 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: no pipe to verify through: %s",
                params->path, strerror(errno));
    }
    struct watch watch = {.params = params, .limit_ms = params->limit_ms, .report = report};
    clock_gettime(CLOCK_MONOTONIC, &watch.start);
    (void)fflush(NULL); // or the child would write what is still buffered once more
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        be_child(params, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: no process to verify in: %s", params->path,
                strerror(errno));
    }
    int status = 0;
    int late = gather(&watch, ends[0]) != 0;
    late = reap(&watch, child, late, &status);
    close(ends[0]);
    end_steps(&watch);
    judge_end(&watch, late, status);
    enum kiln_status result = conclude(&watch, err);
    kiln_buf_finish(&watch.line);
    kiln_buf_finish(&watch.now);
    kiln_buf_finish(&watch.refusal);
    return result;
}
