// jit: keys, the cache, compiles, in this order, spread over a pool.
#include "jit/jit.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "jit/compile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kiln_jit {
    struct kiln_jit_params params;
    struct kiln_cache *cache;
    struct kiln_nvrtc *opened; // owned; NULL while params.nvrtc stands in or nothing was asked for
    int no_compile;
};

enum kiln_status kiln_jit_open(
        struct kiln_jit **jit, const struct kiln_jit_params *params, struct kiln_err *err) {
    *jit = NULL;
    struct kiln_jit *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        return kiln_err_nomem(err, "the kernel compiler");
    }
    made->params = *params;
    const char *no_compile = getenv("KILN_NO_COMPILE");
    made->no_compile = no_compile && *no_compile && strcmp(no_compile, "0") != 0;
    enum kiln_status status = kiln_cache_open(&made->cache, &params->cache, err);
    if (status != KILN_STATUS_OK) {
        kiln_jit_close(made);
        return status;
    }
    *jit = made;
    return KILN_STATUS_OK;
}

void kiln_jit_close(struct kiln_jit *jit) {
    if (jit) {
        kiln_cache_close(jit->cache);
        kiln_nvrtc_close(jit->opened);
        kiln_free(jit);
    }
}

struct kiln_cache *kiln_jit_cache(struct kiln_jit *jit) {
    return jit->cache;
}

const struct kiln_nvrtc *kiln_jit_nvrtc(const struct kiln_jit *jit) {
    return jit->params.nvrtc ? jit->params.nvrtc : jit->opened;
}

enum kiln_status kiln_jit_need_nvrtc(struct kiln_jit *jit, struct kiln_err *err) {
    return kiln_jit_nvrtc(jit) ? KILN_STATUS_OK : kiln_nvrtc_open(&jit->opened, err);
}

// ---- One item -----------------------------------------------------------------------------------

static enum kiln_status compile(
        struct kiln_jit *jit, const struct kiln_unit *unit, struct kiln_jit_item *item) {
    if (jit->no_compile) {
        return kiln_err_set(&item->err, KILN_STATUS_DEVICE,
                "%s (%s, %s) is not in the kernel cache %s, and KILN_NO_COMPILE forbids to compile "
                "it",
                unit->label, unit->target, unit->geometry, kiln_cache_path(jit->cache));
    }
    kiln_log(KILN_LOG_DEBUG, "compiling %s for %s (%s)", unit->label, unit->target, unit->geometry);
    return jit->params.compile
                   ? jit->params.compile(
                             jit->params.compile_arg, unit, &item->image, &item->log, &item->err)
                   : kiln_compile(kiln_jit_nvrtc(jit), unit, &item->image, &item->log, &item->err);
}

static enum kiln_status get_or_compile(
        struct kiln_jit *jit, const struct kiln_unit *unit, struct kiln_jit_item *item) {
    struct kiln_cache *cache = jit->cache;
    item->cached = kiln_cache_get(cache, &unit->key, unit->key_text, &item->image);
    if (item->cached) {
        return KILN_STATUS_OK;
    }
    int lock = jit->no_compile ? -1 : kiln_cache_lock(cache, &unit->key);
    if (lock >= 0) { // another process may have made it while this one waited
        item->cached = kiln_cache_get(cache, &unit->key, unit->key_text, &item->image);
    }
    enum kiln_status status = KILN_STATUS_OK;
    if (!item->cached) {
        status = compile(jit, unit, item);
        if (status == KILN_STATUS_OK) {
            kiln_cache_put(cache, &unit->key, unit->key_text, &item->image);
        }
    }
    kiln_cache_unlock(cache, &unit->key, lock);
    return status;
}

static enum kiln_status check_image(struct kiln_jit_item *item) {
    const char *kernel = item->request.kernel->name;
    uint32_t shared_bytes = item->request.launch->shared_bytes;
    KILN_TRY(kiln_layout_read(&item->image, kernel, &item->regions, &item->err));
    KILN_TRY(kiln_layout_compare(&item->regions, kernel, shared_bytes, &item->layout, &item->err));
    return kiln_fit_check(&item->request, &item->image, &item->layout, &item->fit, &item->err);
}

