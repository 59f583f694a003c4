// report: what launches found and counted, by kernel, instruction and line. A report outlives the
// code: it keeps what it needs of it.
#include "device/sim/report.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FINDINGS = 1000,
    OPCODE = 64,
};

struct insn {                      // of a kernel, over all launches
    uint32_t file, line, ptx_line; // file: index into the kernel's files
    uint32_t from_file, from_line; // where it was inlined, outermost
    uint8_t class_, op;
    uint8_t whole_barrier, needed; // a barrier of the block; warps conflicted across it
    char opcode[OPCODE];
    uint64_t count, lanes, diverged;
    int writes;
    struct sim_site site;
};

struct kernel {
    char *name;
    char **files; // (n_files)
    size_t n_files, cap_files;
    struct insn *insns; // (n_insns)
    uint32_t n_insns;
    int advised; // warps of a block were looked at for what barriers order
    struct kiln_sim_kernel_counts counts;
    struct kiln_sim_line *lines;
    struct kiln_sim_site *sites;
    struct kiln_sim_mma *mma;
};

struct kiln_sim_report {
    struct kernel *kernels;
    size_t n_kernels, cap_kernels;
    struct kiln_sim_kernel_counts *counts; // of each kernel, as told last
    struct kiln_sim_finding *findings;     // without advice
    size_t n_findings, cap_findings;
    struct kiln_sim_finding *told; // with advice
    char **texts;                  // of the advice in it
    size_t n_told, n_texts;
};

// ---- Checks by name -----------------------------------------------------------------------------
static const char *const check_names[] = {
#define CHECK_NAME(name, text, meaning) text,
        KILN_SIM_CHECK_TABLE(CHECK_NAME)
#undef CHECK_NAME
};
static const char *const check_meanings[] = {
#define CHECK_MEANING(name, text, meaning) meaning,
        KILN_SIM_CHECK_TABLE(CHECK_MEANING)
#undef CHECK_MEANING
};

const char *kiln_sim_check_name(enum kiln_sim_check check) {
    return check < KILN_SIM_CHECK_COUNT ? check_names[check] : "?";
}

const char *kiln_sim_check_meaning(enum kiln_sim_check check) {
    return check < KILN_SIM_CHECK_COUNT ? check_meanings[check] : "?";
}

enum kiln_status kiln_sim_check_parse(const char *text, uint32_t *mask, struct kiln_err *err) {
    uint32_t found = 0;
    if (strcmp(text, "none") == 0) {
        *mask = 0;
        return KILN_STATUS_OK;
    }
    if (strcmp(text, "all") == 0) {
        *mask = KILN_SIM_CHECK_ALL;
        return KILN_STATUS_OK;
    }
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        uint32_t check = 0;
        while (check < KILN_SIM_CHECK_COUNT &&
                (strlen(check_names[check]) != n || memcmp(check_names[check], at, n) != 0)) {
            check++;
        }
        if (check == KILN_SIM_CHECK_COUNT) {
            return kiln_err_set(err, KILN_STATUS_USAGE,
                    "'%.*s' is no check of sim; those are all, none, or some of bounds, align, "
                    "race, uninit-shared, async, barrier, lanes, deadlock, uninit-global, "
                    "mbarrier, orders-nothing with commas between them",
                    (int)(n < 80 ? n : 80), at);
        }
        found |= 1u << check;
        at += n;
        if (!*at) {
            *mask = found;
            return KILN_STATUS_OK;
        }
    }
}

// ---- Life ---------------------------------------------------------------------------------------
enum kiln_status kiln_sim_report_create(struct kiln_sim_report **report, struct kiln_err *err) {
    *report = kiln_calloc(1, sizeof(**report));
    return *report ? KILN_STATUS_OK : kiln_err_nomem(err, "a report of sim");
}

static void forget_told(struct kiln_sim_report *report) {
    for (size_t i = 0; i < report->n_texts; i++) {
        kiln_free(report->texts[i]);
    }
    kiln_free(report->texts);
    kiln_free(report->told);
    report->texts = NULL;
    report->told = NULL;
    report->n_texts = report->n_told = 0;
}

