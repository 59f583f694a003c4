// tune_compile: one thread, one batch.
#include "lab/tune_compile.h"

#include "base/mem.h"

#include <pthread.h>

struct kiln_tune_compiler {
    struct kiln_tune_compiler_params params;
    struct kiln_jit *jit;
    pthread_t thread;
    int running;
    struct kiln_tune_job *jobs;
    size_t n;
    enum kiln_status status;
    struct kiln_err err;
};

// The jit's items of a batch, and whose each is.
struct batch {
    struct kiln_jit_item *items;
    size_t *job_of;
    size_t n;
};

enum kiln_status kiln_tune_compiler_create(struct kiln_tune_compiler **compiler,
        const struct kiln_tune_compiler_params *params, struct kiln_err *err) {
    *compiler = kiln_calloc(1, sizeof(**compiler));
    if (!*compiler) {
        return kiln_err_nomem(err, "a compiler");
    }
    (*compiler)->params = *params;
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

static void add_launches(const struct kiln_tune_compiler *compiler, struct batch *batch, size_t job,
        const struct kiln_planned_launch *launches, uint32_t n) {
    const struct kiln_tune_job *j = &compiler->jobs[job];
    for (uint32_t i = 0; i < n; i++) {
        if (launches[i].kernel->source) {
            batch->job_of[batch->n] = job;
            batch->items[batch->n++].request = (struct kiln_jit_request){.plugin = j->plugin,
                    .variant = j->variant,
                    .kernel = launches[i].kernel,
                    .geometry = j->geometry,
                    .launch = &launches[i].record,
                    .source = j->source,
                    .target = compiler->params.device->target,
                    .device = compiler->params.ptx ? NULL : compiler->params.device,
                    .ptx = compiler->params.ptx};
        }
    }
}

static void note(const struct batch *batch, struct kiln_tune_job *jobs) {
    for (size_t i = 0; i < batch->n; i++) {
        const struct kiln_jit_item *item = &batch->items[i];
        struct kiln_tune_job *job = &jobs[batch->job_of[i]];
        job->ms += item->image.compile_ms;
        if (item->status != KILN_STATUS_OK && job->status == KILN_STATUS_OK) {
            job->status = item->status;
            job->err = item->err;
            job->limits = item->image.data != NULL;
        }
    }
}

static enum kiln_status compile_batch(struct kiln_tune_compiler *compiler, struct kiln_err *err) {
    size_t n = 0;
    for (size_t i = 0; i < compiler->n; i++) {
        n += count_launches(compiler->jobs[i].planned);
    }
    struct batch batch = {.items = kiln_calloc(n + 1, sizeof(*batch.items)),
            .job_of = kiln_calloc(n + 1, sizeof(*batch.job_of))};
    enum kiln_status status = KILN_STATUS_OK;
    if (!batch.items || !batch.job_of) {
        status = kiln_err_nomem(err, "compiling candidates");
    } else {
        for (size_t i = 0; i < compiler->n; i++) {
            const struct kiln_planned *planned = compiler->jobs[i].planned;
            for (uint32_t j = 0; j < planned->n_preparations; j++) {
                add_launches(compiler, &batch, i, planned->preparations[j].launches,
                        planned->preparations[j].record.n_launches);
            }
            add_launches(compiler, &batch, i, planned->launches, planned->n_launches);
        }
        struct kiln_err first = {0}; // of an item, which note() takes from the item
        if (batch.n > 0) {
            status = kiln_jit_need_nvrtc(compiler->jit, err);
        }
        if (batch.n > 0 && status == KILN_STATUS_OK) {
            (void)!kiln_jit_run(compiler->jit, batch.items, batch.n, 0, &first);
        }
        note(&batch, compiler->jobs);
    }
    kiln_jit_items_finish(batch.items, batch.n);
    kiln_free(batch.items);
    kiln_free(batch.job_of);
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
