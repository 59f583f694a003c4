// retry: reading and testing conditions.
#include "lab/retry.h"

#include "base/mem.h"
#include "base/nearest.h"
#include "config/slot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum node_kind {
    NODE_TEST,
    NODE_AND,
    NODE_OR,
    NODE_NOT
};

struct node {
    enum node_kind kind;
    int left, right; // nodes; NOT has the left one
    struct kiln_retry_test test;
};

struct kiln_retry {
    struct node *nodes;
    size_t n, cap;
    int root;
};

// name: blanks between its words; unit: what may stand behind the number, "" for none
static const struct figure {
    const char *name, *unit;
    const char *unknown; // what would tell
} figures[KILN_RETRY_KINDS] = {
        [KILN_RETRY_WALL_SHARE] = {"wall share", "%", "kiln wall --save"},
        [KILN_RETRY_TIME] = {"time", "ms", "kiln wall --save"},
        [KILN_RETRY_RATE] = {"tok/s", "", "kiln ab --save or kiln wall --save"},
        [KILN_RETRY_NOISE] = {"noise", "%", "kiln ab --save"},
        [KILN_RETRY_OCCUPANCY] = {"occupancy", "%", "kiln audit --save"},
        [KILN_RETRY_BLOCKS] = {"blocks", "", "kiln audit --save"},
        [KILN_RETRY_REGISTERS] = {"registers", "", "kiln audit --save"},
        [KILN_RETRY_SMEM] = {"smem", "B", "kiln audit --save"},
        [KILN_RETRY_SPILLS] = {"spills", "B", "kiln audit --save"},
        [KILN_RETRY_WAYS] = {"bank ways", "", "kiln audit --save"},
        [KILN_RETRY_DEVICE] = {"device", "", "any saved result"},
        [KILN_RETRY_DRIVER] = {"driver", "", "any saved result of a GPU"},
        [KILN_RETRY_GATE] = {"gate", "", "kiln gate --save"},
};

static const char *const compares[KILN_RETRY_COMPARES] = {"<", "<=", ">", ">=", "=", "!="};

enum {
    MAX_NODES = 64, // and so the depth of the recursion
    MAX_TEXT = 512
};

const char *kiln_retry_figure_name(enum kiln_retry_kind kind) {
    return figures[kind].name;
}

const char *kiln_retry_unit(enum kiln_retry_kind kind) {
    return figures[kind].unit;
}

const char *kiln_truth_name(enum kiln_truth truth) {
    static const char *const names[] = {"no", "due", "unknown"};
    return names[truth];
}

int kiln_version_compare(const char *a, const char *b) {
    for (;;) {
        char *end_a, *end_b;
        long one = strtol(a, &end_a, 10), other = strtol(b, &end_b, 10);
        if (end_a == a || end_b == b) {
            return (end_a != a) - (end_b != b);
        }
        if (one != other) {
            return one < other ? -1 : 1;
        }
        a = *end_a == '.' ? end_a + 1 : end_a;
        b = *end_b == '.' ? end_b + 1 : end_b;
    }
}

// ---- Words --------------------------------------------------------------------------------------

struct parser {
    const char *text, *at; // at: the next word
    struct kiln_retry *retry;
    struct kiln_err *err;
};

// Where the word at `at` ends: a parenthesis, a run of <>=!, '%', or up to a blank or one of them.
static const char *word_end(const char *at) {
    if (*at && strchr("()%", *at)) {
        return at + 1;
    }
    size_t signs = strspn(at, "<>=!");
    return at + (signs ? signs : strcspn(at, " \t()%<>=!"));
}

static void skip_blanks(struct parser *p) {
    p->at += strspn(p->at, " \t");
}

static size_t word_len(const struct parser *p) {
    return (size_t)(word_end(p->at) - p->at);
}

static int is_word(const struct parser *p, const char *word) {
    return word_len(p) == strlen(word) && strncasecmp(p->at, word, strlen(word)) == 0;
}

static void next(struct parser *p) {
    p->at = word_end(p->at);
    skip_blanks(p);
}

