// audit_structure: a kernel's structure in words: the units behind a source line, the main loop.
#include "lab/audit_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct kiln_structure_loop *kiln_audit_main_loop(const struct kiln_audit_kernel *kernel) {
    const struct kiln_structure *structure = kernel->structure;
    const struct kiln_structure_loop *best = NULL;
    for (size_t i = 0; structure && structure->loops_known && i < structure->n_loops; i++) {
        const struct kiln_structure_loop *loop = &structure->loops[i];
        uint32_t mma = loop->counts[KILN_STRUCTURE_MMA];
        uint32_t most = best ? best->counts[KILN_STRUCTURE_MMA] : 0;
        if (!best || mma > most || (mma == most && loop->barriers > best->barriers)) {
            best = loop;
        }
    }
    return best;
}

void kiln_audit_units(const struct kiln_structure_line *line, char text[KILN_AUDIT_UNITS]) {
    const uint32_t *n = line->counts;
    const struct {
        const char *name;
        uint32_t count;
    } units[] = {
            {"tensor cores", n[KILN_STRUCTURE_MMA]},
            {"shared memory", n[KILN_STRUCTURE_LDMATRIX] + n[KILN_STRUCTURE_LD_SHARED] +
                                      n[KILN_STRUCTURE_ST_SHARED]},
            {"async copy", n[KILN_STRUCTURE_ASYNC]},
            {"ALU", n[KILN_STRUCTURE_FLOAT] + n[KILN_STRUCTURE_SPECIAL] +
                            n[KILN_STRUCTURE_INTEGER]},
    };
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t len = strlen(units[i].name);
        if (units[i].count && used + len + 3 < KILN_AUDIT_UNITS) {
            memcpy(text + used, used ? ", " : "", used ? 2 : 0);
            used += used ? 2 : 0;
            memcpy(text + used, units[i].name, len + 1);
            used += len;
        }
    }
}

void kiln_audit_counts(const struct kiln_structure_line *line, char text[KILN_AUDIT_COUNTS]) {
    static const unsigned told[] = {KILN_STRUCTURE_MMA, KILN_STRUCTURE_LDMATRIX,
            KILN_STRUCTURE_ASYNC, KILN_STRUCTURE_LD_SHARED, KILN_STRUCTURE_ST_SHARED,
            KILN_STRUCTURE_SHUFFLE, KILN_STRUCTURE_MBARRIER, KILN_STRUCTURE_SPECIAL,
            KILN_STRUCTURE_FLOAT, KILN_STRUCTURE_INTEGER};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        uint32_t count = line->counts[told[i]];
        char one[32];
        snprintf(one, sizeof(one), "%s%" PRIu32 " %.12s", used ? " " : "", count,
                kiln_audit_class_name(told[i]));
        size_t len = count ? strlen(one) : 0;
        if (used + len < KILN_AUDIT_COUNTS) {
            memcpy(text + used, one, len);
            used += len;
            text[used] = '\0';
        }
    }
}

const char *kiln_audit_class_name(unsigned kind) {
    static const char *const names[KILN_STRUCTURE_CLASSES] = {"mma", "ldmatrix", "cp.async",
            "ld.shared", "st.shared", "shfl", "bar", "mbarrier", "ld.global", "st.global",
            "special", "float", "dp4a", "other"};
    return names[kind];
}

size_t kiln_audit_source_line(const struct kiln_audit_kernel *kernel,
        const struct kiln_structure_line *line, const char **text) {
    const struct kiln_source *source = kernel->row->launch->kernel->source;
    if (!source || kernel->row->op->source || strcmp(source->name, line->file) != 0) {
        return 0;
    }
    const char *at = source->text;
    for (uint32_t i = 1; i < line->line && at; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at || line->line == 0) {
        return 0;
    }
    at += strspn(at, " ");
    *text = at;
    return strcspn(at, "\n");
}
