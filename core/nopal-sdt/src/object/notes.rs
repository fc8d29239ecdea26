//! The notes of one file: stapsdt notes become probes with sites, nopal notes say what their arguments mean.

use super::symbols::Wanted;
use super::{MAX_NOTE_BYTES, Object, ReadError, Sections, Warning};
use crate::nopal_note;
use crate::operand::OperandError;
use crate::operand::{self, Arch};
use crate::probe::{Arg, Description, Probe, Semaphore, Site};
use object::elf;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::{Endian, Endianness, ReadRef};
use std::borrow::Cow;
use std::collections::HashMap;

/// More are not worth reading; the first say what is wrong.
const MAX_WARNINGS: usize = 8;
/// systemtap's macros stop at 12, nopal's at 12.
const MAX_ARGS: usize = 64;
const CODE_BYTES: u64 = 32;

/// A stapsdt note as it is in the file.
struct Stapsdt<'data> {
    location: u64,
    base: u64,
    semaphore: u64,
    // Text from here on: names that differ only in bytes that are not text are one name, sorted and merged as such.
    provider: Cow<'data, str>,
    name: Cow<'data, str>,
    args: Cow<'data, str>,
}

impl Stapsdt<'_> {
    fn key(&self) -> (&str, &str, u64) {
        (&self.provider, &self.name, self.location)
    }
}

pub(super) fn read_into<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    object: &mut Object,
    sections: &Sections<'data, Elf, R>,
) -> Result<(), ReadError> {
    let mut stapsdt = Vec::new();
    let mut abouts = HashMap::new();
    for Area { idx, data, align } in note_areas(sections)? {
        // An alignment other than 4 or 8 is none that notes of ours have.
        let Ok(notes) = NoteIterator::<Elf>::new(sections.endian, align, data) else { continue };
        for note in notes {
            let Ok(note) = note else {
                warn(object, Warning::NotesCutShort { section: idx });
                break;
            };
            match (note.name(), note.n_type(sections.endian).0) {
                (b"stapsdt", 3) => match stapsdt_note(note.desc(), sections.endian, sections.is_64_bit) {
                    Some(note) => stapsdt.push(note),
                    None => warn(object, Warning::BadStapsdtNote { index: stapsdt.len() }),
                },
                (b"nopal", 1) => read_about(object, &mut abouts, note.desc(), sections.endian),
                (b"GNU", 3) if object.build_id.is_none() => object.build_id = Some(note.desc().to_vec()),
                _ => {}
            }
        }
    }
    collect(object, sections, stapsdt);
    for probe in &mut object.probes {
        if !abouts.is_empty() {
            probe.description = abouts.remove(&(probe.provider.clone(), probe.name.clone()));
        }
    }
    Ok(())
}

fn warn(object: &mut Object, warning: Warning) {
    if object.warnings.len() < MAX_WARNINGS {
        object.warnings.push(warning);
    }
}

/// A note section, or a note segment of a file without a section table.
struct Area<'data, Word> {
    idx: usize,
    data: &'data [u8],
    align: Word,
}

fn note_areas<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    sections: &Sections<'data, Elf, R>,
) -> Result<Vec<Area<'data, Elf::Word>>, ReadError> {
    let (endian, bytes) = (sections.endian, sections.bytes);
    let mut areas = Vec::new();
    let mut n_bytes = 0u64;
    // Asked before anything is read.
    let mut count = |size: u64| {
        n_bytes = n_bytes.saturating_add(size);
        match n_bytes > MAX_NOTE_BYTES {
            true => Err(ReadError::TooManyNotes { bytes: n_bytes, limit: MAX_NOTE_BYTES }),
            false => Ok(()),
        }
    };
    for (idx, section) in sections.headers.iter().enumerate() {
        if section.sh_type(endian) == elf::SHT_NOTE {
            count(section.sh_size(endian).into())?;
            let data = section.data(endian, bytes).map_err(|_| cut_off("note section"))?;
            areas.push(Area { idx, data, align: section.sh_addralign(endian) });
        }
    }
    if sections.headers.is_empty() {
        for (idx, segment) in sections.program_headers.iter().enumerate() {
            if segment.p_type(endian) == elf::PT_NOTE {
                count(segment.p_filesz(endian).into())?;
                let data = segment.data(endian, bytes).map_err(|()| cut_off("note segment"))?;
                areas.push(Area { idx, data, align: segment.p_align(endian) });
            }
        }
    }
    Ok(areas)
}

fn cut_off(part: &'static str) -> ReadError {
    ReadError::broken(part, "it lies beyond the end of the file")
}

