// convert: cvt in general: any source and destination type, every rounding mode. What kernels do in
// their inner loops is in lanes_list.inc.
#include "device/sim/run_impl.h"

#include "device/sim/lanes_impl.h"

struct format {
    int exponent_bits, fraction_bits;
};

static int is_integer(uint8_t type) {
    return (type >= KILN_PTX_U4 && type <= KILN_PTX_S64) ||
           (type >= KILN_PTX_B8 && type <= KILN_PTX_B64);
}

static int is_signed(uint8_t type) {
    return type == KILN_PTX_S4 || type == KILN_PTX_S8 || type == KILN_PTX_S16 ||
           type == KILN_PTX_S32 || type == KILN_PTX_S64;
}

static struct format format_of(uint8_t type) {
    return type == KILN_PTX_F16 || type == KILN_PTX_F16X2     ? (struct format){5, 10}
           : type == KILN_PTX_BF16 || type == KILN_PTX_BF16X2 ? (struct format){8, 7}
           : type == KILN_PTX_TF32                            ? (struct format){8, 10}
           : type == KILN_PTX_F32                             ? (struct format){8, 23}
                                                              : (struct format){11, 52};
}

// Does rounding add one? `kept` is odd; the rest against half of the last place.
static int rounds_up(uint8_t round, int negative, int odd, int rest_to_half, int rest) {
    switch (round) {
    case KILN_PTX_RZ:
    case KILN_PTX_RZI:
        return 0;
    case KILN_PTX_RM:
    case KILN_PTX_RMI:
        return negative && rest;
    case KILN_PTX_RP:
    case KILN_PTX_RPI:
        return !negative && rest;
    case KILN_PTX_RNA:
        return rest_to_half >= 0;
    default:
        return rest_to_half > 0 || (rest_to_half == 0 && odd);
    }
}

// significand * 2^exponent in a format, rounded once; significand not 0.
static uint64_t encode(
        int negative, uint64_t significand, int exponent, struct format f, uint8_t round) {
    int bias = (1 << (f.exponent_bits - 1)) - 1;
    int top = 63 - __builtin_clzll(significand);
    int last = top - f.fraction_bits; // weight of the last place kept, in bits of significand
    if (exponent + last < 1 - bias - f.fraction_bits) {
        last = 1 - bias - f.fraction_bits - exponent; // subnormal
    }
    uint64_t kept, sign = (uint64_t)negative << (f.exponent_bits + f.fraction_bits);
    if (last <= 0) {
        kept = last > -64 ? significand << -last : 0;
    } else if (last > 63) {
        int half = last == 64 ? (significand > 1ull << 63) - (significand < 1ull << 63) : -1;
        kept = (uint64_t)rounds_up(round, negative, 0, half, 1);
    } else {
        uint64_t rest = significand & ((1ull << last) - 1), middle = 1ull << (last - 1);
        kept = significand >> last;
        kept += (uint64_t)rounds_up(
                round, negative, (int)(kept & 1), (rest > middle) - (rest < middle), rest != 0);
    }
    int field = exponent + last + f.fraction_bits + bias; // of a kept with its top bit in place
    uint64_t bits = kept >> f.fraction_bits ? ((uint64_t)field << f.fraction_bits) +
                                                      (kept - (1ull << f.fraction_bits))
                                            : kept;
    uint64_t infinity = ((1ull << f.exponent_bits) - 1) << f.fraction_bits;
    if (bits >= infinity) {
        int to_infinity = round == KILN_PTX_RN || round == KILN_PTX_RNA ||
                          (round == KILN_PTX_RP && !negative) || (round == KILN_PTX_RM && negative);
        bits = to_infinity ? infinity : infinity - 1;
    }
    return sign | bits;
}

// A float source: what it is worth, exactly, in a double.
static double load_float(
        const struct sim_warp *warp, uint32_t ref, int lane, uint8_t type, int ftz) {
    uint32_t word = ((const u32 *)sim_at(warp, ref))[type == KILN_PTX_F64 ? 0 : lane];
    switch (type) {
    case KILN_PTX_F16:
        return (double)f16_to_f32((uint16_t)word);
    case KILN_PTX_BF16:
        return (double)bf16_to_f32((uint16_t)word);
    case KILN_PTX_F64:
        return ((const f64 *)sim_at(warp, ref))[lane];
    default:
        return (double)(ftz ? f32_flush(f32_of(word)) : f32_of(word));
    }
}

