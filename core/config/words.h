// words: lists of known names in error messages: what was meant, and what is known.
#ifndef KILN_CONFIG_WORDS_H
#define KILN_CONFIG_WORDS_H

#include <stddef.h>

enum {
    KILN_WORDS_MAX = 640
};

// A set of names that grows while its owner looks around. Names are borrowed; those beyond MAX are
// left out.
struct kiln_words {
    const char *names[96];
    size_t count;
};

// Adds a name unless it is there already. NULL is ignored.
void kiln_words_add(struct kiln_words *words, const char *name);
int kiln_words_has(const struct kiln_words *words, const char *name);

// "; did you mean 'near'? known: a, b, c", the first part only where a name is near enough; for an
// empty set "; none is known". A list that does not fit ends in "...".
void kiln_words_hint(char text[KILN_WORDS_MAX], const struct kiln_words *words, const char *word);

// `before`, then "a, b, c".
void kiln_words_list(char text[KILN_WORDS_MAX], const char *before, const struct kiln_words *words);

#endif
