// audit: what each kernel of a set (engine/kernel_set.h) costs on a device, by arithmetic: which
// stage runs where, shared memory, registers, blocks and warps a multiprocessor, bank conflicts by
// site, bytes and flops.
//
// Every figure here is of the grade "derived": from the plan, the compiled kernel and the device's
// description. Nothing is run, and the device need not be there.
#ifndef KILN_LAB_AUDIT_H
#define KILN_LAB_AUDIT_H

#include "base/buf.h"
#include "base/status.h"
#include "engine/kernel_set.h"
#include "jit/occupancy.h"
#include "lab/behaviour.h"
#include "lab/ncu.h"
#include "lab/structure.h"
#include "plugin/arena.h"

#include <stddef.h>
#include <stdint.h>

struct kiln_audit_bank {
    const struct kiln_smem_site *site;
    unsigned ways; // 1: no conflict
};

// Ops of the pass that run the kernel alike.
struct kiln_audit_call {
    const char *role;
    uint32_t phase; // enum kiln_phase
    uint32_t ops;
    const struct kiln_launch *launch; // grid, bytes and flops of one op
};

struct kiln_audit_kernel {
    const struct kiln_kernel_row *row;
    const struct kiln_jit_item *item; // NULL: not compiled here
    struct kiln_block_use use;        // as launched
    struct kiln_occupancy occupancy;  // of it; on a CUDA device
    int32_t layout;                   // bytes that its own layout has; -1: not known
    struct kiln_occupancy by_layout;  // with the layout's bytes in place of the launcher's
    struct kiln_audit_bank *banks;
    uint32_t n_banks, n_calls;
    struct kiln_audit_call *calls;
    struct kiln_structure *structure;       // NULL: not known
    struct kiln_behaviour *behaviour;       // NULL: not simulated; see kiln_audit_simulate
    const struct kiln_ncu_kernel *measured; // NULL: not measured; see kiln_audit_measured
};

struct kiln_audit {
    struct kiln_audit_kernel *kernels; // in the order of the pass
    size_t count, cap;
    char *no_compiler; // why registers and layouts are not known; NULL: they are
    struct kiln_arena arena;
};

// compiled: kiln_kernel_list_compile has run. *audit starts zeroed; the caller ends it with
// kiln_audit_finish, also after a failure (NOMEM). The set must outlive it.
KILN_MUST_CHECK enum kiln_status kiln_audit_make(struct kiln_audit *audit,
        const struct kiln_kernel_set *set, int compiled, struct kiln_err *err);
void kiln_audit_finish(struct kiln_audit *audit);

// Compiles the set where there is an NVRTC, and audits it. Without one, registers and layouts are
// not known and no_compiler says why. A kernel that does not compile is in its item, and the first
// such failure is returned behind a complete audit.
KILN_MUST_CHECK enum kiln_status kiln_audit_compile(struct kiln_audit *audit,
        struct kiln_kernel_set *set, struct kiln_jit *jit, struct kiln_err *err);

// Puts what ncu measured beside the kernels of the same name; ncu outlives the audit. Returns how
// many kernels were found in it. (audit_measured.c)
size_t kiln_audit_measured(struct kiln_audit *audit, const struct kiln_ncu *ncu);

// Three lines a kernel and what is behind them. (audit_text.c)
void kiln_audit_print(const struct kiln_audit *audit, struct kiln_buf *text);
// One kernel of `base` against its counterpart in `change`, figure by figure where they differ.
void kiln_audit_print_diff(
        const struct kiln_audit *base, const struct kiln_audit *change, struct kiln_buf *text);

// The rows as JSON arrays; NULL: out of memory. (audit_json.c)
struct json_t *kiln_audit_json(const struct kiln_audit *audit);
struct json_t *kiln_audit_diff_json(const struct kiln_audit *base, const struct kiln_audit *change);

#endif