/// `address location, address base, address semaphore, provider NUL, name NUL, operands NUL`.
fn stapsdt_note(desc: &[u8], endian: Endianness, is_64_bit: bool) -> Option<Stapsdt<'_>> {
    let width = if is_64_bit { 8 } else { 4 };
    let (addresses, texts) = desc.split_at_checked(3 * width)?;
    let mut addresses = addresses.chunks_exact(width).map(|bytes| match bytes {
        [a, b, c, d] => u64::from(endian.read_u32([*a, *b, *c, *d])),
        _ => bytes.try_into().map_or(0, |bytes| endian.read_u64(bytes)),
    });
    let mut texts = texts.splitn(4, |&byte| byte == 0).map(String::from_utf8_lossy);
    let note = Stapsdt {
        location: addresses.next()?,
        base: addresses.next()?,
        semaphore: addresses.next()?,
        provider: texts.next()?,
        name: texts.next()?,
        args: texts.next()?,
    };
    // The operands, too, end with a NUL; without it `splitn` has no fourth part.
    texts.next()?;
    (!note.provider.is_empty() && !note.name.is_empty()).then_some(note)
}

fn read_about(
    object: &mut Object,
    abouts: &mut HashMap<(String, String), Description>,
    desc: &[u8],
    endian: Endianness,
) {
    match nopal_note::decode(desc, endian == Endianness::Big) {
        Ok(note) => {
            abouts.entry((note.provider, note.name)).or_default().add(note.description);
        }
        Err(error) => {
            warn(object, Warning::BadNopalNote { probe: error.probe, reason: error.reason.to_string() })
        }
    }
}

/// Turns notes into probes: undoes prelink shifts, leaves out ghosts and duplicates, groups, finds symbols.
fn collect<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    object: &mut Object,
    sections: &Sections<'data, Elf, R>,
    mut notes: Vec<Stapsdt<'_>>,
) {
    for note in &mut notes {
        // Prelink moved the file after it was linked; the base section tells how far. A base of 0 was thrown away
        // by the linker and tells nothing.
        if let Some(base) = sections.base.filter(|_| note.base != 0) {
            let shift = base.wrapping_sub(note.base);
            note.location = note.location.wrapping_add(shift);
            if note.semaphore != 0 {
                note.semaphore = note.semaphore.wrapping_add(shift);
            }
        }
    }
    let n_notes = notes.len();
    notes.retain(|note| is_code(object, sections, note.location));
    object.n_ghosts = n_notes - notes.len();

    let n_alive = notes.len();
    notes.sort_by(|a, b| a.key().cmp(&b.key()));
    notes.dedup_by(|a, b| a.key() == b.key());
    object.n_duplicates = n_alive - notes.len();

    let mut symbols = Wanted::new(object.is_fixed);
    for group in notes.chunk_by(|a, b| a.provider == b.provider && a.name == b.name) {
        let sites = group.iter().map(|note| site(object, sections.bytes, note, &mut symbols)).collect();
        object.probes.push(Probe {
            provider: group[0].provider.to_string(),
            name: group[0].name.to_string(),
            sites,
            description: None,
        });
    }
    if !symbols.is_empty()
        && let Some(arch) = object.arch
    {
        symbols.resolve(sections);
        for site in object.probes.iter_mut().flat_map(|probe| &mut probe.sites) {
            for arg in &mut site.args {
                arg.operand = operand::parse_with(arch, &arg.text, &mut symbols);
            }
        }
    }
}

fn is_code<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    object: &Object,
    sections: &Sections<'data, Elf, R>,
    address: u64,
) -> bool {
    let is_loaded = || {
        object
            .segments
            .iter()
            .any(|segment| segment.is_executable && segment.file_offset_of(address).is_some())
    };
    address != 0 && sections.has_code_at(address) && (object.is_debug_copy || is_loaded())
}

fn site<'data, R: ReadRef<'data>>(
    object: &Object,
    bytes: R,
    note: &Stapsdt<'_>,
    symbols: &mut Wanted,
) -> Site {
    let segment = object
        .segments
        .iter()
        .find(|segment| segment.is_executable && segment.file_offset_of(note.location).is_some())
        .filter(|_| !object.is_debug_copy);
    let file_offset = segment.and_then(|segment| segment.file_offset_of(note.location)).unwrap_or(0);
    let code = segment.map_or(&[][..], |segment| {
        let in_segment = segment.size_in_file - (note.location - segment.address);
        // A file that ends early has fewer.
        let in_file = bytes.len().unwrap_or(0).saturating_sub(file_offset);
        bytes.read_bytes_at(file_offset, in_segment.min(CODE_BYTES).min(in_file)).unwrap_or_default()
    });
    let semaphore = object
        .segments
        .iter()
        .find(|segment| note.semaphore != 0 && segment.is_loaded_at(note.semaphore))
        .map(|segment| Semaphore {
            address: note.semaphore,
            file_offset: segment.file_offset.wrapping_add(note.semaphore - segment.address),
        });
    let args = args(object.arch, &note.args, symbols);
    Site {
        address: note.location,
        file_offset,
        semaphore,
        args,
        code: code.to_vec(),
        until_restartable: object.until_restartable(note.location),
        edge: None,
    }
}

fn args(arch: Option<Arch>, text: &str, symbols: &mut Wanted) -> Vec<Arg> {
    operand::split(text)
        .into_iter()
        .take(MAX_ARGS)
        .map(|text| Arg {
            text: text.to_owned(),
            operand: match arch {
                Some(arch) => operand::parse_with(arch, text, symbols),
                None => Err(OperandError { reason: "the operands of this machine are not known".to_owned() }),
            },
        })
        .collect()
}
