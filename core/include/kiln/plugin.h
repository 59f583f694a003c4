// kiln/plugin.h: everything a kiln plugin needs to know. Standard headers only; C17 and C++17.
//
// A plugin is one shared object that exports one constant object, kiln_plugin_entry, of type struct
// kiln_plugin. It says which variants it has: which slot of a model's forward pass each can fill,
// with which geometry, and how. It declares and plans; it never allocates device memory, compiles
// or launches. kiln does, so that the same .so runs on a GPU, on the simulator and on the CPU, is
// captured in a graph, and is audited for a device that is not there. The life of one call:
//
//   1. The model's graph asks for an op with its shapes, types and phase: a struct kiln_problem.
//   2. The configuration binds the op's slot to a variant of yours, with a geometry in its schema.
//   3. kiln calls your plan(): you describe launches into the struct kiln_plan that it hands you.
//   4. kiln compiles what the launches name (CUDA source) or takes your function (host kernel).
//   5. kiln prepares weights as you asked, once, and keeps them while their key stays the same.
//   6. kiln fills in addresses and launches, again and again, without calling you.
//
// To write one: copy plugins/example/, rename, build, run `kiln plugins verify ./your.so`.
//
// Rules for every callback. Strings are UTF-8 and NUL-terminated. Nothing that you return may
// change or go away before finish(). No exception, longjmp, exit or output to stdout crosses the
// border (use host->log). No thread outlives finish(). No mutable globals: what you need you keep
// in the instance. Pointers that kiln passes in are valid during the call only; what you pass to
// kiln_plan functions is copied before they return. [plan-thread] marks what kiln may call from any
// thread, but not twice at once for one instance. Have no constructors: loading runs them, also
// those of a plugin that kiln then refuses.
#ifndef KILN_PLUGIN_H
#define KILN_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Version ------------------------------------------------------------------------------------
// Another major is refused. Within a major, structs only grow at their end: struct_size stands
// first in every struct that crosses, and says how much of it the writer knew; what lies beyond is
// not offered and reads as zero. So a plugin and a kiln of different minors work together.
// struct_size must be the size that the stated minor has (a newer minor may be longer): anything
// else is refused. Arrays of structs are arrays of pointers. Set struct_size with sizeof, reserved
// fields and unused flag bits to 0. Callbacks return enum kiln_result as int32_t.
#define KILN_ABI_MAJOR 1
#define KILN_ABI_MINOR 0

enum kiln_result {
    KILN_RESULT_OK = 0,
    KILN_RESULT_DECLINED = 1, // not for me: kiln falls back and says so (plan->decline: the reason)
    KILN_RESULT_FAILED = 2,   // an error that the user must see (plan->fail gives the text)
};

// ---- Types, kinds and flags ---------------------------------------------------------------------
// clang-format off
enum kiln_dtype { // numbers as in GGUF files; block types are laid out as there
    KILN_DTYPE_F32 = 0, KILN_DTYPE_F16 = 1, KILN_DTYPE_BF16 = 30, KILN_DTYPE_F64 = 28,
    KILN_DTYPE_Q4_0 = 2, KILN_DTYPE_Q4_1 = 3, KILN_DTYPE_Q5_0 = 6, KILN_DTYPE_Q5_1 = 7,
    KILN_DTYPE_Q8_0 = 8, KILN_DTYPE_Q2_K = 10, KILN_DTYPE_Q3_K = 11, KILN_DTYPE_Q4_K = 12,
    KILN_DTYPE_Q5_K = 13, KILN_DTYPE_Q6_K = 14,
    KILN_DTYPE_I8 = 24, KILN_DTYPE_I16 = 25, KILN_DTYPE_I32 = 26, KILN_DTYPE_I64 = 27,
    KILN_DTYPE_BLOCK = 1000, // a block format that a plugin names: see struct kiln_format
};

