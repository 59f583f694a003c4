// when: parsing and evaluating conditions.
#include "config/when.h"

#include "base/mem.h"
#include "config/number.h"
#include "config/words.h"

#include <assert.h>
#include <string.h>

enum when_var {
    VAR_M,
    VAR_N,
    VAR_K,
    VAR_HD,
    VAR_LAYER,
    VAR_ROLE,
    VAR_PHASE,
    VAR_TARGET,
    N_VARS
};
enum when_op {
    OP_EQ,
    OP_NE,
    OP_LE,
    OP_GE,
    OP_LT,
    OP_GT,
    N_OPS
};

struct kiln_when_test {
    enum when_var var;
    enum when_op op;
    int64_t low, high; // OP_EQ: a range; otherwise low alone
    char word[24];     // role, phase, target
};

enum {
    TEST_MAX = 80
}; // bytes of one test, its NUL included

static const char *const var_names[N_VARS] = {
        "m", "n", "k", "hd", "layer", "role", "phase", "target"};
// Longer ones first, so that "<=" is not read as "<".
static const char *const op_names[N_OPS] = {"=", "!=", "<=", ">=", "<", ">"};
static const enum when_op op_order[N_OPS] = {OP_NE, OP_LE, OP_GE, OP_LT, OP_GT, OP_EQ};

static const struct kiln_words roles = {
        .names = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
                "output", "token_embd", "attn_norm", "ffn_norm", "output_norm",
                "post_attention_norm", "post_ffw_norm"},
        .count = 14};

static const char targets_text[] = "cpu, cuda, sim, or a target such as sm_90a";

static int is_target(const char *word) {
    if (strcmp(word, "cpu") == 0 || strcmp(word, "cuda") == 0 || strcmp(word, "sim") == 0) {
        return 1;
    }
    if (strncmp(word, "sm_", 3) != 0) {
        return 0;
    }
    size_t digits = strspn(word + 3, "0123456789");
    const char *rest = word + 3 + digits;
    return digits >= 2 && digits <= 3 &&
           (*rest == '\0' || ((*rest == 'a' || *rest == 'f') && rest[1] == '\0'));
}

// The end of text without blanks at both ends; *text moves to the first non-blank.
static size_t trim(const char **text, size_t len) {
    while (len > 0 && (**text == ' ' || **text == '\t')) {
        (*text)++;
        len--;
    }
    while (len > 0 && ((*text)[len - 1] == ' ' || (*text)[len - 1] == '\t')) {
        len--;
    }
    return len;
}

static enum kiln_status parse_word(
        struct kiln_when_test *test, const char *whole, const char *value, struct kiln_err *err) {
    const char *name = var_names[test->var];
    char hint[KILN_WORDS_MAX];
    if (test->op != OP_EQ && test->op != OP_NE) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "'%s': %s takes = and != only", whole, name);
    }
    if (test->var == VAR_ROLE && !kiln_words_has(&roles, value)) {
        kiln_words_hint(hint, &roles, value);
        return kiln_err_set(
                err, KILN_STATUS_CONFIG, "'%s': unknown role '%s'%s", whole, value, hint);
    }
    if (test->var == VAR_PHASE && strcmp(value, "prefill") != 0 && strcmp(value, "decode") != 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "'%s': unknown phase '%s'; known: prefill, decode", whole, value);
    }
    if (test->var == VAR_TARGET && !is_target(value)) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "'%s': unknown target '%s'; known: %s", whole,
                value, targets_text);
    }
    assert(strlen(value) < sizeof(test->word)); // the known words are short
    memcpy(test->word, value, strlen(value) + 1);
    return KILN_STATUS_OK;
}

static enum kiln_status parse_number(
        struct kiln_when_test *test, const char *whole, char *value, struct kiln_err *err) {
    char *dots = strstr(value, "..");
    if (dots && test->op != OP_EQ) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "'%s': a range goes with = only: %s=a..b",
                whole, var_names[test->var]);
    }
    if (dots) {
        *dots = '\0';
    }
    if (kiln_number_parse(value, &test->low) < 0 || test->low < 0 ||
            (dots && kiln_number_parse(dots + 2, &test->high) < 0)) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "'%s': %s is compared with a whole number that is not negative%s", whole,
                var_names[test->var], test->op == OP_EQ ? ", or a range a..b" : "");
    }
    if (!dots) {
        test->high = test->low;
    }
    if (test->high < test->low) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "'%s': no number lies in this range; the smaller end comes first", whole);
    }
    return KILN_STATUS_OK;
}

