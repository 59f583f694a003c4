// resolve: addresses of a warp's access -> host memory, with bounds and alignment. Both are always
// looked at: an access outside of memory never reaches the host, it is a finding, or, with that
// check off, the end of the launch, as on a GPU.
#include "device/sim/access.h"

#include "base/mem.h"
#include "device/sim/lanes_impl.h"

#include <inttypes.h>
#include <stdio.h>

// What a lane without memory reads.
static unsigned char nowhere[64] __attribute__((aligned(64)));

void kiln_sim_addresses(struct sim_access *access, const struct sim_warp *warp, uint32_t a,
        uint32_t a_bytes, int64_t imm) {
    uint64_t *at = access->at;
    access->mask = warp->mask;
    if (a_bytes == 8) {
        const u64 *from = sim_aligned(warp, a);
        SIM_EACH_LANE {
            at[i] = from[i] + (uint64_t)imm;
        }
    } else if (a_bytes == 4) {
        const u32 *from = sim_aligned(warp, a);
        SIM_EACH_LANE {
            at[i] = (uint64_t)from[i] + (uint64_t)imm;
        }
    } else {
        SIM_EACH_LANE {
            at[i] = (uint64_t)imm;
        }
    }
    if (access->mask != SIM_ALL) {
        uint64_t one = at[__builtin_ctz(access->mask)];
        for (int i = 0; i < SIM_LANES; i++) {
            at[i] = access->mask >> i & 1 ? at[i] : one;
        }
    }
}

static const char *verb(const struct sim_access *access) {
    return (access->kind & SIM_ATOMIC)   ? "updates"
           : (access->kind & SIM_WRITES) ? "writes"
                                         : "reads";
}

// A lane's access is not possible. 0: the launch ends.
static int refuse(struct sim_access *access, struct sim_warp *warp, const struct sim_op *op,
        int lane, int space, enum kiln_sim_check check, const char *why) {
    access->p[lane] = nowhere;
    access->mask &= ~(1u << lane);
    uint64_t end = access->at[lane] + access->bytes;
    if (space == KILN_PTX_SHARED && end <= SIM_MOST_SHARED && end > warp->worker->shared_used) {
        warp->worker->shared_used = (uint32_t)end; // the footprint that should have been asked for
    }
    if (kiln_sim_checks(warp, check)) {
        kiln_sim_note(warp, op, check, lane, space, access->at[lane], access->bytes,
                "%s %u bytes %s", verb(access), access->bytes, why);
        return 1;
    }
    kiln_sim_fail(warp, op, KILN_STATUS_DEVICE, "lane %d %s %u bytes at 0x%" PRIx64 ", %s", lane,
            verb(access), access->bytes, access->at[lane], why);
    return 0;
}

static void why_outside(
        char *text, size_t size, const struct kiln_sim *sim, uint64_t address, uint64_t bytes) {
    const struct sim_allocation *near = kiln_sim_nearest(sim, address);
    if (near && address < near->address) {
        snprintf(text, size, "%" PRIu64 " bytes before the beginning of '%s' (%" PRIu64 " bytes)",
                near->address - address, near->name, near->bytes);
    } else if (!near) {
        snprintf(text, size, "where nothing is allocated");
    } else if (address - near->address >= near->bytes) {
        snprintf(text, size, "%" PRIu64 " bytes past the end of '%s' (%" PRIu64 " bytes)",
                address - near->address - near->bytes, near->name, near->bytes);
    } else {
        snprintf(text, size, "of which %" PRIu64 " lie past the end of '%s' (%" PRIu64 " bytes)",
                address + bytes - near->address - near->bytes, near->name, near->bytes);
    }
}

