//! What functions of Go are given and return, as fields of events. A part of a structure is a field of its own (`p_X`); a text,
//! and a slice of bytes or numbers, are what they lead to; of other slices and of what a text is not read from, the address.

use super::{GOROUTINE, N_ARGUMENTS, RETURNED, STACK, STACK_END, Value, in_registers};
use nopal_dwarf::{GoKind, GoParameter, GoPlace, GoSignature, GoValue, Type};
use nopal_sdt::probe::{Element, Kind};

/// A call has more than anybody reads.
const MAX_FIELDS: usize = 32;

/// Its parameters, as far as they are known, else what may be some.
pub(super) fn given(signature: Option<&GoSignature>) -> Vec<Value> {
    let Some(signature) = signature else {
        let registers: [&str; N_ARGUMENTS] = nopal_proc::go::argument_names();
        return in_registers(registers);
    };
    let mut values = Vec::new();
    for (index, parameter) in signature.parameters.iter().enumerate() {
        let name = if parameter.name.is_empty() { format!("arg{index}") } else { parameter.name.clone() };
        add(&name, parameter, &mut values);
    }
    values
}

/// What it returns, in registers; of several results the first is `retval`, then `retval1`.
pub(super) fn returned(signature: Option<&GoSignature>) -> Vec<Value> {
    let Some(signature) = signature else {
        return vec![Value::new(RETURNED, Kind::Signed, "-8@%rax".to_owned())];
    };
    let mut values = Vec::new();
    for (index, result) in signature.results.iter().enumerate() {
        let name = if index == 0 { RETURNED.to_owned() } else { format!("{RETURNED}{index}") };
        // Where those on the stack are depends on the parameters there.
        let is_in_registers =
            |value: &GoValue| !matches!(value.place, Some(GoPlace::Stack(_) | GoPlace::Vector(_)));
        if result.values.iter().all(is_in_registers) {
            add(&name, result, &mut values);
        }
    }
    values
}

fn add(name: &str, parameter: &GoParameter, values: &mut Vec<Value>) {
    let mut rest = parameter.values.as_slice();
    while let Some((value, behind)) = rest.split_first() {
        rest = behind;
        let separator = if value.part.is_empty() { "" } else { "_" };
        let name = format!("{name}{separator}{}", value.part);
        let Some(at) = value.place.and_then(operand) else { continue };
        let length = behind.first().filter(|next| next.kind == GoKind::Length);
        let length = length.and_then(|length| operand(length.place?));
        let field = match &value.kind {
            GoKind::Word(ty) => {
                let written = if value.part.is_empty() { parameter.written.as_str() } else { "" };
                Value::typed_at(&name, ty, written, &at)
            }
            GoKind::Text => length.map(|length| led_to(&name, Kind::Str, None, &at, &length)),
            GoKind::Slice(of) => length.map(|length| match element(of) {
                Some(Element { size_bytes: 1, .. }) => led_to(&name, Kind::Bytes, None, &at, &length),
                Some(element) => led_to(&name, Kind::Sequence, Some(element), &at, &length),
                None => Value::new(&name, Kind::Pointer, format!("8@{at}")),
            }),
            // How many there are is told with what it leads to, and by itself where that is not read.
            GoKind::Length => match values.last().is_some_and(|last| last.length.is_some()) {
                true => None,
                false => Some(Value::new(&format!("{name}_len"), Kind::Signed, format!("-8@{at}"))),
            },
            GoKind::Room => None,
        };
        let Some(mut field) = field.filter(|_| values.len() < MAX_FIELDS) else { continue };
        let is_taken = [STACK, GOROUTINE, STACK_END].contains(&field.name.as_str())
            || values.iter().any(|known| known.name == field.name);
        if is_taken {
            field.name = format!("{}_{}", field.name, values.len());
        }
        values.push(field);
    }
}

/// A place as operands have it. `None`: one that the kernel cannot read.
fn operand(place: GoPlace) -> Option<String> {
    match place {
        GoPlace::Register(register) => Some(format!("%{}", register.name())),
        GoPlace::Stack(above) => Some(format!("{above}(%rsp)")),
        GoPlace::Vector(_) => None,
    }
}

fn led_to(name: &str, kind: Kind, element: Option<Element>, at: &str, length: &str) -> Value {
    Value { length: Some(format!("8@{length}")), element, ..Value::new(name, kind, format!("8@{at}")) }
}

/// Of slices whose elements are numbers.
fn element(of: &Type) -> Option<Element> {
    let kind = match of {
        Type::Int { size_bytes: 1 | 2 | 4 | 8, is_signed: true } => Kind::Signed,
        Type::Int { size_bytes: 1 | 2 | 4 | 8, is_signed: false } | Type::Bool => Kind::Unsigned,
        Type::Float { size_bytes: 4 | 8 } => Kind::Float,
        _ => return None,
    };
    Some(Element { kind, size_bytes: of.size_bytes() as u8, count: 0 })
}
