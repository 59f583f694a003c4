// merge: sections and entries, and how a later layer's are laid over earlier ones.
#include "config/config_impl.h"

#include "base/mem.h"

#include <string.h>

struct kiln_section *kiln_sections_find(const struct kiln_sections *sections, const char *name) {
    for (size_t i = 0; i < sections->count; i++) {
        if (strcmp(sections->items[i].name, name) == 0) {
            return &sections->items[i];
        }
    }
    return NULL;
}

struct kiln_section *kiln_sections_add(
        struct kiln_sections *sections, const char *name, const char *where) {
    if (kiln_grow(&sections->items, &sections->cap, sections->count + 1, sizeof(*sections->items)) <
            0) {
        return NULL;
    }
    struct kiln_section fresh = {.name = kiln_strdup(name), .where = kiln_strdup(where)};
    if (!fresh.name || !fresh.where) {
        kiln_free(fresh.name);
        kiln_free(fresh.where);
        return NULL;
    }
    sections->items[sections->count] = fresh;
    return &sections->items[sections->count++];
}

static struct kiln_entry *find_entry(const struct kiln_section *section, const char *key) {
    for (size_t i = 0; i < section->n_entries; i++) {
        if (strcmp(section->entries[i].key, key) == 0) {
            return &section->entries[i];
        }
    }
    return NULL;
}

const struct kiln_entry *kiln_section_find(const struct kiln_section *section, const char *key) {
    return find_entry(section, key);
}

static void finish_entry(struct kiln_entry *entry) {
    kiln_free(entry->key);
    kiln_free(entry->value);
    kiln_free(entry->where);
    kiln_free(entry->dir);
}

int kiln_section_add(struct kiln_section *section, const char *key, const char *value,
        const char *where, const char *dir, int is_default) {
    if (kiln_grow(&section->entries, &section->cap_entries, section->n_entries + 1,
                sizeof(*section->entries)) < 0) {
        return -1;
    }
    struct kiln_entry entry = {.key = kiln_strdup(key),
            .value = kiln_strdup(value),
            .where = kiln_strdup(where),
            .dir = dir ? kiln_strdup(dir) : NULL,
            .is_default = is_default};
    if (!entry.key || !entry.value || !entry.where || (dir && !entry.dir)) {
        finish_entry(&entry);
        return -1;
    }
    section->entries[section->n_entries++] = entry;
    return 0;
}

void kiln_sections_finish(struct kiln_sections *sections) {
    for (size_t i = 0; i < sections->count; i++) {
        struct kiln_section *section = &sections->items[i];
        for (size_t j = 0; j < section->n_entries; j++) {
            finish_entry(&section->entries[j]);
        }
        kiln_free(section->entries);
        kiln_free(section->name);
        kiln_free(section->where);
    }
    kiln_free(sections->items);
    *sections = (struct kiln_sections){.items = NULL};
}

int kiln_key_is_geometry(const char *key) {
    return strpbrk(key, "abcdefghijklmnopqrstuvwxyz") == NULL;
}

// Whether the layer gives the key another value than the section has.
static int names_another(
        const struct kiln_section *section, const struct kiln_section *layer, const char *key) {
    const struct kiln_entry *old = kiln_section_find(section, key);
    const struct kiln_entry *fresh = kiln_section_find(layer, key);
    return old && fresh && strcmp(old->value, fresh->value) != 0;
}

static int is_set(const char *where) {
    return strcmp(where, "--set") == 0;
}

// Takes out what belonged to the variant that a later layer replaces.
static void drop_outdated(struct kiln_section *section, const struct kiln_section *layer) {
    int variant = names_another(section, layer, "variant");
    if (!variant && !names_another(section, layer, "plugin")) {
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < section->n_entries; i++) {
        struct kiln_entry *entry = &section->entries[i];
        int outdated = kiln_key_is_geometry(entry->key) || strcmp(entry->key, "source") == 0 ||
                       (variant && strcmp(entry->key, "plugin") == 0);
        // What one command line sets belongs together, in whatever order it is written.
        if (outdated && !(is_set(entry->where) && is_set(layer->where))) {
            finish_entry(entry);
        } else {
            section->entries[kept++] = *entry;
        }
    }
    section->n_entries = kept;
}

static enum kiln_status merge_section(struct kiln_config *config, struct kiln_section *fresh,
        int is_default, struct kiln_err *err) {
    struct kiln_section *section = kiln_sections_find(&config->sections, fresh->name);
    if (!section) {
        section = kiln_sections_add(&config->sections, fresh->name, fresh->where);
        if (!section) {
            return kiln_err_nomem(err, "the configuration");
        }
        section->is_default = 1;
    }
    if (kiln_grow(&section->entries, &section->cap_entries, section->n_entries + fresh->n_entries,
                sizeof(*section->entries)) < 0) {
        return kiln_err_nomem(err, "the configuration");
    }
    section->layer = config->n_layers;
    section->is_default = section->is_default && is_default;
    drop_outdated(section, fresh);
    for (size_t i = 0; i < fresh->n_entries; i++) {
        struct kiln_entry *old = find_entry(section, fresh->entries[i].key);
        if (old) {
            finish_entry(old);
            *old = fresh->entries[i];
        } else {
            section->entries[section->n_entries++] = fresh->entries[i];
        }
    }
    fresh->n_entries = 0; // taken over
    return KILN_STATUS_OK;
}

enum kiln_status kiln_config_merge(struct kiln_config *config, struct kiln_sections *layer,
        int is_default, struct kiln_err *err) {
    config->n_layers++;
    for (size_t i = 0; i < layer->count; i++) {
        enum kiln_status status = merge_section(config, &layer->items[i], is_default, err);
        if (status != KILN_STATUS_OK) {
            config->broken = 1;
            return status;
        }
    }
    return KILN_STATUS_OK;
}
