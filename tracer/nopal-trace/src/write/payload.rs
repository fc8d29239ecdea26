//! Builds the packed bytes of an event's fields, value after value.

/// Appends values; little endian unless said otherwise. What comes out is checked against the event type.
#[derive(Debug)]
pub struct Payload<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Payload<'o> {
    /// Appends to any buffer, to be given to [`super::StreamWriter::append`] later.
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Payload { out }
    }

    /// The lowest `bits` (8, 16, 32, 64) of a value: integers of both signs, enums, bools.
    pub fn unsigned(&mut self, bits: u32, value: u64) -> &mut Self {
        let bytes = value.to_le_bytes();
        self.out.extend_from_slice(&bytes[..(bits as usize / 8).min(8)]);
        self
    }

    pub fn signed(&mut self, bits: u32, value: i64) -> &mut Self {
        self.unsigned(bits, value as u64)
    }

    /// For a field in big endian.
    pub fn big(&mut self, bits: u32, value: u64) -> &mut Self {
        let bytes = value.to_be_bytes();
        self.out.extend_from_slice(&bytes[8 - (bits as usize / 8).min(8)..]);
        self
    }

    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.unsigned(8, u64::from(value))
    }

    pub fn float32(&mut self, value: f32) -> &mut Self {
        self.out.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn float64(&mut self, value: f64) -> &mut Self {
        self.out.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A string up to its first NUL, if it has one.
    pub fn string(&mut self, bytes: &[u8]) -> &mut Self {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        self.out.extend_from_slice(&bytes[..end]);
        self.out.push(0);
        self
    }

    /// Text in a field of `size` bytes, cut or padded.
    pub fn text(&mut self, size: usize, bytes: &[u8]) -> &mut Self {
        let n = bytes.len().min(size);
        self.out.extend_from_slice(&bytes[..n]);
        self.out.resize(self.out.len() + size - n, 0);
        self
    }

    /// The count in front of a sequence; its elements follow.
    pub fn count(&mut self, count: u32) -> &mut Self {
        self.unsigned(32, u64::from(count))
    }

    /// A whole byte string: count and bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.raw(bytes)
    }

    /// Bytes that are packed already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }
}
