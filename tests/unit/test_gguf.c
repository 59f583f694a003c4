// gguf: good files come back as written; every kind of bad file is refused by name, place and
// reason.
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "gguf_write.h"
#include "kiln/plugin.h"
#include "model/gguf.h"
#include "model/gguf_describe.h"

static const uint64_t dims_8x2[] = {8, 2};
static const uint64_t dims_32[] = {32};
static const uint64_t dims_1[] = {1};

static struct kiln_gguf *parse(const uint8_t *bytes, size_t size) {
    struct kiln_gguf *gguf;
    struct kiln_err err = {0};
    if (kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    return gguf;
}

// The bytes are refused with a text that names the file and holds each of the NULL-ended parts.
static void refuse_bytes(const uint8_t *bytes, size_t size, const char *const *parts) {
    struct kiln_gguf *gguf = (struct kiln_gguf *)1;
    struct kiln_err err = {0};
    enum kiln_status status = kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err);
    assert_int_equal(status, KILN_STATUS_FILE);
    assert_int_equal(err.status, KILN_STATUS_FILE);
    assert_null(gguf);
    assert_memory_equal(err.text, "m.gguf: ", 8);
    for (size_t i = 0; parts[i]; i++) {
        if (!strstr(err.text, parts[i])) {
            fail_msg("'%s' is not in: %s", parts[i], err.text);
        }
    }
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void refuse(struct gguf_write *w, const char *const *parts) {
    size_t size;
    uint8_t *bytes = gguf_write_finish(w, &size);
    refuse_bytes(bytes, size, parts);
    kiln_free(bytes);
}

static void refuse_hex(const char *hex, const char *const *parts) {
    uint8_t bytes[128];
    size_t size = 0;
    for (unsigned value; sscanf(hex + 2 * size, "%2x", &value) == 1; size++) {
        bytes[size] = (uint8_t)value;
    }
    uint8_t *exact = kiln_alloc(size); // so that a sanitizer sees a read past the end
    memcpy(exact, bytes, size);
    refuse_bytes(exact, size, parts);
    kiln_free(exact);
}

// A small model with a key of each type and three tensors.
static uint8_t *small_model(size_t *size) {
    static const char *const tokens[] = {"a", "", "b\xc3\xa9"};
    static const int32_t numbers[] = {1, -2, 3};
    static const uint8_t flags[] = {1, 0, 1};
    static const float values[16] = {0.5F, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -15.5F};
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_str(&w, "general.architecture", "llama");
    gguf_write_value(&w, "u8", 2, KILN_GGUF_U8, "\xff", 1);
    gguf_write_value(&w, "i8", 2, KILN_GGUF_I8, "\xff", 1);
    gguf_write_value(&w, "u16", 3, KILN_GGUF_U16, "\xfe\xff", 2);
    gguf_write_value(&w, "i16", 3, KILN_GGUF_I16, "\xfe\xff", 2);
    gguf_write_u32(&w, "u32", 4000000000U);
    gguf_write_i32(&w, "i32", -7);
    gguf_write_u64(&w, "u64", UINT64_MAX);
    gguf_write_value(&w, "i64", 3, KILN_GGUF_I64, "\0\0\0\0\0\0\0\x80", 8);
    gguf_write_f32(&w, "f32", 1e-5F);
    gguf_write_f64(&w, "f64", 0.25);
    gguf_write_bool(&w, "bool", 1);
    gguf_write_strs(&w, "tokens", tokens, 3);
    gguf_write_array(&w, "numbers", KILN_GGUF_I32, 3, numbers, sizeof(numbers));
    gguf_write_array(&w, "flags", KILN_GGUF_BOOL, 3, flags, sizeof(flags));
    gguf_write_array(&w, "none", KILN_GGUF_STRING, 0, NULL, 0);
    gguf_write_tensor(&w, "norm.weight", KILN_DTYPE_F32, 2, dims_8x2, values, sizeof(values));
    gguf_write_tensor(&w, "block.weight", KILN_DTYPE_Q8_0, 1, dims_32, NULL, 34);
    gguf_write_tensor(&w, "one", KILN_DTYPE_F16, 1, dims_1, "\x00\x3c", 2);
    return gguf_write_finish(&w, size);
}

static void gguf_shows_tensors_as_written(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_model(&size);
    struct kiln_gguf *gguf = parse(bytes, size);
    assert_string_equal(kiln_gguf_path(gguf), "m.gguf");
    assert_int_equal(kiln_gguf_version(gguf), 3);
    assert_int_equal(kiln_gguf_alignment(gguf), 32);
    assert_int_equal(kiln_gguf_file_size(gguf), size);
    assert_int_equal(kiln_gguf_n_tensors(gguf), 3);
    const struct kiln_gguf_tensor *tensor = kiln_gguf_find_tensor(gguf, "norm.weight");
    assert_ptr_equal(tensor, kiln_gguf_tensor_at(gguf, 0));
    assert_string_equal(tensor->name, "norm.weight");
    assert_int_equal(tensor->dtype, KILN_DTYPE_F32);
    assert_int_equal(tensor->n_dims, 2);
    const uint64_t dims[4] = {8, 2, 1, 1};
    assert_memory_equal(tensor->dims, dims, sizeof(dims));
    assert_int_equal(tensor->elems, 16);
    assert_int_equal(tensor->bytes, 64);
    assert_int_equal(tensor->file_offset % 32, 0);
    assert_ptr_equal(tensor->data, bytes + tensor->file_offset);
    float last;
    memcpy(&last, tensor->data + 60, 4);
    assert_true(last == -15.5F);
    tensor = kiln_gguf_find_tensor(gguf, "block.weight");
    assert_int_equal(tensor->bytes, 34);
    assert_memory_equal(kiln_gguf_find_tensor(gguf, "one")->data, "\x00\x3c", 2);
    assert_null(kiln_gguf_find_tensor(gguf, "norm"));
    assert_null(kiln_gguf_find_tensor(gguf, ""));
    assert_null(kiln_gguf_tensor_at(gguf, 3));
    kiln_gguf_close(gguf);
    kiln_gguf_close(NULL);
    kiln_free(bytes);
}

static void check_u64(const struct kiln_gguf *gguf, const char *name, uint64_t want) {
    struct kiln_err err = {0};
    uint64_t value = 0;
    assert_int_equal(kiln_gguf_get_u64(gguf, name, KILN_GGUF_REQUIRED, 0, UINT64_MAX, &value, &err),
            KILN_STATUS_OK);
    assert_true(value == want);
}

static void gguf_reads_values_of_each_type(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_model(&size);
    struct kiln_gguf *gguf = parse(bytes, size);
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_n_keys(gguf), 16);
    assert_null(kiln_gguf_key_at(gguf, 16));
    check_u64(gguf, "u8", 255);
    check_u64(gguf, "u16", 65534);
    check_u64(gguf, "u32", 4000000000U);
    check_u64(gguf, "u64", UINT64_MAX);
    float number = 0;
    assert_int_equal(kiln_gguf_get_f32(gguf, "f32", 1, 0, 1, &number, &err), KILN_STATUS_OK);
    assert_true(number == 1e-5F);
    assert_int_equal(kiln_gguf_get_f32(gguf, "f64", 1, 0, 1, &number, &err), KILN_STATUS_OK);
    assert_true(number == 0.25F);
    int flag = 0;
    assert_int_equal(kiln_gguf_get_bool(gguf, "bool", 1, &flag, &err), KILN_STATUS_OK);
    assert_int_equal(flag, 1);
    struct kiln_str text = {0};
    assert_int_equal(
            kiln_gguf_get_str(gguf, "general.architecture", 1, &text, &err), KILN_STATUS_OK);
    assert_int_equal(text.len, 5);
    assert_memory_equal(text.data, "llama", 5);
    const struct kiln_gguf_key *key = kiln_gguf_find_key(gguf, "general.architecture");
    assert_ptr_equal(key, kiln_gguf_key_at(gguf, 0));
    assert_int_equal(key->offset, 24);
    assert_int_equal(key->value_bytes, 13);
    assert_string_equal(kiln_gguf_type_name(key->type), "string");
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

// A double would do for 2^53 only.
static void gguf_describes_integers_exactly(void **state) {
    (void)state;
    struct gguf_write w;
    gguf_write_init(&w);
    static const uint64_t big[] = {UINT64_MAX, (1ULL << 53) + 1};
    static const int64_t low[] = {INT64_MIN, -((1LL << 53) + 1)};
    gguf_write_u64(&w, "big", UINT64_MAX);
    gguf_write_array(&w, "bigs", KILN_GGUF_U64, 2, big, sizeof(big));
    gguf_write_array(&w, "lows", KILN_GGUF_I64, 2, low, sizeof(low));
    gguf_write_f64(&w, "inf", (double)INFINITY);
    gguf_write_bool(&w, "yes", 1);
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    struct kiln_gguf *gguf = parse(bytes, size);
    struct kiln_buf text = {0};
    kiln_gguf_describe(gguf, 0, &text);
    assert_non_null(strstr(text.data, "  big u64 = 18446744073709551615\n"));
    assert_non_null(
            strstr(text.data, "  bigs u64[2] = [18446744073709551615, 9007199254740993]\n"));
    assert_non_null(
            strstr(text.data, "  lows i64[2] = [-9223372036854775808, -9007199254740993]\n"));
    kiln_buf_finish(&text);
    json_t *json = kiln_gguf_describe_json(gguf), *keys = json_object_get(json, "keys");
    json_t *first = json_object_get(json_object_get(keys, "lows"), "first");
    assert_true(json_integer_value(json_array_get(first, 1)) == -9007199254740993);
    assert_true(json_real_value(json_object_get(keys, "big")) > 1.8e19);
    assert_true(json_is_null(json_object_get(keys, "inf")));
    assert_true(json_is_true(json_object_get(keys, "yes")));
    json_decref(json);
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

static void gguf_walks_arrays(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_model(&size);
    struct kiln_gguf *gguf = parse(bytes, size);
    struct kiln_err err = {0};
    const struct kiln_gguf_key *array;
    struct kiln_gguf_cursor cursor = {0};
    struct kiln_str text;
    assert_int_equal(
            kiln_gguf_get_array(gguf, "tokens", 1, KILN_GGUF_STRING, &array, &err), KILN_STATUS_OK);
    assert_int_equal(array->count, 3);
    static const char *const want[] = {"a", "", "b\xc3\xa9"};
    for (int i = 0; i < 3; i++) {
        assert_true(kiln_gguf_next_str(array, &cursor, &text));
        assert_int_equal(text.len, strlen(want[i]));
        assert_memory_equal(text.data, want[i], text.len);
    }
    assert_false(kiln_gguf_next_str(array, &cursor, &text));
    assert_int_equal(
            kiln_gguf_get_array(gguf, "numbers", 1, KILN_GGUF_I32, &array, &err), KILN_STATUS_OK);
    assert_true(kiln_gguf_array_number(array, 1) == -2.0);
    assert_true(kiln_gguf_array_number(array, 2) == 3.0);
    cursor = (struct kiln_gguf_cursor){0};
    assert_false(kiln_gguf_next_str(array, &cursor, &text));
    assert_int_equal(
            kiln_gguf_get_array(gguf, "flags", 1, KILN_GGUF_BOOL, &array, &err), KILN_STATUS_OK);
    assert_true(kiln_gguf_array_number(array, 0) == 1.0);
    assert_true(kiln_gguf_array_number(array, 1) == 0.0);
    assert_int_equal(
            kiln_gguf_get_array(gguf, "none", 1, KILN_GGUF_STRING, &array, &err), KILN_STATUS_OK);
    assert_false(kiln_gguf_next_str(array, &cursor, &text));
    assert_int_equal(
            kiln_gguf_get_array(gguf, "absent", 0, KILN_GGUF_I32, &array, &err), KILN_STATUS_OK);
    assert_null(array);
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

static void expect_error(enum kiln_status status, const struct kiln_err *err, const char *part) {
    assert_int_equal(status, KILN_STATUS_FILE);
    if (!strstr(err->text, part)) {
        fail_msg("'%s' is not in: %s", part, err->text);
    }
}

static void gguf_typed_reads_name_what_is_wrong(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_model(&size);
    struct kiln_gguf *gguf = parse(bytes, size);
    struct kiln_err err = {0};
    uint64_t value = 42;
    float number = 42;
    int flag = 42;
    struct kiln_str text = {"kept", 4};
    const struct kiln_gguf_key *array;
    // Absent and optional: the default stays.
    assert_int_equal(kiln_gguf_get_u64(gguf, "no", 0, 0, 9, &value, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_gguf_get_f32(gguf, "no", 0, 0, 9, &number, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_gguf_get_bool(gguf, "no", 0, &flag, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_gguf_get_str(gguf, "no", 0, &text, &err), KILN_STATUS_OK);
    // Absent and required.
    expect_error(kiln_gguf_get_u64(gguf, "no", 1, 0, 9, &value, &err), &err, "'no' is missing");
    expect_error(kiln_gguf_get_f32(gguf, "no", 1, 0, 9, &number, &err), &err, "'no' is missing");
    expect_error(kiln_gguf_get_bool(gguf, "no", 1, &flag, &err), &err, "'no' is missing");
    expect_error(kiln_gguf_get_str(gguf, "no", 1, &text, &err), &err, "'no' is missing");
    expect_error(kiln_gguf_get_array(gguf, "no", 1, KILN_GGUF_I32, &array, &err), &err,
            "m.gguf: the key 'no' is missing");
    // Out of range.
    expect_error(kiln_gguf_get_u64(gguf, "u8", 1, 1, 254, &value, &err), &err,
            "is 255; 1 to 254 is allowed");
    expect_error(kiln_gguf_get_u64(gguf, "u8", 1, 256, 300, &value, &err), &err, "256 to 300");
    expect_error(kiln_gguf_get_u64(gguf, "i8", 1, 0, 254, &value, &err), &err, "is -1;");
    expect_error(kiln_gguf_get_u64(gguf, "i16", 1, 0, 254, &value, &err), &err, "is -2;");
    expect_error(kiln_gguf_get_u64(gguf, "i32", 1, 0, UINT64_MAX, &value, &err), &err, "is -7;");
    expect_error(kiln_gguf_get_u64(gguf, "i64", 1, 0, UINT64_MAX, &value, &err), &err,
            "is -9223372036854775808;");
    expect_error(
            kiln_gguf_get_f32(gguf, "f64", 1, 0.5F, 1, &number, &err), &err, "is 0.25; 0.5 to 1");
    // Another type.
    expect_error(kiln_gguf_get_u64(gguf, "f32", 1, 0, 9, &value, &err), &err,
            "has type f32; an integer is needed");
    expect_error(kiln_gguf_get_u64(gguf, "bool", 1, 0, 9, &value, &err), &err, "has type bool");
    expect_error(kiln_gguf_get_u64(gguf, "numbers", 1, 0, 9, &value, &err), &err,
            "key 'numbers' at byte");
    expect_error(kiln_gguf_get_f32(gguf, "u32", 1, 0, 9, &number, &err), &err, "has type u32");
    expect_error(kiln_gguf_get_bool(gguf, "u8", 1, &flag, &err), &err, "a bool is needed");
    expect_error(kiln_gguf_get_str(gguf, "tokens", 1, &text, &err), &err,
            "has type array of string; a string is needed");
    expect_error(kiln_gguf_get_array(gguf, "tokens", 1, KILN_GGUF_F32, &array, &err), &err,
            "an array of f32 is needed");
    expect_error(kiln_gguf_get_array(gguf, "u32", 1, KILN_GGUF_U32, &array, &err), &err,
            "has type u32; an array of u32 is needed");
    assert_int_equal(value, 42);
    assert_true(number == 42.0F);
    assert_int_equal(flag, 42);
    assert_string_equal(text.data, "kept");
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

static void gguf_floats_must_be_finite(void **state) {
    (void)state;
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_f32(&w, "nan", NAN);
    gguf_write_f32(&w, "inf", INFINITY);
    gguf_write_f64(&w, "minus", -(double)INFINITY);
    gguf_write_f64(&w, "big", 1e300);
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    struct kiln_gguf *gguf = parse(bytes, size);
    static const char *const names[] = {"nan", "inf", "minus", "big"};
    for (int i = 0; i < 4; i++) {
        struct kiln_err err = {0};
        float value = 1;
        expect_error(
                kiln_gguf_get_f32(gguf, names[i], 1, -3e38F, 3e38F, &value, &err), &err, names[i]);
        assert_true(value == 1.0F);
    }
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

static void gguf_reads_version_2_and_files_without_tensors(void **state) {
    (void)state;
    struct gguf_write w;
    gguf_write_init(&w);
    w.version = 2;
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    assert_int_equal(size, 24);
    struct kiln_gguf *gguf = parse(bytes, size);
    assert_int_equal(kiln_gguf_version(gguf), 2);
    assert_int_equal(kiln_gguf_n_keys(gguf), 0);
    assert_int_equal(kiln_gguf_n_tensors(gguf), 0);
    assert_null(kiln_gguf_find_key(gguf, "a"));
    assert_null(kiln_gguf_find_tensor(gguf, "a"));
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

static void gguf_refuses_other_headers(void **state) {
    (void)state;
    struct gguf_write w;
    static const struct {
        uint32_t version;
        const char *part;
    } versions[] = {{0, "version 0"}, {1, "version 1"}, {4, "version 4"},
            {UINT32_MAX, "version 4294967295"}, {0x03000000, "big-endian"},
            {0x02000000, "big-endian"}};
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        gguf_write_init(&w);
        w.version = versions[i].version;
        refuse(&w, PARTS(versions[i].part, "byte 4"));
    }
    gguf_write_init(&w);
    memcpy(w.magic, "GG\x1bM", 4);
    refuse(&w, PARTS("no GGUF file", "GG\\x1bM"));
    refuse_bytes((const uint8_t *)"", 0, PARTS("is empty"));
    refuse_bytes((const uint8_t *)"GGU", 3, PARTS("3 bytes"));
    refuse_bytes((const uint8_t *)"PK", 2, PARTS("no GGUF file"));
}

// Every cut of the small model must be refused: its last byte is the last of a tensor.
static void gguf_refuses_every_truncation(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_model(&size);
    for (size_t len = 0; len < size; len++) {
        uint8_t *cut = kiln_alloc(len);
        memcpy(cut, bytes, len);
        struct kiln_gguf *gguf;
        struct kiln_err err = {0};
        if (kiln_gguf_parse(&gguf, cut, len, "m.gguf", &err) != KILN_STATUS_FILE) {
            fail_msg("accepted when cut to %zu of %zu bytes", len, size);
        }
        assert_true(len == 0 || strstr(err.text, "cut short") != NULL);
        kiln_free(cut);
    }
    char needed[100];
    struct kiln_gguf *gguf = parse(bytes, size);
    uint64_t at = kiln_gguf_find_tensor(gguf, "one")->file_offset;
    kiln_gguf_close(gguf);
    snprintf(needed, sizeof(needed), "needs 2 bytes (bytes %llu to %llu), the file has 1 of them",
            (unsigned long long)at, (unsigned long long)at + 2);
    refuse_bytes(bytes, size - 1, PARTS("tensor 'one' at byte", needed));
    kiln_free(bytes);
}

// No single changed byte may crash the parser, whether it is noticed or not.
static void gguf_survives_every_changed_byte(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_model(&size);
    static const uint8_t masks[] = {0x01, 0x80, 0xff};
    int refused = 0;
    for (size_t at = 0; at < size; at++) {
        for (size_t m = 0; m < sizeof(masks); m++) {
            bytes[at] ^= masks[m];
            struct kiln_gguf *gguf;
            struct kiln_err err = {0};
            enum kiln_status status = kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err);
            assert_true(status == KILN_STATUS_OK || status == KILN_STATUS_FILE);
            refused += status != KILN_STATUS_OK;
            kiln_gguf_close(gguf);
            bytes[at] ^= masks[m];
        }
    }
    assert_true(refused > 300);
    kiln_free(bytes);
}

static void gguf_holds_counts_against_the_file(void **state) {
    (void)state;
    refuse_hex("4747554603000000"
               "00000000000000000065CD1D00000000",
            PARTS("500000000 keys", "byte 16", "0 bytes"));
    refuse_hex("4747554603000000"
               "0065CD1D000000000000000000000000",
            PARTS("500000000 tensors", "byte 8"));
    refuse_hex("4747554603000000"
               "00000000000000000100000000000000"
               "FFFFFFFFFFFF0000",
            PARTS("keys"));
    refuse_hex("4747554603000000"
               "00000000000000000100000000000000"
               "FFFFFFFFFFFF00006161616161616161",
            PARTS("key number 0 at byte 24", "its name needs 281474976710655 bytes"));
    refuse_hex("4747554603000000"
               "00000000000000000100000000000000"
               "010000000000000061090000000400000"
               "0FFFFFFFFFFFFFF03",
            PARTS("key 'a' at byte 24", "288230376151711743 values"));
    refuse_hex("4747554603000000"
               "00000000000000000100000000000000"
               "010000000000000061090000000800000"
               "0FFFFFFFFFFFFFFFF",
            PARTS("key 'a' at byte 24", "18446744073709551615 strings"));
    struct gguf_write w;
    for (uint64_t count = UINT64_MAX; count > 1; count = count == UINT64_MAX ? 2 : 0) {
        gguf_write_init(&w);
        gguf_write_u32(&w, "only.one.key.is.here", 1);
        w.n_keys = count;
        refuse(&w, PARTS("key"));
        gguf_write_init(&w);
        gguf_write_tensor(&w, "a", KILN_DTYPE_F32, 1, dims_1, NULL, 4);
        w.n_tensors = count;
        refuse(&w, PARTS("tensor"));
    }
}

static void gguf_refuses_nested_arrays(void **state) {
    (void)state;
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_array(&w, "a", KILN_GGUF_ARRAY, 1, NULL, 0);
    for (int level = 0; level < 200000; level++) {
        kiln_buf_append(&w.keys, "\x09\0\0\0\x01\0\0\0\0\0\0\0", 12);
    }
    refuse(&w, PARTS("key 'a' at byte 24", "array of arrays"));
}

static void gguf_checks_alignment(void **state) {
    (void)state;
    refuse_hex("474755460300000001000000000000000100000000000000"
               "110000000000000067656E6572616C2E616C69676E6D656E740400000000000000"
               "01000000000000006101000000010000000000000000000000"
               "0000000000000000",
            PARTS("key 'general.alignment' at byte 24", "is 0", "power of two from 8 to 65536"));
    static const uint32_t bad[] = {
            0, 1, 2, 3, 4, 7, 24, 48, 65535, 0x20000, 0x40000000, 0x80000000};
    struct gguf_write w;
    char value[32];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gguf_write_init(&w);
        gguf_write_u32(&w, "general.alignment", bad[i]);
        gguf_write_tensor(&w, "a", KILN_DTYPE_F32, 1, dims_1, NULL, 4);
        snprintf(value, sizeof(value), "is %u;", bad[i]);
        refuse(&w, PARTS("general.alignment", value));
    }
    for (int kind = 0; kind < 3; kind++) {
        gguf_write_init(&w);
        if (kind == 0) {
            gguf_write_i32(&w, "general.alignment", 32);
        } else if (kind == 1) {
            gguf_write_u64(&w, "general.alignment", 32);
        } else {
            gguf_write_str(&w, "general.alignment", "32");
        }
        refuse(&w, PARTS("general.alignment", "a u32 is needed"));
    }
    for (uint32_t good = 8; good <= 65536; good *= 2) {
        gguf_write_init(&w);
        w.alignment = good;
        gguf_write_u32(&w, "general.alignment", good);
        gguf_write_tensor(&w, "a", KILN_DTYPE_F32, 1, dims_1, NULL, 4);
        gguf_write_tensor(&w, "b", KILN_DTYPE_F32, 1, dims_1, "abcd", 4);
        size_t size;
        uint8_t *bytes = gguf_write_finish(&w, &size);
        struct kiln_gguf *gguf = parse(bytes, size);
        assert_int_equal(kiln_gguf_alignment(gguf), good);
        assert_memory_equal(kiln_gguf_find_tensor(gguf, "b")->data, "abcd", 4);
        kiln_gguf_close(gguf);
        kiln_free(bytes);
    }
}

static void gguf_checks_keys(void **state) {
    (void)state;
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_value(&w, "", 0, KILN_GGUF_U32, "\1\0\0\0", 4);
    refuse(&w, PARTS("key number 0 at byte 24", "0 bytes; 1 to 65535"));
    static char long_name[65537];
    memset(long_name, 'k', 65536);
    gguf_write_init(&w);
    gguf_write_u32(&w, long_name, 1);
    refuse(&w, PARTS("key number 0 at byte 24", "65536 bytes"));
    static const uint32_t types[] = {13, 14, 99, UINT32_MAX};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        gguf_write_init(&w);
        gguf_write_u32(&w, "first", 1);
        gguf_write_value(&w, "b\x1b[2J", 5, types[i], "\0\0\0\0\0\0\0", 8);
        refuse(&w, PARTS("key 'b\\x1b[2J' at byte 45", "is unknown"));
        gguf_write_init(&w);
        gguf_write_array(&w, "c", types[i], 1, "\0\0\0\0\0\0\0", 8);
        refuse(&w, PARTS("key 'c' at byte 24", "is unknown"));
    }
    gguf_write_init(&w);
    gguf_write_bool(&w, "flag", 2);
    refuse(&w, PARTS("key 'flag' at byte 24", "is 2; 0 and 1"));
    gguf_write_init(&w);
    gguf_write_array(&w, "flags", KILN_GGUF_BOOL, 3, "\0\1\xff", 3);
    refuse(&w, PARTS("key 'flags' at byte 24", "is 255"));
}

static void gguf_cuts_long_names_in_messages(void **state) {
    (void)state;
    struct gguf_write w;
    gguf_write_init(&w);
    char name[2000];
    memset(name, '\xff', sizeof(name));
    gguf_write_value(&w, name, sizeof(name), 99, "\0", 1);
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    struct kiln_gguf *gguf;
    struct kiln_err err = {0};
    assert_int_equal(kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "key '\\xff\\xff"));
    assert_non_null(strstr(err.text, "...' at byte 24"));
    assert_true(strlen(err.text) < 200);
    kiln_free(bytes);
}

static void gguf_refuses_what_is_there_twice(void **state) {
    (void)state;
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_str(&w, "general.architecture", "llama");
    gguf_write_u32(&w, "x", 1);
    gguf_write_str(&w, "general.architecture", "qwen2");
    refuse(&w, PARTS("key 'general.architecture' is there twice", "at byte 24 and at byte 86"));
    gguf_write_init(&w);
    gguf_write_tensor(&w, "output.weight", KILN_DTYPE_F32, 1, dims_1, NULL, 4);
    gguf_write_tensor(&w, "other.weight", KILN_DTYPE_F32, 1, dims_1, NULL, 4);
    gguf_write_tensor(&w, "output.weight", KILN_DTYPE_F16, 1, dims_32, NULL, 64);
    refuse(&w, PARTS("tensor 'output.weight' is there twice", "at byte 24 and at byte 113"));
}

static void gguf_refuses_overlap(void **state) {
    (void)state;
    static const uint64_t dims_9[] = {9};
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_tensor(&w, "first", KILN_DTYPE_F32, 1, dims_32, NULL, 128);
    gguf_write_tensor_at(&w, "same", 4, KILN_DTYPE_F16, 1, dims_1, 0);
    refuse(&w, PARTS("'first'", "'same'", "overlap"));
    gguf_write_init(&w);
    gguf_write_tensor_at(&w, "late", 4, KILN_DTYPE_F32, 1, dims_1, 32);
    gguf_write_tensor(&w, "long", KILN_DTYPE_F32, 1, dims_9, NULL, 36);
    refuse(&w, PARTS("'long'", "'late'", "overlap"));
    // One byte less and they only touch.
    gguf_write_init(&w);
    gguf_write_tensor_at(&w, "late", 4, KILN_DTYPE_F32, 1, dims_1, 32);
    gguf_write_tensor(&w, "long", KILN_DTYPE_I8, 1, dims_32, NULL, 36);
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    kiln_gguf_close(parse(bytes, size));
    kiln_free(bytes);
}

static void gguf_checks_shapes(void **state) {
    (void)state;
    refuse_hex("4747554603000000010000000000000000000000000000000100000000000000"
               "61030000000100000000000000000000000000000001000000000000000000000"
               "00000000000000000",
            PARTS("tensor 'a' at byte 24", "dimension 1 is 0"));
    static const uint64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const uint32_t counts[] = {0, 5, 9, UINT32_MAX};
    struct gguf_write w;
    for (size_t i = 0; i < 4; i++) {
        gguf_write_init(&w);
        gguf_write_tensor_at(&w, "a", 1, KILN_DTYPE_F32, counts[i], ones, 0);
        kiln_buf_append(&w.tensors, "\0\0\0\0\0\0\0", 8);
        refuse(&w, PARTS("tensor 'a' at byte 24", "dimensions; 1 to 4"));
    }
    static const uint64_t huge[][2] = {{UINT64_MAX, 1}, {1, UINT64_MAX}, {1ULL << 32, 1ULL << 32},
            {1ULL << 62, 4}, {1ULL << 62, 1}, {INT64_MAX, 2}};
    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        gguf_write_init(&w);
        gguf_write_tensor_at(&w, "huge", 4, KILN_DTYPE_F64, 2, huge[i], 0);
        refuse(&w, PARTS("tensor 'huge' at byte 24"));
    }
    static const uint64_t dims_33[] = {33};
    gguf_write_init(&w);
    gguf_write_tensor_at(&w, "b", 1, KILN_DTYPE_Q4_0, 1, dims_33, 0);
    refuse(&w, PARTS("tensor 'b' at byte 24", "33", "32 that a block of q4_0"));
}

static void gguf_checks_tensor_layout(void **state) {
    (void)state;
    struct gguf_write w;
    static const uint32_t dtypes[] = {4, 5, 16, 64, 65, UINT32_MAX};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        gguf_write_init(&w);
        gguf_write_tensor_at(&w, "a", 1, dtypes[i], 1, dims_32, 0);
        refuse(&w, PARTS("tensor 'a' at byte 24", "q4_K (12)", "f32 (0)", "bf16 (30)"));
    }
    static const uint64_t offsets[] = {1, 16, 31, 33, UINT64_MAX};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        gguf_write_init(&w);
        gguf_write_tensor_at(&w, "a", 1, KILN_DTYPE_F32, 1, dims_1, offsets[i]);
        refuse(&w, PARTS("tensor 'a' at byte 24", "no multiple of the file's alignment 32"));
    }
    gguf_write_init(&w);
    gguf_write_tensor_at(&w, "a", 1, KILN_DTYPE_F32, 1, dims_1, 1ULL << 40);
    refuse(&w, PARTS("tensor 'a' at byte 24", "needs 4 bytes", "has 0 of them"));
    gguf_write_init(&w);
    gguf_write_tensor_at(&w, "a", 1, KILN_DTYPE_F32, 1, dims_1, UINT64_MAX - 31);
    refuse(&w, PARTS("tensor 'a' at byte 24", "2^64"));
}

static void gguf_checks_tensor_names(void **state) {
    (void)state;
    static char long_name[257];
    memset(long_name, 't', 256);
    static const struct {
        const char *name;
        size_t len;
        const char *part;
    } bad[] = {
            {"", 0, "0 bytes; 1 to 255"},
            {long_name, 256, "256 bytes; 1 to 255"},
            {"a\x80", 2, "not UTF-8 at position 1"},
            {"\xc3", 1, "not UTF-8 at position 0"},
            {"a\nb", 3, "control character at position 1"},
            {"a\0b", 3, "control character at position 1"},
            {"\x7f", 1, "control character at position 0"},
            {"ab\xc2\x9b", 4, "control character at position 2"},
    };
    struct gguf_write w;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gguf_write_init(&w);
        gguf_write_tensor_at(&w, bad[i].name, bad[i].len, KILN_DTYPE_F32, 1, dims_1, 0);
        refuse(&w, PARTS("tensor ", "at byte 24", bad[i].part));
    }
    gguf_write_init(&w);
    long_name[255] = '\0';
    gguf_write_tensor(&w, long_name, KILN_DTYPE_F32, 1, dims_1, NULL, 4);
    gguf_write_tensor(&w, "caf\xc3\xa9", KILN_DTYPE_F32, 1, dims_1, NULL, 4);
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    struct kiln_gguf *gguf = parse(bytes, size);
    assert_non_null(kiln_gguf_find_tensor(gguf, long_name));
    assert_non_null(kiln_gguf_find_tensor(gguf, "caf\xc3\xa9"));
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

static void gguf_opens_a_file(void **state) {
    (void)state;
    char path[] = "/tmp/kiln-test-gguf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    size_t size;
    uint8_t *bytes = small_model(&size);
    struct kiln_err err = {0};
    struct kiln_gguf *gguf;
    assert_int_equal(kiln_gguf_open(&gguf, path, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "is empty"));
    assert_int_equal(kiln_file_write(path, bytes, size, &err), KILN_STATUS_OK);
    assert_int_equal(kiln_gguf_open(&gguf, path, &err), KILN_STATUS_OK);
    assert_string_equal(kiln_gguf_path(gguf), path);
    assert_memory_equal(kiln_gguf_find_tensor(gguf, "one")->data, "\x00\x3c", 2);
    kiln_gguf_close(gguf);
    kiln_free(bytes);
    unlink(path);
    assert_int_equal(kiln_gguf_open(&gguf, path, &err), KILN_STATUS_FILE);
    assert_null(gguf);
    assert_non_null(strstr(err.text, "No such file"));
}

// Leaks show under a sanitizer.
static void gguf_survives_each_failed_allocation(void **state) {
    (void)state;
    size_t size;
    uint8_t *bytes = small_model(&size);
    struct kiln_gguf *gguf;
    struct kiln_err err = {0};
    kiln_mem_fail_at(0, 0);
    assert_int_equal(kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err), KILN_STATUS_OK);
    uint64_t count = kiln_mem_count();
    kiln_gguf_close(gguf);
    assert_true(count >= 5);
    for (uint64_t n = 1; n <= 2 * count; n++) {
        int sticky = n > count;
        kiln_mem_fail_at(sticky ? n - count : n, sticky);
        enum kiln_status status = kiln_gguf_parse(&gguf, bytes, size, "m.gguf", &err);
        kiln_mem_fail_at(0, 0);
        assert_int_equal(status, KILN_STATUS_NOMEM);
        assert_null(gguf);
        assert_non_null(strstr(err.text, "out of memory"));
    }
    kiln_free(bytes);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); // others may have the machine
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t bytes_in_use(void) {
    struct mallinfo2 info = mallinfo2(); // all 0 under a sanitizer: the bound then holds by itself
    return info.uordblks + info.hblkhd;
}

