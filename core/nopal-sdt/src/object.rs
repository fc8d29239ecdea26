//! One ELF file: its probes, and what is needed to find them again in a running process. Bytes in, facts out;
//! every offset and size in the file is an allegation and is checked.

mod error;
mod notes;
mod sequences;
mod symbols;

pub use error::{ReadError, Warning};
pub use sequences::RESTARTABLE;

use crate::operand::Arch;
use crate::probe::Probe;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadRef};

/// Real programs have a few hundred kilobytes of notes at most. The bound keeps a hostile file from turning its
/// size into many times as much memory.
const MAX_NOTE_BYTES: u64 = 16 << 20;
/// Linkers write about four.
const MAX_SEGMENTS: usize = 1024;
/// Linkers write about five; each note's address is looked up in them.
const MAX_CODE_SECTIONS: usize = 1024;

/// What [`read`] found in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// `None`: the machine is one whose operands cannot be read, and so is every [`crate::probe::Arg::operand`].
    pub arch: Option<Arch>,
    /// `e_machine` of the ELF header.
    pub machine: u16,
    pub is_64_bit: bool,
    pub is_big_endian: bool,
    /// An `ET_EXEC` program, which runs at its link-time addresses; everything else is moved when it is loaded.
    pub is_fixed: bool,
    pub build_id: Option<Vec<u8>>,
    /// The loadable segments in file order.
    pub segments: Vec<Segment>,
    /// Sorted by provider and name; the sites of each by address.
    pub probes: Vec<Probe>,
    /// Notes that outlived their code: the linker threw the function away and left a location that is 0 or low.
    pub n_ghosts: usize,
    /// Notes that said again what another had said.
    pub n_duplicates: usize,
    /// A separate debug file: it has the notes of its program and none of the code. Its sites have neither file
    /// offsets nor code bytes.
    pub is_debug_copy: bool,
    /// Link-time addresses of the program's own restartable sequences, as far as the file describes them; sorted.
    pub restartable: Vec<std::ops::Range<u64>>,
    /// Notes that could not be used, the first few of them.
    pub warnings: Vec<Warning>,
}

/// A `PT_LOAD` segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Link-time virtual address.
    pub address: u64,
    pub file_offset: u64,
    pub size_in_file: u64,
    pub size_in_memory: u64,
    pub is_executable: bool,
    pub is_writable: bool,
}

impl Segment {
    /// Where `address` is in the file, if the file has it.
    pub fn file_offset_of(&self, address: u64) -> Option<u64> {
        let distance = address.checked_sub(self.address).filter(|&distance| distance < self.size_in_file)?;
        self.file_offset.checked_add(distance)
    }

    fn is_loaded_at(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|distance| distance < self.size_in_memory)
    }
}

impl Object {
    pub fn n_sites(&self) -> usize {
        self.probes.iter().map(|probe| probe.sites.len()).sum()
    }

    /// How many bytes behind `address` a restartable sequence of the program begins; 0: it is inside one.
    pub fn until_restartable(&self, address: u64) -> Option<u64> {
        sequences::distance(&self.restartable, address)
    }

    pub fn probe(&self, provider: &str, name: &str) -> Option<&Probe> {
        self.probes.iter().find(|probe| probe.provider == provider && probe.name == name)
    }
}

/// Reads the probes of a linked ELF program or library, 32 or 64 bits, of either byte order. Of the bytes only those are
/// asked for that are needed: headers, notes, the code at the sites, and symbols if a note names one.
pub fn read<'data, R: ReadRef<'data>>(bytes: R) -> Result<Object, ReadError> {
    match FileKind::parse(bytes) {
        Ok(FileKind::Elf64) => read_elf::<elf::FileHeader64<Endianness>, R>(bytes),
        Ok(FileKind::Elf32) => read_elf::<elf::FileHeader32<Endianness>, R>(bytes),
        _ if bytes.read_bytes_at(0, 4) == Ok(&elf::ELFMAG) => {
            Err(ReadError::broken("header", "it ends early"))
        }
        _ => Err(ReadError::NotElf),
    }
}

fn read_elf<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    bytes: R,
) -> Result<Object, ReadError> {
    let header = Elf::parse(bytes).map_err(|e| ReadError::broken("header", e))?;
    let endian = header.endian().map_err(|e| ReadError::broken("header", e))?;
    let kind = header.e_type(endian);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(ReadError::NotLinked { kind: kind.0 });
    }
    let machine = header.e_machine(endian);
    let segments = segments::<Elf, R>(header, endian, bytes)?;
    let sections =
        header.section_headers(endian, bytes).map_err(|e| ReadError::broken("section table", e))?;
    let sections = Sections::<Elf, R>::new(header, endian, bytes, sections);

    let mut object = Object {
        arch: match machine {
            elf::EM_X86_64 if header.is_type_64() => Some(Arch::X86_64),
            elf::EM_AARCH64 if header.is_type_64() => Some(Arch::Arm64),
            _ => None,
        },
        machine: machine.0,
        is_64_bit: header.is_type_64(),
        is_big_endian: header.is_big_endian(),
        is_fixed: kind == elf::ET_EXEC,
        build_id: None,
        segments,
        probes: Vec::new(),
        n_ghosts: 0,
        n_duplicates: 0,
        is_debug_copy: sections.is_without_code(),
        restartable: sequences::read(&sections),
        warnings: Vec::new(),
    };
    notes::read_into(&mut object, &sections)?;
    Ok(object)
}

