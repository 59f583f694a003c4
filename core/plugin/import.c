// import: a plugin's tables, checked to the last struct and copied into this kiln's layout.
//
// One struct kind describes how a kind of struct is named in messages and who checks its fields;
// one function walks every array of structs by it.
#include "plugin/import.h"

#include "config/slot.h"
#include "model/dtype.h"
#include "plugin/abi.h"
#include "plugin/schema.h"
#include "plugin/text.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_COUNT = 4096, // of any array: a count beyond it is read from the wrong bytes
    LABEL_MAX = 128
};

struct import {
    struct kiln_arena *arena;
    unsigned minor; // the plugin's
    int unknown;    // the fault found is a name that a newer minor may know
};

struct kind {
    enum kiln_abi_struct which;
    const char *noun;   // "parameter"
    const char *field;  // the array: "params"
    size_t name_offset; // of the field that holds its name; 0: it has none
    int numbered;       // the message gives its number too
    enum kiln_status (*check)(struct import *import, void *item, struct kiln_err *err);
};

static int is_newer(const struct import *import) {
    return import->minor > (unsigned)KILN_ABI_MINOR;
}

// The name of a struct whose fields have not been checked yet, as far as its size says that it is
// there.
static void make_label(
        char label[LABEL_MAX], const struct kind *kind, uint32_t index, const void *item) {
    uint32_t size;
    const char *name = NULL;
    memcpy(&size, item, sizeof(size));
    if (kind->name_offset && size >= kind->name_offset + sizeof(name)) {
        memcpy(&name, (const char *)item + kind->name_offset, sizeof(name));
    }
    if (!name) {
        (void)snprintf(label, LABEL_MAX, "%s %u", kind->noun, index + 1);
    } else if (kind->numbered) {
        (void)snprintf(
                label, LABEL_MAX, "%s %u '%.*s'", kind->noun, index + 1, KILN_NAME_MAX, name);
    } else {
        (void)snprintf(label, LABEL_MAX, "%s '%.*s'", kind->noun, KILN_NAME_MAX, name);
    }
}

static enum kiln_status import_item(struct import *import, const struct kind *kind,
        const void *item, void **copy, struct kiln_err *err) {
    uint32_t size;
    memcpy(&size, item, sizeof(size));
    KILN_TRY(kiln_abi_check_size(kind->which, size, import->minor, err));
    *copy = kiln_arena_calloc(import->arena, 1, kiln_abi_size(kind->which, KILN_ABI_MINOR));
    if (!*copy) {
        return kiln_err_nomem(err, "a plugin's tables");
    }
    kiln_abi_import(kind->which, *copy, item);
    return kind->check(import, *copy, err);
}

static enum kiln_status check_count(
        const char *field, const void *array, uint32_t count, struct kiln_err *err) {
    if (count > MAX_COUNT) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "n_%s is %u; at most %d", field, count, MAX_COUNT);
    }
    if (count && !array) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s is NULL, n_%s is %u", field, field, count);
    }
    return KILN_STATUS_OK;
}

// Imports an array of pointers to structs of one kind. `*array` points to the array in the plugin
// and, after, to the one made of copies; `*count` shrinks by those that only a newer minor
// understands.
static enum kiln_status import_array(struct import *import, const struct kind *kind, void *array,
        uint32_t *count, struct kiln_err *err) {
    const char *source;
    memcpy(&source, array, sizeof(source));
    KILN_TRY(check_count(kind->field, source, *count, err));
    char *copies = kiln_arena_calloc(import->arena, *count, sizeof(void *));
    if (!copies) {
        return kiln_err_nomem(err, "a plugin's tables");
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *count; i++) {
        const void *item;
        void *copy = NULL;
        char label[LABEL_MAX];
        memcpy(&item, source + i * sizeof(item), sizeof(item));
        if (!item) {
            return kiln_err_set(err, KILN_STATUS_FILE, "%s %u is NULL; %s has n_%s of them",
                    kind->noun, i + 1, kind->field, kind->field);
        }
        make_label(label, kind, i, item);
        enum kiln_status status = import_item(import, kind, item, &copy, err);
        if (status == KILN_STATUS_OK) {
            memcpy(copies + kept++ * sizeof(copy), &copy, sizeof(copy));
            continue;
        }
        int may_skip = kind->which == KILN_ABI_VARIANT && import->unknown && is_newer(import);
        if (status != KILN_STATUS_FILE || !may_skip) {
            kiln_err_prefix(err, "%s: ", label);
            return status;
        }
        import->unknown = 0;
    }
    memcpy(array, &copies, sizeof(copies));
    *count = kept;
    return KILN_STATUS_OK;
}

