// verify_impl: what verify.c (the parent) and verify_child.c share.
#ifndef KILN_PLUGIN_VERIFY_IMPL_H
#define KILN_PLUGIN_VERIFY_IMPL_H

#include "plugin/verify.h"

// Does all checks of verify.h, `more` included, and writes lines to fd. Runs in the child; calls
// the plugin's code.
void kiln_verify_child(const struct kiln_verify_params *params, int fd);

#endif
