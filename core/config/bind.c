// bind: which rule a call gets, and the binding made of it.
#include "config/config_impl.h"

#include "base/mem.h"
#include "config/slot.h"
#include "config/words.h"

#include <string.h>

// Whether the rule speaks for the call at all. A rule whose variant is absent speaks for every slot
// it names.
static int rule_fits(const struct kiln_rule *rule, const struct kiln_bind_query *query) {
    return kiln_slot_overlap(rule->slot, query->slot) &&
           (!rule->variant || kiln_variant_overlaps(rule->variant, query->slot)) &&
           kiln_when_holds(&rule->when, query);
}

static int runs_on(const struct kiln_rule *rule, const struct kiln_device *device) {
    return !rule->variant || !device || (rule->variant->devices & device->kind) != 0;
}

static const char *target_of(const struct kiln_bind_query *query) {
    return query->device && query->device->target ? query->device->target : "any device";
}

// What loaded plugins could fill the slot with on this device, for the end of a message.
static void candidates(char text[KILN_WORDS_MAX], const struct kiln_config *config,
        const struct kiln_bind_query *query) {
    struct kiln_words known = {.count = 0};
    for (size_t i = 0; i < config->catalog.n_plugins; i++) {
        const struct kiln_plugin *plugin = config->catalog.plugins[i];
        for (uint32_t j = 0; j < plugin->n_variants; j++) {
            const struct kiln_variant *variant = plugin->variants[j];
            if (kiln_variant_overlaps(variant, query->slot) &&
                    (!query->device || (variant->devices & query->device->kind))) {
                kiln_words_add(&known, variant->name);
            }
        }
    }
    kiln_words_list(text,
            known.count > 0 ? "; variants that could: "
                            : "; no loaded plugin has a variant for it there",
            &known);
}

static enum kiln_status unbound(const struct kiln_config *config,
        const struct kiln_bind_query *query, struct kiln_err *err) {
    char could[KILN_WORDS_MAX];
    candidates(could, config, query);
    return kiln_err_set(err, KILN_STATUS_CONFIG,
            "no section binds slot %s on %s; add [%s] variant = NAME%s", query->slot,
            target_of(query), query->slot, could);
}

static enum kiln_status unusable(const struct kiln_config *config,
        const struct kiln_bind_query *query, const struct kiln_rule *rule, struct kiln_err *err) {
    char could[KILN_WORDS_MAX];
    candidates(could, config, query);
    if (rule->absent) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "%s: [%s] binds variant %s, which no loaded plugin has; slot %s on %s is not "
                "filled%s",
                rule->origin, rule->section->name, rule->variant_name, query->slot,
                target_of(query), could);
    }
    return kiln_err_set(err, KILN_STATUS_CONFIG,
            "%s: [%s] binds variant %s, which does not run on %s; bind another there, or add a "
            "condition (when = target=cuda)%s",
            rule->origin, rule->section->name, rule->variant_name, target_of(query), could);
}

// ---- The binding of a rule ----------------------------------------------------------------------

static int64_t value_of(
        const struct kiln_rule *rule, size_t index, const struct kiln_bind_query *query) {
    return rule->given[index]
                   ? rule->values[index]
                   : kiln_param_default_for(rule->variant->params[index], query->hd, query->device);
}

static int same_values(const struct kiln_bound *bound, const struct kiln_rule *rule,
        const struct kiln_bind_query *query) {
    for (size_t i = 0; i < bound->binding.geometry.n_values; i++) {
        if (bound->values[i] != value_of(rule, i, query)) {
            return 0;
        }
    }
    return 1;
}

// The rule's binding for the call, made if this is the first with these values; NULL: out of
// memory. Locked.
static const struct kiln_binding *bound_for(
        struct kiln_rule *rule, const struct kiln_bind_query *query) {
    for (struct kiln_bound *at = rule->bound; at; at = at->next) {
        if (same_values(at, rule, query)) {
            return &at->binding;
        }
    }
    uint32_t n = rule->variant ? rule->variant->n_params : 0;
    struct kiln_bound *fresh = kiln_calloc(1, sizeof(*fresh) + n * sizeof(fresh->values[0]));
    if (!fresh) {
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        fresh->values[i] = value_of(rule, i, query);
    }
    fresh->binding = (struct kiln_binding){.plugin = rule->plugin,
            .variant = rule->variant,
            .variant_name = rule->variant_name,
            .geometry = {.struct_size = sizeof(struct kiln_geometry),
                    .n_values = n,
                    .names = rule->names,
                    .values = fresh->values},
            .source = rule->source,
            .origin = rule->origin,
            .section = rule->section->name,
            .layer = rule->section->layer};
    fresh->next = rule->bound;
    rule->bound = fresh;
    return &fresh->binding;
}

// The rule in place `skip` for the call, NULL when there is none. Behind the first place, rules
// that cannot run are passed over. The check has seen to it that no two fit alike.
static struct kiln_rule *pick(
        const struct kiln_config *config, const struct kiln_bind_query *query, unsigned skip) {
    unsigned place = 0;
    for (size_t i = 0; i < config->n_rules; i++) {
        struct kiln_rule *rule = &config->rules[i];
        int counts = place == 0 || (!rule->absent && runs_on(rule, query->device));
        if (rule_fits(rule, query) && counts && place++ == skip) {
            return rule;
        }
    }
    return NULL;
}

enum kiln_status kiln_config_bind(struct kiln_config *config, const struct kiln_bind_query *query,
        unsigned skip, const struct kiln_binding **binding, struct kiln_err *err) {
    struct kiln_rule *rule = pick(config, query, skip);
    *binding = NULL;
    if (!rule) {
        return skip > 0 ? KILN_STATUS_OK : unbound(config, query, err);
    }
    if (rule->absent || !runs_on(rule, query->device)) {
        return unusable(config, query, rule, err);
    }
    pthread_mutex_lock(&config->lock);
    *binding = bound_for(rule, query);
    pthread_mutex_unlock(&config->lock);
    return *binding ? KILN_STATUS_OK : kiln_err_nomem(err, "a binding");
}
