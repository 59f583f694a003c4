// tune_child: fork, exec, poll, and the explanation of an end.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // strsignal, pipe2
#endif
#include "lab/tune_child.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOOK_MS = 20 // between looks at the worker's memory
};

struct kiln_tune_child {
    struct kiln_tune_child_params params;
    pid_t pid; // 0: none runs
    int to, from;
    struct kiln_buf input;
    size_t used;
    char now[128]; // what it said that it does
    int opening;   // it runs and has not said yet that it could open the device
    int64_t starts;
};

enum kiln_status kiln_tune_child_create(struct kiln_tune_child **child,
        const struct kiln_tune_child_params *params, struct kiln_err *err) {
    *child = kiln_calloc(1, sizeof(**child));
    if (!*child) {
        return kiln_err_nomem(err, "a worker");
    }
    (*child)->params = *params;
    return KILN_STATUS_OK;
}

int64_t kiln_tune_child_starts(const struct kiln_tune_child *child) {
    return child->starts;
}

// Waits for its end, which is near: it was killed or has closed its side.
static int reap(struct kiln_tune_child *child) {
    int status = 0;
    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
    }
    (void)close(child->to);
    (void)close(child->from);
    kiln_buf_clear(&child->input);
    child->used = 0;
    child->pid = 0;
    return status;
}

static void end_child(struct kiln_tune_child *child) {
    if (child->pid > 0) {
        (void)kill(child->pid, SIGKILL);
        (void)reap(child);
    }
}

void kiln_tune_child_destroy(struct kiln_tune_child *child) {
    if (child) {
        end_child(child);
        kiln_buf_finish(&child->input);
        kiln_free(child);
    }
}

// ---- Starting -----------------------------------------------------------------------------------

// Between fork and exec: nothing here may allocate or lock. Its output goes with the messages, its
// answers to descriptor 3; it dies with its parent, hung or not, and without a core file.
static _Noreturn void become(const struct kiln_tune_child_params *params, int in, int out) {
    kiln_crash_expendable();
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGINT, SIG_IGN); // Ctrl-C is the parent's to act on
    // The system's choice when memory ends should be this one.
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "1000", 4);
        (void)close(fd);
    }
    int high = fcntl(out, F_DUPFD, 10); // out of the way of 0, 1 and 3
    if (dup2(in, 0) < 0 || dup2(2, 1) < 0 || high < 0 || dup2(high, 3) < 0) {
        _exit(126);
    }
    (void)close(high);
    // exec takes strings that it does not change.
    union {
        const char *const *given;
        char *const *taken;
    } argv = {.given = params->argv};
    (void)execv(argv.taken[0], argv.taken);
    _exit(127);
}

static enum kiln_status start(struct kiln_tune_child *child, struct kiln_err *err) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "no pipe to a worker process: %s", strerror(errno));
    }
    if (pipe2(out, O_CLOEXEC) != 0) {
        (void)close(in[0]);
        (void)close(in[1]);
        return kiln_err_set(
                err, KILN_STATUS_FILE, "no pipe to a worker process: %s", strerror(errno));
    }
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        become(&child->params, in[0], out[1]);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    if (pid < 0) {
        (void)close(in[1]);
        (void)close(out[0]);
        return kiln_err_set(err, KILN_STATUS_FILE, "no worker process: %s", strerror(errno));
    }
    child->pid = pid;
    child->to = in[1];
    child->from = out[0];
    child->starts++;
    child->opening = 1;
    (void)snprintf(child->now, sizeof(child->now), "opening the device");
    return KILN_STATUS_OK;
}

// ---- Waiting ------------------------------------------------------------------------------------

