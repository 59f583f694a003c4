// plan_copy: what a plugin hands to kiln during plan(), copied deep and brought into this kiln's
// layout.
//
// Looks at sizes, counts and NULL only; whether the contents make sense is plan_check.c's.
#include "plugin/plan_impl.h"

#include "plugin/abi.h"

#include <string.h>

enum {
    MAX_COUNT = 4096, // of any array in a launch
    MAX_BYTES = 4096  // of one BYTES argument
};

static enum kiln_status nomem(struct kiln_err *err) {
    return kiln_err_nomem(err, "a plan");
}

// One struct. The answer is in the builder's arena, in this kiln's layout.
static enum kiln_status copy_struct(struct kiln_plan_builder *builder, enum kiln_abi_struct which,
        const void *source, void *copy, struct kiln_err *err) {
    uint32_t size;
    memcpy(&size, source, sizeof(size));
    KILN_TRY(kiln_abi_check_size(which, size, builder->plugin->abi_minor, err));
    kiln_abi_import(which, copy, source);
    return KILN_STATUS_OK;
}

static enum kiln_status check_array(
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

// An array of pointers to structs; `*array` is the plugin's and becomes ours.
static enum kiln_status copy_structs(struct kiln_plan_builder *builder, enum kiln_abi_struct which,
        const char *field, void *array, uint32_t count, struct kiln_err *err) {
    struct kiln_arena *arena = &builder->planned->arena;
    const char *source;
    memcpy(&source, array, sizeof(source));
    KILN_TRY(check_array(field, source, count, err));
    char *pointers = kiln_arena_calloc(arena, count, sizeof(void *));
    if (!pointers) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < count; i++) {
        const void *item;
        memcpy(&item, source + i * sizeof(item), sizeof(item));
        if (!item) {
            return kiln_err_set(err, KILN_STATUS_FILE, "%s: entry %u is NULL", field, i);
        }
        void *copy = kiln_arena_calloc(arena, 1, kiln_abi_size(which, KILN_ABI_MINOR));
        if (!copy) {
            return nomem(err);
        }
        enum kiln_status status = copy_struct(builder, which, item, copy, err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "%s: entry %u: ", field, i);
            return status;
        }
        memcpy(pointers + i * sizeof(copy), &copy, sizeof(copy));
    }
    memcpy(array, &pointers, sizeof(pointers));
    return KILN_STATUS_OK;
}

static enum kiln_status copy_string(struct kiln_plan_builder *builder, const char *field,
        const char **text, struct kiln_err *err) {
    if (!*text) {
        return kiln_err_set(err, KILN_STATUS_FILE, "%s is NULL; it is mandatory", field);
    }
    *text = kiln_arena_strdup(&builder->planned->arena, *text);
    return *text ? KILN_STATUS_OK : nomem(err);
}

static enum kiln_status copy_strings(struct kiln_plan_builder *builder, const char *field,
        const char *const **strings, uint32_t count, struct kiln_err *err) {
    KILN_TRY(check_array(field, *strings, count, err));
    const char **copies = kiln_arena_calloc(&builder->planned->arena, count, sizeof(*copies));
    if (!copies) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < count; i++) {
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): check_array has refused NULL
        copies[i] = (*strings)[i];
        enum kiln_status status = copy_string(builder, "the text", &copies[i], err);
        if (status != KILN_STATUS_OK) {
            kiln_err_prefix(err, "%s: entry %u: ", field, i);
            return status;
        }
    }
    *strings = copies;
    return KILN_STATUS_OK;
}

// What hangs off an argument.
static enum kiln_status copy_arg_content(
        struct kiln_plan_builder *builder, struct kiln_arg *arg, struct kiln_err *err) {
    struct kiln_arena *arena = &builder->planned->arena;
    if (arg->kind == KILN_ARG_BYTES) {
        if (!arg->bytes || arg->size == 0 || arg->size > MAX_BYTES) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "BYTES of size %llu%s; 1 to %d bytes are passed by value",
                    (unsigned long long)arg->size, arg->bytes ? "" : ", bytes NULL", MAX_BYTES);
        }
        arg->bytes = kiln_arena_copy(arena, arg->bytes, 1, (size_t)arg->size);
        if (!arg->bytes) {
            return nomem(err);
        }
    } else {
        arg->bytes = NULL;
    }
    if (arg->kind != KILN_ARG_TENSOR_MAP) {
        arg->map = NULL;
        return KILN_STATUS_OK;
    }
    if (!arg->map) {
        return kiln_err_set(err, KILN_STATUS_FILE, "TENSOR_MAP without a map (NULL)");
    }
    struct kiln_tensor_map *map = kiln_arena_calloc(arena, 1, sizeof(*map));
    if (!map) {
        return nomem(err);
    }
    enum kiln_status status = copy_struct(builder, KILN_ABI_TENSOR_MAP, arg->map, map, err);
    if (status == KILN_STATUS_FILE) {
        kiln_err_prefix(err, "map: ");
    }
    arg->map = map;
    return status;
}

