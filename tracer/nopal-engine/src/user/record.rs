//! How a stub lays out a record and how a reader takes it apart again. Trusts no length in the bytes it is given.

use nopal_abi::record::{self, COMM_BYTES, RecordHeader, flags, text};

use super::stub::Capture;

/// The layout of the records of one stub.
#[derive(Debug, Clone, PartialEq, Eq)]
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
            fields: Vec::with_capacity(captures.len()),
            fixed_bytes: 0,
            text_bytes: 0,
        };
        for capture in captures {
            let (kind, bytes) = match capture {
                Capture::Value { operand } => {
                    let (size_bytes, is_signed, is_float) =
                        (operand.size_bytes, operand.is_signed, operand.is_float);
                    (FieldKind::Value { size_bytes, is_signed, is_float }, u32::from(size_bytes))
                }
                Capture::CString { max_bytes, .. } | Capture::Bytes { max_bytes, .. } => {
                    layout.text_bytes = layout.text_bytes.saturating_add(*max_bytes);
                    (FieldKind::Text { max_bytes: *max_bytes }, 4)
                }
            };
            layout.fields.push(Field { offset: layout.fixed_bytes, kind });
            layout.fixed_bytes += bytes;
        }
        layout
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

    /// The values in the order of the captures.
    pub fn values<'a>(&'a self, payload: &'a [u8]) -> Values<'a> {
        Values { layout: self, payload, next: 0, text_at: self.fixed_bytes as usize }
    }
}

/// Goes through the values of one payload.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    layout: &'a RecordLayout,
    payload: &'a [u8],
    next: usize,
    text_at: usize,
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<Value<'a>, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.layout.fields.get(self.next)?;
        self.next += 1;
        Some(self.value(field).ok_or(Damaged))
    }
}

impl<'a> Values<'a> {
    fn value(&mut self, field: &Field) -> Option<Value<'a>> {
        let offset = field.offset as usize;
        match field.kind {
            FieldKind::Value { size_bytes, is_signed, is_float } => {
                let bytes = self.payload.get(offset..)?.get(..usize::from(size_bytes))?;
                if bytes.len() > 8 {
                    return Some(Value::Wide(bytes));
                }
                let mut widened = [0; 8];
                widened[..bytes.len()].copy_from_slice(bytes);
                let bits = u64::from_le_bytes(widened);
                let unused = 64 - 8 * u32::from(size_bytes);
                Some(match (is_float, is_signed, size_bytes) {
                    (true, _, 4) => Value::Float(f64::from(f32::from_bits(bits as u32))),
                    (true, _, 8) => Value::Float(f64::from_bits(bits)),
                    (_, true, 1..) => Value::Signed((bits << unused) as i64 >> unused),
                    (_, true, 0) | (_, false, _) => Value::Unsigned(bits),
                })
            }
            FieldKind::Text { max_bytes } => {
                let word = u32::from_le_bytes(self.payload.get(offset..)?.get(..4)?.try_into().ok()?);
                let length = word & text::LENGTH_MASK;
                if length > max_bytes {
                    return None;
                }
                let bytes = self.payload.get(self.text_at..)?.get(..length as usize)?;
                self.text_at += bytes.len();
                Some(Value::Text(Text {
                    bytes,
                    is_null: word & text::NULL != 0,
                    is_unreadable: word & text::UNREADABLE != 0,
                    is_truncated: word & text::TRUNCATED != 0,
                }))
            }
        }
    }
}

/// Who made a hit, as its own namespace counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    pub tid: u32,
    pub pid: u32,
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
