// ini: what the line reader lets through and what it refuses, with the line number.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "config/ini_lines.h"

// Writes "LINE:[SECTION]" or "LINE:SECTION.KEY=VALUE" and a line feed.
static enum kiln_status note(void *arg, const char *section, const char *key, const char *value,
        unsigned line, struct kiln_err *err) {
    struct kiln_buf *seen = arg;
    if (key && strcmp(value, "refuse") == 0) {
        return kiln_err_set(err, KILN_STATUS_CHECK, "refused");
    }
    if (key) {
        kiln_buf_printf(seen, "%u:%s.%s=%s\n", line, section, key, value);
    } else {
        kiln_buf_printf(seen, "%u:[%s]\n", line, section);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_text(
        const char *text, size_t len, struct kiln_buf *seen, struct kiln_err *err) {
    kiln_buf_clear(seen);
    return kiln_ini_read("x.ini", text, len, note, seen, err);
}

static void expect_ok(const char *text, const char *want) {
    struct kiln_buf seen = {0};
    struct kiln_err err = {0};
    if (read_text(text, strlen(text), &seen, &err) != KILN_STATUS_OK) {
        fail_msg("refused: %s", err.text);
    }
    assert_string_equal(seen.data ? seen.data : "", want);
    kiln_buf_finish(&seen);
}

static void expect_refused_bytes(const char *text, size_t len, const char *says) {
    struct kiln_buf seen = {0};
    struct kiln_err err = {0};
    assert_int_equal(read_text(text, len, &seen, &err), KILN_STATUS_CONFIG);
    assert_int_equal(err.status, KILN_STATUS_CONFIG);
    if (strncmp(err.text, says, strlen(says)) != 0) {
        fail_msg("want: %s\ngot:  %s", says, err.text);
    }
    kiln_buf_finish(&seen);
}

static void expect_refused(const char *text, const char *says) {
    expect_refused_bytes(text, strlen(text), says);
}

static void ini_reads_sections_pairs_and_comments(void **state) {
    (void)state;
    expect_ok("", "");
    expect_ok("\n\n  \t\n; c\n# c\n   ; indented comment\n\t# too\n", "");
    expect_ok("[a]\nX=1\n\n[b/c]\n; c\nx = y z\n", "1:[a]\n2:a.X=1\n4:[b/c]\n6:b/c.x=y z\n");
    expect_ok("[matmul.*.prefill] ; why\nwhen = m<=64, role=ffn_down ; because\n",
            "1:[matmul.*.prefill]\n2:matmul.*.prefill.when=m<=64, role=ffn_down\n");
    // As inih has it: ';' starts a comment behind a blank only, '#' never, ':' is a value's own.
    expect_ok("[a]\nx=a;b ;c;d\ny = a # b\nz = c:\\d = e\n",
            "1:[a]\n2:a.x=a;b\n3:a.y=a # b\n4:a.z=c:\\d = e\n");
    expect_ok("[a]\nx \t=\t 1 \t", "1:[a]\n2:a.x=1\n");
    expect_ok("[a]\nx=\xc3\xa4\n; \xff\xfe\x01 is nobody's business\n", "1:[a]\n2:a.x=\xc3\xa4\n");
    expect_ok("[a]\n[b]\n", "1:[a]\n2:[b]\n");
}

static void ini_takes_cr_lf(void **state) {
    (void)state;
    expect_ok("[a]\r\nFA_TQ=64\r\n\r\n; c\r\nB = 2 ; c\r\n", "1:[a]\n2:a.FA_TQ=64\n5:a.B=2\n");
    expect_ok("[a]\r\nx=1\r", "1:[a]\n2:a.x=1\n");
    expect_refused("[a]\rx=1\r", "x.ini:1: a carriage return inside the line");
    expect_refused("; old Mac\r[a]\rx=1\n", "x.ini:1: a carriage return inside the line");
}

static void ini_refuses_what_inih_would_misread(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
            {"[fa_prefill]\nFA_TQ=64\n FA_TKV=16\n",
                    "x.ini:3: 'FA_TKV=16' is indented, which would make it part of the line above"},
            {"[fa_prefill]\nFA_TQ=64\n\tFA_TKV=16\n", "x.ini:3: 'FA_TKV=16' is indented"},
            {"[a]\nx=1\n\n [b]\n", "x.ini:4: '[b]' is indented"},
            {" x=1\n", "x.ini:1: 'x=1' is indented"},
            {"\xEF\xBB\xBF[a]\n", "x.ini:1: the file starts with a byte order mark; save it"},
            {"[a\nx=1\n", "x.ini:1: the section header '[a' has no ']'"},
            {"[a ; b]\n", "x.ini:1: the section header '[a' has no ']'"},
            {"[a] b\n", "x.ini:1: ' b' behind the section header; only a comment"},
            {"[a]]\n", "x.ini:1: ']' behind the section header"},
            {"[a];c\n", "x.ini:1: ';c' behind the section header"},
            {"[]\n", "x.ini:1: the name of the section is empty"},
            {"[ a ]\n", "x.ini:1: section ' a ': only letters, digits and _ . * / - may stand"},
            {"[a[b]\n", "x.ini:1: section 'a[b': only letters"},
            {"[a]\nFA_TQ\n", "x.ini:2: 'FA_TQ' has no '='; a line is [section], KEY = VALUE"},
            {"[a]\nFA_TQ: 64\n", "x.ini:2: 'FA_TQ: 64': ':' does not separate"},
            {"[a]\nFA_TQ: 64 = 3\n", "x.ini:2: 'FA_TQ: 64 = 3': ':' does not separate"},
            {"[a]\n= 3\n", "x.ini:2: the name of the key is empty"},
            {"[a]\nFA TQ = 3\n", "x.ini:2: key 'FA TQ': only letters, digits and _ may stand"},
            {"[a]\nFA-TQ = 3\n", "x.ini:2: key 'FA-TQ': only letters, digits and _"},
            {"[a]\nx =\n", "x.ini:2: [a] x: there is no value; leave the key out"},
            {"[a]\nx =;y\n", "x.ini:2: [a] x: ';' in front of a value or after a blank starts"},
            {"[a]\nx = ; y\n", "x.ini:2: [a] x: there is no value"},
            {"[a]\nx ; = 3\n", "x.ini:2: 'x' has no '='"},
            {"x=1\n[a]\n", "x.ini:1: x stands before any section"},
            {"[a]\nx=1\v\n", "x.ini:2: [a] x: a control character (0x0b) in the value"},
            {"[a]\n\fx=1\n", "x.ini:2: key '?x': only letters"},
            {"[a]\nx=\xff\n", "x.ini:2: [a] x: the value is not UTF-8 (byte 0xff)"},
            {"[a]\nx=\xc3\n", "x.ini:2: [a] x: the value is not UTF-8 (byte 0xc3)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        expect_refused(rows[i].text, rows[i].says);
    }
    expect_refused_bytes("[a]\nx=1\0\n", 9, "x.ini:2: a NUL byte in the line");
    expect_refused_bytes("[a]\n; c\0\n", 9, "x.ini:2: a NUL byte in the line");
    expect_refused_bytes("\xff\xfe[\0a\0", 6, "x.ini:1: a NUL byte in the line");
}

// [a] and "x = " with a value so long that the line has `len` bytes. `blanks`: every 7th is one.
static void value_line(struct kiln_buf *text, size_t len, int blanks) {
    kiln_buf_clear(text);
    kiln_buf_puts(text, "[a]\nx = ");
    for (size_t i = 4; i < len; i++) {
        char c = (char)('a' + i % 26);
        c = blanks && i % 7 == 3 && i + 1 < len && i > 4 ? ' ' : c;
        kiln_buf_append(text, &c, 1);
    }
    kiln_buf_puts(text, "\n[b]\ny=2\n");
}

static void ini_long_values_arrive_whole(void **state) {
    (void)state;
    struct kiln_buf text = {0}, seen = {0}, want = {0};
    for (size_t len = 5; len <= KILN_INI_LINE_MAX + 3; len++) {
        struct kiln_err err = {0};
        value_line(&text, len, len % 2 == 0);
        enum kiln_status status = read_text(text.data, text.len, &seen, &err);
        if (len > KILN_INI_LINE_MAX) {
            char says[80];
            (void)snprintf(says, sizeof(says),
                    "x.ini:2: a line of %zu bytes, at most 1023 are allowed", len);
            assert_int_equal(status, KILN_STATUS_CONFIG);
            assert_string_equal(err.text, says);
            continue;
        }
        kiln_buf_clear(&want);
        kiln_buf_puts(&want, "1:[a]\n2:a.x=");
        kiln_buf_append(&want, text.data + 8, len - 4);
        kiln_buf_puts(&want, "\n3:[b]\n4:b.y=2\n");
        assert_int_equal(status, KILN_STATUS_OK);
        assert_string_equal(seen.data, want.data);
    }
    kiln_buf_finish(&text);
    kiln_buf_finish(&seen);
    kiln_buf_finish(&want);
}

static void ini_pieces_never_start_like_comments(void **state) {
    (void)state;
    struct kiln_buf text = {0}, seen = {0};
    struct kiln_err err = {0};
    // Only blanks in reach of the cut: there is no place to cut, and the line is refused whole.
    kiln_buf_puts(&text, "[a]\nx=1");
    for (int i = 0; i < 400; i++) {
        kiln_buf_puts(&text, " ");
    }
    kiln_buf_puts(&text, "2\n");
    enum kiln_status status = read_text(text.data, text.len, &seen, &err);
    assert_true(status == KILN_STATUS_OK || strstr(err.text, "that inih was built for"));
    // Nothing but '#' and ';' behind each other: a piece that starts with one would be a comment.
    kiln_buf_clear(&text);
    kiln_buf_puts(&text, "[a]\nx=1");
    for (int i = 0; i < 400; i++) {
        kiln_buf_puts(&text, i % 50 == 25 ? "a" : "#;");
    }
    status = read_text(text.data, text.len, &seen, &err);
    assert_int_equal(status, KILN_STATUS_OK);
    assert_int_equal(strlen(seen.data), 6 + 6 + 1 + 392 * 2 + 8 + 1);
    kiln_buf_finish(&text);
    kiln_buf_finish(&seen);
}

static void ini_comments_have_no_effect_whatever_their_length(void **state) {
    (void)state;
    struct kiln_buf text = {0}, seen = {0};
    for (size_t n = 180; n <= 1013; n++) {
        struct kiln_err err = {0};
        kiln_buf_clear(&text);
        kiln_buf_puts(&text, "[a]\n;");
        for (size_t i = 0; i < n; i++) {
            kiln_buf_puts(&text, "x");
        }
        kiln_buf_puts(&text, "FA_TKV=16\ny=1\n");
        assert_int_equal(read_text(text.data, text.len, &seen, &err), KILN_STATUS_OK);
        assert_string_equal(seen.data, "1:[a]\n3:a.y=1\n");
    }
    kiln_buf_finish(&text);
    kiln_buf_finish(&seen);
}

static void ini_names_have_a_limit(void **state) {
    (void)state;
    char text[256], n49[50], n50[51];
    memset(n49, 'a', 49);
    memset(n50, 'a', 50);
    n49[49] = n50[50] = '\0';
    char want[256];
    (void)snprintf(text, sizeof(text), "[%s]\n%s=1\n", n49, n49);
    (void)snprintf(want, sizeof(want), "1:[%s]\n2:%s.%s=1\n", n49, n49, n49);
    expect_ok(text, want);
    (void)snprintf(text, sizeof(text), "[%s]\n", n50);
    expect_refused(text,
            "x.ini:1: section 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...': a name of "
            "50 bytes, at most 49 are allowed");
    (void)snprintf(text, sizeof(text), "[a]\n%s=1\n", n50);
    expect_refused(
            text, "x.ini:2: key 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...': a name of 50");
}

static void ini_the_callers_refusal_ends_the_reading(void **state) {
    (void)state;
    struct kiln_buf seen = {0};
    struct kiln_err err = {0};
    static const char text[] = "[a]\nx=refuse\ny=1\n";
    assert_int_equal(read_text(text, strlen(text), &seen, &err), KILN_STATUS_CHECK);
    assert_string_equal(err.text, "refused");
    assert_string_equal(seen.data, "1:[a]\n");
    kiln_buf_finish(&seen);
}

// Whatever the bytes: no crash, an error with its line, or pairs that inih confirmed.
static void ini_random_text_is_read_right_or_refused(void **state) {
    (void)state;
    static const char *const tokens[] = {"[a]\n", "[b/c]\n", "x=1\n", "KEY = v w\n", "\n", "\r\n",
            "; c\n", "# c\n", "x", "=", " ", "\t", ";", "[", "]", ":", "\r", "\x80", "\xc3\xa4",
            "\x01", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bb "};
    enum {
        N_TOKENS = sizeof(tokens) / sizeof(tokens[0])
    };
    struct kiln_buf text = {0}, seen = {0};
    uint32_t seed = 12345;
    unsigned accepted = 0;
    for (int round = 0; round < 60000; round++) {
        kiln_buf_clear(&text);
        for (int i = 0; i < 1 + round % 12; i++) {
            seed = seed * 1664525U + 1013904223U;
            // Half of the tokens are whole lines, so that some texts are right.
            kiln_buf_puts(&text, tokens[(seed >> 16) % (seed >> 31 ? N_TOKENS : 8)]);
        }
        struct kiln_err err = {0};
        if (read_text(text.data, text.len, &seen, &err) != KILN_STATUS_OK) {
            assert_memory_equal(err.text, "x.ini:", 6);
            continue;
        }
        accepted += seen.len > 6;
        assert_false(memchr(seen.data ? seen.data : "", '\r', seen.len));
    }
    assert_true(accepted > 1000);
    kiln_buf_finish(&text);
    kiln_buf_finish(&seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
            cmocka_unit_test(ini_reads_sections_pairs_and_comments),
            cmocka_unit_test(ini_takes_cr_lf),
            cmocka_unit_test(ini_refuses_what_inih_would_misread),
            cmocka_unit_test(ini_long_values_arrive_whole),
            cmocka_unit_test(ini_pieces_never_start_like_comments),
            cmocka_unit_test(ini_comments_have_no_effect_whatever_their_length),
            cmocka_unit_test(ini_names_have_a_limit),
            cmocka_unit_test(ini_the_callers_refusal_ends_the_reading),
            cmocka_unit_test(ini_random_text_is_read_right_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
