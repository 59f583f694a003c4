// host: what a CUDA program may call on any device without defining it: vprintf, __assertfail,
// malloc and free. What a block prints is kept until it ends, so that the output is in the order of
// blocks for kernels that run in order, and never mixed within one.
#include "device/sim/access.h"

#include "base/mem.h"
#include "device/sim/lanes_impl.h"
#include "device/sim/run.h"
#include "device/sim/run_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_TEXT = 1024, // of a format or a string argument
};

static int print(struct sim_block *block, const char *text, size_t bytes) {
    if (kiln_grow(&block->printed, &block->cap_printed, block->n_printed + bytes, 1) != 0) {
        return 0;
    }
    memcpy(block->printed + block->n_printed, text, bytes);
    block->n_printed += bytes;
    return 1;
}

void kiln_sim_print_block(struct sim_block *block) {
    struct sim_run *run = block->worker->run;
    if (block->n_printed == 0) {
        return;
    }
    pthread_mutex_lock(&run->lock);
    if (run->options->print) {
        run->options->print(run->options->print_arg, block->printed, block->n_printed);
    } else {
        fwrite(block->printed, 1, block->n_printed, stdout);
    }
    pthread_mutex_unlock(&run->lock);
    block->n_printed = 0;
}

// Bytes at a generic address of one lane. 0: they are not all there.
static int peek(struct sim_warp *warp, const struct sim_op *op, int lane, uint64_t address,
        void *to, uint32_t bytes) {
    uint32_t running = warp->mask;
    struct sim_access access = {.bytes = 1, .kind = SIM_READS};
    warp->mask = 1u << lane;
    int good = 1;
    for (uint32_t i = 0; good && i < bytes; i++) {
        kiln_sim_addresses(&access, warp, 0, 0, (int64_t)(address + i));
        good = kiln_sim_resolve(&access, warp, op, KILN_PTX_GENERIC) != SIM_SPACE_FAILED &&
               access.mask != 0;
        if (good) {
            memcpy((unsigned char *)to + i, access.p[lane], 1);
        }
    }
    warp->mask = running;
    return good;
}

static void peek_text(struct sim_warp *warp, const struct sim_op *op, int lane, uint64_t address,
        char text[MAX_TEXT]) {
    uint32_t n = 0;
    while (n + 1 < MAX_TEXT && peek(warp, op, lane, address + n, text + n, 1) && text[n]) {
        n++;
    }
    text[n] = '\0';
}

struct printing {
    struct sim_warp *warp;
    const struct sim_op *op;
    int lane;
    uint64_t arguments; // where the next one is
    char out[4 * MAX_TEXT];
    size_t n;
    int conversions;
};

static uint64_t next_argument(struct printing *p, uint32_t bytes) {
    uint64_t value = 0;
    p->arguments = (p->arguments + bytes - 1) / bytes * bytes;
    peek(p->warp, p->op, p->lane, p->arguments, &value, bytes);
    p->arguments += bytes;
    return value;
}

static void add_bytes(struct printing *p, const char *text, size_t n) {
    size_t room = sizeof(p->out) - p->n;
    n = n < room ? n : room;
    memcpy(p->out + p->n, text, n);
    p->n += n;
}

