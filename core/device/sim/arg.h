// arg: kernel arguments as text: files, generated buffers, numbers; their way into a machine's
// memory and a parameter block, and back into files.
//
//   in:F.npy            a buffer with the file's content, which the kernel may read
//   inout:F.npy[:G.npy] the same, to be written as well; written back to G (F when not named)
//   out:TYPE:COUNT:F.npy   a buffer that nobody wrote yet, saved to F afterwards
//   zeros:TYPE:COUNT    0, 0, 0 …
//   ramp:TYPE:COUNT     0, 1, 2 …
//   rand:TYPE:COUNT[:SEED] reals in [-1, 1), integers of all bits; the same for the same seed
//   i32:5 f32:0.5 …     a number: i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64
//   bytes:HEX           a parameter that is a struct
//   null                a pointer to nothing
// COUNT is a number or a shape, 64x128. zeros, ramp and rand may end in :F.npy too, to be saved.
#ifndef KILN_DEVICE_SIM_ARG_H
#define KILN_DEVICE_SIM_ARG_H

#include "base/status.h"
#include "device/sim/exec.h"
#include "device/sim/npy.h"
#include "device/sim/ptx.h"

struct kiln_sim_arg {
    const char *text;      // as given
    int is_buffer;         // else `value`
    int read_only, blank;  // of the buffer; blank: nobody wrote it
    struct kiln_npy array; // its content
    char *save;            // file to write afterwards, or NULL; owned
    uint64_t address;      // once bound
    uint8_t *value;        // bytes of a parameter; owned
    uint32_t value_bytes;
};

// Reads one argument; files are read here. KILN_STATUS_USAGE: the text is not as above;
// KILN_STATUS_FILE: a file is not as it must be. End with kiln_sim_arg_finish, also after a
// failure.
KILN_MUST_CHECK enum kiln_status kiln_sim_arg_read(
        struct kiln_sim_arg *arg, const char *text, struct kiln_err *err);
void kiln_sim_arg_finish(struct kiln_sim_arg *arg);

// Puts arguments into the machine and writes the parameter block of `kernel` (param_bytes of it,
// the caller's). Their number and sizes must be the kernel's: KILN_STATUS_USAGE says which is not.
KILN_MUST_CHECK enum kiln_status kiln_sim_args_bind(struct kiln_sim *sim,
        const struct kiln_ptx_kernel *kernel, struct kiln_sim_arg *args, size_t count,
        uint8_t *params, struct kiln_err *err);
// Brings buffers back and saves those that are to be saved.
KILN_MUST_CHECK enum kiln_status kiln_sim_args_save(
        struct kiln_sim *sim, struct kiln_sim_arg *args, size_t count, struct kiln_err *err);

#endif
