// kernels: compiled images as modules, and launches of planned records.
#include "device/cuda/cuda_impl.h"

#include "base/buf.h"
#include "base/mem.h"
#include "jit/defines.h"

#include <stdio.h>
#include <string.h>

// A compiled kernel in the context, by its key. Kept when nobody uses it any more, for whoever
// switches back, until there are too many.
struct kiln_cuda_module {
    struct kiln_cuda_module *next;
    struct kiln_jit_key key;
    void *module, *function;
    unsigned users;
    char label[384]; // who it is, for errors
};

enum {
    MAX_MODULES = 1024
};

struct kiln_dev_kernel {
    struct kiln_cuda_module *module;
    void *function;
    const char *label; // the module's
};

// ---- Modules ------------------------------------------------------------------------------------

static void destroy_module(struct kiln_cuda *cuda, struct kiln_cuda_module *module) {
    if (module->module) {
        cuda->cu.module_unload(module->module);
    }
    kiln_free(module);
}

void kiln_cuda_modules_finish(struct kiln_cuda *cuda) {
    struct kiln_cuda_module *next;
    for (struct kiln_cuda_module *at = cuda->shared->modules; at; at = next) {
        next = at->next;
        destroy_module(cuda, at);
    }
    cuda->shared->modules = NULL;
}

// The module with this key, with one user more; NULL: it is not loaded.
void *kiln_cuda_take_module(void *device, const struct kiln_jit_key *key) {
    struct kiln_cuda_shared *shared = device;
    struct kiln_cuda_module *found = NULL;
    pthread_mutex_lock(&shared->lock);
    for (struct kiln_cuda_module *at = shared->modules; at && !found; at = at->next) {
        found = strcmp(at->key.hex, key->hex) == 0 ? at : NULL;
    }
    if (found) {
        found->users++;
    }
    pthread_mutex_unlock(&shared->lock);
    return found;
}

static void add_module(struct kiln_cuda_shared *shared, struct kiln_cuda_module *module) {
    pthread_mutex_lock(&shared->lock);
    module->users = 1;
    module->next = shared->modules;
    shared->modules = module;
    shared->n_modules++;
    pthread_mutex_unlock(&shared->lock);
}

// One user less. Beyond the bound, what has none goes.
static void drop_module(struct kiln_cuda *cuda, struct kiln_cuda_module *module) {
    struct kiln_cuda_shared *shared = cuda->shared;
    pthread_mutex_lock(&shared->lock);
    module->users--;
    struct kiln_cuda_module **at = &shared->modules;
    while (*at && shared->n_modules > MAX_MODULES) {
        struct kiln_cuda_module *one = *at;
        if (one->users > 0) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        destroy_module(cuda, one);
        shared->n_modules--;
    }
    pthread_mutex_unlock(&shared->lock);
}

// ---- Loading ------------------------------------------------------------------------------------

// Dynamic shared memory beyond the default has to be asked for, for each function; the result is
// checked against what the device can give in all, static need included.
static enum kiln_status allow_shared(struct kiln_cuda *cuda, const struct kiln_cuda_module *module,
        uint32_t bytes, struct kiln_err *err) {
    const struct kiln_cu *cu = &cuda->cu;
    int fixed = 0;
    KILN_TRY(kiln_cuda_check_for(cuda,
            cu->function_get(&fixed, KILN_CU_FUNC_STATIC_SHARED, module->function),
            "cuFuncGetAttribute", module->label, err));
    if ((int64_t)fixed + bytes > cuda->dev.desc.smem_block_optin) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "%s: %u bytes of dynamic and %d of static shared memory exceed the %d that a block "
                "may use on %s; smaller tiles need less",
                module->label, bytes, fixed, cuda->dev.desc.smem_block_optin, cuda->names.name);
    }
    if (bytes == 0) {
        return KILN_STATUS_OK;
    }
    return kiln_cuda_check_for(cuda,
            cu->function_set(module->function, KILN_CU_FUNC_MAX_DYNAMIC_SHARED, (int)bytes),
            "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)", module->label, err);
}

