// ncu: two pages, one result.
#include "lab/ncu.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A figure by its name on both pages. Metrics of the details page that share a name differ by unit.
struct figure {
    const char *name, *metric, *unit;
    const char *columns[2]; // of the raw page; which of them there is depends on ncu's version
};
static const struct figure figures[KILN_NCU_FIGURES] = {
        {"sm_busy_pct", "SM Busy", "%",
                {"sm__instruction_throughput.avg.pct_of_peak_sustained_active",
                        "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed"}},
        {"compute_pct", "Compute (SM) Throughput", "%",
                {"sm__throughput.avg.pct_of_peak_sustained_elapsed"}},
        {"memory_pct", "Memory Throughput", "%",
                {"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"}},
        {"dram_pct", "DRAM Throughput", "%",
                {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"}},
        {"issue_pct", "Issue Slots Busy", "%",
                {"sm__inst_issued.avg.pct_of_peak_sustained_active",
                        "sm__inst_issued.avg.pct_of_peak_sustained_elapsed"}},
        {"occupancy_pct", "Achieved Occupancy", "%",
                {"sm__warps_active.avg.pct_of_peak_sustained_active"}},
        {"l1_hit_pct", "L1/TEX Hit Rate", "%", {"l1tex__t_sector_hit_rate.pct"}},
        {"l2_hit_pct", "L2 Hit Rate", "%", {"lts__t_sector_hit_rate.pct"}},
};

const char *kiln_ncu_figure_name(enum kiln_ncu_figure figure) {
    return figures[figure].name;
}

double kiln_unit_seconds(const char *unit) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"nsecond", 1e-9}, {"us", 1e-6}, {"usecond", 1e-6}, {"ms", 1e-3},
            {"msecond", 1e-3}, {"s", 1}, {"second", 1}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(unit, units[i].name) == 0) {
            return units[i].seconds;
        }
    }
    return 0;
}

// ---- Kernels ------------------------------------------------------------------------------------

// "void ns::fap2<64>(int)" -> "fap2".
static char *entry_of(const char *name) {
    size_t end = strcspn(name, "<(");
    size_t from = end;
    while (from > 0 && name[from - 1] != ' ' && name[from - 1] != ':') {
        from--;
    }
    return kiln_asprintf("%.*s", (int)(end - from), name + from);
}

static enum kiln_status kernel_of(struct kiln_ncu *ncu, const char *name,
        struct kiln_ncu_kernel **kernel, struct kiln_err *err) {
    for (size_t i = 0; i < ncu->n; i++) {
        if (strcmp(ncu->kernels[i].name, name) == 0) {
            *kernel = &ncu->kernels[i];
            return KILN_STATUS_OK;
        }
    }
    struct kiln_ncu_kernel one = {
            .name = kiln_strdup(name), .entry = entry_of(name), .last_id = -1};
    if (!one.name || !one.entry ||
            kiln_grow(&ncu->kernels, &ncu->cap, ncu->n + 1, sizeof(*ncu->kernels)) != 0) {
        kiln_free(one.name);
        kiln_free(one.entry);
        return kiln_err_nomem(err, "the kernels of a profile");
    }
    ncu->kernels[ncu->n++] = one;
    *kernel = &ncu->kernels[ncu->n - 1];
    return KILN_STATUS_OK;
}

// A launch is known by its number in the export.
static void count_launch(struct kiln_ncu_kernel *kernel, const char *id) {
    int64_t number = strtoll(id, NULL, 10);
    if (number != kernel->last_id) {
        kernel->last_id = number;
        kernel->launches++;
        kernel->timed = 0;
    }
}

// Its time, which the page tells twice where it was asked for by name beside a section.
static void add_time(struct kiln_ncu_kernel *kernel, double seconds) {
    kernel->seconds += kernel->timed ? 0 : seconds;
    kernel->timed = 1;
}

static int is_duration(const char *metric) {
    return strcmp(metric, "Duration") == 0 || strcmp(metric, "gpu__time_duration.sum") == 0;
}

static void add_figure(struct kiln_ncu_kernel *kernel, int figure, double value) {
    kernel->figures[figure] += value;
    kernel->counts[figure]++;
}