static void forget_lists(struct kernel *kernel) {
    kiln_free(kernel->lines);
    kiln_free(kernel->sites);
    kiln_free(kernel->mma);
    kernel->lines = NULL;
    kernel->sites = NULL;
    kernel->mma = NULL;
}

static void finish_kernel(struct kernel *kernel) {
    for (size_t i = 0; i < kernel->n_files; i++) {
        kiln_free(kernel->files[i]);
    }
    forget_lists(kernel);
    kiln_free(kernel->files);
    kiln_free(kernel->insns);
    kiln_free(kernel->name);
}

static void finish_finding(struct kiln_sim_finding *finding) {
    kiln_free((void *)(uintptr_t)finding->text);
    kiln_free((void *)(uintptr_t)finding->allocation);
}

void kiln_sim_report_clear(struct kiln_sim_report *report) {
    forget_told(report);
    for (size_t i = 0; i < report->n_findings; i++) {
        finish_finding(&report->findings[i]);
    }
    for (size_t i = 0; i < report->n_kernels; i++) {
        finish_kernel(&report->kernels[i]);
    }
    kiln_free(report->findings);
    kiln_free(report->kernels);
    kiln_free(report->counts);
    *report = (struct kiln_sim_report){.n_kernels = 0};
}

void kiln_sim_report_destroy(struct kiln_sim_report *report) {
    if (report) {
        kiln_sim_report_clear(report);
        kiln_free(report);
    }
}

const char *kiln_sim_file(
        const struct kiln_sim_kernel *kernel, const struct kiln_ptx_where *where) {
    const struct kiln_ptx_module *module = kernel->code->module;
    const char *file = where->file < module->n_files ? module->files[where->file] : NULL;
    return file ? file : "";
}

// ---- Kernels ------------------------------------------------------------------------------------
static int add_file(struct kernel *kernel, const char *file, uint32_t *index) {
    for (size_t i = 0; i < kernel->n_files; i++) {
        if (strcmp(kernel->files[i], file) == 0) {
            *index = (uint32_t)i;
            return 1;
        }
    }
    if (kiln_grow(&kernel->files, &kernel->cap_files, kernel->n_files + 1,
                sizeof(*kernel->files)) != 0) {
        return 0;
    }
    char *copy = kiln_strdup(file);
    if (!copy) {
        return 0;
    }
    *index = (uint32_t)kernel->n_files;
    kernel->files[kernel->n_files++] = copy;
    return 1;
}

static void describe(struct insn *to, const struct kiln_ptx_insn *insn) {
    to->class_ = (uint8_t)kiln_sim_class_of(insn);
    to->op = (uint8_t)insn->op;
    to->whole_barrier = insn->op == KILN_PTX_OP_BAR && insn->b == KILN_PTX_NONE;
    to->needed = insn->op == KILN_PTX_OP_BAR && insn->sub != KILN_PTX_BAR_SYNC;
    to->writes = insn->op == KILN_PTX_OP_ATOM || insn->op == KILN_PTX_OP_ST ||
                 insn->op == KILN_PTX_OP_STMATRIX || insn->op == KILN_PTX_OP_WMMA_STORE;
    kiln_sim_opcode(insn, to->opcode, sizeof(to->opcode));
}

static int is_same(const struct kernel *mine, const struct kiln_sim_kernel *kernel) {
    if (strcmp(mine->name, kernel->ptx->name) != 0 || mine->n_insns != kernel->n_insns) {
        return 0;
    }
    for (uint32_t i = 0; i < mine->n_insns; i++) {
        const struct kiln_ptx_where *where = kiln_sim_where(kernel, i);
        if (mine->insns[i].line != where->line || mine->insns[i].ptx_line != where->ptx_line ||
                mine->insns[i].op != kiln_sim_insn(kernel, i)->op) {
            return 0;
        }
    }
    return 1;
}

