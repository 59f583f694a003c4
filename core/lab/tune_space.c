// tune_space: schemas and text to axes, and the arithmetic between numbers and values.
#include "lab/tune_space.h"

#include "config/number.h"
#include "config/words.h"
#include "plugin/schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    FULL_RANGE = 8,     // values of a range that are all taken
    MAX_ENTRIES = 64,   // of the text
    MAX_TOKENS = 64,    // values of one
    MAX_COUNT = 1 << 30 // candidates
};

struct entry {
    const char *key;
    const char *tokens[MAX_TOKENS];
    size_t n_tokens;
    int used;                // a variant has the key
    int allowed[MAX_TOKENS]; // a variant allows the value
};

struct making {
    struct kiln_tune_space *space;
    const struct kiln_tune_space_params *params;
    struct entry *entries;
    size_t n_entries;
    size_t cap_parts;
};

void kiln_tune_space_finish(struct kiln_tune_space *space) {
    kiln_arena_finish(&space->arena);
    *space = (struct kiln_tune_space){.parts = NULL};
}

static enum kiln_status nomem(struct kiln_err *err) {
    return kiln_err_nomem(err, "the space of a sweep");
}

// ---- Text ---------------------------------------------------------------------------------------

static struct entry *find_entry(const struct making *making, const char *key) {
    for (size_t i = 0; i < making->n_entries; i++) {
        if (strcmp(making->entries[i].key, key) == 0) {
            return &making->entries[i];
        }
    }
    return NULL;
}

static int has_token(const struct entry *entry, const char *token) {
    for (size_t i = 0; i < entry->n_tokens; i++) {
        if (strcmp(entry->tokens[i], token) == 0) {
            return 1;
        }
    }
    return 0;
}

// "FA_TKV=16,32": cut in place.
static enum kiln_status read_entry(struct making *making, char *text, struct kiln_err *err) {
    char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1]) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--space '%.80s': entries are KEY=VALUE,VALUE, variant=NAME,NAME or *=default",
                text);
    }
    *equals = '\0';
    if (find_entry(making, text)) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "--space: %.60s is narrowed twice; give it once", text);
    }
    if (making->n_entries == MAX_ENTRIES) {
        return kiln_err_set(
                err, KILN_STATUS_USAGE, "--space: more than %d entries", (int)MAX_ENTRIES);
    }
    struct entry *entry = &making->entries[making->n_entries++];
    entry->key = text;
    for (char *at = equals + 1; at;) {
        char *comma = strchr(at, ',');
        if (comma) {
            *comma = '\0';
        }
        if (!*at || entry->n_tokens == MAX_TOKENS) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "--space %.60s: 1 to %d values separated by commas, none of them empty", text,
                    (int)MAX_TOKENS);
        }
        if (!has_token(entry, at)) {
            entry->tokens[entry->n_tokens++] = at;
        }
        at = comma ? comma + 1 : NULL;
    }
    if (strcmp(text, "*") == 0 && strcmp(entry->tokens[0], "default") != 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--space *=%.60s: '*' stands for every key that is not named; only *=default is "
                "known",
                entry->tokens[0]);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_text(struct making *making, const char *text, struct kiln_err *err) {
    static const char between[] = " \t\n;";
    char *copy = kiln_arena_strdup(&making->space->arena, text);
    if (!copy) {
        return nomem(err);
    }
    for (char *at = copy + strspn(copy, between); *at;) {
        char *end = at + strcspn(at, between);
        char *next = end + strspn(end, between);
        *end = '\0';
        KILN_TRY(read_entry(making, at, err));
        at = next;
    }
    return KILN_STATUS_OK;
}

// ---- Axes ---------------------------------------------------------------------------------------

static void add_value(struct kiln_tune_axis *axis, int64_t value) {
    uint32_t at = 0;
    while (at < axis->n && axis->values[at] < value) {
        at++;
    }
    if (axis->n == KILN_TUNE_AXIS_VALUES || (at < axis->n && axis->values[at] == value)) {
        return;
    }
    memmove(&axis->values[at + 1], &axis->values[at], (axis->n - at) * sizeof(axis->values[0]));
    axis->values[at] = value;
    axis->n++;
}

