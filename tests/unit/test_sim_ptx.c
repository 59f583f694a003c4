// PTX text in, decoded kernels out: operands, places, control flow, variables, calls; and what is
// refused, with the words that say why.
#include "base/mem.h"
#include "device/sim/ptx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
#define REGS \
    ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<99>; .reg .f32 %f<99>; .reg .b64 %rd<99>;\n"
// A kernel around some statements.
#define KERNEL(body) \
    HEAD ".visible .entry k(.param .u64 a, .param .u32 b)\n{\n" REGS body "\nret;\n}\n"

static struct kiln_ptx_module *open_text(const char *text) {
    struct kiln_ptx_module *module = NULL;
    struct kiln_err err = {0};
    if (kiln_ptx_open(&module, "t.ptx", text, strlen(text), &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    assert_non_null(module);
    return module;
}

static const struct kiln_ptx_insn *insn_of(const struct kiln_ptx_module *module, uint32_t i) {
    assert_true(i < module->kernels[0].functions[0].n_insns);
    return &module->kernels[0].functions[0].insns[i];
}

static uint64_t constant(const struct kiln_ptx_module *module, uint32_t operand, size_t bytes) {
    const struct kiln_ptx_kernel *kernel = &module->kernels[0];
    uint64_t first = 0, last = 0;
    assert_true(operand & KILN_PTX_CONST);
    operand &= ~KILN_PTX_CONST;
    assert_true(operand + 32 * bytes <= kernel->constant_bytes);
    memcpy(&first, kernel->constants + operand, bytes);
    memcpy(&last, kernel->constants + operand + 31 * bytes, bytes);
    assert_int_equal(first, last);
    return first;
}

// ---- What is read -------------------------------------------------------------------------------

static void sim_ptx_kernel(void **state) {
    (void)state;
    struct kiln_ptx_module *m =
            open_text(HEAD ".shared .align 4 .b8 unused[4096];\n"
                           ".shared .align 4 .b8 tile[20];\n"
                           ".extern .shared .align 16 .b8 dyn[];\n"
                           ".visible .entry k(.param .u8 a, .param .u64 .ptr .global .align 16 b,\n"
                           "  .param .align 8 .b8 c[12], .param .f32 d)\n"
                           ".maxntid 128, 2, 1\n.minnctapersm 3\n{\n" REGS
                           "mov.u32 %r1, tile;\nmov.u32 %r2, dyn;\nld.shared.u32 %r3, [tile+4];\n"
                           "ld.param.f32 %f1, [d];\nld.param.u32 %r4, [c+8];\nret;\n}\n");
    const struct kiln_ptx_kernel *k = &m->kernels[0];
    const struct kiln_ptx_function *f = &k->functions[0];
    assert_int_equal(m->version, 80);
    assert_int_equal(m->target, 80);
    assert_int_equal(k->param_bytes, 32);
    assert_int_equal(f->n_params, 4);
    assert_int_equal(f->params[1].offset, 8);
    assert_int_equal(f->params[1].pointer, 1);
    assert_int_equal(f->params[2].offset, 16);
    assert_int_equal(f->params[2].bytes, 12);
    assert_int_equal(f->params[3].offset, 28);
    assert_int_equal(k->max_threads, 256);
    assert_int_equal(k->min_blocks, 3);
    assert_int_equal(k->shared_bytes, 20); // what it does not reach is not counted
    assert_int_equal(k->dynamic_at, 32);
    assert_int_equal(constant(m, insn_of(m, 0)->a, 4), 0);
    assert_int_equal(constant(m, insn_of(m, 1)->a, 4), 32);
    assert_int_equal(insn_of(m, 2)->a, KILN_PTX_NONE);
    assert_int_equal(insn_of(m, 2)->imm, 4);
    assert_int_equal(insn_of(m, 3)->space, KILN_PTX_PARAM);
    assert_int_equal(insn_of(m, 3)->imm, 28);
    assert_int_equal(insn_of(m, 4)->imm, 24);
    assert_ptr_equal(kiln_ptx_kernel_find(m, "k"), k);
    assert_null(kiln_ptx_kernel_find(m, "K"));
    kiln_ptx_close(m);
}

static void sim_ptx_operands(void **state) {
    (void)state;
    struct kiln_ptx_module *m = open_text(
            KERNEL("add.s32 %r1, %r2, -3;\n@!%p1 mul.wide.u16 %r3, %rs1, 0x10;\n"
                   "fma.rn.ftz.f32 %f1, %f2, 0f40000000, 1.5;\n"
                   "ld.global.v4.f32 {%f1, _, %f3, %f4}, [%rd1+-16];\n"
                   "setp.lt.and.f32 %p2|%p3, %f1, %f2, !%p1;\nselp.b32 %r1, 1, 2, !%p1;\n"
                   "mov.u32 %r5, %tid.x;\nadd.u32 %r6, %ctaid.y, 1;\nmov.b32 %r7, {%rs1, %rs2};\n"
                   "st.global.u32 [%rd1], %r7;\nbar.sync 0;\ncvt.rzi.s32.f32 %r9, %f1;"));
    const struct kiln_ptx_insn *add = insn_of(m, 0), *mul = insn_of(m, 1), *fma = insn_of(m, 2);
    assert_int_equal(add->op, KILN_PTX_OP_ADD);
    assert_int_equal(add->type, KILN_PTX_S32);
    assert_int_equal(constant(m, add->b, 4), 0xfffffffd);
    assert_int_equal(add->guard, KILN_PTX_NONE);
    assert_int_not_equal(mul->guard, KILN_PTX_NONE);
    assert_true(mul->flags & KILN_PTX_GUARD_NOT);
    assert_int_equal(mul->sub, KILN_PTX_WIDE);
    assert_int_equal(mul->d_bytes, 4);
    assert_int_equal(mul->a_bytes, 2);
    assert_true(fma->flags & KILN_PTX_FTZ);
    assert_int_equal(constant(m, fma->b, 4), 0x40000000);
    assert_int_equal(constant(m, fma->c, 4), 0x3fc00000);
    const struct kiln_ptx_insn *load = insn_of(m, 3);
    assert_int_equal(load->n_d, 4);
    assert_int_equal(load->imm, -16);
    assert_int_equal(load->a_bytes, 8);
    assert_int_equal(m->kernels[0].functions[0].lists[load->d + 1], KILN_PTX_NONE);
    const struct kiln_ptx_insn *setp = insn_of(m, 4);
    assert_int_equal(setp->cmp, KILN_PTX_LT);
    assert_int_equal(setp->boolop, KILN_PTX_BOOL_AND);
    assert_true(setp->flags & KILN_PTX_C_NOT);
    assert_int_not_equal(setp->d2, KILN_PTX_NONE);
    assert_int_equal(constant(m, insn_of(m, 5)->a, 4), 2); // !p: the other way round
    assert_int_equal(insn_of(m, 6)->sub, KILN_PTX_TID_X);
    assert_int_equal(insn_of(m, 7)->op, KILN_PTX_OP_SREG); // in front of the add that reads it
    assert_int_equal(insn_of(m, 8)->a, insn_of(m, 7)->d);
    assert_int_equal(insn_of(m, 9)->op, KILN_PTX_OP_PACK);
    assert_int_equal(insn_of(m, 11)->sub, KILN_PTX_BAR_SYNC);
    assert_int_equal(insn_of(m, 12)->round, KILN_PTX_RZI);
    kiln_ptx_close(m);
}

static void sim_ptx_flow(void **state) {
    (void)state;
    struct kiln_ptx_module *m = open_text(KERNEL("@%p1 bra ELSE;\n"        // 0
                                                 "mov.u32 %r1, 1;\n"       // 1
                                                 "bra.uni JOIN;\n"         // 2
                                                 "ELSE: mov.u32 %r1, 2;\n" // 3
                                                 "JOIN:\n"
                                                 "LOOP: add.u32 %r1, %r1, 1;\n" // 4
                                                 "setp.lt.u32 %p2, %r1, 9;\n"   // 5
                                                 "@%p2 bra LOOP;\n"             // 6
                                                 "@%p3 bra END;\n"              // 7
                                                 "T: .branchtargets ELSE, LOOP, END;\n"
                                                 "brx.idx %r1, T;\n" // 8
                                                 "END:"));           // 9: ret
    const struct kiln_ptx_function *f = &m->kernels[0].functions[0];
    assert_int_equal(insn_of(m, 0)->target, 3);
    assert_int_equal(insn_of(m, 0)->join, 4);
    assert_int_equal(insn_of(m, 6)->target, 4);
    assert_int_equal(insn_of(m, 6)->join, 7);
    assert_int_equal(insn_of(m, 7)->join, 9);
    assert_int_equal(insn_of(m, 8)->imm, 3);
    assert_int_equal(f->lists[insn_of(m, 8)->b], 3);
    assert_int_equal(f->lists[insn_of(m, 8)->b + 1], 4);
    assert_int_equal(f->lists[insn_of(m, 8)->b + 2], 9);
    kiln_ptx_close(m);
    m = open_text(KERNEL("@%p1 bra OUT;\nFOREVER: bra FOREVER;\nOUT: mov.u32 %r1, 1;"));
    assert_int_equal(insn_of(m, 0)->join, 2); // nothing comes back from the loop
    kiln_ptx_close(m);
}

// Registers that are not alive together share places; those that are do not.
static void sim_ptx_places(void **state) {
    (void)state;
    char text[16384], *at = text;
    at += snprintf(at, 512, "%s.visible .entry k(.param .u64 a, .param .u32 b)\n{\n%s", HEAD, REGS);
    for (int i = 1; i < 90; i++) {
        at += snprintf(at, 64, "mov.u32 %%r%d, %%r%d;\n", i, i - 1);
    }
    (void)snprintf(at, 64, "st.global.u32 [%%rd1], %%r89;\nret;\n}\n");
    struct kiln_ptx_module *m = open_text(text);
    const struct kiln_ptx_function *f = &m->kernels[0].functions[0];
    assert_true(f->frame_bytes <= 64 + 2 * 128 + 256);
    for (uint32_t i = 0; i < 89; i++) {
        assert_int_not_equal(f->insns[i].d, f->insns[i].a); // never in place of what is read
    }
    kiln_ptx_close(m);
    m = open_text(KERNEL("mov.u32 %r1, 1;\nmov.u32 %r2, 2;\n@%p1 bra A;\nmov.u32 %r1, 3;\nA:\n"
                         "add.u32 %r3, %r1, %r2;\n@%p2 mov.u32 %r3, 5;\nadd.u32 %r4, %r3, 1;"));
    assert_int_equal(insn_of(m, 0)->d, insn_of(m, 3)->d);
    assert_int_not_equal(insn_of(m, 0)->d, insn_of(m, 1)->d);
    assert_int_equal(insn_of(m, 4)->d, insn_of(m, 5)->d);
    kiln_ptx_close(m);
}

static void sim_ptx_variables(void **state) {
    (void)state;
    struct kiln_ptx_module *m = open_text(
            HEAD ".func f() { ret; }\n"
                 ".global .align 8 .b8 bytes[8] = {1, 2, 0xff};\n"
                 ".const .f32 real[2] = {0f3F800000, 0.5};\n"
                 ".global .u64 table[3] = {0, generic(bytes)+4, f};\n"
                 ".global .u16 rows[2][3] = {{1, 2}, {3}};\n"
                 ".global .align 4 .u32 open[] = {7, -1};\n"
                 ".global .f64 plain;\n"
                 ".visible .entry k(.param .u64 a)\n{\n" REGS
                 "mov.u64 %rd1, bytes+2;\nld.global.u32 %r1, [open+4];\nld.const.f32 %f1, [real];\n"
                 "ret;\n}\n");
    assert_int_equal(m->n_vars, 6);
    assert_int_equal(m->vars[0].bytes, 8);
    assert_int_equal(m->vars[0].init_bytes, 3);
    assert_int_equal(m->vars[0].init[2], 0xff);
    float half;
    memcpy(&half, m->vars[1].init + 4, 4);
    assert_true(half == 0.5F);
    assert_int_equal(m->vars[2].n_relocs, 2);
    assert_int_equal(m->vars[2].relocs[0].at, 8);
    assert_int_equal(m->vars[2].relocs[0].var, 0);
    assert_int_equal(m->vars[2].relocs[0].addend, 4);
    assert_int_equal(m->vars[2].relocs[1].var, KILN_PTX_NONE);
    assert_string_equal(m->kernels[0].functions[m->vars[2].relocs[1].function].name, "f");
    assert_int_equal(m->vars[3].init[6], 3); // the second row begins behind three of the first
    assert_int_equal(m->vars[4].bytes, 8);
    assert_null(m->vars[5].init);
    assert_int_equal(m->kernels[0].n_relocs, 3);
    assert_int_equal(m->kernels[0].relocs[0].addend, 2);
    assert_int_equal(insn_of(m, 1)->imm, 4);
    kiln_ptx_close(m);
}

static void sim_ptx_calls(void **state) {
    (void)state;
    struct kiln_ptx_module *m = open_text(
            HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
                 ".func (.param .b32 out) f(.param .b32 x, .param .align 8 .b8 y[16])\n{\n"
                 ".reg .b32 %r<4>;\n.local .align 8 .b8 depot[24];\n"
                 "ld.param.b32 %r1, [x];\nst.local.u32 [depot+8], %r1;\nst.param.b32 [out], %r1;\n"
                 "ret;\n}\n"
                 ".func (.reg .u32 r) g(.reg .u32 a) { add.u32 r, a, 1; ret; }\n"
                 ".visible .entry k(.param .u64 a)\n{\n" REGS
                 "{ .param .b32 p0; .param .align 8 .b8 p1[16]; .param .b32 q;\n"
                 "st.param.b32 [p0], %r1;\ncall.uni (q), f, (p0, p1);\nld.param.b32 %r2, [q]; }\n"
                 "call (%r3), g, (%r2);\n"
                 "{ .param .b64 p0; .param .b64 p1; .param .b32 q;\n"
                 "call.uni (q), vprintf, (p0, p1); }\nret;\n}\n");
    const struct kiln_ptx_kernel *k = &m->kernels[0];
    const struct kiln_ptx_insn *call = insn_of(m, 1);
    const uint32_t *lists = k->functions[0].lists;
    assert_int_equal(call->op, KILN_PTX_OP_CALL);
    const struct kiln_ptx_function *f = &k->functions[call->target];
    assert_string_equal(f->name, "f");
    assert_int_equal(f->results[0].offset, 0);
    assert_int_equal(f->params[1].offset, 8);
    assert_int_equal(f->local_bytes, 32);
    assert_int_equal(call->n_a, 2);
    assert_int_equal(lists[call->a + 3], 8);     // p1 in the caller
    assert_int_equal(lists[call->a + 3 + 1], 8); // y in the function
    assert_int_equal(lists[call->a + 3 + 2], 16);
    assert_int_equal(call->n_b, 1);
    assert_int_equal(lists[call->b + 1], 0);
    assert_int_equal(insn_of(m, 3)->op, KILN_PTX_OP_ST); // %r2 on its way to g
    assert_int_equal(insn_of(m, 3)->space, KILN_PTX_CALLS);
    assert_int_equal(insn_of(m, 4)->op, KILN_PTX_OP_CALL);
    assert_int_equal(insn_of(m, 5)->op, KILN_PTX_OP_LD);
    assert_int_equal(insn_of(m, 6)->op, KILN_PTX_OP_CALL_HOST);
    assert_int_equal(insn_of(m, 6)->sub, KILN_PTX_VPRINTF);
    const struct kiln_ptx_function *g = &k->functions[insn_of(m, 4)->target];
    assert_int_equal(g->insns[0].op, KILN_PTX_OP_LD);
    assert_int_equal(g->insns[g->n_insns - 1].op, KILN_PTX_OP_RET);
    kiln_ptx_close(m);
}

static void sim_ptx_places_in_source(void **state) {
    (void)state;
    struct kiln_ptx_module *m = open_text(
            KERNEL(".loc 1 10 3\nmov.u32 %r1, 1;\n.loc 2 5 1, function_name $L, inlined_at 1 12 7\n"
                   "mov.u32 %r2, 2;\n.loc 1 0 0\nmov.u32 %r3, 3;") ".file 1 \"a.cu\"\n"
                                                                   ".file 2 \"b.cuh\"\n"
                                                                   ".section .debug_str {\n"
                                                                   "$L: .b8 1,2 {} }\n");
    const struct kiln_ptx_function *f = &m->kernels[0].functions[0];
    const struct kiln_ptx_where *first = &m->wheres[f->where[0]], *second = &m->wheres[f->where[1]];
    assert_string_equal(m->files[first->file], "a.cu");
    assert_int_equal(first->line, 10);
    assert_int_equal(first->ptx_line, 8);
    assert_int_equal(first->inlined, KILN_PTX_NONE);
    assert_string_equal(m->files[second->file], "b.cuh");
    assert_int_equal(second->line, 5);
    assert_int_equal(m->wheres[second->inlined].line, 12);
    assert_int_equal(m->wheres[f->where[2]].line, 5); // line 0 says nothing new
    kiln_ptx_close(m);
}

static void sim_ptx_scopes(void **state) {
    (void)state;
    struct kiln_ptx_module *m = open_text(KERNEL(
            "mov.u32 %r1, 1;\n{ .reg .b64 %r1; .reg .pred q; mov.u64 %r1, 2; L: bra L2; L2: }\n"
            "{ .reg .pred q; L: @q bra L; }\nst.global.u32 [%rd1], %r1;"));
    assert_int_equal(insn_of(m, 0)->d_bytes, 4);
    assert_int_equal(insn_of(m, 1)->d_bytes, 8);
    assert_int_equal(insn_of(m, 3)->target, 3); // the label of its own block
    kiln_ptx_close(m);
}

// Everything that a lane multiplies and moves on tensor cores, by its number of registers.
static void sim_ptx_fragments(void **state) {
    (void)state;
    struct kiln_ptx_module *m = open_text(KERNEL(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, "
            "{%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};\n"
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%r1,%r2,%r3,%r4}, "
            "{%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4};\n"
            "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, "
            "{%r3}, {%f1,%f2,%f3,%f4};\n"
            "mma.sync.aligned.m8n8k4.col.row.f16.f16.f16.f16 {%r1,%r2,%r3,%r4}, {%r5,%r6}, "
            "{%r7,%r8}, {%r1,%r2,%r3,%r4};\n"
            "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1,%r2}, [%r3+32];\n"
            "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
            "{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1], %r9;\n"
            "cp.async.ca.shared.global [%r1+8], [%rd1+16], 4, %r2;\ncp.async.wait_group 1;"));
    assert_int_equal(insn_of(m, 0)->n_a, 4);
    assert_int_equal(insn_of(m, 0)->n_b, 2);
    assert_int_equal(insn_of(m, 0)->type2, KILN_PTX_BF16);
    assert_true(insn_of(m, 1)->flags & KILN_PTX_SATFINITE);
    assert_int_equal(insn_of(m, 1)->type3, KILN_PTX_U8);
    assert_int_equal(insn_of(m, 2)->n_b, 1);
    assert_int_equal(insn_of(m, 3)->n_d, 4);
    assert_true(insn_of(m, 3)->flags & KILN_PTX_A_COL);
    assert_false(insn_of(m, 3)->flags & KILN_PTX_B_COL);
    assert_true(insn_of(m, 4)->flags & KILN_PTX_TRANS);
    assert_int_equal(insn_of(m, 5)->n_d, 8);
    assert_int_not_equal(insn_of(m, 5)->c, KILN_PTX_NONE);
    assert_int_equal(insn_of(m, 6)->imm3, 4);
    assert_int_equal(insn_of(m, 6)->imm2, 16);
    assert_true(insn_of(m, 6)->flags & KILN_PTX_HAS_SIZE);
    assert_int_equal(insn_of(m, 7)->imm, 1);
    kiln_ptx_close(m);
}

// ---- What is refused ----------------------------------------------------------------------------

static void expect_error(const char *text, const char *part) {
    struct kiln_ptx_module *module = NULL;
    struct kiln_err err = {0};
    enum kiln_status status = kiln_ptx_open(&module, "t.ptx", text, strlen(text), &err);
    if (status != KILN_STATUS_FILE || !strstr(err.text, part) ||
            strncmp(err.text, "t.ptx:", 6) != 0) {
        fail_msg("for %s\nwanted: %s\ngot: %s", text, part, err.text);
    }
    assert_null(module);
}

#define WGMMA(shape, types) "wgmma.mma_async.sync.aligned." shape "." types " "

static void sim_ptx_refuses(void **state) {
    (void)state;
    static const struct {
        const char *body, *part;
    } cases[] = {
            {"frobnicate.u32 %r1, %r2;", "instruction frobnicate is unknown"},
            {"add.rn.s32 %r1, %r2, %r3;", "belong to real types"},
            {"mbarrier.expect_tx.shared.b64 [%r1], %r2;", "from sm_90 on; the module is for sm_80"},
            {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], "
             "%r2, "
             "[%r3];",
                    "from sm_90 on; the module is for sm_80"},
            {"fence.proxy.async;", "from sm_90 on"},
            {"fence.proxy.alias;", "of fence.proxy only .async is modelled"},
            {"mbarrier.pending_count.b64 %r1, %rd1;", "of mbarrier .init, .inval"},
            {"mbarrier.init.shared.b64 [%r1];", "1 operands; 2 are wanted"},
            {"mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1];", "a state, an address and a num"},
            {"add.fast.f32 %f1, %f2, %f3;", "modifier .fast is unknown"},
            {"mul.s32 %r1, %r2, %r3;", ".lo, .hi or .wide is missing"},
            {"add.s32 %r1, %rd2, %r3;", "%rd2 has 64 bits; 32 are wanted"},
            {"add.s32 %r1, %r2;", "2 operands; 3 are wanted"},
            {"add.s32 %r1, %r2, %q;", "%q is no register declared here"},
            {"mov.u32 %r1, %r99;", "%r99 is no register"},
            {"mov.u32 %r1, nothing;", "nothing is not declared"},
            {"bra NOWHERE;", "NOWHERE is no label"},
            {"div.f32 %f1, %f2, %f3;", "rounding modifier or .approx is missing"},
            {"cvt.s32.f32 %r1, %f1;", "rounding modifier is missing"},
            {"ld.shared.v3.u32 {%r1, %r2, %r3}, [%r4];", ".v3 is unknown"},
            {"ld.global.v2.u32 {%r1, %r2, %r3}, [%rd4];", "3 registers in a list; 2 are wanted"},
            {"st.const.u32 [%rd1], %r1;", "can only be read"},
            {"cp.async.cg.shared.global [%r1], [%rd1], 8;", ".cg copies 16 bytes"},
            {"mma.sync.aligned.m16n8k16.row.col.f32.s8.s8.f32 {%f1}, {%r1}, {%r2}, {%f1};",
                    "does not go with these types"},
            {"mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
                    "is .row.col"},
            {"tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [t, {%f5, %f6}];", "t is not declared"},
            {"tcgen05.fence::before_thread_sync;", "instruction tcgen05 is unknown"},
            {"wgmma.fence.aligned;", ".sync.aligned"},
            {"wgmma.fence.sync.aligned;", "on sm_90a alone; the module is for sm_80"},
            {"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1}, %rd1, %rd2;",
                    ".sync.aligned is missing"},
            {WGMMA("m64n12k16", "f32.f16.f16") "{%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 0;",
                    "a shape is missing"},
            {WGMMA("m64n8k16", "f16.bf16.bf16") "{%r1, %r2}, %rd1, %rd2, 1, 1, 1, 0, 0;",
                    "do not go together"},
            {WGMMA("m64n8k16", "f32.f16.f16") "{%f1, %f2}, %rd1, %rd2, 1, 1, 1, 0, 0;",
                    "2 registers in a list; 4 are wanted"},
            {WGMMA("m64n8k16", "f32.f16.f16") "{%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 2, 1, 0, 0;",
                    "by 1 or -1"},
            {WGMMA("m64n8k16", "f32.f16.f16") "{%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0;",
                    "7 operands; 8 are wanted"},
            {"@%r1 bra X; X:", "%r1 is no predicate register"},
            {"setp.gt.b32 %p1, %r1, %r2;", "does not go with the type"},
            {".reg .b32 %r1; .reg .b32 %r1;", "declared twice"},
            {"mov.u32 %r1, 0x1ffffffffffffffff;", "does not fit 64 bits"},
            {"mov.u32 %r1, (1 / 0);", "division"},
            {"call g, (%r1);", "a function, or a register"},
            {"\"text\";", "an instruction is wanted"},
            {"shfl.bfly.b64 %rd1, %rd2, 1, 31;", ".b64 is unknown"},
    };
    char text[4096];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(text, sizeof(text), "%s%s\n}\n",
                HEAD ".visible .entry k(.param .u64 a, .param .u32 b)\n{\n" REGS, cases[i].body);
        expect_error(text, cases[i].part);
    }
}

