// fa_split: how splitkv cuts the keys of a row, for the kernel that makes the parts and the one
// that joins them.
#ifndef KILN_ATTENTION_FA_SPLIT_CUH
#define KILN_ATTENTION_FA_SPLIT_CUH

// Tiles first .. first + count - 1 of the keys; part i has `each` of them from first + i * each on,
// the last one fewer.
struct fa_split {
    int first, count, each, parts;
};

// first_key .. last_key, both ends in; no parts where there are no keys. splits: at most so many
// parts.
static __device__ __forceinline__ fa_split fa_split_keys(
        int first_key, int last_key, int tile_keys, int splits) {
    fa_split split = {0, 0, 1, 0};
    if (first_key <= last_key) {
        split.first = first_key / tile_keys;
        split.count = last_key / tile_keys + 1 - split.first;
        split.each = (split.count + splits - 1) / splits;
        split.parts = (split.count + split.each - 1) / split.each;
    }
    return split;
}

#endif