static void add_all(struct kiln_tune_axis *axis) {
    const struct kiln_param *param = axis->param;
    for (uint32_t i = 0; param->allowed && i < param->n_allowed; i++) {
        add_value(axis, param->allowed[i]);
    }
    if (param->allowed) {
        return;
    }
    int64_t step = param->multiple_of > 1 ? param->multiple_of : 1;
    int64_t first = kiln_param_smallest(param), last = kiln_param_largest(param);
    int full = (last - first) / step < FULL_RANGE;
    add_value(axis, axis->standard);
    add_value(axis, first);
    for (int64_t value = full || first > 0 ? first : step; value <= last;
            value += full ? step : value) {
        add_value(axis, value);
    }
}

static enum kiln_status add_tokens(
        struct kiln_tune_axis *axis, struct entry *entry, struct kiln_err *err) {
    entry->used = 1;
    for (size_t i = 0; i < entry->n_tokens; i++) {
        int64_t value = axis->standard;
        if (strcmp(entry->tokens[i], "default") != 0 &&
                kiln_number_parse(entry->tokens[i], &value) != 0) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "--space %.60s=%.60s: not a whole number, nor 'default'", entry->key,
                    entry->tokens[i]);
        }
        if (kiln_param_allows(axis->param, value)) {
            entry->allowed[i] = 1;
            add_value(axis, value);
        }
    }
    return KILN_STATUS_OK;
}

static int64_t standard_of(
        const struct making *making, const struct kiln_variant *variant, uint32_t index) {
    const struct kiln_tune_space_params *p = making->params;
    if (p->base && p->base->variant == variant) {
        return p->base->geometry.values[index];
    }
    return kiln_param_default_value(variant->params[index], p->head_size, p->device->cc);
}

static enum kiln_status make_axis(struct making *making, const struct kiln_variant *variant,
        uint32_t index, struct kiln_tune_axis *axis, struct kiln_err *err) {
    struct entry *entry = find_entry(making, variant->params[index]->name);
    axis->param = variant->params[index];
    axis->standard = standard_of(making, variant, index);
    if (entry) {
        return add_tokens(axis, entry, err);
    }
    if (find_entry(making, "*")) {
        add_value(axis, axis->standard);
    } else {
        add_all(axis);
    }
    return KILN_STATUS_OK;
}

// ---- Parts --------------------------------------------------------------------------------------

static enum kiln_status alloc_part(struct making *making, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, struct kiln_tune_part *part, struct kiln_err *err) {
    const struct kiln_binding *base = making->params->base;
    struct kiln_arena *arena = &making->space->arena;
    if (variant->n_params > KILN_TUNE_PARAMS) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "%s/%s has %u parameters; a sweep takes %d",
                plugin->name, variant->name, variant->n_params, (int)KILN_TUNE_PARAMS);
    }
    *part = (struct kiln_tune_part){.plugin = plugin,
            .variant = variant,
            .source = base && base->variant == variant ? base->source : NULL,
            .names = kiln_arena_calloc(arena, variant->n_params + 1, sizeof(*part->names)),
            .axes = kiln_arena_calloc(arena, variant->n_params + 1, sizeof(*part->axes)),
            .n_axes = variant->n_params};
    if (!part->names || !part->axes) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < variant->n_params; i++) {
        part->names[i] = variant->params[i]->name;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status push_part(
        struct making *making, const struct kiln_tune_part *part, struct kiln_err *err) {
    struct kiln_tune_space *space = making->space;
    if (space->n_parts == making->cap_parts) {
        size_t cap = making->cap_parts * 2 + 8;
        struct kiln_tune_part *parts = kiln_arena_calloc(&space->arena, cap, sizeof(*parts));
        if (!parts) {
            return nomem(err);
        }
        if (space->n_parts > 0) {
            memcpy(parts, space->parts, space->n_parts * sizeof(*parts));
        }
        space->parts = parts;
        making->cap_parts = cap;
    }
    space->parts[space->n_parts] = *part;
    space->parts[space->n_parts++].first = space->count;
    space->count += part->count;
    return space->count <= MAX_COUNT
                   ? KILN_STATUS_OK
                   : kiln_err_set(err, KILN_STATUS_USAGE,
                             "this space has more than %d candidates: narrow it (--space "
                             "\"KEY=VALUE,VALUE *=default\")",
                             (int)MAX_COUNT);
}

static enum kiln_status add_variant(struct making *making, const struct kiln_plugin *plugin,
        const struct kiln_variant *variant, struct kiln_err *err) {
    struct kiln_tune_part part;
    KILN_TRY(alloc_part(making, plugin, variant, &part, err));
    part.count = 1;
    for (uint32_t i = 0; i < part.n_axes; i++) {
        KILN_TRY(make_axis(making, variant, i, &part.axes[i], err));
        part.count = part.count > MAX_COUNT ? part.count : part.count * part.axes[i].n;
    }
    return part.count > 0 ? push_part(making, &part, err) : KILN_STATUS_OK;
}

static int same_ops(const struct kiln_variant *a, const struct kiln_variant *b) {
    uint32_t n = b ? b->n_follows : 0;
    if (a->n_follows != n) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(a->follows[i], b->follows[i]) != 0) {
            return 0;
        }
    }
    return 1;
}

