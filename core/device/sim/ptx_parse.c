// ptx_parse: a PTX module: version and target, files, variables, functions; and its end.
#include "device/sim/ptx_impl.h"

#include "base/mem.h"

#include <string.h>

enum {
    MAX_TEXT = 256 << 20,
    MAX_FILES = 65536
};

// ---- Header -------------------------------------------------------------------------------------

static enum kiln_status version(struct ptx_parser *p) {
    // 9.0 is read as a real number.
    double value;
    KILN_TRY(ptx_next(p));
    if (p->token.kind != PTX_REAL) {
        return ptx_fail(p, "a version like 8.0 is wanted");
    }
    memcpy(&value, &p->token.value, sizeof(value));
    if (!(value >= 1.0 && value < 100.0)) {
        return ptx_fail(p, "a version like 8.0 is wanted");
    }
    p->module->version = (uint32_t)(value * 10.0 + 0.5);
    return ptx_next(p);
}

static enum kiln_status target(struct ptx_parser *p) {
    int taken = 1;
    KILN_TRY(ptx_next(p));
    while (taken) {
        struct ptx_name name = p->token.name;
        if (p->token.kind != PTX_WORD) {
            return ptx_fail(p, "a target like sm_80 is wanted");
        }
        if (name.len > 3 && memcmp(name.text, "sm_", 3) == 0) {
            uint32_t number = 0;
            for (uint32_t i = 3; i < name.len && i < 7; i++) {
                char c = name.text[i];
                number = c >= '0' && c <= '9' ? number * 10 + (uint32_t)(c - '0') : number;
            }
            p->module->target = number;
            char last = name.text[name.len - 1];
            p->module->feature = last >= '0' && last <= '9' ? '\0' : last;
        } else if (!ptx_same(name, "debug") && !ptx_same(name, "texmode_independent")) {
            return ptx_fail(p, "an unknown target %.*s", (int)name.len, name.text);
        }
        KILN_TRY(ptx_next(p));
        KILN_TRY(ptx_accept(p, ',', &taken));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status address_size(struct ptx_parser *p) {
    uint64_t bits;
    KILN_TRY(ptx_next(p));
    KILN_TRY(ptx_uint(p, 64, &bits));
    if (bits != 64) {
        return ptx_fail(p, "addresses of 64 bits are modelled, no others");
    }
    p->module->address_bits = 64;
    return KILN_STATUS_OK;
}

// .file N "name" [, time, size]
static enum kiln_status file(struct ptx_parser *p) {
    struct kiln_ptx_module *module = p->module;
    uint64_t number, ignored;
    int taken;
    KILN_TRY(ptx_next(p));
    KILN_TRY(ptx_uint(p, MAX_FILES - 1, &number));
    if (p->token.kind != PTX_STRING) {
        return ptx_fail(p, "a file's name is wanted");
    }
    size_t cap = p->cap_files;
    if (kiln_grow(&module->files, &cap, (size_t)number + 1, sizeof(*module->files)) != 0) {
        return ptx_nomem(p);
    }
    p->cap_files = cap;
    while (module->n_files <= number) {
        module->files[module->n_files++] = NULL;
    }
    kiln_free(module->files[number]);
    module->files[number] = kiln_strndup(p->token.name.text, p->token.name.len);
    if (!module->files[number]) {
        return ptx_nomem(p);
    }
    KILN_TRY(ptx_next(p));
    KILN_TRY(ptx_accept(p, ',', &taken));
    while (taken) {
        KILN_TRY(ptx_uint(p, INT64_MAX, &ignored));
        KILN_TRY(ptx_accept(p, ',', &taken));
    }
    return KILN_STATUS_OK;
}

enum kiln_status ptx_pragma(struct ptx_parser *p) {
    int taken = 1;
    KILN_TRY(ptx_next(p));
    while (taken) { // they are hints to ptxas: nounroll, used_bytes_mask …
        if (p->token.kind != PTX_STRING) {
            return ptx_fail(p, "a pragma's text is wanted");
        }
        KILN_TRY(ptx_next(p));
        KILN_TRY(ptx_accept(p, ',', &taken));
    }
    return ptx_expect(p, ';');
}

// .section NAME { … }: debug information, with balanced braces.
static enum kiln_status section(struct ptx_parser *p) {
    int depth = 0;
    KILN_TRY(ptx_next(p));
    if (p->token.kind != PTX_DOT && p->token.kind != PTX_WORD) {
        return ptx_fail(p, "a section's name is wanted");
    }
    KILN_TRY(ptx_next(p));
    if (!ptx_is(p, '{')) {
        return ptx_fail(p, "'{' is wanted");
    }
    do {
        depth += ptx_is(p, '{') - ptx_is(p, '}');
        if (p->token.kind == PTX_END) {
            return ptx_fail(p, "'}' is wanted, and the text ends here");
        }
        KILN_TRY(ptx_next(p));
    } while (depth > 0);
    return KILN_STATUS_OK;
}

// ---- Functions ----------------------------------------------------------------------------------

static enum kiln_status numbers(struct ptx_parser *p, uint32_t *to, int count) {
    int taken = 1;
    KILN_TRY(ptx_next(p));
    for (int i = 0; i < count; i++) {
        uint64_t value = 1;
        if (taken) {
            KILN_TRY(ptx_uint(p, INT32_MAX, &value));
            KILN_TRY(ptx_accept(p, ',', &taken));
        }
        to[i] = (uint32_t)value;
    }
    return KILN_STATUS_OK;
}

static enum kiln_status properties(struct ptx_parser *p, struct ptx_func *func) {
    uint32_t ignored;
    while (p->token.kind == PTX_DOT) {
        if (ptx_is_dot(p, "maxntid")) {
            KILN_TRY(numbers(p, func->max_block, 3));
        } else if (ptx_is_dot(p, "reqntid")) {
            KILN_TRY(numbers(p, func->req_block, 3));
        } else if (ptx_is_dot(p, "minnctapersm")) {
            KILN_TRY(numbers(p, &func->min_blocks, 1));
        } else if (ptx_is_dot(p, "maxnreg") || ptx_is_dot(p, "maxnctapersm")) {
            KILN_TRY(numbers(p, &ignored, 1));
        } else if (ptx_is_dot(p, "noreturn")) {
            func->is_noreturn = 1;
            KILN_TRY(ptx_next(p));
        } else if (ptx_is_dot(p, "pragma")) {
            KILN_TRY(ptx_pragma(p));
        } else {
            return ptx_fail(p, "an unknown property of a function");
        }
    }
    return KILN_STATUS_OK;
}

static void func_finish(struct ptx_func *func) {
    kiln_free(func->proto.formals);
    kiln_free(func->regs);
    kiln_free(func->operands);
    kiln_free(func->stmts);
}

// The function of that name: declared before, or new.
static enum kiln_status place_function(
        struct ptx_parser *p, struct ptx_func *read, uint32_t scope, uint32_t *index) {
    p->scope = 0;
    struct ptx_symbol *known = ptx_find(p, 0, read->name);
    if (known && (known->kind != PTX_SYM_FUNC || p->funcs[known->index].has_body)) {
        return ptx_fail(p, "%.*s is declared twice", (int)read->name.len, read->name.text);
    }
    if (known) {
        func_finish(&p->funcs[known->index]);
        *index = known->index;
    } else {
        *index = (uint32_t)p->n_funcs;
        if (kiln_grow(&p->funcs, &p->cap_funcs, p->n_funcs + 1, sizeof(*p->funcs)) != 0) {
            return ptx_nomem(p);
        }
        p->funcs[p->n_funcs] = (struct ptx_func){0};
        p->n_funcs++;
        KILN_TRY(ptx_define(p,
                &(struct ptx_symbol){.kind = PTX_SYM_FUNC, .name = read->name, .index = *index}));
    }
    p->funcs[*index] = *read;
    *read = (struct ptx_func){0}; // the array owns it now
    p->func = &p->funcs[*index];
    p->scope = scope;
    return KILN_STATUS_OK;
}

static enum kiln_status read_function(struct ptx_parser *p, struct ptx_func *read) {
    uint32_t outer, index;
    int taken;
    KILN_TRY(ptx_next(p));
    KILN_TRY(ptx_scope_open(p, &outer));
    p->func = read;
    p->loc = KILN_PTX_NONE;
    while (ptx_is_dot(p, "attribute")) {
        return ptx_fail(p, ".attribute of a function is not modelled");
    }
    KILN_TRY(ptx_signature(p, &read->proto, &read->name, read->is_entry));
    read->call_at = read->call_bytes = read->is_entry ? 0 : read->proto.bytes;
    KILN_TRY(place_function(p, read, p->scope, &index));
    KILN_TRY(properties(p, p->func));
    KILN_TRY(ptx_accept(p, ';', &taken));
    if (!taken) {
        p->func->has_body = 1;
        KILN_TRY(ptx_body(p));
    }
    p->func = NULL;
    p->scope = outer;
    return KILN_STATUS_OK;
}

static enum kiln_status function(struct ptx_parser *p, int is_entry) {
    struct ptx_func read = {.is_entry = is_entry, .line = p->token.line};
    enum kiln_status status = read_function(p, &read);
    func_finish(&read);
    return status;
}

// ---- Module -------------------------------------------------------------------------------------

static enum kiln_status linked(struct ptx_parser *p) {
    int is_extern = 0;
    while (ptx_is_dot(p, "visible") || ptx_is_dot(p, "extern") || ptx_is_dot(p, "weak") ||
            ptx_is_dot(p, "common")) {
        is_extern |= ptx_is_dot(p, "extern");
        KILN_TRY(ptx_next(p));
    }
    static const struct {
        const char *name;
        enum kiln_ptx_space space;
    } spaces[] = {{"global", KILN_PTX_GLOBAL}, {"const", KILN_PTX_CONSTANT},
            {"shared", KILN_PTX_SHARED}, {"local", KILN_PTX_LOCAL}};
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        if (ptx_is_dot(p, spaces[i].name)) {
            KILN_TRY(ptx_next(p));
            return ptx_variables(p, spaces[i].space, is_extern);
        }
    }
    if (ptx_is_dot(p, "entry") || ptx_is_dot(p, "func")) {
        return function(p, ptx_is_dot(p, "entry"));
    }
    return ptx_fail(p, "an unknown directive");
}

static enum kiln_status directive(struct ptx_parser *p) {
    if (p->token.kind != PTX_DOT) {
        return ptx_fail(p, "a directive is wanted");
    }
    if (ptx_is_dot(p, "version")) {
        return version(p);
    }
    if (p->module->version == 0) {
        return ptx_fail(p, "a PTX module begins with .version");
    }
    if (ptx_is_dot(p, "target")) {
        return target(p);
    }
    if (ptx_is_dot(p, "address_size")) {
        return address_size(p);
    }
    if (ptx_is_dot(p, "file")) {
        return file(p);
    }
    if (ptx_is_dot(p, "loc")) {
        return ptx_loc_directive(p);
    }
    if (ptx_is_dot(p, "pragma")) {
        return ptx_pragma(p);
    }
    if (ptx_is_dot(p, "section")) {
        return section(p);
    }
    return linked(p);
}

static enum kiln_status module_text(struct ptx_parser *p) {
    int taken;
    KILN_TRY(ptx_next(p));
    while (p->token.kind != PTX_END) {
        p->stmt_start = p->token_start;
        p->stmt_line = p->token.line;
        KILN_TRY(ptx_accept(p, ';', &taken));
        KILN_TRY(taken ? KILN_STATUS_OK : directive(p));
    }
    p->stmt_start = NULL;
    if (p->module->version == 0 || p->module->target == 0) {
        return ptx_fail(p, "a PTX module has .version and .target");
    }
    return KILN_STATUS_OK;
}

static void parser_finish(struct ptx_parser *p) {
    for (size_t i = 0; i < p->n_funcs; i++) {
        func_finish(&p->funcs[i]);
    }
    for (size_t i = 0; i < p->n_protos; i++) {
        kiln_free(p->protos[i].formals);
    }
    kiln_free(p->funcs);
    kiln_free(p->protos);
    kiln_free(p->locs);
    kiln_free(p->symbols);
    kiln_free(p->scopes);
    ptx_map_finish(&p->loc_map);
    ptx_map_finish(&p->symbol_map);
}

static enum kiln_status read_module(struct ptx_parser *p) {
    uint32_t outer;
    p->module->name = kiln_strdup(p->name);
    if (!p->module->name) {
        return ptx_nomem(p);
    }
    KILN_TRY(ptx_scope_open(p, &outer)); // 0, the module's
    KILN_TRY(module_text(p));
    return ptx_build(p);
}

enum kiln_status kiln_ptx_open(struct kiln_ptx_module **module, const char *name, const char *text,
        size_t len, struct kiln_err *err) {
    if (len > MAX_TEXT) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s: %zu bytes of PTX; at most %d are taken",
                name, len, (int)MAX_TEXT);
    }
    struct ptx_parser p = {.name = name,
            .text = text,
            .at = text,
            .end = text + len,
            .last_end = text,
            .token_start = text,
            .err = err,
            .line = 1,
            .loc = KILN_PTX_NONE};
    p.module = kiln_calloc(1, sizeof(*p.module));
    if (!p.module) {
        return ptx_nomem(&p);
    }
    enum kiln_status status = read_module(&p);
    parser_finish(&p);
    if (status != KILN_STATUS_OK) {
        kiln_ptx_close(p.module);
        return status;
    }
    *module = p.module;
    return KILN_STATUS_OK;
}

