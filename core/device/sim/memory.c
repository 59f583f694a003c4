// memory: the address space of a machine. Allocations lie in the order of their addresses, which
// only grow: a freed address is not given again, so a stale pointer is found.
#include "device/sim/exec_impl.h"

#include "base/mem.h"
#include "base/pool.h"

#include <inttypes.h>
#include <string.h>

enum {
    ALIGNMENT = 256,
    GAP = 4096, // unused addresses behind an allocation, so that running over its end is seen
};

enum kiln_status kiln_sim_create(struct kiln_sim **sim, uint32_t threads, struct kiln_err *err) {
    *sim = NULL;
    struct kiln_sim *s = kiln_calloc(1, sizeof(*s));
    if (!s) {
        return kiln_err_nomem(err, "the sim device");
    }
    s->threads = threads;
    s->next_address = SIM_GLOBAL_BASE;
    enum kiln_status status = kiln_pool_create(&s->pool, threads, err);
    if (status != KILN_STATUS_OK) {
        kiln_free(s);
        return status;
    }
    kiln_sim_handlers(s->handlers);
    *sim = s;
    return KILN_STATUS_OK;
}

static void finish_allocation(struct sim_allocation *allocation) {
    if (allocation->owned) {
        kiln_free(allocation->host);
    }
    kiln_free(allocation->written);
    kiln_free(allocation->name);
}

void kiln_sim_destroy(struct kiln_sim *sim) {
    if (!sim) {
        return;
    }
    for (size_t i = 0; i < sim->n_allocations; i++) {
        finish_allocation(&sim->allocations[i]);
    }
    kiln_free(sim->allocations);
    kiln_pool_destroy(sim->pool);
    kiln_free(sim);
}

