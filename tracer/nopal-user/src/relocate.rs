//! Whether the instructions behind a site may be moved: nothing in the file may lead into the middle of the bytes that
//! change, nor past the nop. Over-approximated from the file alone; in doubt the answer is no. Moving them is in [`super::stub::tail`].
//!
//! What leads somewhere: direct branches of the whole text, addresses taken relative to an instruction or as a constant,
//! words of data and relocations that hold an address (tables of pointers), tables of 32-bit distances (what compilers
//! make of `switch`), symbols, starts of functions, and landing pads of exceptions.

use super::hijack::Call;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use nopal_abi::PAGE_BYTES;
use nopal_proc::functions::search_table;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ReadRef};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Bytes that a jump takes.
pub const WINDOW: u64 = 5;
/// Farther behind a site nothing is moved.
pub const MAX_MOVED: u64 = 32;
/// Farther behind a site nobody asks.
const MAX_WINDOW: u64 = 64;

/// The page or the two pages that a site's five bytes lie in.
pub fn pages_of(site: u64) -> Vec<u64> {
    let page = |address: u64| address & !(PAGE_BYTES as u64 - 1);
    let mut pages = vec![page(site), page(site.wrapping_add(WINDOW - 1))];
    pages.dedup();
    pages
}

pub fn protect(page: u64, rights: u64) -> Call {
    Call::new("change the rights of", libc::SYS_mprotect, [page, PAGE_BYTES as u64, rights, 0, 0, 0])
}

/// What leads to the instructions behind the sites of an object; all link-time addresses.
#[derive(Debug)]
pub struct Fixed {
    /// Sites that begin an instruction of a function that could be decoded whole, with the start of that function.
    decoded: BTreeMap<u64, u64>,
    /// Sites behind which something leads, and how far behind.
    entered: BTreeSet<(u64, u64)>,
    /// Distances from a function that its tables of exceptions may name.
    pads: HashSet<u64>,
}

impl Fixed {
    /// Looks at the whole file once for all its sites.
    pub fn of<'a, R: ReadRef<'a>>(image: R, sites: &'a [u64]) -> Fixed {
        match Survey::new(image, sites) {
            Some(survey) => survey.conclude(),
            None => Fixed { decoded: BTreeMap::new(), entered: BTreeSet::new(), pads: HashSet::new() },
        }
    }

    /// False if the file could not be read, or has nothing that can be told apart.
    pub fn is_known(&self) -> bool {
        !self.decoded.is_empty()
    }

    /// Whether nothing leads into the bytes behind the first of `window` bytes at the site; else why they must stay.
    pub fn check(&self, site: u64, window: u64) -> Result<(), &'static str> {
        if window > MAX_MOVED {
            return Err("they are too far behind it");
        }
        if self.entered.range((site, 1)..(site, window)).next().is_some() {
            return Err("a branch leads into them");
        }
        let Some(start) = self.decoded.get(&site) else {
            return Err("its function cannot be decoded");
        };
        // Landing pads are written as distances from their function: any bytes that could be such a one count.
        let is_landing_pad = (1..window).any(|inside| self.pads.contains(&(site + inside - start)));
        if is_landing_pad { Err("an exception may land in them") } else { Ok(()) }
    }
}

impl Fixed {
    /// Whether nothing leads to any of these addresses, which follow the site; else why they must be left as they are.
    pub fn check_line(&self, site: u64, line: std::ops::Range<u64>) -> Result<(), &'static str> {
        if line.is_empty() {
            return Ok(());
        }
        let (Some(first), Some(end)) = (line.start.checked_sub(site), line.end.checked_sub(site)) else {
            return Err("they are not behind it");
        };
        if end > MAX_WINDOW {
            return Err("they are too far behind it");
        }
        if self.entered.range((site, first)..(site, end)).next().is_some() {
            return Err("a branch leads into them");
        }
        let start = self.decoded.get(&site).ok_or("its function cannot be decoded")?;
        let is_landing_pad = line.into_iter().any(|address| self.pads.contains(&(address - start)));
        if is_landing_pad { Err("an exception may land in them") } else { Ok(()) }
    }
}

