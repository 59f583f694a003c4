// collect: what lanes of a warp tell each other: shuffles, votes, matches, reductions.
//
// The member mask of a .sync form names the lanes that must take part. One that does not run the
// instruction with the rest is a finding; the result is then that of the lanes that are there.
#include "device/sim/run_impl.h"

#include "device/sim/lanes_impl.h"

// What a group of lanes does together: warp->mask is those that are here, `named` those that the
// instruction's mask names.
typedef void group_fn(struct sim_warp *warp, const struct sim_op *op, uint32_t named);

static void in_group(
        struct sim_warp *warp, const struct sim_op *op, uint32_t named, group_fn *work) {
    kiln_sim_lanes_needed(warp, op, named);
    if (warp->mask & ~named) {
        kiln_sim_lanes_not_named(warp, op, named);
    }
    work(warp, op, named);
}

// Lanes with other masks are other groups, which do not see each other.
static const struct sim_op *in_groups(
        struct sim_warp *warp, const struct sim_op *op, group_fn *work) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    if (insn->e == KILN_PTX_NONE) {
        work(warp, op, warp->mask);
        return op + 1;
    }
    const u32 *mask = sim_at(warp, op->e);
    uint32_t differ = 0;
    SIM_EACH_LANE {
        differ |= mask[i] ^ mask[0];
    }
    if (!differ) {
        in_group(warp, op, mask[0], work);
        return op + 1;
    }
    u32 masks[SIM_LANES]; // the instruction may write over them
    memcpy(masks, mask, sizeof(masks));
    const uint32_t here = warp->mask;
    for (uint32_t left = here; left; left &= ~warp->mask) {
        uint32_t named = masks[__builtin_ctz(left)];
        warp->mask = 0;
        for (int i = 0; i < SIM_LANES; i++) {
            warp->mask |= left >> i & 1 && masks[i] == named ? 1u << i : 0;
        }
        in_group(warp, op, named, work);
    }
    warp->mask = here;
    return op + 1;
}

static void put_bit(const struct sim_warp *warp, uint32_t ref, uint32_t bits) {
    u32 *to = sim_at(warp, ref);
    *to = (*to & ~warp->mask) | (bits & warp->mask);
}

// The source lane of each lane; *inside: whether it is in the lane's segment.
static int shuffle_source(uint8_t how, int lane, uint32_t b, uint32_t clamp, int *inside) {
    int by = (int)(b & 31), bound = (int)(clamp & 31), segment = (int)(clamp >> 8 & 31);
    int max = (lane & segment) | (bound & ~segment), min = lane & segment, from;
    switch (how) {
    case KILN_PTX_SHFL_UP:
        from = lane - by;
        *inside = from >= max;
        break;
    case KILN_PTX_SHFL_DOWN:
        from = lane + by;
        *inside = from <= max;
        break;
    case KILN_PTX_SHFL_BFLY:
        from = lane ^ by;
        *inside = from <= max;
        break;
    default:
        from = min | (by & ~segment);
        *inside = from <= max;
        break;
    }
    return *inside ? from : lane;
}

// Every lane runs, all with the same distance, nothing but the value is wanted.
static int shuffle_plainly(const u32 *b, const u32 *c) {
    uint32_t differ = 0;
    SIM_EACH_LANE {
        differ |= (b[i] ^ b[0]) | (c[i] ^ 31);
    }
    return differ == 0;
}

static void shuffle(struct sim_warp *warp, const struct sim_op *op, uint32_t named) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    (void)named;
    u32 *d = sim_at(warp, op->d);
    const u32 *a = sim_at(warp, op->a), *b = sim_at(warp, op->b), *c = sim_at(warp, op->c);
    u32 value[SIM_LANES];
    memcpy(value, a, sizeof(value));
    if (warp->mask == SIM_ALL && insn->d2 == KILN_PTX_NONE && insn->sub == KILN_PTX_SHFL_BFLY &&
            shuffle_plainly(b, c)) {
        uint32_t by = b[0] & 31;
        for (uint32_t i = 0; i < SIM_LANES; i++) {
            d[i] = value[i ^ by];
        }
        return;
    }
    uint32_t valid = 0, lost = 0;
    for (int i = 0; i < SIM_LANES; i++) {
        if (warp->mask >> i & 1) {
            int inside = 0, from = shuffle_source(insn->sub, i, b[i], c[i], &inside);
            valid |= inside ? 1u << i : 0;
            lost |= warp->mask >> from & 1 ? 0 : 1u << from;
            d[i] = value[from];
        }
    }
    if (lost && insn->e != KILN_PTX_NONE) {
        kiln_sim_lanes_needed(warp, op, warp->mask | lost);
    }
    if (insn->d2 != KILN_PTX_NONE) {
        put_bit(warp, op->d2, valid);
    }
}

const struct sim_op *kiln_sim_run_shuffle(struct sim_warp *warp, const struct sim_op *op) {
    return in_groups(warp, op, shuffle);
}