// Operands: "+" means optional; shapes are (rows, columns), columns contiguous. S tokens, V words,
// D model, H heads, HKV KV heads, HD head size, T cache rows, F ffn, N outputs, K inputs.
enum kiln_op_kind {
    KILN_OP_EMBED = 1,      // IDS (S), WEIGHT (V, D) -> OUT (S, D) = scale * row
    KILN_OP_NORM = 2,       // IN (S, D), WEIGHT (D), +RESIDUAL -> OUT = RESIDUAL + rms(IN) * WEIGHT
    KILN_OP_MATMUL = 3,     // IN (S, K), WEIGHT (N, K), +BIAS (N), +RESIDUAL (S, N) -> OUT (S, N)
    KILN_OP_ROPE_KV = 4,    // Q (S, H*HD), K, V (S, HKV*HD), +Q_NORM, +K_NORM (HD), ROPE_FREQS
                            // (rope_dims/2), POSITIONS -> OUT (S, H*HD), K_CACHE, V_CACHE rows
    KILN_OP_ATTENTION = 5,  // Q (S, H*HD), K_CACHE, V_CACHE (T, HKV*HD), POSITIONS -> OUT (S, H*HD)
    KILN_OP_ACTIVATION = 6, // GATE, UP (S, F) -> OUT (S, F) = act(GATE) * UP
    KILN_OP_QUANTIZE = 7,   // IN (S, K) -> OUT (S, K) in another format; kiln inserts it
    KILN_OP_ARGMAX = 8,     // IN (S, V) -> OUT (S) i32: lowest index of the largest; -1: not finite
    // Names reserved: matmul.id (experts), collective.*
};

enum kiln_operand {
    KILN_OPERAND_IN = 1, KILN_OPERAND_OUT = 2, KILN_OPERAND_WEIGHT = 3, KILN_OPERAND_BIAS = 4,
    KILN_OPERAND_RESIDUAL = 5, // OUT may be the same memory
    KILN_OPERAND_GATE = 6,     // OUT may be the same memory
    KILN_OPERAND_UP = 7,
    KILN_OPERAND_Q = 8,        // of ROPE_KV: OUT may be the same memory
    KILN_OPERAND_K = 9, KILN_OPERAND_V = 10,
    KILN_OPERAND_K_CACHE = 11, // row p is position p; rows behind the last position hold anything
    KILN_OPERAND_V_CACHE = 12,
    KILN_OPERAND_Q_NORM = 13, KILN_OPERAND_K_NORM = 14,
    KILN_OPERAND_ROPE_FREQS = 15, // f32 radians a position, a pair
    KILN_OPERAND_IDS = 16,        // i32
    // Values that live on the device (i32): a captured graph serves many steps because they
    // change and it does not.
    KILN_OPERAND_POSITIONS = 17,  // (S): position of each row; it sees keys at positions <= its own
    KILN_OPERAND_N_TOKENS = 18,   // (1): rows in use of a bound S; those behind are not written
    KILN_OPERAND_KV_LEN = 19,     // (1) or (sequences): keys in use
    KILN_OPERAND_N_PAST = 20,     // (1): keys before this call
    KILN_OPERAND_N_SEQ = 21,      // (1): sequences in use; absent: one sequence
    KILN_OPERAND_SEQ_START = 22,  // (sequences + 1): first row of each sequence
    KILN_OPERAND_PAGE_TABLE = 23, // (sequences, pages): absent: the cache is contiguous
};

