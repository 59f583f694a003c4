// cmd_devices: what kiln can run on here, and what is missing.
#include "cmd.h"

#include "base/pool.h"
#include "base/ranges.h"
#include "common.h"
#include "device/catalog.h"
#include "device/device.h"

#include <jansson.h>
#include <stdio.h>

static const char *simd_name(void) {
    uint32_t features = kiln_host_features();
    return features & KILN_HOST_AVX512 ? "avx512" : features & KILN_HOST_AVX2 ? "avx2" : "generic";
}

static enum kiln_status print_cuda(int32_t number, struct kiln_buf *out, struct kiln_err *err) {
    struct kiln_device desc;
    struct kiln_cuda_names names;
    struct kiln_device_entry card;
    KILN_TRY(kiln_cuda_describe(number, &desc, &names, err));
    KILN_TRY(kiln_device_match(&card, NULL, &desc, err));
    kiln_buf_printf(out, "cuda:%-2d %s, %s, %d SMs, %.1f GiB, %d bytes of shared memory a block, ",
            number, desc.name, desc.target, desc.sm_count, (double)desc.memory_bytes / (1 << 30),
            desc.smem_block_optin);
    if (card.file) {
        kiln_buf_printf(out, "peaks of configs/devices/%s.ini\n", card.file);
    } else {
        kiln_buf_puts(out, "peaks not known (no file of configs/devices is of it)\n");
    }
    kiln_device_entry_finish(&card);
    return KILN_STATUS_OK;
}

// missing: what keeps cuda away, or NULL.
static enum kiln_status print_text(int32_t n_cuda, const char *missing, struct kiln_err *err) {
    char name[128];
    kiln_host_cpu_name(name, sizeof(name));
    struct kiln_buf out = {0};
    kiln_buf_printf(&out, "cpu     %s, %u threads, %s\n", name, kiln_cpu_count(), simd_name());
    for (int32_t i = 0; i < n_cuda; i++) {
        KILN_TRY(print_cuda(i, &out, err));
    }
    kiln_buf_puts(&out, "sim     CUDA kernels interpreted on the CPU; sim:sm_75 and the like\n");
    if (missing) {
        kiln_buf_printf(&out, "no cuda %s\n", missing);
    }
    kiln_buf_puts(&out, kiln_ranges_built()
                                ? "nvtx    ranges for a profiler are built in\n"
                                : "no nvtx a profiler sees no ranges: this kiln was built without "
                                  "NVTX's headers; tools/fetch-nvrtc nvtx fetches them\n");
    return kiln_out_buf(&out, err);
}

static json_t *cuda_json(int32_t number) {
    struct kiln_device desc;
    struct kiln_cuda_names names;
    struct kiln_device_entry card;
    struct kiln_err ignored = {0};
    if (kiln_cuda_describe(number, &desc, &names, &ignored) != KILN_STATUS_OK ||
            kiln_device_match(&card, NULL, &desc, &ignored) != KILN_STATUS_OK) {
        return NULL;
    }
    char id[32];
    snprintf(id, sizeof(id), "cuda:%d", number);
    json_t *json = json_pack("{s:s, s:s, s:s, s:i, s:I, s:i, s:i, s:s?}", "id", id, "name",
            desc.name, "target", desc.target, "sm_count", (int)desc.sm_count, "memory_bytes",
            (json_int_t)desc.memory_bytes, "smem_block", (int)desc.smem_block_optin, "smem_sm",
            (int)desc.smem_sm, "device_file", card.file);
    kiln_device_entry_finish(&card);
    return json;
}

static enum kiln_status print_json(int32_t n_cuda, const char *missing, struct kiln_err *err) {
    char name[128];
    kiln_host_cpu_name(name, sizeof(name));
    json_t *devices = json_pack("[{s:s, s:s, s:i, s:s}]", "id", "cpu", "name", name, "threads",
            (int)kiln_cpu_count(), "simd", simd_name());
    for (int32_t i = 0; devices && i < n_cuda; i++) {
        json_array_append_new(devices, cuda_json(i));
    }
    (void)json_array_append_new(devices,
            json_pack("{s:s, s:s, s:s}", "id", "sim:sm_80", "name", "sim", "target", "sm_80"));
    return kiln_out_json(json_pack("{s:o, s:s?, s:b}", "devices", devices, "cuda_missing", missing,
                                 "nvtx", kiln_ranges_built()),
            err);
}

static enum kiln_status run(
        const struct kiln_cmd *cmd, int argc, char **argv, struct kiln_err *err) {
    struct kiln_common common;
    kiln_common_init(&common);
    int done;
    const struct kiln_opt table[] = {KILN_COMMON_OUTPUT(&common), KILN_OPT_END};
    KILN_TRY(kiln_opt_parse(cmd, table, argc, argv, &done, err));
    if (done) {
        return KILN_STATUS_OK;
    }
    struct kiln_err why = {0};
    int32_t n_cuda = 0;
    enum kiln_status cuda = kiln_cuda_count(&n_cuda, &why);
    return common.json ? print_json(n_cuda, cuda == KILN_STATUS_OK ? NULL : why.text, err)
                       : print_text(n_cuda, cuda == KILN_STATUS_OK ? NULL : why.text, err);
}

const struct kiln_cmd kiln_cmd_devices = {
        .name = "devices",
        .summary = "what kiln can run on here",
        .usage = "[--json]",
        .example = "kiln devices",
        .run = run,
};