static enum kiln_status find_kernel(struct kiln_sim_report *report,
        const struct kiln_sim_kernel *kernel, size_t *index, struct kiln_err *err) {
    for (*index = 0; *index < report->n_kernels; ++*index) {
        if (is_same(&report->kernels[*index], kernel)) {
            return KILN_STATUS_OK;
        }
    }
    if (kiln_grow(&report->kernels, &report->cap_kernels, report->n_kernels + 1,
                sizeof(*report->kernels)) != 0) {
        return kiln_err_nomem(err, "a report of sim");
    }
    struct kernel made = {.name = kiln_strdup(kernel->ptx->name),
            .insns = kiln_calloc(kernel->n_insns, sizeof(*made.insns)),
            .n_insns = kernel->n_insns};
    int good = made.name && made.insns;
    for (uint32_t i = 0; good && i < kernel->n_insns; i++) {
        const struct kiln_ptx_where *where = kiln_sim_where(kernel, i);
        made.insns[i].line = where->line;
        made.insns[i].ptx_line = where->ptx_line;
        describe(&made.insns[i], kiln_sim_insn(kernel, i));
        good = add_file(&made, kiln_sim_file(kernel, where), &made.insns[i].file);
        const struct kiln_ptx_module *module = kernel->code->module;
        while (where->inlined < module->n_wheres) {
            where = &module->wheres[where->inlined];
        }
        made.insns[i].from_line = where->line;
        good = good && add_file(&made, kiln_sim_file(kernel, where), &made.insns[i].from_file);
    }
    if (!good) {
        finish_kernel(&made);
        return kiln_err_nomem(err, "a report of sim");
    }
    report->kernels[report->n_kernels++] = made;
    return KILN_STATUS_OK;
}

// ---- Findings -----------------------------------------------------------------------------------
static const char *space_name(int space) {
    switch (space) {
    case KILN_PTX_GLOBAL:
    case KILN_PTX_CONSTANT:
        return "global";
    case KILN_PTX_SHARED:
        return "shared";
    case KILN_PTX_LOCAL:
        return "local";
    case KILN_PTX_PARAM:
        return "param";
    default:
        return "";
    }
}

static char *finding_text(
        const struct kiln_sim_finding *f, const char *note, uint32_t shared, uint32_t used) {
    char where[80] = "";
    if (f->space[0]) {
        snprintf(where, sizeof(where), ", %s 0x%" PRIx64, f->space, f->address);
    }
    const char *meaning = f->check == KILN_SIM_CHECK_UNINIT_GLOBAL   ? "read of unwritten memory"
                          : f->check == KILN_SIM_CHECK_UNINIT_SHARED ? "read of unwritten memory"
                          : f->check == KILN_SIM_CHECK_BOUNDS        ? "access out of bounds"
                          : f->check == KILN_SIM_CHECK_ALIGN         ? "misaligned access"
                          : f->check == KILN_SIM_CHECK_ASYNC         ? "touched too early"
                                                             : kiln_sim_check_meaning(f->check);
    char missing[80] = "";
    if (f->check == KILN_SIM_CHECK_BOUNDS && strcmp(f->space, "shared") == 0 && used > shared) {
        snprintf(missing, sizeof(missing), "; in all the launch uses %u bytes: %u missing", used,
                used - shared);
    }
    char from[200] = "";
    if (f->from_line != f->line || strcmp(f->from_file, f->file) != 0) {
        snprintf(from, sizeof(from), ", inlined at %.150s:%u", f->from_file, f->from_line);
    }
    return kiln_asprintf("%s:%u: %s: %s: %s%s (kernel %s, block (%u, %u, %u), thread (%u, %u, "
                         "%u)%s%s%s%s%s, PTX line %u)",
            f->file[0] ? f->file : "no source", f->line, kiln_sim_check_name(f->check), meaning,
            note, missing, f->kernel, f->block[0], f->block[1], f->block[2], f->thread[0],
            f->thread[1], f->thread[2], where, f->allocation[0] ? " in '" : "", f->allocation,
            f->allocation[0] ? "'" : "", from, f->ptx_line);
}

