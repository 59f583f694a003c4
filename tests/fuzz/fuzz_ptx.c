// fuzz_ptx: any bytes as a PTX module: read or refused with a place, and what was read holds
// together: operands inside of frame and constants, targets inside of the function.
#include "fuzz.h"

#include "device/sim/ptx.h"

#include <string.h>

static void check_operand(const struct kiln_ptx_kernel *kernel,
        const struct kiln_ptx_function *function, uint32_t operand) {
    if (operand == KILN_PTX_NONE) {
        return;
    }
    if (operand & KILN_PTX_CONST) {
        FUZZ_CHECK((operand & ~KILN_PTX_CONST) + 64 <= kernel->constant_bytes);
    } else {
        FUZZ_CHECK(operand + 4 <= function->frame_bytes);
    }
}

static void check_field(const struct kiln_ptx_kernel *kernel,
        const struct kiln_ptx_function *function, uint32_t field, uint32_t n) {
    if (n <= 1) {
        check_operand(kernel, function, field);
        return;
    }
    FUZZ_CHECK(field + n <= function->n_lists);
    for (uint32_t i = 0; i < n; i++) {
        check_operand(kernel, function, function->lists[field + i]);
    }
}

static void check_insn(const struct kiln_ptx_kernel *kernel,
        const struct kiln_ptx_function *function, const struct kiln_ptx_insn *insn) {
    int call = insn->op == KILN_PTX_OP_CALL || insn->op == KILN_PTX_OP_CALL_REG;
    FUZZ_CHECK(insn->op < KILN_PTX_N_OPS);
    check_operand(kernel, function, insn->guard);
    check_field(kernel, function, insn->d, insn->n_d);
    check_operand(kernel, function, insn->d2);
    check_field(kernel, function, insn->c, insn->n_c);
    check_operand(kernel, function, insn->e);
    if (call) {
        FUZZ_CHECK(insn->a + 3u * insn->n_a <= function->n_lists);
        FUZZ_CHECK(insn->b + 3u * insn->n_b <= function->n_lists);
    } else if (insn->op == KILN_PTX_OP_CALL_HOST) {
        FUZZ_CHECK(insn->a + insn->n_a <= function->n_lists);
    } else if (insn->op == KILN_PTX_OP_BRX) {
        FUZZ_CHECK(insn->b + (uint32_t)insn->imm <= function->n_lists);
        for (uint32_t i = 0; i < (uint32_t)insn->imm; i++) {
            FUZZ_CHECK(function->lists[insn->b + i] < function->n_insns);
        }
    } else {
        check_field(kernel, function, insn->a, insn->n_a);
        check_field(kernel, function, insn->b, insn->n_b);
    }
    if (insn->op == KILN_PTX_OP_BRA) {
        FUZZ_CHECK(insn->target < function->n_insns && insn->join <= function->n_insns);
    }
    if (insn->op == KILN_PTX_OP_CALL) {
        FUZZ_CHECK(
                insn->target < kernel->n_functions && kernel->functions[insn->target].n_insns > 0);
    }
}

static void check_module(const struct kiln_ptx_module *module) {
    for (uint32_t k = 0; k < module->n_kernels; k++) {
        const struct kiln_ptx_kernel *kernel = &module->kernels[k];
        FUZZ_CHECK(kernel->functions[0].n_insns > 0);
        for (uint32_t f = 0; f < kernel->n_functions; f++) {
            const struct kiln_ptx_function *function = &kernel->functions[f];
            for (uint32_t i = 0; i < function->n_insns; i++) {
                check_insn(kernel, function, &function->insns[i]);
                FUZZ_CHECK(function->where[i] < module->n_wheres);
            }
        }
        for (uint32_t r = 0; r < kernel->n_relocs; r++) {
            FUZZ_CHECK(kernel->relocs[r].at + 256 <= kernel->constant_bytes);
        }
    }
    for (uint32_t v = 0; v < module->n_vars; v++) {
        FUZZ_CHECK(module->vars[v].init_bytes <= module->vars[v].bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kiln_ptx_module *module = NULL;
    struct kiln_err err = {0};
    enum kiln_status status = kiln_ptx_open(&module, "x.ptx", (const char *)data, size, &err);
    if (status == KILN_STATUS_OK) {
        check_module(module);
        kiln_ptx_close(module);
    } else {
        FUZZ_CHECK(status == KILN_STATUS_FILE);
        FUZZ_CHECK(strncmp(err.text, "x.ptx:", 6) == 0);
    }
    return 0;
}
