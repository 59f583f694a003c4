// geometry: a section's UPPER_CASE keys against the schema of its variant.
#include "config/config_impl.h"

#include "base/mem.h"
#include "config/number.h"
#include "config/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct kiln_param *find_param(
        const struct kiln_variant *variant, const char *name, size_t *index) {
    for (uint32_t i = 0; variant && i < variant->n_params; i++) {
        if (strcmp(variant->params[i]->name, name) == 0) {
            *index = i;
            return variant->params[i];
        }
    }
    return NULL;
}

// A variant that does have the key, for the message; NULL when none has.
static const struct kiln_variant *owner_of(const struct kiln_catalog *catalog, const char *key) {
    size_t index = 0;
    for (size_t i = 0; i < catalog->n_plugins; i++) {
        for (uint32_t j = 0; j < catalog->plugins[i]->n_variants; j++) {
            if (find_param(catalog->plugins[i]->variants[j], key, &index)) {
                return catalog->plugins[i]->variants[j];
            }
        }
    }
    return NULL;
}

static enum kiln_status unknown_param(const struct kiln_rule *rule, const struct kiln_entry *entry,
        const struct kiln_catalog *catalog, struct kiln_err *err) {
    struct kiln_words known = {.count = 0};
    char hint[KILN_WORDS_MAX];
    for (uint32_t i = 0; rule->variant && i < rule->variant->n_params; i++) {
        kiln_words_add(&known, rule->variant->params[i]->name);
    }
    kiln_words_hint(hint, &known, entry->key);
    const struct kiln_variant *owner = owner_of(catalog, entry->key);
    (void)kiln_err_set(err, KILN_STATUS_CONFIG, "unknown geometry key of variant %s%s%s%s%s",
            rule->variant_name, owner ? " (it is one of variant " : "", owner ? owner->name : "",
            owner ? ")" : "", hint);
    return kiln_entry_fail(err, KILN_STATUS_CONFIG, rule->section, entry);
}

// What a parameter may be, for people: "16, 32 or 64", "16 to 256 in steps of 16".
static void describe(char text[256], const struct kiln_param *param) {
    size_t len = 0;
    if (!param->allowed) {
        int n = snprintf(text, 256, "%" PRId64 " to %" PRId64, param->min, param->max);
        if (param->multiple_of > 1 && n > 0) {
            (void)snprintf(
                    text + n, 256 - (size_t)n, ", multiples of %" PRId64, param->multiple_of);
        }
        return;
    }
    text[0] = '\0';
    for (uint32_t i = 0; i < param->n_allowed && len < 220; i++) {
        int n = snprintf(text + len, 256 - len, "%s%" PRId64, i > 0 ? ", " : "", param->allowed[i]);
        len += n > 0 ? (size_t)n : 0;
    }
}

static int is_allowed(const struct kiln_param *param, int64_t value) {
    for (uint32_t i = 0; param->allowed && i < param->n_allowed; i++) {
        if (param->allowed[i] == value) {
            return 1;
        }
    }
    return !param->allowed && value >= param->min && value <= param->max &&
           (param->multiple_of <= 1 || value % param->multiple_of == 0);
}

static enum kiln_status take_value(struct kiln_rule *rule, const struct kiln_entry *entry,
        const struct kiln_catalog *catalog, struct kiln_err *err) {
    size_t index = 0;
    int64_t value = 0;
    char allowed[256];
    const struct kiln_param *param = find_param(rule->variant, entry->key, &index);
    if (!param) {
        return unknown_param(rule, entry, catalog, err);
    }
    describe(allowed, param);
    if (kiln_number_parse(entry->value, &value) < 0) {
        (void)kiln_err_set(err, KILN_STATUS_CONFIG,
                "'%.60s' is not a whole number%s; allowed for variant %s: %s", entry->value,
                strchr(entry->value, '#') ? " (a comment behind a value starts with ';')" : "",
                rule->variant_name, allowed);
        return kiln_entry_fail(err, KILN_STATUS_CONFIG, rule->section, entry);
    }
    if (!is_allowed(param, value)) {
        (void)kiln_err_set(err, KILN_STATUS_CONFIG,
                "%" PRId64 " is not allowed; allowed for variant %s: %s", value, rule->variant_name,
                allowed);
        return kiln_entry_fail(err, KILN_STATUS_CONFIG, rule->section, entry);
    }
    rule->values[index] = value;
    rule->given[index] = entry;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_geometry_check(
        struct kiln_rule *rule, const struct kiln_catalog *catalog, struct kiln_err *err) {
    size_t n = rule->variant ? rule->variant->n_params : 0;
    if (n > 0) {
        rule->names = kiln_calloc(n, sizeof(*rule->names));
        rule->values = kiln_calloc(n, sizeof(*rule->values));
        // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers is meant
        rule->given = kiln_calloc(n, sizeof(*rule->given));
        if (!rule->names || !rule->values || !rule->given) {
            return kiln_err_nomem(err, "the geometry");
        }
    }
    for (size_t i = 0; i < n; i++) {
        rule->names[i] = rule->variant->params[i]->name;
    }
    for (size_t i = 0; i < rule->section->n_entries; i++) {
        const struct kiln_entry *entry = &rule->section->entries[i];
        if (kiln_key_is_geometry(entry->key)) {
            KILN_TRY(take_value(rule, entry, catalog, err));
        }
    }
    return KILN_STATUS_OK;
}

int64_t kiln_param_default_for(
        const struct kiln_param *param, int64_t head_size, const struct kiln_device *device) {
    int32_t cc = device ? device->cc : 0;
    for (uint32_t i = 0; i < param->n_defaults; i++) {
        const struct kiln_param_default *row = param->defaults[i];
        if ((row->head_size == 0 || row->head_size == head_size) &&
                (row->target_min == 0 || cc >= row->target_min) &&
                (row->target_max == 0 || cc <= row->target_max)) {
            return row->value;
        }
    }
    return param->value;
}
