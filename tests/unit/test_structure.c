// Structures of small kernels in PTX: classes, source lines through inlining, loops and their
// barriers.
#include "base/mem.h"
#include "lab/structure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HEAD \
    ".version 8.0\n.target sm_80\n.visible .entry other()\n{\n\tbar.sync \t0;\n\tret;\n}\n" \
    ".visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u32 k_param_1\n)\n.maxntid 128\n{\n" \
    "\t.reg .pred \t%p<3>;\n\t.shared .align 4 .b8 buf[64];\n"
#define TAIL \
    "\tret;\n\n}\n\t.file\t1 \"/folder/k.cu\"\n\t.file\t2 \"/common/t.cuh\"\n" \
    "\t.section\t.debug_str\n\t{\n\t}\n"

static void read_text(struct kiln_structure *structure, const char *text) {
    struct kiln_err err = {0};
    if (kiln_structure_read(structure, text, "k", &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
}

static uint32_t count(const struct kiln_structure *structure, const char *file, uint32_t line,
        enum kiln_structure_class kind) {
    for (size_t i = 0; i < structure->n_lines; i++) {
        if (structure->lines[i].line == line && strcmp(structure->lines[i].file, file) == 0) {
            return structure->lines[i].counts[kind];
        }
    }
    return 0;
}

static void structure_tells_classes_apart(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum kiln_structure_class kind;
    } rows[] = {
            {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2},{%r1},{%r2},{%f1,%f2}",
                    KILN_STRUCTURE_MMA},
            {"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, p, 1, 1",
                    KILN_STRUCTURE_MMA},
            {"wgmma.wait_group.sync.aligned 0", KILN_STRUCTURE_OTHER},
            {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1,%r2,%r3,%r4}, [%r5]",
                    KILN_STRUCTURE_LDMATRIX},
            {"cp.async.cg.shared.global [%r1], [%rd1], 16, %r2", KILN_STRUCTURE_ASYNC},
            {"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
             "[%rd1, {%r2, %r3}], [%r4]",
                    KILN_STRUCTURE_ASYNC},
            {"cp.async.commit_group", KILN_STRUCTURE_OTHER},
            {"cp.async.wait_group 1", KILN_STRUCTURE_OTHER},
            {"ld.shared.v2.f32 {%f1, %f2}, [%r1+8]", KILN_STRUCTURE_LD_SHARED},
            {"ld.shared::cta.u32 %r1, [%r2]", KILN_STRUCTURE_LD_SHARED},
            {"st.volatile.shared.u32 [%r1], %r2", KILN_STRUCTURE_ST_SHARED},
            {"atom.shared.add.u32 %r1, [%r2], 1", KILN_STRUCTURE_ST_SHARED},
            {"shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1", KILN_STRUCTURE_SHUFFLE},
            {"redux.sync.add.s32 %r1, %r2, -1", KILN_STRUCTURE_SHUFFLE},
            {"bar.sync 0", KILN_STRUCTURE_BARRIER},
            {"barrier.sync.aligned 1, 128", KILN_STRUCTURE_BARRIER},
            {"bar.warp.sync -1", KILN_STRUCTURE_OTHER},
            {"bar.arrive 1, 64", KILN_STRUCTURE_OTHER},
            {"mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2", KILN_STRUCTURE_MBARRIER},
            {"mbarrier.arrive.shared.b64 _, [%r1]", KILN_STRUCTURE_OTHER},
            {"ld.global.nc.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1]", KILN_STRUCTURE_LD_GLOBAL},
            {"ld.param.u64 %rd1, [k_param_0]", KILN_STRUCTURE_OTHER},
            {"ld.local.u32 %r1, [%rd1]", KILN_STRUCTURE_OTHER},
            {"st.global.u32 [%rd1], %r1", KILN_STRUCTURE_ST_GLOBAL},
            {"red.global.add.f32 [%rd1], %f1", KILN_STRUCTURE_ST_GLOBAL},
            {"ex2.approx.ftz.f32 %f1, %f2", KILN_STRUCTURE_SPECIAL},
            {"div.s32 %r1, %r2, %r3", KILN_STRUCTURE_OTHER},
            {"div.rn.f32 %f1, %f2, %f3", KILN_STRUCTURE_SPECIAL},
            {"fma.rn.f32 %f1, %f2, %f3, %f4", KILN_STRUCTURE_FLOAT},
            {"mul.f16x2 %r1, %r2, %r3", KILN_STRUCTURE_FLOAT},
            {"add.s32 %r1, %r2, 1", KILN_STRUCTURE_OTHER},
            {"dp4a.s32.s32 %r1, %r2, %r3, %r4", KILN_STRUCTURE_INTEGER},
            {"mov.f32 %f1, %f2", KILN_STRUCTURE_OTHER},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[1024];
        struct kiln_structure structure;
        snprintf(text, sizeof(text), "%s\t.loc\t1 5 1\n\t%s;\n%s", HEAD, rows[i].text, TAIL);
        read_text(&structure, text);
        uint32_t total = 0;
        for (unsigned kind = 0; kind < KILN_STRUCTURE_CLASSES; kind++) {
            total += count(&structure, "k.cu", 5, (enum kiln_structure_class)kind);
        }
        assert_int_equal(total, 2); // and ret
        if (count(&structure, "k.cu", 5, rows[i].kind) !=
                1 + (uint32_t)(rows[i].kind == KILN_STRUCTURE_OTHER)) {
            fail_msg("'%s' is not of class %d", rows[i].text, (int)rows[i].kind);
        }
        kiln_structure_finish(&structure);
    }
}