// name: as the export has it, with "_" or " " between words.
static void add_stall(struct kiln_ncu_kernel *kernel, const char *name, size_t len, double value) {
    struct kiln_ncu_stall *stall = NULL;
    char own[sizeof(stall->name)];
    if (len >= sizeof(own)) {
        return;
    }
    for (size_t i = 0; i < len; i++) {
        own[i] = name[i] == '_'                     ? ' '
                 : name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 32)
                                                    : name[i];
    }
    own[len] = '\0';
    for (uint32_t i = 0; i < kernel->n_stalls && !stall; i++) {
        stall = strcmp(kernel->stalls[i].name, own) == 0 ? &kernel->stalls[i] : NULL;
    }
    if (!stall && kernel->n_stalls == KILN_NCU_STALLS) {
        return;
    }
    if (!stall) {
        stall = &kernel->stalls[kernel->n_stalls++];
        *stall = (struct kiln_ncu_stall){.cycles = 0};
        memcpy(stall->name, own, len + 1);
    }
    stall->cycles += value;
    stall->counts++;
}

static enum kiln_status bad_duration(const char *path, const struct kiln_csv_row *row,
        const char *value, const char *unit, struct kiln_err *err) {
    return kiln_err_set(err, KILN_STATUS_FILE,
            "%s:%u: a duration of '%.40s' '%.40s'; a number and ns, us, ms or s are expected", path,
            row->line, value, unit);
}

// ---- The details page ---------------------------------------------------------------------------

enum details_column {
    DETAILS_ID,
    DETAILS_KERNEL,
    DETAILS_METRIC,
    DETAILS_UNIT,
    DETAILS_VALUE,
    DETAILS_RULE, // from here on optional
    DETAILS_SPEEDUP,
    DETAILS_SPEEDUP_TYPE,
    DETAILS_COLUMNS
};

static const char *field(const struct kiln_csv_row *row, int column) {
    return column >= 0 && (size_t)column < row->n ? row->fields[column] : "";
}

// Of a kernel's time ("global") goes before of what the rule looks at alone ("local").
static enum kiln_status add_rule(struct kiln_ncu_kernel *kernel, const char *rule,
        const char *speedup, const char *type, struct kiln_err *err) {
    double pct;
    int local = strcmp(type, "local") == 0;
    if (!*rule || !kiln_csv_number(speedup, &pct) ||
            (kernel->rule && (local > kernel->local ||
                                     (local == kernel->local && pct <= kernel->speedup_pct)))) {
        return KILN_STATUS_OK;
    }
    kernel->local = local;
    kiln_free(kernel->rule);
    kernel->speedup_pct = pct;
    kernel->rule = kiln_strdup(rule);
    return kernel->rule ? KILN_STATUS_OK : kiln_err_nomem(err, "the kernels of a profile");
}

static enum kiln_status details_row(struct kiln_ncu *ncu, const char *path,
        const struct kiln_csv_row *row, const int *columns, struct kiln_err *err) {
    struct kiln_ncu_kernel *kernel;
    const char *metric = field(row, columns[DETAILS_METRIC]);
    const char *unit = field(row, columns[DETAILS_UNIT]);
    const char *text = field(row, columns[DETAILS_VALUE]);
    double value;
    KILN_TRY(kernel_of(ncu, field(row, columns[DETAILS_KERNEL]), &kernel, err));
    count_launch(kernel, field(row, columns[DETAILS_ID]));
    KILN_TRY(add_rule(kernel, field(row, columns[DETAILS_RULE]),
            field(row, columns[DETAILS_SPEEDUP]), field(row, columns[DETAILS_SPEEDUP_TYPE]), err));
    if (is_duration(metric)) {
        if (!kiln_csv_number(text, &value) || value < 0 || kiln_unit_seconds(unit) == 0) {
            return bad_duration(path, row, text, unit, err);
        }
        add_time(kernel, value * kiln_unit_seconds(unit));
        return KILN_STATUS_OK;
    }
    if (!kiln_csv_number(text, &value)) {
        return KILN_STATUS_OK; // a figure in words
    }
    for (int i = 0; i < KILN_NCU_FIGURES; i++) {
        if (strcmp(metric, figures[i].metric) == 0 && strcmp(unit, figures[i].unit) == 0) {
            add_figure(kernel, i, value);
        }
    }
    if (strncmp(metric, "Stall ", 6) == 0) {
        add_stall(kernel, metric + 6, strlen(metric + 6), value);
    }
    return KILN_STATUS_OK;
}