// The finding of that line and kind, NULL: none yet.
static struct kiln_sim_finding *find_finding(struct kiln_sim_report *report,
        const struct kernel *kernel, const struct insn *insn, enum kiln_sim_check check) {
    for (size_t i = 0; i < report->n_findings; i++) {
        struct kiln_sim_finding *f = &report->findings[i];
        int same_place = insn->line ? f->line == insn->line : f->ptx_line == insn->ptx_line;
        if (f->check == check && same_place && strcmp(f->file, kernel->files[insn->file]) == 0 &&
                strcmp(f->kernel, kernel->name) == 0) {
            return f;
        }
    }
    return NULL;
}

static enum kiln_status add_finding(struct kiln_sim_report *report, const struct kernel *kernel,
        const struct sim_record *record, uint32_t shared, struct kiln_err *err) {
    const struct insn *insn = &kernel->insns[record->id];
    struct kiln_sim_finding *same = find_finding(report, kernel, insn, record->check);
    if (same) {
        same->count += record->count;
        return KILN_STATUS_OK;
    }
    if (report->n_findings >= MAX_FINDINGS) {
        return KILN_STATUS_OK;
    }
    struct kiln_sim_finding f = {.check = record->check,
            .kernel = kernel->name,
            .file = kernel->files[insn->file],
            .line = insn->line,
            .from_file = kernel->files[insn->from_file],
            .from_line = insn->from_line,
            .ptx_line = insn->ptx_line,
            .space = space_name(record->space),
            .address = record->address,
            .count = record->count};
    memcpy(f.block, record->at, sizeof(f.block));
    memcpy(f.thread, record->thread, sizeof(f.thread));
    char *allocation = kiln_strdup(record->allocation);
    f.allocation = allocation ? allocation : "";
    char *text =
            allocation ? finding_text(&f, record->note, shared, kernel->counts.shared_used) : NULL;
    if (!text || kiln_grow(&report->findings, &report->cap_findings, report->n_findings + 1,
                         sizeof(*report->findings)) != 0) {
        kiln_free(text);
        kiln_free(allocation);
        return kiln_err_nomem(err, "a finding of sim");
    }
    f.text = text;
    report->findings[report->n_findings++] = f;
    return KILN_STATUS_OK;
}