static void gguf_takes_many_names_in_little_time_and_memory(void **state) {
    (void)state;
    enum {
        KEYS = 200000,
        TENSORS = 50000
    };
    struct gguf_write w;
    gguf_write_init(&w);
    char name[32];
    for (unsigned i = 0; i < KEYS; i++) {
        int len = snprintf(name, sizeof(name), "%x", i * 7919 % KEYS);
        gguf_write_value(&w, name, (size_t)len, KILN_GGUF_U8, "\1", 1);
    }
    for (unsigned i = 0; i < TENSORS; i++) {
        int len = snprintf(name, sizeof(name), "%x", i);
        gguf_write_tensor_at(
                &w, name, (size_t)len, KILN_DTYPE_I8, 1, dims_1, 32 * (uint64_t)(TENSORS - i));
    }
    gguf_write_tensor_at(&w, "z", 1, KILN_DTYPE_I8, 1, dims_1, 0);
    for (unsigned i = 0; i <= TENSORS; i++) {
        kiln_buf_append(&w.data, "0123456789abcdef0123456789abcdef", 32);
    }
    size_t size;
    uint8_t *bytes = gguf_write_finish(&w, &size);
    size_t before = bytes_in_use();
    double start = seconds();
    struct kiln_gguf *gguf = parse(bytes, size);
    double took = seconds() - start;
    size_t used = bytes_in_use() - before;
    assert_true(took < 1.5);
    assert_true(used <= 16 * size);
    start = seconds();
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(name, sizeof(name), "%x", i);
        assert_non_null(kiln_gguf_find_key(gguf, name));
    }
    assert_true(seconds() - start < 1.5);
    kiln_gguf_close(gguf);
    kiln_free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(gguf_shows_tensors_as_written),
            cmocka_unit_test(gguf_reads_values_of_each_type),
            cmocka_unit_test(gguf_describes_integers_exactly),
            cmocka_unit_test(gguf_walks_arrays),
            cmocka_unit_test(gguf_typed_reads_name_what_is_wrong),
            cmocka_unit_test(gguf_floats_must_be_finite),
            cmocka_unit_test(gguf_reads_version_2_and_files_without_tensors),
            cmocka_unit_test(gguf_refuses_other_headers),
            cmocka_unit_test(gguf_refuses_every_truncation),
            cmocka_unit_test(gguf_survives_every_changed_byte),
            cmocka_unit_test(gguf_holds_counts_against_the_file),
            cmocka_unit_test(gguf_refuses_nested_arrays),
            cmocka_unit_test(gguf_checks_alignment),
            cmocka_unit_test(gguf_checks_keys),
            cmocka_unit_test(gguf_cuts_long_names_in_messages),
            cmocka_unit_test(gguf_refuses_what_is_there_twice),
            cmocka_unit_test(gguf_refuses_overlap),
            cmocka_unit_test(gguf_checks_shapes),
            cmocka_unit_test(gguf_checks_tensor_layout),
            cmocka_unit_test(gguf_checks_tensor_names),
            cmocka_unit_test(gguf_opens_a_file),
            cmocka_unit_test(gguf_survives_each_failed_allocation),
            cmocka_unit_test(gguf_takes_many_names_in_little_time_and_memory),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
