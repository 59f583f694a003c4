// describe: what plugins offer, as text for people. The same as JSON is in describe_json.c.
#include "plugin/describe.h"

#include "plugin/schema.h"

#include <inttypes.h>
#include <string.h>

static const char *const operand_names[] = {
        [KILN_OPERAND_IN] = "in",
        [KILN_OPERAND_OUT] = "out",
        [KILN_OPERAND_WEIGHT] = "weight",
        [KILN_OPERAND_BIAS] = "bias",
        [KILN_OPERAND_RESIDUAL] = "residual",
        [KILN_OPERAND_GATE] = "gate",
        [KILN_OPERAND_UP] = "up",
        [KILN_OPERAND_Q] = "q",
        [KILN_OPERAND_K] = "k",
        [KILN_OPERAND_V] = "v",
        [KILN_OPERAND_K_CACHE] = "k_cache",
        [KILN_OPERAND_V_CACHE] = "v_cache",
        [KILN_OPERAND_Q_NORM] = "q_norm",
        [KILN_OPERAND_K_NORM] = "k_norm",
        [KILN_OPERAND_ROPE_FREQS] = "rope_freqs",
        [KILN_OPERAND_IDS] = "ids",
        [KILN_OPERAND_POSITIONS] = "positions",
        [KILN_OPERAND_N_TOKENS] = "n_tokens",
        [KILN_OPERAND_KV_LEN] = "kv_len",
        [KILN_OPERAND_N_PAST] = "n_past",
        [KILN_OPERAND_N_SEQ] = "n_seq",
        [KILN_OPERAND_SEQ_START] = "seq_start",
        [KILN_OPERAND_PAGE_TABLE] = "page_table",
};

const char *kiln_operand_name(uint32_t operand) {
    uint32_t n = sizeof(operand_names) / sizeof(operand_names[0]);
    return operand < n && operand_names[operand] ? operand_names[operand] : "?";
}

uint32_t kiln_operand_by_name(const char *name) {
    uint32_t n = sizeof(operand_names) / sizeof(operand_names[0]);
    for (uint32_t i = 1; i < n; i++) {
        if (operand_names[i] && strcmp(operand_names[i], name) == 0) {
            return i;
        }
    }
    return 0;
}

int kiln_operand_is_written(uint32_t operand) {
    return operand == KILN_OPERAND_OUT || operand == KILN_OPERAND_K_CACHE ||
           operand == KILN_OPERAND_V_CACHE;
}

const struct kiln_tensor *kiln_op_tensor(const struct kiln_op *op, uint32_t operand) {
    for (uint32_t i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->operand == operand) {
            return op->operands[i];
        }
    }
    return NULL;
}

static const char *device_names(uint32_t devices) {
    static const char *const names[] = {"none", "cpu", "cuda, sim", "cpu, cuda, sim"};
    return names[devices & (KILN_DEVICE_HOST | KILN_DEVICE_CUDA)];
}

static void print_words(struct kiln_buf *text, const char *const *words, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        kiln_buf_printf(text, "%s%s", i ? ", " : "", words[i]);
    }
}

static void print_head(const struct kiln_registry *registry, size_t index, struct kiln_buf *text) {
    const struct kiln_plugin *plugin = kiln_registry_plugins(registry)[index];
    unsigned major, minor;
    kiln_registry_abi(registry, index, &major, &minor);
    kiln_buf_printf(text, "%s %s (ABI %u.%u): %s\n  %s\n", plugin->name, plugin->version, major,
            minor, plugin->help, kiln_registry_path(registry, index));
}

void kiln_plugins_list(const struct kiln_registry *registry, struct kiln_buf *text) {
    size_t n = kiln_registry_count(registry), n_refused = kiln_registry_n_refusals(registry);
    for (size_t i = 0; i < n; i++) {
        const struct kiln_plugin *plugin = kiln_registry_plugins(registry)[i];
        print_head(registry, i, text);
        for (uint32_t k = 0; k < plugin->n_variants; k++) {
            const struct kiln_variant *variant = plugin->variants[k];
            kiln_buf_printf(text, "  %-16s ", variant->name);
            print_words(text, variant->slots, variant->n_slots);
            kiln_buf_printf(text, " [%s]\n", device_names(variant->devices));
        }
    }
    if (n == 0) {
        kiln_buf_puts(text, "no plugin found; see KILN_PLUGIN_PATH and --plugin-dir\n");
    }
    for (size_t i = 0; i < n_refused; i++) {
        kiln_buf_printf(text, "refused: %s\n", kiln_registry_refusal(registry, i).text);
    }
}

