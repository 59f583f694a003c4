// tune_compile: one thread that watches over processes, each of which compiles one candidate after
// the other. A compiler that crashes or hangs takes its process and one candidate with it.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // strsignal, MAP_ANONYMOUS
#endif
#include "lab/tune_compile.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/mem.h"
#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PROCESSES = 64, // at once, at most
    LOOK_NS = 2000000
};

struct kiln_tune_compiler {
    struct kiln_tune_compiler_params params; // jit: NULL, for the caller's may be gone
    struct kiln_jit *jit;
    uint32_t threads; // compiles at once; 0: all cores
    pthread_t thread;
    int running;
    struct kiln_tune_job *jobs;
    size_t n;
    enum kiln_status status;
    struct kiln_err err;
};

// The jit's items of one job.
struct items {
    struct kiln_jit_item *list;
    size_t n;
};

enum job_state {
    JOB_WAITS,
    JOB_RUNS,
    JOB_DONE
};

// What a process says of a job, in memory that it shares with its parent.
struct outcome {
    atomic_int state; // enum job_state; written last
    pid_t owner;      // of one that runs
    double start;     // on the clock
    enum kiln_status status;
    int limits;
    double ms;
    char text[sizeof(((struct kiln_err *)0)->text)];
};

struct shared {
    atomic_size_t next; // job to be taken
    struct outcome jobs[];
};

// The processes at work on a batch.
struct crew {
    struct kiln_tune_compiler *compiler;
    struct shared *shared;
    pid_t pids[PROCESSES]; // 0: none
    int late[PROCESSES];   // killed for taking too long
    size_t n;
};

enum kiln_status kiln_tune_compiler_create(struct kiln_tune_compiler **compiler,
        const struct kiln_tune_compiler_params *params, struct kiln_err *err) {
    *compiler = kiln_calloc(1, sizeof(**compiler));
    if (!*compiler) {
        return kiln_err_nomem(err, "a compiler");
    }
    (*compiler)->params = *params;
    (*compiler)->params.jit = NULL;
    (*compiler)->threads = params->jit->threads;
    enum kiln_status status = kiln_jit_open(&(*compiler)->jit, params->jit, err);
    if (status != KILN_STATUS_OK) {
        kiln_free(*compiler);
        *compiler = NULL;
    }
    return status;
}

void kiln_tune_compiler_destroy(struct kiln_tune_compiler *compiler) {
    if (compiler) {
        struct kiln_err ignored = {0};
        (void)!kiln_tune_compiler_wait(compiler, &ignored);
        kiln_jit_close(compiler->jit);
        kiln_free(compiler);
    }
}

static size_t count_launches(const struct kiln_planned *planned) {
    size_t n = planned->n_launches;
    for (uint32_t i = 0; i < planned->n_preparations; i++) {
        n += planned->preparations[i].record.n_launches;
    }
    return n;
}

static void add_launches(const struct kiln_tune_compiler *compiler, struct items *items,
        const struct kiln_tune_job *job, const struct kiln_planned_launch *launches, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (launches[i].kernel->source) {
            items->list[items->n++].request = (struct kiln_jit_request){.plugin = job->plugin,
                    .variant = job->variant,
                    .kernel = launches[i].kernel,
                    .geometry = job->geometry,
                    .launch = &launches[i].record,
                    .source = job->source,
                    .target = compiler->params.device->target,
                    .device = compiler->params.ptx ? NULL : compiler->params.device,
                    .ptx = compiler->params.ptx};
        }
    }
}

// ---- In a process of its own --------------------------------------------------------------------

static void note(const struct items *items, struct outcome *outcome) {
    for (size_t i = 0; i < items->n; i++) {
        const struct kiln_jit_item *item = &items->list[i];
        outcome->ms += item->image.compile_ms;
        if (item->status != KILN_STATUS_OK && outcome->status == KILN_STATUS_OK) {
            outcome->status = item->status;
            outcome->limits = item->image.data != NULL;
            (void)snprintf(outcome->text, sizeof(outcome->text), "%s", item->err.text);
        }
    }
}