// A line of a header counts for the line of the kernel that calls it, also through two calls, and
// also where the compiler has left the call out and only one is possible.
static void structure_follows_inlining(void **state) {
    (void)state;
    static const char text[] = HEAD
            "\t.loc\t1 10 1\n\tmov.u32 %r1, 0;\n"
            "\t.loc\t1 12 5\n"
            "\t.loc\t2 30 5, function_name $L__info_string0, inlined_at 1 12 5\n"
            "\t.loc\t2 7 9, function_name $L__info_string1, inlined_at 2 30 5\n"
            "\t// begin inline asm\n\tldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];\n"
            "\t// end inline asm\n"
            "\t.loc\t2 31 5, function_name $L__info_string0, inlined_at 1 12 5\n"
            "\tadd.f32 %f1, %f1, %f1;\n"
            "\t.loc\t2 7 9\n\tst.shared.u32 [%r1], %r2;\n"
            "\t.loc\t1 14 5\n"
            "\t.loc\t2 40 5, function_name $L__info_string0, inlined_at 1 14 5\n\tbar.sync 0;\n"
            "\t.loc\t1 15 5\n"
            "\t.loc\t2 40 5, function_name $L__info_string0, inlined_at 1 15 5\n\tbar.sync 0;\n"
            "\t.loc\t2 40 5\n\tbar.sync 0;\n" TAIL;
    struct kiln_structure structure;
    read_text(&structure, text);
    assert_int_equal(count(&structure, "k.cu", 12, KILN_STRUCTURE_LDMATRIX), 1);
    assert_int_equal(count(&structure, "k.cu", 12, KILN_STRUCTURE_FLOAT), 1);
    assert_int_equal(count(&structure, "k.cu", 12, KILN_STRUCTURE_ST_SHARED), 1);
    assert_int_equal(count(&structure, "k.cu", 14, KILN_STRUCTURE_BARRIER), 1);
    assert_int_equal(count(&structure, "k.cu", 15, KILN_STRUCTURE_BARRIER), 1);
    assert_int_equal(count(&structure, "t.cuh", 40, KILN_STRUCTURE_BARRIER), 1); // 14 or 15
    assert_int_equal(structure.barriers_outside, 3);
    assert_true(structure.loops_known);
    assert_int_equal(structure.n_loops, 0);
    for (size_t i = 1; i < structure.n_lines; i++) {
        assert_true(strcmp(structure.lines[i - 1].file, structure.lines[i].file) <= 0);
    }
    kiln_structure_finish(&structure);
}

// An outer loop with two barriers, one of which an if may skip, and an inner one with one; labels
// within braces of inline assembly are those braces' own.
static const char loops_text[] = HEAD
        "\t.loc\t1 20 1\n\tmov.u32 %r1, 0;\n\tbar.sync 0;\n"
        "$L__BB1_1:\n\t.loc\t1 22 1\n\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, "
        "{%r1}, {%r2}, {%f1};\n\tbar.sync \t0;\n"
        "\t@%p1 bra \t$L__BB1_3;\n"
        "\t.loc\t1 23 1\n\tbar.sync \t0;\n"
        "$L__BB1_3:\n\t.loc\t1 24 1\n\tbarrier.sync 0;\n\t@!%p2 bra $L__BB1_3;\n"
        "\t{\n\t.reg .pred done;\nagain:\n\tmbarrier.try_wait.parity.shared.b64 done, [%r1], %r2;\n"
        "\t@done bra out;\n\tbra again;\nout:\n\t}\n"
        "\t{\n\t.reg .pred done;\nagain:\n\tmbarrier.try_wait.parity.shared.b64 done, [%r1], %r2;\n"
        "\t@!done bra again;\n\t}\n"
        "\t.loc\t1 21 1\n\t@%p1 bra $L__BB1_1;\n"
        "\t.loc\t1 30 1\n\tbra.uni $L__BB1_9;\n"
        "$L__BB1_9:\n" TAIL;

