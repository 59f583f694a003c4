// arg: reads argument texts, makes their buffers, lays out the parameter block.
#include "device/sim/arg.h"

#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (UINT64_C(1) << 36)

enum {
    MAX_FIELDS = 5
};

struct type {
    const char *name;
    char kind; // of .npy
    uint32_t bytes;
    int bf16;
};

static const struct type types[] = {{"i8", 'i', 1, 0}, {"i16", 'i', 2, 0}, {"i32", 'i', 4, 0},
        {"i64", 'i', 8, 0}, {"u8", 'u', 1, 0}, {"u16", 'u', 2, 0}, {"u32", 'u', 4, 0},
        {"u64", 'u', 8, 0}, {"f16", 'f', 2, 0}, {"bf16", 'u', 2, 1}, {"f32", 'f', 4, 0},
        {"f64", 'f', 8, 0}};
enum {
    N_TYPES = sizeof(types) / sizeof(types[0])
};

// ---- Texts --------------------------------------------------------------------------------------

static enum kiln_status usage(const char *text, const char *what, struct kiln_err *err) {
    return kiln_err_set(err, KILN_STATUS_USAGE,
            "--arg %s: %s; an argument is in:F.npy, inout:F.npy[:G.npy], out:TYPE:COUNT:F.npy, "
            "zeros:TYPE:COUNT, ramp:TYPE:COUNT, rand:TYPE:COUNT[:SEED], TYPE:NUMBER, bytes:HEX or "
            "null; TYPE is i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64",
            text, what);
}

struct fields {
    char *copy;
    const char *field[MAX_FIELDS];
    size_t count;
};

// Cuts at ':', at most into `max` fields: a file's name may hold one.
static enum kiln_status split(
        struct fields *fields, const char *text, size_t max, struct kiln_err *err) {
    fields->count = 0;
    fields->copy = kiln_strdup(text);
    if (!fields->copy) {
        return kiln_err_nomem(err, "an argument");
    }
    char *at = fields->copy;
    while (at) {
        char *colon = fields->count + 1 < max ? strchr(at, ':') : NULL;
        if (colon) {
            *colon = '\0';
        }
        fields->field[fields->count++] = at;
        at = colon ? colon + 1 : NULL;
    }
    return KILN_STATUS_OK;
}

static const struct type *type_named(const char *name) {
    for (size_t i = 0; i < N_TYPES; i++) {
        if (strcmp(types[i].name, name) == 0) {
            return &types[i];
        }
    }
    return NULL;
}

// "64x128" into the array's shape.
static enum kiln_status shape_of(struct kiln_sim_arg *arg, const char *text, struct kiln_err *err) {
    struct kiln_npy *array = &arg->array;
    array->count = 1;
    for (const char *at = text;;) {
        char *end = NULL;
        errno = 0;
        unsigned long long value = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : 0;
        if (value == 0 || !end || errno || array->n_dims == KILN_NPY_DIMS ||
                value > MAX_BYTES / array->bytes / array->count) {
            return usage(arg->text, "COUNT is a number above 0 or a shape such as 64x128", err);
        }
        array->dims[array->n_dims++] = value;
        array->count *= value;
        if (*end == '\0') {
            return KILN_STATUS_OK;
        }
        if (*end != 'x') {
            return usage(arg->text, "COUNT is a number above 0 or a shape such as 64x128", err);
        }
        at = end + 1;
    }
}

// ---- Numbers ------------------------------------------------------------------------------------

// To nearest even, as the hardware's conversion: 10 bits of mantissa, 5 of exponent.
static uint16_t to_f16(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isnan(value)) {
        return 0x7fff;
    }
    if (size >= 65520.0) {
        return sign | 0x7c00;
    }
    int exponent;
    (void)frexp(size, &exponent);
    int step = exponent - 11 < -24 ? -24 : exponent - 11; // of the last bit
    double units = nearbyint(ldexp(size, -step));
    // units has at most 11 bits; the exponent field adds the rest.
    uint32_t bits = (uint32_t)units + ((uint32_t)(step + 24) << 10);
    return (uint16_t)(sign | bits);
}