static void compile_job(struct kiln_tune_compiler *compiler, const struct kiln_tune_job *job,
        struct outcome *outcome) {
    const struct kiln_planned *planned = job->planned;
    struct items items = {.list = kiln_calloc(count_launches(planned) + 1, sizeof(*items.list))};
    if (!items.list) {
        outcome->status = KILN_STATUS_NOMEM;
        (void)snprintf(outcome->text, sizeof(outcome->text), "out of memory for its kernels");
        return;
    }
    for (uint32_t i = 0; i < planned->n_preparations; i++) {
        add_launches(compiler, &items, job, planned->preparations[i].launches,
                planned->preparations[i].record.n_launches);
    }
    add_launches(compiler, &items, job, planned->launches, planned->n_launches);
    struct kiln_err first = {0}; // of an item, which note() takes from the item
    if (items.n > 0) {
        (void)!kiln_jit_run(compiler->jit, items.list, items.n, 0, &first);
    }
    note(&items, outcome);
    kiln_jit_items_finish(items.list, items.n);
    kiln_free(items.list);
}

// Dies with its parent and without a core file.
static _Noreturn void work(struct kiln_tune_compiler *compiler, struct shared *shared) {
    kiln_crash_expendable();
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGINT, SIG_IGN); // Ctrl-C is the parent's to act on
    for (size_t i; (i = atomic_fetch_add(&shared->next, 1)) < compiler->n;) {
        struct outcome *outcome = &shared->jobs[i];
        outcome->owner = getpid();
        outcome->start = kiln_clock_seconds();
        atomic_store(&outcome->state, JOB_RUNS);
        compile_job(compiler, &compiler->jobs[i], outcome);
        atomic_store(&outcome->state, JOB_DONE);
    }
    _exit(0);
}

// ---- Watching -----------------------------------------------------------------------------------

static int has_more(const struct crew *crew) {
    return atomic_load(&crew->shared->next) < crew->compiler->n;
}

static int hire(struct crew *crew, size_t place) {
    pid_t pid = fork();
    if (pid == 0) {
        work(crew->compiler, crew->shared);
    }
    crew->pids[place] = pid > 0 ? pid : 0;
    crew->late[place] = 0;
    return pid > 0;
}

