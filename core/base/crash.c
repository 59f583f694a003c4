// crash: signal handlers that name the plugin whose code was running.
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // sigaltstack, RLIMIT_CORE, beyond plain POSIX 2008
#endif
#include "base/crash.h"

#include "base/status.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STACK_BYTES = 64 * 1024
};

static const struct {
    int number;
    const char *name;
} deadly[] = {{SIGSEGV, "SIGSEGV"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"}, {SIGABRT, "SIGABRT"}};

static _Thread_local const struct kiln_foreign_call *noted;

void kiln_crash_note(const struct kiln_foreign_call *call) {
    noted = call;
}

// Async-signal-safe, like everything that on_crash does.
static void say(const char *const *texts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(texts[i]);
        if (write(STDERR_FILENO, texts[i], len) != (ssize_t)len) {
            return;
        }
    }
}

static const char *name_of(int number) {
    for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++) {
        if (deadly[i].number == number) {
            return deadly[i].name;
        }
    }
    return "a signal";
}

static void on_crash(int number) {
    const struct kiln_foreign_call *call = noted;
    if (!call) { // SA_RESETHAND has put the default back, and it comes again on return
        (void)raise(number);
        return;
    }
    const char *const texts[] = {"kiln: plugin '", call->plugin, "': crashed with ",
            name_of(number), " in ", call->what, " of variant '", call->variant,
            "'; bind another variant, or look into it: `kiln plugins inspect ", call->plugin,
            "` has its file, `kiln plugins verify FILE` tries it in a child process\n"};
    say(texts, sizeof(texts) / sizeof(texts[0]));
    _exit(kiln_status_exit_code(KILN_STATUS_FILE));
}

void kiln_crash_guard(void) {
    // A stack of its own: an overflow of the usual one is a crash too.
    static char stack[STACK_BYTES];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    stack_t before;
    if (sigaltstack(NULL, &before) == 0 && (before.ss_flags & SS_DISABLE)) {
        (void)sigaltstack(&own, NULL);
    }
    for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++) {
        struct sigaction action = {.sa_handler = on_crash}, old;
        action.sa_flags = (int)SA_RESETHAND | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        if (sigaction(deadly[i].number, NULL, &old) == 0 && old.sa_handler == SIG_DFL &&
                !(old.sa_flags & SA_SIGINFO)) {
            (void)sigaction(deadly[i].number, &action, NULL);
        }
    }
}

void kiln_crash_expendable(void) {
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    const struct rlimit no_core = {0, 0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        (void)signal(fatal[i], SIG_DFL);
    }
}