static int is_candidate(const struct making *making, const struct kiln_variant *variant) {
    const struct kiln_tune_space_params *p = making->params;
    return (variant->devices & p->device->kind) && kiln_variant_fills(variant, p->slot) &&
           same_ops(variant, p->base ? p->base->variant : NULL);
}

static int is_wanted(struct entry *entry, const char *name) {
    for (size_t i = 0; entry && i < entry->n_tokens; i++) {
        if (strcmp(entry->tokens[i], name) == 0) {
            entry->allowed[i] = 1;
            return 1;
        }
    }
    return !entry;
}

static enum kiln_status add_variants(
        struct making *making, struct kiln_words *known, struct kiln_err *err) {
    const struct kiln_registry *registry = making->params->registry;
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(registry);
    struct entry *entry = find_entry(making, "variant");
    if (entry) {
        entry->used = 1;
    }
    for (size_t i = 0; i < kiln_registry_count(registry); i++) {
        for (uint32_t j = 0; j < plugins[i]->n_variants; j++) {
            const struct kiln_variant *variant = plugins[i]->variants[j];
            if (!is_candidate(making, variant)) {
                continue;
            }
            kiln_words_add(known, variant->name);
            if (is_wanted(entry, variant->name)) {
                KILN_TRY(add_variant(making, plugins[i], variant, err));
            }
        }
    }
    return KILN_STATUS_OK;
}

// ---- What the text named and nobody has ---------------------------------------------------------

static void known_keys(const struct kiln_tune_space *space, struct kiln_words *known) {
    kiln_words_add(known, "variant");
    for (size_t i = 0; i < space->n_parts; i++) {
        for (uint32_t j = 0; j < space->parts[i].n_axes; j++) {
            kiln_words_add(known, space->parts[i].names[j]);
        }
    }
}

// "; fap2 takes 16, 32" for each variant here that has the key.
static void print_ranges(const struct making *making, const char *key, struct kiln_buf *text) {
    const struct kiln_registry *registry = making->params->registry;
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(registry);
    for (size_t i = 0; i < kiln_registry_count(registry); i++) {
        for (uint32_t j = 0; j < plugins[i]->n_variants; j++) {
            const struct kiln_variant *variant = plugins[i]->variants[j];
            for (uint32_t k = 0; is_candidate(making, variant) && k < variant->n_params; k++) {
                if (strcmp(variant->params[k]->name, key) == 0) {
                    kiln_buf_printf(text, "; %s takes ", variant->name);
                    kiln_param_print_range(variant->params[k], text);
                }
            }
        }
    }
}