// Bits and fields that this kiln does not know are an error of a plugin that claims to know no more
// than kiln does, and are set to zero for one that does.
static enum kiln_status check_bits(const struct import *import, const char *field, uint32_t *bits,
        uint32_t known, struct kiln_err *err) {
    if ((*bits & ~known) != 0 && !is_newer(import)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s is %u; ABI %d.%u knows the bits %u", field,
                *bits, KILN_ABI_MAJOR, import->minor, known);
    }
    *bits &= known;
    return KILN_STATUS_OK;
}

static enum kiln_status check_strings(
        const char *field, const char *const *strings, uint32_t count, struct kiln_err *err) {
    KILN_TRY(check_count(field, strings, count, err));
    for (uint32_t i = 0; i < count; i++) {
        if (!strings[i]) {
            return kiln_err_set(err, KILN_STATUS_FILE, "%s: entry %u is NULL", field, i + 1);
        }
    }
    return KILN_STATUS_OK;
}

// No two structs of an array share a name. `get` gives the name of number i.
static enum kiln_status check_unique(const void *array, uint32_t count, const char *noun,
        const char *(*get)(const void *array, uint32_t i), struct kiln_err *err) {
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(get(array, i), get(array, k)) == 0) {
                return kiln_err_set(err, KILN_STATUS_FILE, "two %ss are named '%s'; rename one",
                        noun, get(array, i));
            }
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_default_row(struct import *import, void *item, struct kiln_err *err) {
    const struct kiln_param_default *row = item;
    (void)import;
    if (row->head_size < 0 || row->target_min < 0 || row->target_max < 0) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "head_size, target_min or target_max is negative");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_param(struct import *import, void *item, struct kiln_err *err) {
    static const struct kind default_kind = {.which = KILN_ABI_PARAM_DEFAULT,
            .noun = "default",
            .field = "defaults",
            .check = check_default_row};
    struct kiln_param *param = item;
    KILN_TRY(check_bits(import, "flags", &param->flags, KILN_PARAM_REGROUPS, err));
    KILN_TRY(import_array(import, &default_kind, &param->defaults, &param->n_defaults, err));
    if (!param->unit) {
        param->unit = "";
    }
    KILN_TRY(kiln_text_check_line("unit", param->unit, err));
    KILN_TRY(check_count("allowed", param->allowed, param->n_allowed, err));
    return kiln_param_check(param, err);
}

static enum kiln_status check_header(struct import *import, void *item, struct kiln_err *err) {
    struct kiln_header *header = item;
    KILN_TRY(check_bits(import, "reserved", &header->reserved, 0, err));
    KILN_TRY(kiln_text_check_line("name", header->name, err));
    if (header->name[0] == '\0' || !header->text) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s; it is mandatory",
                header->text ? "the name is empty" : "text is NULL");
    }
    return KILN_STATUS_OK;
}

static const char *header_name(const void *array, uint32_t i) {
    const struct kiln_header *const *headers = array;
    return headers[i]->name;
}

