// kernels: compiled images as modules, and launches of planned records.
#include "device/cuda/cuda_impl.h"

#include "base/buf.h"
#include "base/mem.h"
#include "jit/defines.h"

#include <stdio.h>
#include <string.h>

struct kiln_dev_kernel {
    void *module, *function;
    char label[192]; // who it is, for errors
};

// ---- Loading ------------------------------------------------------------------------------------

// Dynamic shared memory beyond the default has to be asked for, for each function; the result is
// checked against what the device can give in all, static need included.
static enum kiln_status allow_shared(struct kiln_cuda *cuda, const struct kiln_dev_kernel *kernel,
        uint32_t bytes, struct kiln_err *err) {
    const struct kiln_cu *cu = &cuda->cu;
    int fixed = 0;
    KILN_TRY(kiln_cu_check(cu,
            cu->function_get(&fixed, KILN_CU_FUNC_STATIC_SHARED, kernel->function),
            "cuFuncGetAttribute", kernel->label, err));
    if ((int64_t)fixed + bytes > cuda->dev.desc.smem_block_optin) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "%s: %u bytes of dynamic and %d of static shared memory exceed the %d that a block "
                "may use on %s; smaller tiles need less",
                kernel->label, bytes, fixed, cuda->dev.desc.smem_block_optin, cuda->names.name);
    }
    if (bytes == 0) {
        return KILN_STATUS_OK;
    }
    return kiln_cu_check(cu,
            cu->function_set(kernel->function, KILN_CU_FUNC_MAX_DYNAMIC_SHARED, (int)bytes),
            "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)", kernel->label, err);
}

static enum kiln_status load_module(struct kiln_cuda *cuda, const struct kiln_jit_item *item,
        struct kiln_dev_kernel *kernel, struct kiln_err *err) {
    const struct kiln_cu *cu = &cuda->cu;
    int result = cu->module_load(&kernel->module, item->image.data, 0, NULL, NULL);
    if (result != 0) {
        int version = 0;
        cu->driver_version(&version);
        KILN_TRY(kiln_cu_check(cu, result, "cuModuleLoadDataEx", kernel->label, err));
    }
    KILN_TRY(kiln_cu_check(cu,
            cu->module_function(&kernel->function, kernel->module, item->image.entry),
            "cuModuleGetFunction", kernel->label, err));
    return allow_shared(cuda, kernel, item->request.launch->shared_bytes, err);
}

static enum kiln_status take_items(struct kiln_cuda *cuda, const struct kiln_jit_item *items,
        size_t count, struct kiln_dev_kernel **ready, struct kiln_err *err) {
    for (size_t i = 0; i < count; i++) {
        ready[i] = kiln_calloc(1, sizeof(*ready[i]));
        if (!ready[i]) {
            return kiln_err_nomem(err, "a kernel");
        }
        snprintf(ready[i]->label, sizeof(ready[i]->label), "%s (%s)",
                items[i].image.label ? items[i].image.label : "kernel",
                items[i].image.geometry ? items[i].image.geometry : "");
        KILN_TRY(load_module(cuda, &items[i], ready[i], err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_cuda_load(struct kiln_dev *dev, const struct kiln_load *loads, size_t count,
        struct kiln_dev_kernel **ready, struct kiln_err *err) {
    struct kiln_cuda *cuda = kiln_cuda_of(dev);
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
        };
    }
    enum kiln_status status = kiln_jit_run(cuda->jit, items, count, 0, err);
    if (status == KILN_STATUS_OK) {
        status = take_items(cuda, items, count, ready, err);
    }
    for (size_t i = 0; status != KILN_STATUS_OK && i < count; i++) {
        kiln_cuda_unload(dev, ready[i]);
        ready[i] = NULL;
    }
    kiln_jit_items_finish(items, count);
    kiln_free(items);
    return status;
}

void kiln_cuda_unload(struct kiln_dev *dev, struct kiln_dev_kernel *ready) {
    if (!ready) {
        return;
    }
    if (ready->module) {
        kiln_cuda_of(dev)->cu.module_unload(ready->module);
    }
    kiln_free(ready);
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
    return kiln_cu_check(&cuda->cu,
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
    memcpy(cuda->last, ready->label, sizeof(cuda->last));
    return kiln_cu_check(&cuda->cu,
            cuda->cu.launch(&config, ready->function, params.pointers, NULL), "cuLaunchKernelEx",
            ready->label, err);
}
