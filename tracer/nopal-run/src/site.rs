//! What a site captures for a script, and how the clauses' arguments are read from its records. Trusts no length in the
//! bytes it is given.

use nopal_capture::Capture;
use nopal_capture::record::{Field, RecordLayout};
use nopal_live::{STACK_BYTES, StackCopy, StackPlace};
use nopal_program::captures::Captures;
use nopal_sdt::operand::{Base, Operand, Place};
use nopal_sdt::probe::{ArgDescription, Description, Kind, Site};

/// Reads arguments from the payload of a site's records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SiteReader {
    /// By argument index.
    args: Vec<ArgPlace>,
    layout: RecordLayout,
    /// Indexes of fields whose texts are cut only because the script has no more room for strings.
    roomless: Vec<usize>,
    stack: Option<StackPlace>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ArgPlace {
    number: Option<Number>,
    /// Indexes of fields.
    string: Option<usize>,
    buffer: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    field: Field,
    is_single: bool,
}

/// The captures of a site, their reader, and what could not be read, in words. `string_bytes`: the script's room for a string, its
/// NUL included.
pub(crate) fn plan(
    site: &Site,
    description: Option<&Description>,
    wanted: &Captures,
    string_bytes: u32,
) -> (Vec<Capture>, SiteReader, Vec<String>) {
    let mut captures = Vec::new();
    let mut reader = SiteReader::default();
    let mut unread = Vec::new();
    for arg in &wanted.args {
        let index = usize::from(arg.index);
        if reader.args.len() <= index {
            reader.args.resize(index + 1, ArgPlace::default());
        }
        let operand = match operand(site, arg.index) {
            Ok(operand) => operand,
            Err(reason) => {
                unread.push(format!("arg{}: {reason}", arg.index));
                continue;
            }
        };
        let description = arg_description(description, arg.index);
        // Wider ones are vectors that no script has a number for.
        if arg.as_number && operand.size_bytes <= 8 {
            let is_float = operand.is_float || description.is_some_and(|a| a.kind == Kind::Float);
            let field = reader.push(Capture::Value { operand: operand.clone() }, &mut captures);
            let field = reader.layout.fields()[field];
            reader.args[index].number =
                Some(Number { field, is_single: is_float && operand.size_bytes == 4 });
        }
        if let Some(max_bytes) = arg.string_bytes {
            let capture = string(site, description, operand, max_bytes);
            let field = reader.push(capture, &mut captures);
            reader.args[index].string = Some(field);
            // Who asks for fewer, as `str(x, 30)` does, wants no more.
            if max_bytes.saturating_add(1) >= string_bytes {
                reader.roomless.push(field);
            }
        }
        if let Some(max_bytes) = arg.buffer_bytes {
            let capture = buffer(site, description, operand, max_bytes);
            let field = reader.push(capture, &mut captures);
            reader.args[index].buffer = Some(field);
            if max_bytes >= string_bytes {
                reader.roomless.push(field);
            }
        }
    }
    if wanted.needs_stack {
        let stack = StackPlace::plan(site, STACK_BYTES, |capture| reader.push(capture, &mut captures));
        reader.stack = Some(stack);
    }
    (captures, reader, unread)
}

/// What the probe says of the argument with this index.
pub(crate) fn arg_description(description: Option<&Description>, index: u8) -> Option<&ArgDescription> {
    description?.args.iter().find(|arg| arg.operand == Some(index + 1))
}

/// The argument's operand, if it can be read.
pub(crate) fn operand(site: &Site, index: u8) -> Result<&Operand, String> {
    let arg = site.args.get(usize::from(index)).ok_or("this site has fewer arguments")?;
    let operand = arg.operand.as_ref().map_err(|e| format!("`{}`: {}", arg.text, e.reason))?;
    match &operand.place {
        Place::Memory(memory) => match &memory.base {
            Base::Symbol { name, address: None } => {
                Err(format!("`{}`: the file has no symbol `{name}`", arg.text))
            }
            _ => Ok(operand),
        },
        _ => Ok(operand),
    }
}

/// A string up to its NUL, or as long as another argument says.
fn string(site: &Site, description: Option<&ArgDescription>, pointer: &Operand, max_bytes: u32) -> Capture {
    let pointer = pointer.clone();
    let is_trusted = description.is_some_and(|a| a.is_trusted);
    match length_of(site, description.filter(|a| a.kind == Kind::Str)) {
        Some(length) => Capture::Bytes { pointer, length, unit_bytes: 1, max_bytes, is_trusted },
        None => Capture::CString { pointer, max_bytes, is_trusted },
    }
}

/// Bytes, as many as another argument says, or as are asked for at most.
fn buffer(site: &Site, description: Option<&ArgDescription>, pointer: &Operand, max_bytes: u32) -> Capture {
    let told = length_of(site, description);
    let is_trusted = told.is_some() && description.is_some_and(|a| a.is_trusted);
    let unit_bytes = match (&told, description.and_then(|a| a.element)) {
        (Some(_), Some(element)) => u32::from(element.size_bytes.clamp(1, 8)),
        _ => 1,
    };
    let length = told.unwrap_or(Operand {
        size_bytes: 4,
        is_signed: false,
        is_float: false,
        place: Place::Constant(i64::from(max_bytes)),
    });
    Capture::Bytes { pointer: pointer.clone(), length, unit_bytes, max_bytes, is_trusted }
}

fn length_of(site: &Site, description: Option<&ArgDescription>) -> Option<Operand> {
    let number = description?.length_operand?;
    operand(site, number.checked_sub(1)?).ok().cloned()
}

impl SiteReader {
    fn push(&mut self, capture: Capture, captures: &mut Vec<Capture>) -> usize {
        let index = self.layout.push(&capture);
        captures.push(capture);
        index
    }

