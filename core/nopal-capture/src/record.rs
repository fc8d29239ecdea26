//! How a record is laid out, and how it is taken apart again: the only decoder of what a hit leaves. Trusts no length in
//! the bytes it is given.

use crate::capture::Capture;
use crate::hit::Task;
use crate::thread_context::RECORD_BYTES;
use nopal_abi::record::{self, COMM_BYTES, RecordHeader, flags, text};

/// The layout of the records of one site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordLayout {
    /// TIME and TASK as they stand in the record's first word.
    pub word_flags: u32,
    fields: Vec<Field>,
    fixed_bytes: u32,
    text_bytes: u32,
}

/// One capture in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// From the start of the payload.
    pub offset: u32,
    pub kind: FieldKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Value { size_bytes: u8, is_signed: bool, is_float: bool },
    Text { max_bytes: u32 },
}

/// One captured value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// 16 or 32 bytes as they were.
    Wide(&'a [u8]),
    Text(Text<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    pub bytes: &'a [u8],
    pub is_null: bool,
    /// The memory behind `bytes` could not be read.
    pub is_unreadable: bool,
    /// There was more than the limit.
    pub is_truncated: bool,
}

/// A record whose lengths do not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl RecordLayout {
    pub fn new(captures: &[Capture], has_time: bool, has_task: bool) -> RecordLayout {
        let mut layout = RecordLayout {
            word_flags: if has_time { flags::TIME } else { 0 } | if has_task { flags::TASK } else { 0 },
            ..RecordLayout::default()
        };
        captures.iter().for_each(|capture| {
            layout.push(capture);
        });
        layout
    }

    /// Lays out one more capture; its index.
    pub fn push(&mut self, capture: &Capture) -> usize {
        let (kind, bytes) = match capture {
            Capture::Value { operand } => {
                let (size_bytes, is_signed, is_float) =
                    (operand.size_bytes, operand.is_signed, operand.is_float);
                (FieldKind::Value { size_bytes, is_signed, is_float }, u32::from(size_bytes))
            }
            Capture::CString { max_bytes, .. } | Capture::Bytes { max_bytes, .. } => {
                self.text_bytes = self.text_bytes.saturating_add(*max_bytes);
                (FieldKind::Text { max_bytes: *max_bytes }, 4)
            }
            Capture::ThreadContext { .. } => {
                self.text_bytes = self.text_bytes.saturating_add(RECORD_BYTES);
                (FieldKind::Text { max_bytes: RECORD_BYTES }, 4)
            }
        };
        self.fields.push(Field { offset: self.fixed_bytes, kind });
        self.fixed_bytes += bytes;
        self.fields.len() - 1
    }

    pub fn has_time(&self) -> bool {
        self.word_flags & flags::TIME != 0
    }

    pub fn has_task(&self) -> bool {
        self.word_flags & flags::TASK != 0
    }

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Bytes before the payload.
    pub fn payload_offset(&self) -> u32 {
        record::payload_offset(self.word_flags)
    }

    /// Bytes of the payload before the first string's bytes.
    pub fn fixed_bytes(&self) -> u32 {
        self.fixed_bytes
    }

    /// The longest record of this layout.
    pub fn max_bytes(&self) -> u32 {
        record::round_up(
            (self.payload_offset() + self.fixed_bytes).saturating_add(self.text_bytes).min(1 << 30),
        )
    }

    /// The bits of a value, extended to 64 by its own sign. There are none of a string, of a value of more than 8 bytes, and
    /// of a payload that ends before it.
    #[inline]
    pub fn bits(&self, payload: &[u8], field: usize) -> Option<u64> {
        self.fields.get(field)?.bits(payload)
    }

    /// A string; those before it are stepped over.
    pub fn text<'a>(&self, payload: &'a [u8], field: usize) -> Option<Text<'a>> {
        let mut texts = self.texts(payload);
        for before in self.fields.get(..field)?.iter().filter(|field| field.is_text()) {
            texts.take(*before)?;
        }
        texts.take(self.fields[field])
    }

    /// The strings of a payload, to be taken in the order of their fields.
    #[inline]
    pub fn texts<'a>(&self, payload: &'a [u8]) -> Texts<'a> {
        Texts { payload, at: self.fixed_bytes as usize }
    }

    /// The values in the order of the captures.
    pub fn values<'a>(&'a self, payload: &'a [u8]) -> impl Iterator<Item = Result<Value<'a>, Damaged>> {
        let mut texts = self.texts(payload);
        self.fields.iter().map(move |field| match field.is_text() {
            true => texts.take(*field).map(Value::Text).ok_or(Damaged),
            false => field.value(payload).ok_or(Damaged),
        })
    }
}

impl Field {
    pub fn is_text(self) -> bool {
        matches!(self.kind, FieldKind::Text { .. })
    }

