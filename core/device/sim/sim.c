// sim: memory, loading and launching on the interpreter.
#include "device/sim/sim.h"

#include "base/file.h"
#include "base/mem.h"
#include "device/catalog.h"
#include "device/sim/tensor_map.h"
#include "jit/jit.h"

#include <stdio.h>
#include <string.h>

struct code { // one compiled image; launches of equal ones share it
    struct code *next;
    char key[33];
    uint32_t users;
    struct kiln_ptx_module *module;
    struct kiln_sim_code *loaded;
};

struct kiln_dev_kernel {
    struct code *code;
    const struct kiln_ptx_kernel *ptx;
    const struct kiln_sim_kernel *kernel;
    char label[192]; // who it is, for errors
};

struct mapped { // bytes of a model file
    const void *data;
    uint64_t bytes, address;
};

struct sim_dev {
    struct kiln_dev dev;
    struct kiln_device_entry entry;
    struct kiln_sim *sim;
    struct kiln_sim_report *report;
    struct kiln_jit *jit;
    struct code *codes;
    struct kiln_dev_settings settings;
    const char *running; // label of the launch under way
    uint64_t n_allocs;
    struct mapped *mapped;
    size_t n_mapped, cap_mapped;
};

static struct sim_dev *sim_of(struct kiln_dev *dev) {
    return (struct sim_dev *)(void *)dev;
}

static void code_drop(struct sim_dev *sim, struct code *code) {
    if (!code || --code->users > 0) {
        return;
    }
    for (struct code **at = &sim->codes; *at; at = &(*at)->next) {
        if (*at == code) {
            *at = code->next;
            break;
        }
    }
    kiln_sim_unload(sim->sim, code->loaded);
    kiln_ptx_close(code->module);
    kiln_free(code);
}

static void sim_close(struct kiln_dev *dev) {
    struct sim_dev *sim = sim_of(dev);
    while (sim->codes) {
        sim->codes->users = 1;
        code_drop(sim, sim->codes);
    }
    kiln_jit_close(sim->jit);
    kiln_sim_report_destroy(sim->report);
    kiln_sim_destroy(sim->sim);
    kiln_device_entry_finish(&sim->entry);
    kiln_pool_destroy(dev->pool);
    kiln_free(sim->mapped);
    kiln_free(sim);
}

// ---- Memory -------------------------------------------------------------------------------------

static void *pointer(uint64_t address) {
    return (void *)(uintptr_t)address;
}

static uint64_t address_of(const void *at) {
    return (uint64_t)(uintptr_t)at;
}

static enum kiln_status sim_alloc(
        struct kiln_dev *dev, uint64_t bytes, void **addr, struct kiln_err *err) {
    struct sim_dev *sim = sim_of(dev);
    char name[32];
    uint64_t address;
    (void)snprintf(name, sizeof(name), "buffer %llu", (unsigned long long)++sim->n_allocs);
    KILN_TRY(kiln_sim_alloc(sim->sim, name, bytes ? bytes : 1, &address, err));
    *addr = pointer(address);
    return KILN_STATUS_OK;
}

static void sim_free(struct kiln_dev *dev, void *addr) {
    kiln_sim_free(sim_of(dev)->sim, address_of(addr));
}

static enum kiln_status sim_weights(
        struct kiln_dev *dev, const void *data, uint64_t bytes, void **addr, struct kiln_err *err) {
    struct sim_dev *sim = sim_of(dev);
    // The same bytes are asked for by each schedule: what was prepared from them is known by where
    // they lie.
    for (size_t i = 0; i < sim->n_mapped; i++) {
        if (sim->mapped[i].data == data && sim->mapped[i].bytes == bytes) {
            *addr = pointer(sim->mapped[i].address);
            return KILN_STATUS_OK;
        }
    }
    if (kiln_grow(&sim->mapped, &sim->cap_mapped, sim->n_mapped + 1, sizeof(*sim->mapped)) != 0) {
        return kiln_err_nomem(err, "weights on sim");
    }
    struct mapped *made = &sim->mapped[sim->n_mapped];
    *made = (struct mapped){.data = data, .bytes = bytes};
    // Mapped read only: the cast takes nothing away.
    void *host = (void *)(uintptr_t)data;
    KILN_TRY(kiln_sim_map(sim->sim, "weights", host, bytes, 1, &made->address, err));
    sim->n_mapped++;
    *addr = pointer(made->address);
    return KILN_STATUS_OK;
}

