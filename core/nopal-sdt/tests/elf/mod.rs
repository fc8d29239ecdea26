//! Writes small ELF files for the tests, of either word size and byte order, with anything in them wrong on demand.

/// Link-time addresses of the made file: code at [0x1000, 0x2000) stands in the file at 0x400 and on.
pub(crate) const CODE_ADDRESS: u64 = 0x1000;
pub(crate) const CODE_OFFSET: u64 = 0x400;
/// Data at [0x5000, 0x5100) stands at 0x500.
pub(crate) const DATA_ADDRESS: u64 = 0x5000;
pub(crate) const DATA_OFFSET: u64 = 0x500;
pub(crate) const BASE_ADDRESS: u64 = 0x800;

pub(crate) struct Elf {
    pub is_64_bit: bool,
    pub is_big_endian: bool,
    pub kind: u16,
    pub machine: u16,
    pub notes: Vec<u8>,
    /// Address of `.stapsdt.base`.
    pub base: Option<u64>,
    /// The code is left out, as in a separate debug file.
    pub is_debug_copy: bool,
    /// Name, address, whether it is local; in `.symtab` or in `.dynsym`.
    pub symbols: Vec<(&'static str, u64, bool)>,
    pub dynamic_symbols: Vec<(&'static str, u64, bool)>,
    pub has_sections: bool,
    /// How often the note section is listed.
    pub n_note_sections: usize,
}

impl Default for Elf {
    fn default() -> Self {
        Elf {
            is_64_bit: true,
            is_big_endian: false,
            kind: 3,
            machine: 62,
            notes: Vec::new(),
            base: Some(BASE_ADDRESS),
            is_debug_copy: false,
            symbols: Vec::new(),
            dynamic_symbols: Vec::new(),
            has_sections: true,
            n_note_sections: 1,
        }
    }
}

struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    entry_size: u64,
}

const NAMES: &[u8] = b"\0.text\0.note\0.stapsdt.base\0.symtab\0.strtab\0";

impl Elf {
    fn word(&self, out: &mut Vec<u8>, value: u64) {
        match self.is_64_bit {
            true => self.u64(out, value),
            false => self.u32(out, value as u32),
        }
    }

