// reload: notices edits, builds on a thread, switches between evaluations.
//
// One job at a time: a config that was read and differs, and the follower (switch.h) that is built
// for it. What is edited meanwhile is seen by the next look.
#include "engine/reload.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/switch.h"
#include "engine/watch.h"
#include "jit/source_files.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    NAP_NS = 1000000
};
static const double look_every = 0.005; // seconds
// A file that cannot be read may be half written: it is read again before anything is said. After
// that, now and then: what it misses may come to be without it being touched.
static const double try_again = 0.2, try_again_later = 1.0;

struct job {
    struct kiln_config *config; // to be in force; NULL: no job
    struct kiln_follower *follower;
    pthread_t thread;
    int running;          // the thread is to be joined
    pthread_mutex_t lock; // of `done`
    int done;
    enum kiln_status status;
    struct kiln_err err;
    double edited; // time of day, 0: unknown
    double begun, ended;
};

struct kiln_reload {
    struct kiln_reload_params params;
    char **sets; // params.layers.sets, then those made by hand
    size_t n_sets, cap_sets;
    struct kiln_watch watch;
    struct job job;
    double looked;
    double retry_at;                                 // 0: what was read last is good
    int retried;                                     // the second time: say it
    int first;                                       // nothing was read yet since the start
    char said[sizeof(((struct kiln_err *)0)->text)]; // of the last refusal, said once
    const char *fixed; // a file that can be read once only (a pipe): nothing is read again
    uint64_t count;
};

// ---- Saying -------------------------------------------------------------------------------------

static void say(const struct kiln_reload *reload, int note, const char *line) {
    if (reload->params.say) {
        reload->params.say(reload->params.arg, note, line);
    }
}

static void say_refused(struct kiln_reload *reload, const struct kiln_err *err) {
    char line[sizeof(err->text) + 80];
    if (strcmp(reload->said, err->text) == 0) {
        return;
    }
    memcpy(reload->said, err->text, sizeof(reload->said));
    (void)snprintf(
            line, sizeof(line), "not switched, the configuration in force stays: %s", err->text);
    say(reload, 0, line);
}