/// A loaded section.
struct Part<'a> {
    address: u64,
    bytes: &'a [u8],
    is_code: bool,
}

struct Survey<'a> {
    sites: &'a [u64],
    parts: Vec<Part<'a>>,
    /// Where decoding begins afresh.
    starts: BTreeSet<u64>,
    exceptions: &'a [u8],
    /// Sites into whose window something leads, and how far in.
    entered: BTreeSet<(u64, u64)>,
    /// Sites that begin an instruction of a function that could be decoded whole.
    decoded: BTreeSet<u64>,
    /// Data whose address some instruction takes, in any order, often more than once.
    tables: Vec<u64>,
}

impl<'a> Survey<'a> {
    fn new<R: ReadRef<'a>>(image: R, sites: &'a [u64]) -> Option<Survey<'a>> {
        let file = object::File::parse(image).ok()?;
        let mut parts = Vec::new();
        let mut exceptions: &[u8] = &[];
        let mut starts = BTreeSet::new();
        for section in file.sections() {
            let object::SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            if !sh_flags.contains(object::elf::SHF_ALLOC) {
                continue;
            }
            let bytes = section.data().ok()?;
            if section.name() == Ok(".gcc_except_table") {
                exceptions = bytes;
            }
            if section.name() == Ok(".eh_frame_hdr") {
                let functions = search_table(section.address(), bytes)?;
                starts.extend(functions.into_iter().map(|(start, _)| start));
            }
            let is_code = sh_flags.contains(object::elf::SHF_EXECINSTR);
            parts.push(Part { address: section.address(), bytes, is_code });
        }
        // Without a table of functions a decoder that lost its way would never find back.
        if starts.is_empty() {
            return None;
        }
        let mut survey = Survey {
            sites,
            parts,
            starts,
            exceptions,
            entered: BTreeSet::new(),
            decoded: BTreeSet::new(),
            tables: Vec::new(),
        };
        survey.lead_to(file.entry());
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            survey.lead_to(symbol.address());
            if symbol.kind() == object::SymbolKind::Text && symbol.address() != 0 {
                survey.starts.insert(symbol.address());
            }
        }
        let relocations = file.dynamic_relocations().into_iter().flatten();
        for (_, relocation) in relocations {
            survey.lead_to(relocation.addend() as u64);
        }
        Some(survey)
    }

    /// Something leads to this address.
    fn lead_to(&mut self, address: u64) {
        let at = self.sites.partition_point(|site| *site < address);
        let near = self.sites[..at].iter().rev().take_while(|site| address - **site < MAX_WINDOW);
        self.entered.extend(near.map(|site| (*site, address - site)));
    }

    fn conclude(mut self) -> Fixed {
        let parts = std::mem::take(&mut self.parts);
        for part in parts.iter().filter(|p| p.is_code) {
            self.decode_part(part);
        }
        for part in parts.iter().filter(|p| !p.is_code) {
            for word in part.bytes.chunks_exact(8) {
                self.lead_to(u64::from_le_bytes(word.try_into().expect("eight bytes")));
            }
        }
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_unstable();
        tables.dedup();
        for table in tables {
            self.read_table(&parts, table);
        }
        for start in self.starts.clone() {
            self.lead_to(start);
        }
        // Without a start before it a site would be in no function.
        let decoded = self.decoded.iter().filter_map(|site| {
            let start = self.starts.range(..=*site).next_back()?;
            Some((*site, *start))
        });
        Fixed {
            decoded: decoded.collect(),
            entered: std::mem::take(&mut self.entered),
            pads: (0..self.exceptions.len()).filter_map(|at| uleb128(&self.exceptions[at..])).collect(),
        }
    }

    fn decode_part(&mut self, part: &Part<'_>) {
        let end = part.address.saturating_add(part.bytes.len() as u64);
        let mut bounds: Vec<u64> = vec![part.address];
        bounds.extend(self.starts.range(part.address..end).filter(|start| **start > part.address));
        bounds.push(end);
        for pair in bounds.windows(2) {
            let from = (pair[0] - part.address) as usize;
            let to = (pair[1] - part.address) as usize;
            self.decode_function(&part.bytes[from..to], pair[0]);
        }
    }

    fn decode_function(&mut self, code: &[u8], address: u64) {
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut found = Vec::new();
        let mut is_whole = true;
        let mut next = self.sites.partition_point(|site| *site < address);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                is_whole = false;
                continue;
            }
            while self.sites.get(next).is_some_and(|site| *site < instruction.ip()) {
                next += 1;
            }
            if self.sites.get(next) == Some(&instruction.ip()) {
                found.push(instruction.ip());
            }
            self.follow(&instruction);
        }
        if is_whole {
            self.decoded.extend(found);
        }
    }

    fn follow(&mut self, instruction: &Instruction) {
        if matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch
                | FlowControl::UnconditionalBranch
                | FlowControl::Call
                | FlowControl::XbeginXabortXend
        ) {
            self.lead_to(instruction.near_branch_target());
        }
        // A call comes back behind itself; behind its nop a site has no call.
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            self.lead_to(instruction.next_ip());
        }
        if instruction.is_ip_rel_memory_operand() {
            self.lead_to(instruction.ip_rel_memory_address());
            self.tables.push(instruction.ip_rel_memory_address());
        }
        for operand in 0..instruction.op_count() {
            match instruction.op_kind(operand) {
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
                    self.lead_to(instruction.immediate(operand));
                    self.tables.push(instruction.immediate(operand));
                }
                OpKind::Memory => {
                    self.tables.push(instruction.memory_displacement64());
                }
                _ => {}
            }
        }
    }

    /// Distances from a table's own beginning, for as long as they lead into code.
    fn read_table(&mut self, parts: &[Part<'_>], table: u64) {
        let is_in = |part: &&Part<'_>, address: u64| {
            address.checked_sub(part.address).is_some_and(|offset| offset < part.bytes.len() as u64)
        };
        let Some(part) = parts.iter().find(|p| is_in(p, table)) else { return };
        let offset = (table - part.address) as usize;
        for entry in part.bytes[offset..].chunks_exact(4) {
            let distance = i32::from_le_bytes(entry.try_into().expect("four bytes"));
            let to = table.wrapping_add(distance as i64 as u64);
            if !parts.iter().any(|p| p.is_code && is_in(&p, to)) {
                return;
            }
            self.lead_to(to);
        }
    }
}