static int earlier(const void *a, const void *b) {
    const struct sim_record *x = a, *y = b;
    if (x->block != y->block) {
        return x->block < y->block ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

// All workers' records, one of each kind and instruction, in the order of blocks.
static enum kiln_status add_findings(struct kiln_sim_report *report, const struct kernel *kernel,
        const struct sim_run *run, struct kiln_err *err) {
    size_t n = 0, most = 0;
    for (uint32_t w = 0; w < run->n_workers; w++) {
        most += run->workers[w].n_records;
    }
    struct sim_record *all = kiln_calloc(most, sizeof(*all));
    if (!all) {
        return kiln_err_nomem(err, "the findings of sim");
    }
    for (uint32_t w = 0; w < run->n_workers; w++) {
        for (size_t i = 0; i < run->workers[w].n_records; i++) {
            const struct sim_record *one = &run->workers[w].records[i];
            size_t k = 0;
            while (k < n && (all[k].id != one->id || all[k].check != one->check)) {
                k++;
            }
            if (k == n) {
                all[n++] = *one;
                continue;
            }
            uint64_t count = all[k].count + one->count;
            all[k] = one->block < all[k].block ? *one : all[k];
            all[k].count = count;
        }
    }
    qsort(all, n, sizeof(*all), earlier);
    enum kiln_status status = KILN_STATUS_OK;
    for (size_t i = 0; status == KILN_STATUS_OK && i < n; i++) {
        status = add_finding(report, kernel, &all[i], run->shared_bytes, err);
    }
    kiln_free(all);
    return status;
}

// ---- Counters -----------------------------------------------------------------------------------
static void add_traffic(struct sim_traffic *to, const struct sim_traffic *more) {
    to->requests += more->requests;
    to->bytes += more->bytes;
    to->units += more->units;
    to->ideal += more->ideal;
}

static void add_counts(struct kernel *kernel, const struct sim_run *run) {
    const struct kiln_sim_kernel *code = run->launch->kernel;
    for (uint32_t w = 0; w < run->n_workers; w++) {
        const struct sim_worker *worker = &run->workers[w];
        for (size_t b = 0; b < code->n_blocks; b++) {
            const struct sim_block_info *block = &code->blocks[b];
            for (uint32_t i = 0; i < block->count; i++) {
                kernel->insns[block->first + i].count += worker->block_count[b];
                kernel->insns[block->first + i].lanes += worker->block_lanes[b];
            }
        }
        for (uint32_t i = 0; i < kernel->n_insns; i++) {
            struct insn *insn = &kernel->insns[i];
            const struct sim_site *site = &worker->sites[i];
            insn->diverged += worker->diverged[i];
            insn->needed |= worker->barrier_needed[i];
            add_traffic(&insn->site.global, &site->global);
            add_traffic(&insn->site.shared, &site->shared);
            insn->site.ways = site->ways > insn->site.ways ? site->ways : insn->site.ways;
        }
        struct kiln_sim_kernel_counts *c = &kernel->counts;
        c->shared_used =
                worker->shared_used > c->shared_used ? worker->shared_used : c->shared_used;
    }
    struct kiln_sim_kernel_counts *c = &kernel->counts;
    c->launches++;
    c->blocks += run->n_blocks;
    c->warps += run->n_blocks * run->n_warps;
    c->shared_requested =
            run->shared_bytes > c->shared_requested ? run->shared_bytes : c->shared_requested;
    kernel->advised |=
            run->n_warps > 1 && run->workers[0].checks >> KILN_SIM_CHECK_ORDERS_NOTHING & 1;
}

enum kiln_status kiln_sim_report_add(
        struct kiln_sim_report *report, const struct sim_run *run, struct kiln_err *err) {
    size_t index = 0;
    forget_told(report);
    KILN_TRY(find_kernel(report, run->launch->kernel, &index, err));
    add_counts(&report->kernels[index], run);
    return add_findings(report, &report->kernels[index], run, err);
}

// ---- Telling ------------------------------------------------------------------------------------
static int compare_places(const struct insn *a, const struct insn *b) {
    if (a->file != b->file) {
        return a->file < b->file ? -1 : 1;
    }
    return (a->line > b->line) - (a->line < b->line);
}

static int by_place(const void *a, const void *b) {
    return compare_places(*(const struct insn *const *)a, *(const struct insn *const *)b);
}

static void add_insn(struct kiln_sim_counts *c, const struct insn *insn) {
    c->instructions += insn->count;
    c->lanes += insn->lanes;
    c->by_class[insn->class_] += insn->count;
    c->barriers += insn->op == KILN_PTX_OP_BAR ? insn->count : 0;
    if (insn->op == KILN_PTX_OP_BRA || insn->op == KILN_PTX_OP_BRX) {
        c->branches += insn->count;
        c->divergent_branches += insn->diverged;
    }
    c->mbarriers += insn->op == KILN_PTX_OP_MBARRIER ? insn->count : 0;
    if (insn->op == KILN_PTX_OP_CP_BULK || insn->op == KILN_PTX_OP_CP_TENSOR) {
        // No requests of the warp's.
        c->bulk_copies += insn->site.global.requests;
        c->bulk_bytes += insn->site.global.bytes;
        c->bulk_sectors += insn->site.global.units;
        return;
    }
    const struct sim_site *s = &insn->site;
    const struct sim_traffic *g = &s->global, *sh = &s->shared;
    // cp.async reads global memory and writes shared memory.
    const int stores = insn->writes || insn->op == KILN_PTX_OP_CP_ASYNC;
    c->shared_ways = s->ways > c->shared_ways ? s->ways : c->shared_ways;
    *(stores ? &c->shared_stores : &c->shared_loads) += sh->requests;
    *(stores ? &c->shared_store_wavefronts : &c->shared_load_wavefronts) += sh->units;
    *(stores ? &c->shared_store_ideal : &c->shared_load_ideal) += sh->ideal;
    *(insn->writes ? &c->global_stores : &c->global_loads) += g->requests;
    *(insn->writes ? &c->global_store_bytes : &c->global_load_bytes) += g->bytes;
    *(insn->writes ? &c->global_store_sectors : &c->global_load_sectors) += g->units;
}

static int list_lines(struct kernel *kernel, const struct insn **order, uint32_t n) {
    kernel->lines = kiln_calloc(n, sizeof(*kernel->lines));
    if (!kernel->lines) {
        return 0;
    }
    uint32_t n_lines = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || compare_places(order[i], order[i - 1]) != 0) {
            kernel->lines[n_lines++] = (struct kiln_sim_line){
                    .file = kernel->files[order[i]->file], .line = order[i]->line};
        }
        add_insn(&kernel->lines[n_lines - 1].counts, order[i]);
    }
    kernel->counts.lines = kernel->lines;
    kernel->counts.n_lines = n_lines;
    return 1;
}

