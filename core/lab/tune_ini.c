// tune_ini: winners as sections of a tuned file.
//
// The file is kiln's own: a head, then blocks, each from its line "; tuned: SLOT, …" to the next
// such line. A block holds the section of one problem and says how it was found.
#include "lab/tune.h"

#include "base/log.h"
#include "base/mem.h"
#include "lab/save.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char head[] =
        "; Written by kiln tune: what was found fastest here, and how. Take it in with --config.\n"
        "; A later sweep of a slot replaces its blocks and leaves the others.\n";
static const char mark[] = "; tuned: ";

void kiln_tune_device_slug(const struct kiln_tune *tune, char *slug, size_t size) {
    const char *name = tune->device.desc.kind == KILN_DEVICE_HOST ? "cpu"
                       : strncmp(tune->id, "sim", 3) == 0         ? tune->id
                       : strncmp(tune->device.desc.name, "NVIDIA ", 7) == 0
                               ? tune->device.desc.name + 7
                               : tune->device.desc.name;
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        int word = isalnum((unsigned char)*name);
        if (word || (n > 0 && slug[n - 1] != '-')) {
            slug[n++] = (char)(word ? tolower((unsigned char)*name) : '-');
        }
    }
    while (n > 0 && slug[n - 1] == '-') {
        n--;
    }
    slug[n] = '\0';
}

// ---- What is there already ----------------------------------------------------------------------

// Whether a block is of this slot and, with `problem`, of this problem.
static int is_of(const char *block, const char *slot, const char *problem) {
    size_t len = strlen(slot), rest = problem ? strlen(problem) : 0;
    const char *at = block + strlen(mark);
    if (strncmp(at, slot, len) != 0 || at[len] != ',') {
        return 0;
    }
    at += len + 1;
    return !problem || (*at == ' ' && strncmp(at + 1, problem, rest) == 0 && at[1 + rest] == ',');
}

// Winners replace all blocks of their slot. A sweep without one only takes out what it has just
// found to be no faster, and says nothing of other problems.
static int is_outdated(const struct kiln_tune *tune, const char *block, size_t sections) {
    if (sections > 0) {
        return is_of(block, tune->params->slot, NULL);
    }
    for (size_t i = 0; i < tune->n_problems; i++) {
        const struct kiln_tune_problem *problem = &tune->problems[i];
        if (problem->winner && is_of(block, tune->params->slot, problem->name)) {
            return 1;
        }
    }
    return 0;
}

static void keep_others(
        const struct kiln_tune *tune, const char *before, size_t sections, struct kiln_buf *text) {
    const char *block = strncmp(before, mark, strlen(mark)) == 0 ? before : NULL;
    const char *found = block ? NULL : strstr(before, "\n; tuned: ");
    block = found ? found + 1 : block;
    while (block) {
        const char *next = strstr(block, "\n; tuned: ");
        size_t len = next ? (size_t)(next + 1 - block) : strlen(block);
        if (!is_outdated(tune, block, sections)) {
            kiln_buf_append(text, block, len);
            kiln_buf_puts(text, len > 0 && block[len - 1] != '\n' ? "\n" : "");
        }
        block = next ? next + 1 : NULL;
    }
}

// What is bound and stays needs no section, unless it is bound by one of a tuned file: that one is
// written anew in place of the old.
static int has_section(const struct kiln_tune_problem *problem) {
    return problem->winner && (!problem->kept || problem->base_tuned);
}

// ---- Conditions ---------------------------------------------------------------------------------

static int same_but_rows(const struct kiln_tune_problem *a, const struct kiln_tune_problem *b) {
    return a->columns == b->columns && a->depth == b->depth && a->head_size == b->head_size;
}

// The rows for which a problem stands: up to the geometric middle between its own and those of the
// next one that is alike in all else. 0: no bound on that side.
static void rows_of(const struct kiln_tune *tune, const struct kiln_tune_problem *problem,
        int64_t *above, int64_t *most) {
    int64_t m = problem->shape.m, below_m = 0, above_m = 0;
    for (size_t i = 0; i < tune->n_problems; i++) {
        int64_t other = tune->problems[i].shape.m;
        if (same_but_rows(problem, &tune->problems[i])) {
            below_m = other < m && other > below_m ? other : below_m;
            above_m = other > m && (above_m == 0 || other < above_m) ? other : above_m;
        }
    }
    *above = below_m > 0 ? (int64_t)sqrt((double)below_m * (double)m) : 0;
    *most = above_m > 0 ? (int64_t)sqrt((double)above_m * (double)m) : 0;
}

// Whether problems of its head size differ in something else than rows, so that a section is for
// one of them alone.
static int has_others(const struct kiln_tune *tune, const struct kiln_tune_problem *problem) {
    for (size_t i = 0; i < tune->n_problems; i++) {
        if (tune->problems[i].head_size == problem->head_size &&
                !same_but_rows(problem, &tune->problems[i])) {
            return 1;
        }
    }
    return 0;
}

static void put_when(const struct kiln_tune *tune, const struct kiln_tune_problem *problem,
        struct kiln_buf *text) {
    int64_t above, most;
    rows_of(tune, problem, &above, &most);
    kiln_buf_printf(text, "when = target=%s",
            strncmp(tune->id, "sim", 3) == 0 ? "sim" : tune->device.desc.target);
    if (problem->head_size > 0) {
        kiln_buf_printf(text, ", hd=%d", problem->head_size);
    }
    if (has_others(tune, problem)) {
        if (problem->columns > 0) {
            kiln_buf_printf(text, ", n=%" PRId64, problem->columns);
        }
        if (problem->depth > 0) {
            kiln_buf_printf(text, ", k=%" PRId64, problem->depth);
        }
    }
    if (above > 0) {
        kiln_buf_printf(text, ", m>%" PRId64, above);
    }
    if (most > 0) {
        kiln_buf_printf(text, ", m<=%" PRId64, most);
    }
    kiln_buf_puts(text, "\n");
}

