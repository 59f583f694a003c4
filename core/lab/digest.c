// digest: hashes of variants, joined.
#include "lab/digest.h"

#include "base/file.h"
#include "config/layers.h"
#include "jit/source_files.h"

#include <string.h>
#include <xxhash.h>

// Ends with the length, so that two texts cannot be cut at another place.
static uint64_t add(uint64_t digest, const char *text) {
    size_t len = text ? strlen(text) : 0;
    return XXH64(text ? text : "", len, digest + len);
}

static uint64_t add_source(uint64_t digest, const struct kiln_source *source) {
    digest = add(digest, source->name);
    digest = add(digest, source->text);
    for (uint32_t i = 0; i < source->n_headers; i++) {
        digest = add(digest, source->headers[i]->name);
        digest = add(digest, source->headers[i]->text);
    }
    for (uint32_t i = 0; i < source->n_options; i++) {
        digest = add(digest, source->options[i]);
    }
    return digest;
}

uint64_t kiln_variant_digest(const struct kiln_variant *variant) {
    uint64_t digest = add(0, variant->name);
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        const struct kiln_kernel *kernel = variant->kernels[i];
        digest = add(digest, kernel->name);
        digest = add(digest, kernel->instance);
        if (kernel->source) {
            digest = add_source(digest, kernel->source);
        }
    }
    return digest;
}

static int has_host_kernel(const struct kiln_variant *variant) {
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        if (variant->kernels[i]->host) {
            return 1;
        }
    }
    return 0;
}

static enum kiln_status library_digest(const struct kiln_registry *registry,
        const struct kiln_plugin *plugin, uint64_t *digest, struct kiln_err *err) {
    const struct kiln_plugin *const *plugins = kiln_registry_plugins(registry);
    size_t index = 0;
    while (index < kiln_registry_count(registry) && plugins[index] != plugin) {
        index++;
    }
    if (index == kiln_registry_count(registry)) { // of no file: linked in by a test
        *digest = add(0, plugin->version);
        return KILN_STATUS_OK;
    }
    struct kiln_map map;
    KILN_TRY(kiln_map_open(&map, kiln_registry_path(registry, index), err));
    *digest = XXH64(map.data ? (const void *)map.data : "", map.size, 0);
    kiln_map_close(&map);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_one_variant_digest(const struct kiln_registry *registry,
        const struct kiln_plugin *plugin, const struct kiln_variant *variant, const char *source,
        uint64_t *digest, struct kiln_err *err) {
    uint64_t library = 0;
    *digest = add(kiln_variant_digest(variant), plugin->name);
    if (has_host_kernel(variant)) {
        KILN_TRY(library_digest(registry, plugin, &library, err));
    }
    *digest = XXH64(&library, sizeof(library), *digest);
    if (source) {
        struct kiln_source_files files;
        enum kiln_status status = kiln_source_files_read(&files, source, err);
        *digest = XXH64(&files.digest, sizeof(files.digest), *digest);
        kiln_source_files_finish(&files);
        return status;
    }
    return KILN_STATUS_OK;
}

static int seen_before(
        const struct kiln_config *config, size_t index, const struct kiln_variant *variant) {
    const struct kiln_plugin *plugin;
    const struct kiln_variant *earlier;
    for (size_t i = 0; i < index; i++) {
        if (kiln_config_variant(config, i, &plugin, &earlier) && earlier == variant) {
            return 1;
        }
    }
    return 0;
}

enum kiln_status kiln_sources_digest(const struct kiln_registry *registry,
        const struct kiln_config *config, uint32_t kind, uint64_t *digest, struct kiln_err *err) {
    const struct kiln_plugin *plugin;
    const struct kiln_variant *variant;
    const char *path;
    *digest = 0;
    for (size_t i = 0; kiln_config_variant(config, i, &plugin, &variant); i++) {
        if (!(variant->devices & kind) || seen_before(config, i, variant)) {
            continue;
        }
        uint64_t one;
        KILN_TRY(kiln_one_variant_digest(registry, plugin, variant, NULL, &one, err));
        *digest ^= one;
    }
    for (size_t i = 0; (path = kiln_config_source(config, i)) != NULL; i++) {
        struct kiln_source_files files;
        enum kiln_status status = kiln_source_files_read(&files, path, err);
        *digest = XXH64(&files.digest, sizeof(files.digest), *digest);
        kiln_source_files_finish(&files);
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}
