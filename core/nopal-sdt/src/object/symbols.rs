//! Link-time addresses of the symbols that operands name, from the symbol tables of the file.

use super::Sections;
use crate::operand::Symbols;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, ReadRef};
use std::collections::HashMap;

/// Collects names in a first pass over the operands and answers with addresses in a second: most files name no
/// symbol, and then no symbol table is read.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    found: HashMap<String, Found>,
    is_fixed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    No,
    /// A local symbol gives way to a global one.
    Local(u64),
    Global(u64),
    /// Several local symbols of one name: the note does not tell which.
    Ambiguous,
}

impl Wanted {
    pub(super) fn new(is_fixed: bool) -> Self {
        Wanted { found: HashMap::new(), is_fixed }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Looks all wanted names up in the full symbol table and, for stripped files, in the dynamic one.
    pub(super) fn resolve<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
        &mut self,
        sections: &Sections<'data, Elf, R>,
    ) {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            if let Some(section) = sections.headers.iter().find(|s| s.sh_type(sections.endian) == kind) {
                self.resolve_in(sections, section);
            }
        }
    }

    fn resolve_in<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
        &mut self,
        sections: &Sections<'data, Elf, R>,
        table: &Elf::SectionHeader,
    ) {
        let endian = sections.endian;
        let names = sections
            .headers
            .get(table.sh_link(endian) as usize)
            .and_then(|section| section.data(endian, sections.bytes).ok())
            .unwrap_or_default();
        let symbols: &[Elf::Sym] = table.data_as_array(endian, sections.bytes).unwrap_or_default();
        // No name longer than those wanted is looked at: a hostile table may have names as long as the file.
        let longest = self.found.keys().map(String::len).max().unwrap_or(0);
        for symbol in symbols {
            if symbol.is_undefined(endian) {
                continue;
            }
            let Some(name) = names.get(symbol.st_name(endian) as usize..) else { continue };
            let name = &name[..name.len().min(longest + 1)];
            let Some(end) = name.iter().position(|&b| b == 0) else { continue };
            let Ok(name) = std::str::from_utf8(&name[..end]) else { continue };
            let Some(found) = self.found.get_mut(name) else { continue };
            let address = symbol.st_value(endian).into();
            *found = match (symbol.st_bind(), *found) {
                (_, Found::Global(address)) => Found::Global(address),
                (elf::STB_LOCAL, Found::No) => Found::Local(address),
                (elf::STB_LOCAL, Found::Local(other)) if other == address => Found::Local(address),
                (elf::STB_LOCAL, _) => Found::Ambiguous,
                (_, Found::No | Found::Local(_) | Found::Ambiguous) => Found::Global(address),
            };
        }
    }
}

impl Symbols for Wanted {
    fn address(&mut self, name: &str) -> Option<u64> {
        match self.found.get(name) {
            Some(Found::Local(address) | Found::Global(address)) => Some(*address),
            Some(Found::No | Found::Ambiguous) => None,
            None => {
                self.found.insert(name.to_owned(), Found::No);
                None
            }
        }
    }

    fn fixed_address(&mut self, name: &str) -> Option<u64> {
        self.is_fixed.then(|| self.address(name))?
    }
}
