// settings: the sections that are not slots: one table of their keys, ranges, defaults and help.
#include "config/config_impl.h"

#include "base/mem.h"
#include "config/number.h"
#include "config/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum setting_type {
    TYPE_INT,
    TYPE_BYTES,
    TYPE_BOOL,
    TYPE_WORD,
    TYPE_PATH
};

enum setting_id {
    ID_CTX,
    ID_UBATCH,
    ID_THREADS,
    ID_KV_TYPE,
    ID_GRAPH,
    ID_DIR,
    ID_MAX_SIZE,
    ID_AT_START,
    ID_BUDGET
};

struct setting {
    enum setting_id id;
    enum setting_type type;
    const char *section, *key;
    int64_t min, max;
    int zero;      // 0 is allowed besides min..max
    int64_t value; // the default
    const char *allowed, *help;
    const char *const *words; // of a WORD, by its enum's number; ended by NULL
};

static const char *const kv_words[] = {"auto", "f32", "f16", NULL};   // enum kiln_kv_type
static const char *const graph_words[] = {"auto", "on", "off", NULL}; // enum kiln_graph_mode

// clang-format off
static const struct setting table[] = {
    {ID_CTX, TYPE_INT, "engine", "ctx", 16, 1048576, 1, 0, "0 or 16 to 1048576",
        "context length in tokens; 0: what the model was trained for, at most 4096", NULL},
    {ID_UBATCH, TYPE_INT, "engine", "ubatch", 1, 65536, 0, 512, "1 to 65536",
        "tokens of a prefill chunk", NULL},
    {ID_THREADS, TYPE_INT, "engine", "threads", 0, 1024, 0, 0, "0 to 1024",
        "CPU threads; 0: all cores", NULL},
    {ID_KV_TYPE, TYPE_WORD, "engine", "kv_type", 0, 0, 0, KILN_KV_AUTO, "auto, f32 or f16",
        "type of the KV cache; auto: f16 on GPUs, f32 on the CPU", kv_words},
    {ID_GRAPH, TYPE_WORD, "engine", "graph", 0, 0, 0, KILN_GRAPH_AUTO, "auto, on or off",
        "whether a GPU gets a decode step as one recorded graph; auto: unless a profiler listens",
        graph_words},
    {ID_DIR, TYPE_PATH, "cache", "dir", 0, 0, 0, 0, "a folder",
        "folder of compiled kernels; without it KILN_CACHE_DIR, else kiln under XDG_CACHE_HOME",
        NULL},
    {ID_MAX_SIZE, TYPE_BYTES, "cache", "max_size", 0, INT64_MAX, 0, (int64_t)1 << 30,
        "bytes, with K, M or G behind them if you like",
        "what the cache may hold; the oldest entries go first", NULL},
    {ID_AT_START, TYPE_BOOL, "tune", "at_start", 0, 1, 0, 0, "true or false",
        "tune before the first prompt when nothing is tuned for the device", NULL},
    {ID_BUDGET, TYPE_INT, "tune", "budget", 1, 86400, 0, 60, "1 to 86400",
        "seconds that one tuning may take", NULL},
};
// clang-format on
enum {
    N_SETTINGS = sizeof(table) / sizeof(table[0])
};

int kiln_settings_has_section(const char *section) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (strcmp(section, table[i].section) == 0) {
            return 1;
        }
    }
    return 0;
}

const char *kiln_settings_section_of(const char *key) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (strcmp(key, table[i].key) == 0) {
            return table[i].section;
        }
    }
    return NULL;
}

static void store(struct kiln_settings *settings, enum setting_id id, int64_t value) {
    switch (id) {
    case ID_CTX:
        settings->ctx = value;
        break;
    case ID_UBATCH:
        settings->ubatch = value;
        break;
    case ID_THREADS:
        settings->threads = value;
        break;
    case ID_KV_TYPE:
        settings->kv_type = (enum kiln_kv_type)value;
        break;
    case ID_GRAPH:
        settings->graph = (enum kiln_graph_mode)value;
        break;
    case ID_MAX_SIZE:
        settings->cache_max_size = value;
        break;
    case ID_AT_START:
        settings->tune_at_start = (int)value;
        break;
    case ID_BUDGET:
        settings->tune_budget = value;
        break;
    case ID_DIR:
    default:
        break;
    }
}

static int64_t load(const struct kiln_settings *settings, enum setting_id id) {
    switch (id) {
    case ID_CTX:
        return settings->ctx;
    case ID_UBATCH:
        return settings->ubatch;
    case ID_THREADS:
        return settings->threads;
    case ID_KV_TYPE:
        return settings->kv_type;
    case ID_GRAPH:
        return settings->graph;
    case ID_MAX_SIZE:
        return settings->cache_max_size;
    case ID_AT_START:
        return settings->tune_at_start;
    case ID_BUDGET:
        return settings->tune_budget;
    case ID_DIR:
    default:
        return 0;
    }
}