static uint16_t to_bf16(double value) {
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    if (isnan(value)) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void put_real(const struct type *type, double value, void *to) {
    float narrow = (float)value;
    uint16_t half = type->bf16 ? to_bf16(value) : to_f16(value);
    if (type->bytes == 8) {
        memcpy(to, &value, 8);
    } else if (type->bytes == 4) {
        memcpy(to, &narrow, 4);
    } else {
        memcpy(to, &half, 2);
    }
}

static int is_real(const struct type *type) {
    return type->kind == 'f' || type->bf16;
}

static enum kiln_status number(
        struct kiln_sim_arg *arg, const struct type *type, const char *text, struct kiln_err *err) {
    char *end = NULL;
    uint64_t bits = 0;
    int fits = *text != '\0' && *text != ' ';
    errno = 0;
    if (is_real(type)) {
        double value = strtod(text, &end);
        put_real(type, value, &bits);
    } else if (type->kind == 'i') {
        long long value = strtoll(text, &end, 0);
        unsigned shift = 64 - 8 * type->bytes;
        bits = (uint64_t)value;
        fits = fits && (int64_t)(bits << shift) >> shift == value;
    } else {
        bits = strtoull(text, &end, 0);
        fits = fits && *text != '-' && (type->bytes == 8 || bits >> (8 * type->bytes) == 0);
    }
    if (!fits || errno == ERANGE || *end) {
        return usage(arg->text, "it is no number of this type", err);
    }
    arg->value = kiln_alloc(8);
    if (!arg->value) {
        return kiln_err_nomem(err, "an argument");
    }
    memcpy(arg->value, &bits, 8);
    arg->value_bytes = type->bytes;
    return KILN_STATUS_OK;
}

static enum kiln_status hex_bytes(
        struct kiln_sim_arg *arg, const char *text, struct kiln_err *err) {
    size_t len = strlen(text);
    if (len == 0 || len % 2 != 0 || len > 2 * 4096 ||
            strspn(text, "0123456789abcdefABCDEF") != len) {
        return usage(arg->text, "HEX is 1 to 4096 bytes of two hexadecimal digits each", err);
    }
    arg->value = kiln_alloc(len / 2);
    if (!arg->value) {
        return kiln_err_nomem(err, "an argument");
    }
    for (size_t i = 0; i < len / 2; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        arg->value[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    arg->value_bytes = (uint32_t)(len / 2);
    return KILN_STATUS_OK;
}

// ---- Buffers ------------------------------------------------------------------------------------

static uint64_t next_random(uint64_t *state) { // SplitMix64
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void fill(struct kiln_sim_arg *arg, const struct type *type, char how, uint64_t seed) {
    uint8_t *to = arg->array.data;
    for (uint64_t i = 0; i < arg->array.count; i++, to += type->bytes) {
        uint64_t bits = how == 'r' ? i : next_random(&seed);
        if (is_real(type)) {
            put_real(type, how == 'r' ? (double)i : (double)(int64_t)bits * 0x1p-63, to);
        } else {
            memcpy(to, &bits, type->bytes);
        }
    }
}

static enum kiln_status blank_buffer(struct kiln_sim_arg *arg, const struct type *type,
        const char *shape, struct kiln_err *err) {
    if (!type) {
        return usage(arg->text, "TYPE is unknown", err);
    }
    arg->is_buffer = 1;
    arg->array.kind = type->kind;
    arg->array.bytes = type->bytes;
    KILN_TRY(shape_of(arg, shape, err));
    arg->array.data = kiln_calloc(arg->array.count, type->bytes);
    return arg->array.data ? KILN_STATUS_OK : kiln_err_nomem(err, "a buffer");
}

static enum kiln_status save_to(struct kiln_sim_arg *arg, const char *path, struct kiln_err *err) {
    if (!*path) {
        return usage(arg->text, "a file's name is missing", err);
    }
    arg->save = kiln_strdup(path);
    return arg->save ? KILN_STATUS_OK : kiln_err_nomem(err, "an argument");
}

static int is_seed(const char *text, uint64_t *seed) {
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 0);
    return *text >= '0' && *text <= '9' && !errno && !*end;
}

static enum kiln_status generated(
        struct kiln_sim_arg *arg, const struct fields *fields, struct kiln_err *err) {
    const char *how = fields->field[0];
    size_t at = 3;
    uint64_t seed = 0;
    if (fields->count < 3) {
        return usage(arg->text, "TYPE or COUNT is missing", err);
    }
    const struct type *type = type_named(fields->field[1]);
    KILN_TRY(blank_buffer(arg, type, fields->field[2], err));
    if (strcmp(how, "rand") == 0 && at < fields->count) {
        if (!is_seed(fields->field[at++], &seed)) {
            return usage(arg->text, "SEED is a whole number", err);
        }
    }
    if (strcmp(how, "zeros") != 0) {
        fill(arg, type, how[1] == 'a' && how[2] == 'm' ? 'r' : '?', seed);
    }
    if (at < fields->count) {
        KILN_TRY(save_to(arg, fields->field[at++], err));
    }
    return at < fields->count ? usage(arg->text, "it has a field too many", err) : KILN_STATUS_OK;
}

static enum kiln_status from_file(
        struct kiln_sim_arg *arg, const struct fields *fields, struct kiln_err *err) {
    int in = strcmp(fields->field[0], "in") == 0;
    arg->is_buffer = 1;
    arg->read_only = in;
    if (fields->count < 2 || !*fields->field[1]) {
        return usage(arg->text, "a file's name is missing", err);
    }
    KILN_TRY(kiln_npy_read(&arg->array, fields->field[1], err));
    if (arg->array.count == 0) {
        return kiln_err_set(
                err, KILN_STATUS_FILE, "%s: an array without elements", fields->field[1]);
    }
    return in ? KILN_STATUS_OK
              : save_to(arg, fields->count > 2 ? fields->field[2] : fields->field[1], err);
}

static enum kiln_status read_fields(
        struct kiln_sim_arg *arg, const struct fields *fields, struct kiln_err *err) {
    const char *how = fields->field[0];
    const struct type *type = type_named(how);
    if (strcmp(how, "out") == 0) {
        if (fields->count != 4) {
            return usage(arg->text, "TYPE, COUNT or the file's name is missing", err);
        }
        arg->blank = 1;
        KILN_TRY(blank_buffer(arg, type_named(fields->field[1]), fields->field[2], err));
        return save_to(arg, fields->field[3], err);
    }
    if (strcmp(how, "in") == 0 || strcmp(how, "inout") == 0) {
        return from_file(arg, fields, err);
    }
    if (strcmp(how, "zeros") == 0 || strcmp(how, "ramp") == 0 || strcmp(how, "rand") == 0) {
        return generated(arg, fields, err);
    }
    if (strcmp(how, "null") == 0 && fields->count == 1) {
        return number(arg, type_named("u64"), "0", err);
    }
    if (fields->count == 2 && strcmp(how, "bytes") == 0) {
        return hex_bytes(arg, fields->field[1], err);
    }
    if (fields->count == 2 && type) {
        return number(arg, type, fields->field[1], err);
    }
    return usage(arg->text, "what it is is unknown", err);
}

enum kiln_status kiln_sim_arg_read(
        struct kiln_sim_arg *arg, const char *text, struct kiln_err *err) {
    struct fields fields;
    size_t max = strncmp(text, "in:", 3) == 0      ? 2
                 : strncmp(text, "inout:", 6) == 0 ? 3
                 : strncmp(text, "out:", 4) == 0   ? 4
                                                   : MAX_FIELDS;
    *arg = (struct kiln_sim_arg){.text = text};
    enum kiln_status status = split(&fields, text, max, err);
    if (status == KILN_STATUS_OK) {
        status = read_fields(arg, &fields, err);
    }
    kiln_free(fields.copy);
    return status;
}

void kiln_sim_arg_finish(struct kiln_sim_arg *arg) {
    kiln_npy_finish(&arg->array);
    kiln_free(arg->save);
    kiln_free(arg->value);
    *arg = (struct kiln_sim_arg){0};
}

// ---- In the machine -----------------------------------------------------------------------------

static enum kiln_status bind_one(struct kiln_sim *sim, const struct kiln_ptx_param *param,
        size_t number_of, struct kiln_sim_arg *arg, uint8_t *params, struct kiln_err *err) {
    char name[256];
    uint64_t bytes = arg->array.count * arg->array.bytes;
    uint32_t wanted = arg->is_buffer ? 8 : arg->value_bytes;
    if (wanted != param->bytes) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--arg %s: parameter %zu (%s) has %u bytes, this has %u%s", arg->text, number_of,
                param->name, param->bytes, wanted, arg->is_buffer ? " (an address)" : "");
    }
    // Of one size, but read as another number altogether: 2 as a float is 2.8e-45.
    int real = param->type == KILN_PTX_F32 || param->type == KILN_PTX_F64;
    if (real && !arg->is_buffer && (arg->text[0] == 'i' || arg->text[0] == 'u')) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "--arg %s: parameter %zu (%s) is a float: f%u:… is meant", arg->text, number_of,
                param->name, 8 * param->bytes);
    }
    if (!arg->is_buffer) {
        memcpy(params + param->offset, arg->value, arg->value_bytes);
        return KILN_STATUS_OK;
    }
    (void)snprintf(name, sizeof(name), "argument %zu (%.200s)", number_of, arg->text);
    if (arg->blank) {
        KILN_TRY(kiln_sim_alloc(sim, name, bytes, &arg->address, err));
    } else {
        KILN_TRY(kiln_sim_map(
                sim, name, arg->array.data, bytes, arg->read_only, &arg->address, err));
    }
    memcpy(params + param->offset, &arg->address, 8);
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sim_args_bind(struct kiln_sim *sim, const struct kiln_ptx_kernel *kernel,
        struct kiln_sim_arg *args, size_t count, uint8_t *params, struct kiln_err *err) {
    const struct kiln_ptx_function *entry = &kernel->functions[0];
    if (count != entry->n_params) {
        return kiln_err_set(err, KILN_STATUS_USAGE, "%s has %u parameters, and %zu --arg are given",
                kernel->name, entry->n_params, count);
    }
    for (size_t i = 0; i < count; i++) {
        KILN_TRY(bind_one(sim, &entry->params[i], i + 1, &args[i], params, err));
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sim_args_save(
        struct kiln_sim *sim, struct kiln_sim_arg *args, size_t count, struct kiln_err *err) {
    for (size_t i = 0; i < count; i++) {
        struct kiln_sim_arg *arg = &args[i];
        if (arg->blank) {
            KILN_TRY(kiln_sim_read(
                    sim, arg->array.data, arg->address, arg->array.count * arg->array.bytes, err));
        }
        if (arg->save) {
            KILN_TRY(kiln_npy_write(&arg->array, arg->save, err));
        }
    }
    return KILN_STATUS_OK;
}
