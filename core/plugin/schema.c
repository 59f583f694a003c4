// schema: geometry parameters: whether a declaration makes sense, which values it allows.
#include "plugin/schema.h"

#include "plugin/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static int64_t step_of(const struct kiln_param *param) {
    return param->multiple_of > 1 ? param->multiple_of : 1;
}

int kiln_param_allows(const struct kiln_param *param, int64_t value) {
    if (!param->allowed) {
        return value >= param->min && value <= param->max && value % step_of(param) == 0;
    }
    for (uint32_t i = 0; i < param->n_allowed; i++) {
        if (param->allowed[i] == value) {
            return 1;
        }
    }
    return 0;
}

int64_t kiln_param_smallest(const struct kiln_param *param) {
    int64_t step = step_of(param);
    int64_t smallest = param->allowed ? param->allowed[0] : param->min;
    if (!param->allowed && smallest % step != 0) {
        // C truncates towards zero: a negative minimum has its multiple above it already.
        smallest = smallest / step * step + (smallest > 0 ? step : 0);
    }
    for (uint32_t i = 1; param->allowed && i < param->n_allowed; i++) {
        smallest = param->allowed[i] < smallest ? param->allowed[i] : smallest;
    }
    return smallest;
}

int64_t kiln_param_largest(const struct kiln_param *param) {
    int64_t step = step_of(param);
    int64_t largest = param->allowed ? param->allowed[0] : param->max;
    if (!param->allowed && largest % step != 0) {
        largest = largest / step * step - (largest < 0 ? step : 0);
    }
    for (uint32_t i = 1; param->allowed && i < param->n_allowed; i++) {
        largest = param->allowed[i] > largest ? param->allowed[i] : largest;
    }
    return largest;
}

int64_t kiln_param_default_value(const struct kiln_param *param, int32_t head_size, int32_t cc) {
    for (uint32_t i = 0; i < param->n_defaults; i++) {
        const struct kiln_param_default *row = param->defaults[i];
        if ((row->head_size == 0 || row->head_size == head_size) &&
                (row->target_min == 0 || cc >= row->target_min) &&
                (row->target_max == 0 || cc <= row->target_max)) {
            return row->value;
        }
    }
    return param->value;
}

void kiln_param_print_range(const struct kiln_param *param, struct kiln_buf *text) {
    for (uint32_t i = 0; param->allowed && i < param->n_allowed; i++) {
        kiln_buf_printf(text, "%s%" PRId64, i ? ", " : "", param->allowed[i]);
    }
    if (!param->allowed) {
        kiln_buf_printf(text, "%" PRId64 " to %" PRId64, param->min, param->max);
        if (param->multiple_of > 1) {
            kiln_buf_printf(text, ", a multiple of %" PRId64, param->multiple_of);
        }
    }
}

static enum kiln_status check_values(const struct kiln_param *param, struct kiln_err *err) {
    if ((param->allowed != NULL) != (param->n_allowed != 0)) {
        return kiln_err_set(err, KILN_STATUS_FILE, "allowed is %s, n_allowed is %u",
                param->allowed ? "set" : "NULL", param->n_allowed);
    }
    if (param->multiple_of < 0 || param->multiple_of > INT64_MAX / 2) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "multiple_of is %" PRId64 "; 0 and 1 stand for any value", param->multiple_of);
    }
    // In this order: with min above max the smallest and the largest value mean nothing.
    if (!param->allowed && (param->min > param->max || param->min < -INT64_MAX / 2 ||
                                   param->max > INT64_MAX / 2)) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "no range: min %" PRId64 ", max %" PRId64 "; give both, or a list in allowed",
                param->min, param->max);
    }
    if (kiln_param_smallest(param) > kiln_param_largest(param)) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "no value is a multiple of %" PRId64 " from %" PRId64 " to %" PRId64,
                param->multiple_of, param->min, param->max);
    }
    for (uint32_t i = 0; i < param->n_allowed; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (param->allowed[i] == param->allowed[k]) {
                return kiln_err_set(err, KILN_STATUS_FILE, "allowed lists %" PRId64 " twice",
                        param->allowed[i]);
            }
        }
    }
    return KILN_STATUS_OK;
}

static enum kiln_status check_default(const struct kiln_param *param, const char *which,
        uint32_t number, int64_t value, struct kiln_err *err) {
    if (kiln_param_allows(param, value)) {
        return KILN_STATUS_OK;
    }
    struct kiln_buf range = {0};
    char ordinal[16] = "";
    kiln_param_print_range(param, &range);
    if (number) {
        (void)snprintf(ordinal, sizeof(ordinal), " %u", number);
    }
    enum kiln_status status = kiln_err_set(err, KILN_STATUS_FILE,
            "%s%s is %" PRId64 ", allowed: %s", which, ordinal, value,
            range.data && !range.failed ? range.data : "see min, max and multiple_of");
    kiln_buf_finish(&range);
    return status;
}

enum kiln_status kiln_param_check(const struct kiln_param *param, struct kiln_err *err) {
    KILN_TRY(kiln_text_check_name(param->name, KILN_NAME_UPPER, err));
    if (strncmp(param->name, "KILN_", 5) == 0) {
        return kiln_err_set(err, KILN_STATUS_FILE,
                "names that begin with KILN_ are kiln's own defines; choose another");
    }
    KILN_TRY(kiln_text_check_line("help", param->help, err));
    KILN_TRY(check_values(param, err));
    KILN_TRY(check_default(param, "the default", 0, param->value, err));
    for (uint32_t i = 0; i < param->n_defaults; i++) {
        const struct kiln_param_default *row = param->defaults[i];
        KILN_TRY(check_default(param, "the value of default", i + 1, row->value, err));
        if (row->target_max != 0 && row->target_min > row->target_max) {
            return kiln_err_set(err, KILN_STATUS_FILE,
                    "default %u: target_min %d is above target_max %d", i + 1, row->target_min,
                    row->target_max);
        }
    }
    return KILN_STATUS_OK;
}

void kiln_geometry_print(const struct kiln_geometry *geometry, struct kiln_buf *text) {
    for (uint32_t i = 0; i < geometry->n_values; i++) {
        kiln_buf_printf(text, " %s=%" PRId64, geometry->names[i], geometry->values[i]);
    }
}

struct json_t *kiln_geometry_json(const struct kiln_geometry *geometry) {
    json_t *object = json_object();
    for (uint32_t i = 0; i < geometry->n_values; i++) {
        if (json_object_set_new(object, geometry->names[i], json_integer(geometry->values[i])) !=
                0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}
