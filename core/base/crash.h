// crash: when code of a plugin crashes in this process, one line says whose code it was, and the
// process ends with the exit code of a bad plugin instead of a bare signal.
//
// Nothing is recovered: the plugin may have written anywhere.
#ifndef KILN_BASE_CRASH_H
#define KILN_BASE_CRASH_H

// What a thread is about to call; valid until the next note.
struct kiln_foreign_call {
    const char *plugin, *variant;
    const char *what; // "plan()", a kernel's name
};

// Notes the call that this thread makes next, NULL: none any more. As cheap as a store.
void kiln_crash_note(const struct kiln_foreign_call *call);

// From here on SIGSEGV, SIGFPE, SIGILL and SIGABRT during a noted call print a line and end the
// process with 3. Without a note they keep their effect, and so do signals that somebody else (a
// sanitizer, a debugger's library) handles already. Once a process.
void kiln_crash_guard(void);

// In a child right after fork: it ends with its parent, a crash kills it as it would any process
// (another effect that was set before, kiln_crash_guard's, is undone) and leaves no core file.
// Async-signal-safe.
void kiln_crash_expendable(void);

#endif