// What a process was at when it ended is its victim or its killer.
static void bury(struct crew *crew, size_t place, int status) {
    for (size_t i = 0; i < crew->compiler->n; i++) {
        struct outcome *outcome = &crew->shared->jobs[i];
        if (atomic_load(&outcome->state) != JOB_RUNS || outcome->owner != crew->pids[place]) {
            continue;
        }
        outcome->status = KILN_STATUS_DEVICE;
        if (crew->late[place]) {
            (void)snprintf(outcome->text, sizeof(outcome->text),
                    "the compiler was not done within %.3g s", crew->compiler->params.seconds);
        } else if (WIFSIGNALED(status)) {
            (void)snprintf(outcome->text, sizeof(outcome->text),
                    "the compiler crashed: signal %d (%s)", WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
        } else {
            (void)snprintf(outcome->text, sizeof(outcome->text),
                    "the compiler ended its process with exit code %d", WEXITSTATUS(status));
        }
        atomic_store(&outcome->state, JOB_DONE);
    }
    crew->pids[place] = 0;
}

static void kill_late(struct crew *crew, size_t place) {
    double limit = crew->compiler->params.seconds, now = kiln_clock_seconds();
    for (size_t i = 0; limit > 0 && i < crew->compiler->n; i++) {
        const struct outcome *outcome = &crew->shared->jobs[i];
        if (atomic_load(&outcome->state) == JOB_RUNS && outcome->owner == crew->pids[place] &&
                now - outcome->start > limit) {
            crew->late[place] = 1;
            (void)kill(crew->pids[place], SIGKILL);
        }
    }
}

// Until all have ended. 0: no process can be had and jobs are left.
static int watch(struct crew *crew) {
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    for (size_t left = 1; left > 0;) {
        left = 0;
        for (size_t i = 0; i < crew->n; i++) {
            int status = 0;
            pid_t pid = crew->pids[i];
            if (pid > 0 && waitpid(pid, &status, WNOHANG) == pid) {
                bury(crew, i, status);
                (void)(has_more(crew) && hire(crew, i));
            } else if (pid > 0 && !crew->late[i]) {
                kill_late(crew, i);
            }
            left += crew->pids[i] > 0;
        }
        if (left > 0) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return !has_more(crew);
}

static void take_outcomes(const struct kiln_tune_compiler *compiler, struct shared *shared) {
    for (size_t i = 0; i < compiler->n; i++) {
        struct kiln_tune_job *job = &compiler->jobs[i];
        const struct outcome *outcome = &shared->jobs[i];
        job->status = outcome->status;
        job->limits = outcome->limits;
        job->ms = outcome->ms;
        if (job->status != KILN_STATUS_OK) {
            (void)kiln_err_set(&job->err, outcome->status, "%s", outcome->text);
        }
    }
}

static enum kiln_status compile_batch(struct kiln_tune_compiler *compiler, struct kiln_err *err) {
    size_t kernels = 0, size = sizeof(struct shared) + compiler->n * sizeof(struct outcome);
    uint32_t most = compiler->threads;
    for (size_t i = 0; i < compiler->n; i++) {
        kernels += count_launches(compiler->jobs[i].planned);
    }
    if (kernels == 0) {
        return KILN_STATUS_OK;
    }
    KILN_TRY(kiln_jit_need_nvrtc(compiler->jit, err));
    struct shared *shared =
            mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return kiln_err_nomem(err, "compiling candidates");
    }
    struct crew crew = {.compiler = compiler, .shared = shared};
    crew.n = most > 0 ? most : (size_t)kiln_cpu_count();
    crew.n = crew.n > compiler->n ? compiler->n : crew.n;
    crew.n = crew.n > PROCESSES ? PROCESSES : crew.n;
    (void)fflush(NULL);
    for (size_t i = 0; i < crew.n; i++) {
        (void)hire(&crew, i);
    }
    enum kiln_status status = KILN_STATUS_OK;
    if (watch(&crew)) {
        take_outcomes(compiler, shared);
    } else {
        status = kiln_err_set(
                err, KILN_STATUS_FILE, "no process to compile candidates in: %s", strerror(errno));
    }
    (void)munmap(shared, size);
    return status;
}

static void *compile_thread(void *arg) {
    struct kiln_tune_compiler *compiler = arg;
    compiler->status = compile_batch(compiler, &compiler->err);
    return NULL;
}

enum kiln_status kiln_tune_compiler_start(struct kiln_tune_compiler *compiler,
        struct kiln_tune_job *jobs, size_t n, struct kiln_err *err) {
    KILN_TRY(kiln_tune_compiler_wait(compiler, err));
    compiler->jobs = jobs;
    compiler->n = n;
    compiler->status = KILN_STATUS_OK;
    if (n == 0) {
        return KILN_STATUS_OK;
    }
    if (pthread_create(&compiler->thread, NULL, compile_thread, compiler) != 0) {
        return kiln_err_nomem(err, "a thread that compiles");
    }
    compiler->running = 1;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_tune_compiler_wait(
        struct kiln_tune_compiler *compiler, struct kiln_err *err) {
    if (!compiler->running) {
        return KILN_STATUS_OK;
    }
    (void)pthread_join(compiler->thread, NULL);
    compiler->running = 0;
    if (compiler->status != KILN_STATUS_OK) {
        *err = compiler->err;
    }
    return compiler->status;
}
