// ptx_build: kernels out of statements: for each entry the functions it can reach, the places of
// its shared variables, its constants.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <string.h>

struct reach { // of one entry, by number of function and variable
    uint8_t *funcs;
    uint32_t *stack, n_stack;
    uint8_t *vars;
    uint32_t *shared_at;
};

// ---- What an entry reaches ----------------------------------------------------------------------

static void reach_function(const struct ptx_parser *p, struct reach *reach, uint32_t number) {
    if (!reach->funcs[number] && p->funcs[number].has_body) {
        reach->funcs[number] = 1;
        reach->stack[reach->n_stack++] = number;
    }
}

static void reach_operands(
        const struct ptx_parser *p, struct reach *reach, const struct ptx_func *func) {
    for (size_t i = 0; i < func->n_operands; i++) {
        if (func->operands[i].kind != PTX_OPERAND_SYMBOL) {
            continue;
        }
        const struct ptx_symbol *symbol = &p->symbols[func->operands[i].index];
        if (symbol->kind == PTX_SYM_FUNC && !p->funcs[symbol->index].is_entry) {
            reach_function(p, reach, symbol->index);
        } else if (symbol->kind == PTX_SYM_VAR) {
            reach->vars[symbol->index] = 1;
        }
    }
}

static void find_reach(const struct ptx_parser *p, struct reach *reach, uint32_t root) {
    memset(reach->funcs, 0, p->n_funcs);
    memset(reach->vars, 0, p->module->n_vars);
    reach->n_stack = 0;
    reach_function(p, reach, root);
    for (uint32_t v = 0; v < p->module->n_vars; v++) { // tables of functions
        const struct kiln_ptx_var *var = &p->module->vars[v];
        for (uint32_t k = 0; k < var->n_relocs; k++) {
            if (var->relocs[k].var == KILN_PTX_NONE &&
                    !p->funcs[var->relocs[k].function - 1].is_entry) {
                reach_function(p, reach, var->relocs[k].function - 1);
            }
        }
    }
    while (reach->n_stack > 0) {
        reach_operands(p, reach, &p->funcs[reach->stack[--reach->n_stack]]);
    }
}

static enum kiln_status place_shared(
        struct ptx_parser *p, struct reach *reach, struct kiln_ptx_kernel *kernel) {
    const struct kiln_ptx_module *module = p->module;
    uint64_t at = 0;
    uint32_t align = 1;
    kernel->shared = kiln_calloc(module->n_vars, sizeof(*kernel->shared));
    if (!kernel->shared) {
        return ptx_nomem(p);
    }
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        for (uint32_t v = 0; v < module->n_vars; v++) {
            const struct kiln_ptx_var *var = &module->vars[v];
            if (var->space != KILN_PTX_SHARED || !reach->vars[v] || (var->bytes == 0) != dynamic) {
                continue;
            }
            if (!dynamic) {
                at = (at + var->align - 1) / var->align * var->align;
            }
            if (at + var->bytes > (1 << 24)) {
                return kiln_err_set(p->err, KILN_STATUS_FILE,
                        "%s: kernel %s: shared variables of more than 16 MiB", p->name,
                        kernel->name);
            }
            align = dynamic && var->align > align ? var->align : align;
            reach->shared_at[v] = (uint32_t)at;
            kernel->shared[kernel->n_shared++] = (struct kiln_ptx_shared){
                    .name = var->name, .offset = (uint32_t)at, .bytes = (uint32_t)var->bytes};
            at += var->bytes;
        }
        if (!dynamic) {
            kernel->shared_bytes = (uint32_t)at;
        }
    }
    // Only now is it known where dynamic memory begins.
    kernel->dynamic_at = (kernel->shared_bytes + align - 1) / align * align;
    uint32_t s = 0;
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        for (uint32_t v = 0; v < module->n_vars; v++) {
            const struct kiln_ptx_var *var = &module->vars[v];
            if (var->space == KILN_PTX_SHARED && reach->vars[v] && (var->bytes == 0) == dynamic) {
                if (dynamic) {
                    reach->shared_at[v] = kernel->shared[s].offset = kernel->dynamic_at;
                }
                s++;
            }
        }
    }
    return KILN_STATUS_OK;
}

