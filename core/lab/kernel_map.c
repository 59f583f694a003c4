// kernel_map: patterns read and tried in order.
#include "lab/kernel_map.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/nearest.h"
#include "config/ini_lines.h"
#include "config/slot.h"

#include <regex.h>
#include <string.h>

enum {
    MAX_FILE = 1 << 20
};

struct entry {
    char slot[KILN_INI_NAME_MAX + 1];
    regex_t pattern;
};

struct kiln_kernel_map {
    struct entry *entries;
    size_t n, cap;
};

struct reading {
    struct kiln_kernel_map *map;
    const char *path;
};

// A name that is nearly a slot's is misspelled; others stand for work without a slot.
static enum kiln_status check_section(const char *section, struct kiln_err *err) {
    const char *names[KILN_OP_ARGMAX - KILN_OP_EMBED + 1];
    char name[KILN_INI_NAME_MAX + sizeof(".prefill")], op[KILN_INI_NAME_MAX + 1];
    size_t count = 0, len = strlen(section), first = strcspn(section, ".");
    for (int kind = KILN_OP_EMBED; kind <= KILN_OP_ARGMAX; kind++) {
        const char *known = kiln_op_name((enum kiln_op_kind)kind);
        if (known) {
            names[count++] = known;
        }
    }
    memcpy(op, section, first);
    op[first] = '\0';
    const char *near = kiln_nearest(op, names, count);
    if (!near) {
        return KILN_STATUS_OK;
    }
    memcpy(name, section, len + 1);
    if (len > 2 && strcmp(section + len - 2, ".*") == 0) { // of both phases
        memcpy(name + len - 1, "prefill", sizeof("prefill"));
    }
    return kiln_slot_check(name, 1, err);
}

static enum kiln_status add(void *arg, const char *section, const char *key, const char *value,
        unsigned line, struct kiln_err *err) {
    struct reading *reading = arg;
    struct kiln_kernel_map *map = reading->map;
    if (!key) {
        enum kiln_status status = check_section(section, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "%s:%u: [%s]: ", reading->path, line, section);
        }
        return status;
    }
    if (strcmp(key, "match") != 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "%s:%u: [%s] %s: unknown key; known: match",
                reading->path, line, section, key);
    }
    if (kiln_grow(&map->entries, &map->cap, map->n + 1, sizeof(*map->entries)) != 0) {
        return kiln_err_nomem(err, "a table of kernels");
    }
    struct entry *entry = &map->entries[map->n];
    size_t len = strlen(section); // at most KILN_INI_NAME_MAX, as the reader sees to
    memcpy(entry->slot, section, len + 1);
    int code = regcomp(&entry->pattern, value, REG_EXTENDED | REG_NOSUB);
    if (code != 0) {
        char text[128];
        regerror(code, &entry->pattern, text, sizeof(text));
        return kiln_err_set(err, KILN_STATUS_CONFIG, "%s:%u: [%s] match: %s", reading->path, line,
                section, text);
    }
    map->n++;
    return KILN_STATUS_OK;
}

// Where a table that ships lies; NULL: out of memory or nowhere. The caller frees it.
static char *shipped(const char *name) {
    static const char *const folders[] = {"configs/kernels", "../share/kiln/configs/kernels"};
    char *exe = kiln_exe_dir();
    for (size_t i = 0; exe && i < sizeof(folders) / sizeof(folders[0]); i++) {
        char *path = kiln_asprintf("%s/%s/%s.ini", exe, folders[i], name);
        if (path && kiln_file_exists(path)) {
            kiln_free(exe);
            return path;
        }
        kiln_free(path);
    }
    kiln_free(exe);
    return NULL;
}

static enum kiln_status read_text(
        const char *path, struct kiln_kernel_map *map, struct kiln_err *err) {
    char *text;
    size_t size;
    struct reading reading = {.map = map, .path = path};
    KILN_TRY(kiln_file_read(path, MAX_FILE, &text, &size, err));
    enum kiln_status status = kiln_ini_read(path, text, size, add, &reading, err);
    kiln_free(text);
    return status;
}

enum kiln_status kiln_kernel_map_read(
        const char *path, struct kiln_kernel_map **map, struct kiln_err *err) {
    *map = kiln_calloc(1, sizeof(**map));
    char *found = strchr(path, '/') ? NULL : shipped(path);
    enum kiln_status status = *map ? read_text(found ? found : path, *map, err)
                                   : kiln_err_nomem(err, "a table of kernels");
    kiln_free(found);
    if (status != KILN_STATUS_OK) {
        kiln_kernel_map_destroy(*map);
        *map = NULL;
    }
    return status;
}

void kiln_kernel_map_destroy(struct kiln_kernel_map *map) {
    if (!map) {
        return;
    }
    for (size_t i = 0; i < map->n; i++) {
        regfree(&map->entries[i].pattern);
    }
    kiln_free(map->entries);
    kiln_free(map);
}

const char *kiln_kernel_map_find(const struct kiln_kernel_map *map, const char *kernel) {
    for (size_t i = 0; i < map->n; i++) {
        if (regexec(&map->entries[i].pattern, kernel, 0, NULL, 0) == 0) {
            return map->entries[i].slot;
        }
    }
    return NULL;
}
