//! Decodes the nopal note, `docs/formats.md` section 3: what a probe and its arguments mean. The encoders are in the
//! macros of the tracee and in the provider language.

use crate::probe::{ArgDescription, Description, Element, Kind, Label, Pair, PairRole};
use std::fmt;

/// The newest version this reader understands.
pub const VERSION: u16 = 1;

/// One decoded note.
#[derive(Debug, Clone, PartialEq)]
pub struct NopalNote {
    pub provider: String,
    pub name: String,
    pub description: Description,
}

/// A note that cannot be read, and the probe it is about as far as it said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NopalNoteError {
    pub probe: String,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    NewerVersion {
        version: u16,
    },
    /// An item, or the head of one, reaches past the end of the note.
    CutShort {
        offset: usize,
    },
    /// The first two items must be provider and name.
    Nameless,
    /// An item whose value has not the size or content its tag asks for.
    BadItem {
        tag: u16,
        offset: usize,
    },
    /// An item that describes an argument, and no argument was opened.
    NoArgument {
        tag: u16,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NewerVersion { version } => {
                write!(
                    f,
                    "it has version {version} and this nopal reads up to {VERSION}; a newer nopal is needed"
                )
            }
            Reason::CutShort { offset } => write!(f, "the item at byte {offset} reaches past its end"),
            Reason::Nameless => write!(f, "it does not begin with provider and name"),
            Reason::BadItem { tag, offset } => {
                write!(f, "the item {tag:#04x} at byte {offset} has a value that it cannot have")
            }
            Reason::NoArgument { tag } => write!(f, "the item {tag:#04x} describes no argument"),
        }
    }
}

const PROVIDER: u16 = 0x01;
const NAME: u16 = 0x02;
const DOC: u16 = 0x03;
const PAIR: u16 = 0x04;
const LOGLEVEL: u16 = 0x05;
const MODEL_URI: u16 = 0x06;
const ARG: u16 = 0x10;
const ARG_NAME: u16 = 0x11;
const ARG_TYPE: u16 = 0x12;
const ARG_DOC: u16 = 0x13;
const ARG_LENGTH: u16 = 0x14;
const ARG_ENUM: u16 = 0x15;
const ARG_ELEMENT: u16 = 0x16;
const ARG_BYTE_ORDER: u16 = 0x17;
const ARG_BASE: u16 = 0x18;
const ARG_TRUSTED: u16 = 0x19;
const ARG_SIZE: u16 = 0x1a;
const ARG_NOT_WRITTEN: u16 = 0x1b;
const ARG_SIGN: u16 = 0x1c;
const PACKED: u16 = 0x30;

/// In an `ARG` item: the next field of the packed block.
const PACKED_FIELD: u8 = 255;

/// Reads the description of one nopal note.
pub fn decode(desc: &[u8], is_big_endian: bool) -> Result<NopalNote, NopalNoteError> {
    let mut note =
        NopalNote { provider: String::new(), name: String::new(), description: Description::default() };
    match decode_into(&mut note, Cursor { bytes: desc, offset: 0, is_big_endian }) {
        Ok(()) => Ok(note),
        Err(reason) => {
            let probe = match note.name.is_empty() {
                true => note.provider,
                false => format!("{}:{}", note.provider, note.name),
            };
            Err(NopalNoteError { probe, reason })
        }
    }
}

fn decode_into(note: &mut NopalNote, mut items: Cursor<'_>) -> Result<(), Reason> {
    let version = items.u16().ok_or(Reason::CutShort { offset: 0 })?;
    if version > VERSION {
        return Err(Reason::NewerVersion { version });
    }
    items.u16().ok_or(Reason::CutShort { offset: 2 })?;
    let mut item_idx = 0;
    while !items.bytes.is_empty() {
        let offset = items.offset;
        let cut_short = Reason::CutShort { offset };
        let (Some(tag), Some(length)) = (items.u16(), items.u16()) else { return Err(cut_short) };
        let Some(value) = items.take(length.into()) else { return Err(cut_short) };
        let value = Cursor { bytes: value, offset, is_big_endian: items.is_big_endian };
        match (item_idx, tag) {
            (0, PROVIDER) | (1, NAME) => {}
            (0 | 1, _) => return Err(Reason::Nameless),
            _ => {}
        }
        item(note, tag, value, offset)?;
        item_idx += 1;
    }
    if item_idx < 2 { Err(Reason::Nameless) } else { Ok(()) }
}