    fn u64(&self, out: &mut Vec<u8>, value: u64) {
        out.extend(if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn u32(&self, out: &mut Vec<u8>, value: u32) {
        out.extend(if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn u16(&self, out: &mut Vec<u8>, value: u16) {
        out.extend(if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    pub(crate) fn note(&mut self, owner: &str, kind: u32, description: &[u8]) -> &mut Self {
        let mut note = Vec::new();
        self.u32(&mut note, owner.len() as u32 + 1);
        self.u32(&mut note, description.len() as u32);
        self.u32(&mut note, kind);
        note.extend(owner.as_bytes());
        note.push(0);
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(description);
        note.resize(note.len().next_multiple_of(4), 0);
        self.notes.extend(note);
        self
    }

    /// A stapsdt note; `probe` is `provider:name`.
    pub(crate) fn probe(
        &mut self,
        probe: &str,
        location: u64,
        base: u64,
        semaphore: u64,
        args: &str,
    ) -> &mut Self {
        let mut description = Vec::new();
        for address in [location, base, semaphore] {
            self.word(&mut description, address);
        }
        let (provider, name) = probe.split_once(':').expect("provider:name");
        for text in [provider, name, args] {
            description.extend(text.as_bytes());
            description.push(0);
        }
        self.note("stapsdt", 3, &description)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let w = if self.is_64_bit { 8 } else { 4 };
        let (header_size, segment_size, section_size) =
            if self.is_64_bit { (64, 56, 64) } else { (52, 32, 40) };
        let mut body = vec![0u8; 0x600];
        for (idx, byte) in body[CODE_OFFSET as usize..DATA_OFFSET as usize].iter_mut().enumerate() {
            *byte = idx as u8;
        }
        let mut place = |bytes: &[u8]| {
            body.resize(body.len().next_multiple_of(8), 0);
            let offset = body.len() as u64;
            body.extend(bytes);
            offset
        };
        let notes_at = place(&self.notes);
        let names_at = place(NAMES);
        let mut sections = vec![Section::new(0, 0, 0, 0, 0, 0)];
        let text_kind = if self.is_debug_copy { 8 } else { 1 };
        sections.push(Section::new(1, text_kind, 6, CODE_ADDRESS, CODE_OFFSET, 0x1000));
        for _ in 0..self.n_note_sections {
            sections.push(Section::new(7, 7, 0, 0, notes_at, self.notes.len() as u64));
        }
        if let Some(base) = self.base {
            sections.push(Section::new(13, 1, 2, base, 0, 1));
        }
        for (kind, symbols) in [(2, &self.symbols), (11, &self.dynamic_symbols)] {
            let mut names = vec![0u8];
            let mut table = vec![0u8; if self.is_64_bit { 24 } else { 16 }];
            for (name, address, is_local) in symbols {
                let info = if *is_local { 1 } else { 0x11 };
                self.u32(&mut table, names.len() as u32);
                if self.is_64_bit {
                    table.extend([info, 0, 1, 0]);
                    self.u64(&mut table, *address);
                    self.u64(&mut table, 8);
                } else {
                    self.u32(&mut table, *address as u32);
                    self.u32(&mut table, 8);
                    table.extend([info, 0, 1, 0]);
                }
                names.extend(name.as_bytes());
                names.push(0);
            }
            let entry_size = if self.is_64_bit { 24 } else { 16 };
            let names_offset = place(&names);
            let table_offset = place(&table);
            let link = sections.len() as u32;
            sections.push(Section::new(0, 3, 0, 0, names_offset, names.len() as u64));
            let table = Section::new(0, kind, 0, 0, table_offset, table.len() as u64);
            sections.push(Section { link, entry_size, ..table });
        }
        let names_idx = sections.len();
        sections.push(Section::new(0, 3, 0, 0, names_at, NAMES.len() as u64));
        body.resize(body.len().next_multiple_of(8), 0);
        let sections_at = if self.has_sections { body.len() as u64 } else { 0 };
        let n_sections = if self.has_sections { sections.len() } else { 0 };

        let mut head = b"\x7fELF".to_vec();
        head.push(if self.is_64_bit { 2 } else { 1 });
        head.push(if self.is_big_endian { 2 } else { 1 });
        head.push(1);
        head.resize(16, 0);
        self.u16(&mut head, self.kind);
        self.u16(&mut head, self.machine);
        self.u32(&mut head, 1);
        for value in [0, header_size, sections_at] {
            self.word(&mut head, value);
        }
        self.u32(&mut head, 0);
        for value in [
            header_size as u16,
            segment_size,
            3,
            section_size,
            n_sections as u16,
            if self.has_sections { names_idx as u16 } else { 0 },
        ] {
            self.u16(&mut head, value);
        }
        assert_eq!(head.len(), header_size as usize);
        // The head of the file, read-only; code; data.
        for (flags, offset, address, in_file, in_memory) in [
            (4u32, 0u64, 0u64, 0x300u64, 0x300u64),
            (5, CODE_OFFSET, CODE_ADDRESS, 0x100, 0x100),
            (6, DATA_OFFSET, DATA_ADDRESS, 0x80, 0x100),
        ] {
            self.u32(&mut head, 1);
            if self.is_64_bit {
                self.u32(&mut head, flags);
            }
            for value in [offset, address, address, in_file, in_memory] {
                self.word(&mut head, value);
            }
            if !self.is_64_bit {
                self.u32(&mut head, flags);
            }
            self.word(&mut head, 0x1000);
        }
        body[..head.len()].copy_from_slice(&head);
        for section in sections.iter().take(n_sections) {
            self.u32(&mut body, section.name);
            self.u32(&mut body, section.kind);
            for value in [section.flags, section.address, section.offset, section.size] {
                self.word(&mut body, value);
            }
            self.u32(&mut body, section.link);
            self.u32(&mut body, 0);
            self.word(&mut body, if section.kind == 7 { 4 } else { w });
            self.word(&mut body, section.entry_size);
        }
        body
    }
}

impl Section {
    fn new(name: u32, kind: u32, flags: u64, address: u64, offset: u64, size: u64) -> Section {
        Section { name, kind, flags, address, offset, size, link: 0, entry_size: 0 }
    }
}
