//! The shape of each field: from what is known of an argument to how its bytes are read, and its type in the event.

use super::{Limits, operand};
use nopal_capture::packed::Shape;
use nopal_sdt::probe::{ArgDescription, Kind, Probe};
use nopal_trace::{ByteOrder, Float, Integer, Type};

/// The layout all sites of the probe can share for this argument.
pub(super) fn of_operand(probe: &Probe, description: &ArgDescription) -> Shape {
    let number = description.operand.unwrap_or(0);
    let operands = || probe.sites.iter().filter_map(|site| operand(site, number).ok());
    let size_bytes = operands().map(|o| o.size_bytes.min(8)).max().unwrap_or(8);
    let is_signed = operands().any(|o| o.is_signed);
    let is_pointer_sized = operands().all(|o| o.size_bytes == 8);
    match description.kind {
        Kind::CString if is_pointer_sized => Shape::Text,
        Kind::Str if is_pointer_sized && description.length_operand.is_some() => Shape::Text,
        Kind::Str if is_pointer_sized => Shape::Text,
        Kind::Bytes if is_pointer_sized && description.length_operand.is_some() => {
            Shape::Elements { size_bytes: 1 }
        }
        Kind::Sequence if is_pointer_sized && description.length_operand.is_some() => {
            Shape::Elements { size_bytes: description.element.map_or(1, |e| e.size_bytes.clamp(1, 8)) }
        }
        Kind::Float if matches!(size_bytes, 4 | 8) => Shape::Float { size_bytes },
        Kind::Unknown if size_bytes >= 4 && operands().next().is_some() && operands().all(|o| o.is_float) => {
            Shape::Float { size_bytes }
        }
        Kind::Unknown
        | Kind::Signed
        | Kind::Unsigned
        | Kind::Pointer
        | Kind::Bool
        | Kind::CString
        | Kind::Str
        | Kind::Bytes
        | Kind::Float
        | Kind::Enum
        | Kind::Array
        | Kind::Sequence
        | Kind::Char => {
            // An unsigned value that fills the width of a signed field would turn negative.
            let overflows = is_signed && operands().any(|o| !o.is_signed && o.size_bytes == size_bytes);
            let size_bytes = if overflows && size_bytes < 8 { size_bytes * 2 } else { size_bytes };
            Shape::Integer { size_bytes, is_signed }
        }
    }
}

/// The type of a field in the event.
pub(super) fn field_type(shape: Shape, description: &ArgDescription) -> Type {
    match shape {
        Shape::Text => Type::String,
        Shape::Float { size_bytes } => float(size_bytes, description),
        Shape::Elements { size_bytes } | Shape::Array { size_bytes, .. } => match description.element {
            Some(element) if element.kind == Kind::Float => float(size_bytes, description),
            Some(element) if element.kind == Kind::Char && size_bytes == 1 => {
                Type::Integer(Integer::new(8, true).text())
            }
            Some(element) => {
                let integer = integer(size_bytes, element.kind == Kind::Signed, description);
                Type::Integer(integer.base(description.base.unwrap_or(10)))
            }
            None => Type::hex(8),
        },
        Shape::Integer { size_bytes, is_signed } => {
            let mut integer = integer(size_bytes, is_signed, description);
            match description.kind {
                Kind::Bool if size_bytes == 1 => return Type::bool(),
                Kind::Enum if !description.labels.is_empty() => {
                    let labels = description.labels.iter();
                    return Type::enumeration(
                        integer,
                        labels.map(|l| {
                            let [first, last] =
                                [l.first, l.last].map(|n| nopal_trace::number(n as u64, is_signed));
                            (l.text.as_str(), first, last)
                        }),
                    );
                }
                Kind::Pointer => integer.base = 16,
                // A number to every reader; ours shows the character beside it.
                Kind::Char => integer.is_text = true,
                _ => integer.base = description.base.unwrap_or(10),
            }
            Type::Integer(integer)
        }
    }
}

fn order(description: &ArgDescription) -> Option<ByteOrder> {
    description.is_big_endian.then_some(ByteOrder::Big)
}

fn float(size_bytes: u8, description: &ArgDescription) -> Type {
    Type::Float(Float {
        bits: u32::from(size_bytes) * 8,
        align_bits: 8,
        order: order(description),
        is_reversed: false,
    })
}

fn integer(size_bytes: u8, is_signed: bool, description: &ArgDescription) -> Integer {
    let integer = Integer::new(u32::from(size_bytes) * 8, is_signed);
    order(description).map_or(integer.clone(), |order| integer.order(order))
}

/// How a field of the packed block is read.
pub(super) fn in_block(description: &ArgDescription, limits: Limits) -> Shape {
    let size_bytes = description.size_bytes.filter(|size| matches!(size, 1 | 2 | 4 | 8)).unwrap_or(8);
    let element_bytes =
        description.element.map(|e| e.size_bytes).filter(|size| matches!(size, 1 | 2 | 4 | 8)).unwrap_or(1);
    match description.kind {
        Kind::CString | Kind::Str => Shape::Text,
        Kind::Float if size_bytes >= 4 => Shape::Float { size_bytes },
        Kind::Sequence | Kind::Bytes => Shape::Elements { size_bytes: element_bytes },
        Kind::Array => {
            let most = limits.max_packed_bytes() / u32::from(element_bytes);
            let count = description.element.map_or(0, |e| e.count).min(most);
            Shape::Array { size_bytes: element_bytes, count }
        }
        Kind::Enum => Shape::Integer { size_bytes, is_signed: description.is_signed },
        Kind::Signed => Shape::Integer { size_bytes, is_signed: true },
        Kind::Unknown | Kind::Unsigned | Kind::Pointer | Kind::Bool | Kind::Float | Kind::Char => {
            Shape::Integer { size_bytes, is_signed: false }
        }
    }
}

/// How an element of an array or a sequence is read.
pub(super) fn of_element(description: &ArgDescription) -> Option<Shape> {
    let size_bytes = match description.kind {
        Kind::Bytes => 1,
        Kind::Array | Kind::Sequence => description.element.map_or(1, |e| e.size_bytes),
        _ => return None,
    };
    let kind = description.element.map_or(Kind::Unsigned, |e| e.kind);
    Some(match kind {
        Kind::Float => Shape::Float { size_bytes },
        // A `char` of C has a sign here.
        kind => Shape::Integer { size_bytes, is_signed: matches!(kind, Kind::Signed | Kind::Char) },
    })
}

/// What a field takes of the block at least.
pub(super) fn least_bytes(shape: Shape) -> u32 {
    match shape {
        Shape::Integer { size_bytes, .. } | Shape::Float { size_bytes } => u32::from(size_bytes),
        Shape::Text => 1,
        Shape::Elements { .. } => 4,
        // An array without elements, too, is counted: there may be many fields.
        Shape::Array { size_bytes, count } => (u32::from(size_bytes) * count).max(1),
    }
}
