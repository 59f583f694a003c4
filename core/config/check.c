// check: a merged config as a whole: every section is known, and becomes settings or rules.
#include "config/config_impl.h"

#include "base/mem.h"
#include "base/nearest.h"
#include "config/ini_lines.h"
#include "config/slot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_PATH_BYTES = 960
}; // so that "source = PATH" fits into a line

enum kiln_status kiln_entry_fail(struct kiln_err *err, enum kiln_status status,
        const struct kiln_section *section, const struct kiln_entry *entry) {
    kiln_err_prefix(err, "%s: [%s] %s: ", entry->where, section->name, entry->key);
    return status;
}

static char *current_folder(void) {
    char buf[4096];
    return getcwd(buf, sizeof(buf)) ? kiln_strdup(buf) : NULL;
}

// "DIR/VALUE" with what is not there left out.
static char *join(const char *dir, const char *value) {
    if (value[0] == '/' || !dir) {
        return kiln_strdup(value);
    }
    while (strncmp(value, "./", 2) == 0) {
        value += 2;
    }
    return kiln_asprintf("%s%s%s", dir, strcmp(dir, "/") == 0 ? "" : "/", value);
}

enum kiln_status kiln_entry_path(
        const struct kiln_entry *entry, char **path, struct kiln_err *err) {
    *path = NULL;
    char *joined = join(entry->dir, entry->value);
    char *here = joined && joined[0] != '/' ? current_folder() : NULL;
    char *absolute = joined ? join(here, joined) : NULL;
    kiln_free(joined);
    kiln_free(here);
    if (!absolute || absolute[0] != '/') {
        kiln_free(absolute);
        return kiln_err_nomem(err, "a path (or the current folder is gone)");
    }
    size_t len = strlen(absolute);
    enum kiln_status status = kiln_ini_check_value(absolute, len, err);
    if (status == KILN_STATUS_OK && len > MAX_PATH_BYTES) {
        status = kiln_err_set(err, KILN_STATUS_CONFIG,
                "a path of %zu bytes, at most %d are allowed", len, MAX_PATH_BYTES);
    }
    if (status != KILN_STATUS_OK) {
        kiln_free(absolute);
        return status;
    }
    *path = absolute;
    return KILN_STATUS_OK;
}

// The section names no slot; it may be meant as one of the others.
static enum kiln_status unknown_section(const struct kiln_section *section, struct kiln_err *err) {
    static const char *const others[] = {"engine", "cache", "tune"};
    const char *near = kiln_nearest(section->name, others, 3);
    if (near) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "%s: unknown section [%s]; did you mean [%s]? sections are slots, engine, cache "
                "and "
                "tune",
                section->where, section->name, near);
    }
    kiln_err_prefix(err, "%s: unknown section [%s]: it is none of engine, cache and tune, and ",
            section->where, section->name);
    return KILN_STATUS_CONFIG;
}

// "slot" or "slot/name".
static enum kiln_status check_section_name(
        const struct kiln_section *section, struct kiln_err *err) {
    char slot[KILN_INI_NAME_MAX + 1];
    const char *slash = strchr(section->name, '/');
    size_t len = slash ? (size_t)(slash - section->name) : strlen(section->name);
    memcpy(slot, section->name, len); // the reader let no longer name through
    slot[len] = '\0';
    if (kiln_slot_check(slot, 1, err) != KILN_STATUS_OK) {
        return unknown_section(section, err);
    }
    if (slash && (slash[1] == '\0' || strpbrk(slash + 1, "/.*"))) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "%s: section [%s]: what follows '/' is a name of letters, digits, '_' and '-'",
                section->where, section->name);
    }
    return KILN_STATUS_OK;
}

static int compare_rules(const void *a, const void *b) {
    const struct kiln_rule *left = a, *right = b;
    int order = kiln_rule_compare(left, right);
    return order != 0 ? order : strcmp(left->section->name, right->section->name);
}

// Two sections that some call would fit alike: a tie that would stop a run in the middle.
static enum kiln_status check_ties(const struct kiln_config *config, struct kiln_err *err) {
    for (size_t i = 0; i < config->n_rules; i++) {
        const struct kiln_rule *a = &config->rules[i];
        for (size_t j = i + 1; j < config->n_rules; j++) {
            const struct kiln_rule *b = &config->rules[j];
            if (kiln_rule_compare(a, b) != 0) {
                break; // sorted
            }
            if (a->section != b->section && kiln_slot_overlap(a->slot, b->slot) &&
                    kiln_when_overlap(&a->when, &b->when)) {
                return kiln_err_set(err, KILN_STATUS_CONFIG,
                        "%s: [%s] and [%s] (%s) have as many tests, and a call can meet both; add "
                        "a test to one of them, or a priority",
                        a->section->where, a->section->name, b->section->name, b->section->where);
            }
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_config_check(
        struct kiln_config *config, const struct kiln_catalog *catalog, struct kiln_err *err) {
    size_t cap = 0;
    if (config->broken) {
        return kiln_err_nomem(err, "the configuration");
    }
    config->catalog = *catalog;
    for (size_t i = 0; i < config->sections.count; i++) {
        const struct kiln_section *section = &config->sections.items[i];
        if (kiln_settings_has_section(section->name)) {
            KILN_TRY(kiln_settings_check(config, section, err));
            continue;
        }
        KILN_TRY(check_section_name(section, err));
        KILN_TRY(kiln_rules_add(config, &cap, section, err));
    }
    if (config->n_rules > 0) {
        qsort(config->rules, config->n_rules, sizeof(*config->rules), compare_rules);
    }
    return check_ties(config, err);
}

const struct kiln_settings *kiln_config_settings(const struct kiln_config *config) {
    return &config->settings;
}
