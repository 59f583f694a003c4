// config: the life of a config and the reading of its layers.
//
// Not here: what the sections mean (check.c), how layers combine (merge.c).
#include "config/config.h"

#include "base/file.h"
#include "base/mem.h"
#include "config/config_impl.h"
#include "config/ini_lines.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_FILE_BYTES = 4 << 20,
    // Far above what kiln has slots and keys for. Names are looked up one by one, so there is a
    // bound.
    MAX_SECTIONS = 1024,
    MAX_SECTION_KEYS = 128
};

enum kiln_status kiln_config_create(struct kiln_config **config, struct kiln_err *err) {
    *config = kiln_calloc(1, sizeof(**config));
    if (!*config) {
        return kiln_err_nomem(err, "the configuration");
    }
    if (pthread_mutex_init(&(*config)->lock, NULL) != 0) {
        kiln_free(*config);
        *config = NULL;
        return kiln_err_nomem(err, "the configuration's lock");
    }
    kiln_settings_init(&(*config)->settings);
    return KILN_STATUS_OK;
}

void kiln_config_destroy(struct kiln_config *config) {
    if (!config) {
        return;
    }
    for (size_t i = 0; i < config->n_rules; i++) {
        kiln_rule_finish(&config->rules[i]);
    }
    kiln_free(config->rules);
    for (size_t i = 0; i < config->n_files; i++) {
        kiln_free(config->files[i]);
    }
    kiln_free(config->files);
    kiln_free(config->cache_dir);
    kiln_sections_finish(&config->sections);
    pthread_mutex_destroy(&config->lock);
    kiln_free(config);
}

const char *kiln_config_file(const struct kiln_config *config, size_t index) {
    return index < config->n_files ? config->files[index] : NULL;
}

// ---- A layer from text --------------------------------------------------------------------------

struct text_layer {
    const char *name;
    const char *dir;
    int is_default;
    struct kiln_sections sections;
};

static enum kiln_status add_header(
        struct text_layer *layer, const char *section, const char *where, struct kiln_err *err) {
    const struct kiln_section *before = kiln_sections_find(&layer->sections, section);
    if (before) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "%s: section [%s] stands in this file twice, first at %s; put its keys in one "
                "place, "
                "or name the second: [%s/NAME]",
                where, section, before->where, section);
    }
    if (layer->sections.count == MAX_SECTIONS) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "%s: section [%s] is one too many; a file may have %d sections", where, section,
                MAX_SECTIONS);
    }
    return kiln_sections_add(&layer->sections, section, where)
                   ? KILN_STATUS_OK
                   : kiln_err_nomem(err, "the configuration");
}