static enum kiln_status check_source(struct import *import, void *item, struct kiln_err *err) {
    static const struct kind header_kind = {.which = KILN_ABI_HEADER,
            .noun = "header",
            .field = "headers",
            .name_offset = offsetof(struct kiln_header, name),
            .check = check_header};
    struct kiln_source *source = item;
    KILN_TRY(check_bits(import, "flags", &source->flags, KILN_SOURCE_CUDA_INCLUDE, err));
    KILN_TRY(kiln_text_check_line("name", source->name, err));
    if (source->name[0] == '\0' || !source->text || source->text[0] == '\0') {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s is empty; it is mandatory",
                source->name[0] ? "text" : "the name");
    }
    KILN_TRY(import_array(import, &header_kind, &source->headers, &source->n_headers, err));
    KILN_TRY(check_unique(source->headers, source->n_headers, "header", header_name, err));
    return check_strings("options", source->options, source->n_options, err);
}

static enum kiln_status check_kernel(struct import *import, void *item, struct kiln_err *err) {
    static const struct kind source_kind = {.which = KILN_ABI_SOURCE,
            .noun = "source",
            .field = "source",
            .name_offset = offsetof(struct kiln_source, name),
            .check = check_source};
    struct kiln_kernel *kernel = item;
    KILN_TRY(check_bits(import, "reserved", &kernel->reserved, 0, err));
    KILN_TRY(kiln_text_check_name(kernel->name, KILN_NAME_IDENTIFIER, err));
    if ((kernel->source != NULL) == (kernel->host != NULL)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "source and host are %s; set exactly one",
                kernel->source ? "both set" : "both NULL");
    }
    if (kernel->host) {
        return kernel->instance ? kiln_err_set(err, KILN_STATUS_FILE,
                                          "a host kernel has no template instance; leave it NULL")
                                : KILN_STATUS_OK;
    }
    void *copy = NULL;
    char label[LABEL_MAX];
    make_label(label, &source_kind, 0, kernel->source);
    enum kiln_status status = import_item(import, &source_kind, kernel->source, &copy, err);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "%s: ", label);
        return status;
    }
    kernel->source = copy;
    return kernel->instance ? kiln_text_check_line("instance", kernel->instance, err)
                            : KILN_STATUS_OK;
}