static double seconds_of_day(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void say_switched(struct kiln_reload *reload, char *changes,
        struct kiln_follower_counts counts, double swap_ms) {
    const struct job *job = &reload->job;
    struct kiln_buf line = {0};
    double since_edit = job->edited > 0 ? seconds_of_day() - job->edited : 0;
    for (char *at = changes, *end; at && *at; at = end) {
        end = at + strcspn(at, "\n");
        if (*end) {
            *end++ = '\0';
        }
        say(reload, 0, at);
    }
    kiln_buf_printf(&line, "switched in %.1f ms", (job->ended - job->begun) * 1e3);
    if (since_edit > 0 && since_edit < 3600) {
        kiln_buf_printf(&line, ", %.1f ms after the edit", since_edit * 1e3);
    }
    kiln_buf_printf(&line, " (swap %.2f ms", swap_ms);
    if (counts.compiled + counts.cached + counts.shared >
            0) { // functions of the CPU are just there
        kiln_buf_printf(&line,
                "; kernels: %" PRIu64 " compiled, %" PRIu64 " from the cache, %" PRIu64
                " as before",
                counts.compiled, counts.cached, counts.shared);
    }
    if (counts.prepared + counts.kept > 0) {
        kiln_buf_printf(&line, "; weights: %" PRIu64 " prepared, %" PRIu64 " as before",
                counts.prepared, counts.kept);
    }
    kiln_buf_puts(&line, ")");
    say(reload, 0, line.failed ? "switched" : line.data);
    kiln_buf_finish(&line);
}

// ---- Life ---------------------------------------------------------------------------------------

static enum kiln_status push_set(
        struct kiln_reload *reload, const char *assignment, struct kiln_err *err) {
    char *copy = kiln_strdup(assignment);
    if (!copy || kiln_grow(&reload->sets, &reload->cap_sets, reload->n_sets + 1,
                         sizeof(*reload->sets)) != 0) {
        kiln_free(copy);
        return kiln_err_nomem(err, "the settings");
    }
    reload->sets[reload->n_sets++] = copy;
    return KILN_STATUS_OK;
}

// Watches what a config is made of. A source that cannot be read is watched all the same.
static enum kiln_status watch_config(
        struct kiln_reload *reload, const struct kiln_config *config, struct kiln_err *err) {
    const char *path;
    for (size_t i = 0; (path = kiln_config_file(config, i)) != NULL; i++) {
        KILN_TRY(kiln_watch_add(&reload->watch, path, err));
    }
    for (size_t i = 0; (path = kiln_config_source(config, i)) != NULL; i++) {
        struct kiln_source_files files;
        struct kiln_err unread = {0};
        enum kiln_status status = kiln_source_files_read(&files, path, &unread);
        (void)status; // whoever compiles it says what is wrong
        status = kiln_watch_add(&reload->watch, path, err);
        for (size_t j = 0; status == KILN_STATUS_OK && j < files.count; j++) {
            status = kiln_watch_add(&reload->watch, files.items[j].path, err);
        }
        kiln_source_files_finish(&files);
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status start(struct kiln_reload *reload, struct kiln_err *err) {
    const struct kiln_layers *layers = &reload->params.layers;
    for (size_t i = 0; i < layers->n_sets; i++) {
        KILN_TRY(push_set(reload, layers->sets[i], err));
    }
    for (size_t i = 0; i < layers->n_files; i++) {
        struct stat st;
        if (stat(layers->files[i], &st) == 0 && !S_ISREG(st.st_mode)) {
            reload->fixed = layers->files[i];
        }
        KILN_TRY(kiln_watch_add(&reload->watch, layers->files[i], err));
    }
    return watch_config(reload, *reload->params.config, err);
}

enum kiln_status kiln_reload_create(
        struct kiln_reload **out, const struct kiln_reload_params *params, struct kiln_err *err) {
    struct kiln_reload *reload = kiln_calloc(1, sizeof(*reload));
    if (reload && pthread_mutex_init(&reload->job.lock, NULL) != 0) {
        kiln_free(reload);
        reload = NULL;
    }
    if (!reload) {
        return kiln_err_nomem(err, "the watch on the configuration");
    }
    reload->params = *params;
    reload->first = 1; // edits since the session began to open were not seen
    enum kiln_status status = start(reload, err);
    if (status != KILN_STATUS_OK) {
        kiln_reload_destroy(reload);
        return status;
    }
    *out = reload;
    return KILN_STATUS_OK;
}

static void join(struct job *job) {
    if (job->running) {
        pthread_join(job->thread, NULL);
        job->running = 0;
    }
}

static void drop_job(struct job *job) {
    join(job);
    kiln_follower_destroy(job->follower);
    kiln_config_destroy(job->config);
    job->follower = NULL;
    job->config = NULL;
}

void kiln_reload_destroy(struct kiln_reload *reload) {
    if (!reload) {
        return;
    }
    drop_job(&reload->job);
    pthread_mutex_destroy(&reload->job.lock);
    kiln_watch_finish(&reload->watch);
    for (size_t i = 0; i < reload->n_sets; i++) {
        kiln_free(reload->sets[i]);
    }
    kiln_free(reload->sets);
    kiln_free(reload);
}

// ---- Building -----------------------------------------------------------------------------------

static enum kiln_status build_aside(struct kiln_reload *reload, struct kiln_err *err) {
    struct kiln_dev *dev = reload->params.session->dev, *side;
    KILN_TRY(dev->ops->side(dev, &side, err));
    enum kiln_status status = kiln_follower_build(reload->job.follower, side, err);
    kiln_dev_close(side);
    return status;
}

static void end_build(struct job *job, enum kiln_status status) {
    pthread_mutex_lock(&job->lock);
    job->status = status;
    job->ended = kiln_clock_seconds();
    job->done = 1;
    pthread_mutex_unlock(&job->lock);
}

static void *run_build(void *arg) {
    struct kiln_reload *reload = arg;
    end_build(&reload->job, build_aside(reload, &reload->job.err));
    return NULL;
}

static int is_done(struct job *job) {
    pthread_mutex_lock(&job->lock);
    int done = job->done;
    pthread_mutex_unlock(&job->lock);
    return done;
}

static void say_device_settings(
        const struct kiln_reload *reload, const struct kiln_config *config) {
    const struct kiln_settings *old = kiln_config_settings(*reload->params.config);
    const struct kiln_settings *fresh = kiln_config_settings(config);
    const char *was = old->cache_dir ? old->cache_dir : "";
    const char *now = fresh->cache_dir ? fresh->cache_dir : "";
    if (old->threads != fresh->threads || old->cache_max_size != fresh->cache_max_size ||
            strcmp(was, now) != 0) {
        say(reload, 0, "[engine] threads and [cache] take effect at the next start");
    }
}

// Starts the job; takes over the config.
static enum kiln_status begin_job(
        struct kiln_reload *reload, struct kiln_config *config, struct kiln_err *err) {
    struct job *job = &reload->job;
    struct kiln_session *session = reload->params.session;
    job->config = config;
    job->done = 0;
    job->err = (struct kiln_err){0};
    job->edited = reload->watch.edited;
    job->begun = kiln_clock_seconds();
    enum kiln_status status = watch_config(reload, config, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_follower_begin(&job->follower, session->engine, config, err);
    }
    if (status != KILN_STATUS_OK) {
        drop_job(job);
        return status;
    }
    say_device_settings(reload, config);
    if (!session->dev->ops->side) { // nothing goes on meanwhile
        end_build(job, kiln_follower_build(job->follower, session->dev, &job->err));
        return KILN_STATUS_OK;
    }
    job->running = pthread_create(&job->thread, NULL, run_build, reload) == 0;
    if (!job->running) {
        drop_job(job);
        return kiln_err_set(err, KILN_STATUS_NOMEM, "no thread to build the configuration on");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status load(
        struct kiln_reload *reload, struct kiln_config **config, struct kiln_err *err) {
    const char **sets = kiln_calloc(reload->n_sets, sizeof(*sets));
    if (!sets) {
        return kiln_err_nomem(err, "the settings");
    }
    for (size_t i = 0; i < reload->n_sets; i++) {
        sets[i] = reload->sets[i];
    }
    struct kiln_layers layers = reload->params.layers;
    layers.sets = sets;
    layers.n_sets = reload->n_sets;
    struct kiln_catalog catalog = {.plugins = kiln_registry_plugins(reload->params.registry),
            .n_plugins = kiln_registry_count(reload->params.registry)};
    enum kiln_status status = kiln_config_load(config, &layers, &catalog, err);
    kiln_free(sets);
    return status;
}

static int differs(const struct kiln_reload *reload, const struct kiln_config *config) {
    return !kiln_config_same(config, *reload->params.config) ||
           kiln_engine_sources_changed(reload->params.session->engine);
}

// Reads the files as they are now, and begins a job where that is something else than what is in
// force.
static void read_files(struct kiln_reload *reload, double now) {
    struct kiln_config *config = NULL;
    struct kiln_err err = {0};
    enum kiln_status status = load(reload, &config, &err);
    int first = reload->first;
    reload->first = 0;
    if (status != KILN_STATUS_OK) {
        if (reload->retried) {
            say_refused(reload, &err);
        }
        reload->retry_at = now + (reload->retried ? try_again_later : try_again);
        reload->retried = 1;
        return;
    }
    reload->retry_at = 0;
    reload->retried = 0;
    if (differs(reload, config)) {
        status = begin_job(reload, config, &err);
        if (status != KILN_STATUS_OK) {
            say_refused(reload, &err);
        }
        return;
    }
    kiln_config_destroy(config);
    if (!first) {
        say(reload, 1, "the configuration was written again; nothing in force has changed");
    }
}

// ---- Switching ----------------------------------------------------------------------------------

// Puts what was built in place, or says why it could not be built.
static enum kiln_status finish_job(struct kiln_reload *reload, struct kiln_err *err) {
    struct job *job = &reload->job;
    struct kiln_buf changes = {0};
    join(job);
    if (job->status != KILN_STATUS_OK) {
        say_refused(reload, &job->err);
        drop_job(job);
        return KILN_STATUS_OK;
    }
    kiln_follower_describe(job->follower, &changes);
    if (changes.len == 0) {
        kiln_buf_puts(&changes, "the configuration differs, the kernels of this model do not\n");
    }
    if (kiln_follower_forgets(job->follower)) {
        kiln_buf_puts(&changes, "the caches are new: what they held is read again\n");
    }
    double start = kiln_clock_seconds();
    struct kiln_follower_counts counts = kiln_follower_counts(job->follower);
    enum kiln_status status = kiln_follower_take(job->follower, err);
    if (status == KILN_STATUS_OK) {
        double swap_ms = (kiln_clock_seconds() - start) * 1e3;
        say_switched(reload, changes.data, counts, swap_ms);
        kiln_config_destroy(*reload->params.config);
        *reload->params.config = job->config;
        job->config = NULL;
        job->follower = NULL;
        reload->count++;
        reload->said[0] = '\0';
    }
    kiln_buf_finish(&changes);
    return status;
}

static int ready_to_take(struct kiln_reload *reload, int between_prompts) {
    struct job *job = &reload->job;
    return job->config && is_done(job) &&
           (between_prompts || job->status != KILN_STATUS_OK ||
                   !kiln_follower_forgets(job->follower));
}

static enum kiln_status step(
        struct kiln_reload *reload, int between_prompts, double now, struct kiln_err *err) {
    struct job *job = &reload->job;
    if (reload->fixed) {
        reload->first = 0;
        return KILN_STATUS_OK;
    }
    if (ready_to_take(reload, between_prompts)) {
        KILN_TRY(finish_job(reload, err));
    }
    if (job->config && !is_done(job)) {
        return KILN_STATUS_OK;
    }
    int edited = kiln_watch_look(&reload->watch, now);
    int resting = reload->watch.unrest <= 0;
    int due = reload->first || (reload->retry_at > 0 && now >= reload->retry_at);
    if (edited || (due && resting)) {
        drop_job(job); // one that waits for the end of the answer is out of date
        if (edited) {
            reload->retried = 0;
            reload->said[0] = '\0';
        }
        read_files(reload, now);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_reload_poll(
        struct kiln_reload *reload, int between_prompts, struct kiln_err *err) {
    double now = kiln_clock_seconds();
    if (now - reload->looked < look_every) {
        return KILN_STATUS_OK;
    }
    reload->looked = now;
    return step(reload, between_prompts, now, err);
}

static enum kiln_status nap(const struct kiln_reload *reload, struct kiln_err *err) {
    const struct timespec pause = {.tv_nsec = NAP_NS};
    if (reload->params.stop && reload->params.stop()) {
        return kiln_err_set(err, KILN_STATUS_INTERRUPTED, "interrupted");
    }
    nanosleep(&pause, NULL);
    return KILN_STATUS_OK;
}

// Whether something was edited that is neither in place nor refused.
static int is_unsettled(const struct kiln_reload *reload) {
    return reload->job.config || reload->watch.unrest > 0 || reload->first ||
           (reload->retry_at > 0 && reload->said[0] == '\0');
}

enum kiln_status kiln_reload_settle(struct kiln_reload *reload, struct kiln_err *err) {
    KILN_TRY(step(reload, 1, kiln_clock_seconds(), err));
    while (is_unsettled(reload)) {
        KILN_TRY(nap(reload, err));
        KILN_TRY(step(reload, 1, kiln_clock_seconds(), err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_reload_wait(struct kiln_reload *reload, uint64_t seen, struct kiln_err *err) {
    while (reload->count == seen) {
        KILN_TRY(nap(reload, err));
        KILN_TRY(step(reload, 1, kiln_clock_seconds(), err));
    }
    return KILN_STATUS_OK;
}

uint64_t kiln_reload_count(const struct kiln_reload *reload) {
    return reload->count;
}

// ---- By hand ------------------------------------------------------------------------------------

static enum kiln_status apply_sets(struct kiln_reload *reload, struct kiln_err *err) {
    struct kiln_config *config = NULL;
    struct job *job = &reload->job;
    KILN_TRY(load(reload, &config, err));
    if (!differs(reload, config)) {
        kiln_config_destroy(config);
        say(reload, 1, "that is in force already");
        return KILN_STATUS_OK;
    }
    reload->watch.edited = 0;
    KILN_TRY(begin_job(reload, config, err));
    while (!is_done(job)) {
        enum kiln_status status = nap(reload, err);
        if (status != KILN_STATUS_OK) {
            drop_job(job);
            return status;
        }
    }
    if (job->status != KILN_STATUS_OK) {
        enum kiln_status status = job->status;
        *err = job->err;
        drop_job(job);
        return status;
    }
    return finish_job(reload, err);
}

enum kiln_status kiln_reload_set(
        struct kiln_reload *reload, const char *assignment, struct kiln_err *err) {
    if (reload->fixed) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--config %s can be read only once: what runs stays as it was set at the start",
                reload->fixed);
    }
    KILN_TRY(kiln_reload_settle(reload, err));
    KILN_TRY(push_set(reload, assignment, err));
    enum kiln_status status = apply_sets(reload, err);
    if (status != KILN_STATUS_OK) {
        kiln_free(reload->sets[--reload->n_sets]);
    }
    return status;
}

void kiln_reload_describe(const struct kiln_reload *reload, struct kiln_buf *text) {
    const char *path;
    for (size_t i = 0; (path = kiln_config_file(*reload->params.config, i)) != NULL; i++) {
        kiln_buf_printf(text, "file %s\n", path);
    }
    for (size_t i = 0; (path = kiln_config_source(*reload->params.config, i)) != NULL; i++) {
        kiln_buf_printf(text, "source %s\n", path);
    }
    for (size_t i = 0; i < reload->n_sets; i++) {
        kiln_buf_printf(text, "set %s\n", reload->sets[i]);
    }
}