/// The number that these bytes begin with, if it is written as short as can be.
fn uleb128(bytes: &[u8]) -> Option<u64> {
    /// No function is longer.
    const MAX_BYTES: usize = 5;
    let len = 1 + bytes.iter().take(MAX_BYTES).position(|byte| byte & 0x80 == 0)?;
    if len > 1 && bytes[len - 1] == 0 {
        return None;
    }
    Some(bytes[..len].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a piece of code at 0x1000 with a site somewhere in it and perhaps a table at 0x2000.
    fn fixed(code: &[u8], site: u64, table: &[i32], exceptions: &[u8]) -> Fixed {
        let sites = [site];
        let table: Vec<u8> = table.iter().flat_map(|e| e.to_le_bytes()).collect();
        let survey = Survey {
            sites: &sites,
            parts: vec![
                Part { address: 0x1000, bytes: code, is_code: true },
                Part { address: 0x2000, bytes: &table, is_code: false },
            ],
            starts: BTreeSet::from([0x1000]),
            exceptions,
            entered: BTreeSet::new(),
            decoded: BTreeSet::new(),
            tables: Vec::new(),
        };
        survey.conclude()
    }

    fn verdict(code: &[u8], site: u64, table: &[i32], exceptions: &[u8]) -> Result<(), &'static str> {
        fixed(code, site, table, exceptions).check(site, WINDOW)
    }

    #[test]
    fn nothing_may_lead_into_the_five_bytes() {
        const BRANCH: Result<(), &str> = Err("a branch leads into them");
        type Row =
            (&'static str, &'static [u8], u64, &'static [i32], &'static [u8], Result<(), &'static str>);
        let table: &[Row] = &[
            ("straight on", &[0x90, 0x48, 0x89, 0xc7, 0x5d, 0xc3], 0x1000, &[], &[], Ok(())),
            // jmp to the site itself
            ("to the site", &[0x90, 0x48, 0x89, 0xc7, 0x5d, 0xeb, 0xf9], 0x1000, &[], &[], Ok(())),
            ("into it", &[0x90, 0x48, 0x89, 0xc7, 0x5d, 0xeb, 0xfa], 0x1000, &[], &[], BRANCH),
            ("if, into it", &[0x90, 0x48, 0x89, 0xc7, 0x5d, 0x74, 0xfd], 0x1000, &[], &[], BRANCH),
            ("behind it", &[0x90, 0x48, 0x89, 0xc7, 0x5d, 0xeb, 0xfe], 0x1000, &[], &[], Ok(())),
            // call, the site right behind it
            (
                "after a call",
                &[0xe8, 0, 0x10, 0, 0, 0x90, 0x48, 0x89, 0xc7, 0x5d, 0xc3],
                0x1005,
                &[],
                &[],
                Ok(()),
            ),
            ("a call inside", &[0x90, 0xff, 0xd0, 0x90, 0x90, 0xc3], 0x1000, &[], &[], BRANCH),
            // lea 0xff9(%rip): the table at 0x2000
            (
                "a table that leads into it",
                &[0x48, 0x8d, 0x05, 0xf9, 0x0f, 0, 0, 0x90, 0x48, 0x89, 0xc7, 0x5d, 0xc3],
                0x1007,
                &[-0x1000, 0x1008 - 0x2000],
                &[],
                BRANCH,
            ),
            (
                "a table that leads elsewhere",
                &[0x48, 0x8d, 0x05, 0xf9, 0x0f, 0, 0, 0x90, 0x48, 0x89, 0xc7, 0x5d, 0xc3],
                0x1007,
                &[-0x1000, 0x1007 - 0x2000, 0x7000, 0x1008 - 0x2000],
                &[],
                Ok(()),
            ),
            ("a pointer in data", &[0x90, 0x48, 0x89, 0xc7, 0x5d, 0xc3], 0x1000, &[0x1001, 0], &[], BRANCH),
            (
                "mov $0x1004,%eax",
                &[0x90, 0x48, 0x89, 0xc7, 0x5d, 0xb8, 0x04, 0x10, 0, 0, 0xc3],
                0x1000,
                &[],
                &[],
                BRANCH,
            ),
            (
                "a landing pad",
                &[0x90, 0x48, 0x89, 0xc7, 0x5d, 0xc3],
                0x1000,
                &[],
                &[9, 4],
                Err("an exception may land in them"),
            ),
            (
                "no code behind",
                &[0x90, 0x48, 0x89, 0xc7, 0x06, 0xc3],
                0x1000,
                &[],
                &[],
                Err("its function cannot be decoded"),
            ),
            (
                "within an instruction",
                &[0xb8, 0x90, 0, 0, 0, 0xc3],
                0x1001,
                &[],
                &[],
                Err("its function cannot be decoded"),
            ),
        ];
        for (name, code, site, jumps, exceptions, expected) in table {
            assert_eq!(verdict(code, *site, jumps, exceptions), *expected, "{name}");
        }
    }

    #[test]
    fn the_window_is_as_wide_as_asked_for() {
        // nop; and $0x61ffffff,%ecx; a short jump
        let code = |distance: u8| [0x90, 0x81, 0xe1, 0xff, 0xff, 0xff, 0x61, 0xeb, distance];
        for (to, narrow, wide) in [(0u8, true, true), (1, false, false), (5, true, false), (7, true, true)] {
            let fixed = fixed(&code(to.wrapping_sub(9)), 0x1000, &[], &[]);
            assert_eq!(
                (fixed.check(0x1000, 5).is_ok(), fixed.check(0x1000, 7).is_ok()),
                (narrow, wide),
                "{to}"
            );
            assert!(fixed.check(0x1000, 33).is_err());
        }
    }

    #[test]
    fn rubbish_is_refused() {
        for image in [&[][..], &[0x7f, b'E', b'L', b'F'], &[0; 4096]] {
            let fixed = Fixed::of(image, &[0x1000]);
            assert!(fixed.check(0x1000, 1).is_err());
        }
    }
}
