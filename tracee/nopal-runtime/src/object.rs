//! Makes the shared object in which probes live, as bytes. Does no IO, and can make the object of either machine on
//! either.
//!
//! ```text
//! 0          ELF header, program headers, .hash, .dynsym, .dynstr, .stapsdt.base, .text    r-x
//! page       .dynamic                                                                      rw-
//! page       .probes: the semaphores                                                       rw-
//!            .note.stapsdt, .note.nopal, .symtab, .strtab, .shstrtab, section headers      not loaded
//! ```
//!
//! Addresses and file offsets are the same numbers. The semaphores have pages of their own, since what the dynamic linker
//! writes into .dynamic must outlive them.

mod notes;
mod writer;

use crate::types::Argument;
use writer::{Bytes, Section, Size, Strings, align};

/// The machine an object is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    Arm64,
}

impl Machine {
    /// The one this code was compiled for.
    #[cfg(target_arch = "x86_64")]
    pub const HERE: Machine = Machine::X86_64;
    /// The one this code was compiled for.
    #[cfg(not(target_arch = "x86_64"))]
    pub const HERE: Machine = Machine::Arm64;

    /// The function of a probe: the site and a return. The caller has put the arguments where its operands say.
    const fn code(self, form: Form) -> &'static [u8] {
        match (self, form) {
            // nop; nopw 0(%rax,%rax,1) of ten bytes; ret. No five-byte nop: kernel 6.18 turns that into a call.
            (Machine::X86_64, Form::TwoDoors) => &[0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3],
            // nop; ret; nopl 0(%rax,%rax,1) of eight bytes, which nobody executes. With e9 in the place of the nop the
            // bytes behind it are the distance of a jump, by 2 GiB down, where hardly any program has anything.
            (Machine::X86_64, Form::FirstByte) => &[0x90, 0xc3, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            // nop; ret.
            (Machine::Arm64, _) => &[0x1f, 0x20, 0x03, 0xd5, 0xc0, 0x03, 0x5f, 0xd6],
        }
    }

    /// The first four bytes of a site to which nobody listens. The kernel, gdb and perf change the first, and nopal's user
    /// door the first or the second, by the form.
    pub const fn quiet_site(self, form: Form) -> u32 {
        let code = self.code(form);
        u32::from_ne_bytes([code[0], code[1], code[2], code[3]])
    }

    /// The largest page there is on this machine.
    const fn page(self) -> u64 {
        match self {
            Machine::X86_64 => 4096,
            Machine::Arm64 => 65536,
        }
    }

    const fn elf_number(self) -> u16 {
        match self {
            Machine::X86_64 => 62,
            Machine::Arm64 => 183,
        }
    }
}

/// What the code of a site looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Room for the kernel's uprobe and for nopal's jump at the same time.
    TwoDoors,
    /// Whoever listens changes the first byte. Programs written for libstapsdt look at it to know whether anybody does.
    FirstByte,
}

/// A probe that is to be in an object.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    pub name: &'a str,
    pub arguments: &'a [Argument],
    /// Whether there is a nopal note with the names and types of the arguments.
    pub is_described: bool,
}

/// An object and where things are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub bytes: Vec<u8>,
    pub layout: Layout,
}

/// Where the loaded parts of an object are, counted from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The first segment, `r-x`, in whole pages: it begins at 0.
    pub code_end: u64,
    /// Whole pages.
    pub dynamic_end: u64,
    /// Whole pages; the semaphores begin at `dynamic_end`.
    pub semaphores_end: u64,
    sites: u64,
}

/// Functions are so far apart.
const STRIDE: u64 = 16;

impl Layout {
    /// Where the site of the probe with this index is.
    pub fn site(&self, index: usize) -> u64 {
        self.sites + index as u64 * STRIDE
    }

    /// Where its semaphore is.
    pub fn semaphore(&self, index: usize) -> u64 {
        self.dynamic_end + index as u64 * 2
    }
}

const HEADER_SIZE: u64 = 64;
const PROGRAM_HEADER_SIZE: u64 = 56;
const N_PROGRAM_HEADERS: u64 = 4;
const SYMBOL_SIZE: u64 = 24;

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;

