// status: what a function that can fail returns, and the one place that says in words what failed.
//
// A function that can fail returns enum kiln_status (0 is success) and takes, last, a struct
// kiln_err owned by the caller. The status says which kind of failure it is (and so the exit code
// of the program); the text says what was being done, to which file, key or tensor, what was found,
// what is allowed and what to do. The core never exits and never prints an error: main() does.
#ifndef KILN_BASE_STATUS_H
#define KILN_BASE_STATUS_H

// name, exit code of the program, default text
#define KILN_STATUS_TABLE(X) \
    X(OK, 0, "ok") \
    X(CHECK, 1, "a gate, check or bar was not met") \
    X(USAGE, 2, "bad usage") \
    X(CONFIG, 2, "bad configuration") \
    X(FILE, 3, "bad model, plugin or other file") \
    X(DEVICE, 4, "device, driver or compile failure") \
    X(NOMEM, 4, "out of memory") \
    X(INTERRUPTED, 130, "interrupted")

enum kiln_status {
#define KILN_STATUS_ENUM(name, code, text) KILN_STATUS_##name,
    KILN_STATUS_TABLE(KILN_STATUS_ENUM)
#undef KILN_STATUS_ENUM
};

// A failed call has filled it in; a successful one leaves it alone. Zero-initialize before use.
struct kiln_err {
    enum kiln_status status;
    char text[1024]; // one sentence or a few, no newline at the end; cut at a UTF-8 boundary
};

#define KILN_MUST_CHECK   __attribute__((warn_unused_result))
#define KILN_PRINTF(f, a) __attribute__((format(printf, f, a)))

// The only propagation macro: everything that needs cleaning up uses `goto out` instead.
#define KILN_TRY(call) \
    do { \
        enum kiln_status status_ = (call); \
        if (status_ != KILN_STATUS_OK) { \
            return status_; \
        } \
    } while (0)

const char *kiln_status_name(enum kiln_status status);
const char *kiln_status_text(enum kiln_status status);
int kiln_status_exit_code(enum kiln_status status);

// Fills err (which may be NULL) and returns status, so that a failure is one line:
//     return kiln_err_set(err, KILN_STATUS_FILE, "%s: tensor '%s': ...", path, name);
enum kiln_status kiln_err_set(struct kiln_err *err, enum kiln_status status, const char *fmt, ...)
        KILN_PRINTF(3, 4);

// Puts text in front of what a callee already wrote ("model.gguf: " + "key 'a': ..."); keeps its
// status.
void kiln_err_prefix(struct kiln_err *err, const char *fmt, ...) KILN_PRINTF(2, 3);

// Out of memory, saying for what. `what` is a noun: "the tensor table".
enum kiln_status kiln_err_nomem(struct kiln_err *err, const char *what);

// clang's analyzer reads one file at a time and would otherwise follow the path on which a failure
// returns OK.
#ifdef __clang_analyzer__
#    define kiln_err_nomem(err, what)      ((void)(kiln_err_nomem)(err, what), KILN_STATUS_NOMEM)
#    define kiln_err_set(err, status, ...) ((void)(kiln_err_set)(err, status, __VA_ARGS__), status)
#endif

#endif
