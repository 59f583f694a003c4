// What a compile is made from and what is read out of it, without NVRTC: defines, keys, includes,
// the figures of ptxas, layouts in ELF and PTX.
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "jit/compile.h"
#include "jit/defines.h"
#include "jit/elf.h"
#include "jit/layout.h"
#include "jit/source_files.h"
#include "jit/unit.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int archs[] = {75, 80, 90, 100, 121};
static char fake_path[] = "fake", fake_identity[] = "13.0 fake";
static const struct kiln_nvrtc fake = {.path = fake_path,
        .major = 13,
        .minor = 0,
        .identity = fake_identity,
        .archs = archs,
        .n_archs = 5};

static const char *const names[] = {"FA_TQ", "FA_TKV"};
static const int64_t values[] = {64, 32};
static const struct kiln_geometry geometry = {
        .struct_size = sizeof(geometry), .n_values = 2, .names = names, .values = values};
static const char *const launch_defines[] = {"HEAD=128", "TYPE=unsigned char"};
static const struct kiln_launch launch = {.struct_size = sizeof(launch),
        .kernel = "k",
        .shared_bytes = 34816,
        .defines = launch_defines,
        .n_defines = 2};

static char root[64];

static void write_file(const char *name, const char *text) {
    char path[128];
    struct kiln_err err = {0};
    snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_int_equal(kiln_file_write(path, text, strlen(text), &err), KILN_STATUS_OK);
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0); // time stamps must not matter
}