fn segments<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    header: &Elf,
    endian: Endianness,
    bytes: R,
) -> Result<Vec<Segment>, ReadError> {
    let headers =
        header.program_headers(endian, bytes).map_err(|e| ReadError::broken("program headers", e))?;
    let mut segments = Vec::new();
    for header in headers.iter().filter(|header| header.p_type(endian) == elf::PT_LOAD) {
        if segments.len() == MAX_SEGMENTS {
            return Err(ReadError::broken("program headers", "there are more than a thousand segments"));
        }
        let flags = header.p_flags(endian);
        segments.push(Segment {
            address: header.p_vaddr(endian).into(),
            file_offset: header.p_offset(endian).into(),
            size_in_file: header.p_filesz(endian).into(),
            size_in_memory: header.p_memsz(endian).into(),
            is_executable: flags.0 & elf::PF_X.0 != 0,
            is_writable: flags.0 & elf::PF_W.0 != 0,
        });
    }
    Ok(segments)
}

/// The section table with what the notes need of it.
struct Sections<'data, Elf: FileHeader, R: ReadRef<'data>> {
    endian: Endianness,
    bytes: R,
    headers: &'data [Elf::SectionHeader],
    /// Program headers, for files without a section table.
    program_headers: &'data [Elf::ProgramHeader],
    is_64_bit: bool,
    /// Address and size of the sections with code; `None` if there are none, or more than anybody needs.
    code: Option<Vec<(u64, u64)>>,
    is_without_code: bool,
    /// Address of `.stapsdt.base` as the file is now.
    base: Option<u64>,
    /// The sections with descriptors of restartable sequences.
    sequences: Vec<&'data Elf::SectionHeader>,
}

impl<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>> Sections<'data, Elf, R> {
    fn new(header: &'data Elf, endian: Endianness, bytes: R, headers: &'data [Elf::SectionHeader]) -> Self {
        let strings_idx = header.shstrndx(endian, bytes).unwrap_or(0);
        let names = headers.get(strings_idx as usize).and_then(|section| section.file_range(endian));
        // Only as much of the names is read as tells those that are wanted.
        let is_named = |section: &Elf::SectionHeader, wanted: &[u8]| {
            let (at, size) = names?;
            let name = u64::from(section.sh_name(endian));
            size.checked_sub(name).filter(|left| *left >= wanted.len() as u64)?;
            let found = bytes.read_bytes_at(at.checked_add(name)?, wanted.len() as u64).ok()?;
            (found == wanted).then_some(())
        };
        let mut code = Vec::new();
        let mut is_without_code = true;
        let mut base = None;
        let mut sequences = Vec::new();
        for section in headers {
            let flags = section.sh_flags(endian).0;
            if flags & elf::SHF_ALLOC.0 == 0 {
                continue;
            }
            if flags & elf::SHF_EXECINSTR.0 != 0 {
                is_without_code &= section.sh_type(endian) == elf::SHT_NOBITS;
                if code.len() <= MAX_CODE_SECTIONS {
                    code.push((section.sh_addr(endian).into(), section.sh_size(endian).into()));
                }
            } else if is_named(section, b".stapsdt.base\0").is_some() {
                base.get_or_insert(section.sh_addr(endian).into());
            } else if is_named(section, b"__rseq_cs\0").is_some() {
                sequences.push(section);
            }
        }
        Sections {
            endian,
            bytes,
            headers,
            program_headers: header.program_headers(endian, bytes).unwrap_or_default(),
            is_64_bit: header.is_type_64(),
            is_without_code: is_without_code && !code.is_empty(),
            code: (1..=MAX_CODE_SECTIONS).contains(&code.len()).then_some(code),
            base,
            sequences,
        }
    }

    fn is_without_code(&self) -> bool {
        self.is_without_code
    }

    /// Whether `address` is in a section of code, as far as the section table can tell.
    fn has_code_at(&self, address: u64) -> bool {
        match &self.code {
            Some(code) => code
                .iter()
                .any(|&(start, size)| address.checked_sub(start).is_some_and(|distance| distance < size)),
            None => true,
        }
    }
}