// PTX is compiled by the driver, which refuses that of a newer NVRTC than its own and has a log of
// what else it does not take: said with all versions at hand, since one of them is to be changed.
static enum kiln_status load_image(struct kiln_cuda *cuda, const struct kiln_jit_item *item,
        struct kiln_cuda_module *module, struct kiln_err *err) {
    char log[4096] = "", nvrtc[32] = "an NVRTC";
    int options[] = {KILN_CU_JIT_ERROR_LOG, KILN_CU_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof(log) - 1)};
    int result = cuda->cu.module_load(&module->module, item->image.data, 2, options, values);
    if (result == 0 || !item->image.ptx) {
        return kiln_cuda_check_for(cuda, result, "cuModuleLoadDataEx", module->label, err);
    }
    const struct kiln_nvrtc *open = kiln_jit_nvrtc(cuda->shared->jit);
    if (open) {
        (void)snprintf(nvrtc, sizeof(nvrtc), "NVRTC %d.%d", open->major, open->minor);
    }
    char *what = kiln_asprintf("%s: PTX of %s for %s, driver for %s%s%s; an NVRTC no newer than "
                               "the driver (KILN_NVRTC) or a newer driver takes it",
            module->label, nvrtc, item->image.target ? item->image.target : "?", cuda->dev.driver,
            log[0] ? ": " : "", log);
    enum kiln_status status = kiln_cuda_check_for(
            cuda, result, "cuModuleLoadDataEx", what ? what : module->label, err);
    kiln_free(what);
    return status;
}

static enum kiln_status load_module(struct kiln_cuda *cuda, const struct kiln_jit_item *item,
        struct kiln_cuda_module *module, struct kiln_err *err) {
    const struct kiln_cu *cu = &cuda->cu;
    module->key = item->key;
    snprintf(module->label, sizeof(module->label), "%s (%s)",
            item->image.label ? item->image.label : "kernel",
            item->image.geometry ? item->image.geometry : "");
    KILN_TRY(load_image(cuda, item, module, err));
    KILN_TRY(kiln_cuda_check_for(cuda,
            cu->module_function(&module->function, module->module, item->image.entry),
            "cuModuleGetFunction", module->label, err));
    return allow_shared(cuda, module, item->request.launch->shared_bytes, err);
}

// The item's module, with one user more.
static enum kiln_status get_module(struct kiln_cuda *cuda, struct kiln_jit_item *item,
        struct kiln_cuda_module **module, struct kiln_err *err) {
    *module = item->held;
    item->held = NULL;
    if (!*module) { // a twin before it may have brought it
        *module = kiln_cuda_take_module(cuda->shared, &item->key);
    }
    if (*module) {
        return KILN_STATUS_OK;
    }
    struct kiln_cuda_module *made = kiln_calloc(1, sizeof(*made));
    if (!made) {
        return kiln_err_nomem(err, "a kernel");
    }
    enum kiln_status status = load_module(cuda, item, made, err);
    if (status != KILN_STATUS_OK) {
        destroy_module(cuda, made);
        return status;
    }
    add_module(cuda->shared, made);
    *module = made;
    return KILN_STATUS_OK;
}

static enum kiln_status make_ready(struct kiln_cuda *cuda, struct kiln_cuda_module *module,
        struct kiln_dev_kernel **ready, struct kiln_err *err) {
    *ready = kiln_calloc(1, sizeof(**ready));
    if (!*ready) {
        drop_module(cuda, module);
        return kiln_err_nomem(err, "a kernel");
    }
    **ready = (struct kiln_dev_kernel){
            .module = module, .function = module->function, .label = module->label};
    return KILN_STATUS_OK;
}

// ---- A list of kernels --------------------------------------------------------------------------

static int same_strings(const char *const *a, const char *const *b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(a[i], b[i]) != 0) {
            return 0;
        }
    }
    return 1;
}

// Whether both compile to the same, seen without looking into any file: most layers ask for what
// the first one did.
static int same_load(const struct kiln_load *a, const struct kiln_load *b) {
    const struct kiln_geometry *x = a->geometry, *y = b->geometry;
    if (a->kernel != b->kernel || a->launch->shared_bytes != b->launch->shared_bytes ||
            x->n_values != y->n_values || a->launch->n_defines != b->launch->n_defines ||
            !a->source != !b->source || (a->source && strcmp(a->source, b->source) != 0)) {
        return 0;
    }
    for (uint32_t i = 0; i < x->n_values; i++) {
        if (x->values[i] != y->values[i] || strcmp(x->names[i], y->names[i]) != 0) {
            return 0;
        }
    }
    return same_strings(a->launch->defines, b->launch->defines, a->launch->n_defines);
}

