// audit_behaviour: what the simulator counted, as lines and as JSON.
#include "lab/audit_impl.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

enum {
    SHOWN_SITES = 8
};

static void put_head(struct kiln_buf *text) {
    kiln_buf_printf(text, "  %-10s [simulated] ", "behaviour");
}

static void put_more(struct kiln_buf *text) {
    kiln_buf_printf(text, "%24s", "");
}

static void put_idle(struct kiln_buf *text, const struct kiln_behaviour *b) {
    for (size_t i = 0; i < b->n_idle; i++) {
        kiln_buf_printf(text, "%s%s:%" PRIu32, i == 0 ? "; that order nothing: " : ", ",
                b->idle[i].file, b->idle[i].line);
    }
}

// Whether a site costs more than it must: it is shown.
static int is_costly(const struct kiln_behaviour_site *site) {
    return site->global ? site->sectors * 32 > 1.01 * site->bytes : site->ways > 1;
}

static void put_site(struct kiln_buf *text, const struct kiln_behaviour_site *site) {
    put_more(text);
    kiln_buf_printf(text, "%s:%" PRIu32 ": ", site->file, site->line);
    if (site->global) {
        kiln_buf_printf(text, "%.1f sectors a request for %.0f B", site->sectors, site->bytes);
    } else if (site->ways > 1) {
        kiln_buf_printf(
                text, "%" PRIu32 "-way, %.2f times the wavefronts", site->ways, site->wavefronts);
    }
    kiln_buf_printf(text, "  | %s\n", site->opcode);
}

static void put_sites(struct kiln_buf *text, const struct kiln_behaviour *b) {
    size_t costly = 0, shared = 0, global = 0;
    for (size_t i = 0; i < b->n_sites; i++) {
        shared += !b->sites[i].global;
        global += b->sites[i].global != 0;
        costly += is_costly(&b->sites[i]) != 0;
    }
    put_more(text);
    kiln_buf_printf(text,
            "%zu accesses of shared memory by source line, %zu of global memory; %zu cost more "
            "than they must\n",
            shared, global, costly);
    size_t shown = 0;
    for (size_t i = 0; i < b->n_sites && shown < SHOWN_SITES; i++) {
        if (is_costly(&b->sites[i])) {
            put_site(text, &b->sites[i]);
            shown++;
        }
    }
    if (costly > shown) {
        put_more(text);
        kiln_buf_printf(text, "and %zu more: --json lists them\n", costly - shown);
    }
}

void kiln_audit_put_behaviour(struct kiln_buf *text, const struct kiln_behaviour *behaviour) {
    const struct kiln_behaviour *b = behaviour;
    if (!b) {
        return;
    }
    put_head(text);
    if (b->why_not) {
        kiln_buf_printf(text, "not simulated: %s\n", b->why_not);
        return;
    }
    kiln_buf_printf(text, "at %s: %.4g barriers a block", b->problem, b->barriers);
    put_idle(text, b);
    kiln_buf_puts(text, "\n");
    put_more(text);
    kiln_buf_printf(text,
            "%.4g tensor-core operations a block, %" PRIu32
            " B of shared memory touched of %" PRIu32 " B asked for\n",
            b->tensor_ops, b->smem_used, b->smem_requested);
    put_sites(text, b);
    if (b->faults > 0) {
        put_more(text);
        kiln_buf_printf(
                text, "%" PRIu32 " faults: kiln gate parity --device sim says which\n", b->faults);
    }
}

void kiln_audit_add_banks_json(struct json_t *banks, const struct kiln_behaviour *behaviour) {
    for (size_t i = 0; behaviour && i < behaviour->n_sites; i++) {
        const struct kiln_behaviour_site *site = &behaviour->sites[i];
        if (!site->global) {
            char name[112];
            snprintf(name, sizeof(name), "%s:%" PRIu32 " %s", site->file, site->line, site->opcode);
            json_array_append_new(
                    banks, json_pack("{s:s, s:s, s:i, s:s, s:n, s:i, s:f, s:I, s:s}", "site", name,
                                   "file", site->file, "line", (int)site->line, "opcode",
                                   site->opcode, "stride_bytes", "ways", (int)site->ways,
                                   "wavefronts_ratio", site->wavefronts, "requests",
                                   (json_int_t)site->requests, "grade", "simulated"));
        }
    }
}

static json_t *global_json(const struct kiln_behaviour *b) {
    json_t *sites = json_array();
    for (size_t i = 0; i < b->n_sites; i++) {
        const struct kiln_behaviour_site *site = &b->sites[i];
        if (site->global) {
            json_array_append_new(
                    sites, json_pack("{s:s, s:i, s:s, s:I, s:f, s:f}", "file", site->file, "line",
                                   (int)site->line, "opcode", site->opcode, "requests",
                                   (json_int_t)site->requests, "sectors_per_request", site->sectors,
                                   "bytes_per_request", site->bytes));
        }
    }
    return sites;
}

struct json_t *kiln_audit_behaviour_json(const struct kiln_behaviour *behaviour) {
    const struct kiln_behaviour *b = behaviour;
    if (!b) {
        return json_null();
    }
    if (b->why_not) {
        return json_pack("{s:s, s:s}", "not_simulated", b->why_not, "grade", "simulated");
    }
    json_t *idle = json_array();
    for (size_t i = 0; i < b->n_idle; i++) {
        json_array_append_new(idle,
                json_pack("{s:s, s:i}", "file", b->idle[i].file, "line", (int)b->idle[i].line));
    }
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:I, s:I, s:o, s:o, s:I, s:s}", "problem",
            b->problem, "blocks", (json_int_t)b->blocks, "warp_instructions",
            (json_int_t)b->instructions, "barriers_per_block", b->barriers, "tensor_ops_per_block",
            b->tensor_ops, "smem_requested", (json_int_t)b->smem_requested, "smem_used",
            (json_int_t)b->smem_used, "global", global_json(b), "barriers_idle", idle, "faults",
            (json_int_t)b->faults, "grade", "simulated");
}