enum kiln_tensor_flag {
    KILN_TENSOR_WEIGHT = 1,   // constant for the life of the model
    KILN_TENSOR_INTERNAL = 2, // between two ops of this problem, no other reads it: may be skipped
};
enum kiln_activation { KILN_ACTIVATION_SILU = 1, KILN_ACTIVATION_GELU_TANH = 2 };
enum kiln_rope_style { KILN_ROPE_PAIRS = 1, KILN_ROPE_HALVES = 2 }; // (2i, 2i+1); (i, i+dims/2)
enum kiln_phase { KILN_PHASE_PREFILL = 1, KILN_PHASE_DECODE = 2 };
enum kiln_param_flag { KILN_PARAM_REGROUPS = 1 }; // another value groups float sums differently
enum kiln_device_kind { KILN_DEVICE_HOST = 1, KILN_DEVICE_CUDA = 2 }; // flags; sim counts as CUDA
enum kiln_host_feature { // AVX2: with FMA and F16C; AVX512: F, BW, VL, DQ
    KILN_HOST_AVX2 = 1, KILN_HOST_AVX512 = 2, KILN_HOST_AVX512_VNNI = 4, KILN_HOST_AVX_VNNI = 8,
};
enum kiln_log_kind { KILN_LOG_KIND_WARN = 1, KILN_LOG_KIND_INFO = 2, KILN_LOG_KIND_DEBUG = 3 };

enum kiln_arg_kind {
    KILN_ARG_OPERAND = 1,    // address of operand `operand` of op `op`, plus offset
    KILN_ARG_WORKSPACE = 2,  // address of workspace `index`, plus offset
    KILN_ARG_PREPARED = 3,   // address of buffer `buffer` of preparation `index`, plus offset
    KILN_ARG_BYTES = 4,      // `size` bytes by value, at most 4096
    KILN_ARG_TENSOR_MAP = 5, // a map over the address that the fields give for kind `map->base`
};
#define KILN_PREP_SELF UINT32_MAX // `index` of PREPARED in the preparation that owns the launch
enum kiln_swizzle { // the pattern's bytes, as cuTensorMapEncodeTiled means it
    KILN_SWIZZLE_NONE = 0, KILN_SWIZZLE_32 = 1, KILN_SWIZZLE_64 = 2, KILN_SWIZZLE_128 = 3,
};
enum kiln_site_kind { KILN_SITE_LDMATRIX = 1, KILN_SITE_LOAD = 2, KILN_SITE_STORE = 3 };
// DEPENDENT: programmatic dependent launch, where the device has it
enum kiln_launch_flag { KILN_LAUNCH_COOPERATIVE = 1, KILN_LAUNCH_DEPENDENT = 2 };
// ZERO: zeroed before each call. KEPT beside it: launches leave zeros behind, so once is enough.
enum kiln_workspace_flag { KILN_WORKSPACE_ZERO = 1, KILN_WORKSPACE_KEPT = 2 };
enum kiln_source_flag { KILN_SOURCE_CUDA_INCLUDE = 1 }; // wants CUDA's headers: cuda_fp16.h, mma.h
// clang-format on

// A strided view of an operand: shape and type, no address. Lives in kiln.
struct kiln_tensor {
    uint32_t struct_size;
    uint32_t operand; // enum kiln_operand
    uint32_t dtype;   // enum kiln_dtype
    uint32_t flags;   // enum kiln_tensor_flag
    uint32_t n_dims;
    uint32_t bound_dims;  // bit i: dims[i] is an upper bound, operand bound_by[i] the value in use
    uint32_t bound_by[4]; // enum kiln_operand
    int64_t dims[4];      // elements, columns first; unused ones are 1
    int64_t strides[4];   // bytes from one element to the next; [0]: bytes a block
    uint64_t alignment;   // of the first byte
    const char *format;   // the name of the block format when dtype is BLOCK, else NULL
};

// A block format for edges, declared by a plugin; other plugins may read and write it by its name.
struct kiln_format {
    uint32_t struct_size;
    uint32_t block_elems; // columns a block; a row is columns / block_elems blocks
    uint32_t block_bytes;
    uint32_t row_multiple; // rows are padded to a multiple of this (1: not padded)
    const char *name;      // "q8_32"
    const char *layout;    // one line for people: what the bytes of a block are
};

