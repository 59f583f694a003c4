// widen: each tensor of a widened model is the old one with room in it, and the keys say so.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "gguf_write.h"
#include "kiln/plugin.h"
#include "model/dtype.h"
#include "model/model.h"
#include "model/quant.h"
#include "model/synth.h"
#include "model/widen.h"
#include "scratch.h"

static void synth(const char *arch, const char *quant, const char *path) {
    struct kiln_synth synth = {.arch = arch, .like = "tiny", .quant = quant, .seed = 1};
    struct kiln_err err = {0};
    assert_int_equal(kiln_synth_write(&synth, path, NULL, &err), KILN_STATUS_OK);
}

static struct kiln_model *open_model(const char *path) {
    struct kiln_model *model;
    struct kiln_err err = {0};
    if (kiln_model_open(&model, path, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    return model;
}

static float *values_of(const struct kiln_gguf_tensor *tensor) {
    float *values = kiln_calloc(tensor->elems, sizeof(float));
    assert_int_equal(kiln_dequant_row(tensor->dtype, tensor->data, values, tensor->elems), 0);
    return values;
}

// What cell (row, col) of the wide tensor must be, from the old values. heads lie along the rows or
// the columns.
static float wanted(const float *old, const struct kiln_gguf_tensor *t, int along_cols,
        uint64_t old_size, uint64_t new_size, float factor, uint64_t row, uint64_t col) {
    uint64_t at = along_cols ? col : row;
    if (at % new_size >= old_size) {
        return 0;
    }
    at = at / new_size * old_size + at % new_size;
    return factor * (along_cols ? old[row * t->dims[0] + at] : old[at * t->dims[0] + col]);
}

static void check_tensor(const struct kiln_gguf_tensor *old, const struct kiln_gguf_tensor *wide,
        uint64_t old_size, uint64_t new_size) {
    int is_q = strstr(old->name, "attn_q.") != NULL;
    int along_rows = is_q || strstr(old->name, "attn_k.") || strstr(old->name, "attn_v.");
    int along_cols = strstr(old->name, "attn_output.") != NULL;
    if (strstr(old->name, ".bias")) { // a vector lies along the columns
        along_cols = 1;
    }
    float factor = is_q ? (float)sqrt((double)new_size / (double)old_size) : 1.0F;
    if (!along_rows && !along_cols) {
        assert_int_equal(old->dtype, wide->dtype);
        assert_int_equal(old->bytes, wide->bytes);
        assert_memory_equal(old->dims, wide->dims, sizeof(old->dims));
        assert_memory_equal(old->data, wide->data, old->bytes);
        return;
    }
    assert_int_equal(wide->dims[0], along_cols ? old->dims[0] / old_size * new_size : old->dims[0]);
    assert_int_equal(wide->dims[1], along_cols ? old->dims[1] : old->dims[1] / old_size * new_size);
    float *before = values_of(old), *after = values_of(wide);
    for (uint64_t row = 0; row < wide->dims[1]; row++) {
        for (uint64_t col = 0; col < wide->dims[0]; col++) {
            float want = wanted(before, old, along_cols, old_size, new_size, factor, row, col);
            float found = after[row * wide->dims[0] + col];
            if (found != want) {
                fail_msg("%s (%u, %u) is %g, not %g", old->name, (unsigned)row, (unsigned)col,
                        (double)found, (double)want);
            }
        }
    }
    kiln_free(before);
    kiln_free(after);
}

// Widens and compares everything; gives the count of tensors that became f32.
static size_t check_widen(const char *in, const char *out, int32_t head_size) {
    struct kiln_widen widen = {.head_size = head_size};
    struct kiln_widen_result result;
    struct kiln_err err = {0};
    if (kiln_widen_write(&widen, in, out, &result, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    struct kiln_model *a = open_model(in), *b = open_model(out);
    struct kiln_model_params p = a->params, q = b->params;
    assert_int_equal(q.head_size, head_size);
    assert_int_equal(result.old_head_size, p.head_size);
    assert_int_equal(q.rope_dims, p.rope_dims);
    assert_int_equal(q.n_heads, p.n_heads);
    assert_int_equal(q.n_kv_heads, p.n_kv_heads);
    assert_true(q.rope_base == p.rope_base && q.rms_eps == p.rms_eps);
    assert_int_equal(kiln_gguf_file_size(b->gguf), result.file_bytes);
    assert_int_equal(kiln_gguf_n_tensors(a->gguf), kiln_gguf_n_tensors(b->gguf));
    size_t n_f32 = 0;
    for (size_t i = 0; i < kiln_gguf_n_tensors(a->gguf); i++) {
        const struct kiln_gguf_tensor *old = kiln_gguf_tensor_at(a->gguf, i);
        const struct kiln_gguf_tensor *wide = kiln_gguf_find_tensor(b->gguf, old->name);
        assert_non_null(wide);
        check_tensor(old, wide, (uint64_t)p.head_size, (uint64_t)head_size);
        n_f32 += old->dtype != wide->dtype;
        assert_true(old->dtype == wide->dtype || wide->dtype == KILN_DTYPE_F32);
    }
    assert_int_equal(n_f32, result.n_f32);
    kiln_model_close(a);
    kiln_model_close(b);
    return n_f32;
}

static void widen_makes_room_in_every_head(void **state) {
    (void)state;
    const char *in = scratch_path("in.gguf"), *out = scratch_path("out.gguf");
    static const char *const archs[] = {"llama", "qwen2"};
    for (int i = 0; i < 2; i++) {
        synth(archs[i], "q4_1", in);
        assert_int_equal(check_widen(in, out, 128), 8); // q of each layer
        assert_int_equal(check_widen(in, out, 96), 8);
        synth(archs[i], "q4_K_M", in);
        assert_int_equal(
                check_widen(in, out, 128), 16); // attn_output too: 64 columns are no block of 256
        synth(archs[i], "f16", in);
        assert_int_equal(check_widen(in, out, 66), 8);
        synth(archs[i], "f32", in);
        assert_int_equal(check_widen(in, out, 256), 0);
        synth(archs[i], "q8_0", in);
        assert_int_equal(check_widen(in, out, 80), 16); // 80 columns are no whole blocks of 32
    }
    scratch_empty();
}

static void widen_keeps_keys(void **state) {
    (void)state;
    const char *in = scratch_path("in.gguf"), *out = scratch_path("out.gguf");
    synth("llama", "q4_0", in);
    check_widen(in, out, 128);
    struct kiln_model *a = open_model(in), *b = open_model(out);
    for (size_t i = 0; i < kiln_gguf_n_keys(a->gguf); i++) {
        const struct kiln_gguf_key *key = kiln_gguf_key_at(a->gguf, i);
        char *name = kiln_strndup(key->name.data, key->name.len);
        const struct kiln_gguf_key *kept = kiln_gguf_find_key(b->gguf, name);
        assert_non_null(kept);
        if (!strstr(name, "_length") || strstr(name, "context") || strstr(name, "embedding") ||
                strstr(name, "feed_forward")) {
            assert_int_equal(kept->value_bytes, key->value_bytes);
            assert_memory_equal(kept->value, key->value, key->value_bytes);
        }
        kiln_free(name);
    }
    assert_int_equal(kiln_synth_is(b->gguf), 1); // random weights stay random weights
    uint64_t from = 0;
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_get_u64(b->gguf, "kiln.widened_from", 1, 0, 9999, &from, &err),
            KILN_STATUS_OK);
    assert_int_equal(from, 64);
    kiln_model_close(a);
    kiln_model_close(b);
    scratch_empty();
}

static void widen_writes_over_its_own_model(void **state) {
    (void)state;
    const char *in = scratch_path("in.gguf"), *out = scratch_path("out.gguf");
    synth("qwen2", "q4_0", in);
    check_widen(in, out, 128);
    struct kiln_widen widen = {.head_size = 128};
    struct kiln_err err = {0};
    assert_int_equal(kiln_widen_write(&widen, in, in, NULL, &err), KILN_STATUS_OK);
    char *a, *b;
    size_t size_a, size_b;
    assert_int_equal(kiln_file_read(in, 1 << 28, &a, &size_a, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_file_read(out, 1 << 28, &b, &size_b, &err), KILN_STATUS_OK);
    assert_int_equal(size_a, size_b);
    assert_memory_equal(a, b, size_a);
    kiln_free(a);
    kiln_free(b);
    // Wider still: rotation stays where it was.
    assert_int_equal(check_widen(out, in, 192), 0);
    scratch_empty();
}

static void refuse(int32_t head_size, enum kiln_status status, const char *text) {
    struct kiln_widen widen = {.head_size = head_size};
    struct kiln_err err = {0};
    assert_int_equal(
            kiln_widen_write(&widen, scratch_path("in.gguf"), scratch_path("out.gguf"), NULL, &err),
            status);
    if (!strstr(err.text, text) || !strstr(err.text, "in.gguf")) {
        fail_msg("'%s' is not in: %s", text, err.text);
    }
    assert_int_equal(scratch_count(), 1);
}

static void widen_refuses_what_it_cannot_do(void **state) {
    (void)state;
    synth("llama", "q4_0", scratch_path("in.gguf"));
    static const int32_t sizes[] = {64, 62, 0, -128, 65, 1026, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        refuse(sizes[i], KILN_STATUS_USAGE, "an even number above that, up to 1024");
    }
    synth("qwen3", "q4_0", scratch_path("in.gguf"));
    refuse(256, KILN_STATUS_FILE, "attn_q_norm.weight");
    synth("gemma3", "q4_0", scratch_path("in.gguf"));
    refuse(512, KILN_STATUS_FILE, "attn_q_norm.weight");
    struct kiln_err err = {0};
    assert_int_equal(kiln_file_write(scratch_path("in.gguf"), "GGUF", 4, &err), KILN_STATUS_OK);
    refuse(128, KILN_STATUS_FILE, "cut short");
    scratch_empty();
}

// A tensor that no layer uses, with a name that widening would change.
static void widen_checks_tensors_beyond_the_layers(void **state) {
    (void)state;
    static const uint64_t vec[] = {8}, mat[] = {8, 8}, odd[] = {8, 7}, ffn[] = {8, 16},
                          down[] = {16, 8};
    static const struct {
        const char *name;
        uint32_t dtype;
        const uint64_t *dims;
        size_t bytes;
        const char *text;
    } extra[] = {
            {"blk.9.attn_q.weight", KILN_DTYPE_F32, odd, 224,
                    "has 7 rows of type f32; 2 heads of 4"},
            {"blk.9.attn_k.weight", KILN_DTYPE_I8, mat, 64, "of type i8"},
            {"blk.9.attn_output.weight", KILN_DTYPE_F32, odd, 224, NULL}, // columns are right
            {"blk.9.attn_v.bias", KILN_DTYPE_F32, mat, 256, "has 8 columns of type f32"},
            {"blk.9.attn_v.bias", KILN_DTYPE_F16, vec, 16, "of type f16"},
            {"blk.x.attn_v.bias", KILN_DTYPE_F16, vec, 16, NULL}, // not a layer's: copied
    };
    for (size_t i = 0; i < sizeof(extra) / sizeof(extra[0]); i++) {
        struct gguf_write w;
        gguf_write_init(&w);
        gguf_write_str(&w, "general.architecture", "llama");
        gguf_write_u32(&w, "llama.block_count", 1);
        gguf_write_u32(&w, "llama.context_length", 64);
        gguf_write_u32(&w, "llama.embedding_length", 8);
        gguf_write_u32(&w, "llama.feed_forward_length", 16);
        gguf_write_u32(&w, "llama.attention.head_count", 2);
        gguf_write_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
        static const struct {
            const char *name;
            uint32_t n_dims;
            const uint64_t *dims;
            size_t bytes;
        } tensors[] = {{"token_embd.weight", 2, mat, 256}, {"output_norm.weight", 1, vec, 32},
                {"blk.0.attn_norm.weight", 1, vec, 32}, {"blk.0.attn_q.weight", 2, mat, 256},
                {"blk.0.attn_k.weight", 2, mat, 256}, {"blk.0.attn_v.weight", 2, mat, 256},
                {"blk.0.attn_output.weight", 2, mat, 256}, {"blk.0.ffn_norm.weight", 1, vec, 32},
                {"blk.0.ffn_gate.weight", 2, ffn, 512}, {"blk.0.ffn_up.weight", 2, ffn, 512},
                {"blk.0.ffn_down.weight", 2, down, 512}};
        for (size_t t = 0; t < sizeof(tensors) / sizeof(tensors[0]); t++) {
            gguf_write_tensor(&w, tensors[t].name, KILN_DTYPE_F32, tensors[t].n_dims,
                    tensors[t].dims, NULL, tensors[t].bytes);
        }
        gguf_write_tensor(&w, extra[i].name, extra[i].dtype, extra[i].dims == vec ? 1 : 2,
                extra[i].dims, NULL, extra[i].bytes);
        size_t size;
        uint8_t *bytes = gguf_write_finish(&w, &size);
        struct kiln_err err = {0};
        assert_int_equal(kiln_file_write(scratch_path("in.gguf"), bytes, size, &err), 0);
        kiln_free(bytes);
        if (extra[i].text) {
            refuse(8, KILN_STATUS_FILE, extra[i].text);
        } else {
            struct kiln_widen widen = {.head_size = 8};
            assert_int_equal(kiln_widen_write(&widen, scratch_path("in.gguf"),
                                     scratch_path("out.gguf"), NULL, &err),
                    KILN_STATUS_OK);
        }
        scratch_empty();
    }
}

static int always(void) {
    return 1;
}

static int64_t last_done, last_total;

static void see(void *arg, int64_t done, int64_t total) {
    (void)arg;
    assert_true(done >= last_done && done <= total);
    last_done = done;
    last_total = total;
}

static void widen_leaves_nothing_after_a_failure(void **state) {
    (void)state;
    struct kiln_err err = {0};
    struct kiln_widen widen = {.head_size = 128};
    widen.progress = see;
    synth("llama", "q4_K_M", scratch_path("in.gguf"));
    scratch_fill_disk(1 << 20);
    enum kiln_status status =
            kiln_widen_write(&widen, scratch_path("in.gguf"), scratch_path("out.gguf"), NULL, &err);
    scratch_free_disk();
    assert_int_equal(status, KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "out.gguf: cannot write it: File too large"));
    assert_int_equal(scratch_count(), 1);
    last_done = 0;
    assert_int_equal(
            kiln_widen_write(&widen, scratch_path("in.gguf"), scratch_path("out.gguf"), NULL, &err),
            KILN_STATUS_OK);
    assert_true(last_done == last_total && last_done > 0);
    scratch_empty();
    synth("llama", "q4_K_M", scratch_path("in.gguf"));
    widen.stop = always;
    widen.progress = NULL;
    assert_int_equal(
            kiln_widen_write(&widen, scratch_path("in.gguf"), scratch_path("out.gguf"), NULL, &err),
            KILN_STATUS_INTERRUPTED);
    assert_int_equal(scratch_count(), 1);
    scratch_empty();
}

static void widen_survives_each_failed_allocation(void **state) {
    (void)state;
    synth("qwen2", "q4_0", scratch_path("in.gguf"));
    struct kiln_widen widen = {.head_size = 128};
    uint64_t n = 0, asked;
    do {
        struct kiln_err err = {0};
        kiln_mem_fail_at(++n, 0);
        enum kiln_status status = kiln_widen_write(
                &widen, scratch_path("in.gguf"), scratch_path("out.gguf"), NULL, &err);
        asked = kiln_mem_count();
        kiln_mem_fail_at(0, 0);
        // A failed list of what is known harms nothing when it is not shown.
        assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_NOMEM);
        assert_int_equal(scratch_count(), status == KILN_STATUS_OK ? 2 : 1);
        remove(scratch_path("out.gguf"));
    } while (asked >= n);
    assert_true(n > 100);
    scratch_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(widen_makes_room_in_every_head),
            cmocka_unit_test(widen_keeps_keys),
            cmocka_unit_test(widen_writes_over_its_own_model),
            cmocka_unit_test(widen_refuses_what_it_cannot_do),
            cmocka_unit_test(widen_checks_tensors_beyond_the_layers),
            cmocka_unit_test(widen_leaves_nothing_after_a_failure),
            cmocka_unit_test(widen_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