    /// See [`RecordLayout::bits`].
    #[inline]
    pub fn bits(self, payload: &[u8]) -> Option<u64> {
        let FieldKind::Value { size_bytes, is_signed, .. } = self.kind else { return None };
        let raw = unsigned(self.bytes(payload, size_bytes)?)?;
        Some(if is_signed { sign_extended(raw, size_bytes) as u64 } else { raw })
    }

    fn value(self, payload: &[u8]) -> Option<Value<'_>> {
        let FieldKind::Value { size_bytes, is_signed, is_float } = self.kind else { return None };
        if size_bytes > 8 {
            return self.bytes(payload, size_bytes).map(Value::Wide);
        }
        let bits = self.bits(payload)?;
        Some(match (is_float, is_signed, size_bytes) {
            (true, _, 4) => Value::Float(f64::from(f32::from_bits(bits as u32))),
            (true, _, 8) => Value::Float(f64::from_bits(bits)),
            (_, true, _) => Value::Signed(bits as i64),
            (_, false, _) => Value::Unsigned(bits),
        })
    }

    #[inline]
    fn bytes(self, payload: &[u8], size_bytes: u8) -> Option<&[u8]> {
        payload.get(self.offset as usize..)?.get(..usize::from(size_bytes))
    }
}

/// Up to 8 bytes, the lowest first. By cases, as loads of a size that is known: a copy of any size would be waited for.
#[inline]
pub(crate) fn unsigned(bytes: &[u8]) -> Option<u64> {
    Some(match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

/// A number of 1 to 8 bytes as a signed one.
#[inline]
pub(crate) fn sign_extended(raw: u64, size_bytes: u8) -> i64 {
    let unused = 64 - 8 * u32::from(size_bytes);
    (raw << unused) as i64 >> unused
}

/// Takes the strings of one payload one after the other: they lie behind the fixed part in the order of their words.
#[derive(Debug, Clone)]
pub struct Texts<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Texts<'a> {
    /// The string of the next field that has one. Nothing if the field has none, or the payload does not hold it.
    #[inline]
    pub fn take(&mut self, field: Field) -> Option<Text<'a>> {
        let FieldKind::Text { max_bytes } = field.kind else { return None };
        let word = unsigned(field.bytes(self.payload, 4)?)? as u32;
        let length = word & text::LENGTH_MASK;
        if length > max_bytes {
            return None;
        }
        let bytes = self.payload.get(self.at..)?.get(..length as usize)?;
        self.at += bytes.len();
        Some(Text {
            bytes,
            is_null: word & text::NULL != 0,
            is_unreadable: word & text::UNREADABLE != 0,
            is_truncated: word & text::TRUNCATED != 0,
        })
    }
}

/// A record whose header has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    pub kind: RecordKind,
    pub time: Option<u64>,
    pub task: Option<Task>,
    pub payload: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    Event(u32),
    /// A session's first hit in a process; see [`RecordView::comm`].
    Process,
}

/// What stands at a place in a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    Record(RecordView<'a>, usize),
    Padding(usize),
    /// Reserved by this thread, not committed.
    Busy {
        tid: u32,
        bytes: usize,
    },
    Damaged,
}

impl<'a> RecordView<'a> {
    /// Reads the record at the start of `bytes`, which end where its sub-buffer or the committed data ends.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Parsed<'a> {
        let Some(header) = read_header(bytes) else { return Parsed::Damaged };
        let word = header.word;
        let size = (word & record::SIZE_MASK) as usize;
        let offset = record::payload_offset(word) as usize;
        let is_known = word & !record::SIZE_MASK & !flags::KNOWN == 0;
        if !is_known || size < 8 || !size.is_multiple_of(record::UNIT_BYTES as usize) || size > bytes.len() {
            return Parsed::Damaged;
        }
        if word & flags::PADDING != 0 {
            return if word & !record::SIZE_MASK == flags::PADDING {
                Parsed::Padding(size)
            } else {
                Parsed::Damaged
            };
        }
        if size < offset {
            return Parsed::Damaged;
        }
        if word & flags::BUSY != 0 {
            return Parsed::Busy { tid: header.event, bytes: size };
        }
        let mut at = 8;
        let mut take_u64 = || {
            at += 8;
            bytes[at - 8..at].try_into().map(u64::from_le_bytes).unwrap_or(0)
        };
        let time = (word & flags::TIME != 0).then(&mut take_u64);
        let task = (word & flags::TASK != 0).then(|| {
            let both = take_u64();
            Task { tid: both as u32, pid: (both >> 32) as u32 }
        });
        let kind =
            if word & flags::PROCESS != 0 { RecordKind::Process } else { RecordKind::Event(header.event) };
        Parsed::Record(RecordView { kind, time, task, payload: &bytes[offset..size] }, size)
    }

    /// The name in a [`RecordKind::Process`] record.
    pub fn comm(&self) -> String {
        let bytes = &self.payload[..self.payload.len().min(COMM_BYTES)];
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

#[inline]
fn read_header(bytes: &[u8]) -> Option<RecordHeader> {
    let word = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let event = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    Some(RecordHeader { word, event })
}