// ---- Blocks -------------------------------------------------------------------------------------

static const struct kiln_tune_finalist *finalist_of(
        const struct kiln_tune_problem *problem, const struct kiln_tune_entry *entry) {
    for (size_t i = 0; i < problem->n_finalists; i++) {
        if (problem->finalists[i].entry == entry) {
            return &problem->finalists[i];
        }
    }
    return NULL;
}

static void put_found(const struct kiln_tune *tune, const struct kiln_tune_problem *problem,
        struct kiln_buf *text) {
    const struct kiln_tune_finalist *winner = finalist_of(problem, problem->winner);
    char date[32];
    kiln_save_date(date, sizeof(date));
    kiln_buf_printf(text, "%s%s, %s, on %s (%s%s%s), kiln %s, %s\n", mark, tune->params->slot,
            problem->name, tune->device.desc.name, tune->device.desc.target,
            tune->driver[0] ? ", " : "", tune->driver, tune->params->version, date);
    kiln_buf_printf(text,
            "; %s: %s over %zu of %" PRIu64 " candidates, %zu of them right and timed; "
            "final of %" PRId64 " rounds\n",
            kiln_tune_grade(tune), kiln_tune_strategy_name(tune->params->strategy),
            problem->n_entries, problem->space.count, problem->counts[KILN_TUNE_OK],
            tune->params->rounds);
    if (winner && problem->base && problem->winner != problem->base) {
        kiln_buf_printf(text, "; %.2f us a call; what was bound, ", winner->seconds * 1e6);
        kiln_tune_space_print(&problem->space, problem->base->candidate, text);
        kiln_buf_printf(text, ": %.2f us; %+.2f %% (%+.2f to %+.2f)\n",
                problem->finalists[0].seconds * 1e6, winner->effect.median,
                winner->effect.interval.low, winner->effect.interval.high);
    } else if (winner && problem->kept) {
        kiln_buf_printf(text, "; %.2f us a call; bound before, and nothing was faster\n",
                winner->seconds * 1e6);
    }
}

static void put_block(const struct kiln_tune *tune, const struct kiln_tune_problem *problem,
        size_t number, struct kiln_buf *text) {
    const struct kiln_tune_part *part = problem->winner->part;
    char suffix[32] = "";
    if (number > 0) {
        (void)snprintf(suffix, sizeof(suffix), "-%zu", number + 1);
    }
    put_found(tune, problem, text);
    kiln_buf_printf(text, "[%s/tuned%s]\n", tune->params->slot, suffix);
    put_when(tune, problem, text);
    kiln_buf_printf(text, "plugin = %s\nvariant = %s\n", part->plugin->name, part->variant->name);
    if (part->source) {
        kiln_buf_printf(text, "source = %s\n", part->source);
    }
    for (uint32_t i = 0; i < part->n_axes; i++) {
        kiln_buf_printf(text, "%s = %" PRId64 "\n", part->names[i], problem->winner->values[i]);
    }
}

// Problems that no condition tells apart (by keys in the cache, by a window) all get what one of
// them wants.
static void warn_of_same(const struct kiln_tune *tune, const struct kiln_tune_problem *problem) {
    for (size_t i = 0; i < tune->n_problems; i++) {
        const struct kiln_tune_problem *other = &tune->problems[i];
        if (other != problem && other->winner && same_but_rows(problem, other) &&
                other->shape.m == problem->shape.m &&
                (other->winner->part->variant != problem->winner->part->variant ||
                        memcmp(other->winner->values, problem->winner->values,
                                sizeof(other->winner->values)) != 0)) {
            kiln_log(KILN_LOG_WARN,
                    "%s: no condition tells %s from %s, which want different tiles: the section "
                    "is for both",
                    tune->params->slot, problem->name, other->name);
        }
    }
}

// What is written must load: on top of the defaults, against the plugins that are here.
static enum kiln_status check(
        const struct kiln_tune *tune, const struct kiln_buf *text, struct kiln_err *err) {
    const struct kiln_registry *registry = tune->params->registry;
    const struct kiln_catalog catalog = {
            .plugins = kiln_registry_plugins(registry), .n_plugins = kiln_registry_count(registry)};
    struct kiln_config *config = NULL;
    KILN_TRY(kiln_config_create(&config, err));
    enum kiln_status status = kiln_config_add_defaults(config, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_config_add_text(config, "the tuned file", NULL, text->data, text->len, err);
    }
    if (status == KILN_STATUS_OK) {
        status = kiln_config_check(config, &catalog, err);
    }
    kiln_config_destroy(config);
    return status;
}

enum kiln_status kiln_tune_ini(const struct kiln_tune *tune, const char *before,
        struct kiln_buf *text, size_t *sections, struct kiln_err *err) {
    *sections = 0;
    for (size_t i = 0; i < tune->n_problems; i++) {
        *sections += (size_t)has_section(&tune->problems[i]);
    }
    kiln_buf_puts(text, head);
    keep_others(tune, before, *sections, text);
    for (size_t i = 0, number = 0; i < tune->n_problems; i++) {
        if (has_section(&tune->problems[i])) {
            warn_of_same(tune, &tune->problems[i]);
            put_block(tune, &tune->problems[i], number++, text);
        }
    }
    return text->failed ? kiln_err_nomem(err, "a tuned file") : check(tune, text, err);
}
