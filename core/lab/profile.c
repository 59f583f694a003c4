// profile: one list from three kinds of CSV.
#include "lab/profile.h"

#include "base/mem.h"
#include "lab/csv.h"
#include "lab/ncu.h"

#include <stdlib.h>
#include <string.h>

static enum kiln_status add(struct kiln_profile *profile, const char *name, double seconds,
        int64_t launches, struct kiln_err *err) {
    profile->seconds += seconds;
    for (size_t i = 0; i < profile->n; i++) {
        if (strcmp(profile->kernels[i].name, name) == 0) {
            profile->kernels[i].seconds += seconds;
            profile->kernels[i].launches += launches;
            return KILN_STATUS_OK;
        }
    }
    char *copy = kiln_strdup(name);
    if (!copy || kiln_grow(&profile->kernels, &profile->cap, profile->n + 1,
                         sizeof(*profile->kernels)) != 0) {
        kiln_free(copy);
        return kiln_err_nomem(err, "the kernels of a profile");
    }
    profile->kernels[profile->n++] =
            (struct kiln_profile_kernel){.name = copy, .seconds = seconds, .launches = launches};
    return KILN_STATUS_OK;
}

// A column by the words before its unit: "Total Time (ns)"; -1: none. *unit: its seconds.
static int timed_column(const struct kiln_csv_row *header, const char *words, double *unit) {
    size_t len = strlen(words);
    for (size_t i = 0; i < header->n; i++) {
        const char *name = header->fields[i];
        char text[16];
        size_t rest = strlen(name);
        if (strncmp(name, words, len) != 0 || strncmp(name + len, " (", 2) != 0 ||
                name[rest - 1] != ')' || rest - len - 3 >= sizeof(text)) {
            continue;
        }
        memcpy(text, name + len + 2, rest - len - 3);
        text[rest - len - 3] = '\0';
        *unit = kiln_unit_seconds(text);
        return *unit > 0 ? (int)i : -1;
    }
    return -1;
}

struct report {
    const char *kind, *time, *count; // count NULL: a row is a launch
};
static const struct report reports[] = {
        {"nsys cuda_gpu_kern_sum", "Total Time", "Instances"},
        {"nsys cuda_gpu_trace", "Duration", NULL},
};

// The columns of a report in a header row; 0: it is none of this report.
static int find_columns(const struct kiln_csv_row *header, const struct report *report,
        int columns[3], double *unit) {
    columns[0] = kiln_csv_column(header, "Name");
    columns[1] = timed_column(header, report->time, unit);
    columns[2] = report->count ? kiln_csv_column(header, report->count) : -1;
    return columns[0] >= 0 && columns[1] >= 0 && (!report->count || columns[2] >= 0);
}

static enum kiln_status add_rows(struct kiln_profile *profile, const struct kiln_csv *csv,
        size_t first, const int columns[3], double unit, const char *path, struct kiln_err *err) {
    for (size_t i = first; i < csv->n; i++) {
        const struct kiln_csv_row *row = &csv->rows[i];
        double time, count = 1;
        size_t needed = (size_t)(columns[0] > columns[1] ? columns[0] : columns[1]);
        if (row->n <= needed || (columns[2] >= 0 && row->n <= (size_t)columns[2]) ||
                !kiln_csv_number(row->fields[columns[1]], &time) || time < 0 ||
                (columns[2] >= 0 && !kiln_csv_number(row->fields[columns[2]], &count))) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "%s:%u: no row of a kernel with its time: it is cut short, or another report "
                    "follows",
                    path, row->line);
        }
        const char *name = row->fields[columns[0]];
        if (name[0] != '[') { // "[CUDA memcpy Host-to-Device]"
            KILN_TRY(add(profile, name, time * unit, (int64_t)count, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_nsys(struct kiln_profile *profile, const struct kiln_csv *csv,
        const char *path, struct kiln_err *err) {
    for (size_t i = 0; i < csv->n; i++) { // what nsys says of itself stands before the header
        for (size_t r = 0; r < sizeof(reports) / sizeof(reports[0]); r++) {
            int columns[3];
            double unit = 0;
            if (find_columns(&csv->rows[i], &reports[r], columns, &unit)) {
                profile->kind = reports[r].kind;
                return add_rows(profile, csv, i + 1, columns, unit, path, err);
            }
        }
    }
    return kiln_err_set(err, KILN_STATUS_FILE,
            "%s: no profile that is known: expected is the CSV of `nsys stats --report "
            "cuda_gpu_kern_sum` or `cuda_gpu_trace`, of `ncu --csv`, or what `kiln wall --save` "
            "writes",
            path);
}

static enum kiln_status read_ncu(struct kiln_profile *profile, const struct kiln_csv *csv,
        const char *path, struct kiln_err *err) {
    struct kiln_ncu ncu;
    enum kiln_status status = kiln_ncu_from(csv, path, &ncu, err);
    for (size_t i = 0; status == KILN_STATUS_OK && i < ncu.n; i++) {
        status = add(
                profile, ncu.kernels[i].name, ncu.kernels[i].seconds, ncu.kernels[i].launches, err);
    }
    profile->kind = "ncu";
    kiln_ncu_finish(&ncu);
    return status;
}

static int longest_first(const void *a, const void *b) {
    double x = ((const struct kiln_profile_kernel *)a)->seconds;
    double y = ((const struct kiln_profile_kernel *)b)->seconds;
    return (x < y) - (x > y);
}

enum kiln_status kiln_profile_read(
        const char *path, struct kiln_profile *profile, struct kiln_err *err) {
    struct kiln_csv csv;
    *profile = (struct kiln_profile){0};
    enum kiln_status status = kiln_csv_read(path, &csv, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_ncu_is(&csv) ? read_ncu(profile, &csv, path, err)
                                   : read_nsys(profile, &csv, path, err);
    }
    kiln_csv_finish(&csv);
    if (status == KILN_STATUS_OK && profile->seconds <= 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: no kernel with a time in it", path);
    }
    if (status == KILN_STATUS_OK) {
        qsort(profile->kernels, profile->n, sizeof(*profile->kernels), longest_first);
    }
    return status;
}

void kiln_profile_finish(struct kiln_profile *profile) {
    for (size_t i = 0; i < profile->n; i++) {
        kiln_free(profile->kernels[i].name);
    }
    kiln_free(profile->kernels);
    *profile = (struct kiln_profile){0};
}
