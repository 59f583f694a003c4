// show: the effective config as INI text and as JSON.
//
// The text reads back as the same config: paths are absolute, and since in one file all sections
// are of one layer, the order among them is written as `priority`. What a variant takes by default
// stays a comment, because it may depend on the head size and the device.
#include "config/config_impl.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "config/ini_lines.h"
#include "config/number.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

// ---- The order among sections -------------------------------------------------------------------

static int same_rank(const struct kiln_rule *a, const struct kiln_rule *b) {
    return a->section->layer == b->section->layer && a->priority == b->priority;
}

// How many groups of equal layer and priority stand behind the rule: its priority in one file. What
// is left out of the text does not count.
static int64_t rank_of(const struct kiln_config *config, size_t index) {
    int64_t rank = 0;
    const struct kiln_rule *last = &config->rules[index];
    for (size_t i = index + 1; i < config->n_rules; i++) {
        const struct kiln_rule *rule = &config->rules[i];
        if (!rule->absent) {
            rank += !same_rank(last, rule);
            last = rule;
        }
    }
    return rank;
}

// The first rule of a section; the others repeat it for further variants of the same name.
static int is_repeat(const struct kiln_config *config, size_t index) {
    return index > 0 && config->rules[index].section == config->rules[index - 1].section;
}

// ---- Text ---------------------------------------------------------------------------------------

// "KEY = VALUE ; from WHERE". A file may be named anything: what would end the line shows as '?',
// and a comment that would make the line too long to read back stands in front of it, cut.
static void show_value(
        struct kiln_buf *text, const char *key, const char *value, const char *where) {
    char shown[KILN_INI_LINE_MAX - 16];
    size_t n = strlen(where) < sizeof(shown) ? strlen(where) : sizeof(shown) - 1;
    for (size_t i = 0; i < n; i++) {
        shown[i] = (unsigned char)where[i] < 0x20 ? '?' : where[i];
    }
    shown[n] = '\0';
    kiln_utf8_trim(shown);
    const char *from = strcmp(where, "default") == 0 ? "" : "from ";
    if (strlen(key) + strlen(value) + n + sizeof(" =  ; from ") > KILN_INI_LINE_MAX) {
        kiln_buf_printf(text, "; %s%s\n%s = %s\n", from, shown, key, value);
    } else {
        kiln_buf_printf(text, "%s = %s ; %s%s\n", key, value, from, shown);
    }
}

static void show_settings(const struct kiln_config *config, struct kiln_buf *text) {
    struct kiln_setting_row row;
    const char *section = "";
    for (size_t i = 0; kiln_settings_row(config, i, &row); i++) {
        if (strcmp(section, row.section) != 0) {
            kiln_buf_printf(text, "%s[%s]\n", *section ? "\n" : "", row.section);
            section = row.section;
        }
        if (row.is_path && !row.path) {
            kiln_buf_printf(text, "; %s is not set: %s\n", row.key, row.help);
        } else {
            show_value(text, row.key, row.is_path ? row.path : row.value, row.where);
        }
    }
}

static void show_entry(
        struct kiln_buf *text, const struct kiln_rule *rule, const char *key, const char *value) {
    const struct kiln_entry *entry = kiln_section_find(rule->section, key);
    if (entry) {
        show_value(text, key, value ? value : entry->value, entry->where);
    }
}

static void show_geometry(struct kiln_buf *text, const struct kiln_rule *rule) {
    for (uint32_t i = 0; rule->variant && i < rule->variant->n_params; i++) {
        const struct kiln_param *param = rule->variant->params[i];
        if (rule->given[i]) {
            show_entry(text, rule, param->name, NULL);
        } else {
            kiln_buf_printf(text, "; %s = %" PRId64 " by default%s\n", param->name, param->value,
                    param->n_defaults > 0 ? ", unless head size or device say otherwise" : "");
        }
    }
}

static void show_rule(const struct kiln_config *config, size_t index, struct kiln_buf *text) {
    const struct kiln_rule *rule = &config->rules[index];
    if (rule->absent) { // a default; as a section it would be an error where the text is read back
        kiln_buf_printf(text, "\n; [%s] variant = %s is left out: no loaded plugin has it\n",
                rule->section->name, rule->variant_name);
        return;
    }
    kiln_buf_printf(text, "\n[%s]\n", rule->section->name);
    show_entry(text, rule, "plugin", NULL);
    if (rule->plugin && !kiln_section_find(rule->section, "plugin")) {
        kiln_buf_printf(text, "; plugin %s\n", rule->plugin->name);
    }
    show_entry(text, rule, "variant", NULL);
    show_entry(text, rule, "when", NULL);
    kiln_buf_printf(
            text, "priority = %" PRId64 " ; the order of the layers\n", rank_of(config, index));
    show_entry(text, rule, "source", rule->source);
    show_geometry(text, rule);
}

