// slot: names made and checked.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/slot.h"

static void slot_names_have_the_parts_of_their_op(void **state) {
    (void)state;
    char name[KILN_SLOT_NAME_MAX];
    kiln_slot_name(name, KILN_OP_MATMUL, KILN_DTYPE_Q4_K, KILN_PHASE_PREFILL);
    assert_string_equal(name, "matmul.q4_K.prefill");
    kiln_slot_name(name, KILN_OP_MATMUL, KILN_DTYPE_BF16, KILN_PHASE_DECODE);
    assert_string_equal(name, "matmul.bf16.decode");
    kiln_slot_name(name, KILN_OP_ATTENTION, KILN_DTYPE_F16, KILN_PHASE_DECODE);
    assert_string_equal(name, "attention.decode");
    kiln_slot_name(name, KILN_OP_NORM, KILN_DTYPE_F32, KILN_PHASE_PREFILL);
    assert_string_equal(name, "norm");
    assert_string_equal(kiln_op_name(KILN_OP_ROPE_KV), "rope_kv");
    assert_string_equal(kiln_op_name(KILN_OP_ARGMAX), "argmax");
    uint32_t none = 99;
    assert_null(kiln_op_name((enum kiln_op_kind)none));
    assert_int_equal(kiln_op_kind("rope_kv", 7), KILN_OP_ROPE_KV);
    assert_int_equal(kiln_op_kind("rope_kv", 4), 0);
    assert_int_equal(kiln_op_kind("matmul.q4_K.decode", strlen("matmul.q4_K.decode")), 0);
    assert_int_equal(kiln_op_kind_of("matmul.q4_K.decode"), KILN_OP_MATMUL);
    assert_int_equal(kiln_op_kind_of("norm:ffn_norm"), KILN_OP_NORM);
    assert_int_equal(kiln_op_kind_of("normal"), 0);
}

static void slot_accepts_every_slot(void **state) {
    (void)state;
    static const char *const types[] = {
            "q4_K", "q5_K", "q6_K", "q5_0", "q4_1", "q4_0", "q8_0", "f16", "bf16", "f32"};
    static const char *const plain[] = {"embed", "norm", "rope_kv", "activation", "argmax",
            "quantize", "attention.prefill", "attention.decode"};
    struct kiln_err err = {0};
    char name[KILN_SLOT_NAME_MAX];
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        (void)snprintf(name, sizeof(name), "matmul.%s.prefill", types[i]);
        assert_int_equal(kiln_slot_check(name, 0, &err), KILN_STATUS_OK);
        (void)snprintf(name, sizeof(name), "matmul.%s.decode", types[i]);
        assert_int_equal(kiln_slot_check(name, 1, &err), KILN_STATUS_OK);
    }
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        assert_int_equal(kiln_slot_check(plain[i], 0, &err), KILN_STATUS_OK);
    }
    assert_int_equal(kiln_slot_check("matmul.*.decode", 1, &err), KILN_STATUS_OK);
}

static void slot_refusals_say_what_is_right(void **state) {
    (void)state;
    static const struct {
        const char *name, *says;
    } rows[] = {
            {"attenton.prefill", "slot 'attenton.prefill': unknown op 'attenton'; did you mean "
                                 "'attention'? known: embed, norm, rope_kv, attention, matmul, "
                                 "activation, quantize, argmax"},
            {"fa_prefil", "slot 'fa_prefil': unknown op 'fa_prefil'; known: embed"},
            {"attention", "slot 'attention': 'attention' is followed by .prefill or .decode"},
            {"attention.prefil",
                    "unknown phase 'prefil'; did you mean 'prefill'? known: prefill, decode"},
            {"attention.q4_K.prefill", "'attention' is followed by .prefill or .decode"},
            {"norm.prefill", "nothing follows 'norm': the slot is named 'norm'"},
            {"matmul.prefill", "'matmul' is followed by .TYPE.prefill or .TYPE.decode"},
            {"matmul.q4_K.prefill.x", "'matmul' is followed by"},
            {"matmul.Q4_K.prefill", "unknown weight type 'Q4_K'; did you mean 'q4_K'?"},
            {"matmul.q4_k.decode", "unknown weight type 'q4_k'; did you mean 'q4_K'?"},
            {"matmul.q3_K.decode", "unknown weight type 'q3_K'"},
            {"matmul.i32.decode", "unknown weight type 'i32'"},
            {"matmul.*.decode", "unknown weight type '*'"},
            {"matmul.q4_K.Decode", "unknown phase 'Decode'; did you mean 'decode'?"},
            {"matmul..decode", "unknown weight type ''"},
            {"", "unknown op ''"},
            {".", "unknown op ''"},
            {"matmul.id", "the name is reserved (matmul.id, for experts)"},
            {"matmul.id.q4_K.decode", "reserved (matmul.id, for experts)"},
            {"collective.allreduce", "reserved (collective.*, for several devices)"},
            {"matmul.q4_K.prefill.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                    "longer than 63 bytes"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct kiln_err err = {0};
        assert_int_equal(kiln_slot_check(rows[i].name, 0, &err), KILN_STATUS_CONFIG);
        if (!strstr(err.text, rows[i].says)) {
            fail_msg("%s: got: %s", rows[i].name, err.text);
        }
    }
}

static void slot_overlap_goes_part_by_part(void **state) {
    (void)state;
    assert_true(kiln_slot_overlap("norm", "norm"));
    assert_true(kiln_slot_overlap("matmul.*.prefill", "matmul.q4_K.prefill"));
    assert_true(kiln_slot_overlap("matmul.q4_K.prefill", "matmul.*.prefill"));
    assert_true(kiln_slot_overlap("matmul.*.prefill", "matmul.*.prefill"));
    assert_false(kiln_slot_overlap("matmul.*.prefill", "matmul.q4_K.decode"));
    assert_false(kiln_slot_overlap("matmul.q4_K.prefill", "matmul.q5_K.prefill"));
    assert_false(kiln_slot_overlap("attention", "attention.prefill"));
    assert_false(kiln_slot_overlap("attention.prefill", "attention"));
    assert_false(kiln_slot_overlap("norm", "norms"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(slot_names_have_the_parts_of_their_op),
            cmocka_unit_test(slot_accepts_every_slot),
            cmocka_unit_test(slot_refusals_say_what_is_right),
            cmocka_unit_test(slot_overlap_goes_part_by_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