// The pair belongs to the section added last.
static enum kiln_status add_pair(struct text_layer *layer, const char *key, const char *value,
        const char *where, struct kiln_err *err) {
    struct kiln_section *section = &layer->sections.items[layer->sections.count - 1];
    const struct kiln_entry *before = kiln_section_find(section, key);
    if (before) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "%s: [%s] %s is set twice in this file, first at %s; keep one of them", where,
                section->name, key, before->where);
    }
    if (section->n_entries == MAX_SECTION_KEYS) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "%s: [%s] %s is one too many; a section may have %d keys", where, section->name,
                key, MAX_SECTION_KEYS);
    }
    if (kiln_section_add(section, key, value, where, layer->dir, layer->is_default) < 0) {
        return kiln_err_nomem(err, "the configuration");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status take_line(void *arg, const char *section, const char *key,
        const char *value, unsigned line, struct kiln_err *err) {
    struct text_layer *layer = arg;
    char *where = kiln_asprintf("%s:%u", layer->name, line);
    if (!where) {
        return kiln_err_nomem(err, "the configuration");
    }
    enum kiln_status status =
            key ? add_pair(layer, key, value, where, err) : add_header(layer, section, where, err);
    kiln_free(where);
    return status;
}

static enum kiln_status add_text(struct kiln_config *config, struct text_layer *layer,
        const char *text, size_t len, struct kiln_err *err) {
    enum kiln_status status = kiln_ini_read(layer->name, text, len, take_line, layer, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_config_merge(config, &layer->sections, layer->is_default, err);
    }
    kiln_sections_finish(&layer->sections);
    return status;
}

enum kiln_status kiln_config_add_text(struct kiln_config *config, const char *name, const char *dir,
        const char *text, size_t len, struct kiln_err *err) {
    struct text_layer layer = {.name = name, .dir = dir};
    return add_text(config, &layer, text, len, err);
}

// ---- Files and defaults -------------------------------------------------------------------------

static enum kiln_status note_file(
        struct kiln_config *config, const char *path, struct kiln_err *err) {
    char *copy = kiln_strdup(path);
    if (!copy || kiln_grow(&config->files, &config->cap_files, config->n_files + 1,
                         sizeof(*config->files)) < 0) {
        kiln_free(copy);
        return kiln_err_nomem(err, "the configuration");
    }
    config->files[config->n_files++] = copy;
    return KILN_STATUS_OK;
}

static enum kiln_status add_file(
        struct kiln_config *config, const char *path, int is_default, struct kiln_err *err) {
    char *text = NULL;
    size_t len = 0;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? kiln_strndup(path, slash > path ? (size_t)(slash - path) : 1) : NULL;
    if (slash && !dir) {
        return kiln_err_nomem(err, "the configuration");
    }
    enum kiln_status status = kiln_file_read(path, MAX_FILE_BYTES, &text, &len, err);
    if (status == KILN_STATUS_OK) {
        struct text_layer layer = {.name = path, .dir = dir, .is_default = is_default};
        status = note_file(config, path, err);
        if (status == KILN_STATUS_OK) {
            status = add_text(config, &layer, text, len, err);
        }
    }
    kiln_free(text);
    kiln_free(dir);
    return status;
}

enum kiln_status kiln_config_add_file(
        struct kiln_config *config, const char *path, struct kiln_err *err) {
    return add_file(config, path, 0, err);
}

// Adds DIR/TAIL/default.ini when it exists and says so in *found.
static enum kiln_status try_default(struct kiln_config *config, const char *dir, const char *tail,
        int *found, struct kiln_err *err) {
    char *path = kiln_asprintf("%s/%s/default.ini", dir, tail);
    if (!path) {
        return kiln_err_nomem(err, "the configuration");
    }
    *found = kiln_file_exists(path);
    enum kiln_status status = *found ? add_file(config, path, 1, err) : KILN_STATUS_OK;
    kiln_free(path);
    return status;
}

enum kiln_status kiln_config_add_defaults(struct kiln_config *config, struct kiln_err *err) {
    struct text_layer builtin = {.name = KILN_CONFIG_BUILTIN_NAME, .is_default = 1};
    KILN_TRY(add_text(config, &builtin, kiln_config_builtin, strlen(kiln_config_builtin), err));
    char *dir = kiln_exe_dir();
    if (!dir) {
        return KILN_STATUS_OK; // nothing to look beside
    }
    int found = 0;
    enum kiln_status status = try_default(config, dir, "configs", &found, err);
    if (status == KILN_STATUS_OK && !found) {
        status = try_default(config, dir, "../share/kiln/configs", &found, err);
    }
    kiln_free(dir);
    return status;
}

// ---- --set --------------------------------------------------------------------------------------

static int is_blank(char c) {
    return c == ' ' || c == '\t';
}

// Copies [from, to) without the blanks at both ends; NULL when memory runs out.
static char *copy_trimmed(const char *from, const char *to) {
    while (from < to && is_blank(*from)) {
        from++;
    }
    while (to > from && is_blank(to[-1])) {
        to--;
    }
    return kiln_strndup(from, (size_t)(to - from));
}

static enum kiln_status check_set(
        const char *section, const char *key, const char *value, struct kiln_err *err) {
    KILN_TRY(kiln_ini_check_section(section, strlen(section), err));
    KILN_TRY(kiln_ini_check_key(key, strlen(key), err));
    KILN_TRY(kiln_ini_check_value(value, strlen(value), err));
    size_t len = strlen(key) + strlen(" = ") + strlen(value);
    if (len > KILN_INI_LINE_MAX) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "as a line this has %zu bytes, at most %d are allowed", len, KILN_INI_LINE_MAX);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status merge_set(struct kiln_config *config, const char *section, const char *key,
        const char *value, struct kiln_err *err) {
    struct kiln_sections layer = {.items = NULL};
    struct kiln_section *only = kiln_sections_add(&layer, section, "--set");
    enum kiln_status status = KILN_STATUS_OK;
    if (!only || kiln_section_add(only, key, value, "--set", NULL, 0) < 0) {
        status = kiln_err_nomem(err, "the configuration");
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_config_merge(config, &layer, 0, err);
    }
    kiln_sections_finish(&layer);
    return status;
}

enum kiln_status kiln_config_add_set(
        struct kiln_config *config, const char *assignment, struct kiln_err *err) {
    const char *equals = strchr(assignment, '=');
    const char *dot = equals;
    while (dot && dot > assignment && *dot != '.') {
        dot--;
    }
    if (!equals || !dot || *dot != '.') {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "--set %.200s: write SECTION.KEY=VALUE, such as attention.prefill.FA_TQ=64 or "
                "engine.ctx=512",
                assignment);
    }
    char *section = copy_trimmed(assignment, dot);
    char *key = copy_trimmed(dot + 1, equals);
    char *value = copy_trimmed(equals + 1, equals + strlen(equals));
    enum kiln_status status;
    if (!section || !key || !value) {
        status = kiln_err_nomem(err, "the configuration");
    } else {
        status = check_set(section, key, value, err);
        if (status == KILN_STATUS_OK) {
            status = merge_set(config, section, key, value, err);
        } else {
            kiln_err_prefix(err, "--set %.200s: ", assignment);
        }
    }
    kiln_free(section);
    kiln_free(key);
    kiln_free(value);
    return status;
}

int kiln_config_variant(const struct kiln_config *config, size_t index,
        const struct kiln_plugin **plugin, const struct kiln_variant **variant) {
    for (size_t i = 0; i < config->n_rules; i++) {
        const struct kiln_rule *rule = &config->rules[i];
        if (rule->variant && index-- == 0) {
            *plugin = rule->plugin;
            *variant = rule->variant;
            return 1;
        }
    }
    return 0;
}