static uint64_t float_bits(double value, uint8_t type, uint8_t round, uint32_t flags) {
    struct format f = format_of(type);
    int fraction = f.fraction_bits, negative = (int)(f64_bits(value) >> 63);
    uint64_t infinity = ((1ull << f.exponent_bits) - 1) << fraction;
    uint64_t sign = (uint64_t)negative << (f.exponent_bits + fraction);
    if (value != value) {
        // All ones but the sign.
        return flags & KILN_PTX_SAT ? 0 : infinity | ((1ull << fraction) - 1);
    }
    if ((flags & KILN_PTX_SAT && value <= 0) || (flags & KILN_PTX_RELU && negative)) {
        return 0;
    }
    if (flags & KILN_PTX_SAT && value > 1) {
        value = 1;
    }
    if (value - value != 0) {
        return sign | (flags & KILN_PTX_SATFINITE ? infinity - 1 : infinity);
    }
    if (value == 0) {
        return sign;
    }
    uint64_t raw = f64_bits(value), significand = raw & ((1ull << 52) - 1);
    int exponent = (int)(raw >> 52 & 0x7ff);
    significand |= exponent ? 1ull << 52 : 0;
    exponent = (exponent ? exponent : 1) - 1075;
    uint64_t bits = encode(negative, significand, exponent, f, round);
    if (flags & KILN_PTX_SATFINITE &&
            (bits & ~(1ull << (f.exponent_bits + fraction))) == infinity) {
        bits = sign | (infinity - 1);
    }
    return bits;
}

// To an integral value, still a float.
static double to_integral(double value, uint8_t round) {
    if (value != value || fabs(value) >= 0x1p52) {
        return value;
    }
    double down = floor(value), rest = value - down;
    double up = rest > 0 ? down + 1 : down;
    double r = round == KILN_PTX_RZI || round == KILN_PTX_RZ       ? (value < 0 ? up : down)
               : round == KILN_PTX_RMI || round == KILN_PTX_RM     ? down
               : round == KILN_PTX_RPI || round == KILN_PTX_RP     ? up
               : rest > 0.5 || (rest == 0.5 && fmod(down, 2) != 0) ? up
                                                                   : down;
    return copysign(r, value);
}

static uint64_t float_to_integer(double value, uint8_t type, uint8_t round) {
    uint32_t bits = kiln_ptx_type_bits((enum kiln_ptx_type)type);
    if (value != value) {
        return 0;
    }
    double r = to_integral(value, round);
    if (is_signed(type)) {
        int64_t high = bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1, low = -high - 1;
        return (uint64_t)(r >= ldexp(1, (int)bits - 1) ? high : r < (double)low ? low : (int64_t)r);
    }
    uint64_t high = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    return r >= ldexp(1, (int)bits) ? high : r <= 0 ? 0 : (uint64_t)r;
}

static uint64_t narrow(uint64_t value, uint8_t type) {
    uint32_t bits = kiln_ptx_type_bits((enum kiln_ptx_type)type);
    if (bits == 64) {
        return value;
    }
    return is_signed(type) ? (uint64_t)((int64_t)(value << (64 - bits)) >> (64 - bits))
                           : value & ((1ull << bits) - 1);
}

// value: of a signed or unsigned 64-bit source.
static uint64_t saturate(uint64_t value, int from_signed, uint8_t type) {
    uint32_t bits = kiln_ptx_type_bits((enum kiln_ptx_type)type);
    int negative = from_signed && (int64_t)value < 0;
    if (is_signed(type)) {
        int64_t high = bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1, low = -high - 1;
        if (negative) {
            return (uint64_t)((int64_t)value < low ? low : (int64_t)value);
        }
        return value > (uint64_t)high ? (uint64_t)high : value;
    }
    uint64_t high = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    return negative ? 0 : value > high ? high : value;
}

