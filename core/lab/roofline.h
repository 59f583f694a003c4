// roofline: how long a call takes at least on a device, by what its plan says that it moves and
// computes: the longer of bytes / bandwidth and operations / peak (Williams, Waterman, Patterson:
// Roofline, CACM 2009).
//
// A bound by data sheets, grade "derived". Bytes count as if all came from memory: what L2 still
// holds from the step before comes faster, so that a small call may stand below the bound.
#ifndef KILN_LAB_ROOFLINE_H
#define KILN_LAB_ROOFLINE_H

#include "device/catalog.h"
#include "lab/precision.h"
#include "lab/work.h"

struct kiln_ceilings {
    double bandwidth;        // bytes a second, as the device says; 0: not known
    struct kiln_peaks peaks; // of the card that it is
    char file[32];           // of configs/devices that they are from; "": no file is of this card
};

// Of a device at hand; a host has none. Errors: NOMEM.
KILN_MUST_CHECK enum kiln_status kiln_ceilings_of(
        struct kiln_ceilings *ceilings, const struct kiln_device *device, struct kiln_err *err);

// Operations a second that products of this precision can have: those of f16 and of integers the
// peaks of tensor cores, i16 half of int8's, since each takes a product by the high byte and one by
// the low. 0: not known.
double kiln_ceilings_peak(const struct kiln_ceilings *ceilings, enum kiln_precision precision);
// The peak's name: "f16", "int8", "int8 / 2", "f32".
const char *kiln_peak_name(enum kiln_precision precision);

struct kiln_roofline {      // seconds at least; 0: the ceiling is not known, or nothing of it to do
    double memory, compute; // by bytes; by operations
    double bound;           // the longer
};

struct kiln_roofline kiln_roofline_of(const struct kiln_ceilings *ceilings,
        const struct kiln_work *work, enum kiln_precision precision);
// Of calls one after the other: the sum of each part.
void kiln_roofline_add(struct kiln_roofline *sum, const struct kiln_roofline *one);

#endif