static enum kiln_status unknown_var(const char *whole, const char *name, struct kiln_err *err) {
    struct kiln_words known = {.count = 0};
    char hint[KILN_WORDS_MAX];
    for (size_t i = 0; i < N_VARS; i++) {
        kiln_words_add(&known, var_names[i]);
    }
    kiln_words_hint(hint, &known, name);
    return kiln_err_set(err, KILN_STATUS_CONFIG, "'%s': unknown test '%s'%s", whole, name, hint);
}

// Which operator stands at text; N_OPS: none.
static enum when_op op_at(const char *text) {
    for (size_t i = 0; i < N_OPS; i++) {
        if (strncmp(text, op_names[op_order[i]], strlen(op_names[op_order[i]])) == 0) {
            return op_order[i];
        }
    }
    return N_OPS;
}

static enum when_var var_named(const char *name) {
    size_t i = 0;
    while (i < N_VARS && strcmp(name, var_names[i]) != 0) {
        i++;
    }
    return (enum when_var)i;
}

// Copies `len` bytes of text without the blanks at both ends.
static void copy_trimmed(char out[TEST_MAX], const char *text, size_t len) {
    len = trim(&text, len);
    memcpy(out, text, len);
    out[len] = '\0';
}

// One test of `len` bytes.
static enum kiln_status parse_test(
        struct kiln_when_test *test, const char *text, size_t len, struct kiln_err *err) {
    char whole[TEST_MAX], name[TEST_MAX], value[TEST_MAX];
    len = trim(&text, len);
    if (len == 0) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "an empty test; write tests such as m<=64, separated by commas");
    }
    if (len >= TEST_MAX) {
        return kiln_err_set(err, KILN_STATUS_CONFIG, "a test of %zu bytes; the longest has %d", len,
                TEST_MAX - 1);
    }
    copy_trimmed(whole, text, len);
    size_t at = strcspn(whole, "=!<>");
    test->op = op_at(whole + at);
    if (test->op == N_OPS) {
        return kiln_err_set(err, KILN_STATUS_CONFIG,
                "'%s' is no test: write NAME OP VALUE with one of = != < <= > >=", whole);
    }
    const char *rest = whole + at + strlen(op_names[test->op]);
    copy_trimmed(name, whole, at);
    copy_trimmed(value, rest, strlen(rest));
    test->var = var_named(name);
    if (test->var == N_VARS) {
        return unknown_var(whole, name, err);
    }
    return test->var >= VAR_ROLE ? parse_word(test, whole, value, err)
                                 : parse_number(test, whole, value, err);
}

enum kiln_status kiln_when_parse(struct kiln_when *when, const char *text, struct kiln_err *err) {
    size_t cap = 0;
    *when = (struct kiln_when){.tests = NULL};
    for (const char *at = text; at;) {
        const char *comma = strchr(at, ',');
        size_t len = comma ? (size_t)(comma - at) : strlen(at);
        if (kiln_grow(&when->tests, &cap, when->n_tests + 1, sizeof(*when->tests)) < 0) {
            kiln_when_finish(when);
            return kiln_err_nomem(err, "a condition");
        }
        struct kiln_when_test *test = &when->tests[when->n_tests];
        memset(test, 0, sizeof(*test));
        enum kiln_status status = parse_test(test, at, len, err);
        if (status != KILN_STATUS_OK) {
            kiln_when_finish(when);
            return status;
        }
        when->n_tests++;
        at = comma ? comma + 1 : NULL;
    }
    return KILN_STATUS_OK;
}

void kiln_when_finish(struct kiln_when *when) {
    kiln_free(when->tests);
    *when = (struct kiln_when){.tests = NULL};
}

static int target_is(const struct kiln_device *device, const char *word) {
    if (!device) {
        return 0;
    }
    int cuda = (device->kind & KILN_DEVICE_CUDA) != 0;
    if (strcmp(word, "cpu") == 0) {
        return (device->kind & KILN_DEVICE_HOST) != 0;
    }
    if (strcmp(word, "cuda") == 0) {
        return cuda;
    }
    if (strcmp(word, "sim") == 0) {
        return cuda && device->name && strcmp(device->name, "sim") == 0;
    }
    return device->target && strcmp(device->target, word) == 0;
}

static int compare(const struct kiln_when_test *test, int64_t value) {
    switch (test->op) {
    case OP_NE:
        return value != test->low;
    case OP_LE:
        return value <= test->low;
    case OP_GE:
        return value >= test->low;
    case OP_LT:
        return value < test->low;
    case OP_GT:
        return value > test->low;
    case OP_EQ:
    case N_OPS:
    default:
        return value >= test->low && value <= test->high;
    }
}