// Adds an allocation behind all others; takes what it owns over, also when it fails.
static enum kiln_status add(struct kiln_sim *sim, struct sim_allocation allocation,
        const char *name, uint64_t *address, struct kiln_err *err) {
    allocation.name = kiln_strdup(name);
    if (!allocation.name || kiln_grow(&sim->allocations, &sim->cap_allocations,
                                    sim->n_allocations + 1, sizeof(*sim->allocations)) != 0) {
        finish_allocation(&allocation);
        return kiln_err_nomem(err, "the table of allocations");
    }
    allocation.address = sim->next_address;
    sim->next_address += (allocation.bytes + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    sim->allocations[sim->n_allocations++] = allocation;
    *address = allocation.address;
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sim_alloc(struct kiln_sim *sim, const char *name, uint64_t bytes,
        uint64_t *address, struct kiln_err *err) {
    *address = 0;
    // A size that no host has is refused by the allocator; this keeps addresses from wrapping.
    struct sim_allocation allocation = {.bytes = bytes, .owned = 1};
    if (bytes < UINT64_C(1) << 44) {
        allocation.host = kiln_alloc_aligned(ALIGNMENT, bytes);
        allocation.written = kiln_calloc(bytes, 1);
    }
    if (!allocation.host || !allocation.written) {
        finish_allocation(&allocation);
        return kiln_err_set(err, KILN_STATUS_NOMEM,
                "sim: no memory for the allocation '%s' of %" PRIu64 " bytes", name, bytes);
    }
    memset(allocation.host, 0, bytes); // what a kernel reads unwritten is the same in every run
    return add(sim, allocation, name, address, err);
}

enum kiln_status kiln_sim_map(struct kiln_sim *sim, const char *name, void *host, uint64_t bytes,
        int read_only, uint64_t *address, struct kiln_err *err) {
    *address = 0;
    const struct sim_allocation allocation = {.bytes = bytes, .host = host, .read_only = read_only};
    return add(sim, allocation, name, address, err);
}

// The last allocation that begins at or before the address; NULL: none.
static struct sim_allocation *at_or_before(const struct kiln_sim *sim, uint64_t address) {
    size_t low = 0, high = sim->n_allocations;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sim->allocations[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? &sim->allocations[low - 1] : NULL;
}

struct sim_allocation *kiln_sim_lookup(const struct kiln_sim *sim, uint64_t address) {
    struct sim_allocation *found = at_or_before(sim, address);
    return found && address - found->address < found->bytes ? found : NULL;
}

struct sim_allocation *kiln_sim_nearest(const struct kiln_sim *sim, uint64_t address) {
    struct sim_allocation *found = at_or_before(sim, address);
    size_t index = found ? (size_t)(found - sim->allocations) + 1 : 0;
    struct sim_allocation *next = index < sim->n_allocations ? &sim->allocations[index] : NULL;
    uint64_t past = found ? address - found->address : 0;
    past = found && past > found->bytes ? past - found->bytes : 0;
    uint64_t before = next ? next->address - address : UINT64_MAX;
    if (before <= GAP && (!found || before < past)) {
        return next;
    }
    return found && past < GAP ? found : NULL;
}

void kiln_sim_free(struct kiln_sim *sim, uint64_t address) {
    struct sim_allocation *found = address ? at_or_before(sim, address) : NULL;
    if (!found || found->address != address) {
        return;
    }
    finish_allocation(found);
    size_t index = (size_t)(found - sim->allocations);
    sim->n_allocations--;
    memmove(found, found + 1, (sim->n_allocations - index) * sizeof(*found));
}

// ---- Copies -------------------------------------------------------------------------------------
static enum kiln_status find_range(const struct kiln_sim *sim, uint64_t address, uint64_t bytes,
        struct sim_allocation **found, struct kiln_err *err) {
    struct sim_allocation *a = at_or_before(sim, address);
    if (!a || address - a->address > a->bytes || bytes > a->bytes - (address - a->address)) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "sim: %" PRIu64 " bytes at 0x%" PRIx64 " are not inside one allocation%s%s", bytes,
                address, a ? "; the one before is " : "", a ? a->name : "");
    }
    *found = a;
    return KILN_STATUS_OK;
}

static void mark_written(struct sim_allocation *allocation, uint64_t offset, uint64_t bytes) {
    if (allocation->written && bytes == allocation->bytes) {
        kiln_free(allocation->written);
        allocation->written = NULL;
    } else if (allocation->written) {
        memset(allocation->written + offset, 1, bytes);
    }
}

enum kiln_status kiln_sim_write(struct kiln_sim *sim, uint64_t address, const void *from,
        uint64_t bytes, struct kiln_err *err) {
    struct sim_allocation *allocation = NULL;
    KILN_TRY(find_range(sim, address, bytes, &allocation, err));
    if (bytes > 0) {
        memcpy(allocation->host + (address - allocation->address), from, bytes);
        mark_written(allocation, address - allocation->address, bytes);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sim_read(
        struct kiln_sim *sim, void *to, uint64_t address, uint64_t bytes, struct kiln_err *err) {
    struct sim_allocation *allocation = NULL;
    KILN_TRY(find_range(sim, address, bytes, &allocation, err));
    if (bytes > 0) {
        memcpy(to, allocation->host + (address - allocation->address), bytes);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sim_fill(
        struct kiln_sim *sim, uint64_t address, int byte, uint64_t bytes, struct kiln_err *err) {
    struct sim_allocation *allocation = NULL;
    KILN_TRY(find_range(sim, address, bytes, &allocation, err));
    if (bytes > 0) {
        memset(allocation->host + (address - allocation->address), byte, bytes);
        mark_written(allocation, address - allocation->address, bytes);
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sim_copy(
        struct kiln_sim *sim, uint64_t to, uint64_t from, uint64_t bytes, struct kiln_err *err) {
    struct sim_allocation *source = NULL, *target = NULL;
    KILN_TRY(find_range(sim, from, bytes, &source, err));
    KILN_TRY(find_range(sim, to, bytes, &target, err));
    uint64_t at = from - source->address, there = to - target->address;
    if (bytes == 0) {
        return KILN_STATUS_OK;
    }
    memcpy(target->host + there, source->host + at, bytes);
    if (!source->written) {
        mark_written(target, there, bytes);
    } else if (target->written) {
        memcpy(target->written + there, source->written + at, bytes);
    }
    return KILN_STATUS_OK;
}

void *kiln_sim_host(struct kiln_sim *sim, uint64_t address, uint64_t bytes) {
    struct sim_allocation *allocation = NULL;
    struct kiln_err ignored = {0};
    return find_range(sim, address, bytes, &allocation, &ignored) == KILN_STATUS_OK
                   ? allocation->host + (address - allocation->address)
                   : NULL;
}
