// words: joins and nearest names, into fixed buffers so that an error needs no memory.
#include "config/words.h"

#include "base/nearest.h"

#include <string.h>

int kiln_words_has(const struct kiln_words *words, const char *name) {
    for (size_t i = 0; i < words->count; i++) {
        if (strcmp(words->names[i], name) == 0) {
            return 1;
        }
    }
    return 0;
}

void kiln_words_add(struct kiln_words *words, const char *name) {
    size_t max = sizeof(words->names) / sizeof(words->names[0]);
    if (name && words->count < max && !kiln_words_has(words, name)) {
        words->names[words->count++] = name;
    }
}

// Appends to text of KILN_WORDS_MAX bytes while there is room for it and for an ending.
static int append(char *text, const char *more) {
    size_t len = strlen(text), add = strlen(more);
    if (len + add + sizeof(", ...") > KILN_WORDS_MAX) {
        return -1;
    }
    memcpy(text + len, more, add + 1);
    return 0;
}

// "a, b, c" behind what text holds.
static void append_list(char *text, const struct kiln_words *words) {
    for (size_t i = 0; i < words->count; i++) {
        size_t len = strlen(text);
        if ((i > 0 && append(text, ", ") < 0) || append(text, words->names[i]) < 0) {
            text[len] = '\0';
            memcpy(text + len, ", ...", sizeof(", ..."));
            return;
        }
    }
}

void kiln_words_list(
        char text[KILN_WORDS_MAX], const char *before, const struct kiln_words *words) {
    text[0] = '\0';
    (void)append(text, before);
    append_list(text, words);
}

void kiln_words_hint(char text[KILN_WORDS_MAX], const struct kiln_words *words, const char *word) {
    text[0] = '\0';
    if (words->count == 0) {
        (void)append(text, "; none is known");
        return;
    }
    const char *near = kiln_nearest(word, words->names, words->count);
    if (near) {
        (void)append(text, "; did you mean '");
        (void)append(text, near);
        (void)append(text, "'?");
    }
    (void)append(text, near ? " known: " : "; known: ");
    append_list(text, words);
}