static enum kiln_status sim_upload(
        struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err) {
    return kiln_sim_write(sim_of(dev)->sim, address_of(to), from, bytes, err);
}

static enum kiln_status sim_download(
        struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err) {
    return kiln_sim_read(sim_of(dev)->sim, to, address_of(from), bytes, err);
}

static enum kiln_status sim_copy(
        struct kiln_dev *dev, void *to, const void *from, uint64_t bytes, struct kiln_err *err) {
    return kiln_sim_copy(sim_of(dev)->sim, address_of(to), address_of(from), bytes, err);
}

static enum kiln_status sim_zero(
        struct kiln_dev *dev, void *addr, uint64_t bytes, struct kiln_err *err) {
    return kiln_sim_fill(sim_of(dev)->sim, address_of(addr), 0, bytes, err);
}

static enum kiln_status sim_sync(struct kiln_dev *dev, struct kiln_err *err) {
    (void)dev; // a launch is over when its call returns
    (void)err;
    return KILN_STATUS_OK;
}

// ---- Loading ------------------------------------------------------------------------------------

void kiln_sim_file_names(struct kiln_ptx_module *module) {
    for (uint32_t i = 0; i < module->n_files; i++) {
        char *name = module->files[i];
        if (name && name[0] == '/' && !kiln_file_exists(name)) {
            memmove(name, name + 1, strlen(name));
        }
    }
}

static enum kiln_status read_code(struct sim_dev *sim, const struct kiln_jit_item *item,
        struct code *code, struct kiln_err *err) {
    const char *label = item->image.label ? item->image.label : "kernel";
    KILN_TRY(kiln_ptx_open(&code->module, label, item->image.data, strlen(item->image.data), err));
    kiln_sim_file_names(code->module);
    return kiln_sim_load(sim->sim, code->module, &code->loaded, err);
}

static enum kiln_status find_code(struct sim_dev *sim, const struct kiln_jit_item *item,
        struct code **found, struct kiln_err *err) {
    for (struct code *code = sim->codes; code; code = code->next) {
        if (strcmp(code->key, item->key.hex) == 0) {
            code->users++;
            sim->dev.counts.shared++;
            *found = code;
            return KILN_STATUS_OK;
        }
    }
    struct code *code = kiln_calloc(1, sizeof(*code));
    if (!code) {
        return kiln_err_nomem(err, "a kernel");
    }
    code->users = 1;
    memcpy(code->key, item->key.hex, sizeof(code->key));
    code->next = sim->codes;
    sim->codes = code;
    enum kiln_status status = read_code(sim, item, code, err);
    if (status != KILN_STATUS_OK) {
        code_drop(sim, code);
        return status;
    }
    *(item->cached ? &sim->dev.counts.cached : &sim->dev.counts.compiled) += 1;
    *found = code;
    return KILN_STATUS_OK;
}

static enum kiln_status check_shared(const struct sim_dev *sim,
        const struct kiln_dev_kernel *kernel, uint32_t bytes, struct kiln_err *err) {
    uint32_t fixed = kernel->ptx->dynamic_at;
    int32_t most = sim->dev.desc.smem_block_optin;
    if ((int64_t)fixed + bytes > most) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "%s: %u bytes of dynamic and %u of static shared memory exceed the %d that a block "
                "may use on %s; smaller tiles need less",
                kernel->label, bytes, fixed, most, sim->dev.desc.target);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status take_item(struct sim_dev *sim, const struct kiln_jit_item *item,
        struct kiln_dev_kernel *ready, struct kiln_err *err) {
    (void)snprintf(ready->label, sizeof(ready->label), "%s (%s)",
            item->image.label ? item->image.label : "kernel",
            item->image.geometry ? item->image.geometry : "");
    KILN_TRY(find_code(sim, item, &ready->code, err));
    ready->ptx = kiln_ptx_kernel_find(ready->code->module, item->image.entry);
    ready->kernel = kiln_sim_find(ready->code->loaded, item->image.entry);
    if (!ready->ptx || !ready->kernel) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: the PTX has no entry %s", ready->label,
                item->image.entry);
    }
    return check_shared(sim, ready, item->request.launch->shared_bytes, err);
}

