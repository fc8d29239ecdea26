//! The object of `dtrace -G`, written without a compiler: semaphores in `.probes`, descriptions in `.note.nopal`. The
//! same input gives the same bytes.

use super::note;
use crate::ast::File;
use std::collections::HashSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    Arm64,
}

/// What `-DSTAP_SDT_V1` and `-DSTAP_SDT_V2` decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectOptions {
    pub machine: Machine,
    /// Semaphores that another object of the program may use: default instead of hidden visibility.
    pub is_exported: bool,
    /// `PROBE_semaphore` instead of `PROVIDER_PROBE_semaphore`.
    pub is_v1: bool,
}

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_NOTE: u32 = 7;
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
const SYMBOL_SIZE: usize = 24;

#[derive(Default)]
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    align: u64,
    link: u32,
    info: u32,
    entry_size: u64,
    bytes: Vec<u8>,
}

/// A relocatable ELF file. Without a probe it has no semaphore and no description, and still links.
pub fn elf_object(file: &File, options: ObjectOptions) -> Vec<u8> {
    let mut probes = Vec::new();
    let mut notes = Vec::new();
    let mut strings = vec![0u8];
    let mut symbols = vec![0u8; SYMBOL_SIZE];
    // Under STAP_SDT_V1 two providers may have a probe, and so a semaphore, of the same name.
    let mut seen = HashSet::new();
    for provider in &file.providers {
        for probe in &provider.probes {
            note::push_note(&mut notes, provider, probe);
            let name = match options.is_v1 {
                true => format!("{}_semaphore", probe.name),
                false => format!("{}_{}_semaphore", provider.name, probe.name),
            };
            if !seen.insert(name.clone()) {
                continue;
            }
            push_symbol(&mut symbols, strings.len(), probes.len(), options.is_exported);
            strings.extend(name.as_bytes());
            strings.push(0);
            probes.extend([0u8; 2]);
        }
    }
    let property = Section {
        name: ".note.gnu.property",
        kind: SHT_NOTE,
        flags: SHF_ALLOC,
        align: 8,
        bytes: property(options.machine),
        ..Section::default()
    };
    let mut sections = vec![Section::default()];
    if !probes.is_empty() {
        sections.push(Section {
            name: ".probes",
            kind: SHT_PROGBITS,
            flags: SHF_ALLOC | SHF_WRITE,
            align: 2,
            bytes: probes,
            ..Section::default()
        });
        sections.push(Section {
            name: ".note.nopal",
            kind: SHT_NOTE,
            align: 4,
            bytes: notes,
            ..Section::default()
        });
    }
    sections.push(property);
    // Says that the program's stack need not be executable on our account.
    sections.push(Section { name: ".note.GNU-stack", kind: SHT_PROGBITS, align: 1, ..Section::default() });
    let strtab_idx = u32::try_from(sections.len() + 1).expect("there are seven sections");
    sections.push(Section {
        name: ".symtab",
        kind: SHT_SYMTAB,
        align: 8,
        link: strtab_idx,
        // Only the null symbol is local.
        info: 1,
        entry_size: SYMBOL_SIZE as u64,
        bytes: symbols,
        ..Section::default()
    });
    sections.push(Section {
        name: ".strtab",
        kind: SHT_STRTAB,
        align: 1,
        bytes: strings,
        ..Section::default()
    });
    sections.push(Section { name: ".shstrtab", kind: SHT_STRTAB, align: 1, ..Section::default() });
    layout(sections, options.machine)
}

/// A 2-byte global object in `.probes`, which is always section 1.
fn push_symbol(symbols: &mut Vec<u8>, name: usize, value: usize, is_exported: bool) {
    const GLOBAL_OBJECT: u8 = 0x11;
    const HIDDEN: u8 = 2;
    const PROBES_IDX: u16 = 1;
    symbols.extend(u32::try_from(name).expect("names come from a text in memory").to_le_bytes());
    symbols.extend([GLOBAL_OBJECT, if is_exported { 0 } else { HIDDEN }]);
    symbols.extend(PROBES_IDX.to_le_bytes());
    symbols.extend((value as u64).to_le_bytes());
    symbols.extend(2u64.to_le_bytes());
}

/// There is no code in this object, so it keeps every promise about code (IBT and shadow stack, BTI and PAC). Without
/// this note the linker would take those features from the whole program.
fn property(machine: Machine) -> Vec<u8> {
    const NT_GNU_PROPERTY_TYPE_0: u32 = 5;
    let feature_1_and: u32 = match machine {
        Machine::X86_64 => 0xc000_0002,
        Machine::Arm64 => 0xc000_0000,
    };
    let mut out = Vec::new();
    for word in [4, 16, NT_GNU_PROPERTY_TYPE_0, u32::from_le_bytes(*b"GNU\0"), feature_1_and, 4, 3, 0] {
        out.extend(word.to_le_bytes());
    }
    out
}

fn layout(mut sections: Vec<Section>, machine: Machine) -> Vec<u8> {
    const HEADER_SIZE: usize = 64;
    const SECTION_HEADER_SIZE: u16 = 64;
    let mut names = Vec::new();
    let mut name_offsets = Vec::new();
    for section in &sections {
        name_offsets.push(u32::try_from(names.len()).expect("section names are short"));
        names.extend(section.name.as_bytes());
        names.push(0);
    }
    let n_sections = u16::try_from(sections.len()).expect("there are eight sections at most");
    sections.last_mut().expect("the list starts with the null section").bytes = names;

    let mut body = Vec::new();
    let mut offsets = Vec::new();
    for section in &sections {
        let align = usize::try_from(section.align.max(1)).expect("alignments are small");
        body.resize((HEADER_SIZE + body.len()).next_multiple_of(align) - HEADER_SIZE, 0);
        offsets.push((HEADER_SIZE + body.len()) as u64);
        body.extend(&section.bytes);
    }
    body.resize((HEADER_SIZE + body.len()).next_multiple_of(8) - HEADER_SIZE, 0);

    let e_machine: u16 = match machine {
        Machine::X86_64 => 62,
        Machine::Arm64 => 183,
    };
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend(1u16.to_le_bytes());
    out.extend(e_machine.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend([0; 16]);
    out.extend(((HEADER_SIZE + body.len()) as u64).to_le_bytes());
    out.extend(0u32.to_le_bytes());
    for half in [HEADER_SIZE as u16, 0, 0, SECTION_HEADER_SIZE, n_sections, n_sections - 1] {
        out.extend(half.to_le_bytes());
    }
    out.extend(body);
    for (i, section) in sections.iter().enumerate() {
        let offset = if section.kind == 0 { 0 } else { offsets[i] };
        out.extend(name_offsets[i].to_le_bytes());
        out.extend(section.kind.to_le_bytes());
        for word in [section.flags, 0, offset, section.bytes.len() as u64] {
            out.extend(word.to_le_bytes());
        }
        out.extend(section.link.to_le_bytes());
        out.extend(section.info.to_le_bytes());
        out.extend(section.align.to_le_bytes());
        out.extend(section.entry_size.to_le_bytes());
    }
    out
}