static uint64_t resident_bytes(pid_t pid) {
    char path[64], text[128];
    (void)snprintf(path, sizeof(path), "/proc/%ld/statm", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    const char *second = strchr(text, ' ');
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

// The next line that has come in; NULL: none is whole yet.
static json_t *take_line(struct kiln_tune_child *child) {
    struct kiln_buf *in = &child->input;
    char *start = in->data ? in->data + child->used : NULL;
    char *end = start ? memchr(start, '\n', in->len - child->used) : NULL;
    json_error_t problem;
    if (!end) {
        if (child->used == in->len) {
            kiln_buf_clear(in);
            child->used = 0;
        }
        return NULL;
    }
    json_t *line = json_loadb(start, (size_t)(end - start), 0, &problem);
    child->used = (size_t)(end - in->data) + 1;
    return line;
}

// An answer, not a {"now"}; NULL: none yet.
static json_t *take_answer(struct kiln_tune_child *child) {
    json_t *line;
    while ((line = take_line(child)) != NULL) {
        const char *now = json_string_value(json_object_get(line, "now"));
        if (!now) {
            return line;
        }
        (void)snprintf(child->now, sizeof(child->now), "%.120s", now);
        json_decref(line);
    }
    return NULL;
}

// Reads what is there. 0: it has closed its side.
static int receive(struct kiln_tune_child *child) {
    char bytes[4096];
    ssize_t n = read(child->from, bytes, sizeof(bytes));
    if (n > 0) {
        kiln_buf_append(&child->input, bytes, (size_t)n);
    }
    return n > 0 || (n < 0 && errno == EINTR);
}

static void explain(
        struct kiln_tune_child *child, int status, enum kiln_tune_end *end, char cause[512]) {
    *end = KILN_TUNE_END_DIED;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        *end = KILN_TUNE_END_MEMORY; // not by this process: the system's answer to want of memory
        (void)snprintf(cause, 512, "killed by the system while %s: out of memory", child->now);
    } else if (WIFSIGNALED(status)) {
        (void)snprintf(cause, 512, "signal %d (%s) while %s", WTERMSIG(status),
                strsignal(WTERMSIG(status)), child->now);
    } else {
        (void)snprintf(cause, 512, "the process ended with exit code %d while %s",
                WEXITSTATUS(status), child->now);
    }
}

static int is_stopped(const struct kiln_tune_child *child) {
    return child->params.stop && child->params.stop();
}

// Waits for an answer. *reply NULL with OK: it is gone, see *end.
static enum kiln_status await(struct kiln_tune_child *child, double seconds, json_t **reply,
        enum kiln_tune_end *end, char cause[512], struct kiln_err *err) {
    double until = kiln_clock_seconds() + seconds;
    uint64_t limit = child->params.memory_limit;
    while ((*reply = take_answer(child)) == NULL) {
        struct pollfd poll_fd = {.fd = child->from, .events = POLLIN};
        int ready = poll(&poll_fd, 1, LOOK_MS);
        if (is_stopped(child)) {
            end_child(child);
            return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted");
        }
        if (ready > 0 && !receive(child)) {
            explain(child, reap(child), end, cause);
            return KILN_STATUS_OK;
        }
        if (child->input.failed) {
            return kiln_err_nomem(err, "a worker's answer");
        }
        uint64_t bytes = limit > 0 ? resident_bytes(child->pid) : 0;
        if (bytes > limit && limit > 0) {
            *end = KILN_TUNE_END_MEMORY;
            (void)snprintf(cause, 512, "%llu MiB resident, %llu allowed, while %s",
                    (unsigned long long)(bytes >> 20), (unsigned long long)(limit >> 20),
                    child->now);
            end_child(child);
            return KILN_STATUS_OK;
        }
        if (ready == 0 && kiln_clock_seconds() > until) {
            *end = KILN_TUNE_END_TIMEOUT;
            (void)snprintf(cause, 512, "no answer within %.3g s while %s", seconds, child->now);
            end_child(child);
            return KILN_STATUS_OK;
        }
    }
    *end = KILN_TUNE_END_REPLY;
    return KILN_STATUS_OK;
}

// An answer that is an error becomes one.
static enum kiln_status refuse_error(json_t **reply, struct kiln_err *err) {
    const char *text = json_string_value(json_object_get(*reply, "error"));
    if (!text) {
        return KILN_STATUS_OK;
    }
    json_int_t code = json_integer_value(json_object_get(*reply, "status"));
    enum kiln_status status = code > KILN_STATUS_OK && code <= KILN_STATUS_INTERRUPTED
                                      ? (enum kiln_status)code
                                      : KILN_STATUS_DEVICE;
    (void)kiln_err_set(err, status, "%s", text);
    json_decref(*reply);
    *reply = NULL;
    return status;
}

enum kiln_status kiln_tune_child_begin(struct kiln_tune_child *child, struct kiln_err *err) {
    return child->pid == 0 ? start(child, err) : KILN_STATUS_OK;
}

enum kiln_status kiln_tune_child_ready(
        struct kiln_tune_child *child, int *fresh, struct kiln_err *err) {
    enum kiln_tune_end end;
    char cause[512] = "";
    json_t *reply = NULL;
    KILN_TRY(kiln_tune_child_begin(child, err));
    *fresh = child->opening;
    if (!*fresh) {
        return KILN_STATUS_OK;
    }
    child->opening = 0;
    KILN_TRY(await(child, child->params.start_seconds, &reply, &end, cause, err));
    if (!reply) {
        return kiln_err_set(
                err, KILN_STATUS_DEVICE, "the process that measures did not start: %s", cause);
    }
    enum kiln_status status = refuse_error(&reply, err);
    json_decref(reply);
    if (status != KILN_STATUS_OK) {
        end_child(child);
    }
    return status;
}

static int append(const char *bytes, size_t len, void *text) {
    kiln_buf_append(text, bytes, len);
    return 0;
}

static enum kiln_status send_request(
        struct kiln_tune_child *child, const json_t *request, struct kiln_err *err) {
    struct kiln_buf text = {0};
    if (json_dump_callback(request, append, &text, JSON_COMPACT) != 0 || text.failed) {
        kiln_buf_finish(&text);
        return kiln_err_nomem(err, "a request to a worker");
    }
    kiln_buf_puts(&text, "\n");
    // What cannot be written (it died meanwhile) shows when the answer is waited for.
    for (size_t at = 0; !text.failed && at < text.len;) {
        ssize_t n = write(child->to, text.data + at, text.len - at);
        if (n <= 0 && errno != EINTR) {
            break;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    kiln_buf_finish(&text);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_tune_child_ask(struct kiln_tune_child *child, const struct json_t *request,
        double seconds, struct json_t **reply, enum kiln_tune_end *end, char cause[512],
        struct kiln_err *err) {
    *reply = NULL;
    cause[0] = '\0';
    KILN_TRY(send_request(child, request, err));
    KILN_TRY(await(child, seconds, reply, end, cause, err));
    if (!*reply) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(refuse_error(reply, err));
    if (json_is_true(json_object_get(*reply, "last"))) {
        end_child(child);
    }
    return KILN_STATUS_OK;
}