static int test_holds(const struct kiln_when_test *test, const struct kiln_bind_query *query) {
    switch (test->var) {
    case VAR_M:
        return compare(test, query->m);
    case VAR_N:
        return compare(test, query->n);
    case VAR_K:
        return compare(test, query->k);
    case VAR_HD:
        return compare(test, query->hd);
    case VAR_LAYER:
        // What lies outside the layers has none to compare.
        return query->layer >= 0 && compare(test, query->layer);
    case VAR_ROLE:
        return (strcmp(query->role ? query->role : "", test->word) == 0) == (test->op == OP_EQ);
    case VAR_PHASE:
        return (query->phase == (strcmp(test->word, "decode") == 0 ? KILN_PHASE_DECODE
                                                                   : KILN_PHASE_PREFILL)) ==
               (test->op == OP_EQ);
    case VAR_TARGET:
    case N_VARS:
    default:
        return target_is(query->device, test->word) == (test->op == OP_EQ);
    }
}

int kiln_when_holds(const struct kiln_when *when, const struct kiln_bind_query *query) {
    for (size_t i = 0; i < when->n_tests; i++) {
        if (!test_holds(&when->tests[i], query)) {
            return 0;
        }
    }
    return 1;
}

// ---- Two conditions -----------------------------------------------------------------------------

// A value of one variable in a made-up call meets all tests of that variable.
static int meets(
        const struct kiln_when *when, enum when_var var, const struct kiln_bind_query *query) {
    for (size_t i = 0; i < when->n_tests; i++) {
        if (when->tests[i].var == var && !test_holds(&when->tests[i], query)) {
            return 0;
        }
    }
    return 1;
}

static int meet_at(
        const struct kiln_when *a, const struct kiln_when *b, enum when_var var, int64_t value) {
    const struct kiln_bind_query query = {
            .m = value, .n = value, .k = value, .hd = value, .layer = (int32_t)value};
    return value <= INT32_MAX && value >= (var == VAR_LAYER ? 0 : 1) && meets(a, var, &query) &&
           meets(b, var, &query);
}

// The smallest number that meets all tests, if any does, is the least there is, or a bound of one
// of them or next to it.
static int numbers_meet(const struct kiln_when *a, const struct kiln_when *b, enum when_var var) {
    const struct kiln_when *both[] = {a, b};
    if (meet_at(a, b, var, 0) || meet_at(a, b, var, 1)) {
        return 1;
    }
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < both[k]->n_tests; i++) {
            const struct kiln_when_test *test = &both[k]->tests[i];
            if (test->var == var &&
                    (meet_at(a, b, var, test->low) ||
                            (test->low < INT32_MAX && meet_at(a, b, var, test->low + 1)))) {
                return 1;
            }
        }
    }
    return 0;
}

static int roles_meet(const struct kiln_when *a, const struct kiln_when *b) {
    for (size_t i = 0; i <= roles.count; i++) { // behind the last: an op of another role
        const struct kiln_bind_query query = {.role = i < roles.count ? roles.names[i] : ""};
        if (meets(a, VAR_ROLE, &query) && meets(b, VAR_ROLE, &query)) {
            return 1;
        }
    }
    return 0;
}

static int device_meets(const struct kiln_when *a, const struct kiln_when *b, uint32_t kind,
        const char *name, const char *target) {
    const struct kiln_device device = {
            .struct_size = sizeof(device), .kind = kind, .name = name, .target = target};
    const struct kiln_bind_query query = {.device = &device};
    return meets(a, VAR_TARGET, &query) && meets(b, VAR_TARGET, &query);
}

// On the host, on a GPU and on the simulator of every target that is named, and of one that is not.
static int targets_meet(const struct kiln_when *a, const struct kiln_when *b) {
    const struct kiln_when *both[] = {a, b};
    if (device_meets(a, b, KILN_DEVICE_HOST, "cpu", "cpu")) {
        return 1;
    }
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i <= both[k]->n_tests; i++) {
            const char *target = i == both[k]->n_tests                 ? "another"
                                 : both[k]->tests[i].var == VAR_TARGET ? both[k]->tests[i].word
                                                                       : "another";
            if (device_meets(a, b, KILN_DEVICE_CUDA, "a GPU", target) ||
                    device_meets(a, b, KILN_DEVICE_CUDA, "sim", target)) {
                return 1;
            }
        }
    }
    return 0;
}

int kiln_when_overlap(const struct kiln_when *a, const struct kiln_when *b) {
    for (int var = VAR_M; var <= VAR_LAYER; var++) {
        if (!numbers_meet(a, b, (enum when_var)var)) {
            return 0;
        }
    }
    return roles_meet(a, b) && targets_meet(a, b);
}