// ---- The end ------------------------------------------------------------------------------------

static void function_finish(struct kiln_ptx_function *function_made) {
    for (uint32_t i = 0; i < function_made->n_params; i++) {
        kiln_free(function_made->params[i].name);
    }
    for (uint32_t i = 0; i < function_made->n_results; i++) {
        kiln_free(function_made->results[i].name);
    }
    kiln_free(function_made->params);
    kiln_free(function_made->results);
    kiln_free(function_made->name);
    kiln_free(function_made->insns);
    kiln_free(function_made->where);
    kiln_free(function_made->lists);
}

void ptx_kernel_finish(struct kiln_ptx_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->n_functions; i++) {
        function_finish(&kernel->functions[i]);
    }
    kiln_free(kernel->functions);
    kiln_free(kernel->name);
    kiln_free(kernel->constants);
    kiln_free(kernel->relocs);
    kiln_free(kernel->shared);
}

void kiln_ptx_close(struct kiln_ptx_module *module) {
    if (!module) {
        return;
    }
    for (uint32_t i = 0; i < module->n_kernels; i++) {
        ptx_kernel_finish(&module->kernels[i]);
    }
    for (uint32_t i = 0; i < module->n_vars; i++) {
        kiln_free(module->vars[i].name);
        kiln_free(module->vars[i].init);
        kiln_free(module->vars[i].relocs);
    }
    for (uint32_t i = 0; i < module->n_files; i++) {
        kiln_free(module->files[i]);
    }
    kiln_free(module->kernels);
    kiln_free(module->vars);
    kiln_free(module->files);
    kiln_free(module->wheres);
    kiln_free(module->name);
    kiln_free(module);
}

struct kiln_ptx_kernel *kiln_ptx_kernel_find(struct kiln_ptx_module *module, const char *name) {
    for (uint32_t i = 0; i < module->n_kernels; i++) {
        if (strcmp(module->kernels[i].name, name) == 0) {
            return &module->kernels[i];
        }
    }
    return NULL;
}
