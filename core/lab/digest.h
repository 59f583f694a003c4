// digest: which kernels were behind a result: one number over the sources of the variants that a
// config binds, so that a result can be told from one of other sources.
//
// CUDA variants count by their source text, headers and options, and by the files that `source`
// names; host variants by the file of their plugin, since their source is not at hand.
#ifndef KILN_LAB_DIGEST_H
#define KILN_LAB_DIGEST_H

#include "base/status.h"
#include "config/config.h"
#include "plugin/registry.h"

#include <stdint.h>

// Of one variant's CUDA kernels: names, texts, headers and options; host kernels add nothing.
uint64_t kiln_variant_digest(const struct kiln_variant *variant);

// The same of a variant that may be a host's, by its plugin's file, and whose source a file may
// replace (source, or NULL). KILN_STATUS_FILE: a file cannot be read.
KILN_MUST_CHECK enum kiln_status kiln_one_variant_digest(const struct kiln_registry *registry,
        const struct kiln_plugin *plugin, const struct kiln_variant *variant, const char *source,
        uint64_t *digest, struct kiln_err *err);

// Of all that `config` (checked against the registry) binds and that runs on `kind` (enum
// kiln_device_kind). The order of sections does not count. KILN_STATUS_FILE: a file cannot be read.
KILN_MUST_CHECK enum kiln_status kiln_sources_digest(const struct kiln_registry *registry,
        const struct kiln_config *config, uint32_t kind, uint64_t *digest, struct kiln_err *err);

#endif