static enum kiln_status refuse_value(const struct making *making, const struct entry *entry,
        size_t token, const struct kiln_words *variants, struct kiln_err *err) {
    struct kiln_buf allowed = {0};
    char hint[KILN_WORDS_MAX];
    if (strcmp(entry->key, "variant") == 0) {
        kiln_words_hint(hint, variants, entry->tokens[token]);
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--space variant=%.60s: no such variant for %s on this device%s",
                entry->tokens[token], making->params->slot, hint);
    }
    print_ranges(making, entry->key, &allowed);
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_USAGE,
            "--space %.60s=%.60s: no variant here allows it%s", entry->key, entry->tokens[token],
            allowed.data && !allowed.failed ? allowed.data : "");
    kiln_buf_finish(&allowed);
    return status;
}

static enum kiln_status check_used(
        const struct making *making, const struct kiln_words *variants, struct kiln_err *err) {
    for (size_t i = 0; i < making->n_entries; i++) {
        const struct entry *entry = &making->entries[i];
        if (strcmp(entry->key, "*") == 0) {
            continue;
        }
        if (!entry->used) {
            struct kiln_words known = {.count = 0};
            char hint[KILN_WORDS_MAX];
            known_keys(making->space, &known);
            kiln_words_hint(hint, &known, entry->key);
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "--space: no variant here has a key %.60s%s", entry->key, hint);
        }
        for (size_t j = 0; j < entry->n_tokens; j++) {
            if (!entry->allowed[j]) {
                return refuse_value(making, entry, j, variants, err);
            }
        }
    }
    return KILN_STATUS_OK;
}

// ---- The base -----------------------------------------------------------------------------------

// What is bound is measured in any case: where the text leaves it out it is a part of its own.
static enum kiln_status place_base(struct making *making, struct kiln_err *err) {
    const struct kiln_binding *base = making->params->base;
    struct kiln_tune_space *space = making->space;
    space->base = KILN_TUNE_NONE;
    if (!base || !base->variant || !is_candidate(making, base->variant)) {
        return KILN_STATUS_OK;
    }
    space->base = kiln_tune_space_find(space, base->variant, base->geometry.values);
    if (space->base != KILN_TUNE_NONE) {
        return KILN_STATUS_OK;
    }
    struct kiln_tune_part part;
    KILN_TRY(alloc_part(making, base->plugin, base->variant, &part, err));
    for (uint32_t i = 0; i < part.n_axes; i++) {
        part.axes[i] = (struct kiln_tune_axis){.param = base->variant->params[i],
                .values = {base->geometry.values[i]},
                .n = 1,
                .standard = base->geometry.values[i]};
    }
    part.count = 1;
    space->base = space->count;
    return push_part(making, &part, err);
}

static enum kiln_status make(struct making *making, struct kiln_err *err) {
    struct kiln_words variants = {.count = 0};
    for (size_t i = 0; i < making->params->n_texts; i++) {
        KILN_TRY(read_text(making, making->params->texts[i], err));
    }
    KILN_TRY(add_variants(making, &variants, err));
    if (variants.count == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "no variant that runs on %s fills %s as it is bound; `kiln plugins list` shows "
                "the slots",
                making->params->device->target, making->params->slot);
    }
    KILN_TRY(check_used(making, &variants, err));
    if (making->space->count == 0) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--space leaves no candidate for %s: its keys allow no values together",
                making->params->slot);
    }
    return place_base(making, err);
}

enum kiln_status kiln_tune_space_make(struct kiln_tune_space *space,
        const struct kiln_tune_space_params *params, struct kiln_err *err) {
    *space = (struct kiln_tune_space){.base = KILN_TUNE_NONE};
    struct making making = {.space = space,
            .params = params,
            .entries = kiln_arena_calloc(&space->arena, MAX_ENTRIES, sizeof(struct entry))};
    return making.entries ? make(&making, err) : nomem(err);
}

// ---- Numbers ------------------------------------------------------------------------------------