/// Takes one item into the note. Values may be longer than a reader of this version expects: the rest is for later
/// versions.
fn item(note: &mut NopalNote, tag: u16, mut value: Cursor<'_>, offset: usize) -> Result<(), Reason> {
    let bad = || Reason::BadItem { tag, offset };
    let description = &mut note.description;
    match tag {
        PROVIDER => note.provider = value.name().ok_or_else(bad)?,
        NAME => note.name = value.name().ok_or_else(bad)?,
        DOC => description.doc = value.text(),
        PAIR => {
            let role = match value.u8() {
                Some(1) => PairRole::Start,
                Some(2) => PairRole::End,
                _ => return Err(bad()),
            };
            description.pair = Some(Pair { role, partner: value.name().ok_or_else(bad)? });
        }
        LOGLEVEL => description.log_level = Some(value.u32().ok_or_else(bad)? as i32),
        MODEL_URI => description.model_uri = Some(value.text()),
        PACKED => description.packed = Some((value.u8().ok_or_else(bad)?, value.u8().ok_or_else(bad)?)),
        ARG => {
            let operand = match value.u8() {
                None | Some(0) => return Err(bad()),
                Some(PACKED_FIELD) => None,
                Some(operand) => Some(operand),
            };
            let kind = Kind::from_code(value.u8().ok_or_else(bad)?);
            description.args.push(ArgDescription { operand, kind, ..ArgDescription::default() });
        }
        ARG_NAME..=ARG_SIGN => {
            let argument = description.args.last_mut().ok_or(Reason::NoArgument { tag })?;
            return argument_item(argument, tag, value).ok_or_else(bad);
        }
        _ => {}
    }
    Ok(())
}

/// `None`: the value is not one that the tag can have.
fn argument_item(argument: &mut ArgDescription, tag: u16, mut value: Cursor<'_>) -> Option<()> {
    match tag {
        ARG_NAME => argument.name = value.name()?,
        ARG_TYPE => argument.c_type = value.text(),
        ARG_DOC => argument.doc = value.text(),
        ARG_LENGTH => argument.length_operand = Some(value.u8().filter(|&operand| operand > 0)?),
        ARG_ENUM => {
            while !value.bytes.is_empty() {
                argument.labels.push(label(&mut value)?);
            }
        }
        ARG_ELEMENT => {
            let kind = Kind::from_code(value.u8()?);
            argument.element = Some(Element { kind, size_bytes: value.u8()?, count: value.u32()? });
        }
        ARG_BYTE_ORDER => match value.u8()? {
            1 => argument.is_big_endian = false,
            2 => argument.is_big_endian = true,
            _ => return None,
        },
        ARG_BASE => match value.u8()? {
            base @ (2 | 8 | 10 | 16) => argument.base = Some(base),
            _ => return None,
        },
        ARG_TRUSTED => argument.is_trusted = true,
        ARG_SIZE => argument.size_bytes = Some(value.u8()?),
        ARG_NOT_WRITTEN => argument.is_unwritten = true,
        ARG_SIGN => argument.is_signed = value.u8()? != 0,
        _ => {}
    }
    Some(())
}

fn label(value: &mut Cursor<'_>) -> Option<Label> {
    let first = value.u64()? as i64;
    let last = value.u64()? as i64;
    let length = value.u8()?;
    let text = String::from_utf8_lossy(value.take(length.into())?).into_owned();
    Some(Label { first, last, text })
}

struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
    is_big_endian: bool,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n_bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(n_bytes)?;
        self.bytes = rest;
        self.offset += n_bytes;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.array()?;
        Some(if self.is_big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.array()?;
        Some(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.array()?;
        Some(if self.is_big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(std::mem::take(&mut self.bytes)).into_owned()
    }

    /// A text that must be there.
    fn name(&mut self) -> Option<String> {
        Some(self.text()).filter(|text| !text.is_empty())
    }
}
