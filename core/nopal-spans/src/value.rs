//! The values of an event's fields, in memory that is used again for the next event.

/// One field of one event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// The event has no such field, or it could not be read.
    Absent,
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    /// Need not be UTF-8.
    Text(&'a [u8]),
    /// A number and the name it has.
    Label(i64, &'a [u8]),
}

impl Value<'_> {
    /// As a whole number, if it is one.
    pub fn integer(self) -> Option<i128> {
        match self {
            Value::Signed(n) | Value::Label(n, _) => Some(n.into()),
            Value::Unsigned(n) => Some(n.into()),
            Value::Absent | Value::Float(_) | Value::Text(_) => None,
        }
    }

    pub fn number(self) -> Option<f64> {
        match self {
            Value::Float(n) => Some(n),
            other => other.integer().map(|n| n as f64),
        }
    }

    /// Appends the value as people read it.
    pub fn print(self, into: &mut Vec<u8>) {
        match self {
            Value::Absent => into.push(b'-'),
            Value::Signed(n) => into.extend_from_slice(n.to_string().as_bytes()),
            Value::Unsigned(n) => into.extend_from_slice(n.to_string().as_bytes()),
            Value::Float(n) => into.extend_from_slice(n.to_string().as_bytes()),
            Value::Text(text) | Value::Label(_, text) => into.extend_from_slice(text),
        }
    }

    pub fn text(self) -> String {
        let mut bytes = Vec::new();
        self.print(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Appends bytes that are the same for equal values only.
    pub fn identify(self, into: &mut Vec<u8>) {
        match self {
            Value::Absent => into.push(0),
            // A number is the same number whatever the sign of its type.
            Value::Signed(n) | Value::Label(n, _) => {
                into.push(1);
                into.extend_from_slice(&(n as u64).to_le_bytes());
            }
            Value::Unsigned(n) => {
                into.push(1);
                into.extend_from_slice(&n.to_le_bytes());
            }
            Value::Float(n) => {
                into.push(2);
                into.extend_from_slice(&n.to_bits().to_le_bytes());
            }
            Value::Text(text) => {
                into.push(3);
                into.extend_from_slice(&(text.len() as u32).to_le_bytes());
                into.extend_from_slice(text);
            }
        }
    }
}

/// The fields of one event, by position.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Absent,
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text { from: u32, to: u32 },
    Label { number: i64, from: u32, to: u32 },
}

impl Fields {
    #[inline]
    pub fn clear(&mut self) {
        self.slots.clear();
        self.bytes.clear();
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What the values take.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.bytes.len()
    }

    /// What they take with the memory that is kept for others.
    pub(crate) fn held_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.bytes.capacity()
    }

    #[inline]
    pub fn push(&mut self, value: Value<'_>) {
        let slot = match value {
            Value::Absent => Slot::Absent,
            Value::Signed(n) => Slot::Signed(n),
            Value::Unsigned(n) => Slot::Unsigned(n),
            Value::Float(n) => Slot::Float(n),
            Value::Text(text) => {
                let (from, to) = self.keep(text);
                Slot::Text { from, to }
            }
            Value::Label(number, text) => {
                let (from, to) = self.keep(text);
                Slot::Label { number, from, to }
            }
        };
        self.slots.push(slot);
    }

    fn keep(&mut self, text: &[u8]) -> (u32, u32) {
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text);
        (from, self.bytes.len() as u32)
    }

    #[inline]
    pub fn get(&self, position: usize) -> Value<'_> {
        let text = |from: u32, to: u32| &self.bytes[from as usize..to as usize];
        match self.slots.get(position) {
            None | Some(Slot::Absent) => Value::Absent,
            Some(Slot::Signed(n)) => Value::Signed(*n),
            Some(Slot::Unsigned(n)) => Value::Unsigned(*n),
            Some(Slot::Float(n)) => Value::Float(*n),
            Some(Slot::Text { from, to }) => Value::Text(text(*from, *to)),
            Some(Slot::Label { number, from, to }) => Value::Label(*number, text(*from, *to)),
        }
    }

    /// Becomes a copy of `other` without giving its memory away.
    #[inline]
    pub fn copy(&mut self, other: &Fields) {
        self.slots.clear();
        self.slots.extend_from_slice(&other.slots);
        self.bytes.clear();
        self.bytes.extend_from_slice(&other.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_comes_back() {
        let values = [
            Value::Signed(-3),
            Value::Text(b"get"),
            Value::Absent,
            Value::Unsigned(u64::MAX),
            Value::Label(2, b"disk"),
            Value::Float(1.5),
        ];
        let mut fields = Fields::default();
        let mut copy = Fields::default();
        copy.push(Value::Text(b"old"));
        for value in values {
            fields.push(value);
        }
        copy.copy(&fields);
        for (i, value) in values.into_iter().enumerate() {
            assert_eq!((fields.get(i), copy.get(i)), (value, value));
        }
        assert_eq!(fields.get(6), Value::Absent);
    }

    #[test]
    fn equal_values_have_one_identity() {
        let identity = |value: Value<'_>| {
            let mut bytes = Vec::new();
            value.identify(&mut bytes);
            bytes
        };
        assert_eq!(identity(Value::Signed(7)), identity(Value::Unsigned(7)));
        assert_eq!(identity(Value::Signed(1)), identity(Value::Label(1, b"on")));
        assert_ne!(identity(Value::Text(b"1")), identity(Value::Unsigned(1)));
        assert_ne!(identity(Value::Text(b"")), identity(Value::Absent));
        assert_ne!(
            [identity(Value::Text(b"ab")), identity(Value::Text(b"c"))].concat(),
            [identity(Value::Text(b"a")), identity(Value::Text(b"bc"))].concat()
        );
    }
}