static int set_up(void **state) {
    (void)state;
    snprintf(root, sizeof(root), "/tmp/kiln-jit-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command) == 0 ? 0 : -1; // NOLINT: a path that mkdtemp made
}

// ---- Defines ------------------------------------------------------------------------------------

static void defines_are_sorted_and_complete(void **state) {
    (void)state;
    struct kiln_buf text = {0}, label = {0};
    struct kiln_err err = {0};
    assert_int_equal(kiln_defines_render(&geometry, &launch, &text, &err), KILN_STATUS_OK);
    assert_string_equal(text.data, "#define FA_TKV 32\n#define FA_TQ 64\n#define HEAD 128\n"
                                   "#define KILN_SMEM 34816\n#define TYPE unsigned char\n");
    kiln_defines_label(text.data, &label);
    assert_string_equal(
            label.data, "FA_TKV=32 FA_TQ=64 HEAD=128 KILN_SMEM=34816 TYPE=unsigned char");
    kiln_buf_finish(&text);
    kiln_buf_finish(&label);
}

static void defines_refuse_what_is_none(void **state) {
    (void)state;
    static const char *const bad[] = {
            "FA_TQ=1", "KILN_SMEM=0", "1X=2", "=3", "A=1\n#error", "A B=1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct kiln_launch one = launch;
        struct kiln_buf text = {0};
        struct kiln_err err = {0};
        one.defines = &bad[i];
        one.n_defines = 1;
        assert_int_equal(kiln_defines_render(&geometry, &one, &text, &err), KILN_STATUS_FILE);
        assert_non_null(strstr(err.text, "define '"));
        kiln_buf_finish(&text);
    }
}

// ---- Keys ---------------------------------------------------------------------------------------

static const struct kiln_header header_one = {
        .struct_size = sizeof(header_one), .name = "fa_common.cuh", .text = "#define ONE 1.0\n"};
static const struct kiln_header *const headers[] = {&header_one};
static const struct kiln_source source = {.struct_size = sizeof(source),
        .name = "fap2.cu",
        .text = "#include \"fa_common.cuh\"\n",
        .headers = headers,
        .n_headers = 1};
static const struct kiln_kernel kernel = {
        .struct_size = sizeof(kernel), .name = "k", .source = &source};

static struct kiln_jit_request request(void) {
    return (struct kiln_jit_request){.plugin = "p",
            .variant = "v",
            .kernel = &kernel,
            .geometry = &geometry,
            .launch = &launch,
            .target = "sm_80"};
}

static struct kiln_unit *make(const struct kiln_jit_request *wanted) {
    struct kiln_unit *unit = NULL;
    struct kiln_err err = {0};
    enum kiln_status status = kiln_unit_make(&unit, wanted, &fake, &err);
    if (status != KILN_STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
    }
    assert_int_equal(status, KILN_STATUS_OK);
    return unit;
}

static struct kiln_jit_key key_of(const struct kiln_jit_request *wanted) {
    struct kiln_unit *unit = make(wanted);
    struct kiln_jit_key key = unit->key;
    kiln_unit_destroy(unit);
    return key;
}

static enum kiln_status refusal(const struct kiln_jit_request *wanted, struct kiln_err *err) {
    struct kiln_unit *unit = NULL;
    *err = (struct kiln_err){0};
    enum kiln_status status = kiln_unit_make(&unit, wanted, &fake, err);
    assert_null(unit);
    return status;
}

static int same(struct kiln_jit_key a, struct kiln_jit_key b) {
    return strcmp(a.hex, b.hex) == 0;
}

static void key_covers_everything_that_matters(void **state) {
    (void)state;
    struct kiln_jit_request base = request(), other = base;
    struct kiln_jit_key key = key_of(&base);
    assert_true(same(key, key_of(&base)));
    other.plugin = "another name is no other kernel";
    assert_true(same(key, key_of(&other)));

    other = base;
    other.target = "sm_90a";
    assert_false(same(key, key_of(&other)));
    other = base;
    other.ptx = 1;
    assert_false(same(key, key_of(&other)));

    struct kiln_launch launched = launch;
    launched.shared_bytes++;
    other = base;
    other.launch = &launched;
    assert_false(same(key, key_of(&other)));

    const int64_t more[] = {64, 16};
    struct kiln_geometry tiles = geometry;
    tiles.values = more;
    other = base;
    other.geometry = &tiles;
    assert_false(same(key, key_of(&other)));

    struct kiln_header changed = header_one;
    changed.text = "#define ONE 2.0\n";
    const struct kiln_header *const list[] = {&changed};
    static const char *const options[] = {"-DA", "-DB"}, *const swapped[] = {"-DB", "-DA"};
    struct kiln_source text = source;
    struct kiln_kernel with = kernel;
    with.source = &text;
    other = base;
    other.kernel = &with;
    assert_true(same(key, key_of(&other)));
    text.headers = list;
    assert_false(same(key, key_of(&other)));
    text = source;
    text.text = "#include \"fa_common.cuh\" \n";
    assert_false(same(key, key_of(&other)));
    text = source;
    text.options = options;
    text.n_options = 2;
    struct kiln_jit_key ordered = key_of(&other);
    text.options = swapped;
    assert_false(same(ordered, key_of(&other)));
    text = source;
    with.instance = "k<1>";
    assert_false(same(key, key_of(&other)));
}

static void key_covers_the_build_of_the_compiler(void **state) {
    (void)state;
    struct kiln_jit_request base = request();
    struct kiln_nvrtc rebuilt = fake;
    char identity[] = "13.0 rebuilt";
    struct kiln_unit *unit = NULL;
    struct kiln_err err = {0};
    rebuilt.identity = identity;
    assert_int_equal(kiln_unit_make(&unit, &base, &rebuilt, &err), KILN_STATUS_OK);
    assert_false(same(unit->key, key_of(&base)));
    kiln_unit_destroy(unit);
}

static void program_starts_with_the_defines(void **state) {
    (void)state;
    struct kiln_jit_request base = request();
    struct kiln_unit *unit = make(&base);
    static const char want[] =
            "#define FA_TKV 32\n#define FA_TQ 64\n#define HEAD 128\n#define KILN_SMEM "
            "34816\n#define TYPE unsigned char\n#line 1 \"/fap2.cu\"\n#include";
    assert_memory_equal(unit->program, want, sizeof(want) - 1);
    assert_string_equal(unit->options[0], "--gpu-architecture=sm_80");
    assert_string_equal(unit->options[1], "-std=c++17");
    kiln_unit_destroy(unit);
}

static int has_option(const struct kiln_unit *unit, const char *option) {
    for (size_t i = 0; i < unit->n_options; i++) {
        if (strcmp(unit->options[i], option) == 0) {
            return 1;
        }
    }
    return 0;
}

// An option that only saves compile time reaches a compiler that knows it, for the text that it was
// chosen for, and NVRTC's own cache is off where it has one; the others always do.
static void options_that_save_time_keep_to_their_text(void **state) {
    (void)state;
    static const char *const options[] = {"--minimal", "-DA"};
    char path[96];
    snprintf(path, sizeof(path), "%s/other.cu", root);
    write_file("other.cu", "void k();\n");
    struct kiln_nvrtc older = fake;
    older.major = 12;
    const struct {
        const struct kiln_nvrtc *nvrtc;
        const char *source;
        int ptx, minimal, no_cache;
    } cases[] = {{&fake, NULL, 0, 1, 1}, {&fake, NULL, 1, 1, 1}, {&fake, path, 0, 0, 1},
            {&older, NULL, 0, 0, 0}};
    struct kiln_source text = source;
    struct kiln_kernel with = kernel;
    text.options = options;
    text.n_options = 2;
    with.source = &text;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kiln_jit_request base = request();
        struct kiln_unit *unit = NULL;
        struct kiln_err err = {0};
        base.kernel = &with;
        base.source = cases[i].source;
        base.ptx = cases[i].ptx;
        assert_int_equal(kiln_unit_make(&unit, &base, cases[i].nvrtc, &err), KILN_STATUS_OK);
        assert_int_equal(has_option(unit, "--minimal"), cases[i].minimal);
        assert_int_equal(has_option(unit, "--no-cache"), cases[i].no_cache);
        assert_int_equal(has_option(unit, "-DA"), 1);
        kiln_unit_destroy(unit);
    }
}