// One op with its operands and the attributes that its kind uses; the others are 0.
struct kiln_op {
    uint32_t struct_size, kind; // enum kiln_op_kind
    const char *role; // which of the layer's ops: "attn_q", "ffn_down", "output" …; never NULL
    const struct kiln_tensor *const *operands;
    uint32_t n_operands;
    uint32_t activation; // enum kiln_activation
    int32_t n_heads, n_kv_heads, head_size;
    int32_t window;      // keys that a row sees, itself included; 0: all before it
    uint32_t rope_style; // enum kiln_rope_style
    int32_t rope_dims;   // the first rope_dims of head_size rotate
    float rope_scale;    // multiplies cosine and sine
    float scale;         // EMBED: of the row; ATTENTION: of q·k before the softmax
    float softcap;       // ATTENTION: 0, or scores become softcap * tanh(score / softcap)
    float eps;
};

// What a call must do. All static: the same problem is planned once and launched many times.
struct kiln_problem {
    uint32_t struct_size, phase;      // enum kiln_phase
    const char *slot;                 // of the first op: "matmul.q4_K.prefill"
    const struct kiln_op *const *ops; // 1, or adjacent ones for a variant that fills several
    uint32_t n_ops;
    int32_t layer;       // -1: outside the layers
    int32_t rank, world; // of a tensor-parallel run: 0, 1 otherwise
};

// ---- Geometry -----------------------------------------------------------------------------------
struct kiln_param_default { // the first row that fits gives the default
    uint32_t struct_size;
    int32_t head_size;              // 0: any
    int32_t target_min, target_max; // compute capability * 10, both ends in; 0: open
    int64_t value;
};

// A geometry parameter. Keys are UPPER_CASE; they reach CUDA sources as defines of the same name.
struct kiln_param {
    uint32_t struct_size, flags; // enum kiln_param_flag
    const char *name;
    const char *help, *unit;       // one line; "rows", "halves", "" …
    int64_t value;                 // the default
    int64_t min, max, multiple_of; // used when allowed is NULL; multiple_of 0 or 1: any
    const int64_t *allowed;        // or the list of values
    uint32_t n_allowed, n_defaults;
    const struct kiln_param_default *const *defaults; // in place of `value` where one fits
};

struct kiln_geometry { // as bound: one value for each parameter, in the order of the schema
    uint32_t struct_size, n_values;
    const char *const *names;
    const int64_t *values;
};

// ---- What the host gives ------------------------------------------------------------------------
struct kiln_device {
    uint32_t struct_size, kind; // enum kiln_device_kind
    const char *name;           // "NVIDIA H200", "sim", "cpu"
    const char *target;         // "sm_90a"; "cpu"
    int32_t cc;                 // compute capability * 10: 90, 121; 0 on the host
    int32_t sm_count;           // host: threads
    int32_t warp_size;
    int32_t max_threads_block, max_threads_sm, max_blocks_sm, max_warps_sm;
    int32_t regs_block, regs_sm, reg_unit;         // registers; reg_unit: allocation unit a warp
    int32_t smem_block, smem_block_optin, smem_sm; // bytes
    int32_t smem_reserved;                         // bytes a block that the system takes
    int32_t max_cluster;
    uint32_t host_features; // enum kiln_host_feature
    uint64_t l2_bytes, memory_bytes;
    double memory_bandwidth; // bytes a second, 0: unknown
    int32_t max_grid[3], max_block[3];
};

struct kiln_host { // valid until finish(); both functions are there, and callable from any thread
    uint32_t struct_size;
    uint16_t abi_major, abi_minor; // of this kiln
    void *data;                    // kiln's own; pass `host` back as it came
    // kind: enum kiln_log_kind
    void (*log)(const struct kiln_host *host, uint32_t kind, const char *text);
    // An optional table of functions by id, "kiln.<name>/<revision>"; gives NULL when not offered.
    const void *(*extension)(const struct kiln_host *host, const char *id);
};