static void get_item(
        struct kiln_jit *jit, const struct kiln_unit *unit, struct kiln_jit_item *item) {
    double start = kiln_clock_seconds();
    item->status = get_or_compile(jit, unit, item);
    if (item->status == KILN_STATUS_OK) {
        item->status = check_image(item);
    }
    item->ms = (kiln_clock_seconds() - start) * 1e3;
}

// ---- A list -------------------------------------------------------------------------------------

struct work {
    struct kiln_jit *jit;
    struct kiln_jit_item *items;
    struct kiln_unit **units; // by item; NULL: it failed already
    uint32_t *todo;           // items with a key that no item before them has
    uint32_t n_todo;
};

struct ordered { // for the order in which they are compiled
    uint32_t item, shared_bytes;
    size_t text; // bytes of source and headers
};

static void run_one(void *arg, uint32_t index, uint32_t worker) {
    const struct work *work = arg;
    uint32_t item = work->todo[index];
    (void)worker;
    get_item(work->jit, work->units[item], &work->items[item]);
}

static int first_with_key(const struct work *work, size_t index, size_t *first) {
    for (size_t i = 0; i < index; i++) {
        if (work->units[i] && strcmp(work->items[i].key.hex, work->items[index].key.hex) == 0) {
            *first = i;
            return 1;
        }
    }
    return 0;
}

static void make_units(struct work *work, size_t count, int keep_sources) {
    for (size_t i = 0; i < count; i++) {
        struct kiln_jit_item *item = &work->items[i];
        size_t first;
        item->status = kiln_unit_make(
                &work->units[i], &item->request, kiln_jit_nvrtc(work->jit), &item->err);
        if (item->status != KILN_STATUS_OK) {
            continue;
        }
        item->key = work->units[i]->key;
        if (keep_sources) {
            item->source = kiln_strdup(work->units[i]->program);
        }
        const struct kiln_jit_params *params = &work->jit->params;
        item->held = params->have ? params->have(params->have_arg, &item->key) : NULL;
        if (!item->held && !first_with_key(work, i, &first)) {
            work->todo[work->n_todo++] = (uint32_t)i;
        }
    }
}

// What takes long goes first, so that the last compiles do not leave a core idle. What a compile
// will take is not known; kernels that work on large tiles in shared memory take longest, and
// among the others those with the longest text.
static int compare_cost(const void *a, const void *b) {
    const struct ordered *x = a, *y = b;
    if (x->shared_bytes != y->shared_bytes) {
        return x->shared_bytes < y->shared_bytes ? 1 : -1;
    }
    if (x->text != y->text) {
        return x->text < y->text ? 1 : -1;
    }
    return x->item < y->item ? -1 : x->item > y->item;
}

static enum kiln_status order_by_cost(struct work *work, struct kiln_err *err) {
    struct ordered *list = kiln_calloc(work->n_todo, sizeof(*list));
    if (!list) {
        return kiln_err_nomem(err, "a list of kernels");
    }
    for (uint32_t i = 0; i < work->n_todo; i++) {
        const struct kiln_unit *unit = work->units[work->todo[i]];
        list[i] = (struct ordered){.item = work->todo[i],
                .shared_bytes = unit->shared_bytes,
                .text = strlen(unit->program)};
        for (size_t j = 0; j < unit->includes.count; j++) {
            list[i].text += unit->includes.items[j].len;
        }
    }
    qsort(list, work->n_todo, sizeof(*list), compare_cost);
    for (uint32_t i = 0; i < work->n_todo; i++) {
        work->todo[i] = list[i].item;
    }
    kiln_free(list);
    return KILN_STATUS_OK;
}

// Items that are the same as one before them.
static void copy_twins(struct work *work, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct kiln_jit_item *item = &work->items[i];
        size_t first;
        if (!work->units[i] || item->held || !first_with_key(work, i, &first)) {
            continue;
        }
        const struct kiln_jit_item *twin = &work->items[first];
        item->status = twin->status;
        item->err = twin->err;
        item->cached = twin->cached;
        if (twin->status == KILN_STATUS_OK) {
            item->status = kiln_image_copy(&item->image, &twin->image, &item->err);
        }
        if (item->status == KILN_STATUS_OK) {
            item->status = check_image(item);
        }
    }
}