// A replaced source: every file that it includes is in the key, whatever its time stamp, and so is
// the order in which folders are searched.
static void key_covers_what_a_replacement_includes(void **state) {
    (void)state;
    char path[96], first[96], second[96], include_first[128], include_second[128];
    snprintf(path, sizeof(path), "%s/my_fa.cu", root);
    write_file("my_fa.cu", "#include \"mine.cuh\"\n#  include <far.cuh>\nvoid k();\n");
    write_file("mine.cuh", "#include \"deep.cuh\"\n");
    write_file("deep.cuh", "#define ONE 1.0\n");
    snprintf(first, sizeof(first), "%s/first", root);
    snprintf(second, sizeof(second), "%s/second", root);
    assert_int_equal(mkdir(first, 0755) || mkdir(second, 0755), 0);
    write_file("second/far.cuh", "#define FAR 1.0\n");
    snprintf(include_first, sizeof(include_first), "-I%s", first);
    snprintf(include_second, sizeof(include_second), "--include-path=%s", second);
    const char *const options[] = {include_first, include_second};
    struct kiln_source text = source;
    struct kiln_kernel with = kernel;
    with.source = &text;
    text.options = options;
    text.n_options = 2;
    struct kiln_jit_request base = request();
    base.kernel = &with;
    base.source = path;
    struct kiln_jit_key key = key_of(&base), next;
    assert_true(same(key, key_of(&base)));
    write_file("deep.cuh", "#define ONE 2.0\n");
    assert_false(same(key, next = key_of(&base)));
    write_file("second/far.cuh", "#define FAR 2.0\n");
    assert_false(same(next, key = key_of(&base)));
    write_file("first/far.cuh", "#define FAR 3.0\n"); // earlier in the order
    assert_false(same(key, next = key_of(&base)));
    write_file("fa_common.cuh", "#define ONE 9\n"); // not included by anything
    assert_true(same(next, key_of(&base)));
    write_file("deep.cuh",
            "#define ONE 2.0\n#include \"fa_common.cuh\"\n"); // its own before the plugin's
    assert_false(same(next, key = key_of(&base)));
    struct kiln_unit *unit = make(&base);
    size_t common = 0;
    for (size_t i = 0; i < unit->includes.count; i++) {
        common += strcmp(unit->includes.items[i].name, "fa_common.cuh") == 0 &&
                  strstr(unit->includes.items[i].text, "#define ONE 9") != NULL;
    }
    assert_int_equal(common, 1);
    kiln_unit_destroy(unit);
}

