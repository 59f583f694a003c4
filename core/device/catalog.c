// catalog: reads device files by one table of their keys.
#include "device/catalog.h"

#include "base/dir.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "config/ini_lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE = 1 << 16,
    MAX_NAME = 31
};

enum key_type {
    TYPE_I32,
    TYPE_U64,
    TYPE_F64,
    TYPE_PEAK,  // a double, so large that no one took it for TFLOP/s
    TYPE_TRIPLE // three int32_t
};

// The slowest device with a driver and the fastest to come are far inside.
static const int64_t peak_least = 1000000000, peak_most = 1000000000000000000;

struct key {
    const char *name;
    enum key_type type;
    size_t offset; // in struct kiln_device_entry
};

#define FIELD(type, name) \
    { #name, type, offsetof(struct kiln_device_entry, desc.name) }
#define PEAK(key, name) \
    { key, TYPE_PEAK, offsetof(struct kiln_device_entry, peaks.name) }
static const struct key keys[] = {
        FIELD(TYPE_I32, cc),
        FIELD(TYPE_I32, sm_count),
        FIELD(TYPE_I32, warp_size),
        FIELD(TYPE_I32, max_threads_block),
        FIELD(TYPE_I32, max_threads_sm),
        FIELD(TYPE_I32, max_blocks_sm),
        FIELD(TYPE_I32, max_warps_sm),
        FIELD(TYPE_I32, regs_block),
        FIELD(TYPE_I32, regs_sm),
        FIELD(TYPE_I32, reg_unit),
        FIELD(TYPE_I32, smem_block),
        FIELD(TYPE_I32, smem_block_optin),
        FIELD(TYPE_I32, smem_sm),
        FIELD(TYPE_I32, smem_reserved),
        FIELD(TYPE_I32, max_cluster),
        FIELD(TYPE_U64, l2_bytes),
        FIELD(TYPE_U64, memory_bytes),
        FIELD(TYPE_F64, memory_bandwidth),
        FIELD(TYPE_TRIPLE, max_grid),
        FIELD(TYPE_TRIPLE, max_block),
        PEAK("peak_f16", f16),
        PEAK("peak_int8", i8),
        PEAK("peak_f32", f32),
};
enum {
    N_KEYS = sizeof(keys) / sizeof(keys[0])
};

// Keys whose values are text.
static const struct {
    const char *name;
    size_t offset; // in struct kiln_device_entry
} texts[] = {
        {"name", offsetof(struct kiln_device_entry, name)},
        {"target", offsetof(struct kiln_device_entry, target)},
        {"reported", offsetof(struct kiln_device_entry, reported)},
};
enum {
    N_TEXTS = sizeof(texts) / sizeof(texts[0])
};

char *kiln_device_dir(void) {
    char *exe = kiln_exe_dir();
    char *dir = exe ? kiln_asprintf("%s/configs/devices", exe) : NULL;
    if (dir && !kiln_file_exists(dir)) {
        kiln_free(dir);
        dir = kiln_asprintf("%s/../share/kiln/configs/devices", exe);
    }
    kiln_free(exe);
    return dir;
}

void kiln_device_entry_finish(struct kiln_device_entry *entry) {
    kiln_free(entry->name);
    kiln_free(entry->target);
    kiln_free(entry->reported);
    kiln_free(entry->file);
    *entry = (struct kiln_device_entry){.name = NULL};
}

// ---- Reading a file -----------------------------------------------------------------------------

struct reading {
    struct kiln_device_entry *entry;
    const char *path;
    char base[MAX_NAME + 1];
    uint32_t seen; // keys of the table, a bit each
};

// Digits up to `max`, the rest at *end. -1: no number.
static int64_t digits(const char *text, int64_t max, const char **end) {
    char *stop;
    if (*text < '0' || *text > '9') {
        return -1;
    }
    errno = 0;
    long long value = strtoll(text, &stop, 10);
    *end = stop;
    return errno || value > max ? -1 : value;
}

// 0, or -1 when the text is no value of the key.
static int store(struct kiln_device_entry *entry, const struct key *key, const char *text) {
    char *at = (char *)entry + key->offset;
    const char *end = text;
    if (key->type == TYPE_TRIPLE) {
        int32_t values[3];
        for (int i = 0; i < 3; i++) {
            int64_t value = digits(text, INT32_MAX, &end);
            if (value < 0 || *end != (i < 2 ? ',' : '\0')) {
                return -1;
            }
            values[i] = (int32_t)value;
            text = end + 1;
        }
        memcpy(at, values, sizeof(values));
        return 0;
    }
    int64_t value = digits(text, key->type == TYPE_I32 ? INT32_MAX : INT64_MAX, &end);
    if (value < 0 || *end ||
            (key->type == TYPE_PEAK && (value < peak_least || value > peak_most))) {
        return -1;
    }
    const int32_t i32 = (int32_t)value;
    const uint64_t u64 = (uint64_t)value;
    const double f64 = (double)value;
    const void *from = key->type == TYPE_I32   ? (const void *)&i32
                       : key->type == TYPE_U64 ? (const void *)&u64
                                               : (const void *)&f64;
    memcpy(at, from, key->type == TYPE_I32 ? sizeof(i32) : sizeof(u64));
    return 0;
}

static enum kiln_status set_text(char **to, const char *text, struct kiln_err *err) {
    char *copy = kiln_strdup(text);
    if (!copy) {
        return kiln_err_nomem(err, "a device description");
    }
    kiln_free(*to);
    *to = copy;
    return KILN_STATUS_OK;
}

static enum kiln_status on_number(struct reading *reading, const char *name, const char *value,
        unsigned line, struct kiln_err *err) {
    const char *known[N_KEYS + N_TEXTS + 1] = {"base"};
    for (uint32_t i = 0; i < N_TEXTS; i++) {
        known[i + 1] = texts[i].name;
    }
    for (uint32_t i = 0; i < N_KEYS; i++) {
        known[i + N_TEXTS + 1] = keys[i].name;
        if (strcmp(name, keys[i].name) != 0) {
            continue;
        }
        if ((reading->seen & 1u << i) || store(reading->entry, &keys[i], value) != 0) {
            return kiln_err_set(err, KILN_STATUS_CONFIG, "%s:%u: %s = %s: %s", reading->path, line,
                    name, value,
                    reading->seen & 1u << i       ? "the key is there already"
                    : keys[i].type == TYPE_TRIPLE ? "three whole numbers are allowed: X,Y,Z"
                    : keys[i].type == TYPE_PEAK
                            ? "operations a second are allowed, whole, from 10^9 to 10^18"
                            : "a whole number is allowed");
        }
        reading->seen |= 1u << i;
        return KILN_STATUS_OK;
    }
    const char *near = kiln_nearest(name, known, N_KEYS + N_TEXTS + 1);
    return kiln_err_set(err, KILN_STATUS_CONFIG, "%s:%u: unknown key '%s'%s%s%s", reading->path,
            line, name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum kiln_status on_line(void *arg, const char *section, const char *key, const char *value,
        unsigned line, struct kiln_err *err) {
    struct reading *reading = arg;
    if (strcmp(section, "device") != 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "%s:%u: section [%s]; allowed: [device]",
                reading->path, line, section);
    }
    if (!key) {
        return KILN_STATUS_OK;
    }
    for (size_t i = 0; i < N_TEXTS; i++) {
        if (strcmp(key, texts[i].name) == 0) {
            return set_text(
                    (char **)(void *)((char *)reading->entry + texts[i].offset), value, err);
        }
    }
    if (strcmp(key, "base") == 0) {
        if (strlen(value) > MAX_NAME || strchr(value, '/')) {
            return kiln_err_set(err, KILN_STATUS_CONFIG,
                    "%s:%u: base = %s: a file's name is allowed", reading->path, line, value);
        }
        memcpy(reading->base, value, strlen(value) + 1);
        return KILN_STATUS_OK;
    }
    return on_number(reading, key, value, line, err);
}

// Finds `base` in a file, without looking at anything else.
static enum kiln_status on_base(void *arg, const char *section, const char *key, const char *value,
        unsigned line, struct kiln_err *err) {
    return key && strcmp(key, "base") == 0 ? on_line(arg, section, key, value, line, err)
                                           : KILN_STATUS_OK;
}

static enum kiln_status read_file(struct kiln_device_entry *entry, const char *dir,
        const char *name, int depth, struct kiln_err *err) {
    char *path = kiln_asprintf("%s/%s.ini", dir, name), *text = NULL;
    size_t size = 0;
    if (!path) {
        return kiln_err_nomem(err, "a device description");
    }
    struct reading reading = {.entry = entry, .path = path};
    enum kiln_status status = kiln_file_read(path, MAX_FILE, &text, &size, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_ini_read(path, text, size, on_base, &reading, err);
    }
    if (status == KILN_STATUS_OK && reading.base[0]) {
        status = depth > 0 ? kiln_err_set(err, KILN_STATUS_CONFIG,
                                     "%s: base = %s: a base cannot have a base", path, reading.base)
                           : read_file(entry, dir, reading.base, depth + 1, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_ini_read(path, text, size, on_line, &reading, err);
    }
    kiln_free(text);
    kiln_free(path);
    return status;
}

// ---- Finding ------------------------------------------------------------------------------------

void kiln_device_names(const char *dir, struct kiln_buf *text) {
    struct kiln_dir files = {.names = NULL};
    (void)kiln_dir_read(&files, dir, "", ".ini"); // none, when it cannot be read
    for (size_t i = 0; i < files.count; i++) {
        kiln_buf_puts(text, i ? ", " : "");
        kiln_buf_append(text, files.names[i], strlen(files.names[i]) - strlen(".ini"));
    }
    kiln_dir_finish(&files);
}

static int has_file(const char *dir, const char *name) {
    char *path = kiln_asprintf("%s/%s.ini", dir, name);
    int there = path && kiln_file_exists(path);
    kiln_free(path);
    return there;
}

static enum kiln_status unknown(const char *dir, const char *name, struct kiln_err *err) {
    struct kiln_buf known = {0};
    kiln_device_names(dir, &known);
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_USAGE,
            "there is no device or target '%.60s'; known (in %s): %s", name, dir,
            known.data ? known.data : "none");
    kiln_buf_finish(&known);
    return status;
}

// text: room for the name. Not by the locale.
static void lower(const char *name, char *text) {
    do {
        *text++ = (char)(*name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name);
    } while (*name++);
}

// "gb10" and "sm_90" as they are, "sm_90a" as "sm_90"; lower case. 0, or -1: no such file.
static int file_of(const char *dir, const char *name, char file[MAX_NAME + 1]) {
    size_t len = strlen(name);
    if (len == 0 || len > MAX_NAME ||
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
                    len) {
        return -1;
    }
    lower(name, file);
    if (has_file(dir, file)) {
        return 0;
    }
    if (strncmp(file, "sm_", 3) != 0 || (file[len - 1] != 'a' && file[len - 1] != 'f')) {
        return -1;
    }
    file[len - 1] = '\0';
    return has_file(dir, file) ? 0 : -1;
}

static enum kiln_status find(
        struct kiln_device_entry *entry, const char *dir, const char *name, struct kiln_err *err) {
    char file[MAX_NAME + 1];
    if (file_of(dir, name, file) != 0) {
        return unknown(dir, name, err);
    }
    entry->desc.struct_size = sizeof(entry->desc);
    entry->desc.kind = KILN_DEVICE_CUDA;
    KILN_TRY(read_file(entry, dir, file, 0, err));
    if (strncmp(file, "sm_", 3) == 0) {
        char target[MAX_NAME + 1]; // with the letter that the file goes without
        lower(name, target);
        KILN_TRY(set_text(&entry->target, target, err));
    }
    if (!entry->name || !entry->target || entry->desc.cc == 0) {
        return kiln_err_set(
                err, KILN_STATUS_CONFIG, "%s/%s.ini: name, target and cc are needed", dir, file);
    }
    entry->desc.name = entry->name;
    entry->desc.target = entry->target;
    return set_text(&entry->file, file, err);
}

enum kiln_status kiln_device_entry_copy(
        struct kiln_device_entry *entry, const struct kiln_device *desc, struct kiln_err *err) {
    *entry = (struct kiln_device_entry){.desc = *desc};
    KILN_TRY(set_text(&entry->name, desc->name, err));
    KILN_TRY(set_text(&entry->target, desc->target, err));
    entry->desc.name = entry->name;
    entry->desc.target = entry->target;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_device_find(
        struct kiln_device_entry *entry, const char *dir, const char *name, struct kiln_err *err) {
    *entry = (struct kiln_device_entry){.name = NULL};
    char *own = dir ? kiln_strdup(dir) : kiln_device_dir();
    enum kiln_status status =
            own ? find(entry, own, name, err) : kiln_err_nomem(err, "a device description");
    kiln_free(own);
    return status;
}

// ---- Matching -----------------------------------------------------------------------------------

// Whether `name` is one of those that stand in `list`, "A | B".
static int is_listed(const char *list, const char *name) {
    const size_t len = strlen(name);
    for (const char *at = list; at && *at;) {
        at += strspn(at, " |");
        const size_t part = strcspn(at, "|");
        size_t end = part;
        while (end > 0 && at[end - 1] == ' ') {
            end--;
        }
        if (end == len && memcmp(at, name, len) == 0) {
            return 1;
        }
        at += part;
    }
    return 0;
}

static int is_same(const struct kiln_device_entry *entry, const struct kiln_device *device) {
    return (strcmp(entry->name, device->name) == 0 || is_listed(entry->reported, device->name)) &&
           entry->desc.sm_count == device->sm_count && entry->desc.cc == device->cc;
}

static enum kiln_status match_one(struct kiln_device_entry *entry, const char *dir,
        const char *file_name, const struct kiln_device *device, struct kiln_err *err) {
    char name[MAX_NAME + 1];
    struct kiln_err why = {0};
    const size_t len = strlen(file_name) - strlen(".ini");
    if (len > MAX_NAME) { // cannot be asked for, either
        return KILN_STATUS_OK;
    }
    memcpy(name, file_name, len);
    name[len] = '\0';
    enum kiln_status status = kiln_device_find(entry, dir, name, &why);
    if (status == KILN_STATUS_OK && is_same(entry, device)) {
        return KILN_STATUS_OK;
    }
    kiln_device_entry_finish(entry);
    if (status == KILN_STATUS_NOMEM) {
        *err = why;
        return status;
    }
    if (status != KILN_STATUS_OK) {
        kiln_log(KILN_LOG_WARN, "%s", why.text);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_device_match(struct kiln_device_entry *entry, const char *dir,
        const struct kiln_device *device, struct kiln_err *err) {
    *entry = (struct kiln_device_entry){.name = NULL};
    if (device->kind != KILN_DEVICE_CUDA) {
        return KILN_STATUS_OK;
    }
    char *own = dir ? kiln_strdup(dir) : kiln_device_dir();
    if (!own) {
        return kiln_err_nomem(err, "a device description");
    }
    struct kiln_dir files = {.names = NULL};
    (void)kiln_dir_read(&files, own, "", ".ini"); // none, when it cannot be read
    enum kiln_status status = KILN_STATUS_OK;
    for (size_t i = 0; status == KILN_STATUS_OK && !entry->file && i < files.count; i++) {
        if (strncmp(files.names[i], "sm_", 3) != 0) { // an architecture is no card
            status = match_one(entry, own, files.names[i], device, err);
        }
    }
    kiln_dir_finish(&files);
    kiln_free(own);
    return status;
}
