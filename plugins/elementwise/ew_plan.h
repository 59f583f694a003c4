// ew_plan: the variants of the plugin, one .c a slot family, and their kernels.
#ifndef ELEMENTWISE_EW_PLAN_H
#define ELEMENTWISE_EW_PLAN_H

#include "../common/gpu_plan.h"

#include "ew_args.cuh.h" // kernels_src/elementwise/ew_args.cuh, copied by the build

// A parameter of threads a block. flags: enum kiln_param_flag.
extern const int64_t ew_threads_values[6];
#define EW_PARAM(variable, key, default_value, text, param_flags) \
    static const struct kiln_param variable = {.struct_size = sizeof(struct kiln_param), \
            .flags = (param_flags), \
            .name = (key), \
            .help = (text), \
            .unit = "threads", \
            .value = (default_value), \
            .allowed = ew_threads_values, \
            .n_allowed = GPU_COUNT(ew_threads_values)}

// The parameter THREADS of a variant that has no other.
#define EW_THREADS(variable, default_value, text, param_flags) \
    EW_PARAM(variable, "THREADS", default_value, text, param_flags); \
    static const struct kiln_param *const variable##_list[] = {&variable}

// One variant with one slot.
#define EW_VARIANT(object, label, text, slot, plan_function, param_list, kernel_list) \
    static const char *const object##_slots[] = {slot}; \
    const struct kiln_variant object = {.struct_size = sizeof(struct kiln_variant), \
            .devices = KILN_DEVICE_CUDA, \
            .name = (label), \
            .help = (text), \
            .slots = object##_slots, \
            .params = (param_list), \
            .kernels = (kernel_list), \
            .n_slots = 1, \
            .n_params = GPU_COUNT(param_list), \
            .n_kernels = GPU_COUNT(kernel_list), \
            .plan = (plan_function)}

extern const struct kiln_variant ew_variant_norm, ew_variant_rope_kv, ew_variant_activation;
extern const struct kiln_variant ew_variant_norm_q8, ew_variant_activation_q8;
extern const struct kiln_variant ew_variant_embed, ew_variant_argmax;

extern const struct kiln_kernel ew_kernel_norm, ew_kernel_rope_kv, ew_kernel_activation;
extern const struct kiln_kernel ew_kernel_embed, ew_kernel_argmax_part, ew_kernel_argmax_last;

#endif