// One lane at a time: each may be in another allocation, or in none.
static int resolve_global_slowly(
        struct sim_access *access, struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_sim *sim = warp->worker->sim;
    for (int i = 0; i < SIM_LANES; i++) {
        access->p[i] = nowhere;
        if (!(access->mask >> i & 1)) {
            continue;
        }
        uint64_t address = access->at[i];
        struct sim_allocation *a = kiln_sim_lookup(sim, address);
        char why[200];
        if (!a || a->bytes - (address - a->address) < access->bytes) {
            why_outside(why, sizeof(why), sim, address, access->bytes);
            if (!refuse(access, warp, op, i, KILN_PTX_GLOBAL, KILN_SIM_CHECK_BOUNDS, why)) {
                return 0;
            }
        } else if (a->read_only && access->kind & SIM_WRITES) {
            snprintf(why, sizeof(why), "in '%s', which is read-only", a->name);
            if (!refuse(access, warp, op, i, KILN_PTX_GLOBAL, KILN_SIM_CHECK_BOUNDS, why)) {
                return 0;
            }
        } else {
            access->p[i] = a->host + (address - a->address);
        }
    }
    return 1;
}

static int refuse_misaligned(
        struct sim_access *access, struct sim_warp *warp, const struct sim_op *op, int space) {
    char why[80];
    snprintf(why, sizeof(why), "at an address that is not a multiple of %u", access->bytes);
    for (int i = 0; i < SIM_LANES; i++) {
        if (access->mask >> i & 1 && access->at[i] & (access->bytes - 1) &&
                !refuse(access, warp, op, i, space, KILN_SIM_CHECK_ALIGN, why)) {
            return 0;
        }
    }
    return 1;
}

// All addresses or-ed; whether they are contiguous; their range.
struct span {
    uint64_t low, high, ored;
};

static struct span span_of(struct sim_access *access) {
    const uint64_t *at = access->at, first = at[0], step = access->bytes;
    uint64_t ored = 0, off = 0;
    SIM_EACH_LANE {
        ored |= at[i];
        off |= at[i] - (first + (uint64_t)i * step);
    }
    access->contiguous = off == 0 && access->mask == SIM_ALL;
    struct span span = {first, first + 31 * step, ored};
    if (off != 0) {
        span.high = first;
        for (int i = 1; i < SIM_LANES; i++) {
            span.low = at[i] < span.low ? at[i] : span.low;
            span.high = at[i] > span.high ? at[i] : span.high;
        }
    }
    return span;
}

static int resolve_global(
        struct sim_access *access, struct sim_warp *warp, const struct sim_op *op) {
    struct sim_worker *worker = warp->worker;
    const struct kiln_sim *sim = worker->sim;
    struct span span = span_of(access);
    if (span.ored & (access->bytes - 1)) {
        access->contiguous = 0;
        if (!refuse_misaligned(access, warp, op, KILN_PTX_GLOBAL)) {
            return 0;
        }
    }
    uint32_t guess = worker->last_allocation[op->id];
    const struct sim_allocation *a = guess < sim->n_allocations ? &sim->allocations[guess] : NULL;
    if (!a || span.low - a->address >= a->bytes) {
        a = kiln_sim_lookup(sim, span.low);
        worker->last_allocation[op->id] = a ? (uint32_t)(a - sim->allocations) : UINT32_MAX;
    }
    if (a && span.low >= a->address && span.high - a->address < a->bytes &&
            a->bytes - (span.high - a->address) >= access->bytes &&
            !(a->read_only && access->kind & SIM_WRITES)) {
        unsigned char *host = a->host;
        const uint64_t address = a->address;
        SIM_EACH_LANE {
            access->p[i] = host + (access->at[i] - address);
        }
    } else {
        access->contiguous = 0;
        if (!resolve_global_slowly(access, warp, op)) {
            return 0;
        }
    }
    if (worker->watch_global && access->mask) {
        kiln_sim_watch_global(warp, op, access);
    }
    return 1;
}