static void vote(struct sim_warp *warp, const struct sim_op *op, uint32_t named) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t who = named & warp->mask;
    uint32_t bits = *(const u32 *)sim_at(warp, op->a);
    bits = (insn->flags & KILN_PTX_A_NOT ? ~bits : bits) & who;
    switch (insn->sub) {
    case KILN_PTX_VOTE_ALL:
        put_bit(warp, op->d, bits == who ? SIM_ALL : 0);
        break;
    case KILN_PTX_VOTE_ANY:
        put_bit(warp, op->d, bits ? SIM_ALL : 0);
        break;
    case KILN_PTX_VOTE_UNI:
        put_bit(warp, op->d, bits == who || bits == 0 ? SIM_ALL : 0);
        break;
    case KILN_PTX_VOTE_BALLOT: {
        u32 *d = sim_at(warp, op->d);
        for (int i = 0; i < SIM_LANES; i++) {
            d[i] = warp->mask >> i & 1 ? bits : d[i];
        }
        break;
    }
    }
}

const struct sim_op *kiln_sim_run_vote(struct sim_warp *warp, const struct sim_op *op) {
    return in_groups(warp, op, vote);
}

static void match(struct sim_warp *warp, const struct sim_op *op, uint32_t named) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t who = named & warp->mask, all = 1;
    int wide = kiln_ptx_type_bits((enum kiln_ptx_type)insn->type) == 64;
    u32 *d = sim_at(warp, op->d), result[SIM_LANES] = {0};
    const u64 *a8 = sim_at(warp, op->a);
    const u32 *a4 = sim_at(warp, op->a);
    for (int i = 0; i < SIM_LANES; i++) {
        for (int j = 0; who >> i & 1 && j < SIM_LANES; j++) {
            int same = wide ? a8[i] == a8[j] : a4[i] == a4[j];
            result[i] |= who >> j & 1 && same ? 1u << j : 0;
        }
        all &= !(who >> i & 1) || result[i] == who;
    }
    for (int i = 0; i < SIM_LANES; i++) {
        if (warp->mask >> i & 1) {
            d[i] = insn->sub == 0 ? result[i] : all ? who : 0;
        }
    }
    if (insn->sub == 1 && insn->d2 != KILN_PTX_NONE) {
        put_bit(warp, op->d2, all ? SIM_ALL : 0);
    }
}

const struct sim_op *kiln_sim_run_match(struct sim_warp *warp, const struct sim_op *op) {
    return in_groups(warp, op, match);
}

static uint32_t reduce_two(uint8_t how, uint8_t type, uint32_t a, uint32_t b) {
    int less = type == KILN_PTX_S32 ? (int32_t)a < (int32_t)b : a < b;
    switch (how) {
    case KILN_PTX_ATOM_ADD:
        return a + b;
    case KILN_PTX_ATOM_MIN:
        return less ? a : b;
    case KILN_PTX_ATOM_MAX:
        return less ? b : a;
    case KILN_PTX_ATOM_AND:
        return a & b;
    case KILN_PTX_ATOM_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

static void reduce(struct sim_warp *warp, const struct sim_op *op, uint32_t named) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t who = named & warp->mask;
    u32 *d = sim_at(warp, op->d);
    const u32 *a = sim_at(warp, op->a);
    int first = __builtin_ctz(who ? who : warp->mask);
    uint32_t r = a[first];
    for (int i = first + 1; i < SIM_LANES; i++) {
        r = who >> i & 1 ? reduce_two(insn->sub, insn->type, r, a[i]) : r;
    }
    for (int i = 0; i < SIM_LANES; i++) {
        d[i] = warp->mask >> i & 1 ? r : d[i];
    }
}

const struct sim_op *kiln_sim_run_reduce(struct sim_warp *warp, const struct sim_op *op) {
    return in_groups(warp, op, reduce);
}

const struct sim_op *kiln_sim_run_active_mask(struct sim_warp *warp, const struct sim_op *op) {
    u32 *d = sim_at(warp, op->d);
    for (int i = 0; i < SIM_LANES; i++) {
        d[i] = warp->mask >> i & 1 ? warp->mask : d[i];
    }
    return op + 1;
}

// What bar.warp.sync asks for has been looked at: lanes in lock step need not wait.
static void sync_warp(struct sim_warp *warp, const struct sim_op *op, uint32_t named) {
    (void)warp;
    (void)op;
    (void)named;
}

const struct sim_op *kiln_sim_run_sync_warp(struct sim_warp *warp, const struct sim_op *op) {
    return in_groups(warp, op, sync_warp);
}

static void elect(struct sim_warp *warp, const struct sim_op *op, uint32_t named) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    uint32_t who = named & warp->mask;
    uint32_t leader = (uint32_t)__builtin_ctz(who ? who : warp->mask);
    u32 *d = sim_at(warp, op->d);
    for (int i = 0; insn->d != KILN_PTX_NONE && i < SIM_LANES; i++) {
        d[i] = warp->mask >> i & 1 ? leader : d[i];
    }
    put_bit(warp, op->d2, 1u << leader);
}

const struct sim_op *kiln_sim_run_elect(struct sim_warp *warp, const struct sim_op *op) {
    return in_groups(warp, op, elect);
}
