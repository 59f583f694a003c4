// count: what a request costs the memory system: 32-byte sectors of global memory, wavefronts of
// shared memory.
//
// Shared memory has 32 banks of 4-byte words. Lanes with 8 bytes each are served in two halves of
// the warp, with 16 in four quarters; in such a group a bank gives one word a wavefront, to any
// number of lanes. Two groups are read as one where neighbours, or lanes two apart, want the same.
// ldmatrix is four groups of eight rows, which is the same rule.
#include "device/sim/access.h"

#include "device/sim/lanes_impl.h"

enum {
    BANKS = 32,
    SECTOR = 32,
    BANK_ROW = 4 * BANKS,
};

// Distinct sectors of a warp's access.
static uint32_t sectors_of(const struct sim_access *access) {
    if (access->contiguous) {
        uint64_t end = access->at[0] + (uint64_t)SIM_LANES * access->bytes - 1;
        return (uint32_t)(end / SECTOR - access->at[0] / SECTOR + 1);
    }
    uint64_t seen[SIM_LANES * 2];
    uint32_t n = 0;
    for (uint32_t mask = access->mask; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        uint64_t from = access->at[lane] / SECTOR;
        uint64_t to = (access->at[lane] + access->bytes - 1) / SECTOR;
        for (uint64_t sector = from; sector <= to; sector++) {
            // Neighbours are most often the same or the next: look at the newest first.
            uint32_t i = n;
            while (i > 0 && seen[i - 1] != sector) {
                i--;
            }
            if (i == 0 && n < SIM_LANES * 2) {
                seen[n++] = sector;
            }
        }
    }
    return n;
}

void kiln_sim_count_sectors(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access) {
    struct sim_traffic *traffic = &warp->worker->sites[op->id].global;
    uint32_t n = sectors_of(access);
    uint32_t lanes = (uint32_t)__builtin_popcount(access->mask);
    traffic->requests++;
    traffic->bytes += (uint64_t)lanes * access->bytes;
    traffic->units += n;
    // As few as hold the bytes.
    traffic->ideal += (lanes * access->bytes + SECTOR - 1) / SECTOR;
}

// The copy engine reads whole sectors, once each.
void kiln_sim_count_bulk(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_range *source) {
    struct sim_traffic *traffic = &warp->worker->sites[op->id].global;
    uint64_t end = source->at + source->bytes;
    traffic->requests += !source->more;
    traffic->bytes += source->bytes;
    traffic->units += (end + SECTOR - 1) / SECTOR - source->at / SECTOR;
    traffic->ideal += (source->bytes + SECTOR - 1) / SECTOR;
}

// cp.async.cg reads a sector once for both of its halves where these go beside each other, in
// either order and in one row of banks, and once for each where they do not. So an H200 counts.
void kiln_sim_count_halves(struct sim_warp *warp, const struct sim_op *op,
        const struct sim_access *from, const struct sim_access *to) {
    uint64_t sectors[SIM_LANES], places[SIM_LANES];
    uint32_t n = 0, again = 0;
    for (uint32_t mask = from->mask & to->mask; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask), known = 0, beside = 0;
        uint64_t sector = from->at[lane] / SECTOR, place = to->at[lane];
        for (uint32_t i = 0; i < n; i++) {
            if (sectors[i] == sector) {
                uint64_t apart = places[i] < place ? place - places[i] : places[i] - place;
                known = 1;
                beside |= apart < SECTOR && places[i] / BANK_ROW == place / BANK_ROW;
            }
        }
        sectors[n] = sector;
        places[n++] = place;
        again += known && !beside ? 1 : 0;
    }
    warp->worker->sites[op->id].global.units += again;
}

// Wavefronts of lanes [first, last), each with the same number of words.
static uint32_t group_wavefronts(
        const struct sim_access *access, int first, int last, uint32_t *distinct) {
    uint32_t words[BANKS * 4], n = 0;
    unsigned char count[BANKS] = {0};
    uint32_t each = (access->bytes + 3) / 4, most = 0;
    for (int lane = first; lane < last; lane++) {
        if (!(access->mask >> lane & 1)) {
            continue;
        }
        uint32_t word = (uint32_t)access->at[lane] / 4;
        uint32_t i = n;
        while (i > 0 && words[i - 1] != word) {
            i--;
        }
        if (i > 0) {
            continue; // the same words again: given to both
        }
        words[n++] = word;
        for (uint32_t k = 0; k < each; k++) {
            unsigned char *bank = &count[(word + k) % BANKS];
            ++*bank;
            most = *bank > most ? *bank : most;
        }
    }
    *distinct = n * each;
    return most;
}

// Eight rows of 16 bytes that fall into different banks, as they nearly always do.
static int rows_apart(const struct sim_access *access, int first) {
    uint32_t places = 0;
    for (int lane = first; lane < first + 8; lane++) {
        places |= 1u << (access->at[lane] / 16 & 7);
    }
    return places == 255;
}

// Whether each lane of [first, last) wants what the lane `apart` from it wants.
static int lanes_share(const struct sim_access *access, int first, int last, int apart) {
    for (int lane = first; lane < last; lane++) {
        int other = lane ^ apart;
        if (access->mask >> lane & access->mask >> other & 1 &&
                access->at[lane] != access->at[other]) {
            return 0;
        }
    }
    return 1;
}

// Lanes from `first` on that are served together.
static int group_at(const struct sim_access *access, int first, int group) {
    int both = 2 * group;
    if (group == SIM_LANES || first % both || access->kind & SIM_WRITES || access->contiguous) {
        return group;
    }
    return lanes_share(access, first, first + both, 1) ||
                           lanes_share(access, first, first + both, 2)
                   ? both
                   : group;
}

void kiln_sim_count_banks(
        struct sim_warp *warp, const struct sim_op *op, const struct sim_access *access) {
    struct sim_site *site = &warp->worker->sites[op->id];
    uint32_t lanes = (uint32_t)__builtin_popcount(access->mask);
    int size = access->bytes >= 16 ? 8 : access->bytes == 8 ? 16 : SIM_LANES, group;
    uint32_t wavefronts = 0, ideal = 0, ways = 1;
    for (int first = 0; first < SIM_LANES; first += group) {
        group = group_at(access, first, size);
        uint32_t all = group == SIM_LANES ? SIM_ALL : ((1u << group) - 1) << first;
        if (!(access->mask & all)) {
            continue;
        }
        if (access->contiguous ||
                (group == 8 && (access->mask & all) == all && rows_apart(access, first))) {
            wavefronts++;
            ideal++;
            continue;
        }
        uint32_t distinct = 0, n = group_wavefronts(access, first, first + group, &distinct);
        uint32_t least = (distinct + BANKS - 1) / BANKS;
        wavefronts += n;
        ideal += least;
        ways = n > ways ? n : ways;
    }
    site->shared.requests++;
    site->shared.bytes += (uint64_t)lanes * access->bytes;
    site->shared.units += wavefronts;
    site->shared.ideal += ideal;
    site->ways = ways > site->ways ? ways : site->ways;
}
