// verify_impl: what verify.c (the parent) and verify_child.c share.
//
// The child writes lines to a pipe as it goes, so that what it found before a crash is not lost.
// The first byte of a line says what it is.
#ifndef KILN_PLUGIN_VERIFY_IMPL_H
#define KILN_PLUGIN_VERIFY_IMPL_H

enum kiln_verify_line {
    KILN_VERIFY_OK = '+',
    KILN_VERIFY_DECLINED = '~',
    KILN_VERIFY_FAILED = '-',
    KILN_VERIFY_NOW = '@',     // what is tried next: named when it does not come back
    KILN_VERIFY_REFUSED = '!', // the plugin is refused; the last line
    KILN_VERIFY_NOMEM = '?',   // out of memory; the last line
};

// Does all checks of verify.h on the library at `path` and writes lines to fd. Runs in the child;
// calls the plugin's code.
void kiln_verify_child(const char *path, int fd);

#endif