static void sim_ptx_refuses_modules(void **state) {
    (void)state;
    expect_error("", ".version and .target");
    expect_error(".target sm_80", "begins with .version");
    expect_error(HEAD ".entry k(", ".param or .reg is wanted");
    expect_error(HEAD ".entry k() {", "the text ends here");
    expect_error(HEAD ".global .b8 x[2] = {1, 2, 3};", "more values");
    expect_error(HEAD ".global .u32 x = y;", "no variable or function");
    expect_error(HEAD ".shared .b8 x[];", "array without a size");
    expect_error(HEAD ".global .b8 x[99999999999][99999999999];", "larger than 2^40");
    expect_error(HEAD ".texref t;", "unknown directive");
    expect_error(HEAD "/* no end", "comment without its end");
    expect_error(HEAD ".file 1 \"x", "second '\"'");
    expect_error(".version 8.0\n.target sm_80\n.address_size 32\n", "64 bits");
    // The line in the PTX, the instruction and the line of the source.
    expect_error(KERNEL(".loc 1 7 0\nadd.s32 %r1, %r2;") ".file 1 \"a.cu\"\n",
            "t.ptx:8 (a.cu:7): 'add.s32 %r1, %r2;': 2 operands");
    // A function that nothing calls is read all the same.
    expect_error(HEAD ".func f() { bogus; ret; }\n", "instruction bogus is unknown");
}

