// banks: addresses of a part's lanes, by bank.
#include "lab/banks.h"

enum {
    BANKS = 32,
    WARP = 32,
    MAX_WORDS = 128 // that a part can touch: 8 lanes of 16 bytes, or 32 lanes of a word that two
                    // words hold
};

// As cuTensorMapEncodeTiled and wgmma mean it: 16-byte units of a row trade places by the row's
// number within the pattern.
static uint32_t swizzled(uint32_t address, uint32_t swizzle) {
    switch (swizzle) {
    case KILN_SWIZZLE_32:
        return address ^ (address >> 7 & 1) << 4;
    case KILN_SWIZZLE_64:
        return address ^ (address >> 7 & 3) << 4;
    case KILN_SWIZZLE_128:
        return address ^ (address >> 7 & 7) << 4;
    default:
        return address;
    }
}

static uint32_t address_of(const struct kiln_smem_site *site, uint32_t lane) {
    if (site->kind == KILN_SITE_LDMATRIX) {
        return swizzled(lane * site->stride_bytes, site->swizzle);
    }
    return swizzled(lane / 4 * site->stride_bytes + lane % 4 * site->access_bytes, site->swizzle);
}

// The words that lanes first .. first + lanes - 1 touch, each once, counted by bank.
static unsigned turns(const struct kiln_smem_site *site, uint32_t first, uint32_t lanes) {
    uint32_t words[MAX_WORDS], n = 0;
    unsigned of_bank[BANKS] = {0}, most = 0;
    for (uint32_t lane = first; lane < first + lanes; lane++) {
        uint32_t address = address_of(site, lane);
        uint32_t last = (address + site->access_bytes - 1) / 4;
        for (uint32_t word = address / 4; word <= last; word++) {
            uint32_t seen = 0;
            while (seen < n && words[seen] != word) {
                seen++;
            }
            if (seen == n && n < MAX_WORDS) {
                words[n++] = word;
                unsigned count = ++of_bank[word % BANKS];
                most = count > most ? count : most;
            }
        }
    }
    return most;
}

unsigned kiln_bank_ways(const struct kiln_smem_site *site) {
    uint32_t lanes = site->access_bytes == 16 ? 8 : site->access_bytes == 8 ? 16 : WARP;
    unsigned most = 0;
    for (uint32_t first = 0; first < WARP; first += lanes) {
        unsigned count = turns(site, first, lanes);
        most = count > most ? count : most;
    }
    return most;
}