static void sim_unload(struct kiln_dev *dev, struct kiln_dev_kernel *ready) {
    if (ready) {
        code_drop(sim_of(dev), ready->code);
        kiln_free(ready);
    }
}

static enum kiln_status take_items(struct sim_dev *sim, const struct kiln_jit_item *items,
        size_t count, struct kiln_dev_kernel **ready, struct kiln_err *err) {
    for (size_t i = 0; i < count; i++) {
        ready[i] = kiln_calloc(1, sizeof(*ready[i]));
        if (!ready[i]) {
            return kiln_err_nomem(err, "a kernel");
        }
        KILN_TRY(take_item(sim, &items[i], ready[i], err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status sim_load(struct kiln_dev *dev, const struct kiln_load *loads, size_t count,
        struct kiln_dev_kernel **ready, struct kiln_err *err) {
    struct sim_dev *sim = sim_of(dev);
    struct kiln_jit_item *items = kiln_calloc(count, sizeof(*items));
    if (!items) {
        return kiln_err_nomem(err, "compiling kernels");
    }
    for (size_t i = 0; i < count; i++) {
        ready[i] = NULL;
        items[i].request = (struct kiln_jit_request){
                .plugin = loads[i].plugin,
                .variant = loads[i].variant,
                .kernel = loads[i].kernel,
                .geometry = loads[i].geometry,
                .launch = loads[i].launch,
                .source = loads[i].source,
                .target = dev->desc.target,
                .ptx = 1,
        };
    }
    enum kiln_status status = kiln_jit_run(sim->jit, items, count, 0, err);
    if (status == KILN_STATUS_OK) {
        status = take_items(sim, items, count, ready, err);
    }
    for (size_t i = 0; status != KILN_STATUS_OK && i < count; i++) {
        sim_unload(dev, ready[i]);
        ready[i] = NULL;
    }
    kiln_jit_items_finish(items, count);
    kiln_free(items);
    return status;
}

// ---- Launching ----------------------------------------------------------------------------------

enum {
    MAX_PARAMS = 4096 // bytes
};

static enum kiln_status fill_params(const struct kiln_dev_kernel *ready,
        const struct kiln_launch *launch, void *const *args, uint8_t *params,
        struct kiln_err *err) {
    const struct kiln_ptx_function *entry = &ready->ptx->functions[0];
    if (launch->n_args != entry->n_params || ready->ptx->param_bytes > MAX_PARAMS) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "%s: %u arguments in the plan, %u parameters of %u bytes in the kernel",
                ready->label, launch->n_args, entry->n_params, ready->ptx->param_bytes);
    }
    for (uint32_t i = 0; i < launch->n_args; i++) {
        const struct kiln_arg *arg = launch->args[i];
        const struct kiln_ptx_param *param = &entry->params[i];
        uint64_t address = address_of(args[i]);
        unsigned char map[SIM_MAP_BYTES];
        const void *from = &address;
        uint64_t bytes = sizeof(address);
        if (arg->kind == KILN_ARG_TENSOR_MAP) {
            if (kiln_sim_map_encode(map, arg->map, address, err) != KILN_STATUS_OK) {
                kiln_err_prefix(err, "%s: argument %u: ", ready->label, i);
                return KILN_STATUS_DEVICE;
            }
            from = map;
            bytes = sizeof(map);
        } else if (arg->kind == KILN_ARG_BYTES) {
            from = args[i];
            bytes = arg->size;
        }
        if (bytes != param->bytes) {
            return kiln_err_set(err, KILN_STATUS_DEVICE,
                    "%s: argument %u has %llu bytes, the kernel's parameter %u", ready->label, i,
                    (unsigned long long)bytes, param->bytes);
        }
        memcpy(params + param->offset, from, param->bytes);
    }
    return KILN_STATUS_OK;
}

static int progress(void *arg, uint64_t done, uint64_t total) {
    const struct sim_dev *sim = arg;
    if (sim->settings.stop && sim->settings.stop()) {
        return 1;
    }
    if (sim->settings.progress) {
        sim->settings.progress(sim->settings.progress_arg, sim->running, done, total);
    }
    return 0;
}

static enum kiln_status sim_launch(struct kiln_dev *dev, struct kiln_dev_kernel *ready,
        const struct kiln_launch *launch, void *const *args, struct kiln_err *err) {
    struct sim_dev *sim = sim_of(dev);
    uint8_t params[MAX_PARAMS] = {0};
    KILN_TRY(fill_params(ready, launch, args, params, err));
    struct kiln_sim_launch run = {
            .kernel = ready->kernel,
            .shared_bytes = launch->shared_bytes,
            .params = params,
            .param_bytes = ready->ptx->param_bytes,
    };
    memcpy(run.grid, launch->grid, sizeof(run.grid));
    memcpy(run.block, launch->block, sizeof(run.block));
    if (launch->cluster[0] * launch->cluster[1] * launch->cluster[2] > 1) {
        return kiln_err_set(
                err, KILN_STATUS_DEVICE, "%s: sim does not model clusters", ready->label);
    }
    const struct kiln_sim_options options = {
            .checks = sim->settings.sim_checks,
            .counters = sim->settings.sim_counters,
            .max_block_instructions = sim->settings.sim_max_instructions,
            .target = dev->desc.target,
            .max_shared_bytes = (uint32_t)dev->desc.smem_block_optin,
            .progress = progress,
            .progress_arg = sim,
    };
    sim->running = ready->label;
    enum kiln_status status = kiln_sim_launch(sim->sim, &run, &options, sim->report, err);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "%s: ", ready->label);
    }
    return status;
}