// Shared memory, parameters: one block of bytes.
static int resolve_offsets(struct sim_access *access, struct sim_warp *warp,
        const struct sim_op *op, int space, unsigned char *base, uint64_t limit) {
    struct span span = span_of(access);
    if (span.ored & (access->bytes - 1)) {
        access->contiguous = 0;
        if (!refuse_misaligned(access, warp, op, space)) {
            return 0;
        }
    }
    if (limit >= access->bytes && span.high <= limit - access->bytes && span.low <= span.high) {
        SIM_EACH_LANE {
            access->p[i] = base + access->at[i];
        }
        return 1;
    }
    access->contiguous = 0;
    for (int i = 0; i < SIM_LANES; i++) {
        access->p[i] = nowhere;
        if (!(access->mask >> i & 1)) {
            continue;
        }
        if (limit >= access->bytes && access->at[i] <= limit - access->bytes) {
            access->p[i] = base + access->at[i];
            continue;
        }
        char why[160];
        snprintf(why, sizeof(why),
                "up to byte %" PRIu64 " of %s memory, of which there are %" PRIu64
                " bytes: %" PRIu64 " missing",
                access->at[i] + access->bytes, space == KILN_PTX_SHARED ? "shared" : "parameter",
                limit, access->at[i] + access->bytes - limit);
        if (!refuse(access, warp, op, i, space, KILN_SIM_CHECK_BOUNDS, why)) {
            return 0;
        }
    }
    return 1;
}

static int resolve_shared(
        struct sim_access *access, struct sim_warp *warp, const struct sim_op *op) {
    struct sim_block *block = warp->block;
    if (!resolve_offsets(access, warp, op, KILN_PTX_SHARED, block->shared, block->shared_bytes)) {
        return 0;
    }
    if (warp->worker->watch_shared && access->mask) {
        kiln_sim_watch_shared(warp, op, access);
    }
    return 1;
}

// Memory of which each lane has a piece of its own: local memory, call areas.
static int resolve_pieces(struct sim_access *access, struct sim_warp *warp, const struct sim_op *op,
        unsigned char *base, uint64_t each, const char *what) {
    access->contiguous = 0;
    for (int i = 0; i < SIM_LANES; i++) {
        access->p[i] = nowhere;
        if (!(access->mask >> i & 1)) {
            continue;
        }
        uint64_t at = access->at[i];
        if (at & (access->bytes - 1)) {
            char why[80];
            snprintf(why, sizeof(why), "at an address that is not a multiple of %u", access->bytes);
            if (!refuse(access, warp, op, i, KILN_PTX_LOCAL, KILN_SIM_CHECK_ALIGN, why)) {
                return 0;
            }
        } else if (each < access->bytes || at > each - access->bytes) {
            char why[120];
            snprintf(why, sizeof(why),
                    "at %" PRIu64 " of %s memory, of which a thread has %" PRIu64, at, what, each);
            if (!refuse(access, warp, op, i, KILN_PTX_LOCAL, KILN_SIM_CHECK_BOUNDS, why)) {
                return 0;
            }
        } else {
            access->p[i] = base + (uint64_t)i * each + at;
        }
    }
    return 1;
}

// Parameters are there to be read. 0: the launch ends.
static int refuse_writes(
        struct sim_access *access, struct sim_warp *warp, const struct sim_op *op) {
    for (uint32_t mask = access->kind & SIM_WRITES ? access->mask : 0; mask; mask &= mask - 1) {
        if (!refuse(access, warp, op, __builtin_ctz(mask), KILN_PTX_PARAM, KILN_SIM_CHECK_BOUNDS,
                    "of parameter memory, which is read-only")) {
            return 0;
        }
    }
    return 1;
}

