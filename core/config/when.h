// when: the condition of a binding: "m<=64, role=ffn_down, layer=0..3".
//
// Tests separated by commas, all of which must hold. m, n, k, hd and layer take = != < <= > >= and
// a whole number, and = a range a..b, both ends in; role and target take = and != and one of the
// known words.
#ifndef KILN_CONFIG_WHEN_H
#define KILN_CONFIG_WHEN_H

#include "base/status.h"
#include "config/config.h"

#include <stddef.h>

struct kiln_when_test;

// Zeroed: no condition, always met.
struct kiln_when {
    struct kiln_when_test *tests;
    size_t n_tests;
};

// KILN_STATUS_CONFIG says which test is wrong and what is allowed; *when is then empty.
KILN_MUST_CHECK enum kiln_status kiln_when_parse(
        struct kiln_when *when, const char *text, struct kiln_err *err);
void kiln_when_finish(struct kiln_when *when);

int kiln_when_holds(const struct kiln_when *when, const struct kiln_bind_query *query);
// Whether there is a call that meets both.
int kiln_when_overlap(const struct kiln_when *a, const struct kiln_when *b);

#endif