// ---- The raw page -------------------------------------------------------------------------------

// The stall that a column tells of: its name and length; 0: of none.
static size_t stall_of(const char *column, const char **name) {
    static const char before[] = "smsp__average_warps_issue_stalled_";
    static const char behind[] = "_per_issue_active.ratio";
    size_t len = strlen(column);
    if (strncmp(column, before, sizeof(before) - 1) != 0 ||
            len < sizeof(before) + sizeof(behind) - 2 ||
            strcmp(column + len - (sizeof(behind) - 1), behind) != 0 ||
            strstr(column, "_not_issued_") || strstr(column, "_stalled_selected_")) {
        return 0; // a selected warp issues: no stall, and no line of the details page either
    }
    *name = column + sizeof(before) - 1;
    return len - (sizeof(before) - 1) - (sizeof(behind) - 1);
}

static enum kiln_status raw_row(struct kiln_ncu *ncu, const char *path,
        const struct kiln_csv_row *header, const struct kiln_csv_row *units,
        const struct kiln_csv_row *row, struct kiln_err *err) {
    struct kiln_ncu_kernel *kernel;
    int duration = kiln_csv_column(header, "gpu__time_duration.sum");
    double value;
    KILN_TRY(kernel_of(ncu, field(row, kiln_csv_column(header, "Kernel Name")), &kernel, err));
    kernel->launches++;
    double unit = kiln_unit_seconds(field(units, duration));
    if (!kiln_csv_number(field(row, duration), &value) || value < 0 || unit == 0) {
        return bad_duration(path, row, field(row, duration), field(units, duration), err);
    }
    kernel->seconds += value * unit;
    for (size_t c = 0; c < header->n && c < row->n; c++) {
        const char *name;
        if (!kiln_csv_number(row->fields[c], &value)) {
            continue;
        }
        for (int i = 0; i < KILN_NCU_FIGURES; i++) {
            if (strcmp(header->fields[c], figures[i].columns[0]) == 0 ||
                    (figures[i].columns[1] &&
                            strcmp(header->fields[c], figures[i].columns[1]) == 0 &&
                            kiln_csv_column(header, figures[i].columns[0]) < 0)) {
                add_figure(kernel, i, value);
            }
        }
        size_t len = stall_of(header->fields[c], &name);
        if (len > 0) {
            add_stall(kernel, name, len, value);
        }
    }
    return KILN_STATUS_OK;
}

// ---- The file -----------------------------------------------------------------------------------

// The header row; NULL: there is none.
static const struct kiln_csv_row *header_of(const struct kiln_csv *csv) {
    for (size_t i = 0; i < csv->n; i++) {
        if (kiln_csv_column(&csv->rows[i], "Kernel Name") >= 0 &&
                kiln_csv_column(&csv->rows[i], "ID") >= 0) {
            return &csv->rows[i];
        }
    }
    return NULL;
}

int kiln_ncu_is(const struct kiln_csv *csv) {
    return header_of(csv) != NULL;
}

static int longest_first(const void *a, const void *b) {
    double x = ((const struct kiln_ncu_kernel *)a)->seconds;
    double y = ((const struct kiln_ncu_kernel *)b)->seconds;
    return (x < y) - (x > y);
}

static int stalls_first(const void *a, const void *b) {
    double x = ((const struct kiln_ncu_stall *)a)->cycles;
    double y = ((const struct kiln_ncu_stall *)b)->cycles;
    return (x < y) - (x > y);
}

