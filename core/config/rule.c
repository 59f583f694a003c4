// rule: a slot section checked: which plugin's variant it names, when, with what source.
//
// Not here: geometry (geometry.c), which rule a call gets (bind.c).
#include "config/config_impl.h"

#include "base/mem.h"
#include "config/number.h"
#include "config/slot.h"
#include "config/words.h"
#include "jit/source_files.h"

#include <string.h>

enum {
    MAX_PRIORITY = 1000000
};

static const struct kiln_words own_keys = {
        .names = {"plugin", "variant", "when", "priority", "source"}, .count = 5};

void kiln_rule_finish(struct kiln_rule *rule) {
    while (rule->bound) {
        struct kiln_bound *next = rule->bound->next;
        kiln_free(rule->bound);
        rule->bound = next;
    }
    kiln_free(rule->slot);
    kiln_free(rule->source);
    kiln_free(rule->names);
    kiln_free(rule->values);
    kiln_free(rule->given);
    kiln_when_finish(&rule->when);
}

int kiln_rule_compare(const struct kiln_rule *a, const struct kiln_rule *b) {
    if (a->section->layer != b->section->layer) {
        return a->section->layer > b->section->layer ? -1 : 1;
    }
    if (a->priority != b->priority) {
        return a->priority > b->priority ? -1 : 1;
    }
    if (a->wildcard != b->wildcard) {
        return a->wildcard - b->wildcard;
    }
    if (a->when.n_tests != b->when.n_tests) {
        return a->when.n_tests > b->when.n_tests ? -1 : 1;
    }
    return 0;
}

int kiln_variant_overlaps(const struct kiln_variant *variant, const char *slot) {
    for (uint32_t i = 0; i < variant->n_slots; i++) {
        if (kiln_slot_overlap(variant->slots[i], slot)) {
            return 1;
        }
    }
    return 0;
}

// Policies of kiln's own, which no plugin brings.
static int is_policy(const char *slot, const char *name) {
    return strcmp(slot, "quantize") == 0 &&
           (strcmp(name, "separate") == 0 || strcmp(name, "shared") == 0);
}

// ---- Which variant ------------------------------------------------------------------------------

// What a look through the plugins found for a name.
struct found {
    const struct kiln_plugin *plugin;     // the first that has it
    const struct kiln_variant *variant;   // its nth of that name for the slot
    size_t count;                         // how many of that name it has for the slot
    const struct kiln_plugin *other;      // a second plugin that has it too
    const struct kiln_variant *elsewhere; // of that name, but for other slots
};

static void look_at(struct found *found, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, const char *slot, size_t nth) {
    if (!kiln_variant_overlaps(variant, slot)) {
        found->elsewhere = variant;
    } else if (found->plugin && found->plugin != plugin) {
        found->other = plugin;
    } else {
        found->plugin = plugin;
        found->variant = found->count++ == nth ? variant : found->variant;
    }
}

static struct found look_for(const struct kiln_catalog *catalog, const char *plugin,
        const char *name, const char *slot, size_t nth) {
    struct found found = {.plugin = NULL};
    for (size_t i = 0; i < catalog->n_plugins; i++) {
        const struct kiln_plugin *at = catalog->plugins[i];
        if (plugin && strcmp(plugin, at->name) != 0) {
            continue;
        }
        for (uint32_t j = 0; j < at->n_variants; j++) {
            if (strcmp(at->variants[j]->name, name) == 0) {
                look_at(&found, at, at->variants[j], slot, nth);
            }
        }
    }
    return found;
}

