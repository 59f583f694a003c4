// ledger_gate: what a gate's result says of one slot.
#include "lab/ledger_impl.h"

#include "config/ini_lines.h"

#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

// "attention.prefill" and "matmul.*.prefill" either way round; a section's "/label" does not count.
static int is_of(const char *section, const char *slot) {
    char name[KILN_INI_NAME_MAX + 1];
    size_t len = strcspn(section, "/");
    if (len >= sizeof(name)) {
        return 0;
    }
    memcpy(name, section, len);
    name[len] = '\0';
    return fnmatch(slot, name, 0) == 0 || fnmatch(name, slot, 0) == 0;
}

// ---- Parity: its cases have slots ---------------------------------------------------------------

static const char *parity_verdict(const json_t *result, const char *slot) {
    size_t i, passed = 0, failed = 0;
    const json_t *detail;
    json_array_foreach(json_object_get(result, "cases"), i, detail) {
        const char *what = kiln_json_string(detail, "result", "");
        if (is_of(kiln_json_string(detail, "slot", ""), slot)) {
            passed += strcmp(what, "passed") == 0;
            failed += strcmp(what, "failed") == 0;
        }
    }
    return failed > 0 ? "FAIL" : passed > 0 ? "PASS" : NULL;
}

// ---- The other gates: two configurations --------------------------------------------------------

struct reading {
    json_t *settings; // "section\nKEY": value
    const char *slot; // whose sections are read
};

static enum kiln_status add_setting(void *arg, const char *section, const char *key,
        const char *value, unsigned line, struct kiln_err *err) {
    (void)line;
    const struct reading *reading = arg;
    char name[2 * KILN_INI_NAME_MAX + 2];
    if (!is_of(section, reading->slot)) {
        return KILN_STATUS_OK;
    }
    snprintf(name, sizeof(name), "%s\n%s", section, key ? key : "");
    return json_object_set_new(reading->settings, name, json_string(value ? value : "")) == 0
                   ? KILN_STATUS_OK
                   : kiln_err_nomem(err, "a gate's settings");
}

// What a config's text says of a slot; NULL: it cannot be read.
static json_t *settings_of(const char *text, const char *slot) {
    struct kiln_err err = {0};
    struct reading reading = {.settings = json_object(), .slot = slot};
    if (!reading.settings || kiln_ini_read("config", text, strlen(text), add_setting, &reading,
                                     &err) != KILN_STATUS_OK) {
        json_decref(reading.settings);
        return NULL;
    }
    return reading.settings;
}

// Whether the change that was gated is one of the slot's.
static int changes_slot(const json_t *row, const char *slot) {
    const char *base = kiln_json_string(row, "base_config", NULL);
    const char *change = kiln_json_string(row, "config", NULL);
    json_t *before = base ? settings_of(base, slot) : NULL;
    json_t *after = change ? settings_of(change, slot) : NULL;
    int changes = before && after && !json_equal(before, after);
    json_decref(before);
    json_decref(after);
    return changes;
}

const char *kiln_result_gate_verdict(const struct json_t *row, const char *gate, const char *slot) {
    const json_t *result = json_object_get(row, "result");
    if (strcmp(kiln_json_string(row, "kind", ""), "gate") != 0 ||
            strcmp(kiln_json_string(result, "gate", ""), gate) != 0) {
        return NULL;
    }
    if (slot && strcmp(gate, "parity") == 0) {
        return parity_verdict(result, slot);
    }
    return !slot || changes_slot(row, slot) ? kiln_json_string(result, "verdict", NULL) : NULL;
}
