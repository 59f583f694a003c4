// fuzz_gguf: any bytes as a GGUF file: parsed, read by every getter, described, understood as a
// model.
#include "fuzz.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/gguf.h"
#include "model/gguf_describe.h"
#include "model/model.h"

#include <jansson.h>
#include <string.h>

static volatile uint64_t sink; // reads must not be optimized away

// Every getter on every key, as the right type and as a wrong one.
static void read_key(const struct kiln_gguf *gguf, const struct kiln_gguf_key *key) {
    char *name = kiln_strndup(key->name.data, key->name.len);
    FUZZ_CHECK(name);
    struct kiln_err err = {0};
    uint64_t u = 0;
    float f = 0;
    int b = 0;
    struct kiln_str s = {0};
    const struct kiln_gguf_key *array = NULL;
    enum kiln_status got[5];
    got[0] = kiln_gguf_get_u64(gguf, name, KILN_GGUF_REQUIRED, 0, UINT64_MAX, &u, &err);
    got[1] = kiln_gguf_get_f32(gguf, name, KILN_GGUF_REQUIRED, -1e30f, 1e30f, &f, &err);
    got[2] = kiln_gguf_get_bool(gguf, name, KILN_GGUF_REQUIRED, &b, &err);
    got[3] = kiln_gguf_get_str(gguf, name, KILN_GGUF_REQUIRED, &s, &err);
    got[4] = kiln_gguf_get_array(gguf, name, KILN_GGUF_REQUIRED, key->elem_type, &array, &err);
    int good = 0;
    for (int i = 0; i < 5; i++) {
        FUZZ_CHECK(got[i] == KILN_STATUS_OK || got[i] == KILN_STATUS_FILE);
        good += got[i] == KILN_STATUS_OK;
    }
    FUZZ_CHECK(good <= 1);
    for (size_t i = 0; i < s.len; i++) {
        sink += (unsigned char)s.data[i];
    }
    struct kiln_gguf_cursor cursor = {0};
    uint64_t strings = 0;
    while (array && key->elem_type == KILN_GGUF_STRING && kiln_gguf_next_str(array, &cursor, &s)) {
        sink += s.len ? (unsigned char)s.data[s.len - 1] : 0;
        strings++;
    }
    FUZZ_CHECK(!array || key->elem_type != KILN_GGUF_STRING || strings == key->count);
    if (array && key->elem_type != KILN_GGUF_STRING && key->count > 0) {
        sink += kiln_gguf_array_number(array, key->count - 1) > 0;
    }
    kiln_free(name);
}

static void read_all(const struct kiln_gguf *gguf, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < kiln_gguf_n_keys(gguf); i++) {
        const struct kiln_gguf_key *key = kiln_gguf_key_at(gguf, i);
        FUZZ_CHECK(key->value >= data && key->value_bytes <= size);
        read_key(gguf, key);
    }
    for (size_t i = 0; i < kiln_gguf_n_tensors(gguf); i++) {
        const struct kiln_gguf_tensor *tensor = kiln_gguf_tensor_at(gguf, i);
        FUZZ_CHECK(kiln_gguf_find_tensor(gguf, tensor->name) == tensor);
        FUZZ_CHECK(tensor->bytes > 0 && tensor->data == data + tensor->file_offset);
        sink += tensor->data[0] + tensor->data[tensor->bytes - 1];
    }
    struct kiln_buf text = {0};
    kiln_gguf_describe(gguf, 1, &text);
    FUZZ_CHECK(!text.failed && strlen(text.data) == text.len);
    kiln_buf_finish(&text);
    json_t *json = kiln_gguf_describe_json(gguf);
    FUZZ_CHECK(json);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kiln_gguf *gguf = NULL;
    struct kiln_err err = {0};
    kiln_log_set_level(KILN_LOG_ERROR);
    fuzz_watch_memory();
    enum kiln_status status = kiln_gguf_parse(&gguf, data, size, "fuzz.gguf", &err);
    FUZZ_CHECK(status == KILN_STATUS_OK || (status == KILN_STATUS_FILE && !gguf));
    if (status == KILN_STATUS_OK) {
        read_all(gguf, data, size);
        struct kiln_model *model = NULL;
        status = kiln_model_from_gguf(&model, gguf, &err);
        FUZZ_CHECK(status == KILN_STATUS_OK || status == KILN_STATUS_FILE);
        if (status == KILN_STATUS_OK) {
            sink += kiln_model_weight_bytes(model);
            kiln_model_close(model);
        }
    }
    // What is refused is named, or by its place; bytes from the file do not reach a terminal raw.
    FUZZ_CHECK(status == KILN_STATUS_OK || strncmp(err.text, "fuzz.gguf: ", 11) == 0);
    FUZZ_CHECK(status == KILN_STATUS_OK || strstr(err.text, "key") || strstr(err.text, "tensor") ||
               strstr(err.text, "byte"));
    for (const char *c = status == KILN_STATUS_OK ? "" : err.text; *c; c++) {
        FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
    }
    fuzz_check_memory(size);
    return 0;
}
