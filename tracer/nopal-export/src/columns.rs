//! The columns of a table that holds events of several types: what every event has, then each field by its name.

use nopal_trace::{EventClass, EventType, Recording, Type};
use std::collections::HashMap;

/// What every event has, in front of its fields.
pub const OF_EVERY_EVENT: [&str; 7] = ["ts", "host", "cpu", "pid", "tid", "provider", "name"];

/// What values of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Fits an `i64`.
    Integer,
    /// 64 bits without a sign.
    Unsigned,
    Float,
    /// Also the names of numbers, arrays, and fields that are of different kinds in different types.
    Text,
}

/// One field, of all event types that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
}

/// The fields of a table, and where those of each class go.
#[derive(Debug, Clone)]
pub struct Columns {
    pub fields: Vec<Column>,
    /// Names of columns that stand beside the fields.
    taken: &'static [&'static str],
    by_name: HashMap<String, usize>,
}

impl Default for Columns {
    fn default() -> Self {
        Columns::beside(&OF_EVERY_EVENT)
    }
}

impl Columns {
    /// None yet; these names are taken.
    pub fn beside(taken: &'static [&'static str]) -> Columns {
        Columns { fields: Vec::new(), taken, by_name: HashMap::new() }
    }

    /// Adds those of all event types of a recording that are wanted.
    pub fn add_all(&mut self, recording: &Recording, is_wanted: impl Fn(&EventClass) -> bool) {
        recording.event_classes().iter().filter(|class| is_wanted(class)).for_each(|class| {
            visible(&class.ty).for_each(|(name, kind)| self.add(name, kind));
        });
    }

    fn add(&mut self, name: &str, kind: Kind) {
        match self.by_name.get(name) {
            Some(at) if self.fields[*at].kind == kind => {}
            Some(at) => self.fields[*at].kind = Kind::Text,
            None => {
                self.by_name.insert(name.to_owned(), self.fields.len());
                self.fields.push(Column { name: self.free_name(name), kind });
            }
        }
    }

    /// A name that no other column has; SQL does not tell `A` from `a`.
    fn free_name(&self, name: &str) -> String {
        let is_taken = |name: &str| {
            self.taken.iter().any(|taken| taken.eq_ignore_ascii_case(name))
                || self.fields.iter().any(|taken| taken.name.eq_ignore_ascii_case(name))
        };
        let mut free = name.to_owned();
        while is_taken(&free) {
            free.insert_str(0, "arg_");
        }
        free
    }

    /// The column of each visible field of a type, by position.
    pub fn places(&self, ty: &EventType) -> Vec<Option<usize>> {
        visible(ty).map(|(name, _)| self.by_name.get(name).copied()).collect()
    }
}

/// The fields that people see, without the lengths in front of sequences.
fn visible(ty: &EventType) -> impl Iterator<Item = (&str, Kind)> {
    let is_length = |name: &str| name.starts_with('_') && name.ends_with("_length");
    ty.fields
        .iter()
        .filter(move |field| !is_length(&field.name))
        .map(|field| (field.name.as_str(), kind(&field.ty)))
}

fn kind(ty: &Type) -> Kind {
    match ty {
        Type::Integer(integer) if integer.is_signed || integer.bits < 64 => Kind::Integer,
        Type::Integer(_) => Kind::Unsigned,
        Type::Float(_) => Kind::Float,
        Type::Variable(variable) if variable.table.is_some() => Kind::Text,
        Type::Variable(variable) => kind(&Type::Integer(variable.integer.clone())),
        Type::BitMap(map) if map.bits.bits < 64 => Kind::Integer,
        Type::BitMap(_) => Kind::Unsigned,
        Type::Optional(optional) => kind(&optional.ty),
        Type::String | Type::Enum(_) | Type::Struct(_) | Type::Array(_) | Type::Variant(_) => Kind::Text,
        Type::Bool(_) | Type::Wide(_) | Type::Blob(_) => Kind::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_free_and_kinds_agree() {
        let mut columns = Columns::default();
        for (name, kind) in [
            ("key", Kind::Text),
            ("n", Kind::Integer),
            ("pid", Kind::Integer),
            ("N", Kind::Float),
            ("n", Kind::Unsigned),
        ] {
            columns.add(name, kind);
        }
        let found: Vec<(&str, Kind)> = columns.fields.iter().map(|c| (c.name.as_str(), c.kind)).collect();
        let expected =
            [("key", Kind::Text), ("n", Kind::Text), ("arg_pid", Kind::Integer), ("arg_N", Kind::Float)];
        assert_eq!(found, expected);
    }
}