static int is_site(const struct insn *insn) {
    const int requests = insn->site.global.requests || insn->site.shared.requests;
    return insn->count &&
           (requests || insn->class_ == KILN_SIM_CLASS_TENSOR || insn->op == KILN_PTX_OP_BAR);
}

static int list_sites(struct kernel *kernel) {
    kernel->sites = kiln_calloc(kernel->n_insns, sizeof(*kernel->sites));
    kernel->mma = kiln_calloc(kernel->n_insns, sizeof(*kernel->mma));
    if (!kernel->sites || !kernel->mma) {
        return 0;
    }
    uint32_t n_sites = 0, n_mma = 0;
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        const struct insn *insn = &kernel->insns[i];
        if (!is_site(insn)) {
            continue;
        }
        struct kiln_sim_site *site = &kernel->sites[n_sites++];
        *site = (struct kiln_sim_site){.file = kernel->files[insn->file],
                .line = insn->line,
                .ptx_line = insn->ptx_line,
                .opcode = insn->opcode};
        add_insn(&site->counts, insn);
        if (insn->class_ != KILN_SIM_CLASS_TENSOR) {
            continue;
        }
        const char *shape = strstr(insn->opcode, "mma.");
        shape = shape ? shape + 4 : insn->opcode;
        uint32_t k = 0;
        while (k < n_mma && strcmp(kernel->mma[k].shape, shape) != 0) {
            k++;
        }
        n_mma += k == n_mma;
        kernel->mma[k].shape = shape;
        kernel->mma[k].count += insn->count;
    }
    kernel->counts.sites = kernel->sites;
    kernel->counts.n_sites = n_sites;
    kernel->counts.mma = kernel->mma;
    kernel->counts.n_mma = n_mma;
    return 1;
}

static void tell_kernel(struct kernel *kernel) {
    struct kiln_sim_kernel_counts *c = &kernel->counts;
    forget_lists(kernel);
    c->kernel = kernel->name;
    c->n_lines = c->n_sites = c->n_mma = 0;
    c->total = (struct kiln_sim_counts){0};
    const struct insn **order = kiln_calloc(kernel->n_insns, sizeof(const struct insn *));
    uint32_t n = 0;
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        add_insn(&c->total, &kernel->insns[i]);
        if (order && kernel->insns[i].count) {
            order[n++] = &kernel->insns[i];
        }
    }
    if (order) {
        qsort(order, n, sizeof(const struct insn *), by_place);
        if (!list_lines(kernel, order, n) || !list_sites(kernel)) {
            c->n_lines = c->n_sites = c->n_mma = 0;
        }
    }
    kiln_free(order);
}

uint32_t kiln_sim_kernels(
        struct kiln_sim_report *report, const struct kiln_sim_kernel_counts **kernels) {
    kiln_free(report->counts);
    report->counts = kiln_calloc(report->n_kernels, sizeof(*report->counts));
    *kernels = report->counts;
    for (size_t i = 0; report->counts && i < report->n_kernels; i++) {
        tell_kernel(&report->kernels[i]);
        report->counts[i] = report->kernels[i].counts;
    }
    return report->counts ? (uint32_t)report->n_kernels : 0;
}

