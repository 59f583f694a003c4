// audit_impl: the figures of an audited kernel by name, for text, JSON and differences alike.
#ifndef KILN_LAB_AUDIT_IMPL_H
#define KILN_LAB_AUDIT_IMPL_H

#include "lab/audit.h"

// A number of a kernel. Values are whole but for the ratio.
struct kiln_audit_figure {
    const char *name; // its key in JSON
    int ratio;        // 0 to 1
    // 0: not known, or not of this kind of kernel.
    int (*get)(const struct kiln_audit_kernel *kernel, double *value);
};

// NULL behind the last.
const struct kiln_audit_figure *kiln_audit_figure_at(size_t index);

// Bytes that spilling moves, both ways; -1: not known.
int64_t kiln_audit_spills(const struct kiln_audit_kernel *kernel);
// The loop that a turn is counted of: the one with most work of the tensor cores, else with most
// barriers. NULL: not known, or there is none.
const struct kiln_structure_loop *kiln_audit_main_loop(const struct kiln_audit_kernel *kernel);
// "tensor cores, shared memory, ALU": what a line's instructions use of them; "" for none.
enum {
    KILN_AUDIT_UNITS = 64
};
void kiln_audit_units(const struct kiln_structure_line *line, char text[KILN_AUDIT_UNITS]);
// "16 mma 16 ldmatrix": how many instructions of them; "" for none.
enum {
    KILN_AUDIT_COUNTS = 256
};
void kiln_audit_counts(const struct kiln_structure_line *line, char text[KILN_AUDIT_COUNTS]);
// "mma", "ldmatrix" …: of enum kiln_structure_class.
const char *kiln_audit_class_name(unsigned kind);
// The line's text in the kernel's own source, blanks around it left out. 0: it is not there.
size_t kiln_audit_source_line(const struct kiln_audit_kernel *kernel,
        const struct kiln_structure_line *line, const char **text);
// The kernel did compile, or nothing was compiled.
int kiln_audit_is_sound(const struct kiln_audit_kernel *kernel);

// The kernel of `change` that stands where `kernel` stands in `base`; NULL: none. (audit_diff.c)
const struct kiln_audit_kernel *kiln_audit_counterpart(const struct kiln_audit *base,
        const struct kiln_audit_kernel *kernel, const struct kiln_audit *change);
// What a difference tells one by one: name, then both values as text ("-": none there).
typedef void (*kiln_audit_diff_fn)(
        void *arg, const char *name, const char *base, const char *change);
// Both NULL-able, not both NULL. Returns how many differences there are.
size_t kiln_audit_each_diff(const struct kiln_audit_kernel *base,
        const struct kiln_audit_kernel *change, kiln_audit_diff_fn fn, void *arg);

// What was simulated, as lines, as rows of banks[] and as a JSON object. (audit_behaviour.c)
void kiln_audit_put_behaviour(struct kiln_buf *text, const struct kiln_behaviour *behaviour);
void kiln_audit_add_banks_json(struct json_t *banks, const struct kiln_behaviour *behaviour);
struct json_t *kiln_audit_behaviour_json(const struct kiln_behaviour *behaviour);
// What was measured, as lines and as a JSON object. (audit_measured.c)
void kiln_audit_put_measured(struct kiln_buf *text, const struct kiln_ncu_kernel *measured);
struct json_t *kiln_audit_measured_json(const struct kiln_ncu_kernel *measured);

#endif
