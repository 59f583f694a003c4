// retry: the condition under which a dead lever is worth another try, as text that kiln can test:
// "retry when wall share of attention.prefill > 8 % and gate tolerance is PASS".
//
//   condition  = [ "retry" ] [ "when" ] either
//   either     = both { "or" both }
//   both       = term { "and" term }
//   term       = "not" term | "(" either ")" | test
//   test       = figure OF NAME CMP NUMBER [ UNIT ]
//              | "device" IS NAME            a part of the device's id or name will do
//              | "driver" CMP VERSION        "driver >= 590.10"
//              | "gate" GATE [ OF SLOT ] IS VERDICT     parity, greedy or tolerance; PASS or FAIL
//   figure     = one of kiln_retry_figure_name; NAME is a slot (with * as in a section's name), or
//                for "tok/s" and "noise" a test as bench names it: pp3325, tg128@d2048
//   CMP        = < <= > >= = !=        IS = "is" [ "not" ]        OF = "of"
//
// Not here: where figures come from (kiln_ledger_due). A figure that nobody measured makes a test
// neither true nor false, and so the condition, unless its other tests settle it.
#ifndef KILN_LAB_RETRY_H
#define KILN_LAB_RETRY_H

#include "base/buf.h"
#include "base/status.h"

enum kiln_retry_kind {
    KILN_RETRY_WALL_SHARE, // percent of the wall
    KILN_RETRY_TIME,       // of a slot in a wall: ms
    KILN_RETRY_RATE,       // tok/s
    KILN_RETRY_NOISE,      // percent: base against base in an A/B
    KILN_RETRY_OCCUPANCY,  // percent of a multiprocessor's warps
    KILN_RETRY_BLOCKS,     // a multiprocessor
    KILN_RETRY_REGISTERS,  // a thread
    KILN_RETRY_SMEM,       // bytes a block, as launched
    KILN_RETRY_SPILLS,     // bytes a thread
    KILN_RETRY_WAYS,       // of the worst bank conflict
    KILN_RETRY_DEVICE,
    KILN_RETRY_DRIVER,
    KILN_RETRY_GATE,
    KILN_RETRY_KINDS
};

enum kiln_retry_compare {
    KILN_RETRY_LT,
    KILN_RETRY_LE,
    KILN_RETRY_GT,
    KILN_RETRY_GE,
    KILN_RETRY_EQ,
    KILN_RETRY_NE,
    KILN_RETRY_COMPARES
};

struct kiln_retry_test {
    enum kiln_retry_kind kind;
    enum kiln_retry_compare compare; // EQ and NE only for device and gate
    char name[64];                   // slot, test, device, gate or version
    char slot[64];                   // of a gate: "" is that of the lever
    char verdict[8];                 // of a gate: "PASS" or "FAIL"
    double number;                   // in the unit of the kind
};

struct kiln_retry; // a condition

// KILN_STATUS_USAGE shows the text with a mark under the word at fault, and says what may stand
// there. The caller ends *retry with kiln_retry_destroy.
KILN_MUST_CHECK enum kiln_status kiln_retry_parse(
        struct kiln_retry **retry, const char *text, struct kiln_err *err);
// Whether each slot that the condition names is one (patterns pass): what is misspelled is never
// measured, and the condition never due. CONFIG: the first that is none.
KILN_MUST_CHECK enum kiln_status kiln_retry_check_slots(
        const struct kiln_retry *retry, struct kiln_err *err);

void kiln_retry_destroy(struct kiln_retry *retry); // NULL is fine

const char *kiln_retry_figure_name(enum kiln_retry_kind kind); // "wall share", "device"
const char *kiln_retry_unit(enum kiln_retry_kind kind);        // "%", "ms", ""

enum kiln_truth {
    KILN_TRUTH_NO,
    KILN_TRUTH_YES,
    KILN_TRUTH_UNKNOWN
};
const char *kiln_truth_name(enum kiln_truth truth); // "no", "due", "unknown"

// What is known of a test's subject. Text for device, driver and gate; a number for the rest.
struct kiln_retry_value {
    int known;
    double number;
    char text[96];
    char source[96]; // "wall #12 of 2026-11-29 on cuda:0"; unknown: what would tell
};
typedef enum kiln_status (*kiln_retry_look_fn)(void *arg, const struct kiln_retry_test *test,
        struct kiln_retry_value *value, struct kiln_err *err);

// Asks for each test's value, every time, and writes to `why` a clause for each: what it is and
// where that is from. (why may be NULL)
KILN_MUST_CHECK enum kiln_status kiln_retry_eval(const struct kiln_retry *retry,
        kiln_retry_look_fn look, void *arg, enum kiln_truth *truth, struct kiln_buf *why,
        struct kiln_err *err);

// -1, 0 or 1: dotted versions, number by number ("580.159" < "590"); what is no number ends it.
int kiln_version_compare(const char *a, const char *b);

#endif