    /// A float is given as the bits of a double.
    #[inline]
    pub(crate) fn number(&self, payload: &[u8], index: u8) -> i64 {
        let Some(Some(number)) = self.args.get(usize::from(index)).map(|arg| arg.number) else { return 0 };
        let bits = number.field.bits(payload).unwrap_or(0);
        match number.is_single {
            true => f64::from(f32::from_bits(bits as u32)).to_bits() as i64,
            false => bits as i64,
        }
    }

    pub(crate) fn string<'a>(&self, payload: &'a [u8], index: u8) -> &'a [u8] {
        self.text(payload, self.args.get(usize::from(index)).and_then(|arg| arg.string))
    }

    pub(crate) fn buffer<'a>(&self, payload: &'a [u8], index: u8) -> &'a [u8] {
        self.text(payload, self.args.get(usize::from(index)).and_then(|arg| arg.buffer))
    }

    fn text<'a>(&self, payload: &'a [u8], field: Option<usize>) -> &'a [u8] {
        field.and_then(|field| self.layout.text(payload, field)).map_or(&[], |text| text.bytes)
    }

    /// The stack of the thread, if the record has it.
    pub(crate) fn stack<'a>(&self, payload: &'a [u8]) -> Option<StackCopy<'a>> {
        self.stack?.read(&self.layout, payload)
    }

    /// How many strings of a record were longer than what the script has room for.
    #[inline]
    pub(crate) fn n_cut(&self, payload: &[u8]) -> u64 {
        if self.roomless.is_empty() {
            return 0;
        }
        let mut texts = self.layout.texts(payload);
        let fields = self.layout.fields().iter().enumerate().filter(|(_, field)| field.is_text());
        // Texts lie one after another: each has to be taken.
        let is_cut = |(at, field): &(usize, &Field)| {
            texts.take(**field).is_some_and(|text| text.is_truncated) && self.roomless.contains(at)
        };
        fields.filter(is_cut).count() as u64
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use nopal_abi::record::text;
    use nopal_program::captures::ArgUse;
    use nopal_sdt::operand::{Arch, parse, split};
    use nopal_sdt::probe::Arg;

    pub(crate) fn site(operands: &str) -> Site {
        let args = split(operands)
            .into_iter()
            .map(|text| Arg { text: text.to_owned(), operand: parse(Arch::X86_64, text) })
            .collect();
        Site {
            address: 0,
            file_offset: 0,
            semaphore: None,
            args,
            code: vec![0x90],
            until_restartable: None,
            edge: None,
        }
    }

    fn used(index: u8, as_number: bool, string: Option<u32>, buffer: Option<u32>) -> ArgUse {
        ArgUse { index, as_number, string_bytes: string, buffer_bytes: buffer }
    }

    #[test]
    fn arguments_are_read_as_their_operands_say() {
        let site = site("-4@%edi 1@%sil 8@%rdx 8@nonsense");
        let args = vec![
            used(0, true, None, None),
            used(1, true, None, None),
            used(2, true, Some(31), Some(16)),
            used(3, true, None, None),
            used(7, true, None, None),
        ];
        let wanted = Captures { args, ..Captures::default() };
        let (captures, reader, unread) = plan(&site, None, &wanted, 32);
        assert_eq!((captures.len(), unread.len()), (5, 2));
        let mut payload = (-7i32).to_le_bytes().to_vec();
        payload.push(200);
        payload.extend(0x1234_5678_9abcu64.to_le_bytes());
        payload.extend((3 | text::TRUNCATED).to_le_bytes());
        payload.extend(2u32.to_le_bytes());
        payload.extend(b"get\x01\x02\0\0\0");
        let numbers: Vec<i64> = (0..9).map(|index| reader.number(&payload, index)).collect();
        assert_eq!(numbers, [-7, 200, 0x1234_5678_9abc, 0, 0, 0, 0, 0, 0]);
        assert_eq!((reader.string(&payload, 2), reader.buffer(&payload, 2)), (&b"get"[..], &b"\x01\x02"[..]));
        assert_eq!(reader.n_cut(&payload), 1);
        // With more room for strings it is the script that asks for 31 bytes.
        assert_eq!(plan(&site, None, &wanted, 256).1.n_cut(&payload), 0);
        // A record that is cut short has nothing to say.
        for n in 0..payload.len() {
            let _ = (
                reader.number(&payload[..n], 2),
                reader.string(&payload[..n], 2),
                reader.n_cut(&payload[..n]),
            );
        }
        assert_eq!(reader.string(&payload[..20], 2), b"");
    }

    #[test]
    fn a_length_in_another_argument_is_used() {
        let description = Description {
            args: vec![ArgDescription {
                operand: Some(1),
                kind: Kind::Str,
                length_operand: Some(2),
                ..ArgDescription::default()
            }],
            ..Description::default()
        };
        let args = vec![used(0, false, Some(31), None)];
        let wanted = Captures { args, ..Captures::default() };
        let (captures, ..) = plan(&site("8@%rdi 8@%rsi"), Some(&description), &wanted, 32);
        assert!(matches!(captures[..], [Capture::Bytes { max_bytes: 31, .. }]), "{captures:?}");
        let (captures, ..) = plan(&site("8@%rdi"), Some(&description), &wanted, 32);
        assert!(matches!(captures[..], [Capture::CString { max_bytes: 31, .. }]), "{captures:?}");
    }

    #[test]
    fn a_float_is_given_as_a_double() {
        let site = site("4f@%xmm0");
        let args = vec![used(0, true, None, None)];
        let (_, reader, _) = plan(&site, None, &Captures { args, ..Captures::default() }, 256);
        assert_eq!(f64::from_bits(reader.number(&0.5f32.to_le_bytes(), 0) as u64), 0.5);
    }
}