static int take(struct parser *p, const char *word) {
    int there = is_word(p, word);
    if (there) {
        next(p);
    }
    return there;
}

// The text and a mark under the word at fault.
static enum kiln_status wrong(const struct parser *p, const char *wanted) {
    int column = 0; // characters, not bytes
    for (const char *c = p->text; c < p->at; c++) {
        column += ((unsigned char)*c & 0xc0) != 0x80;
    }
    int len = (int)word_len(p);
    return kiln_err_set(p->err, KILN_STATUS_USAGE,
            "retry condition: %s%.*s%s: %s\n  %s\n  %*s^ here", *p->at ? "'" : "the text ends here",
            len, p->at, *p->at ? "'" : "", wanted, p->text, column, "");
}

// Cut to size.
static void copy_word(char *to, size_t size, const char *from, size_t len) {
    len = len < size ? len : size - 1;
    memcpy(to, from, len);
    to[len] = '\0';
}

static enum kiln_status add_node(struct parser *p, struct node node, int *index) {
    struct kiln_retry *retry = p->retry;
    if (retry->n == MAX_NODES) {
        return wrong(p, "the condition is too long: at most 64 tests, ands, ors and nots");
    }
    if (kiln_grow(&retry->nodes, &retry->cap, retry->n + 1, sizeof(*retry->nodes)) != 0) {
        return kiln_err_nomem(p->err, "a retry condition");
    }
    *index = (int)retry->n;
    retry->nodes[retry->n++] = node;
    return KILN_STATUS_OK;
}

// ---- Tests --------------------------------------------------------------------------------------

static enum kiln_status read_name(struct parser *p, char *name, size_t size, const char *wanted) {
    size_t len = word_len(p);
    if (len == 0 || strchr("()%<>=!", *p->at)) {
        return wrong(p, wanted);
    }
    if (len >= size) {
        return wrong(p, "the name is too long");
    }
    memcpy(name, p->at, len);
    name[len] = '\0';
    next(p);
    return KILN_STATUS_OK;
}

static enum kiln_status read_compare(struct parser *p, enum kiln_retry_compare *compare) {
    for (int i = 0; i < KILN_RETRY_COMPARES; i++) {
        if (take(p, compares[i])) {
            *compare = (enum kiln_retry_compare)i;
            return KILN_STATUS_OK;
        }
    }
    return wrong(p, "here one of < <= > >= = != is needed");
}

static enum kiln_status read_is(struct parser *p, enum kiln_retry_compare *compare) {
    if (!take(p, "is")) {
        return wrong(p, "here 'is' or 'is not' is needed");
    }
    *compare = take(p, "not") ? KILN_RETRY_NE : KILN_RETRY_EQ;
    return KILN_STATUS_OK;
}

