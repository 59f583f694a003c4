// wall_against: reads the other side, says what differs, prints.
#include "wall_against.h"

#include "base/file.h"
#include "base/mem.h"
#include "common.h"
#include "lab/against.h"
#include "lab/save.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_FILE = 1 << 28,
    SHOWN_UNMAPPED = 12
};

struct kiln_wall_other {
    char *path;
    json_t *saved; // NULL: it is a profile
    struct kiln_profile profile;
    struct kiln_kernel_map *map;
    int64_t passes;
};

// ---- Reading ------------------------------------------------------------------------------------

static enum kiln_status is_json(const char *path, int *json, struct kiln_err *err) {
    char *text;
    size_t size;
    KILN_TRY(kiln_file_read(path, MAX_FILE, &text, &size, err));
    const char first = text[strspn(text, " \t\r\n")];
    *json = first == '{' || first == '[';
    kiln_free(text);
    return KILN_STATUS_OK;
}

static enum kiln_status read_other(
        struct kiln_wall_other *other, const char *kernels, struct kiln_err *err) {
    int json = 0;
    KILN_TRY(is_json(other->path, &json, err));
    if (!json) {
        KILN_TRY(kiln_profile_read(other->path, &other->profile, err));
        return kiln_kernel_map_read(kernels ? kernels : "llama.cpp", &other->map, err);
    }
    if (kernels || other->passes) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--kernels and --passes are for a profile, and %s is a wall", other->path);
    }
    KILN_TRY(kiln_save_read(other->path, &other->saved, err));
    // Refused before anything is measured: an empty wall compares with every table.
    const struct kiln_wall none = {.n = 0};
    struct kiln_against against;
    enum kiln_status status =
            kiln_against_saved(&none, kiln_save_result(other->saved), other->path, &against, err);
    kiln_against_finish(&against);
    return status;
}

enum kiln_status kiln_wall_other_read(const char *path, const char *kernels, int64_t passes,
        struct kiln_wall_other **other, struct kiln_err *err) {
    struct kiln_wall_other *o = kiln_calloc(1, sizeof(*o));
    if (o) {
        o->path = kiln_strdup(path);
        o->passes = passes;
    }
    enum kiln_status status = o && o->path ? read_other(o, kernels, err)
                                           : kiln_err_nomem(err, "a comparison of walls");
    if (status != KILN_STATUS_OK) {
        kiln_wall_other_destroy(o);
        return status;
    }
    *other = o;
    return KILN_STATUS_OK;
}

void kiln_wall_other_destroy(struct kiln_wall_other *other) {
    if (!other) {
        return;
    }
    kiln_kernel_map_destroy(other->map);
    kiln_profile_finish(&other->profile);
    json_decref(other->saved);
    kiln_free(other->path);
    kiln_free(other);
}

// ---- What is stale ------------------------------------------------------------------------------

// A line for each thing that the older wall was taken of and this one is not.
static void list_differences(
        const struct kiln_wall_other *other, const json_t *now, struct kiln_buf *text) {
    static const char *const keys[] = {
            "device_name", "weight_bytes", "n_prompt", "n_gen", "n_depth"};
    const json_t *then = kiln_save_result(other->saved), *wall = kiln_save_result(now);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (!json_equal(json_object_get(then, keys[i]), json_object_get(wall, keys[i]))) {
            kiln_buf_printf(text, "its %s is another\n", keys[i]);
        }
    }
    kiln_save_differences(other->saved, now, text);
}

// stale: an array, which gets the lines.
static enum kiln_status warn_if_stale(const struct kiln_wall_other *other, const json_t *now,
        json_t *stale, struct kiln_err *err) {
    struct kiln_buf text = {0};
    if (other->saved) {
        list_differences(other, now, &text);
    }
    for (const char *line = text.data; line && *line;) {
        size_t len = strcspn(line, "\n");
        fprintf(stderr, "%s: stale: %.*s\n", other->path, (int)len, line);
        json_array_append_new(stale, kiln_json_text(line, len));
        line += len + (line[len] == '\n');
    }
    int failed = text.failed;
    kiln_buf_finish(&text);
    return failed ? kiln_err_nomem(err, "a comparison") : KILN_STATUS_OK;
}

// ---- The table ----------------------------------------------------------------------------------

static void print_ratio(double then, double now, struct kiln_buf *out) {
    if (then > 0 && now > 0) {
        kiln_buf_printf(out, " %.3f |", now / then);
    } else {
        kiln_buf_puts(out, " - |");
    }
}