static void structure_finds_loops(void **state) {
    (void)state;
    struct kiln_structure structure;
    read_text(&structure, loops_text);
    assert_true(structure.loops_known);
    assert_int_equal(structure.n_loops, 4);
    const struct kiln_structure_loop *outer = &structure.loops[0];
    assert_string_equal(outer->file, "k.cu");
    assert_int_equal(outer->line, 21);
    assert_int_equal(outer->depth, 1);
    assert_int_equal(outer->barriers, 2);
    assert_int_equal(outer->sometimes, 1);
    assert_int_equal(outer->counts[KILN_STRUCTURE_MMA], 1);
    assert_int_equal(outer->counts[KILN_STRUCTURE_MBARRIER], 0);
    assert_int_equal(structure.loops[1].line, 24);
    assert_int_equal(structure.loops[1].depth, 2);
    assert_int_equal(structure.loops[1].barriers, 1);
    assert_int_equal(structure.loops[1].sometimes, 0);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(structure.loops[i].depth, 2);
        assert_int_equal(structure.loops[i].barriers, 0);
        assert_int_equal(structure.loops[i].counts[KILN_STRUCTURE_MBARRIER], 1);
    }
    assert_int_equal(structure.barriers_outside, 1);
    kiln_structure_finish(&structure);
}

static void structure_says_what_it_cannot_follow(void **state) {
    (void)state;
    static const char indirect[] = HEAD
            "\t.loc\t1 2 1\n$L_brx_0: .branchtargets\n\t$L_a,\n\t$L_b;\n\tbrx.idx %r1, $L_brx_0;\n"
            "$L_a:\n\tbar.sync 0;\n$L_b:\n\tbar.sync 0;\n" TAIL;
    static const char called[] = HEAD
            "\t.loc\t1 2 1\n\t{ // callseq 0, 0\n\t.param .b32 param0;\n"
            "\tst.param.b32 [param0+0], %r1;\n\tcall.uni \n\tf, \n\t(\n\tparam0\n\t);\n\t}\n" TAIL;
    static const char lost[] = HEAD "\t.loc\t1 2 1\n\t@%p1 bra nowhere;\n" TAIL;
    struct kiln_structure structure;
    read_text(&structure, indirect);
    assert_false(structure.loops_known);
    assert_int_equal(count(&structure, "k.cu", 2, KILN_STRUCTURE_BARRIER), 2);
    kiln_structure_finish(&structure);
    read_text(&structure, called);
    assert_int_equal(structure.calls, 1);
    kiln_structure_finish(&structure);
    read_text(&structure, lost);
    assert_false(structure.loops_known);
    kiln_structure_finish(&structure);
}

// Every beginning of a text is read or refused, and nothing is read beyond it.
static void structure_refuses_what_is_cut_short(void **state) {
    (void)state;
    const size_t size = sizeof(loops_text) - sizeof(TAIL) + sizeof("\tret;\n") - 1;
    for (size_t len = 0; len < size; len++) {
        struct kiln_structure structure;
        struct kiln_err err = {0};
        char *text = kiln_strndup(loops_text, len);
        assert_non_null(text);
        assert_int_equal(kiln_structure_read(&structure, text, "k", &err), KILN_STATUS_FILE);
        assert_non_null(strstr(err.text, "PTX: "));
        kiln_structure_finish(&structure);
        kiln_free(text);
    }
}

static void structure_lives_through_failed_allocations(void **state) {
    (void)state;
    int done = 0;
    for (uint64_t n = 1; !done && n < 1000; n++) {
        struct kiln_structure structure;
        struct kiln_err err = {0};
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_structure_read(&structure, loops_text, "k", &err);
        done = kiln_mem_count() < n;
        kiln_mem_fail_at(0, 0);
        assert_true(status == (done ? KILN_STATUS_OK : KILN_STATUS_NOMEM));
        kiln_structure_finish(&structure);
    }
    assert_true(done);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(structure_tells_classes_apart),
            cmocka_unit_test(structure_follows_inlining),
            cmocka_unit_test(structure_finds_loops),
            cmocka_unit_test(structure_says_what_it_cannot_follow),
            cmocka_unit_test(structure_refuses_what_is_cut_short),
            cmocka_unit_test(structure_lives_through_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
