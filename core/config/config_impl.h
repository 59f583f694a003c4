// config_impl: what a config is inside: merged sections of entries, and the rules and settings that
// come of them.
//
// Private to core/config. config.c reads layers, merge.c merges them, rule.c, geometry.c and
// settings.c turn sections into rules and settings, bind.c picks among the rules, show.c prints.
#ifndef KILN_CONFIG_CONFIG_IMPL_H
#define KILN_CONFIG_CONFIG_IMPL_H

#include "config/config.h"
#include "config/when.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

// KEY = VALUE as read. The strings are owned.
struct kiln_entry {
    char *key;
    char *value;
    char *where;    // "configs/x.ini:12", "--set", "built-in:3"
    char *dir;      // what a relative path in the value is relative to; NULL: the current folder
    int is_default; // from the built-in layer or configs/default.ini
};

struct kiln_section {
    char *name;  // "attention.prefill/small"
    char *where; // of its header
    struct kiln_entry *entries;
    size_t n_entries, cap_entries;
    unsigned layer; // the last one that touched it
    int is_default; // no other layer touched it
};

struct kiln_sections {
    struct kiln_section *items;
    size_t count, cap;
};

// A binding as instantiated for a call: the same rule and values give the same one.
struct kiln_bound {
    struct kiln_binding binding;
    struct kiln_bound *next;
    int64_t values[]; // (variant's parameters)
};

// A checked slot section.
struct kiln_rule {
    const struct kiln_section *section;
    char *slot; // without "/name"
    const char *variant_name;
    const char *origin; // of the variant
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant; // NULL: kiln's own policy, or absent
    int absent;                         // a default whose variant no loaded plugin has
    int wildcard;
    int64_t priority;
    struct kiln_when when;
    char *source; // absolute path, or NULL
    // One for each parameter of the variant; NULL when it has none.
    const char **names;
    int64_t *values;
    const struct kiln_entry **given; // the entry that sets it, or NULL: the default
    struct kiln_bound *bound;
};

struct kiln_config {
    struct kiln_sections sections; // merged, in order of first appearance
    char **files;
    size_t n_files, cap_files;
    unsigned n_layers;
    int broken; // a layer was merged in part because memory ran out
    struct kiln_settings settings;
    char *cache_dir;
    struct kiln_catalog catalog;
    struct kiln_rule *rules; // best first
    size_t n_rules;
    pthread_mutex_t lock; // of the rules' lists of bound
};

// The text of the built-in layer (defaults.c).
extern const char kiln_config_builtin[];
#define KILN_CONFIG_BUILTIN_NAME "built-in"

// ---- Sections and entries (merge.c) -------------------------------------------------------------

struct kiln_section *kiln_sections_find(const struct kiln_sections *sections, const char *name);
// Adds an empty section; NULL when memory runs out.
struct kiln_section *kiln_sections_add(
        struct kiln_sections *sections, const char *name, const char *where);
const struct kiln_entry *kiln_section_find(const struct kiln_section *section, const char *key);
// Adds an entry with copies of the strings. -1 when memory runs out.
int kiln_section_add(struct kiln_section *section, const char *key, const char *value,
        const char *where, const char *dir, int is_default);
void kiln_sections_finish(struct kiln_sections *sections);
// Whether a key is geometry: it has no lower-case letter.
int kiln_key_is_geometry(const char *key);

// Merges a layer into the config, taking its entries over; config.h says how. On failure (memory)
// the config is broken for good.
KILN_MUST_CHECK enum kiln_status kiln_config_merge(struct kiln_config *config,
        struct kiln_sections *layer, int is_default, struct kiln_err *err);

// ---- Checks (check.c, rule.c, settings.c, geometry.c) -------------------------------------------

// "WHERE: [SECTION] KEY: " in front of what err says.
enum kiln_status kiln_entry_fail(struct kiln_err *err, enum kiln_status status,
        const struct kiln_section *section, const struct kiln_entry *entry);
// The entry's value as an absolute path: relative to its file's folder. The caller frees *path.
// Refused: what could not be written into an INI file again.
KILN_MUST_CHECK enum kiln_status kiln_entry_path(
        const struct kiln_entry *entry, char **path, struct kiln_err *err);

int kiln_settings_has_section(const char *section);
// The section that has this key, or NULL.
const char *kiln_settings_section_of(const char *key);
void kiln_settings_init(struct kiln_settings *settings);
KILN_MUST_CHECK enum kiln_status kiln_settings_check(
        struct kiln_config *config, const struct kiln_section *section, struct kiln_err *err);
// A row of the schema with the value in force.
struct kiln_setting_row {
    const char *section, *key, *help;
    const char *allowed; // for people: "0 or 16 to 1048576"
    const char *where;   // of the value; "default"
    const char *path;    // of a key that names a folder: the value, NULL when it is not set
    int is_path;
    char value[64]; // as INI reads it, of the other keys
};
// Row `index`; 0 past the end.
int kiln_settings_row(const struct kiln_config *config, size_t index, struct kiln_setting_row *row);

// Fills rule->names, values and given from the section's UPPER_CASE keys. Values are those of the
// file; where it gives none the default is found when a call is bound.
KILN_MUST_CHECK enum kiln_status kiln_geometry_check(
        struct kiln_rule *rule, const struct kiln_catalog *catalog, struct kiln_err *err);
// The default of a parameter for a head size and a device.
int64_t kiln_param_default_for(
        const struct kiln_param *param, int64_t head_size, const struct kiln_device *device);

// Makes the rules of one slot section and adds them to config->rules (room for cap_rules).
KILN_MUST_CHECK enum kiln_status kiln_rules_add(struct kiln_config *config, size_t *cap_rules,
        const struct kiln_section *section, struct kiln_err *err);
// Ends what a rule owns.
void kiln_rule_finish(struct kiln_rule *rule);
// < 0: a is looked at before b; 0: a tie.
int kiln_rule_compare(const struct kiln_rule *a, const struct kiln_rule *b);
// Whether the variant fills a slot that `slot` (which may have a "*") names.
int kiln_variant_overlaps(const struct kiln_variant *variant, const char *slot);

#endif
