//! A file with code: its probes, and what is around a site: which function, whether an instruction begins there, whether
//! anybody is called. Reads the file; knows no process.

use super::refusal::{Refusal, looks_like_a_jump};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use nopal_proc::functions::FunctionRanges;
use nopal_proc::go::GoCode;
use nopal_proc::symbols::FileSymbols;
use nopal_proc::{Bytes, Image};
use nopal_sdt::Object;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// A function longer than this is looked at so far only.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

const NOP: u8 = 0x90;
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// A file with code, read once.
#[derive(Debug)]
pub struct FileCode {
    image: Image,
    pub object: Object,
    symbols: OnceLock<FileSymbols>,
    functions: OnceLock<FunctionRanges>,
    go: OnceLock<Option<GoCode>>,
}

/// The files that were read, by device and inode.
#[derive(Debug, Default)]
pub struct FileCodes {
    known: HashMap<(u64, u64), Arc<FileCode>>,
    /// What files say of providers, beside the catalog.
    given: Vec<nopal_provider::File>,
}

impl FileCodes {
    pub fn new(given: Vec<nopal_provider::File>) -> FileCodes {
        FileCodes { known: HashMap::new(), given }
    }

    pub fn read(&mut self, image: Image) -> Result<Arc<FileCode>, Refusal> {
        let id = (image.device, image.inode);
        if let Some(known) = self.known.get(&id) {
            return Ok(Arc::clone(known));
        }
        let mut object = nopal_sdt::read(image.bytes())
            .map_err(|error| Refusal::Unreadable { reason: error.to_string() })?;
        nopal_sdt::describe(&mut object.probes, &self.given);
        let file = FileCode {
            image,
            object,
            symbols: OnceLock::new(),
            functions: OnceLock::new(),
            go: OnceLock::new(),
        };
        let file = Arc::new(file);
        self.known.insert(id, Arc::clone(&file));
        Ok(file)
    }
}

impl FileCode {
    /// Whether a function there is one of Go, of which no return address may be another's.
    pub(crate) fn is_go(&self, address: u64) -> bool {
        let go = self.go.get_or_init(|| GoCode::read(self.image.bytes(), self.symbols()));
        go.as_ref().is_some_and(|go| go.contains(address))
    }

    /// Device and inode.
    pub fn file(&self) -> (u64, u64) {
        (self.image.device, self.image.inode)
    }

    pub fn bytes(&self) -> Bytes<'_> {
        self.image.bytes()
    }

    pub fn symbols(&self) -> &FileSymbols {
        self.symbols.get_or_init(|| FileSymbols::read(self.image.bytes()))
    }

    /// At most so many bytes from a link-time address on.
    pub fn at(&self, address: u64, most: u64) -> &[u8] {
        let Some(at) = self.symbols().file_offset_of(address) else { return &[] };
        let bytes = self.image.bytes();
        let Some(end) = at.checked_add(most) else { return &[] };
        bytes.get(at as usize..(end as usize).min(bytes.len())).unwrap_or_default()
    }

    /// The function around an address: where it begins, and its code. The tables for unwinding know it best; a symbol of
    /// a part of hand-written code may end early.
    fn around(&self, address: u64) -> Option<(u64, &[u8])> {
        let functions = self.functions.get_or_init(|| FunctionRanges::read(self.image.bytes()));
        let by_symbol = || {
            let function = self.symbols().at(address).filter(|function| function.size_bytes > 0)?;
            Some((function.address, function.size_bytes))
        };
        let (start, n_bytes) = functions.around(address).or_else(by_symbol)?;
        Some((start, self.at(start, n_bytes.min(MAX_FUNCTION_BYTES))))
    }

    /// Whether a function begins there.
    pub fn is_function(&self, address: u64) -> bool {
        self.around(address).is_some_and(|(start, _)| start == address)
    }

    /// Whether an instruction begins there, as far as can be told.
    pub fn is_instruction(&self, address: u64) -> bool {
        let Some((start, code)) = self.around(address) else { return true };
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        decoder.iter().take_while(|insn| insn.ip() <= address).any(|insn| insn.ip() == address)
    }

    /// Whether the function around an address calls: only one that does not keeps variables below its stack pointer.
    pub fn calls_somebody(&self, address: u64) -> bool {
        let Some((start, code)) = self.around(address) else { return false };
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        decoder
            .iter()
            .any(|insn| matches!(insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall))
    }

    /// Whether a uprobe leaves the program as it is. `code` is what the file has at the address; at the entry of a function
    /// there is nothing below the stack pointer yet.
    pub fn check(&self, address: u64, code: &[u8], is_entry: bool) -> Result<(), Refusal> {
        if looks_like_a_jump(code) {
            return Err(Refusal::VectorInstruction { address });
        }
        if self.object.until_restartable(address) == Some(0) && code.first() != Some(&NOP) {
            return Err(Refusal::Restartable { address });
        }
        if !is_entry && code.starts_with(&NOP5) && !self.calls_somebody(address) {
            return Err(Refusal::LeafNop { address });
        }
        Ok(())
    }
}
