// memory: the device's memory: taken from the driver in large chunks, handed out in pieces, kept
// for the next who asks when it is freed.
//
// Why not a driver's allocation for each tensor: it rounds each up (to 2 MiB where it is large),
// and its free waits for the whole device. A chunk grows with what is held, so that what is held
// and not handed out stays below a sixteenth, or 2 MiB, until something is freed.
//
// One for a device; used from any thread. Whoever frees has waited for the work that uses the
// piece.
#ifndef KILN_DEVICE_CUDA_MEMORY_H
#define KILN_DEVICE_CUDA_MEMORY_H

#include "device/cuda/driver.h"
#include "device/device.h"

struct kiln_cuda_memory;

// What is free on the device now is its budget. The caller ends *memory with
// kiln_cuda_memory_close, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_cuda_memory_open(
        struct kiln_cuda_memory **memory, const struct kiln_cu *cu, struct kiln_err *err);
// Gives every chunk back to the driver, freed or not. NULL is fine.
void kiln_cuda_memory_close(struct kiln_cuda_memory *memory);

// A piece of at least so many bytes, aligned to 512. Returns the driver's result (0: done), or -1
// when the host has no memory for the books.
int kiln_cuda_memory_take(struct kiln_cuda_memory *memory, uint64_t bytes, uint64_t *addr);
void kiln_cuda_memory_give(struct kiln_cuda_memory *memory, uint64_t addr);
void kiln_cuda_memory_count(struct kiln_cuda_memory *memory, struct kiln_dev_memory *count);

#endif