// ---- What a plan is made of ---------------------------------------------------------------------
struct kiln_tensor_map { // encoded by the device: cuTensorMapEncodeTiled
    uint32_t struct_size;
    uint32_t base;  // enum kiln_arg_kind: OPERAND, WORKSPACE or PREPARED
    uint32_t dtype; // enum kiln_dtype of the elements as copied
    uint32_t rank;  // 1..5
    uint64_t dims[5];
    uint64_t strides[5]; // bytes; [0] is not read
    uint32_t box[5];
    uint32_t elem_strides[5];
    uint32_t swizzle;      // enum kiln_swizzle
    uint32_t l2_promotion; // bytes: 0, 64, 128 or 256
    uint32_t interleave;   // bytes: 0, 16 or 32
    uint32_t oob_nan;      // out of bounds reads as 0: zero; 1: NaN
};

struct kiln_arg {
    uint32_t struct_size, kind; // enum kiln_arg_kind
    uint32_t op, operand;       // op: index in problem->ops; operand: enum kiln_operand
    uint32_t index, buffer;
    uint64_t offset, size; // bytes
    const void *bytes;
    const struct kiln_tensor_map *map;
};

// A place where rows in shared memory are accessed: kiln derives its bank conflicts. LDMATRIX: each
// lane gives a row. LOAD, STORE: lane l is at row l / 4, column l % 4, as in an mma fragment.
struct kiln_smem_site {
    uint32_t struct_size, kind; // enum kiln_site_kind
    const char *name;
    uint32_t stride_bytes, access_bytes; // from row to row; a lane's access (LDMATRIX: 16)
    uint32_t swizzle, reserved;          // enum kiln_swizzle of the rows; 0
};

// One kernel launch. Grids come from bounds, never from values that live on the device.
struct kiln_launch {
    uint32_t struct_size, flags;            // enum kiln_launch_flag
    const char *kernel;                     // one of the variant's kernels
    uint32_t grid[3], block[3], cluster[3]; // host: block is ignored; cluster 0 or 1: none
    uint32_t shared_bytes; // the launcher's own reckoning; reaches CUDA sources as KILN_SMEM
    const struct kiln_arg *const *args; // in the order of the kernel's parameters
    const char *const *defines; // CUDA: "NAME=VALUE" beside the geometry; part of the cache key
    const struct kiln_smem_site *const *sites;
    uint32_t n_args, n_defines, n_sites, reserved; // 0
    double flops, bytes_read, bytes_written;       // useful work, for percent of ceiling
    const char *sum_order; // NULL, or a name of the order of float sums: same name, same bits
};

// Weights in another form, made by kernels, kept while the key is the same: id, source tensors and
// the values of the named geometry keys. All variants of a plugin that use the id share it.
struct kiln_preparation {
    uint32_t struct_size, n_sources, n_buffers, n_launches, n_keys, reserved; // reserved: 0
    const char *id;
    const struct kiln_arg *const *sources; // kind OPERAND
    const uint64_t *buffer_bytes;
    const struct kiln_launch *const *launches;
    const char *const *keys;
};

// Where plan() puts its answer. The functions copy, and are called on kiln's thread during plan()
// only. workspace, prepare and launch return a number >= 0 (its index; launches run in order), or
// -1 when kiln refused what was passed and has noted why: return FAILED then.
struct kiln_plan {
    uint32_t struct_size, reserved; // 0
    void *data;                     // kiln's own
    int32_t (*workspace)(struct kiln_plan *plan, uint64_t bytes, uint32_t flags);
    int32_t (*prepare)(struct kiln_plan *plan, const struct kiln_preparation *preparation);
    int32_t (*launch)(struct kiln_plan *plan, const struct kiln_launch *launch);
    int32_t (*decline)(struct kiln_plan *plan, const char *reason); // gives KILN_RESULT_DECLINED
    int32_t (*fail)(struct kiln_plan *plan, const char *text);      // gives KILN_RESULT_FAILED
};