static enum kiln_status check_io(struct import *import, void *item, struct kiln_err *err) {
    const struct kiln_io *io = item;
    if (io->operand < KILN_OPERAND_IN || io->operand > KILN_OPERAND_PAGE_TABLE) {
        import->unknown = 1;
        return kiln_err_set(
                err, KILN_STATUS_FILE, "operand %u is none of enum kiln_operand", io->operand);
    }
    KILN_TRY(check_strings("formats", io->formats, io->n_formats, err));
    if (io->n_formats == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "formats is empty; list at least one");
    }
    for (uint32_t i = 0; i < io->n_formats; i++) {
        enum kiln_status status = kiln_text_check_name(io->formats[i], KILN_NAME_WORD, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "format %u: ", i + 1);
            return status;
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_slots(
        struct import *import, const struct kiln_variant *variant, struct kiln_err *err) {
    KILN_TRY(check_strings("slots", variant->slots, variant->n_slots, err));
    if (variant->n_slots == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "slots is empty; list what the variant fills");
    }
    for (uint32_t i = 0; i < variant->n_slots; i++) {
        if (kiln_slot_check(variant->slots[i], 1, err) != KILN_STATUS_OK) {
            import->unknown = 1;
            if (err) {
                err->status = KILN_STATUS_FILE; // a slot of a config is a matter of that config
            }
            return KILN_STATUS_FILE;
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_follows(
        struct import *import, const struct kiln_variant *variant, struct kiln_err *err) {
    KILN_TRY(check_strings("follows", variant->follows, variant->n_follows, err));
    for (uint32_t i = 0; i < variant->n_follows; i++) {
        const char *entry = variant->follows[i];
        const char *colon = strchr(entry, ':');
        if (!kiln_op_kind(entry, colon ? (size_t)(colon - entry) : strlen(entry))) {
            import->unknown = 1;
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "follows: '%.64s' names no op; write \"op\" or \"op:role\", as in "
                    "\"matmul:attn_k\"",
                    entry);
        }
        if (colon) {
            KILN_TRY(kiln_text_check_name(colon + 1, KILN_NAME_WORD, err));
        }
    }
    return variant->role ? kiln_text_check_name(variant->role, KILN_NAME_WORD, err)
                         : KILN_STATUS_OK;
}

static const char *param_name(const void *array, uint32_t i) {
    const struct kiln_param *const *params = array;
    return params[i]->name;
}

static const char *kernel_name(const void *array, uint32_t i) {
    const struct kiln_kernel *const *kernels = array;
    return kernels[i]->name;
}

// Each kind of device that a variant runs on has a kernel that it could run.
static enum kiln_status check_devices(
        const struct import *import, struct kiln_variant *variant, struct kiln_err *err) {
    KILN_TRY(check_bits(
            import, "devices", &variant->devices, KILN_DEVICE_HOST | KILN_DEVICE_CUDA, err));
    uint32_t have = 0;
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        have |= variant->kernels[i]->host ? KILN_DEVICE_HOST : KILN_DEVICE_CUDA;
    }
    if (variant->devices == 0 && !is_newer(import)) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "devices is 0; name at least one of enum kiln_device_kind");
    }
    if ((variant->devices & ~have) != 0) {
        int host = (variant->devices & ~have & KILN_DEVICE_HOST) != 0;
        return kiln_err_set(err, KILN_STATUS_FILE, "devices names %s, but no kernel has %s",
                host ? "HOST" : "CUDA", host ? "a host function" : "CUDA source");
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_ios(const struct kiln_variant *variant, struct kiln_err *err) {
    for (uint32_t i = 0; i < variant->n_ios; i++) {
        if (variant->ios[i]->op > variant->n_follows) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "io %u: op is %u, the variant fills %u op%s (counted from 0)", i + 1,
                    variant->ios[i]->op, variant->n_follows + 1, variant->n_follows ? "s" : "");
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_variant(struct import *import, void *item, struct kiln_err *err) {
    static const struct kind param_kind = {.which = KILN_ABI_PARAM,
            .noun = "parameter",
            .field = "params",
            .name_offset = offsetof(struct kiln_param, name),
            .check = check_param};
    static const struct kind kernel_kind = {.which = KILN_ABI_KERNEL,
            .noun = "kernel",
            .field = "kernels",
            .name_offset = offsetof(struct kiln_kernel, name),
            .check = check_kernel};
    static const struct kind io_kind = {
            .which = KILN_ABI_IO, .noun = "io", .field = "ios", .check = check_io};
    struct kiln_variant *variant = item;
    KILN_TRY(kiln_text_check_name(variant->name, KILN_NAME_LOWER, err));
    KILN_TRY(kiln_text_check_line("help", variant->help, err));
    KILN_TRY(check_bits(import, "reserved", &variant->reserved, 0, err));
    if (!variant->plan) {
        return kiln_err_set(err, KILN_STATUS_FILE, "plan is NULL; it is mandatory");
    }
    KILN_TRY(check_slots(import, variant, err));
    KILN_TRY(check_follows(import, variant, err));
    KILN_TRY(import_array(import, &param_kind, &variant->params, &variant->n_params, err));
    KILN_TRY(check_unique(variant->params, variant->n_params, "parameter", param_name, err));
    KILN_TRY(import_array(import, &kernel_kind, &variant->kernels, &variant->n_kernels, err));
    if (variant->n_kernels == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "kernels is empty; a plan needs one to launch");
    }
    KILN_TRY(check_unique(variant->kernels, variant->n_kernels, "kernel", kernel_name, err));
    KILN_TRY(check_devices(import, variant, err));
    KILN_TRY(import_array(import, &io_kind, &variant->ios, &variant->n_ios, err));
    return check_ios(variant, err);
}

static enum kiln_status check_format(struct import *import, void *item, struct kiln_err *err) {
    const struct kiln_format *format = item;
    (void)import;
    KILN_TRY(kiln_text_check_name(format->name, KILN_NAME_LOWER, err));
    KILN_TRY(kiln_text_check_line("layout", format->layout, err));
    if (kiln_dtype_by_name(format->name)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "the name is that of a type; choose another");
    }
    if (format->block_elems == 0 || format->block_bytes == 0 || format->row_multiple == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s is 0; it is at least 1",
                format->block_elems == 0   ? "block_elems"
                : format->block_bytes == 0 ? "block_bytes"
                                           : "row_multiple");
    }
    return KILN_STATUS_OK;
}