void kiln_config_show(const struct kiln_config *config, struct kiln_buf *text) {
    show_settings(config, text);
    kiln_buf_puts(text, "\n; A call is bound by the first section below that fits it.\n");
    for (size_t i = 0; i < config->n_rules; i++) {
        if (!is_repeat(config, i)) {
            show_rule(config, i, text);
        }
    }
}

// ---- JSON ---------------------------------------------------------------------------------------
// jansson takes over what it is given also where it fails, and fails where it is given NULL: one
// check for each object is enough.

static json_t *text_or_null(const char *text) {
    return text ? json_string(text) : json_null();
}

static json_t *settings_json(const struct kiln_config *config) {
    struct kiln_setting_row row;
    json_t *all = json_object();
    for (size_t i = 0; all && kiln_settings_row(config, i, &row); i++) {
        int64_t number = 0;
        char *key = kiln_asprintf("%s.%s", row.section, row.key);
        json_t *value = row.is_path                                  ? text_or_null(row.path)
                        : kiln_number_parse(row.value, &number) == 0 ? json_integer(number)
                        : strcmp(row.value, "true") == 0             ? json_true()
                        : strcmp(row.value, "false") == 0            ? json_false()
                                                                     : json_string(row.value);
        json_t *entry = json_pack("{s:o, s:s}", "value", value, "origin", row.where);
        if (json_object_set_new(all, key, entry) < 0) {
            json_decref(all);
            all = NULL;
        }
        kiln_free(key);
    }
    return all;
}

static json_t *geometry_json(const struct kiln_rule *rule) {
    json_t *all = json_object();
    uint32_t n = rule->variant ? rule->variant->n_params : 0;
    for (uint32_t i = 0; all && i < n; i++) {
        const struct kiln_param *param = rule->variant->params[i];
        const struct kiln_entry *given = rule->given[i];
        json_t *entry = json_pack("{s:I, s:s}", "value",
                (json_int_t)(given ? rule->values[i] : param->value), "origin",
                given ? given->where : "default");
        if (json_object_set_new(all, param->name, entry) < 0) {
            json_decref(all);
            all = NULL;
        }
    }
    return all;
}

static json_t *rule_json(const struct kiln_config *config, size_t index) {
    const struct kiln_rule *rule = &config->rules[index];
    const struct kiln_entry *when = kiln_section_find(rule->section, "when");
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:s, s:b, s:o, s:s, s:o}", "section",
            rule->section->name, "slot", rule->slot, "when",
            text_or_null(when ? when->value : NULL), "priority", (json_int_t)rank_of(config, index),
            "plugin", text_or_null(rule->plugin ? rule->plugin->name : NULL), "variant",
            rule->variant_name, "loaded", !rule->absent, "source", text_or_null(rule->source),
            "origin", rule->origin, "geometry", geometry_json(rule));
}

static json_t *rules_json(const struct kiln_config *config) {
    json_t *all = json_array();
    for (size_t i = 0; all && i < config->n_rules; i++) {
        if (json_array_append_new(all, rule_json(config, i)) < 0) {
            json_decref(all);
            all = NULL;
        }
    }
    return all;
}

static int append_json(const char *bytes, size_t len, void *text) {
    kiln_buf_append(text, bytes, len);
    return 0;
}

enum kiln_status kiln_config_show_json(
        const struct kiln_config *config, struct kiln_buf *text, struct kiln_err *err) {
    json_t *document = json_pack(
            "{s:o, s:o}", "settings", settings_json(config), "bindings", rules_json(config));
    int failed = !document || json_dump_callback(document, append_json, text, JSON_INDENT(2)) < 0;
    json_decref(document);
    kiln_buf_puts(text, "\n");
    if (failed || text->failed) {
        return kiln_err_set(err, KILN_STATUS_NOMEM,
                "the configuration cannot be written as JSON: memory ran out, or the path of a "
                "file is not UTF-8");
    }
    return KILN_STATUS_OK;
}