// A replaced source is for the kernels that it spells, in itself or in what it includes.
static void replacement_is_for_what_it_spells(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int spelled;
    } cases[] = {{"void k(int a) {}\n", 1}, {"x k\n", 1}, {"k", 1}, {"// k\nvoid kk();\n", 0},
            {"/* k */ char a[] = \"k\", b = 'k', c = '\\'';", 0}, {"\"\\\" k\" k", 1}, {"/* k", 0},
            {"\" k\nk", 1}, {"", 0}, {"#include \"inner.cuh\"\n", 1}};
    char path[96];
    snprintf(path, sizeof(path), "%s/spelled.cu", root);
    write_file("inner.cuh", "DEFINE(k)\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_file("spelled.cu", cases[i].text);
        struct kiln_jit_request base = request();
        base.source = path;
        struct kiln_unit *unit = make(&base);
        assert_string_equal(unit->file, cases[i].spelled ? path : "fap2.cu");
        kiln_unit_destroy(unit);
        struct kiln_kernel instance = kernel;
        instance.instance = "lab::k <64>";
        base.kernel = &instance;
        unit = make(&base);
        assert_string_equal(unit->file, cases[i].spelled ? path : "fap2.cu");
        kiln_unit_destroy(unit);
    }
}

static void source_files_tell_edits(void **state) {
    (void)state;
    struct kiln_source_files one, other;
    struct kiln_err err = {0};
    char path[96];
    snprintf(path, sizeof(path), "%s/outer.cu", root);
    write_file("outer.cu", "#include \"part.cuh\"\n#include <cuda_fp16.h>\n");
    write_file("part.cuh", "1\n");
    assert_int_equal(kiln_source_files_read(&one, path, &err), KILN_STATUS_OK);
    assert_int_equal(one.count, 2);
    assert_string_equal(one.items[0].path, path);
    assert_non_null(strstr(one.items[1].path, "/part.cuh"));
    write_file("part.cuh", "2\n");
    assert_int_equal(kiln_source_files_read(&other, path, &err), KILN_STATUS_OK);
    assert_true(one.digest != other.digest);
    kiln_source_files_finish(&one);
    kiln_source_files_finish(&other);
    assert_int_equal(kiln_source_files_read(&one, "/nonexistent.cu", &err), KILN_STATUS_FILE);
    kiln_source_files_finish(&one);
}

static void unit_refuses_what_it_must_not_do(void **state) {
    (void)state;
    struct kiln_err err;
    struct kiln_jit_request base = request();
    base.target = "sm_999";
    assert_int_equal(refusal(&base, &err), KILN_STATUS_DEVICE);
    assert_non_null(strstr(err.text, "13.0"));
    assert_non_null(strstr(err.text, "sm_121"));
    base.target = "sm_70"; // older than all
    assert_int_equal(refusal(&base, &err), KILN_STATUS_DEVICE);
    assert_non_null(strstr(err.text, "older NVRTC"));
    base = request();
    base.source = "/nonexistent/my.cu";
    assert_int_equal(refusal(&base, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "/nonexistent/my.cu"));
    static const char *const bad[] = {"-arch=sm_70", "--gpu-architecture=sm_70", "-Irelative", "-G",
            "-I", "file.cu", "-DX=1\n-G"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct kiln_source text = source;
        struct kiln_kernel with = kernel;
        with.source = &text;
        text.options = &bad[i];
        text.n_options = 1;
        base = request();
        base.kernel = &with;
        assert_int_equal(refusal(&base, &err), KILN_STATUS_FILE);
        assert_non_null(strstr(err.text, "compile option"));
    }
}

static void target_newer_than_the_compiler_gets_ptx(void **state) {
    (void)state;
    struct kiln_jit_request base = request();
    base.target = "sm_130";
    struct kiln_unit *unit = make(&base);
    assert_string_equal(unit->arch, "compute_121");
    assert_int_equal(unit->ptx, 1);
    kiln_unit_destroy(unit);
    base.target = "sm_90a";
    base.ptx = 1;
    unit = make(&base);
    assert_string_equal(unit->arch, "compute_90a");
    kiln_unit_destroy(unit);
}

