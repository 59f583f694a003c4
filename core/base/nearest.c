// nearest: optimal string alignment distance over three rows.
#include "base/nearest.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

enum {
    LONGEST = 255
}; // longer words are compared by their first 255 bytes

static int same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t min2(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t kiln_edit_distance(const char *a, const char *b) {
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *prev = rows[1], *cur = rows[2];
    size_t len_a = min2(strlen(a), LONGEST), len_b = min2(strlen(b), LONGEST);
    for (size_t j = 0; j <= len_b; j++) {
        prev[j] = j;
        before[j] = j;
    }
    for (size_t i = 1; i <= len_a; i++) {
        cur[0] = i;
        for (size_t j = 1; j <= len_b; j++) {
            size_t cost = same(a[i - 1], b[j - 1]) ? 0 : 1;
            cur[j] = min2(min2(prev[j] + 1, cur[j - 1] + 1), prev[j - 1] + cost);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
                cur[j] = min2(cur[j], before[j - 2] + 1);
            }
        }
        size_t *spare = before;
        before = prev;
        prev = cur;
        cur = spare;
    }
    return prev[len_b];
}

const char *kiln_nearest(const char *word, const char *const *names, size_t count) {
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        size_t distance = kiln_edit_distance(word, names[i]);
        size_t longer = strlen(word) > strlen(names[i]) ? strlen(word) : strlen(names[i]);
        if (distance < best_distance && distance * 3 <= longer) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}
