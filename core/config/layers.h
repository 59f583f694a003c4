// layers: what a config is made of, kept as a list so that it can be made again from the files as
// they are then.
#ifndef KILN_CONFIG_LAYERS_H
#define KILN_CONFIG_LAYERS_H

#include "config/config.h"

#include <stddef.h>

struct kiln_layers {          // the caller's strings
    const char *const *files; // --config, in order
    size_t n_files;
    const char *const *sets; // SECTION.KEY=VALUE, on top of every file
    size_t n_sets;
};

// Defaults, files, sets; checked. The caller ends *config with kiln_config_destroy.
KILN_MUST_CHECK enum kiln_status kiln_config_load(struct kiln_config **config,
        const struct kiln_layers *layers, const struct kiln_catalog *catalog, struct kiln_err *err);

// Whether both, made of the same list of layers, set and bind alike. Comments, the order of keys
// and the lines that values stand on do not count; nor does what is in the files that `source`
// names.
int kiln_config_same(const struct kiln_config *a, const struct kiln_config *b);

// The CUDA files that bindings name, absolute; one may come twice. NULL past the end.
const char *kiln_config_source(const struct kiln_config *config, size_t index);

#endif
