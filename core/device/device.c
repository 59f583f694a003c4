// device: picks a device by its name.
#include "device/device.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "device/sim/sim.h"
#include "jit/nvrtc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int is_kind(const char *name, const char *kind) {
    size_t len = strlen(kind);
    return strncmp(name, kind, len) == 0 && (name[len] == '\0' || name[len] == ':');
}

static enum kiln_status unknown(const char *name, struct kiln_err *err) {
    static const char *const kinds[] = {"auto", "cpu", "cuda", "sim"};
    const char *near = kiln_nearest(name, kinds, 4);
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "--device %s: no such device%s%s%s; known: auto, cpu, cuda[:N], sim[:sm_XX]", name,
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum kiln_status open_cuda(struct kiln_dev **dev, const char *name,
        const struct kiln_dev_settings *settings, struct kiln_err *err) {
    const char *digits = name[4] == ':' ? name + 5 : "0";
    char *end;
    errno = 0;
    long number = strtol(digits, &end, 10);
    if (errno || end == digits || *end || number < 0 || number > 1023) {
        return unknown(name, err);
    }
    return kiln_cuda_open(dev, (int32_t)number, settings, err);
}

static enum kiln_status open_sim(struct kiln_dev **dev, const char *name,
        const struct kiln_dev_settings *settings, struct kiln_err *err) {
    const char *target = name[3] == ':' ? name + 4 : "sm_80";
    const char *suffix;
    int cc;
    if (kiln_target_parse(target, &cc, &suffix) != 0) {
        return unknown(name, err);
    }
    return kiln_sim_open(dev, target, settings, err);
}

// cuda where there is one that works, else the host. What stops cuda is worth a word only with -v.
static enum kiln_status open_auto(
        struct kiln_dev **dev, const struct kiln_dev_settings *settings, struct kiln_err *err) {
    struct kiln_err why = {0};
    int32_t count = 0;
    if (kiln_cuda_count(&count, &why) == KILN_STATUS_OK && count > 0) {
        return kiln_cuda_open(dev, 0, settings, err);
    }
    kiln_log(KILN_LOG_INFO, "--device auto: the CPU (%s)", why.text);
    return kiln_host_open(dev, settings, err);
}

enum kiln_status kiln_dev_open(struct kiln_dev **dev, const char *name,
        const struct kiln_dev_settings *settings, struct kiln_err *err) {
    if (strcmp(name, "auto") == 0) {
        return open_auto(dev, settings, err);
    }
    if (strcmp(name, "cpu") == 0) {
        return kiln_host_open(dev, settings, err);
    }
    if (is_kind(name, "cuda")) {
        return open_cuda(dev, name, settings, err);
    }
    if (is_kind(name, "sim")) {
        return open_sim(dev, name, settings, err);
    }
    return unknown(name, err);
}

void kiln_dev_close(struct kiln_dev *dev) {
    if (dev) {
        dev->ops->close(dev);
    }
}

enum kiln_status kiln_dev_host_alloc(
        struct kiln_dev *dev, uint64_t bytes, void **data, struct kiln_err *err) {
    if (dev->ops->host_alloc) {
        return dev->ops->host_alloc(dev, bytes, data, err);
    }
    *data = kiln_alloc((size_t)bytes);
    return *data ? KILN_STATUS_OK : kiln_err_nomem(err, "what is downloaded");
}

void kiln_dev_host_free(struct kiln_dev *dev, void *data) {
    if (dev->ops->host_alloc) {
        dev->ops->host_free(dev, data);
    } else {
        kiln_free(data);
    }
}