static const char *format_name(const void *array, uint32_t i) {
    const struct kiln_format *const *formats = array;
    return formats[i]->name;
}

// Variants may share a name where they fill different slots ("exact" of every op): a slot and a
// name together point to one variant.
static enum kiln_status check_distinct(
        const struct kiln_variant *a, const struct kiln_variant *b, struct kiln_err *err) {
    if (strcmp(a->name, b->name) != 0) {
        return KILN_STATUS_OK;
    }
    for (uint32_t i = 0; i < a->n_slots; i++) {
        for (uint32_t k = 0; k < b->n_slots; k++) {
            if (kiln_slot_overlap(a->slots[i], b->slots[k])) {
                return kiln_err_set(err, KILN_STATUS_FILE,
                        "two variants named '%s' fill the slot '%s'; rename one", a->name,
                        b->slots[k]);
            }
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_plugin(struct import *import, void *item, struct kiln_err *err) {
    static const struct kind variant_kind = {.which = KILN_ABI_VARIANT,
            .noun = "variant",
            .field = "variants",
            .name_offset = offsetof(struct kiln_variant, name),
            .numbered = 1,
            .check = check_variant};
    static const struct kind format_kind = {.which = KILN_ABI_FORMAT,
            .noun = "format",
            .field = "formats",
            .name_offset = offsetof(struct kiln_format, name),
            .check = check_format};
    struct kiln_plugin *plugin = item;
    KILN_TRY(kiln_text_check_name(plugin->name, KILN_NAME_LOWER, err));
    KILN_TRY(kiln_text_check_line("version", plugin->version, err));
    KILN_TRY(kiln_text_check_line("help", plugin->help, err));
    KILN_TRY(import_array(import, &format_kind, &plugin->formats, &plugin->n_formats, err));
    KILN_TRY(check_unique(plugin->formats, plugin->n_formats, "format", format_name, err));
    if (plugin->n_variants == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE, "variants is empty; the plugin offers nothing");
    }
    KILN_TRY(import_array(import, &variant_kind, &plugin->variants, &plugin->n_variants, err));
    for (uint32_t i = 1; i < plugin->n_variants; i++) {
        for (uint32_t k = 0; k < i; k++) {
            KILN_TRY(check_distinct(plugin->variants[k], plugin->variants[i], err));
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_import_plugin(struct kiln_arena *arena, const struct kiln_plugin *entry,
        const struct kiln_plugin **plugin, struct kiln_err *err) {
    static const struct kind plugin_kind = {.which = KILN_ABI_PLUGIN,
            .noun = "struct kiln_plugin",
            .name_offset = offsetof(struct kiln_plugin, name),
            .check = check_plugin};
    // struct_size and the version are the first 8 bytes of every major there will be.
    if (entry->abi_major != KILN_ABI_MAJOR) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "built for plugin ABI %u.%u, this kiln has %d.%d; rebuild the plugin against this "
                "kiln's header or get a kiln with ABI %u",
                entry->abi_major, entry->abi_minor, KILN_ABI_MAJOR, KILN_ABI_MINOR,
                entry->abi_major);
    }
    struct import import = {.arena = arena, .minor = entry->abi_minor};
    void *copy = NULL;
    enum kiln_status status = import_item(&import, &plugin_kind, entry, &copy, err);
    if (status != KILN_STATUS_OK) {
        kiln_err_prefix(err, "kiln_plugin_entry: ");
        return status;
    }
    *plugin = copy;
    return KILN_STATUS_OK;
}
