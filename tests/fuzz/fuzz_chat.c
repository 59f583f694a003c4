// fuzz_chat: any bytes as a chat template, and as what people say in a chat.
//
// The first byte of the input: bit 0 the vocabulary's kind, bit 1 whether it lists the formats'
// tokens as control tokens or as user-defined ones. Then, separated by bytes 0x1e: the template,
// and turns, whose first byte is the role (modulo 3).
#include "fuzz.h"

#include "base/mem.h"
#include "model/chat.h"
#include "vocab.h"

#include <string.h>

enum {
    SEPARATOR = 0x1e
};

struct input {
    const char *at, *end; // at NULL: nothing left
};

static struct kiln_str next_field(struct input *in) {
    struct kiln_str field = {.data = in->at, .len = (size_t)(in->end - in->at)};
    const char *stop = field.len ? memchr(in->at, SEPARATOR, field.len) : NULL;
    if (stop) {
        field.len = (size_t)(stop - in->at);
    }
    in->at = stop ? stop + 1 : NULL;
    return field;
}

// Two kinds of vocabulary, with both types of markers. Never closed: they serve all inputs.
static struct kiln_tokenizer *tokenizers[4];

static struct kiln_gguf *parse(struct gguf_write *w, uint8_t **bytes) {
    size_t size;
    *bytes = gguf_write_finish(w, &size);
    struct kiln_gguf *gguf = NULL;
    struct kiln_err err = {0};
    FUZZ_CHECK(kiln_gguf_parse(&gguf, *bytes, size, "fuzz.gguf", &err) == KILN_STATUS_OK);
    return gguf;
}

static void open_tokenizers(void) {
    for (unsigned i = 0; i < 4; i++) {
        struct gguf_write w;
        gguf_write_init(&w);
        enum fuzz_marker_type markers = i & 2 ? FUZZ_MARKERS_USER : FUZZ_MARKERS_CONTROL;
        if (i & 1) {
            fuzz_vocab_spm(&w, markers);
        } else {
            fuzz_vocab_bpe(&w, "qwen2", markers);
        }
        uint8_t *bytes;
        struct kiln_gguf *gguf = parse(&w, &bytes);
        struct kiln_err err = {0};
        FUZZ_CHECK(kiln_tokenizer_open(&tokenizers[i], gguf, &err) == KILN_STATUS_OK);
        kiln_gguf_close(gguf);
        kiln_free(bytes);
    }
}

// A file with nothing but the template.
static struct kiln_gguf *open_gguf(struct kiln_str template, uint8_t **bytes) {
    static const char key[] = "tokenizer.chat_template";
    struct kiln_buf value = {0};
    for (int i = 0; i < 8; i++) {
        char byte = (char)((uint64_t) template.len >> (8 * i) & 0xff);
        kiln_buf_append(&value, &byte, 1);
    }
    kiln_buf_append(&value, template.data, template.len);
    struct gguf_write w;
    gguf_write_init(&w);
    gguf_write_value(&w, key, sizeof(key) - 1, KILN_GGUF_STRING, value.data, value.len);
    kiln_buf_finish(&value);
    return parse(&w, bytes);
}

// Ids from `from` on that text must not turn into: control tokens, and those that formats are made
// of.
static size_t count_control(
        const struct kiln_tokenizer *tokenizer, const struct kiln_ids *ids, size_t from) {
    static const char *const markers[] = {"<|im_start|>", "<|im_end|>", "<|start_header_id|>",
            "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>"};
    size_t count = 0;
    for (size_t i = from; i < ids->len; i++) {
        int32_t id = ids->ids[i];
        int found = kiln_tokenizer_is_control(tokenizer, id);
        for (size_t j = 0; !found && j < sizeof(markers) / sizeof(markers[0]); j++) {
            found = kiln_tokenizer_find(tokenizer, markers[j]) == id;
        }
        count += (size_t)found;
    }
    return count;
}

// Of a format, tokens of other formats are ordinary text: only with its own can a turn be forged.
static int is_own_marker_type(unsigned flags) {
    return (flags & 2) == 0;
}

static void say(struct kiln_chat *chat, struct kiln_chat *plain, unsigned flags,
        const struct kiln_tokenizer *tokenizer, struct kiln_str turn, struct kiln_ids *ids) {
    struct kiln_err err = {0};
    enum kiln_chat_role role =
            turn.len ? (enum kiln_chat_role)((unsigned char)turn.data[0] % 3) : KILN_CHAT_USER;
    size_t skip = turn.len > 0, before = ids->len;
    enum kiln_status status =
            kiln_chat_append(chat, role, turn.data + skip, turn.len - skip, ids, &err);
    struct kiln_ids other = {0};
    enum kiln_status same = kiln_chat_append(plain, role, "x", 1, &other, &err);
    FUZZ_CHECK(status == same);
    FUZZ_CHECK(status == KILN_STATUS_OK || (status == KILN_STATUS_USAGE && ids->len == before));
    // Whatever is said, a turn has the control tokens that any turn of its role has.
    if (is_own_marker_type(flags)) {
        FUZZ_CHECK(count_control(tokenizer, ids, before) == count_control(tokenizer, &other, 0));
    }
    kiln_ids_finish(&other);
}

static void converse(unsigned flags, struct input *in, const struct kiln_gguf *gguf,
        const struct kiln_tokenizer *tokenizer) {
    struct kiln_chat *chat = NULL, *plain = NULL;
    struct kiln_err err = {0};
    enum kiln_status status = kiln_chat_open(&chat, gguf, tokenizer, &err);
    FUZZ_CHECK(status == KILN_STATUS_OK || (status == KILN_STATUS_FILE && !chat));
    FUZZ_CHECK(status == KILN_STATUS_OK || strstr(err.text, "key '"));
    if (status == KILN_STATUS_OK) {
        FUZZ_CHECK(kiln_chat_format(chat)[0]);
        FUZZ_CHECK(kiln_chat_open(&plain, gguf, tokenizer, &err) == KILN_STATUS_OK);
        struct kiln_ids ids = {0};
        while (in->at) {
            say(chat, plain, flags, tokenizer, next_field(in), &ids);
        }
        size_t before = ids.len;
        FUZZ_CHECK(kiln_chat_begin_answer(chat, &ids, &err) == KILN_STATUS_OK);
        FUZZ_CHECK(ids.len > before);
        kiln_chat_reset(chat);
        ids.len = 0;
        FUZZ_CHECK(kiln_chat_append(chat, KILN_CHAT_SYSTEM, "s", 1, &ids, &err) == KILN_STATUS_OK);
        kiln_ids_finish(&ids);
    }
    kiln_chat_close(chat);
    kiln_chat_close(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!tokenizers[0]) {
        open_tokenizers();
    }
    unsigned flags = size ? data[0] & 3 : 0;
    struct input in = {.at = (const char *)data + (size > 0), .end = (const char *)data + size};
    struct kiln_str template = next_field(&in);
    uint8_t *bytes;
    fuzz_watch_memory();
    struct kiln_gguf *gguf = open_gguf(template, &bytes);
    converse(flags, &in, gguf, tokenizers[flags]);
    kiln_gguf_close(gguf);
    kiln_free(bytes);
    fuzz_check_memory(size);
    return 0;
}