// Generic addresses: lanes of one space after those of another.
static int resolve_generic(
        struct sim_access *access, struct sim_warp *warp, const struct sim_op *op) {
    uint32_t left = access->mask, good = 0;
    int common = SIM_SPACE_FAILED;
    struct sim_access part = {.bytes = access->bytes, .kind = access->kind};
    for (int i = 0; i < SIM_LANES; i++) {
        access->p[i] = nowhere;
    }
    access->contiguous = 0;
    while (left) {
        int first = __builtin_ctz(left), space = kiln_sim_space_of(access->at[first]);
        uint64_t base = kiln_sim_window(space);
        part.mask = 0;
        for (int i = 0; i < SIM_LANES; i++) {
            int here = left >> i & 1 && kiln_sim_space_of(access->at[i]) == space;
            part.mask |= here ? 1u << i : 0;
            part.at[i] = access->at[here ? i : first] - base;
        }
        left &= ~part.mask;
        uint32_t tried = part.mask;
        if (space == KILN_PTX_PARAM && !refuse_writes(&part, warp, op)) {
            return SIM_SPACE_FAILED;
        }
        if (kiln_sim_resolve(&part, warp, op, space) == SIM_SPACE_FAILED) {
            return SIM_SPACE_FAILED;
        }
        for (int i = 0; i < SIM_LANES; i++) {
            if (tried >> i & 1) {
                access->p[i] = part.p[i];
                access->at[i] = part.at[i];
            }
        }
        access->contiguous = part.contiguous;
        good |= part.mask;
        common = common == SIM_SPACE_FAILED ? space : SIM_SPACE_MIXED;
    }
    for (int i = 0; i < SIM_LANES; i++) {
        if (!(good >> i & 1)) {
            access->p[i] = nowhere;
        }
    }
    access->mask = good;
    return common;
}

int kiln_sim_resolve(
        struct sim_access *access, struct sim_warp *warp, const struct sim_op *op, int space) {
    const struct sim_worker *worker = warp->worker;
    int good;
    switch (space) {
    case KILN_PTX_GENERIC:
        return resolve_generic(access, warp, op);
    case KILN_PTX_SHARED:
        good = resolve_shared(access, warp, op);
        break;
    case KILN_PTX_PARAM:
        good = resolve_offsets(
                access, warp, op, space, kiln_sim_params(worker), worker->kernel->ptx->param_bytes);
        break;
    case KILN_PTX_LOCAL:
        good = resolve_pieces(access, warp, op, warp->local, worker->kernel->local_bytes, "local");
        break;
    case KILN_PTX_CALLS:
        good = resolve_pieces(access, warp, op, warp->calls + warp->call_at,
                warp->function->ptx->call_bytes, "call");
        break;
    default:
        space = KILN_PTX_GLOBAL;
        good = resolve_global(access, warp, op);
        break;
    }
    return good ? space : SIM_SPACE_FAILED;
}

// ---- Many bytes of one lane ---------------------------------------------------------------------
unsigned char *kiln_sim_resolve_range(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_range *range) {
    struct sim_access access = {
            .bytes = range->bytes, .kind = range->kind, .mask = 1u << range->lane};
    access.at[range->lane] = range->at;
    char why[200];
    if ((range->at | range->bytes) & (range->unit - 1)) {
        snprintf(why, sizeof(why), "at 0x%" PRIx64 ": address and size are multiples of %" PRIu32,
                range->at, range->unit);
        refuse(&access, warp, op, range->lane, range->space, KILN_SIM_CHECK_ALIGN, why);
        return NULL;
    }
    if (range->space == KILN_PTX_SHARED) {
        uint64_t limit = warp->block->shared_bytes, end = range->at + range->bytes;
        if (end <= limit && end >= range->at) {
            return warp->block->shared + range->at;
        }
        snprintf(why, sizeof(why),
                "up to byte %" PRIu64 " of shared memory, of which there are %" PRIu64 " bytes",
                end, limit);
    } else {
        const struct sim_allocation *a = kiln_sim_lookup(warp->worker->sim, range->at);
        int inside = a && a->bytes - (range->at - a->address) >= range->bytes;
        if (inside && !(a->read_only && range->kind & SIM_WRITES)) {
            return a->host + (range->at - a->address);
        }
        if (inside) {
            snprintf(why, sizeof(why), "in '%s', which is read-only", a->name);
        } else {
            why_outside(why, sizeof(why), warp->worker->sim, range->at, range->bytes);
        }
    }
    refuse(&access, warp, op, range->lane, range->space, KILN_SIM_CHECK_BOUNDS, why);
    return NULL;
}
