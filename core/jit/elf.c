// elf: reads section headers, the symbol table and notes.
#include "jit/elf.h"

#include <elf.h>
#include <string.h>

static int holds(const struct kiln_elf *elf, uint64_t offset, uint64_t size) {
    return offset <= elf->size && size <= elf->size - offset;
}

int kiln_elf_open(struct kiln_elf *elf, const void *data, size_t size) {
    Elf64_Ehdr head;
    *elf = (struct kiln_elf){.data = data, .size = size};
    if (size < sizeof(head)) {
        return -1;
    }
    memcpy(&head, data, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
            head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_shentsize != sizeof(Elf64_Shdr) ||
            !holds(elf, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr))) {
        return -1;
    }
    elf->sections = head.e_shoff;
    elf->n_sections = head.e_shnum;
    elf->names = head.e_shstrndx;
    return 0;
}

// Section `index`, whose bytes (if it stores any) lie within the file.
static int section_at(const struct kiln_elf *elf, uint32_t index, Elf64_Shdr *section) {
    if (index >= elf->n_sections) {
        return -1;
    }
    memcpy(section, elf->data + elf->sections + (uint64_t)index * sizeof(*section),
            sizeof(*section));
    return section->sh_type == SHT_NOBITS || holds(elf, section->sh_offset, section->sh_size) ? 0
                                                                                              : -1;
}

// Whether string number `offset` of a string table is `text`.
static int string_is(
        const struct kiln_elf *elf, const Elf64_Shdr *strings, uint64_t offset, const char *text) {
    size_t len = strlen(text) + 1;
    return strings->sh_type == SHT_STRTAB && offset < strings->sh_size &&
           len <= strings->sh_size - offset &&
           memcmp(elf->data + strings->sh_offset + offset, text, len) == 0;
}

static int symbol_bytes(
        const struct kiln_elf *elf, const Elf64_Sym *symbol, struct kiln_elf_bytes *bytes) {
    Elf64_Shdr section;
    Elf64_Half type = 0;
    memcpy(&type, elf->data + EI_NIDENT, sizeof(type));
    if (section_at(elf, symbol->st_shndx, &section) != 0) {
        return -1;
    }
    // In an executable st_value is an address, else an offset into the section.
    uint64_t offset = symbol->st_value;
    if (type != ET_REL) {
        if (offset < section.sh_addr) {
            return -1;
        }
        offset -= section.sh_addr;
    }
    if (offset > section.sh_size || symbol->st_size > section.sh_size - offset) {
        return -1;
    }
    bytes->size = symbol->st_size;
    bytes->data = section.sh_type == SHT_NOBITS ? NULL : elf->data + section.sh_offset + offset;
    return 0;
}

int kiln_elf_symbol(const struct kiln_elf *elf, const char *name, struct kiln_elf_bytes *bytes) {
    for (uint32_t i = 0; i < elf->n_sections; i++) {
        Elf64_Shdr table, strings;
        if (section_at(elf, i, &table) != 0 || table.sh_type != SHT_SYMTAB ||
                section_at(elf, table.sh_link, &strings) != 0) {
            continue;
        }
        for (uint64_t at = 0; table.sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol;
            memcpy(&symbol, elf->data + table.sh_offset + at, sizeof(symbol));
            if (symbol.st_shndx != SHN_UNDEF && symbol.st_name != 0 &&
                    string_is(elf, &strings, symbol.st_name, name)) {
                return symbol_bytes(elf, &symbol, bytes);
            }
        }
    }
    return -1;
}

// The first note of the kind in a section of notes.
static int find_note(const struct kiln_elf *elf, const Elf64_Shdr *section, uint32_t type,
        struct kiln_elf_bytes *bytes) {
    const uint8_t *data = elf->data + section->sh_offset;
    uint64_t at = 0, size = section->sh_size;
    while (size - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        memcpy(&note, data + at, sizeof(note));
        at += sizeof(note);
        uint64_t name = ((uint64_t)note.n_namesz + 3) & ~(uint64_t)3;
        uint64_t desc = ((uint64_t)note.n_descsz + 3) & ~(uint64_t)3;
        if (name > size - at || desc > size - at - name) {
            return -1;
        }
        if (note.n_type == type && note.n_namesz == 4 && memcmp(data + at, "GNU", 4) == 0) {
            *bytes = (struct kiln_elf_bytes){.data = data + at + name, .size = note.n_descsz};
            return 0;
        }
        at += name + desc;
    }
    return -1;
}

int kiln_elf_build_id(const struct kiln_elf *elf, struct kiln_elf_bytes *bytes) {
    for (uint32_t i = 0; i < elf->n_sections; i++) {
        Elf64_Shdr section;
        if (section_at(elf, i, &section) == 0 && section.sh_type == SHT_NOTE &&
                find_note(elf, &section, NT_GNU_BUILD_ID, bytes) == 0) {
            return 0;
        }
    }
    return -1;
}
