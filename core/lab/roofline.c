// roofline: peaks of the card that a device is, and what they leave of a call's time.
#include "lab/roofline.h"

#include <math.h>
#include <stdio.h>

enum kiln_status kiln_ceilings_of(
        struct kiln_ceilings *ceilings, const struct kiln_device *device, struct kiln_err *err) {
    struct kiln_device_entry card;
    *ceilings = (struct kiln_ceilings){.bandwidth = device->memory_bandwidth};
    enum kiln_status status = kiln_device_match(&card, NULL, device, err);
    if (status == KILN_STATUS_OK && card.file) {
        ceilings->peaks = card.peaks;
        snprintf(ceilings->file, sizeof(ceilings->file), "%s", card.file);
    }
    kiln_device_entry_finish(&card);
    return status;
}

double kiln_ceilings_peak(const struct kiln_ceilings *ceilings, enum kiln_precision precision) {
    const double peaks[KILN_PRECISIONS] = {
            [KILN_PRECISION_F32] = ceilings->peaks.f32,
            [KILN_PRECISION_F16] = ceilings->peaks.f16,
            [KILN_PRECISION_I16] = ceilings->peaks.i8 / 2,
            [KILN_PRECISION_Q8] = ceilings->peaks.i8,
    };
    return peaks[precision];
}

const char *kiln_peak_name(enum kiln_precision precision) {
    static const char *const names[KILN_PRECISIONS] = {
            [KILN_PRECISION_F32] = "f32",
            [KILN_PRECISION_F16] = "f16",
            [KILN_PRECISION_I16] = "int8 / 2",
            [KILN_PRECISION_Q8] = "int8",
    };
    return names[precision];
}

struct kiln_roofline kiln_roofline_of(const struct kiln_ceilings *ceilings,
        const struct kiln_work *work, enum kiln_precision precision) {
    const double peak = kiln_ceilings_peak(ceilings, precision);
    const double memory = ceilings->bandwidth > 0 ? work->bytes / ceilings->bandwidth : 0;
    const double compute = peak > 0 ? work->flops / peak : 0;
    return (struct kiln_roofline){
            .memory = memory, .compute = compute, .bound = fmax(memory, compute)};
}

void kiln_roofline_add(struct kiln_roofline *sum, const struct kiln_roofline *one) {
    sum->memory += one->memory;
    sum->compute += one->compute;
    sum->bound += one->bound;
}
