// fuzz_ini: any bytes as a configuration: read, checked against made-up plugins, bound, shown, and
// read again from what was shown.
//
// The input is INI text; behind a byte 0x1e each further piece is an assignment as --set takes it.
#include "fuzz.h"

#include "base/buf.h"
#include "base/mem.h"
#include "config/config.h"
#include "config_fakes.h"

#include <string.h>

enum {
    SEPARATOR = 0x1e
};

static enum kiln_status add_layers(
        struct kiln_config *config, const char *text, size_t size, struct kiln_err *err) {
    const char *end = memchr(text, SEPARATOR, size);
    size_t len = end ? (size_t)(end - text) : size;
    KILN_TRY(kiln_config_add_text(config, "x.ini", "/dir", text, len, err));
    while (end) {
        const char *start = end + 1;
        size_t rest = size - (size_t)(start - text);
        end = memchr(start, SEPARATOR, rest);
        char *assignment = kiln_strndup(start, end ? (size_t)(end - start) : rest);
        FUZZ_CHECK(assignment);
        enum kiln_status status = kiln_config_add_set(config, assignment, err);
        kiln_free(assignment);
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}

// NULL when the text is refused.
static struct kiln_config *read_config(const char *text, size_t size) {
    struct kiln_config *config = NULL;
    struct kiln_err err = {0};
    FUZZ_CHECK(kiln_config_create(&config, &err) == KILN_STATUS_OK);
    enum kiln_status status = add_layers(config, text, size, &err);
    if (status == KILN_STATUS_OK) {
        status = kiln_config_check(config, &fake_catalog, &err);
    }
    FUZZ_CHECK(status == KILN_STATUS_OK || status == KILN_STATUS_CONFIG);
    FUZZ_CHECK(status == KILN_STATUS_OK || strstr(err.text, "x.ini:") == err.text ||
               strstr(err.text, "--set") == err.text);
    if (status != KILN_STATUS_OK) {
        kiln_config_destroy(config);
        return NULL;
    }
    return config;
}

static void bind_some(struct kiln_config *config) {
    static const char *const slots[] = {"norm", "attention.prefill", "attention.decode",
            "matmul.q4_K.prefill", "matmul.f16.decode", "quantize"};
    const struct kiln_device *const devices[] = {&fake_dev_cpu, &fake_dev_h200, &fake_dev_sim};
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]) * 3; i++) {
        struct kiln_bind_query query = {.slot = slots[i / 3],
                .m = 64,
                .n = 4096,
                .k = 2048,
                .hd = 128,
                .role = "ffn_down",
                .layer = 2,
                .device = devices[i % 3]};
        for (unsigned skip = 0; skip < 8; skip++) {
            const struct kiln_binding *binding = NULL;
            struct kiln_err err = {0};
            enum kiln_status status = kiln_config_bind(config, &query, skip, &binding, &err);
            FUZZ_CHECK(status == KILN_STATUS_OK || (status == KILN_STATUS_CONFIG && err.text[0]));
            if (status != KILN_STATUS_OK || !binding) {
                break;
            }
        }
    }
}

static struct kiln_buf show(struct kiln_config *config) {
    struct kiln_buf text = {0}, json = {0};
    struct kiln_err err = {0};
    kiln_config_show(config, &text);
    FUZZ_CHECK(!text.failed && text.data);
    FUZZ_CHECK(kiln_config_show_json(config, &json, &err) == KILN_STATUS_OK);
    kiln_buf_finish(&json);
    return text;
}

// The text without its comments, which say where values came from.
static struct kiln_buf without_comments(const struct kiln_buf *text) {
    struct kiln_buf plain = {0};
    for (const char *at = text->data; *at;) {
        size_t len = strcspn(at, "\n");
        size_t keep = 0;
        while (keep < len && !(at[keep] == ';' && (keep == 0 || at[keep - 1] == ' '))) {
            keep++;
        }
        while (keep > 0 && at[keep - 1] == ' ') {
            keep--;
        }
        kiln_buf_append(&plain, at, keep);
        kiln_buf_puts(&plain, "\n");
        at += len + (at[len] == '\n');
    }
    FUZZ_CHECK(!plain.failed);
    return plain;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_watch_memory();
    struct kiln_config *config = read_config((const char *)data, size);
    if (config) {
        bind_some(config);
        struct kiln_buf shown = show(config);
        struct kiln_config *again = read_config(shown.data, shown.len);
        FUZZ_CHECK(again); // what is shown reads back
        struct kiln_buf shown_again = show(again);
        struct kiln_buf a = without_comments(&shown), b = without_comments(&shown_again);
        FUZZ_CHECK(a.len == b.len && memcmp(a.data, b.data, a.len) == 0); // as the same
        kiln_buf_finish(&a);
        kiln_buf_finish(&b);
        kiln_buf_finish(&shown);
        kiln_buf_finish(&shown_again);
        kiln_config_destroy(again);
        kiln_config_destroy(config);
    }
    fuzz_check_memory(size);
    return 0;
}