// With each allocation failing in turn, an error and nothing leaked (the sanitizers look).
static void sim_ptx_out_of_memory(void **state) {
    (void)state;
    static const char text[] = HEAD
            ".global .u64 t[2] = {generic(t), 1};\n.shared .b8 s[8];\n"
            ".func (.param .b32 o) f(.param .b32 x) { .reg .b32 %r<2>; ld.param.b32 %r1, [x];\n"
            "st.param.b32 [o], %r1; ret; }\n"
            ".entry k(.param .u64 a)\n{\n" REGS
            ".loc 1 2 3\nadd.s32 %r1, %r2, 3; ld.global.v2.u32 {%r1, %r2}, [t]; @%p1 bra L;\n"
            "call (%r3), f, (%r1); L: mov.u32 %r4, s; ret; }\n.file 1 \"a.cu\"\n";
    int failed = 1;
    for (uint64_t n = 1; failed; n++) {
        struct kiln_ptx_module *module = NULL;
        struct kiln_err err = {0};
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_ptx_open(&module, "t.ptx", text, sizeof(text) - 1, &err);
        kiln_mem_fail_at(0, 0);
        failed = status != KILN_STATUS_OK;
        if (failed) {
            assert_int_equal(status, KILN_STATUS_NOMEM);
            assert_true(n < 1000);
        }
        kiln_ptx_close(module);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(sim_ptx_kernel),
            cmocka_unit_test(sim_ptx_operands),
            cmocka_unit_test(sim_ptx_flow),
            cmocka_unit_test(sim_ptx_places),
            cmocka_unit_test(sim_ptx_variables),
            cmocka_unit_test(sim_ptx_calls),
            cmocka_unit_test(sim_ptx_places_in_source),
            cmocka_unit_test(sim_ptx_scopes),
            cmocka_unit_test(sim_ptx_fragments),
            cmocka_unit_test(sim_ptx_refuses),
            cmocka_unit_test(sim_ptx_refuses_modules),
            cmocka_unit_test(sim_ptx_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