struct columns {
    int then_paced, paced; // an older wall's; this one's and the ratio
    double full;           // how much faster the SMs could be clocked than they were; 0: no column
};

static void print_head(const struct columns *columns, const char *then, struct kiln_buf *out) {
    const struct {
        int there;
        const char *name;
    } more[] = {{columns->then_paced, "then paced ms"}, {columns->paced, "paced ms"},
            {columns->paced, "paced ratio"}, {columns->full > 0, "at full clock"}};
    const size_t n = sizeof(more) / sizeof(more[0]);
    kiln_buf_printf(out, "| slot | %s ms | kiln ms | ratio |", then);
    for (size_t i = 0; i < n; i++) {
        if (more[i].there) {
            kiln_buf_printf(out, " %s |", more[i].name);
        }
    }
    kiln_buf_puts(out, "\n| --- | ---: | ---: | ---: |");
    for (size_t i = 0; i < n; i++) {
        kiln_buf_puts(out, more[i].there ? " ---: |" : "");
    }
    kiln_buf_puts(out, "\n");
}

static void print_row(const char *name, const struct kiln_against_row *row,
        const struct columns *columns, struct kiln_buf *out) {
    kiln_buf_printf(out, "| %s | %.3f | %.3f |", name, row->then * 1e3, row->now * 1e3);
    print_ratio(row->then, row->now, out);
    if (columns->then_paced) {
        kiln_buf_printf(out, " %.3f |", row->then_paced * 1e3);
    }
    if (columns->paced) {
        kiln_buf_printf(out, " %.3f |", row->now_paced * 1e3);
        print_ratio(row->then_paced, row->now_paced, out);
    }
    if (columns->full > 0) {
        print_ratio(row->then * columns->full, row->now, out);
    }
    kiln_buf_puts(out, "\n");
}

// The rows of one op together ("matmul") where it has several: what one engine does in one kernel
// another may do in two.
static void print_family(const struct kiln_against *against, size_t first,
        const struct columns *columns, struct kiln_buf *out) {
    const char *slot = against->rows[first].slot;
    size_t len = strcspn(slot, "."), members = 0;
    struct kiln_against_row sum = {.then = 0};
    for (size_t i = 0; i < against->n; i++) {
        const struct kiln_against_row *row = &against->rows[i];
        if (strcspn(row->slot, ".") == len && memcmp(row->slot, slot, len) == 0) {
            if (i < first) {
                return; // printed
            }
            members++;
            sum.then += row->then;
            sum.now += row->now;
            sum.then_paced += row->then_paced;
            sum.now_paced += row->now_paced;
        }
    }
    if (members > 1) {
        char name[96];
        snprintf(name, sizeof(name), "all of %.*s", (int)len, slot);
        print_row(name, &sum, columns, out);
    }
}

static void print_unmapped(const struct kiln_against *against, struct kiln_buf *out) {
    double rest = 0;
    if (against->n_unmapped > 0) {
        kiln_buf_puts(out, "\nkernels that the table does not map:\n");
    }
    for (size_t i = 0; i < against->n_unmapped; i++) {
        const struct kiln_profile_kernel *kernel = &against->unmapped[i];
        if (i < SHOWN_UNMAPPED) {
            kiln_buf_printf(out, "%10.3f ms  %6" PRId64 " x  %.100s\n", kernel->seconds * 1e3,
                    kernel->launches, kernel->name);
        } else {
            rest += kernel->seconds;
        }
    }
    if (against->n_unmapped > SHOWN_UNMAPPED) {
        kiln_buf_printf(out, "%10.3f ms  in %zu others\n", rest * 1e3,
                against->n_unmapped - (size_t)SHOWN_UNMAPPED);
    }
}

// What a profile's kernels, each alone at full clock, gain by it over a wall at the power limit.
static double full_over(const struct kiln_wall_other *other, const struct kiln_wall *wall) {
    int slowed = wall->capped > 0 && wall->sm_mhz > 0 && wall->full_mhz > wall->sm_mhz;
    return slowed && !other->saved ? wall->full_mhz / wall->sm_mhz : 0;
}

// Of all rows, paced: a wall has no paced time of its own.
static double sum_of(const struct kiln_against *against, int then) {
    double sum = 0;
    for (size_t i = 0; i < against->n; i++) {
        sum += then ? against->rows[i].then_paced : against->rows[i].now_paced;
    }
    return sum;
}