struct batch {
    struct kiln_jit_item *items; // of the loads that differ
    size_t n_items;
    size_t *item_of; // by load
};

static void make_items(struct batch *batch, const struct kiln_load *loads, size_t count,
        const struct kiln_device *device) {
    for (size_t i = 0; i < count; i++) {
        size_t j = 0;
        while (j < i && !same_load(&loads[j], &loads[i])) {
            j++;
        }
        if (j < i) {
            batch->item_of[i] = batch->item_of[j];
            continue;
        }
        batch->item_of[i] = batch->n_items;
        batch->items[batch->n_items++].request = (struct kiln_jit_request){
                .plugin = loads[i].plugin,
                .variant = loads[i].variant,
                .kernel = loads[i].kernel,
                .geometry = loads[i].geometry,
                .launch = loads[i].launch,
                .source = loads[i].source,
                .target = device->target,
                .device = device,
        };
    }
}

static void count_items(struct kiln_dev_counts *counts, const struct batch *batch) {
    for (size_t i = 0; i < batch->n_items; i++) {
        const struct kiln_jit_item *item = &batch->items[i];
        counts->shared += item->held != NULL;
        counts->cached += !item->held && item->cached;
        counts->compiled += !item->held && !item->cached && item->ms > 0;
    }
}

static enum kiln_status take_items(struct kiln_cuda *cuda, struct batch *batch, size_t count,
        struct kiln_dev_kernel **ready, struct kiln_err *err) {
    for (size_t i = 0; i < count; i++) {
        struct kiln_cuda_module *module;
        KILN_TRY(get_module(cuda, &batch->items[batch->item_of[i]], &module, err));
        KILN_TRY(make_ready(cuda, module, &ready[i], err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status load_batch(struct kiln_cuda *cuda, struct batch *batch, size_t count,
        struct kiln_dev_kernel **ready, struct kiln_err *err) {
    struct kiln_cuda_shared *shared = cuda->shared;
    pthread_mutex_lock(&shared->jit_lock);
    enum kiln_status status = kiln_jit_run(shared->jit, batch->items, batch->n_items, 0, err);
    pthread_mutex_unlock(&shared->jit_lock);
    if (status == KILN_STATUS_OK) {
        count_items(&cuda->dev.counts, batch);
        status = take_items(cuda, batch, count, ready, err);
    }
    for (size_t i = 0; i < batch->n_items; i++) {
        if (batch->items[i].held) { // not taken: something failed before
            drop_module(cuda, batch->items[i].held);
        }
    }
    return status;
}

enum kiln_status kiln_cuda_load(struct kiln_dev *dev, const struct kiln_load *loads, size_t count,
        struct kiln_dev_kernel **ready, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    KILN_TRY(kiln_cuda_alive(cuda, err));
    struct batch batch = {.items = kiln_calloc(count, sizeof(*batch.items)),
            .item_of = kiln_calloc(count, sizeof(*batch.item_of))};
    for (size_t i = 0; i < count; i++) {
        ready[i] = NULL;
    }
    enum kiln_status status;
    if (!batch.items || !batch.item_of) {
        status = kiln_err_nomem(err, "compiling kernels");
    } else {
        make_items(&batch, loads, count, &dev->desc);
        status = load_batch(cuda, &batch, count, ready, err);
    }
    for (size_t i = 0; status != KILN_STATUS_OK && i < count; i++) {
        kiln_cuda_unload(dev, ready[i]);
        ready[i] = NULL;
    }
    kiln_jit_items_finish(batch.items, batch.n_items);
    kiln_free(batch.items);
    kiln_free(batch.item_of);
    return status;
}

void kiln_cuda_unload(struct kiln_dev *dev, struct kiln_dev_kernel *ready) {
    if (ready) {
        drop_module(kiln_cuda_of(dev), ready->module);
        kiln_free(ready);
    }
}

// ---- Launching ----------------------------------------------------------------------------------

// CUtensorMapDataType by what the elements are copied as.
static int map_type(uint32_t dtype) {
    switch (dtype) {
    case KILN_DTYPE_F16:
        return 6;
    case KILN_DTYPE_F32:
        return 7;
    case KILN_DTYPE_BF16:
        return 9;
    case KILN_DTYPE_I32:
        return 3;
    case KILN_DTYPE_I16:
        return 1;
    default:
        return 0; // bytes
    }
}

static enum kiln_status encode_map(struct kiln_cuda *cuda, const struct kiln_dev_kernel *ready,
        const struct kiln_tensor_map *map, void *base, struct kiln_cu_tensor_map *encoded,
        struct kiln_err *err) {
    int promotion = map->l2_promotion >= 256   ? 3
                    : map->l2_promotion >= 128 ? 2
                    : map->l2_promotion >= 64  ? 1
                                               : 0;
    return kiln_cuda_check_for(cuda,
            cuda->cu.tensor_map(encoded, map_type(map->dtype), map->rank, base, map->dims,
                    map->strides + 1, map->box, map->elem_strides, 0, (int)map->swizzle, promotion,
                    0),
            "cuTensorMapEncodeTiled", ready->label, err);
}

enum {
    MAX_ARGS = 64,
    MAX_MAPS = 8
};

struct params {
    void *values[MAX_ARGS]; // addresses by value
    void *pointers[MAX_ARGS];
    struct kiln_cu_tensor_map maps[MAX_MAPS];
};

static enum kiln_status fill_params(struct kiln_cuda *cuda, const struct kiln_dev_kernel *ready,
        const struct kiln_launch *launch, void *const *args, struct params *params,
        struct kiln_err *err) {
    size_t n_maps = 0;
    for (uint32_t i = 0; i < launch->n_args; i++) {
        const struct kiln_arg *arg = launch->args[i];
        if (arg->kind == KILN_ARG_BYTES) {
            params->pointers[i] = args[i];
        } else if (arg->kind == KILN_ARG_TENSOR_MAP) {
            if (n_maps == MAX_MAPS) {
                return kiln_err_set(err, KILN_STATUS_DEVICE,
                        "%s: more than %d tensor maps in one launch", ready->label, MAX_MAPS);
            }
            KILN_TRY(encode_map(cuda, ready, arg->map, args[i], &params->maps[n_maps], err));
            params->pointers[i] = &params->maps[n_maps++];
        } else {
            params->values[i] = args[i];
            params->pointers[i] = &params->values[i];
        }
    }
    return KILN_STATUS_OK;
}

static uint32_t fill_attrs(
        const struct kiln_launch *launch, int32_t cc, struct kiln_cu_launch_attr attrs[3]) {
    uint32_t n = 0;
    if (launch->flags & KILN_LAUNCH_COOPERATIVE) {
        attrs[n].id = KILN_CU_ATTR_COOPERATIVE;
        attrs[n++].value.flag = 1;
    }
    if ((launch->flags & KILN_LAUNCH_DEPENDENT) && cc >= 90) {
        attrs[n].id = KILN_CU_ATTR_DEPENDENT;
        attrs[n++].value.flag = 1;
    }
    if (launch->cluster[0] * launch->cluster[1] * launch->cluster[2] > 1) {
        attrs[n].id = KILN_CU_ATTR_CLUSTER;
        memcpy(attrs[n++].value.dim, launch->cluster, sizeof(launch->cluster));
    }
    return n;
}

enum kiln_status kiln_cuda_launch(struct kiln_dev *dev, struct kiln_dev_kernel *ready,
        const struct kiln_launch *launch, void *const *args, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
    struct params params;
    struct kiln_cu_launch_attr attrs[3] = {0};
    KILN_TRY(kiln_cuda_alive(cuda, err));
    if (launch->n_args > MAX_ARGS) {
        return kiln_err_set(err, KILN_STATUS_DEVICE, "%s: %u arguments, at most %d are allowed",
                ready->label, launch->n_args, MAX_ARGS);
    }
    KILN_TRY(fill_params(cuda, ready, launch, args, &params, err));
    struct kiln_cu_launch config = {
            .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
            .block = {launch->block[0], launch->block[1], launch->block[2]},
            .shared_bytes = launch->shared_bytes,
            .stream = cuda->stream,
            .attrs = attrs,
            .n_attrs = fill_attrs(launch, dev->desc.cc, attrs),
    };
    snprintf(cuda->last, sizeof(cuda->last), "%s", ready->label);
    memcpy(cuda->last_grid, launch->grid, sizeof(cuda->last_grid));
    memcpy(cuda->last_block, launch->block, sizeof(cuda->last_block));
    cuda->last_shared = launch->shared_bytes;
    cuda->replayed = 0;
    cuda->unwaited++;
    return kiln_cuda_check(cuda, cuda->cu.launch(&config, ready->function, params.pointers, NULL),
            "cuLaunchKernelEx", err);
}
