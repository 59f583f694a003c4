// layers: makes a config of its layers, and compares two.
#include "config/layers.h"

#include "config/config_impl.h"

#include <string.h>

static enum kiln_status add_all(
        struct kiln_config *config, const struct kiln_layers *layers, struct kiln_err *err) {
    KILN_TRY(kiln_config_add_defaults(config, err));
    for (size_t i = 0; i < layers->n_files; i++) {
        KILN_TRY(kiln_config_add_file(config, layers->files[i], err));
    }
    for (size_t i = 0; i < layers->n_sets; i++) {
        KILN_TRY(kiln_config_add_set(config, layers->sets[i], err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_config_load(struct kiln_config **config, const struct kiln_layers *layers,
        const struct kiln_catalog *catalog, struct kiln_err *err) {
    KILN_TRY(kiln_config_create(config, err));
    enum kiln_status status = add_all(*config, layers, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_config_check(*config, catalog, err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_config_destroy(*config);
        *config = NULL;
    }
    return status;
}

// ---- Comparing ----------------------------------------------------------------------------------

static int same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static int same_section(const struct kiln_section *a, const struct kiln_section *b) {
    // Which layer touched a section last decides among sections that fit alike.
    if (a->layer != b->layer || a->is_default != b->is_default || a->n_entries != b->n_entries) {
        return 0;
    }
    for (size_t i = 0; i < a->n_entries; i++) {
        const struct kiln_entry *one = &a->entries[i];
        const struct kiln_entry *other = kiln_section_find(b, one->key);
        if (!other || strcmp(one->value, other->value) != 0 || !same_text(one->dir, other->dir)) {
            return 0;
        }
    }
    return 1;
}

int kiln_config_same(const struct kiln_config *a, const struct kiln_config *b) {
    if (a->sections.count != b->sections.count || a->n_layers != b->n_layers) {
        return 0;
    }
    for (size_t i = 0; i < a->sections.count; i++) {
        const struct kiln_section *one = &a->sections.items[i];
        const struct kiln_section *other = kiln_sections_find(&b->sections, one->name);
        if (!other || !same_section(one, other)) {
            return 0;
        }
    }
    return 1;
}

const char *kiln_config_source(const struct kiln_config *config, size_t index) {
    for (size_t i = 0; i < config->n_rules; i++) {
        if (config->rules[i].source && index-- == 0) {
            return config->rules[i].source;
        }
    }
    return NULL;
}
