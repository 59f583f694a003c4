// vocab: the ids of published vocabularies, of every kind and pretokenizer that kiln has, against
// those that are published with them (tests/golden/vocab: one line of ids an input; control tokens
// are text, nothing is put in front).
//
// The vocabularies and the inputs lie in the folder KILN_VOCAB_DIR, else where tools/fetch-vocab
// puts them. Where it cannot fetch them the test is skipped (exit 77); anything else is a failure.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

enum {
    SKIPPED = 77,
    NOT_FETCHED = 4, // what tools/fetch-vocab says of an index out of reach
    N_INPUTS = 46
};

static const char separator[] = "\n__ggml_vocab_test__\n";
static char folder[4096];

static const char *source_dir(void) {
    const char *src = getenv("KILN_TEST_SRC");
    return src ? src : ".";
}

static char *read_file(const char *dir, const char *name, const char *ending) {
    char *path = kiln_asprintf("%s/%s%s", dir, name, ending);
    assert_non_null(path);
    char *data = NULL;
    size_t size = 0;
    struct kiln_err err = {0};
    if (kiln_file_read(path, 1 << 20, &data, &size, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    kiln_free(path);
    return data;
}

static struct kiln_tokenizer *open_vocab(const char *name) {
    char *path = kiln_asprintf("%s/%s.gguf", folder, name);
    assert_non_null(path);
    struct kiln_gguf *gguf = NULL;
    struct kiln_tokenizer *tokenizer = NULL;
    struct kiln_err err = {0};
    if (kiln_gguf_open(&gguf, path, &err) != KILN_STATUS_OK ||
            kiln_tokenizer_open(&tokenizer, gguf, &err) != KILN_STATUS_OK) {
        fail_msg("%s", err.text);
    }
    kiln_gguf_close(gguf);
    kiln_free(path);
    return tokenizer;
}

static void check_input(const struct kiln_tokenizer *tokenizer, const char *vocab, int number,
        const char *text, size_t len, const char *want) {
    struct kiln_ids ids = {0};
    struct kiln_err err = {0};
    if (kiln_tokenizer_encode(tokenizer, text, len, 0, &ids, &err) != KILN_STATUS_OK) {
        fail_msg("%s, input %d: %s", vocab, number, err.text);
    }
    struct kiln_buf got = {0};
    kiln_buf_puts(&got, "");
    for (size_t i = 0; i < ids.len; i++) {
        kiln_buf_printf(&got, "%s%d", i ? " " : "", (int)ids.ids[i]);
    }
    if (strcmp(got.data, want) != 0) {
        fail_msg("%s, input %d, '%.*s': ids %s, want %s", vocab, number, (int)len, text, got.data,
                want);
    }
    kiln_buf_finish(&got);
    kiln_ids_finish(&ids);
}

static void check_vocab(void **state) {
    const char *vocab = *state;
    char *golden = kiln_asprintf("%s/tests/golden/vocab", source_dir());
    assert_non_null(golden);
    char *inputs = read_file(folder, "inputs", ".txt"), *ids = read_file(golden, vocab, ".txt");
    struct kiln_tokenizer *tokenizer = open_vocab(vocab);
    char *id_at = ids;
    int number = 0;
    for (const char *at = inputs, *end; *at; at = end + strlen(separator)) {
        end = strstr(at, separator);
        char *line_end = strchr(id_at, '\n');
        assert_non_null(end);
        assert_non_null(line_end);
        *line_end = '\0';
        check_input(tokenizer, vocab, ++number, at, (size_t)(end - at), id_at);
        id_at = line_end + 1;
    }
    assert_int_equal(number, N_INPUTS);
    assert_int_equal(*id_at, '\0'); // no ids left over
    kiln_tokenizer_close(tokenizer);
    kiln_free(inputs);
    kiln_free(ids);
    kiln_free(golden);
}

// Sets the folder; the exit status of tools/fetch-vocab, 0 where it was not needed.
static int find_folder(void) {
    const char *named = getenv("KILN_VOCAB_DIR");
    if (named && *named) {
        snprintf(folder, sizeof(folder), "%s", named);
        return 0;
    }
    char *command = kiln_asprintf("exec '%s/tools/fetch-vocab'", source_dir());
    FILE *pipe = command ? popen(command, "r") : NULL;
    kiln_free(command);
    if (!pipe) {
        return -1;
    }
    size_t len = fread(folder, 1, sizeof(folder) - 1, pipe);
    folder[len] = '\0';
    folder[strcspn(folder, "\n")] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void) {
    int status = find_folder();
    if (status == NOT_FETCHED) {
        fprintf(stderr, "the vocabularies are not there and cannot be fetched: skipped\n");
        return SKIPPED;
    }
    if (status != 0) {
        fprintf(stderr, "tools/fetch-vocab: exit %d\n", status);
        return 1;
    }
    static char names[][16] = {"command-r", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3",
            "qwen2", "refact", "starcoder"};
    enum {
        N_NAMES = sizeof(names) / sizeof(names[0])
    };
    struct CMUnitTest tests[N_NAMES];
    for (int i = 0; i < N_NAMES; i++) {
        tests[i] = (struct CMUnitTest){
                .name = names[i], .test_func = check_vocab, .initial_state = names[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
