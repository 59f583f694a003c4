// memory: chunks of device memory and the pieces that they are cut into. The books are one list of
// pieces by address, free ones among them; neighbours that are both free become one.
#include "device/cuda/memory.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

#define ALIGN     512ull        // what the driver aligns to
#define CHUNK_MIN (2ull << 20)  // the driver's own unit
#define CHUNK_MAX (64ull << 20) // what is taken at once without being asked for
#define GROWTH    16            // a chunk beyond the need: this part of what is held

struct piece {
    uint64_t addr, bytes;
    uint64_t chunk; // address of the chunk that it is in
    int free;
};

struct kiln_cuda_memory {
    const struct kiln_cu *cu;
    pthread_mutex_t lock; // of all below
    struct piece *pieces; // by address
    size_t n_pieces, cap_pieces;
    struct kiln_dev_memory count;
};

static uint64_t round_up(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

enum kiln_status kiln_cuda_memory_open(
        struct kiln_cuda_memory **memory, const struct kiln_cu *cu, struct kiln_err *err) {
    struct kiln_cuda_memory *made = kiln_calloc(1, sizeof(*made));
    size_t free_bytes = 0, total = 0;
    if (!made || pthread_mutex_init(&made->lock, NULL) != 0) {
        kiln_free(made);
        return kiln_err_nomem(err, "the device's memory");
    }
    made->cu = cu;
    *memory = made;
    KILN_TRY(kiln_cu_check(
            cu, cu->mem_info(&free_bytes, &total), "cuMemGetInfo", "reading what is free", err));
    made->count.budget = free_bytes;
    return KILN_STATUS_OK;
}

void kiln_cuda_memory_close(struct kiln_cuda_memory *memory) {
    if (!memory) {
        return;
    }
    for (size_t i = 0; i < memory->n_pieces; i++) {
        if (memory->pieces[i].addr == memory->pieces[i].chunk) {
            memory->cu->mem_free(memory->pieces[i].chunk);
        }
    }
    pthread_mutex_destroy(&memory->lock);
    kiln_free(memory->pieces);
    kiln_free(memory);
}

// ---- The books ----------------------------------------------------------------------------------

// The first piece that does not lie before addr.
static size_t find(const struct kiln_cuda_memory *memory, uint64_t addr) {
    size_t low = 0, high = memory->n_pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memory->pieces[middle].addr < addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Room for one more was made beforehand.
static void insert(struct kiln_cuda_memory *memory, size_t at, const struct piece *piece) {
    memmove(&memory->pieces[at + 1], &memory->pieces[at],
            (memory->n_pieces - at) * sizeof(*memory->pieces));
    memory->pieces[at] = *piece;
    memory->n_pieces++;
}

static void drop(struct kiln_cuda_memory *memory, size_t at) {
    memory->n_pieces--;
    memmove(&memory->pieces[at], &memory->pieces[at + 1],
            (memory->n_pieces - at) * sizeof(*memory->pieces));
}

// The smallest free piece that is large enough; n_pieces when there is none.
static size_t best_fit(const struct kiln_cuda_memory *memory, uint64_t bytes) {
    size_t best = memory->n_pieces;
    for (size_t i = 0; i < memory->n_pieces; i++) {
        const struct piece *piece = &memory->pieces[i];
        if (piece->free && piece->bytes >= bytes &&
                (best == memory->n_pieces || piece->bytes < memory->pieces[best].bytes)) {
            best = i;
        }
    }
    return best;
}

static int whole_chunk(const struct kiln_cuda_memory *memory, size_t at) {
    const struct piece *piece = &memory->pieces[at];
    return piece->free && piece->addr == piece->chunk &&
           (at + 1 == memory->n_pieces || memory->pieces[at + 1].chunk != piece->chunk);
}

// Gives chunks of which nothing is in use back to the driver. 1: there was one.
static int trim(struct kiln_cuda_memory *memory) {
    int given = 0;
    for (size_t i = memory->n_pieces; i-- > 0;) {
        if (whole_chunk(memory, i)) {
            memory->cu->mem_free(memory->pieces[i].chunk);
            memory->count.held -= memory->pieces[i].bytes;
            drop(memory, i);
            given = 1;
        }
    }
    return given;
}

static int add_chunk(struct kiln_cuda_memory *memory, uint64_t bytes) {
    uint64_t ahead = memory->count.held / GROWTH;
    ahead = ahead > CHUNK_MAX ? CHUNK_MAX : ahead;
    uint64_t need = round_up(bytes, CHUNK_MIN);
    uint64_t size = need > ahead ? need : round_up(ahead, CHUNK_MIN);
    uint64_t addr = 0;
    int result = memory->cu->mem_alloc(&addr, size);
    if (result == KILN_CU_ERROR_NO_MEMORY && (size > need || trim(memory))) {
        (void)trim(memory);
        size = need;
        result = memory->cu->mem_alloc(&addr, size);
    }
    if (result == 0) {
        const struct piece piece = {.addr = addr, .bytes = size, .chunk = addr, .free = 1};
        insert(memory, find(memory, addr), &piece);
        memory->count.held += size;
        memory->count.peak =
                memory->count.held > memory->count.peak ? memory->count.held : memory->count.peak;
    }
    return result;
}

// ---- Taking and giving --------------------------------------------------------------------------

static int take(struct kiln_cuda_memory *memory, uint64_t bytes, uint64_t *addr) {
    // A chunk and what a piece leaves of it are two entries more at most.
    if (kiln_grow(&memory->pieces, &memory->cap_pieces, memory->n_pieces + 2,
                sizeof(*memory->pieces)) != 0) {
        return -1;
    }
    size_t at = best_fit(memory, bytes);
    if (at == memory->n_pieces) {
        int result = add_chunk(memory, bytes);
        if (result != 0) {
            return result;
        }
        at = best_fit(memory, bytes);
    }
    struct piece *piece = &memory->pieces[at];
    const struct piece rest = {.addr = piece->addr + bytes,
            .bytes = piece->bytes - bytes,
            .chunk = piece->chunk,
            .free = 1};
    piece->free = 0;
    piece->bytes = bytes;
    *addr = piece->addr;
    if (rest.bytes > 0) {
        insert(memory, at + 1, &rest);
    }
    memory->count.used += bytes;
    return 0;
}

int kiln_cuda_memory_take(struct kiln_cuda_memory *memory, uint64_t bytes, uint64_t *addr) {
    if (bytes > UINT64_MAX / 2) {
        return KILN_CU_ERROR_NO_MEMORY;
    }
    pthread_mutex_lock(&memory->lock);
    int result = take(memory, round_up(bytes ? bytes : 1, ALIGN), addr);
    pthread_mutex_unlock(&memory->lock);
    return result;
}

// Joins the piece behind to the one at `at`, when both are free and of one chunk.
static void join(struct kiln_cuda_memory *memory, size_t at) {
    if (at + 1 >= memory->n_pieces) {
        return;
    }
    struct piece *piece = &memory->pieces[at];
    const struct piece *next = piece + 1;
    if (piece->free && next->free && piece->chunk == next->chunk) {
        piece->bytes += next->bytes;
        drop(memory, at + 1);
    }
}

void kiln_cuda_memory_give(struct kiln_cuda_memory *memory, uint64_t addr) {
    pthread_mutex_lock(&memory->lock);
    size_t at = find(memory, addr);
    if (at < memory->n_pieces && memory->pieces[at].addr == addr && !memory->pieces[at].free) {
        memory->pieces[at].free = 1;
        memory->count.used -= memory->pieces[at].bytes;
        join(memory, at);
        if (at > 0) {
            join(memory, at - 1);
        }
    }
    pthread_mutex_unlock(&memory->lock);
}

void kiln_cuda_memory_count(struct kiln_cuda_memory *memory, struct kiln_dev_memory *count) {
    pthread_mutex_lock(&memory->lock);
    *count = memory->count;
    pthread_mutex_unlock(&memory->lock);
}
