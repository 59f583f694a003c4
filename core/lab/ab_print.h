// ab_print: a comparison as JSON and as text: its row, the kernels beside the wall, its pairs.
#ifndef KILN_LAB_AB_PRINT_H
#define KILN_LAB_AB_PRINT_H

#include "base/buf.h"
#include "lab/ab.h"

struct json_t;

// One comparison and what it was of.
struct kiln_ab_row {
    const struct kiln_ab *ab;
    const struct kiln_ab_params *params;
    const char *model, *device, *grade; // "qwen2", "cuda:0", "measured"
    const char *model_file;             // its name
    int64_t ubatch;
};

struct json_t *kiln_ab_row_json(const struct kiln_ab_row *row); // NULL: out of memory

// Markdown. The row's table has its header before the first row.
void kiln_ab_print_head(
        const char *model, const char *device, const char *grade, struct kiln_buf *out);
void kiln_ab_print_row(const struct kiln_ab_row *row, struct kiln_buf *out);
// A line for each slot that differs, kernel and wall beside each other, and one for all of them.
void kiln_ab_print_kernels_head(struct kiln_buf *out);
void kiln_ab_print_kernels(const struct kiln_ab_row *row, struct kiln_buf *out);
// A table of its own: both sides, and the state of the card.
void kiln_ab_print_pairs(const struct kiln_ab_row *row, struct kiln_buf *out);
// What makes its figures doubtful: to stderr.
void kiln_ab_print_warnings(const struct kiln_ab_row *row);

#endif