static void print_defaults(const struct kiln_param *param, struct kiln_buf *text) {
    for (uint32_t i = 0; i < param->n_defaults; i++) {
        const struct kiln_param_default *row = param->defaults[i];
        kiln_buf_printf(text, "%s%" PRId64, i ? "; " : "; first of: ", row->value);
        if (row->head_size) {
            kiln_buf_printf(text, " for head size %d", row->head_size);
        }
        if (row->target_min) {
            kiln_buf_printf(text, " from compute capability %d.%d", row->target_min / 10,
                    row->target_min % 10);
        }
        if (row->target_max) {
            kiln_buf_printf(text, " up to compute capability %d.%d", row->target_max / 10,
                    row->target_max % 10);
        }
    }
}

static void print_param(const struct kiln_param *param, struct kiln_buf *text) {
    kiln_buf_printf(text, "    %-16s default %" PRId64 "%s%s; allowed: ", param->name, param->value,
            param->unit[0] ? " " : "", param->unit);
    kiln_param_print_range(param, text);
    print_defaults(param, text);
    kiln_buf_printf(text, "%s\n        %s\n",
            param->flags & KILN_PARAM_REGROUPS ? "; regroups float sums" : "", param->help);
}

static void print_ios(const struct kiln_variant *variant, struct kiln_buf *text) {
    for (uint32_t i = 0; i < variant->n_ios; i++) {
        const struct kiln_io *io = variant->ios[i];
        kiln_buf_printf(text, "  %-7s ", kiln_operand_is_written(io->operand) ? "writes" : "reads");
        if (variant->n_follows) {
            kiln_buf_printf(text, "op %u ", io->op);
        }
        kiln_buf_printf(text, "%s: ", kiln_operand_name(io->operand));
        print_words(text, io->formats, io->n_formats);
        kiln_buf_puts(text, "\n");
    }
}

static void print_variant(const struct kiln_variant *variant, struct kiln_buf *text) {
    kiln_buf_printf(text, "\nvariant %s: %s\n  fills   ", variant->name, variant->help);
    print_words(text, variant->slots, variant->n_slots);
    if (variant->role) {
        kiln_buf_printf(text, " (role %s)", variant->role);
    }
    if (variant->n_follows) {
        kiln_buf_puts(text, " followed by ");
        print_words(text, variant->follows, variant->n_follows);
    }
    kiln_buf_printf(text, "\n  devices %s\n  kernels ", device_names(variant->devices));
    for (uint32_t i = 0; i < variant->n_kernels; i++) {
        const struct kiln_kernel *kernel = variant->kernels[i];
        kiln_buf_printf(text, "%s%s (%s)", i ? ", " : "", kernel->name,
                kernel->source ? kernel->source->name : "host function");
    }
    kiln_buf_puts(text, "\n");
    print_ios(variant, text);
    kiln_buf_puts(text, variant->n_params ? "  geometry\n" : "  no geometry\n");
    for (uint32_t i = 0; i < variant->n_params; i++) {
        print_param(variant->params[i], text);
    }
}

void kiln_plugin_inspect(
        const struct kiln_registry *registry, size_t index, struct kiln_buf *text) {
    const struct kiln_plugin *plugin = kiln_registry_plugins(registry)[index];
    print_head(registry, index, text);
    for (uint32_t i = 0; i < plugin->n_formats; i++) {
        const struct kiln_format *format = plugin->formats[i];
        kiln_buf_printf(text, "\nformat %s: %u values in %u bytes, rows padded to %u: %s\n",
                format->name, format->block_elems, format->block_bytes, format->row_multiple,
                format->layout);
    }
    for (uint32_t i = 0; i < plugin->n_variants; i++) {
        print_variant(plugin->variants[i], text);
    }
}