// ---- What the plugin gives ----------------------------------------------------------------------
// A host kernel: called once for each block of the grid, by any thread, blocks in any order and at
// once. args[i]: the address that an OPERAND, WORKSPACE or PREPARED argument names (NULL: absent),
// or BYTES themselves.
struct kiln_block {
    uint32_t struct_size, worker; // which of the pool's threads
    uint32_t grid[3], index[3];
    void *shared; // shared_bytes of scratch, 64-byte aligned, undefined content, this block's alone
};
typedef void (*kiln_host_fn)(const struct kiln_block *block, void *const *args);

struct kiln_header {                // a file that the source includes
    uint32_t struct_size, reserved; // 0
    const char *name, *text;
};

// CUDA C for NVRTC, compiled with the geometry, KILN_SMEM and the launch's defines. A kernel with
// dynamic shared memory also exports `__device__ const unsigned kiln_layout_<kernel>[]`: total
// bytes, then offset and bytes of each region, computed from the defines; kiln compares it with the
// launcher's figure.
struct kiln_source {
    uint32_t struct_size, flags; // enum kiln_source_flag
    const char *name, *text;     // name: for messages, "fap2.cu"
    const struct kiln_header *const *headers;
    const char *const *options; // for NVRTC
    uint32_t n_headers, n_options;
};

struct kiln_kernel {                // exactly one of source and host
    uint32_t struct_size, reserved; // 0
    const char *name;               // entry point, and what launches call it
    const struct kiln_source *source;
    const char *instance; // NULL, or the name expression of a template instance: "gemm<64, 128>"
    kiln_host_fn host;
};

struct kiln_io { // the formats that an operand of this variant may have, best first
    uint32_t struct_size, op, operand, n_formats; // op, operand: as in struct kiln_arg
    const char *const *formats; // "f32", "f16", "bf16", a weight type ("q4_K"), a block format
};

struct kiln_variant {
    uint32_t struct_size, devices; // enum kiln_device_kind, or-ed
    const char *name, *help;       // help, one line: the algorithm and what sets it apart
    const char *const *slots;      // that it fills; "*": any weight type: "matmul.*.prefill"
    // The ops that follow the first in a variant that fills several adjacent ones, "kind" or
    // "kind:role": {"matmul:attn_k", "matmul:attn_v"} with role "attn_q"; {"quantize"} on norm.
    const char *const *follows;
    const char *role; // NULL: any
    const struct kiln_param *const *params;
    const struct kiln_kernel *const *kernels;
    const struct kiln_io *const *ios; // not listed: edges are f32, weights of any type of the slot
    uint32_t n_slots, n_follows, n_params, n_kernels, n_ios, reserved; // 0
    // [plan-thread] Mandatory. Pure: the same arguments give the same plan, for any device, also
    // one that is not there. OK with at least one launch; DECLINED or FAILED with what
    // plan->decline or plan->fail returned.
    int32_t (*plan)(void *instance, const struct kiln_problem *problem,
            const struct kiln_geometry *geometry, const struct kiln_device *device,
            struct kiln_plan *plan);
};

struct kiln_plugin {
    uint32_t struct_size;
    uint16_t abi_major, abi_minor; // KILN_ABI_MAJOR, KILN_ABI_MINOR
    const char *name;              // [a-z0-9_]+, unique among the loaded plugins
    const char *version, *help;    // its own; one line
    const struct kiln_variant *const *variants;
    const struct kiln_format *const *formats;
    uint32_t n_variants, n_formats;
    // Optional. Once for each device, before any plan; *instance is handed to plan and finish.
    int32_t (*start)(
            const struct kiln_host *host, const struct kiln_device *device, void **instance);
    void (*finish)(void *instance); // optional
    // Optional: the plugin's side of an extension, "kiln.<name>/<revision>", NULL when it has none.
    const void *(*extension)(const char *id);
};

#if defined(__GNUC__)
#    define KILN_EXPORT __attribute__((visibility("default")))
#else
#    define KILN_EXPORT
#endif
// The one symbol: KILN_EXPORT const struct kiln_plugin kiln_plugin_entry = {...};
extern KILN_EXPORT const struct kiln_plugin kiln_plugin_entry;

#ifdef __cplusplus
}
#endif
#endif
