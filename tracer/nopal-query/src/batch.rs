//! Rows on their way from the reader to SQLite: many at a time, their texts in one piece of memory.

use nopal_spans::Value;

/// One value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Datum {
    Null,
    Integer(i64),
    Real(f64),
    /// A part of the batch's texts.
    Text(u32, u32),
}

/// Rows with as many values each as the query uses columns.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    data: Vec<Datum>,
    texts: Vec<u8>,
    n_rows: usize,
}

/// Rows of one batch, and bytes of their texts.
const MAX_ROWS: usize = 2048;
const MAX_TEXT_BYTES: usize = 1 << 20;

impl Batch {
    pub(crate) fn is_full(&self) -> bool {
        self.n_rows >= MAX_ROWS || self.texts.len() >= MAX_TEXT_BYTES
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows
    }

    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.texts.clear();
        self.n_rows = 0;
    }

    #[inline]
    pub(crate) fn put(&mut self, datum: Datum) {
        self.data.push(datum);
    }

    /// Numbers of 64 bits without a sign that SQLite has no room for become texts.
    #[inline]
    pub(crate) fn put_unsigned(&mut self, n: u64) {
        match i64::try_from(n) {
            Ok(n) => self.data.push(Datum::Integer(n)),
            Err(_) => self.put_text(n.to_string().as_bytes()),
        }
    }

    #[inline]
    pub(crate) fn put_text(&mut self, text: &[u8]) {
        let from = self.texts.len() as u32;
        match std::str::from_utf8(text) {
            Ok(_) => self.texts.extend_from_slice(text),
            Err(_) => self.texts.extend_from_slice(String::from_utf8_lossy(text).as_bytes()),
        }
        self.data.push(Datum::Text(from, self.texts.len() as u32));
    }

    #[inline]
    pub(crate) fn put_value(&mut self, value: Value<'_>) {
        match value {
            Value::Absent => self.put(Datum::Null),
            Value::Signed(n) => self.put(Datum::Integer(n)),
            Value::Unsigned(n) => self.put_unsigned(n),
            Value::Float(n) => self.put(Datum::Real(n)),
            Value::Text(text) | Value::Label(_, text) => self.put_text(text),
        }
    }

    #[inline]
    pub(crate) fn end_row(&mut self) {
        self.n_rows += 1;
    }

    #[inline]
    pub(crate) fn get(&self, row: usize, width: usize, at: usize) -> Datum {
        self.data.get(row * width + at).copied().unwrap_or(Datum::Null)
    }

    pub(crate) fn text(&self, from: u32, to: u32) -> &str {
        self.texts
            .get(from as usize..to as usize)
            .and_then(|text| std::str::from_utf8(text).ok())
            .unwrap_or("")
    }
}