static enum kiln_status read_number(struct parser *p, struct kiln_retry_test *test) {
    char *end;
    test->number = strtod(p->at, &end);
    size_t used = (size_t)(end - p->at);
    // strtod also takes "inf", "nan" and hexadecimal, which nobody means here.
    if (used == 0 || used > word_len(p) || strspn(p->at, "+-.0123456789eE") < used) {
        return wrong(p, "here a number is needed");
    }
    p->at = end;
    skip_blanks(p);
    const char *unit = figures[test->kind].unit;
    if (*unit && take(p, unit)) {
        return KILN_STATUS_OK;
    }
    if (*p->at && *p->at != ')' && !is_word(p, "and") && !is_word(p, "or")) {
        char wanted[96];
        snprintf(wanted, sizeof(wanted), "behind the number comes %s%s'and', 'or' or the end", unit,
                *unit ? ", " : "");
        return wrong(p, wanted);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status read_gate(struct parser *p, struct kiln_retry_test *test) {
    static const char *const gates[] = {"parity", "greedy", "tolerance"};
    int known = 0;
    for (size_t i = 0; i < sizeof(gates) / sizeof(gates[0]); i++) {
        known |= is_word(p, gates[i]);
    }
    if (!known) {
        return wrong(p, "gates are parity, greedy and tolerance");
    }
    KILN_TRY(read_name(p, test->name, sizeof(test->name), "a gate is needed"));
    if (take(p, "of")) {
        KILN_TRY(read_name(
                p, test->slot, sizeof(test->slot), "here a slot is needed: of attention.prefill"));
    }
    KILN_TRY(read_is(p, &test->compare));
    if (!is_word(p, "PASS") && !is_word(p, "FAIL")) {
        return wrong(p, "here PASS or FAIL is needed");
    }
    snprintf(test->verdict, sizeof(test->verdict), "%s", is_word(p, "PASS") ? "PASS" : "FAIL");
    next(p);
    return KILN_STATUS_OK;
}

static enum kiln_status unknown_figure(struct parser *p) {
    const char *names[KILN_RETRY_KINDS];
    char word[64];
    struct kiln_buf wanted = {0};
    for (int i = 0; i < KILN_RETRY_KINDS; i++) {
        names[i] = figures[i].name;
    }
    copy_word(word, sizeof(word), p->at, word_len(p));
    const char *near = kiln_nearest(word, names, KILN_RETRY_KINDS);
    kiln_buf_printf(&wanted, "here a figure is needed%s%s%s: ", near ? "; did you mean '" : "",
            near ? near : "", near ? "'?" : "");
    for (int i = 0; i < KILN_RETRY_KINDS; i++) {
        kiln_buf_printf(&wanted, "%s%s", i ? ", " : "", names[i]);
    }
    enum kiln_status status = wrong(p, wanted.data ? wanted.data : "here a figure is needed");
    kiln_buf_finish(&wanted);
    return status;
}

// "wall share": each of its words in turn; nothing is taken unless all are there.
static int take_figure(struct parser *p, enum kiln_retry_kind *kind) {
    for (int i = 0; i < KILN_RETRY_KINDS; i++) {
        const char *start = p->at, *name = figures[i].name;
        for (;;) {
            char word[32];
            size_t len = strcspn(name, " ");
            copy_word(word, sizeof(word), name, len);
            if (!take(p, word)) {
                break;
            }
            if (!name[len]) {
                *kind = (enum kiln_retry_kind)i;
                return 1;
            }
            name += len + 1;
        }
        p->at = start;
    }
    return 0;
}

static enum kiln_status parse_test(struct parser *p, int *index) {
    struct node node = {.kind = NODE_TEST};
    struct kiln_retry_test *test = &node.test;
    if (!take_figure(p, &test->kind)) {
        return unknown_figure(p);
    }
    if (test->kind == KILN_RETRY_DEVICE) {
        KILN_TRY(read_is(p, &test->compare));
        KILN_TRY(read_name(p, test->name, sizeof(test->name), "here a device is needed: gb10"));
    } else if (test->kind == KILN_RETRY_DRIVER) {
        KILN_TRY(read_compare(p, &test->compare));
        KILN_TRY(read_name(p, test->name, sizeof(test->name), "here a version is needed: 590.10"));
    } else if (test->kind == KILN_RETRY_GATE) {
        KILN_TRY(read_gate(p, test));
    } else {
        if (!take(p, "of")) {
            return wrong(p, "here 'of' and a slot or a test is needed: of attention.prefill");
        }
        KILN_TRY(read_name(p, test->name, sizeof(test->name),
                "here a slot (attention.prefill) or a test (pp3325) is needed"));
        KILN_TRY(read_compare(p, &test->compare));
        KILN_TRY(read_number(p, test));
    }
    return add_node(p, node, index);
}

// ---- Terms --------------------------------------------------------------------------------------

static enum kiln_status parse_either(struct parser *p, int depth, int *index);

static enum kiln_status parse_term(struct parser *p, int depth, int *index) {
    if (depth > MAX_NODES) {
        return wrong(p, "the condition is nested too deeply");
    }
    if (take(p, "not")) {
        struct node node = {.kind = NODE_NOT};
        KILN_TRY(parse_term(p, depth + 1, &node.left));
        return add_node(p, node, index);
    }
    if (take(p, "(")) {
        KILN_TRY(parse_either(p, depth + 1, index));
        return take(p, ")") ? KILN_STATUS_OK : wrong(p, "here 'and', 'or' or ')' is needed");
    }
    return parse_test(p, index);
}

static enum kiln_status parse_both(struct parser *p, int depth, int *index) {
    KILN_TRY(parse_term(p, depth, index));
    while (take(p, "and")) {
        struct node node = {.kind = NODE_AND, .left = *index};
        KILN_TRY(parse_term(p, depth, &node.right));
        KILN_TRY(add_node(p, node, index));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status parse_either(struct parser *p, int depth, int *index) {
    KILN_TRY(parse_both(p, depth, index));
    while (take(p, "or")) {
        struct node node = {.kind = NODE_OR, .left = *index};
        KILN_TRY(parse_both(p, depth, &node.right));
        KILN_TRY(add_node(p, node, index));
    }
    return KILN_STATUS_OK;
}

static enum kiln_status parse_all(struct parser *p) {
    skip_blanks(p);
    (void)take(p, "retry");
    (void)take(p, "when");
    KILN_TRY(parse_either(p, 0, &p->retry->root));
    return *p->at ? wrong(p, "here 'and', 'or' or the end is needed") : KILN_STATUS_OK;
}

enum kiln_status kiln_retry_parse(
        struct kiln_retry **retry, const char *text, struct kiln_err *err) {
    *retry = NULL;
    if (strlen(text) > MAX_TEXT || strpbrk(text, "\n\r")) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "retry condition: one line of at most %d bytes is needed", MAX_TEXT);
    }
    struct parser p = {
            .text = text, .at = text, .retry = kiln_calloc(1, sizeof(**retry)), .err = err};
    if (!p.retry) {
        return kiln_err_nomem(err, "a retry condition");
    }
    enum kiln_status status = parse_all(&p);
    if (status != KILN_STATUS_OK) {
        kiln_retry_destroy(p.retry);
        return status;
    }
    *retry = p.retry;
    return KILN_STATUS_OK;
}

static int is_of_slot(enum kiln_retry_kind kind) {
    return kind != KILN_RETRY_RATE && kind != KILN_RETRY_NOISE && kind != KILN_RETRY_DEVICE &&
           kind != KILN_RETRY_DRIVER && kind != KILN_RETRY_GATE;
}

enum kiln_status kiln_retry_check_slots(const struct kiln_retry *retry, struct kiln_err *err) {
    for (size_t i = 0; i < retry->n; i++) {
        const struct node *node = &retry->nodes[i];
        // A pattern may stand for any slots; a name is that of one.
        if (node->kind == NODE_TEST && is_of_slot(node->test.kind) &&
                !strpbrk(node->test.name, "*?[")) {
            enum kiln_status status = kiln_slot_check(node->test.name, 0, err);
            if (status != KILN_STATUS_OK) {
                kiln_err_prefix(err, "retry condition: ");
                return status;
            }
        }
    }
    return KILN_STATUS_OK;
}

void kiln_retry_destroy(struct kiln_retry *retry) {
    if (retry) {
        kiln_free(retry->nodes);
        kiln_free(retry);
    }
}

// ---- Testing ------------------------------------------------------------------------------------

struct evaluation {
    const struct kiln_retry *retry;
    kiln_retry_look_fn look;
    void *arg;
    struct kiln_buf *why; // may be NULL
};

static int holds(enum kiln_retry_compare compare, double difference) {
    switch (compare) {
    case KILN_RETRY_LT:
        return difference < 0;
    case KILN_RETRY_LE:
        return difference <= 0;
    case KILN_RETRY_GT:
        return difference > 0;
    case KILN_RETRY_GE:
        return difference >= 0;
    case KILN_RETRY_EQ:
        return difference == 0;
    case KILN_RETRY_NE:
    case KILN_RETRY_COMPARES:
        break;
    }
    return difference != 0;
}

// Whether `part` stands in `text`, whatever the case of its letters.
static int has_part(const char *text, const char *part) {
    size_t len = strlen(part);
    for (; strlen(text) >= len; text++) {
        if (strncasecmp(text, part, len) == 0) {
            return 1;
        }
    }
    return 0;
}

static int test_holds(const struct kiln_retry_test *test, const struct kiln_retry_value *value) {
    switch ((int)test->kind) {
    case KILN_RETRY_DEVICE:
        return has_part(value->text, test->name) == (test->compare == KILN_RETRY_EQ);
    case KILN_RETRY_DRIVER:
        return holds(test->compare, kiln_version_compare(value->text, test->name));
    case KILN_RETRY_GATE:
        return (strcmp(value->text, test->verdict) == 0) == (test->compare == KILN_RETRY_EQ);
    default:
        return holds(test->compare, value->number - test->number);
    }
}

static void say_why(struct kiln_buf *why, const struct kiln_retry_test *test,
        const struct kiln_retry_value *value) {
    const struct figure *figure = &figures[test->kind];
    int named = test->kind != KILN_RETRY_DEVICE && test->kind != KILN_RETRY_DRIVER;
    kiln_buf_printf(why, "%s%s%s%s", why->len > 0 ? "; " : "", figure->name,
            !named                          ? ""
            : test->kind == KILN_RETRY_GATE ? " "
                                            : " of ",
            named ? test->name : "");
    if (test->slot[0]) {
        kiln_buf_printf(why, " of %s", test->slot);
    }
    kiln_buf_puts(why, value->known ? " is " : " is not known: ");
    if (!value->known) {
        kiln_buf_printf(why, "%s", value->source[0] ? value->source : figure->unknown);
    } else if (value->text[0]) {
        kiln_buf_printf(why, "%s (%s)", value->text, value->source);
    } else {
        kiln_buf_printf(why, "%.4g%s%s (%s)", value->number, *figure->unit ? " " : "", figure->unit,
                value->source);
    }
}

static enum kiln_status eval_test(const struct evaluation *e, const struct kiln_retry_test *test,
        enum kiln_truth *truth, struct kiln_err *err) {
    struct kiln_retry_value value = {.known = 0};
    KILN_TRY(e->look(e->arg, test, &value, err));
    *truth = !value.known               ? KILN_TRUTH_UNKNOWN
             : test_holds(test, &value) ? KILN_TRUTH_YES
                                        : KILN_TRUTH_NO;
    if (e->why) {
        say_why(e->why, test, &value);
    }
    return KILN_STATUS_OK;
}

// Kleene's logic of three values.
static enum kiln_truth join(enum node_kind kind, enum kiln_truth a, enum kiln_truth b) {
    enum kiln_truth settles = kind == NODE_AND ? KILN_TRUTH_NO : KILN_TRUTH_YES;
    if (a == settles || b == settles) {
        return settles;
    }
    return a == KILN_TRUTH_UNKNOWN ? a : b;
}

static enum kiln_status eval_node(
        const struct evaluation *e, int index, enum kiln_truth *truth, struct kiln_err *err) {
    const struct node *node = &e->retry->nodes[index];
    if (node->kind == NODE_TEST) {
        return eval_test(e, &node->test, truth, err);
    }
    enum kiln_truth left, right;
    KILN_TRY(eval_node(e, node->left, &left, err));
    if (node->kind == NODE_NOT) {
        *truth = left == KILN_TRUTH_UNKNOWN ? left
                 : left == KILN_TRUTH_YES   ? KILN_TRUTH_NO
                                            : KILN_TRUTH_YES;
        return KILN_STATUS_OK;
    }
    KILN_TRY(eval_node(e, node->right, &right, err));
    *truth = join(node->kind, left, right);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_retry_eval(const struct kiln_retry *retry, kiln_retry_look_fn look, void *arg,
        enum kiln_truth *truth, struct kiln_buf *why, struct kiln_err *err) {
    struct evaluation e = {.retry = retry, .look = look, .arg = arg, .why = why};
    return eval_node(&e, retry->root, truth, err);
}
