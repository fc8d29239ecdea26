//! Puts ELF structures behind one another. Knows their layout and nothing of probes.

use super::{DYNAMIC, DYNSYM, HASH, READ, STRTAB, SYMBOL_SIZE, SYMTAB, WRITE};
use std::ops::Range;

/// The next multiple of a power of two.
pub(super) fn align(value: u64, to: u64) -> u64 {
    value.next_multiple_of(to)
}

/// A section and, once it is written, its place.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub name: &'static str,
    kind: u32,
    /// Access as in a program header; 0: not loaded.
    access: u32,
    place: Range<u64>,
    alignment: u64,
}

impl Section {
    pub(super) fn loaded(name: &'static str, kind: u32, access: u32) -> Section {
        Section { name, kind, access, place: 0..0, alignment: 1 }
    }

    pub(super) fn unloaded(name: &'static str, kind: u32) -> Section {
        Section::loaded(name, kind, 0)
    }

    fn flags(&self) -> u64 {
        let (write, alloc, execute) = (1, 2, 4);
        match self.access {
            0 => 0,
            READ => alloc,
            access if access & WRITE != 0 => alloc | write,
            _ => alloc | execute,
        }
    }
}

/// The range that [`Bytes::section`] wrote.
pub(super) trait Size {
    fn size(&self) -> u64;
}

impl Size for Range<u64> {
    fn size(&self) -> u64 {
        self.end - self.start
    }
}

/// The bytes of a file, little endian, from its beginning.
#[derive(Debug, Default)]
pub(super) struct Bytes(Vec<u8>);

impl Bytes {
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// With its NUL.
    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.u8(0);
    }

    /// Zeroes.
    pub(super) fn skip(&mut self, n_bytes: u64) {
        self.skip_to(self.len() + n_bytes);
    }

    pub(super) fn skip_to(&mut self, end: u64) {
        self.0.resize(end as usize, 0);
    }

    pub(super) fn align(&mut self, to: u64) {
        self.skip_to(align(self.len(), to));
    }

    /// Sets bytes that were skipped.
    pub(super) fn overwrite(&mut self, from: usize, with: Bytes) {
        self.0[from..from + with.0.len()].copy_from_slice(&with.0);
    }

    /// Writes a section's content, which begins at a multiple of `alignment`.
    pub(super) fn section(
        &mut self,
        sections: &mut Vec<Section>,
        section: Section,
        alignment: u64,
        write: impl FnOnce(&mut Bytes),
    ) -> Range<u64> {
        self.align(alignment);
        let start = self.len();
        write(self);
        let place = start..self.len();
        sections.push(Section { place: place.clone(), alignment, ..section });
        place
    }

    pub(super) fn symbol(&mut self, name: u32, info: u8, section: u16, address: u64, size: u64) {
        self.u32(name);
        self.u8(info);
        self.u8(0);
        self.u16(section);
        self.u64(address);
        self.u64(size);
    }

    /// Writes the section with the names of all, and the table of them; returns where that is.
    pub(super) fn section_headers(&mut self, sections: &mut Vec<Section>) -> u64 {
        let mut names = Strings::default();
        sections.push(Section::unloaded(".shstrtab", STRTAB));
        let offsets: Vec<u32> = sections.iter().map(|section| names.add(section.name)).collect();
        let start = self.len();
        self.bytes(names.bytes());
        if let Some(last) = sections.last_mut() {
            last.place = start..self.len();
        }
        self.align(8);
        let table = self.len();
        self.skip(64);
        let number = |name: &str| sections.iter().position(|s| s.name == name).map_or(0, |i| i as u32 + 1);
        for (section, name) in sections.iter().zip(offsets) {
            // What the table's link and info fields mean depends on the kind: the strings or the symbols it refers to, and
            // the number of the first global symbol.
            let (link, info, entry_size) = match section.kind {
                HASH => (number(".dynsym"), 0, 4),
                DYNSYM => (number(".dynstr"), 1, SYMBOL_SIZE),
                DYNAMIC => (number(".dynstr"), 0, 16),
                SYMTAB => (number(".strtab"), 1, SYMBOL_SIZE),
                _ => (0, 0, 0),
            };
            self.u32(name);
            self.u32(section.kind);
            self.u64(section.flags());
            self.u64(if section.access == 0 { 0 } else { section.place.start });
            self.u64(section.place.start);
            self.u64(section.place.size());
            self.u32(link);
            self.u32(info);
            self.u64(section.alignment);
            self.u64(entry_size);
        }
        table
    }

    pub(super) fn elf_header(
        &mut self,
        machine: u16,
        section_headers: u64,
        n_segments: u16,
        n_sections: u16,
    ) {
        // 64 bits, little endian, version 1, System V.
        self.bytes(b"\x7fELF\x02\x01\x01\x00\0\0\0\0\0\0\0\0");
        let (shared_object, version) = (3, 1);
        self.u16(shared_object);
        self.u16(machine);
        self.u32(version);
        self.u64(0);
        self.u64(super::HEADER_SIZE);
        self.u64(section_headers);
        self.u32(0);
        self.u16(super::HEADER_SIZE as u16);
        self.u16(super::PROGRAM_HEADER_SIZE as u16);
        self.u16(n_segments);
        self.u16(64);
        self.u16(n_sections);
        // The names of the sections are in the last one.
        self.u16(n_sections - 1);
    }

    pub(super) fn program_header(&mut self, kind: u32, access: u32, place: Range<u64>, alignment: u64) {
        self.u32(kind);
        self.u32(access);
        self.u64(place.start);
        self.u64(place.start);
        self.u64(place.start);
        self.u64(place.size());
        self.u64(place.size());
        self.u64(alignment);
    }
}

/// A string table.
#[derive(Debug)]
pub(super) struct Strings(Vec<u8>);

impl Default for Strings {
    fn default() -> Self {
        Strings(vec![0])
    }
}

impl Strings {
    /// The offset of `text` in the table.
    pub(super) fn add(&mut self, text: &str) -> u32 {
        let offset = self.0.len() as u32;
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        offset
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