void kiln_settings_init(struct kiln_settings *settings) {
    *settings = (struct kiln_settings){.cache_dir = NULL};
    for (size_t i = 0; i < N_SETTINGS; i++) {
        store(settings, table[i].id, table[i].value);
    }
}

// 0, or -1 when the text is no value of the row.
static int parse(const struct setting *row, const char *text, int64_t *value) {
    switch (row->type) {
    case TYPE_BOOL:
        *value = strcmp(text, "true") == 0;
        return *value || strcmp(text, "false") == 0 ? 0 : -1;
    case TYPE_WORD:
        for (size_t i = 0; row->words[i]; i++) {
            if (strcmp(text, row->words[i]) == 0) {
                *value = (int64_t)i;
                return 0;
            }
        }
        return -1;
    case TYPE_INT:
    case TYPE_BYTES:
        if ((row->type == TYPE_BYTES ? kiln_bytes_parse : kiln_number_parse)(text, value) < 0) {
            return -1;
        }
        return (row->zero && *value == 0) || (*value >= row->min && *value <= row->max) ? 0 : -1;
    case TYPE_PATH:
    default:
        return -1;
    }
}

static enum kiln_status unknown_key(
        struct kiln_err *err, const struct kiln_section *section, const struct kiln_entry *entry) {
    struct kiln_words known = {.count = 0};
    char hint[KILN_WORDS_MAX];
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (strcmp(section->name, table[i].section) == 0) {
            kiln_words_add(&known, table[i].key);
        }
    }
    kiln_words_hint(hint, &known, entry->key);
    const char *other = kiln_settings_section_of(entry->key);
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_CONFIG, "unknown key%s%s%s%s",
            other ? " here, it belongs to [" : "", other ? other : "", other ? "]" : "", hint);
    (void)status;
    return kiln_entry_fail(err, KILN_STATUS_CONFIG, section, entry);
}

static enum kiln_status take_path(struct kiln_config *config, const struct kiln_section *section,
        const struct kiln_entry *entry, struct kiln_err *err) {
    kiln_free(config->cache_dir);
    config->cache_dir = NULL;
    enum kiln_status status = kiln_entry_path(entry, &config->cache_dir, err);
    config->settings.cache_dir = config->cache_dir;
    return status == KILN_STATUS_OK ? status : kiln_entry_fail(err, status, section, entry);
}

static enum kiln_status take_entry(struct kiln_config *config, const struct kiln_section *section,
        const struct kiln_entry *entry, struct kiln_err *err) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const struct setting *row = &table[i];
        int64_t value = 0;
        if (strcmp(section->name, row->section) != 0 || strcmp(entry->key, row->key) != 0) {
            continue;
        }
        if (row->type == TYPE_PATH) {
            return take_path(config, section, entry, err);
        }
        if (parse(row, entry->value, &value) < 0) {
            (void)kiln_err_set(err, KILN_STATUS_CONFIG, "'%.60s' is not allowed; allowed: %s",
                    entry->value, row->allowed);
            return kiln_entry_fail(err, KILN_STATUS_CONFIG, section, entry);
        }
        store(&config->settings, row->id, value);
        return KILN_STATUS_OK;
    }
    return unknown_key(err, section, entry);
}

enum kiln_status kiln_settings_check(
        struct kiln_config *config, const struct kiln_section *section, struct kiln_err *err) {
    for (size_t i = 0; i < section->n_entries; i++) {
        KILN_TRY(take_entry(config, section, &section->entries[i], err));
    }
    return KILN_STATUS_OK;
}

int kiln_settings_row(
        const struct kiln_config *config, size_t index, struct kiln_setting_row *row) {
    if (index >= N_SETTINGS) {
        return 0;
    }
    const struct setting *from = &table[index];
    const struct kiln_section *section = kiln_sections_find(&config->sections, from->section);
    const struct kiln_entry *entry = section ? kiln_section_find(section, from->key) : NULL;
    int64_t value = load(&config->settings, from->id);
    *row = (struct kiln_setting_row){.section = from->section,
            .key = from->key,
            .help = from->help,
            .allowed = from->allowed,
            .where = entry ? entry->where : "default",
            .is_path = from->type == TYPE_PATH,
            .path = from->type == TYPE_PATH ? config->settings.cache_dir : NULL};
    if (from->type == TYPE_BOOL) {
        (void)snprintf(row->value, sizeof(row->value), "%s", value ? "true" : "false");
    } else if (from->type == TYPE_WORD) {
        (void)snprintf(row->value, sizeof(row->value), "%s", from->words[value]);
    } else if (from->type != TYPE_PATH) {
        (void)snprintf(row->value, sizeof(row->value), "%" PRId64, value);
    }
    return 1;
}
