// health: NVML by dlopen.
#include "lab/health.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Constants of NVML's ABI, which its documentation fixes.
enum {
    CLOCK_SM = 1,
    CLOCK_MEMORY = 2,
    SENSOR_GPU = 0,
    POWER_CAP = 0x4,
    // Reasons that slow a run down by surprise: hardware slowdown, software and hardware thermal
    // slowdown, power brake. Idle and an application's own clocks are no fault; nor is the power
    // cap, at which many cards run all the time.
    SLOWED = 0x8 | 0x20 | 0x40 | 0x80
};

typedef int (*init_fn)(void);
typedef int (*handle_fn)(const char *uuid_or_bus, void **device);
typedef int (*clock_fn)(void *device, unsigned type, unsigned *mhz);
typedef int (*number_fn)(void *device, unsigned *number);
typedef int (*text_fn)(char *text, unsigned size);
typedef int (*reasons_fn)(void *device, unsigned long long *reasons);

struct kiln_health_reader {
    void *library, *device;
    init_fn shutdown;
    clock_fn clock, full_clock, temperature;
    number_fn power;
    text_fn driver;
    reasons_fn reasons;
};

// An object pointer read as a function pointer, as POSIX asks of dlsym.
static void find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof(symbol));
}

static int open_device(struct kiln_health_reader *reader, const struct kiln_dev *dev) {
    handle_fn by_bus = NULL;
    find(reader->library, "nvmlDeviceGetHandleByPciBusId_v2", (void *)&by_bus);
    return dev->bus_id[0] && by_bus && by_bus(dev->bus_id, &reader->device) == 0;
}

struct kiln_health_reader *kiln_health_open(const struct kiln_dev *dev) {
    if (dev->desc.kind != KILN_DEVICE_CUDA) {
        return NULL;
    }
    struct kiln_health_reader *reader = kiln_calloc(1, sizeof(*reader));
    if (!reader) {
        return NULL;
    }
    init_fn start = NULL;
    reader->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (reader->library) {
        find(reader->library, "nvmlInit_v2", (void *)&start);
    }
    if (!start || start() != 0) {
        kiln_health_close(reader);
        return NULL;
    }
    find(reader->library, "nvmlShutdown", (void *)&reader->shutdown);
    find(reader->library, "nvmlDeviceGetClockInfo", (void *)&reader->clock);
    find(reader->library, "nvmlDeviceGetMaxClockInfo", (void *)&reader->full_clock);
    find(reader->library, "nvmlDeviceGetTemperature", (void *)&reader->temperature);
    find(reader->library, "nvmlDeviceGetPowerUsage", (void *)&reader->power);
    find(reader->library, "nvmlDeviceGetCurrentClocksThrottleReasons", (void *)&reader->reasons);
    find(reader->library, "nvmlSystemGetDriverVersion", (void *)&reader->driver);
    if (!open_device(reader, dev)) {
        kiln_health_close(reader);
        return NULL;
    }
    return reader;
}

void kiln_health_close(struct kiln_health_reader *reader) {
    if (!reader) {
        return;
    }
    if (reader->shutdown) {
        reader->shutdown();
    }
    if (reader->library) {
        dlclose(reader->library);
    }
    kiln_free(reader);
}

static int32_t read_typed(clock_fn function, void *device, unsigned type) {
    unsigned value = 0;
    return function && function(device, type, &value) == 0 ? (int32_t)value : -1;
}

struct kiln_health kiln_health_read(const struct kiln_health_reader *reader) {
    struct kiln_health health = {
            .sm_mhz = -1, .memory_mhz = -1, .full_sm_mhz = -1, .celsius = -1, .watts = -1};
    if (!reader) {
        return health;
    }
    health.sm_mhz = read_typed(reader->clock, reader->device, CLOCK_SM);
    health.memory_mhz = read_typed(reader->clock, reader->device, CLOCK_MEMORY);
    health.full_sm_mhz = read_typed(reader->full_clock, reader->device, CLOCK_SM);
    health.celsius = read_typed(reader->temperature, reader->device, SENSOR_GPU);
    unsigned milliwatts = 0;
    if (reader->power && reader->power(reader->device, &milliwatts) == 0) {
        health.watts = milliwatts / 1000.0;
    }
    unsigned long long reasons = 0;
    if (reader->reasons && reader->reasons(reader->device, &reasons) == 0) {
        health.throttle = reasons & (SLOWED | POWER_CAP);
    }
    return health;
}

void kiln_health_driver(const struct kiln_dev *dev, char *text, size_t size) {
    char version[80] = ""; // NVML writes at most 80
    struct kiln_health_reader *reader = kiln_health_open(dev);
    if (reader && reader->driver && reader->driver(version, sizeof(version)) != 0) {
        version[0] = '\0';
    }
    kiln_health_close(reader);
    snprintf(text, size, "%s%s%s", dev->driver, version[0] ? ", " : "", version);
}

int kiln_health_disturbed(const struct kiln_health *health, int32_t usual) {
    int moved = usual > 0 && health->sm_mhz > 0 && abs(health->sm_mhz - usual) * 100 > usual * 3;
    return (health->throttle & SLOWED) != 0 || moved;
}

int kiln_health_capped(const struct kiln_health *health) {
    return (health->throttle & POWER_CAP) != 0;
}