static void unit_lives_through_failed_allocations(void **state) {
    (void)state;
    write_file("my.cu", "#include \"fa_common.cuh\"\n#include \"x.cuh\"\nvoid k();\n");
    write_file("x.cuh", "\n");
    char path[96];
    snprintf(path, sizeof(path), "%s/my.cu", root);
    struct kiln_jit_request base = request();
    base.source = path;
    int done = 0;
    for (uint64_t n = 1; !done && n < 500; n++) {
        struct kiln_unit *unit = NULL;
        struct kiln_err err = {0};
        kiln_mem_fail_at(n, 0);
        enum kiln_status status = kiln_unit_make(&unit, &base, &fake, &err);
        done = kiln_mem_count() < n;
        kiln_mem_fail_at(0, 0);
        assert_int_equal(status, done ? KILN_STATUS_OK : KILN_STATUS_NOMEM);
        kiln_unit_destroy(unit);
    }
    assert_true(done);
}

// ---- ptxas --------------------------------------------------------------------------------------

static void resources_are_those_of_the_entry(void **state) {
    (void)state;
    static const char log[] =
            "ptxas info    : 12 bytes gmem, 8 bytes cmem[4]\n"
            "ptxas info    : Compiling entry function '_Z1kILi40EEvPfPKf' for 'sm_80'\n"
            "ptxas info    : Function properties for _Z1kILi40EEvPfPKf\n"
            "ptxas         .     160 bytes stack frame, 12 bytes spill stores, 16 bytes spill "
            "loads\n"
            "ptxas info    : Used 138 registers, used 1 barriers, 160 bytes cumulative stack size, "
            "1024 "
            "bytes smem, 368 bytes cmem[0]\n"
            "ptxas info    : Compile time = 70.450 ms\n"
            "ptxas info    : Compiling entry function 'f' for 'sm_80'\n"
            "ptxas info    : Function properties for f\n"
            "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            "ptxas info    : Used 12 registers, used 1 barriers, 364 bytes cmem[0]\n";
    struct kiln_resources r = kiln_resources_parse(log, "_Z1kILi40EEvPfPKf");
    assert_int_equal(r.registers, 138);
    assert_int_equal(r.stack, 160);
    assert_int_equal(r.spill_stores, 12);
    assert_int_equal(r.spill_loads, 16);
    assert_int_equal(r.smem_static, 1024);
    r = kiln_resources_parse(log, "f");
    assert_int_equal(r.registers, 12);
    assert_int_equal(r.spill_stores, 0);
    assert_int_equal(r.smem_static, 0);
    r = kiln_resources_parse(log, "k");
    assert_int_equal(r.registers, -1);
    assert_int_equal(r.smem_static, -1);
}

// ---- Layout -------------------------------------------------------------------------------------

static enum kiln_status layout_of(const char *ptx, struct kiln_layout *layout) {
    struct kiln_err err = {0};
    struct kiln_buf text = {0};
    kiln_buf_puts(&text, ptx);
    struct kiln_image image = {.data = text.data, .size = text.len, .ptx = 1};
    enum kiln_status status = kiln_layout_read(&image, "k", layout, &err);
    kiln_buf_finish(&text);
    return status;
}

static void layout_is_read_from_ptx(void **state) {
    (void)state;
    struct kiln_layout layout;
    assert_int_equal(
            layout_of(
                    ".global .align 4 .b8 kiln_layout_k2[4] = {9};\n"
                    ".global .align 4 .b8 kiln_layout_k[20] = {0, 136, 0, 0, 0, 0, 0, 0, 0, 68, 0, "
                    "0, 0, 68, 0, 0, 0, 68};",
                    &layout),
            KILN_STATUS_OK);
    assert_int_equal(layout.present, 1);
    assert_int_equal(layout.total, 34816);
    assert_int_equal(layout.n_regions, 2);
    assert_int_equal(layout.regions[1].offset, 17408);
    assert_int_equal(layout.regions[1].bytes, 17408);
    assert_int_equal(
            layout_of(".global .align 4 .u32 kiln_layout_k[3] = {1024, 0, 1024};", &layout),
            KILN_STATUS_OK);
    assert_int_equal(layout.total, 1024);
    assert_int_equal(layout_of(".visible .entry k()", &layout), KILN_STATUS_OK);
    assert_int_equal(layout.present, 0);
    assert_int_equal(layout_of(".global .align 4 .u32 kiln_layout_k[2] = {1024, 0};", &layout),
            KILN_STATUS_FILE);
    assert_int_equal(
            layout_of(".global .align 4 .u32 kiln_layout_k[3] = {1024, 8, 1024};", &layout),
            KILN_STATUS_FILE);
    assert_int_equal(
            layout_of(".global .align 4 .u32 kiln_layout_k[99999999999] = {1024};", &layout),
            KILN_STATUS_FILE);
}

