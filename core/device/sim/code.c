// code: loading a decoded module: memory for its variables, addresses in its initial values, its
// kernels made ready.
#include "device/sim/exec_impl.h"

#include "base/mem.h"

#include <string.h>

void kiln_sim_handlers(sim_handler handlers[SIM_OP_COUNT]) {
#if defined(__x86_64__)
    // No CPU has AVX2 without F16C, which the vector files use as freely.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        kiln_sim_lanes_avx2(handlers);
        kiln_sim_mma_avx2(handlers);
        return;
    }
#endif
    kiln_sim_lanes_generic(handlers);
    kiln_sim_mma_generic(handlers);
}

static enum kiln_status place_variables(struct kiln_sim_code *code, struct kiln_err *err) {
    const struct kiln_ptx_module *module = code->module;
    for (uint32_t i = 0; i < module->n_vars; i++) {
        const struct kiln_ptx_var *var = &module->vars[i];
        if (var->space == KILN_PTX_SHARED || var->bytes == 0) {
            continue;
        }
        uint64_t *address = &code->var_address[i];
        KILN_TRY(kiln_sim_alloc(code->sim, var->name, var->bytes, address, err));
        // What an initialiser leaves out is zero: of a string, PTX leaves out the end.
        KILN_TRY(kiln_sim_fill(code->sim, *address, 0, var->bytes, err));
        KILN_TRY(kiln_sim_write(code->sim, *address, var->init, var->init_bytes, err));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status place_addresses(struct kiln_sim_code *code, struct kiln_err *err) {
    const struct kiln_ptx_module *module = code->module;
    for (uint32_t i = 0; i < module->n_vars; i++) {
        const struct kiln_ptx_var *var = &module->vars[i];
        for (uint32_t k = 0; code->var_address[i] && k < var->n_relocs; k++) {
            const struct kiln_ptx_reloc *r = &var->relocs[k];
            uint64_t value = (r->var != KILN_PTX_NONE ? code->var_address[r->var]
                                                      : KILN_PTX_FUNCTION_BASE + r->function) +
                             (uint64_t)r->addend;
            KILN_TRY(kiln_sim_write(
                    code->sim, code->var_address[i] + r->at, &value, r->bytes == 4 ? 4 : 8, err));
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sim_load(struct kiln_sim *sim, const struct kiln_ptx_module *module,
        struct kiln_sim_code **out, struct kiln_err *err) {
    *out = NULL;
    struct kiln_sim_code *code = kiln_calloc(1, sizeof(*code));
    enum kiln_status status = KILN_STATUS_OK;
    if (!code) {
        return kiln_err_nomem(err, "a loaded module");
    }
    code->sim = sim;
    code->module = module;
    code->kernels = kiln_calloc(module->n_kernels, sizeof(*code->kernels));
    code->var_address = kiln_calloc(module->n_vars, sizeof(*code->var_address));
    if (!code->kernels || !code->var_address) {
        status = kiln_err_nomem(err, "a loaded module");
    }
    if (status == KILN_STATUS_OK) {
        status = place_variables(code, err);
    }
    if (status == KILN_STATUS_OK) {
        status = place_addresses(code, err);
    }
    for (uint32_t i = 0; status == KILN_STATUS_OK && i < module->n_kernels; i++) {
        code->kernels[i].code = code;
        code->kernels[i].ptx = &module->kernels[i];
        code->n_kernels = i + 1;
        status = kiln_sim_prepare(&code->kernels[i], err);
    }
    if (status != KILN_STATUS_OK) {
        kiln_sim_unload(sim, code);
        return status;
    }
    *out = code;
    return KILN_STATUS_OK;
}

void kiln_sim_unload(struct kiln_sim *sim, struct kiln_sim_code *code) {
    if (!code) {
        return;
    }
    for (uint32_t i = 0; i < code->n_kernels; i++) {
        kiln_sim_unprepare(&code->kernels[i]);
    }
    for (uint32_t i = 0; code->var_address && i < code->module->n_vars; i++) {
        kiln_sim_free(sim, code->var_address[i]);
    }
    kiln_free(code->kernels);
    kiln_free(code->var_address);
    kiln_free(code);
}

const struct kiln_sim_kernel *kiln_sim_find(const struct kiln_sim_code *code, const char *name) {
    for (uint32_t i = 0; i < code->n_kernels; i++) {
        if (strcmp(code->kernels[i].ptx->name, name) == 0) {
            return &code->kernels[i];
        }
    }
    return NULL;
}

uint64_t kiln_sim_symbol(const struct kiln_sim_code *code, const char *name, uint64_t *bytes) {
    for (uint32_t i = 0; i < code->module->n_vars; i++) {
        if (code->var_address[i] && strcmp(code->module->vars[i].name, name) == 0) {
            if (bytes) {
                *bytes = code->module->vars[i].bytes;
            }
            return code->var_address[i];
        }
    }
    return 0;
}

uint32_t kiln_sim_param_bytes(const struct kiln_sim_kernel *kernel) {
    return kernel->ptx->param_bytes;
}

uint32_t kiln_sim_static_shared(const struct kiln_sim_kernel *kernel) {
    return kernel->ptx->shared_bytes;
}