static const struct kiln_dev_ops sim_ops = {
        .close = sim_close,
        .alloc = sim_alloc,
        .free = sim_free,
        .weights = sim_weights,
        .upload = sim_upload,
        .download = sim_download,
        .copy = sim_copy,
        .zero = sim_zero,
        .load = sim_load,
        .unload = sim_unload,
        .launch = sim_launch,
        .sync = sim_sync,
};

// ---- Opening ------------------------------------------------------------------------------------

static enum kiln_status start(struct sim_dev *sim, const char *target, struct kiln_err *err) {
    const struct kiln_dev_settings *settings = &sim->settings;
    uint32_t threads = settings->threads ? settings->threads : kiln_cpu_count();
    KILN_TRY(kiln_device_find(&sim->entry, NULL, target, err));
    sim->dev.desc = sim->entry.desc;
    sim->dev.desc.name = "sim";
    (void)snprintf(sim->dev.id, sizeof(sim->dev.id), "sim:%.20s", sim->dev.desc.target);
    struct kiln_jit_params jit = {
            .cache = {.dir = settings->cache_dir,
                    .max_size = settings->cache_max_size ? settings->cache_max_size : INT64_MAX}};
    KILN_TRY(kiln_jit_open(&sim->jit, &jit, err));
    KILN_TRY(kiln_sim_report_create(&sim->report, err));
    KILN_TRY(kiln_sim_create(&sim->sim, threads, err));
    return kiln_pool_create(&sim->dev.pool, threads, err);
}

enum kiln_status kiln_sim_open(struct kiln_dev **dev, const char *target,
        const struct kiln_dev_settings *settings, struct kiln_err *err) {
    struct sim_dev *sim = kiln_calloc(1, sizeof(*sim));
    if (!sim) {
        return kiln_err_nomem(err, "the sim device");
    }
    sim->dev.ops = &sim_ops;
    sim->settings = *settings;
    enum kiln_status status = start(sim, target, err);
    if (status != KILN_STATUS_OK) {
        sim_close(&sim->dev);
        return status;
    }
    *dev = &sim->dev;
    return KILN_STATUS_OK;
}

struct kiln_sim_report *kiln_sim_dev_report(struct kiln_dev *dev) {
    return dev->ops == &sim_ops ? sim_of(dev)->report : NULL;
}