static int has_plugin(const struct kiln_catalog *catalog, const char *name) {
    for (size_t i = 0; i < catalog->n_plugins; i++) {
        if (strcmp(catalog->plugins[i]->name, name) == 0) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_status unknown_plugin(const struct kiln_config *config,
        const struct kiln_section *section, const struct kiln_entry *plugin, struct kiln_err *err) {
    struct kiln_words known = {.count = 0};
    char hint[KILN_WORDS_MAX];
    for (size_t i = 0; i < config->catalog.n_plugins; i++) {
        kiln_words_add(&known, config->catalog.plugins[i]->name);
    }
    kiln_words_hint(hint, &known, plugin->value);
    (void)kiln_err_set(
            err, KILN_STATUS_CONFIG, "no plugin '%.60s' is loaded%s", plugin->value, hint);
    return kiln_entry_fail(err, KILN_STATUS_CONFIG, section, plugin);
}

static enum kiln_status unknown_variant(const struct kiln_config *config,
        const struct kiln_rule *rule, const struct kiln_entry *variant,
        const struct kiln_entry *plugin, const struct kiln_variant *elsewhere,
        struct kiln_err *err) {
    struct kiln_words known = {.count = 0};
    char hint[KILN_WORDS_MAX];
    for (size_t i = 0; i < config->catalog.n_plugins; i++) {
        const struct kiln_plugin *at = config->catalog.plugins[i];
        for (uint32_t j = 0; j < at->n_variants; j++) {
            if ((!plugin || strcmp(plugin->value, at->name) == 0) &&
                    kiln_variant_overlaps(at->variants[j], rule->slot)) {
                kiln_words_add(&known, at->variants[j]->name);
            }
        }
    }
    if (!plugin && strcmp(rule->slot, "quantize") == 0) {
        kiln_words_add(&known, "separate");
        kiln_words_add(&known, "shared");
    }
    kiln_words_hint(hint, &known, variant->value);
    (void)kiln_err_set(err, KILN_STATUS_CONFIG, "no variant '%.60s' of %s%s fills slot %s%s%s%s%s",
            variant->value, plugin ? "plugin " : "the plugins loaded", plugin ? plugin->value : "",
            rule->slot, elsewhere ? " (it fills " : "",
            elsewhere && elsewhere->n_slots > 0 ? elsewhere->slots[0] : "", elsewhere ? ")" : "",
            hint);
    return kiln_entry_fail(err, KILN_STATUS_CONFIG, rule->section, variant);
}

static enum kiln_status no_variant(const struct kiln_rule *rule, struct kiln_err *err) {
    const struct kiln_section *section = rule->section;
    return kiln_err_set(err, KILN_STATUS_CONFIG,
            "%s: [%s] binds no variant: no layer gives this section a `variant`; add variant = "
            "NAME "
            "(`kiln plugins list` shows them)",
            section->n_entries > 0 ? section->entries[0].where : section->where, section->name);
}

// Finds rule->plugin and rule->variant, or marks the rule as policy or absent. *count: how many
// variants of the name the plugin has for the section's slots, of which the nth is taken.
static enum kiln_status resolve(const struct kiln_config *config, struct kiln_rule *rule,
        size_t nth, size_t *count, struct kiln_err *err) {
    const struct kiln_entry *variant = kiln_section_find(rule->section, "variant");
    const struct kiln_entry *plugin = kiln_section_find(rule->section, "plugin");
    if (!variant) {
        return no_variant(rule, err);
    }
    rule->variant_name = variant->value;
    rule->origin = variant->where;
    if (!plugin && is_policy(rule->slot, variant->value)) {
        return KILN_STATUS_OK;
    }
    struct found found = look_for(
            &config->catalog, plugin ? plugin->value : NULL, variant->value, rule->slot, nth);
    *count = found.count;
    if (found.other) {
        (void)kiln_err_set(err, KILN_STATUS_CONFIG,
                "variant %s for slot %s is in the plugins %s and %s; say which: plugin = %s",
                variant->value, rule->slot, found.plugin->name, found.other->name,
                found.plugin->name);
        return kiln_entry_fail(err, KILN_STATUS_CONFIG, rule->section, variant);
    }
    rule->plugin = found.plugin;
    rule->variant = found.variant;
    rule->absent = !found.variant;
    if (found.variant || rule->section->is_default) {
        return KILN_STATUS_OK;
    }
    if (plugin && !has_plugin(&config->catalog, plugin->value)) {
        return unknown_plugin(config, rule->section, plugin, err);
    }
    return unknown_variant(config, rule, variant, plugin, found.elsewhere, err);
}

// ---- The other keys -----------------------------------------------------------------------------

static enum kiln_status unknown_key(
        const struct kiln_rule *rule, const struct kiln_entry *entry, struct kiln_err *err) {
    struct kiln_words known = own_keys;
    char hint[KILN_WORDS_MAX];
    for (uint32_t i = 0; rule->variant && i < rule->variant->n_params; i++) {
        kiln_words_add(&known, rule->variant->params[i]->name);
    }
    kiln_words_hint(hint, &known, entry->key);
    const char *other = kiln_settings_section_of(entry->key);
    (void)kiln_err_set(err, KILN_STATUS_CONFIG, "unknown key%s%s%s%s",
            other ? " here, it belongs to [" : "", other ? other : "", other ? "]" : "", hint);
    return kiln_entry_fail(err, KILN_STATUS_CONFIG, rule->section, entry);
}

static enum kiln_status take_priority(
        struct kiln_rule *rule, const struct kiln_entry *entry, struct kiln_err *err) {
    int64_t value = 0;
    if (kiln_number_parse(entry->value, &value) < 0 || value < 0 || value > MAX_PRIORITY) {
        (void)kiln_err_set(err, KILN_STATUS_CONFIG, "'%.60s' is not allowed; allowed: 0 to %d",
                entry->value, MAX_PRIORITY);
        return kiln_entry_fail(err, KILN_STATUS_CONFIG, rule->section, entry);
    }
    rule->priority = value;
    return KILN_STATUS_OK;
}

// The file has to be there, and to be for a kernel of the variant at least.
static enum kiln_status check_source(const struct kiln_rule *rule, struct kiln_err *err) {
    struct kiln_source_files files;
    struct kiln_words known = {.count = 0};
    char names[KILN_WORDS_MAX];
    int found = 0;
    enum kiln_status status = kiln_source_files_read(&files, rule->source, err);
    for (uint32_t i = 0; status == KILN_STATUS_OK && i < rule->variant->n_kernels; i++) {
        const struct kiln_kernel *kernel = rule->variant->kernels[i];
        if (!kernel->source) { // one for the host
            continue;
        }
        kiln_words_add(&known, kernel->name);
        found |= kernel->instance != NULL || kiln_source_files_spell(&files, kernel->name);
    }
    kiln_source_files_finish(&files);
    if (status != KILN_STATUS_OK || found) {
        return status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM ? status
                                                                       : KILN_STATUS_CONFIG;
    }
    kiln_words_list(names, "", &known);
    return kiln_err_set(err, KILN_STATUS_CONFIG,
            "%s has none of the kernels of variant %s: extern \"C\" __global__ void NAME(...), "
            "NAME "
            "one of %s",
            rule->source, rule->variant_name, names);
}

static enum kiln_status take_source(
        struct kiln_rule *rule, const struct kiln_entry *entry, struct kiln_err *err) {
    enum kiln_status status = KILN_STATUS_OK;
    if (!rule->variant || !(rule->variant->devices & KILN_DEVICE_CUDA)) {
        status = kiln_err_set(err, KILN_STATUS_CONFIG,
                "variant %s has no CUDA source that a file could replace", rule->variant_name);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_entry_path(entry, &rule->source, err);
    }
    if (status == KILN_STATUS_OK) {
        status = check_source(rule, err);
    }
    return status == KILN_STATUS_OK ? status : kiln_entry_fail(err, status, rule->section, entry);
}

static enum kiln_status take_when(
        struct kiln_rule *rule, const struct kiln_entry *entry, struct kiln_err *err) {
    enum kiln_status status = kiln_when_parse(&rule->when, entry->value, err);
    return status == KILN_STATUS_OK ? status : kiln_entry_fail(err, status, rule->section, entry);
}

static enum kiln_status take_keys(struct kiln_rule *rule, struct kiln_err *err) {
    for (size_t i = 0; i < rule->section->n_entries; i++) {
        const struct kiln_entry *entry = &rule->section->entries[i];
        if (kiln_key_is_geometry(entry->key)) {
            continue;
        }
        if (!kiln_words_has(&own_keys, entry->key)) {
            return unknown_key(rule, entry, err);
        }
        if (strcmp(entry->key, "when") == 0) {
            KILN_TRY(take_when(rule, entry, err));
        } else if (strcmp(entry->key, "priority") == 0) {
            KILN_TRY(take_priority(rule, entry, err));
        } else if (strcmp(entry->key, "source") == 0 && !rule->absent) {
            KILN_TRY(take_source(rule, entry, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status fill(const struct kiln_config *config, struct kiln_rule *rule, size_t nth,
        size_t *count, struct kiln_err *err) {
    const char *name = rule->section->name;
    rule->slot = kiln_strndup(name, strcspn(name, "/"));
    if (!rule->slot) {
        return kiln_err_nomem(err, "a binding");
    }
    rule->wildcard = strchr(rule->slot, '*') != NULL;
    KILN_TRY(resolve(config, rule, nth, count, err));
    KILN_TRY(take_keys(rule, err));
    return rule->absent ? KILN_STATUS_OK : kiln_geometry_check(rule, &config->catalog, err);
}

// A "*" section may name several variants at once: one plugin's of one name, for some types each.
enum kiln_status kiln_rules_add(struct kiln_config *config, size_t *cap_rules,
        const struct kiln_section *section, struct kiln_err *err) {
    size_t count = 1;
    for (size_t nth = 0; nth < count; nth++) {
        if (kiln_grow(&config->rules, cap_rules, config->n_rules + 1, sizeof(*config->rules)) < 0) {
            return kiln_err_nomem(err, "the bindings");
        }
        // Counted before it is filled, so that whatever it came to own is freed with the config.
        struct kiln_rule *rule = &config->rules[config->n_rules++];
        *rule = (struct kiln_rule){.section = section};
        KILN_TRY(fill(config, rule, nth, &count, err));
    }
    return KILN_STATUS_OK;
}