/// The object with these probes.
pub fn make(machine: Machine, form: Form, provider: &str, probes: &[Probe<'_>]) -> Object {
    let page = machine.page();
    let mut sections = Vec::new();
    let mut out = Bytes::default();
    out.skip_to(HEADER_SIZE + N_PROGRAM_HEADERS * PROGRAM_HEADER_SIZE);

    // The dynamic linker wants a symbol table and a hash table. Nobody looks a probe up by name, so that both are empty:
    // one bucket, one symbol, which is the null symbol.
    let hash = out.section(&mut sections, Section::loaded(".hash", HASH, READ), 8, |out| {
        [1, 1, 0, 0].into_iter().for_each(|word| out.u32(word));
    });
    let dynsym = out.section(&mut sections, Section::loaded(".dynsym", DYNSYM, READ), 8, |out| {
        out.skip(SYMBOL_SIZE);
    });
    let soname = format!("nopal:{provider}");
    let dynstr = out.section(&mut sections, Section::loaded(".dynstr", STRTAB, READ), 1, |out| {
        out.u8(0);
        out.text(&soname);
    });
    let base =
        out.section(&mut sections, Section::loaded(".stapsdt.base", PROGBITS, READ), 1, |out| out.u8(0));
    let text =
        out.section(&mut sections, Section::loaded(".text", PROGBITS, READ | EXECUTE), STRIDE, |out| {
            for _ in probes {
                out.align(STRIDE);
                out.bytes(machine.code(form));
            }
        });
    let loaded_end = out.len();
    let code_end = align(loaded_end, page);

    out.skip_to(code_end);
    let dynamic = out.section(&mut sections, Section::loaded(".dynamic", DYNAMIC, READ | WRITE), 8, |out| {
        let entries = [
            (4, hash.start),
            (6, dynsym.start),
            (11, SYMBOL_SIZE),
            (5, dynstr.start),
            (10, dynstr.size()),
            (14, 1),
            (0, 0),
        ];
        for (tag, value) in entries {
            out.u64(tag);
            out.u64(value);
        }
    });
    let dynamic_end = code_end + page;
    out.skip_to(dynamic_end);
    let semaphores =
        out.section(&mut sections, Section::loaded(".probes", PROGBITS, READ | WRITE), 2, |out| {
            out.skip(probes.len() as u64 * 2);
        });
    let layout =
        Layout { code_end, dynamic_end, semaphores_end: align(semaphores.end, page), sites: text.start };
    // A last page that the file has only in part could not be mapped again whole.
    out.skip_to(layout.semaphores_end);

    out.section(&mut sections, Section::unloaded(".note.stapsdt", NOTE), 4, |out| {
        for (index, probe) in probes.iter().enumerate() {
            notes::stapsdt(out, machine, &layout, base.start, provider, index, probe);
        }
    });
    if probes.iter().any(|probe| probe.is_described) {
        out.section(&mut sections, Section::unloaded(".note.nopal", NOTE), 4, |out| {
            for probe in probes.iter().filter(|probe| probe.is_described) {
                notes::nopal(out, provider, probe);
            }
        });
    }
    let text_index = sections.iter().position(|s| s.name == ".text").map_or(0, |i| i as u16 + 1);
    let probes_index = sections.iter().position(|s| s.name == ".probes").map_or(0, |i| i as u16 + 1);
    let mut strings = Strings::default();
    out.section(&mut sections, Section::unloaded(".symtab", SYMTAB), 8, |out| {
        out.skip(SYMBOL_SIZE);
        for (index, probe) in probes.iter().enumerate() {
            let name = strings.add(probe.name);
            let size = machine.code(form).len() as u64;
            out.symbol(name, GLOBAL_FUNCTION, text_index, layout.site(index), size);
            let name = strings.add(&format!("{provider}_{}_semaphore", probe.name));
            out.symbol(name, GLOBAL_OBJECT, probes_index, layout.semaphore(index), 2);
        }
    });
    out.section(&mut sections, Section::unloaded(".strtab", STRTAB), 1, |out| out.bytes(strings.bytes()));
    let section_headers = out.section_headers(&mut sections);

    let n_sections = sections.len() as u16 + 1;
    let mut head = Bytes::default();
    head.elf_header(machine.elf_number(), section_headers, N_PROGRAM_HEADERS as u16, n_sections);
    head.program_header(LOAD, READ | EXECUTE, 0..loaded_end, page);
    head.program_header(LOAD, READ | WRITE, code_end..semaphores.end.max(dynamic_end), page);
    head.program_header(PT_DYNAMIC, READ | WRITE, dynamic.start..dynamic.end, 8);
    head.program_header(GNU_STACK, READ | WRITE, 0..0, 16);
    out.overwrite(0, head);
    Object { bytes: out.into_vec(), layout }
}

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const HASH: u32 = 5;
const DYNAMIC: u32 = 6;
const NOTE: u32 = 7;
const DYNSYM: u32 = 11;

const LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const GNU_STACK: u32 = 0x6474_e551;

const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
const GLOBAL_OBJECT: u8 = 1 << 4 | 1;