// Sums become means.
static void conclude(struct kiln_ncu *ncu) {
    for (size_t i = 0; i < ncu->n; i++) {
        struct kiln_ncu_kernel *kernel = &ncu->kernels[i];
        for (int f = 0; f < KILN_NCU_FIGURES; f++) {
            kernel->figures[f] =
                    kernel->counts[f] > 0 ? kernel->figures[f] / (double)kernel->counts[f] : -1;
        }
        for (uint32_t s = 0; s < kernel->n_stalls; s++) {
            kernel->stalls[s].cycles /= (double)kernel->stalls[s].counts;
        }
        qsort(kernel->stalls, kernel->n_stalls, sizeof(kernel->stalls[0]), stalls_first);
    }
    if (ncu->n > 0) {
        qsort(ncu->kernels, ncu->n, sizeof(*ncu->kernels), longest_first);
    }
}

static enum kiln_status read_details(const struct kiln_csv *csv, const struct kiln_csv_row *header,
        const char *path, struct kiln_ncu *ncu, struct kiln_err *err) {
    static const char *const names[DETAILS_COLUMNS] = {"ID", "Kernel Name", "Metric Name",
            "Metric Unit", "Metric Value", "Rule Name", "Estimated Speedup",
            "Estimated Speedup Type"};
    int columns[DETAILS_COLUMNS];
    for (int i = 0; i < DETAILS_COLUMNS; i++) {
        columns[i] = kiln_csv_column(header, names[i]);
        if (columns[i] < 0 && i < DETAILS_RULE) {
            return kiln_err_set(
                    err, KILN_STATUS_FILE, "%s:%u: no column \"%s\"", path, header->line, names[i]);
        }
    }
    for (const struct kiln_csv_row *row = header + 1; row < csv->rows + csv->n; row++) {
        if (strncmp(field(row, 0), "==", 2) != 0) { // "==PROF== Disconnected from process 4711"
            KILN_TRY(details_row(ncu, path, row, columns, err));
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_raw(const struct kiln_csv *csv, const struct kiln_csv_row *header,
        const char *path, struct kiln_ncu *ncu, struct kiln_err *err) {
    for (const struct kiln_csv_row *row = header + 2; row < csv->rows + csv->n; row++) {
        if (strncmp(field(row, 0), "==", 2) != 0) {
            KILN_TRY(raw_row(ncu, path, header, header + 1, row, err)); // [1]: the units
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_ncu_from(
        const struct kiln_csv *csv, const char *path, struct kiln_ncu *ncu, struct kiln_err *err) {
    *ncu = (struct kiln_ncu){0};
    const struct kiln_csv_row *header = header_of(csv);
    if (!header || (kiln_csv_column(header, "Metric Name") < 0 &&
                           kiln_csv_column(header, "gpu__time_duration.sum") < 0)) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "%s: no CSV of Nsight Compute: expected is what `ncu --csv --page details` or "
                "`--page raw` prints (with \"Kernel Name\", and \"Metric Name\" or "
                "gpu__time_duration.sum)",
                path);
    }
    KILN_TRY(kiln_csv_column(header, "Metric Name") >= 0 ? read_details(csv, header, path, ncu, err)
                                                         : read_raw(csv, header, path, ncu, err));
    if (ncu->n == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: no launch in it", path);
    }
    conclude(ncu);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_ncu_read(const char *path, struct kiln_ncu *ncu, struct kiln_err *err) {
    struct kiln_csv csv;
    *ncu = (struct kiln_ncu){0};
    enum kiln_status status = kiln_csv_read(path, &csv, err);
    if (status == KILN_STATUS_OK) {
        status = kiln_ncu_from(&csv, path, ncu, err);
    }
    kiln_csv_finish(&csv);
    return status;
}

void kiln_ncu_finish(struct kiln_ncu *ncu) {
    for (size_t i = 0; i < ncu->n; i++) {
        kiln_free(ncu->kernels[i].name);
        kiln_free(ncu->kernels[i].entry);
        kiln_free(ncu->kernels[i].rule);
    }
    kiln_free(ncu->kernels);
    *ncu = (struct kiln_ncu){0};
}

const struct kiln_ncu_kernel *kiln_ncu_find(const struct kiln_ncu *ncu, const char *entry) {
    for (size_t i = 0; i < ncu->n; i++) {
        if (strcmp(ncu->kernels[i].entry, entry) == 0) {
            return &ncu->kernels[i];
        }
    }
    return NULL;
}