// An ELF file with a section of data and the symbol kiln_layout_k in it.
struct tiny_elf {
    Elf64_Ehdr head;
    Elf64_Shdr sections[4]; // null, data, symbols, strings
    Elf64_Sym symbols[2];
    uint32_t data[3];
    char strings[16];
};

static struct tiny_elf tiny(void) {
    struct tiny_elf elf = {.data = {1024, 0, 1024}};
    memcpy(elf.head.e_ident, ELFMAG, SELFMAG);
    elf.head.e_ident[EI_CLASS] = ELFCLASS64;
    elf.head.e_ident[EI_DATA] = ELFDATA2LSB;
    elf.head.e_type = ET_EXEC;
    elf.head.e_shentsize = sizeof(Elf64_Shdr);
    elf.head.e_shnum = 4;
    elf.head.e_shoff = offsetof(struct tiny_elf, sections);
    memcpy(elf.strings, "\0kiln_layout_k", 15);
    elf.sections[1] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
            .sh_offset = offsetof(struct tiny_elf, data),
            .sh_size = sizeof(elf.data)};
    elf.sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
            .sh_link = 3,
            .sh_offset = offsetof(struct tiny_elf, symbols),
            .sh_size = sizeof(elf.symbols)};
    elf.sections[3] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
            .sh_offset = offsetof(struct tiny_elf, strings),
            .sh_size = sizeof(elf.strings)};
    elf.symbols[1] = (Elf64_Sym){.st_name = 1, .st_shndx = 1, .st_size = sizeof(elf.data)};
    return elf;
}

static void layout_is_read_from_a_cubin(void **state) {
    (void)state;
    struct tiny_elf elf = tiny();
    char *bytes = (char *)&elf;
    struct kiln_image image = {.data = bytes, .size = sizeof(elf)};
    struct kiln_layout layout;
    struct kiln_err err = {0};
    assert_int_equal(kiln_layout_read(&image, "k", &layout, &err), KILN_STATUS_OK);
    assert_int_equal(layout.total, 1024);
    assert_int_equal(layout.n_regions, 1);
    assert_int_equal(kiln_layout_read(&image, "other", &layout, &err), KILN_STATUS_OK);
    assert_int_equal(layout.present, 0);
    image.size = 10;
    assert_int_equal(kiln_layout_read(&image, "k", &layout, &err), KILN_STATUS_FILE);
}