static void add(struct printing *p, const char *text) {
    add_bytes(p, text, strlen(text));
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" // built from checked pieces of the kernel's
static void convert(struct printing *p, const char *flags, int wide, char letter) {
    char format[64], text[MAX_TEXT + 64] = "";
    snprintf(format, sizeof(format), "%%%.40s%c", flags, letter);
    if (strchr("diuoxX", letter)) {
        uint64_t raw = next_argument(p, wide ? 8 : 4);
        int is_signed = letter == 'd' || letter == 'i';
        long long value = is_signed && !wide ? (int32_t)raw : (long long)raw;
        snprintf(format, sizeof(format), "%%%.40sll%c", flags, letter);
        snprintf(text, sizeof(text), format, value);
    } else if (letter == 'c') {
        snprintf(text, sizeof(text), format, (int)next_argument(p, 4));
    } else if (letter == 's') {
        char argument[MAX_TEXT];
        peek_text(p->warp, p->op, p->lane, next_argument(p, 8), argument);
        snprintf(text, sizeof(text), format, argument);
    } else if (letter == 'p') {
        snprintf(text, sizeof(text), "0x%" PRIx64, next_argument(p, 8));
    } else {
        snprintf(text, sizeof(text), format, f64_of(next_argument(p, 8)));
    }
    add(p, text);
    p->conversions++;
}
#pragma GCC diagnostic pop

static void format_text(struct printing *p, const char *format) {
    while (*format) {
        const char *percent = strchr(format, '%');
        add_bytes(p, format, percent ? (size_t)(percent - format) : strlen(format));
        if (!percent) {
            return;
        }
        format = percent + 1;
        char flags[48] = "";
        size_t n = 0;
        while (*format && strchr("-+ #0123456789.*", *format) && n + 1 < sizeof(flags)) {
            if (*format == '*') { // an argument of its own
                char width[16];
                snprintf(width, sizeof(width), "%d", (int32_t)next_argument(p, 4));
                for (size_t i = 0; width[i] && n + 1 < sizeof(flags); i++) {
                    flags[n++] = width[i];
                }
                format++;
            } else {
                flags[n++] = *format++;
            }
        }
        int wide = 0;
        while (*format && strchr("hlzjt", *format)) {
            wide |= *format != 'h';
            format++;
        }
        if (*format == '%') {
            add(p, "%");
            format++;
        } else if (*format && strchr("diuoxXcsfFeEgGaAp", *format)) {
            flags[n] = '\0';
            convert(p, flags, wide, *format++);
        }
    }
}

static void *call_area(const struct sim_warp *warp, int lane, uint32_t offset) {
    return warp->calls + warp->call_at + (size_t)lane * warp->function->ptx->call_bytes + offset;
}

static uint64_t argument(
        const struct sim_warp *warp, const struct kiln_ptx_insn *insn, int lane, uint32_t index) {
    uint64_t value = 0;
    if (index < insn->n_a) {
        uint32_t offset = insn->n_a == 1 ? insn->a : warp->function->ptx->lists[insn->a + index];
        memcpy(&value, call_area(warp, lane, offset), 8);
    }
    return value;
}

static void give(
        const struct sim_warp *warp, const struct kiln_ptx_insn *insn, int lane, uint32_t value) {
    if (insn->target != KILN_PTX_NONE) {
        memcpy(call_area(warp, lane, insn->target), &value, 4);
    }
}

static const struct sim_op *assertion(
        struct sim_warp *warp, const struct sim_op *op, const struct kiln_ptx_insn *insn) {
    int lane = __builtin_ctz(warp->mask);
    char message[MAX_TEXT], file[MAX_TEXT];
    peek_text(warp, op, lane, argument(warp, insn, lane, 0), message);
    peek_text(warp, op, lane, argument(warp, insn, lane, 1), file);
    return kiln_sim_fail(warp, op, KILN_STATUS_DEVICE,
            "thread %u: assertion `%.200s' failed (%.200s:%u)",
            warp->index * SIM_LANES + (uint32_t)lane, message, file,
            (uint32_t)argument(warp, insn, lane, 2));
}

const struct sim_op *kiln_sim_run_call_host(struct sim_warp *warp, const struct sim_op *op) {
    const struct kiln_ptx_insn *insn = kiln_sim_insn_of(warp, op);
    if (insn->sub == KILN_PTX_ASSERTFAIL) {
        return assertion(warp, op, insn);
    }
    if (insn->sub != KILN_PTX_VPRINTF) {
        return kiln_sim_fail(warp, op, KILN_STATUS_DEVICE,
                "the kernel asks for memory from the device's heap, which sim does not have");
    }
    for (uint32_t mask = warp->mask; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        char format[MAX_TEXT];
        struct printing p = {.warp = warp, .op = op, .lane = lane};
        peek_text(warp, op, lane, argument(warp, insn, lane, 0), format);
        p.arguments = argument(warp, insn, lane, 1);
        format_text(&p, format);
        if (!print(warp->block, p.out, p.n)) {
            return kiln_sim_fail(
                    warp, op, KILN_STATUS_NOMEM, "no memory for what the kernel prints");
        }
        give(warp, insn, lane, (uint32_t)p.conversions);
    }
    return op + 1;
}