static enum kiln_status copy_args(struct kiln_plan_builder *builder, const char *field,
        const struct kiln_arg *const **args, uint32_t count, struct kiln_err *err) {
    KILN_TRY(copy_structs(builder, KILN_ABI_ARG, field, args, count, err));
    for (uint32_t i = 0; i < count; i++) {
        struct kiln_arg *arg; // the copy just made, which is ours to write to
        memcpy(&arg, &(*args)[i], sizeof(arg));
        enum kiln_status status = copy_arg_content(builder, arg, err);
        if (status == KILN_STATUS_FILE) {
            kiln_err_prefix(err, "%s: entry %u: ", field, i);
        }
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}

static const struct kiln_kernel *find_kernel(const struct kiln_variant *variant, const char *name) {
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        if (strcmp(variant->kernels[i]->name, name) == 0) {
            return variant->kernels[i];
        }
    }
    return NULL;
}

enum kiln_status kiln_plan_copy_launch(struct kiln_plan_builder *builder,
        const struct kiln_launch *source, struct kiln_planned_launch *launch,
        struct kiln_err *err) {
    struct kiln_launch *record = &launch->record;
    KILN_TRY(copy_struct(builder, KILN_ABI_LAUNCH, source, record, err));
    KILN_TRY(copy_string(builder, "kernel", &record->kernel, err));
    launch->kernel = find_kernel(builder->variant, record->kernel);
    KILN_TRY(copy_args(builder, "args", &record->args, record->n_args, err));
    KILN_TRY(copy_strings(builder, "defines", &record->defines, record->n_defines, err));
    KILN_TRY(copy_structs(
            builder, KILN_ABI_SMEM_SITE, "sites", &record->sites, record->n_sites, err));
    for (uint32_t i = 0; i < record->n_sites; i++) {
        struct kiln_smem_site *site;
        memcpy(&site, &record->sites[i], sizeof(site));
        KILN_TRY(copy_string(builder, "a site's name", &site->name, err));
    }
    return record->sum_order ? copy_string(builder, "sum_order", &record->sum_order, err)
                             : KILN_STATUS_OK;
}

enum kiln_status kiln_plan_copy_preparation(struct kiln_plan_builder *builder,
        const struct kiln_preparation *source, struct kiln_planned_preparation *preparation,
        struct kiln_err *err) {
    struct kiln_arena *arena = &builder->planned->arena;
    struct kiln_preparation *record = &preparation->record;
    KILN_TRY(copy_struct(builder, KILN_ABI_PREPARATION, source, record, err));
    KILN_TRY(copy_string(builder, "id", &record->id, err));
    KILN_TRY(copy_args(builder, "sources", &record->sources, record->n_sources, err));
    KILN_TRY(check_array("buffers", record->buffer_bytes, record->n_buffers, err));
    record->buffer_bytes = kiln_arena_copy(
            arena, record->buffer_bytes, record->n_buffers, sizeof(*record->buffer_bytes));
    if (!record->buffer_bytes) {
        return nomem(err);
    }
    KILN_TRY(copy_strings(builder, "keys", &record->keys, record->n_keys, err));
    const struct kiln_launch *const *launches = record->launches;
    KILN_TRY(check_array("launches", launches, record->n_launches, err));
    record->launches = NULL;
    preparation->launches =
            kiln_arena_calloc(arena, record->n_launches, sizeof(*preparation->launches));
    if (!preparation->launches) {
        return nomem(err);
    }
    for (uint32_t i = 0; i < record->n_launches; i++) {
        enum kiln_status status = launches[i] ? kiln_plan_copy_launch(builder, launches[i],
                                                        &preparation->launches[i], err)
                                              : kiln_err_set(err, KILN_STATUS_FILE, "it is NULL");
        if (status == KILN_STATUS_FILE) {
            kiln_err_prefix(err, "launch %u: ", i);
        }
        KILN_TRY(status);
    }
    return KILN_STATUS_OK;
}