// ---- Functions ----------------------------------------------------------------------------------

static enum kiln_status copy_formals(struct ptx_parser *p, const struct ptx_proto *proto,
        size_t first, size_t count, struct kiln_ptx_param **to, uint32_t *n) {
    *to = kiln_calloc(count, sizeof(**to));
    if (!*to) {
        return ptx_nomem(p);
    }
    for (size_t i = 0; i < count; i++) {
        const struct ptx_formal *from = &proto->formals[first + i];
        (*to)[i] = (struct kiln_ptx_param){
                .name = kiln_strndup(from->name.text, from->name.len),
                .offset = from->offset,
                .bytes = from->bytes,
                .align = from->align,
                .type = (uint8_t)from->type,
                .pointer = (uint8_t)from->pointer,
        };
        ++*n;
        if (!(*to)[i].name) {
            return ptx_nomem(p);
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status decode_into(struct ptx_parser *p, struct kiln_ptx_kernel *kernel,
        struct ptx_constants *constants, const struct reach *reach, uint32_t number,
        struct kiln_ptx_function *out) {
    struct ptx_func *func = &p->funcs[number];
    struct ptx_decode decode = {.p = p,
            .func = func,
            .kernel = kernel,
            .out = out,
            .constants = constants,
            .shared_at = reach->shared_at,
            .is_entry = func->is_entry};
    struct ptx_flow flow = {0};
    size_t results = func->proto.n_results;
    out->name = kiln_strndup(func->name.text, func->name.len);
    if (!out->name) {
        return ptx_nomem(p);
    }
    KILN_TRY(copy_formals(p, &func->proto, 0, results, &out->results, &out->n_results));
    KILN_TRY(copy_formals(
            p, &func->proto, results, func->proto.count - results, &out->params, &out->n_params));
    out->call_bytes = func->call_bytes;
    out->local_bytes = (func->local_bytes + 15) / 16 * 16;
    enum kiln_status status = ptx_decode_function(&decode);
    kiln_free(decode.first_insn);
    KILN_TRY(status);
    out->call_bytes = (out->call_bytes + 15) / 16 * 16;
    status = ptx_flow_make(&flow, out, p->err);
    if (status == KILN_STATUS_OK) {
        status = ptx_slots(out, &flow, func->regs, (uint32_t)func->n_regs, p->err);
    }
    ptx_flow_finish(&flow);
    return status;
}

static enum kiln_status decode_all(struct ptx_parser *p, struct kiln_ptx_kernel *kernel,
        const struct reach *reach, uint32_t root) {
    struct ptx_constants constants = {.kernel = kernel};
    enum kiln_status status = KILN_STATUS_OK;
    for (uint32_t f = 0; f < p->n_funcs && status == KILN_STATUS_OK; f++) {
        if (reach->funcs[f]) {
            uint32_t place = f == root && p->funcs[f].is_entry ? 0 : f + 1;
            status = decode_into(p, kernel, &constants, reach, f, &kernel->functions[place]);
        }
    }
    ptx_map_finish(&constants.map);
    return status;
}

static enum kiln_status make_kernel(
        struct ptx_parser *p, struct reach *reach, uint32_t root, struct kiln_ptx_kernel *kernel) {
    const struct ptx_func *func = &p->funcs[root];
    *kernel = (struct kiln_ptx_kernel){.min_blocks = func->min_blocks};
    kernel->name = kiln_strndup(func->name.text, func->name.len);
    kernel->functions = kiln_calloc(p->n_funcs + 1, sizeof(*kernel->functions));
    if (!kernel->name || !kernel->functions) {
        return ptx_nomem(p);
    }
    kernel->n_functions = (uint32_t)p->n_funcs + 1;
    kernel->param_bytes = func->is_entry ? func->proto.bytes : 0;
    memcpy(kernel->max_block, func->max_block, sizeof(kernel->max_block));
    memcpy(kernel->req_block, func->req_block, sizeof(kernel->req_block));
    uint64_t threads = (uint64_t)func->max_block[0] * func->max_block[1];
    threads = threads > UINT32_MAX ? threads : threads * func->max_block[2];
    kernel->max_threads = threads > UINT32_MAX ? UINT32_MAX : (uint32_t)threads;
    find_reach(p, reach, root);
    KILN_TRY(place_shared(p, reach, kernel));
    return decode_all(p, kernel, reach, root);
}

// ---- The module ---------------------------------------------------------------------------------

// The parser's places come first, so that `inlined` of a place is its number there too.
static enum kiln_status copy_locs(struct ptx_parser *p) {
    struct kiln_ptx_module *module = p->module;
    module->wheres = kiln_calloc(p->n_locs, sizeof(*module->wheres));
    if (!module->wheres) {
        return ptx_nomem(p);
    }
    p->cap_wheres = p->n_locs;
    for (size_t i = 0; i < p->n_locs; i++) {
        module->wheres[i] = (struct kiln_ptx_where){
                .file = p->locs[i].file, .line = p->locs[i].line, .inlined = p->locs[i].inlined};
    }
    module->n_wheres = (uint32_t)p->n_locs;
    return KILN_STATUS_OK;
}

// Device functions that no entry reaches are read as well: an error is an error everywhere.
static enum kiln_status check_rest(struct ptx_parser *p, struct reach *reach, uint8_t *seen) {
    for (uint32_t f = 0; f < p->n_funcs; f++) {
        if (seen[f] || !p->funcs[f].has_body || p->funcs[f].is_entry) {
            continue;
        }
        struct kiln_ptx_kernel scratch = {0};
        enum kiln_status status = make_kernel(p, reach, f, &scratch);
        ptx_kernel_finish(&scratch);
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status build_kernels(struct ptx_parser *p, struct reach *reach, uint8_t *seen) {
    struct kiln_ptx_module *module = p->module;
    for (uint32_t f = 0; f < p->n_funcs; f++) {
        if (p->funcs[f].is_entry && p->funcs[f].has_body) {
            KILN_TRY(make_kernel(p, reach, f, &module->kernels[module->n_kernels++]));
            for (uint32_t k = 0; k < p->n_funcs; k++) {
                seen[k] |= reach->funcs[k];
            }
        }
    }
    return check_rest(p, reach, seen);
}

enum kiln_status ptx_build(struct ptx_parser *p) {
    struct kiln_ptx_module *module = p->module;
    struct reach reach = {0};
    enum kiln_status status = KILN_STATUS_NOMEM;
    uint8_t *seen = kiln_calloc(p->n_funcs, 1);
    reach.funcs = kiln_calloc(p->n_funcs, 1);
    reach.stack = kiln_calloc(p->n_funcs, sizeof(*reach.stack));
    reach.vars = kiln_calloc(module->n_vars, 1);
    reach.shared_at = kiln_calloc(module->n_vars, sizeof(*reach.shared_at));
    module->kernels = kiln_calloc(p->n_funcs, sizeof(*module->kernels));
    if (seen && reach.funcs && reach.stack && reach.vars && reach.shared_at && module->kernels) {
        status = copy_locs(p);
        status = status == KILN_STATUS_OK ? build_kernels(p, &reach, seen) : status;
    } else {
        status = ptx_nomem(p);
    }
    kiln_free(seen);
    kiln_free(reach.funcs);
    kiln_free(reach.stack);
    kiln_free(reach.vars);
    kiln_free(reach.shared_at);
    return status;
}
