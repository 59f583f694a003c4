// describe_json: what plugins offer, as JSON.
//
// jansson's *_new functions take the references handed to them also when they fail, and accept NULL
// for "out of memory", so that a document is built without looking and judged at its end.
#include "plugin/describe.h"
#include <jansson.h>
#include <stdlib.h>

static json_t *word_or_null(const char *word) {
    return word ? json_string(word) : json_null();
}

static json_t *words(const char *const *items, uint32_t n) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++) {
        if (json_array_append_new(array, json_string(items[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

// Sets a key, or drops the whole object: *object is NULL once anything has failed.
static void set(json_t **object, const char *key, json_t *value) {
    if (json_object_set_new(*object, key, value) != 0) {
        json_decref(*object);
        *object = NULL;
    }
}

static void append(json_t **array, json_t *value) {
    if (json_array_append_new(*array, value) != 0) {
        json_decref(*array);
        *array = NULL;
    }
}

static json_t *param_json(const struct kiln_param *param) {
    json_t *object = json_object(), *defaults = json_array();
    set(&object, "name", json_string(param->name));
    set(&object, "help", json_string(param->help));
    set(&object, "unit", json_string(param->unit));
    set(&object, "default", json_integer(param->value));
    if (param->allowed) {
        json_t *allowed = json_array();
        for (uint32_t i = 0; i < param->n_allowed; i++) {
            append(&allowed, json_integer(param->allowed[i]));
        }
        set(&object, "allowed", allowed);
    } else {
        set(&object, "min", json_integer(param->min));
        set(&object, "max", json_integer(param->max));
        set(&object, "multiple_of", json_integer(param->multiple_of > 1 ? param->multiple_of : 1));
    }
    set(&object, "regroups", json_boolean(param->flags & KILN_PARAM_REGROUPS));
    for (uint32_t i = 0; i < param->n_defaults; i++) {
        const struct kiln_param_default *row = param->defaults[i];
        json_t *one = json_object();
        set(&one, "head_size", json_integer(row->head_size));
        set(&one, "target_min", json_integer(row->target_min));
        set(&one, "target_max", json_integer(row->target_max));
        set(&one, "value", json_integer(row->value));
        append(&defaults, one);
    }
    set(&object, "defaults", defaults);
    return object;
}

static json_t *kernel_json(const struct kiln_kernel *kernel) {
    json_t *object = json_object();
    set(&object, "name", json_string(kernel->name));
    set(&object, "source", word_or_null(kernel->source ? kernel->source->name : NULL));
    set(&object, "instance", word_or_null(kernel->instance));
    return object;
}

static json_t *ios_json(const struct kiln_variant *variant, int written) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < variant->n_ios; i++) {
        const struct kiln_io *io = variant->ios[i];
        if (kiln_operand_is_written(io->operand) == written) {
            json_t *one = json_object();
            set(&one, "op", json_integer(io->op));
            set(&one, "operand", json_string(kiln_operand_name(io->operand)));
            set(&one, "formats", words(io->formats, io->n_formats));
            append(&array, one);
        }
    }
    return array;
}

static json_t *devices_json(uint32_t devices) {
    json_t *array = json_array();
    if (devices & KILN_DEVICE_HOST) {
        append(&array, json_string("cpu"));
    }
    if (devices & KILN_DEVICE_CUDA) {
        append(&array, json_string("cuda"));
        append(&array, json_string("sim"));
    }
    return array;
}

static json_t *variant_json(const struct kiln_variant *variant) {
    json_t *object = json_object(), *kernels = json_array(), *params = json_array();
    set(&object, "name", json_string(variant->name));
    set(&object, "help", json_string(variant->help));
    set(&object, "slots", words(variant->slots, variant->n_slots));
    set(&object, "role", word_or_null(variant->role));
    set(&object, "follows", words(variant->follows, variant->n_follows));
    set(&object, "devices", devices_json(variant->devices));
    set(&object, "reads", ios_json(variant, 0));
    set(&object, "writes", ios_json(variant, 1));
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        append(&kernels, kernel_json(variant->kernels[i]));
    }
    set(&object, "kernels", kernels);
    for (uint32_t i = 0; i < variant->n_params; i++) {
        append(&params, param_json(variant->params[i]));
    }
    set(&object, "params", params);
    return object;
}

static json_t *format_json(const struct kiln_format *format) {
    json_t *object = json_object();
    set(&object, "name", json_string(format->name));
    set(&object, "block_elems", json_integer(format->block_elems));
    set(&object, "block_bytes", json_integer(format->block_bytes));
    set(&object, "row_multiple", json_integer(format->row_multiple));
    set(&object, "layout", json_string(format->layout));
    return object;
}

// A path that is not UTF-8 cannot stand in JSON: the document says so.
static json_t *path_json(const char *path) {
    json_t *json = json_string(path);
    return json ? json : json_string("(a path that is not UTF-8)");
}

static json_t *plugin_json(const struct kiln_registry *registry, size_t index) {
    const struct kiln_plugin *plugin = kiln_registry_plugins(registry)[index];
    json_t *object = json_object(), *formats = json_array(), *variants = json_array();
    unsigned major, minor;
    kiln_registry_abi(registry, index, &major, &minor);
    set(&object, "name", json_string(plugin->name));
    set(&object, "version", json_string(plugin->version));
    set(&object, "abi", json_sprintf("%u.%u", major, minor));
    set(&object, "path", path_json(kiln_registry_path(registry, index)));
    set(&object, "help", json_string(plugin->help));
    for (uint32_t i = 0; i < plugin->n_formats; i++) {
        append(&formats, format_json(plugin->formats[i]));
    }
    set(&object, "formats", formats);
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        append(&variants, variant_json(plugin->variants[i]));
    }
    set(&object, "variants", variants);
    return object;
}

// Takes the reference.
static enum kiln_status print_json(json_t *json, struct kiln_buf *text, struct kiln_err *err) {
    char *dump = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    if (!dump) {
        return kiln_err_nomem(err, "the description of plugins");
    }
    kiln_buf_puts(text, dump);
    kiln_buf_puts(text, "\n");
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(dump);
    return text->failed ? kiln_err_nomem(err, "the description of plugins") : KILN_STATUS_OK;
}

enum kiln_status kiln_plugin_inspect_json(const struct kiln_registry *registry, size_t index,
        struct kiln_buf *text, struct kiln_err *err) {
    return print_json(plugin_json(registry, index), text, err);
}

enum kiln_status kiln_plugins_list_json(
        const struct kiln_registry *registry, struct kiln_buf *text, struct kiln_err *err) {
    json_t *object = json_object(), *plugins = json_array(), *refused = json_array();
    for (size_t i = 0; i < kiln_registry_count(registry); i++) {
        append(&plugins, plugin_json(registry, i));
    }
    for (size_t i = 0; i < kiln_registry_n_refusals(registry); i++) {
        struct kiln_refusal refusal = kiln_registry_refusal(registry, i);
        json_t *one = json_object();
        set(&one, "path", path_json(refusal.path));
        set(&one, "reason", path_json(refusal.text));
        append(&refused, one);
    }
    set(&object, "abi", json_sprintf("%d.%d", KILN_ABI_MAJOR, KILN_ABI_MINOR));
    set(&object, "plugins", plugins);
    set(&object, "refused", refused);
    return print_json(object, text, err);
}
