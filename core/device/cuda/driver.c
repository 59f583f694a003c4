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

// What KILN_CUDA says; NULL when it is unset or empty.
static const char *named(void) {
    const char *text = getenv("KILN_CUDA");
    return text && *text ? text : NULL;
}

static enum kiln_status no_driver(const char *cause, struct kiln_err *err) {
    if (named()) {
        return kiln_err_set(err, KILN_STATUS_DEVICE,
                "no CUDA driver: KILN_CUDA is '%.200s': %s; it names NVIDIA's libcuda.so.1: "
                "correct it, or unset it and the loader looks; --device cpu runs everywhere",
                named(), cause);
    }
    return kiln_err_set(err, KILN_STATUS_DEVICE,
            "no CUDA driver: %s; --device cuda needs NVIDIA's driver, --device cpu runs everywhere",
            cause);
}

static enum kiln_status resolve(struct kiln_cu *cu, const char *path, struct kiln_err *err) {
    if (!dlsym(cu->library, "cuInit")) {
        return no_driver("a library, but no driver: it has no function cuInit", err);
    }
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
    const char *path = named() ? named() : "libcuda.so.1";
    *cu = (struct kiln_cu){0};
    cu->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!cu->library) {
        const char *cause = dlerror();
        return no_driver(cause ? cause : "it cannot be opened", err);
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