const struct kiln_tune_part *kiln_tune_space_at(
        const struct kiln_tune_space *space, uint64_t index, int64_t values[KILN_TUNE_PARAMS]) {
    const struct kiln_tune_part *part = space->parts;
    while (index >= part->first + part->count) {
        part++;
    }
    uint64_t rest = index - part->first;
    for (uint32_t i = part->n_axes; i-- > 0;) {
        values[i] = part->axes[i].values[rest % part->axes[i].n];
        rest /= part->axes[i].n;
    }
    return part;
}

// The place of a value on an axis; -1: not there.
static int64_t place_of(const struct kiln_tune_axis *axis, int64_t value) {
    for (uint32_t i = 0; i < axis->n; i++) {
        if (axis->values[i] == value) {
            return i;
        }
    }
    return -1;
}

static uint64_t find_in(const struct kiln_tune_part *part, const int64_t *values) {
    uint64_t number = 0;
    for (uint32_t i = 0; i < part->n_axes; i++) {
        int64_t place = place_of(&part->axes[i], values[i]);
        if (place < 0) {
            return KILN_TUNE_NONE;
        }
        number = number * part->axes[i].n + (uint64_t)place;
    }
    return part->first + number;
}

uint64_t kiln_tune_space_find(const struct kiln_tune_space *space,
        const struct kiln_variant *variant, const int64_t *values) {
    uint64_t found = KILN_TUNE_NONE;
    for (size_t i = 0; i < space->n_parts && found == KILN_TUNE_NONE; i++) {
        if (space->parts[i].variant == variant) {
            found = find_in(&space->parts[i], values);
        }
    }
    return found;
}

// Of another part: for each parameter the value nearest to that of the same name here, else the
// standard one.
static uint64_t nearest_in(const struct kiln_tune_part *other, const struct kiln_tune_part *part,
        const int64_t *values) {
    int64_t near[KILN_TUNE_PARAMS];
    for (uint32_t i = 0; i < other->n_axes; i++) {
        const struct kiln_tune_axis *axis = &other->axes[i];
        int64_t wanted = axis->standard;
        for (uint32_t j = 0; j < part->n_axes; j++) {
            wanted = strcmp(part->names[j], other->names[i]) == 0 ? values[j] : wanted;
        }
        near[i] = axis->values[0];
        for (uint32_t j = 1; j < axis->n; j++) {
            near[i] = llabs(axis->values[j] - wanted) < llabs(near[i] - wanted) ? axis->values[j]
                                                                                : near[i];
        }
    }
    return find_in(other, near);
}

size_t kiln_tune_space_near(
        const struct kiln_tune_space *space, uint64_t index, int all, uint64_t *near, size_t max) {
    int64_t values[KILN_TUNE_PARAMS];
    const struct kiln_tune_part *part = kiln_tune_space_at(space, index, values);
    size_t n = 0;
    for (uint32_t i = 0; i < part->n_axes; i++) {
        const struct kiln_tune_axis *axis = &part->axes[i];
        int64_t own = values[i], place = place_of(axis, own);
        for (int64_t j = 0; j < axis->n; j++) {
            if (j != place && (all || llabs(j - place) == 1) && n < max) {
                values[i] = axis->values[j];
                near[n++] = find_in(part, values);
            }
        }
        values[i] = own;
    }
    for (size_t i = 0; all && i < space->n_parts && n < max; i++) {
        if (&space->parts[i] != part) {
            near[n++] = nearest_in(&space->parts[i], part, values);
        }
    }
    return n;
}

void kiln_tune_space_print(
        const struct kiln_tune_space *space, uint64_t index, struct kiln_buf *text) {
    int64_t values[KILN_TUNE_PARAMS];
    const struct kiln_tune_part *part = kiln_tune_space_at(space, index, values);
    const struct kiln_geometry geometry = {.struct_size = sizeof(geometry),
            .n_values = part->n_axes,
            .names = part->names,
            .values = values};
    kiln_buf_puts(text, part->variant->name);
    kiln_geometry_print(&geometry, text);
}