static uint64_t integer_to_float(
        uint64_t value, uint8_t from, uint8_t type, uint8_t round, uint32_t flags) {
    int negative = is_signed(from) && (int64_t)value < 0;
    uint64_t size = negative ? 0 - value : value;
    if (size == 0 || (negative && flags & KILN_PTX_SAT)) {
        return 0;
    }
    if (flags & KILN_PTX_SAT) {
        size = 1;
    }
    return encode(negative, size, 0, format_of(type), round);
}

// ftz of a result in f32.
static uint64_t flush(uint64_t bits, uint8_t type, uint32_t flags) {
    return flags & KILN_PTX_FTZ && type == KILN_PTX_F32 && !(bits & 0x7f800000u)
                   ? bits & 0x80000000u
                   : bits;
}

static uint64_t convert(const struct kiln_ptx_insn *insn, const struct sim_warp *warp,
        const struct sim_op *op, int lane) {
    int ftz = (insn->flags & KILN_PTX_FTZ) != 0;
    if (is_integer(insn->type2)) {
        uint64_t raw = insn->a_bytes == 8 ? ((const u64 *)sim_at(warp, op->a))[lane]
                                          : ((const u32 *)sim_at(warp, op->a))[lane];
        uint64_t value = narrow(raw, insn->type2);
        if (!is_integer(insn->type)) {
            return integer_to_float(value, insn->type2, insn->type, insn->round, insn->flags);
        }
        return insn->flags & KILN_PTX_SAT ? saturate(value, is_signed(insn->type2), insn->type)
                                          : narrow(value, insn->type);
    }
    double value = load_float(warp, op->a, lane, insn->type2, ftz);
    if (is_integer(insn->type)) {
        return float_to_integer(value, insn->type, insn->round);
    }
    uint8_t round = insn->round;
    if (round >= KILN_PTX_RNI && round <= KILN_PTX_RPI) {
        value = to_integral(value, round);
        round = KILN_PTX_RN;
    }
    uint64_t bits = float_bits(value, insn->type, round, insn->flags);
    if (insn->type == KILN_PTX_TF32) {
        bits = bits << 13; // a tf32 lies in the upper bits of a word
    }
    return flush(bits, insn->type, insn->flags);
}

const struct sim_op *kiln_sim_run_convert(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    int pair = insn->type == KILN_PTX_F16X2 || insn->type == KILN_PTX_BF16X2;
    for (int lane = 0; lane < SIM_LANES; lane++) {
        if (!(warp->mask >> lane & 1)) {
            continue;
        }
        if (pair) {
            double high = load_float(warp, op->a, lane, insn->type2, 0);
            double low = load_float(warp, op->b, lane, insn->type2, 0);
            ((u32 *)sim_at(warp, op->d))[lane] =
                    (uint32_t)float_bits(high, insn->type, insn->round, insn->flags) << 16 |
                    (uint32_t)float_bits(low, insn->type, insn->round, insn->flags);
            continue;
        }
        uint64_t value = convert(insn, warp, op, lane);
        if (insn->d_bytes == 8) {
            ((u64 *)sim_at(warp, op->d))[lane] = value;
        } else {
            ((u32 *)sim_at(warp, op->d))[lane] =
                    (uint32_t)(insn->d_bytes == 2 ? (uint16_t)value : value);
        }
    }
    return op + 1;
}

// sat(a) above sat(b), above them what fits of c.
const struct sim_op *kiln_sim_run_convert_pack(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    const u32 *a = sim_at(warp, op->a), *b = sim_at(warp, op->b), *c = sim_at(warp, op->c);
    uint32_t bits = kiln_ptx_type_bits((enum kiln_ptx_type)insn->type);
    uint32_t field = (1u << bits) - 1;
    int has_c = insn->c != KILN_PTX_NONE;
    for (int lane = 0; lane < SIM_LANES; lane++) {
        if (warp->mask >> lane & 1) {
            uint64_t high = saturate((uint64_t)(int64_t)(int32_t)a[lane], 1, insn->type);
            uint64_t low = saturate((uint64_t)(int64_t)(int32_t)b[lane], 1, insn->type);
            uint32_t rest = has_c ? c[lane] << (2 * bits) : 0;
            ((u32 *)sim_at(warp, op->d))[lane] =
                    rest | ((uint32_t)high & field) << bits | ((uint32_t)low & field);
        }
    }
    return op + 1;
}