uint64_t kiln_sim_instructions(const struct kiln_sim_report *report) {
    uint64_t n = 0;
    for (size_t k = 0; k < report->n_kernels; k++) {
        for (uint32_t i = 0; i < report->kernels[k].n_insns; i++) {
            n += report->kernels[k].insns[i].count;
        }
    }
    return n;
}

// ---- Advice -------------------------------------------------------------------------------------
// A line's barriers, all copies of it that the compiler made, order something when one does.
static int line_is_needed(const struct kernel *kernel, const struct insn *insn) {
    for (uint32_t i = 0; i < kernel->n_insns; i++) {
        const struct insn *other = &kernel->insns[i];
        int same = insn->line ? compare_places(insn, other) == 0 : insn == other;
        if (other->op == KILN_PTX_OP_BAR && same && other->needed) {
            return 1;
        }
    }
    return 0;
}

static int is_first_of_line(const struct kernel *kernel, uint32_t index) {
    for (uint32_t i = 0; i < index; i++) {
        const struct insn *other = &kernel->insns[i];
        if (other->op == KILN_PTX_OP_BAR && other->count && kernel->insns[index].line &&
                compare_places(&kernel->insns[index], other) == 0) {
            return 0;
        }
    }
    return 1;
}

static void advise(struct kiln_sim_report *report, const struct kernel *kernel, size_t room) {
    for (uint32_t i = 0; kernel->advised && i < kernel->n_insns && report->n_told < room; i++) {
        const struct insn *insn = &kernel->insns[i];
        if (!insn->whole_barrier || !insn->count || line_is_needed(kernel, insn) ||
                !is_first_of_line(kernel, i)) {
            continue;
        }
        struct kiln_sim_finding f = {.check = KILN_SIM_CHECK_ORDERS_NOTHING,
                .advice = 1,
                .kernel = kernel->name,
                .file = kernel->files[insn->file],
                .line = insn->line,
                .from_file = kernel->files[insn->from_file],
                .from_line = insn->from_line,
                .ptx_line = insn->ptx_line,
                .space = "",
                .allocation = "",
                .count = insn->count};
        char *text = kiln_asprintf("%s:%u: %s: no two warps conflict across this barrier in any "
                                   "block that ran: it orders nothing (kernel %s, PTX line %u)",
                f.file[0] ? f.file : "no source", f.line, kiln_sim_check_name(f.check), f.kernel,
                f.ptx_line);
        if (!text) {
            return;
        }
        f.text = text;
        report->texts[report->n_texts++] = text;
        report->told[report->n_told++] = f;
    }
}

uint32_t kiln_sim_findings(
        struct kiln_sim_report *report, const struct kiln_sim_finding **findings) {
    size_t barriers = 0;
    forget_told(report);
    *findings = report->findings;
    for (size_t k = 0; k < report->n_kernels; k++) {
        for (uint32_t i = 0; i < report->kernels[k].n_insns; i++) {
            barriers += report->kernels[k].insns[i].op == KILN_PTX_OP_BAR;
        }
    }
    size_t room = report->n_findings + barriers;
    report->told = kiln_calloc(room, sizeof(*report->told));
    report->texts = kiln_calloc(barriers, sizeof(*report->texts));
    if (!report->told || !report->texts) {
        forget_told(report);
        return (uint32_t)report->n_findings;
    }
    if (report->n_findings > 0) {
        memcpy(report->told, report->findings, report->n_findings * sizeof(*report->told));
    }
    report->n_told = report->n_findings;
    for (size_t k = 0; k < report->n_kernels; k++) {
        advise(report, &report->kernels[k], room);
    }
    *findings = report->told;
    return (uint32_t)report->n_told;
}

uint32_t kiln_sim_faults(struct kiln_sim_report *report) {
    return (uint32_t)report->n_findings;
}