static enum kiln_status print(const struct kiln_wall_other *other,
        const struct kiln_against *against, const struct kiln_wall *wall, struct kiln_err *err) {
    struct kiln_buf out = {0};
    const char *date = json_string_value(json_object_get(other->saved, "date"));
    const struct kiln_against_row all = {.then = against->then,
            .now = against->now,
            .then_paced = other->saved ? sum_of(against, 1) : against->then,
            .now_paced = sum_of(against, 0)};
    const struct columns columns = {.then_paced = against->paced && other->saved,
            .paced = against->paced,
            .full = against->paced ? 0 : full_over(other, wall)};
    kiln_buf_printf(&out, "\nagainst %s (%s), measured\n", other->path,
            other->saved ? date ? date : "no date" : other->profile.kind);
    if (columns.full > 0) {
        kiln_buf_printf(&out,
                "kiln ran at the card's power limit, at %.0f of %.0f MHz; a profiler that runs "
                "kernels one at a time is not held back. At full clock is for what the SMs bound, "
                "the ratio itself for what memory does; --paced measures it\n",
                wall->sm_mhz, wall->full_mhz);
    }
    print_head(&columns, other->saved ? "then" : "its", &out);
    for (size_t i = 0; i < against->n; i++) {
        print_row(against->rows[i].slot, &against->rows[i], &columns, &out);
    }
    for (size_t i = 0; i < against->n; i++) {
        print_family(against, i, &columns, &out);
    }
    print_row(other->saved ? "wall" : "all kernels", &all, &columns, &out);
    print_unmapped(against, &out);
    return kiln_out_buf(&out, err);
}

static json_t *ratio_json(double then, double now) {
    return then > 0 && now > 0 ? json_real(now / then) : json_null();
}

static json_t *row_json(const struct kiln_against_row *row, int paced) {
    json_t *json = json_pack("{s:s, s:f, s:f, s:o}", "slot", row->slot, "then_ms", row->then * 1e3,
            "now_ms", row->now * 1e3, "ratio", ratio_json(row->then, row->now));
    if (json && paced) {
        json_object_set_new(json, "then_paced_ms", json_real(row->then_paced * 1e3));
        json_object_set_new(json, "paced_ms", json_real(row->now_paced * 1e3));
        json_object_set_new(json, "paced_ratio", ratio_json(row->then_paced, row->now_paced));
    }
    return json;
}

static json_t *against_json(const struct kiln_wall_other *other, const struct kiln_against *against,
        const struct kiln_wall *wall) {
    json_t *rows = json_array(), *unmapped = json_array();
    for (size_t i = 0; i < against->n; i++) {
        json_array_append_new(rows, row_json(&against->rows[i], against->paced));
    }
    for (size_t i = 0; i < against->n_unmapped; i++) {
        const struct kiln_profile_kernel *kernel = &against->unmapped[i];
        json_array_append_new(
                unmapped, json_pack("{s:o, s:f, s:I}", "kernel",
                                  kiln_json_text(kernel->name, strlen(kernel->name)), "ms",
                                  kernel->seconds * 1e3, "launches", (json_int_t)kernel->launches));
    }
    return json_pack("{s:o, s:s, s:f, s:f, s:f, s:o, s:o, s:[]}", "file",
            kiln_json_text(other->path, strlen(other->path)), "kind",
            other->saved ? "kiln wall" : other->profile.kind, "full_clock", full_over(other, wall),
            "then_ms", against->then * 1e3, "now_ms", against->now * 1e3, "rows", rows, "unmapped",
            unmapped, "stale");
}

enum kiln_status kiln_wall_compare(const struct kiln_wall_other *other,
        const struct kiln_wall *wall, struct json_t *now, int json, struct kiln_err *err) {
    struct kiln_against against;
    enum kiln_status status = other->saved
                                      ? kiln_against_saved(wall, kiln_save_result(other->saved),
                                                other->path, &against, err)
                                      : kiln_against_profile(wall, &other->profile, other->map,
                                                other->passes ? other->passes : 1, &against, err);
    if (status == KILN_STATUS_OK) {
        json_t *document = against_json(other, &against, wall);
        status = document && json_object_set_new(
                                     json_object_get(now, "result"), "against", document) == 0
                         ? warn_if_stale(other, now, json_object_get(document, "stale"), err)
                         : kiln_err_nomem(err, "the JSON output");
    }
    if (status == KILN_STATUS_OK && !json) {
        status = print(other, &against, wall, err);
    }
    kiln_against_finish(&against);
    return status;
}