static enum kiln_status run_all(struct work *work, struct kiln_err *err) {
    uint32_t threads = work->jit->params.threads ? work->jit->params.threads : kiln_cpu_count();
    threads = threads < work->n_todo ? threads : work->n_todo;
    if (threads <= 1) {
        for (uint32_t i = 0; i < work->n_todo; i++) {
            run_one(work, i, 0);
        }
        return KILN_STATUS_OK;
    }
    KILN_TRY(order_by_cost(work, err));
    struct kiln_pool *pool = NULL;
    KILN_TRY(kiln_pool_create(&pool, threads, err));
    kiln_pool_run(pool, run_one, work, work->n_todo);
    kiln_pool_destroy(pool);
    return KILN_STATUS_OK;
}

static void report_over(const struct kiln_jit_item *item) {
    const struct kiln_layout_check *layout = &item->layout;
    char cost[128] = "";
    if (item->fit.blocks >= 0 && item->fit.blocks < item->fit.blocks_layout) {
        snprintf(cost, sizeof(cost),
                ", which leaves %" PRId32 " of %" PRId32 " blocks a multiprocessor on %.32s",
                item->fit.blocks, item->fit.blocks_layout, item->request.target);
    }
    kiln_log(KILN_LOG_WARN,
            "%s/%s kernel %s (%s): its launcher asks for %u bytes of shared memory and its layout "
            "uses %u: %u bytes too many%s",
            item->request.plugin, item->request.variant, item->request.kernel->name,
            item->image.geometry, layout->requested, layout->used, layout->over, cost);
}

// Of a kernel that items before it have too, they have told.
static int is_told(const struct kiln_jit_item *items, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (items[index].key.hex[0] && strcmp(items[i].key.hex, items[index].key.hex) == 0) {
            return 1;
        }
    }
    return 0;
}

static void report(const struct kiln_jit_item *item) {
    if (item->status != KILN_STATUS_OK && !item->image.data && item->log && *item->log) {
        kiln_log(KILN_LOG_WARN, "compile log of %s/%s kernel %s:\n%s", item->request.plugin,
                item->request.variant, item->request.kernel->name, item->log);
    }
    if (item->status == KILN_STATUS_OK && item->layout.over > 0 && !item->request.ptx) {
        report_over(item);
    }
}

static enum kiln_status first_failure(
        const struct kiln_jit_item *items, size_t count, struct kiln_err *err) {
    enum kiln_status status = KILN_STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        if (!is_told(items, i)) {
            report(&items[i]);
        }
        if (items[i].status != KILN_STATUS_OK && status == KILN_STATUS_OK) {
            status = items[i].status;
            if (err) {
                *err = items[i].err;
            }
        }
    }
    return status;
}

enum kiln_status kiln_jit_run(struct kiln_jit *jit, struct kiln_jit_item *items, size_t count,
        int keep_sources, struct kiln_err *err) {
    KILN_TRY(kiln_jit_need_nvrtc(jit, err));
    struct work work = {.jit = jit,
            .items = items,
            .units = kiln_calloc(count, sizeof(*work.units)),
            .todo = kiln_calloc(count, sizeof(*work.todo))};
    enum kiln_status status = KILN_STATUS_OK;
    if (!work.units || !work.todo) {
        status = kiln_err_nomem(err, "a list of kernels");
    } else {
        make_units(&work, count, keep_sources);
        status = run_all(&work, err);
        if (status == KILN_STATUS_OK) {
            copy_twins(&work, count);
            status = first_failure(items, count, err);
        }
    }
    for (size_t i = 0; work.units && i < count; i++) {
        kiln_unit_destroy(work.units[i]);
    }
    kiln_free(work.units);
    kiln_free(work.todo);
    return status;
}

void kiln_jit_items_finish(struct kiln_jit_item *items, size_t count) {
    for (size_t i = 0; items && i < count; i++) {
        kiln_image_finish(&items[i].image);
        kiln_free(items[i].log);
        kiln_free(items[i].source);
        items[i].log = NULL;
        items[i].source = NULL;
    }
}