// Whatever a byte of it is changed to, and wherever it is cut, nothing is read outside of the
// bytes.
static void elf_is_read_within_its_bytes(void **state) {
    (void)state;
    static const uint8_t odd[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    struct kiln_elf elf;
    struct kiln_elf_bytes bytes;
    for (size_t at = 0; at <= sizeof(struct tiny_elf); at++) {
        for (size_t i = 0; i < sizeof(odd); i++) {
            struct tiny_elf whole = tiny();
            size_t size = i == 0 ? at : sizeof(whole);
            uint8_t *copy = kiln_alloc(size); // of its very size, for the sanitizer
            assert_non_null(copy);
            memcpy(copy, &whole, size);
            if (i > 0 && at < size) {
                copy[at] = odd[i];
            }
            if (kiln_elf_open(&elf, copy, size) == 0) {
                if (kiln_elf_symbol(&elf, "kiln_layout_k", &bytes) == 0 && bytes.data) {
                    assert_true(bytes.data >= copy && bytes.size <= size &&
                                (size_t)(bytes.data - copy) <= size - bytes.size);
                }
                (void)kiln_elf_build_id(&elf, &bytes);
            }
            kiln_free(copy);
        }
    }
}

static void layout_shows_what_a_launcher_asks_too_much(void **state) {
    (void)state;
    // fap1 64/32 as first found: 3*FA_TQ in place of FA_TQ + 2*FA_TKV
    const struct kiln_layout layout = {.present = 1, .total = 43776};
    struct kiln_layout_check check;
    struct kiln_err err = {0};
    assert_int_equal(kiln_layout_compare(&layout, "fap1", 61184, &check, &err), KILN_STATUS_OK);
    assert_int_equal(check.requested, 61184);
    assert_int_equal(check.used, 43776);
    assert_int_equal(check.over, 17408);
    assert_int_equal(kiln_layout_compare(&layout, "fap1", 43776, &check, &err), KILN_STATUS_OK);
    assert_int_equal(check.over, 0);
    assert_int_equal(kiln_layout_compare(&layout, "fap1", 43775, &check, &err), KILN_STATUS_FILE);
    assert_non_null(strstr(err.text, "43776"));
}

// ---- NVRTC absent -------------------------------------------------------------------------------

// What kiln_nvrtc_open says about this KILN_NVRTC, which must fail.
static const char *refused_name(const char *named) {
    static struct kiln_err err;
    struct kiln_nvrtc *nvrtc = NULL;
    err = (struct kiln_err){0};
    setenv("KILN_NVRTC", named, 1);
    assert_int_equal(kiln_nvrtc_open(&nvrtc, &err), KILN_STATUS_DEVICE);
    unsetenv("KILN_NVRTC");
    assert_null(nvrtc);
    return err.text;
}

static void nvrtc_absent_says_where_it_was_looked_for(void **state) {
    (void)state;
    char library[96], absent[96], pipe[96];
    snprintf(library, sizeof(library), "%s/libnvrtc.so.13", root);
    snprintf(absent, sizeof(absent), "%s/nowhere.so", root);
    snprintf(pipe, sizeof(pipe), "%s/pipe", root);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    const struct {
        const char *named, *found; // KILN_NVRTC, and what is said of it
    } cases[] = {
            {root, "(a folder): no libnvrtc.so there"}, {absent, "(a file): not there"},
            {"nowhere.so", "(loader's path): not there"}, {pipe, "neither a file nor a folder"},
            {"libm.so.6", " is no NVRTC (it has no function nvrtc"},
            {library, "invalid ELF header"}, {root, "invalid ELF header"}, // found in the folder
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char set[160];
        if (cases[i].named == library) {
            write_file("libnvrtc.so.13", "no library, but long enough for the header of one, which "
                                         "the loader wants to read before it says so\n");
        }
        const char *text = refused_name(cases[i].named);
        snprintf(set, sizeof(set), "KILN_NVRTC is '%s'", cases[i].named);
        if (!strstr(text, set) || !strstr(text, cases[i].found) ||
                !strstr(text, "unset it and kiln looks by itself") ||
                !strstr(text, "tools/fetch-nvrtc") || text[strlen(text) - 1] == '\n') {
            fail_msg("'%s' and '%s' are not in:\n%s", set, cases[i].found, text);
        }
    }
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
            CASE(defines_are_sorted_and_complete),
            CASE(defines_refuse_what_is_none),
            CASE(key_covers_everything_that_matters),
            CASE(key_covers_the_build_of_the_compiler),
            CASE(program_starts_with_the_defines),
            CASE(options_that_save_time_keep_to_their_text),
            CASE(key_covers_what_a_replacement_includes),
            CASE(replacement_is_for_what_it_spells),
            CASE(source_files_tell_edits),
            CASE(unit_refuses_what_it_must_not_do),
            CASE(target_newer_than_the_compiler_gets_ptx),
            CASE(unit_lives_through_failed_allocations),
            CASE(resources_are_those_of_the_entry),
            CASE(layout_is_read_from_ptx),
            CASE(layout_is_read_from_a_cubin),
            CASE(elf_is_read_within_its_bytes),
            CASE(nvrtc_absent_says_where_it_was_looked_for),
            CASE(layout_shows_what_a_launcher_asks_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
