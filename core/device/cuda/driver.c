// driver: opens the CUDA driver library and puts its errors into words.
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    size_t offset;
    const char *symbol;
} functions[] = {
#define KILN_CU_ROW(member, symbol, params) {offsetof(struct kiln_cu, member), symbol},
        KILN_CU_TABLE(KILN_CU_ROW)
#undef KILN_CU_ROW
};

static enum kiln_status resolve(struct kiln_cu *cu, const char *path, struct kiln_err *err) {
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *address = dlsym(cu->library, functions[i].symbol);
        if (!address) {
            return kiln_err_set(err, KILN_STATUS_DEVICE,
                    "%s has no function %s: its driver is older than CUDA 12; a newer driver is "
                    "needed for --device cuda",
                    path, functions[i].symbol);
        }
        memcpy((char *)cu + functions[i].offset, &address, sizeof(address));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_cu_open(struct kiln_cu *cu, struct kiln_err *err) {
    const char *named = getenv("KILN_CUDA");
    const char *path = named && *named ? named : "libcuda.so.1";
    *cu = (struct kiln_cu){0};
    cu->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!cu->library) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "no CUDA driver: %s; --device cuda needs NVIDIA's driver, --device cpu runs "
                "everywhere",
                dlerror());
    }
    KILN_TRY(resolve(cu, path, err));
    int result = cu->init(0);
    if (result == KILN_CU_ERROR_NO_DEVICE) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "the CUDA driver sees no device%s%s%s; --device cpu runs everywhere",
                visible ? " (CUDA_VISIBLE_DEVICES is '" : "", visible ? visible : "",
                visible ? "')" : "");
    }
    return kiln_cu_check(cu, result, "cuInit", "start", err);
}

enum kiln_status kiln_cu_check(const struct kiln_cu *cu, int result, const char *call,
        const char *what, struct kiln_err *err) {
    if (result == 0) {
        return KILN_STATUS_OK;
    }
    const char *name = NULL, *text = NULL;
    cu->error_name(result, &name);
    cu->error_string(result, &text);
    return kiln_err_set(err, KILN_STATUS_DEVICE, "%s failed with %s (%d: %s): %s", call,
            name ? name : "an unknown error", result, text ? text : "no description", what);
}
