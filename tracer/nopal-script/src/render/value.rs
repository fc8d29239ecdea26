//! One value as text, as `print` shows it.

use super::{Names, word};
use nopal_program::layout::{self, Layout};
use nopal_program::{StackForm, Type};
use std::io::Write;

/// Where a value stands decides how a stack is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Value,
    Key,
}

/// Appends a value.
pub fn value(value_type: &Type, bytes: &[u8], names: &dyn Names, out: &mut Vec<u8>) {
    at(value_type, bytes, names, Place::Value, out);
}

pub(crate) fn at(value_type: &Type, bytes: &[u8], names: &dyn Names, place: Place, out: &mut Vec<u8>) {
    let number = || word(bytes, 0);
    let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
    match value_type {
        Type::Int { is_signed: true, .. } => put(&(number() as i64).to_string()),
        Type::Int { is_signed: false, .. } => put(&number().to_string()),
        Type::Bool => put(if number() == 0 { "false" } else { "true" }),
        Type::Float => put(&f64::from_bits(number()).to_string()),
        Type::Pointer => put(&format!("{:#x}", number())),
        Type::Str { .. } => out.extend_from_slice(string(bytes)),
        Type::Buffer { .. } => escape(buffer(bytes), out),
        Type::Tuple(members) => {
            out.push(b'(');
            tuple(members, bytes, out, |member, bytes, out| at(member, bytes, names, Place::Value, out));
            out.push(b')');
        }
        Type::Record(members) => record(members, bytes, out, |member, bytes, out| {
            at(member, bytes, names, Place::Value, out);
        }),
        Type::Whole(layout) => whole(layout, None, bytes, out),
        Type::Probe => put(&probe(number(), names)),
        Type::UserSymbol => put(&symbol(names.user_symbol(word(bytes, 1) as u32, number()), number(), false)),
        Type::KernelSymbol => put(&symbol(names.kernel_symbol(number()), number(), false)),
        Type::UserStack { form, .. } => stack(&user_frames(bytes, *form, names), *form, place, out),
        Type::KernelStack { form, .. } => stack(&kernel_frames(bytes, *form, names), *form, place, out),
        Type::Time { format } => put(&names.time(format, number())),
        Type::Enum { labels } => match labels.iter().find(|(n, _)| *n == number() as i64) {
            Some((_, label)) => put(label),
            None => put(&(number() as i64).to_string()),
        },
        Type::Inet => put(&inet(bytes)),
        Type::Mac => put(&mac(number())),
        Type::Username => match names.user(number() as u32) {
            Some(name) => put(&name),
            None => put(&(number() as u32).to_string()),
        },
        Type::ErrorText => put(&error_text(number() as i32)),
        Type::CgroupPath { filter } => put(&names.cgroup_path(number(), filter)),
    }
}

/// As strerror(3) has it.
fn error_text(number: i32) -> String {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    match text.rsplit_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// The members of a tuple, separated by `, `.
pub(crate) fn tuple(
    members: &[Type],
    bytes: &[u8],
    out: &mut Vec<u8>,
    mut each: impl FnMut(&Type, &[u8], &mut Vec<u8>),
) {
    let mut rest = bytes;
    for (index, member) in members.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        let (own, behind) = rest.split_at((member.size_bytes() as usize).min(rest.len()));
        each(member, own, out);
        rest = behind;
    }
}

/// As `{ .a = 1, .b = text }`.
fn record(
    members: &[(String, Type)],
    bytes: &[u8],
    out: &mut Vec<u8>,
    mut each: impl FnMut(&Type, &[u8], &mut Vec<u8>),
) {
    let mut rest = bytes;
    for (index, (name, member)) in members.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{ ." } else { b", ." });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b" = ");
        let (own, behind) = rest.split_at((member.size_bytes() as usize).min(rest.len()));
        each(member, own, out);
        rest = behind;
    }
    out.extend_from_slice(if members.is_empty() { b"{}" } else { b" }" });
}

/// A record or an array of C.
fn whole(layout: &Layout, bits: Option<(u8, u8)>, bytes: &[u8], out: &mut Vec<u8>) {
    match layout {
        Layout::Int { size_bytes, is_signed } => {
            let number = layout::number(bytes, *size_bytes, *is_signed, bits);
            let text = if *is_signed { number.to_string() } else { (number as u64).to_string() };
            out.extend_from_slice(text.as_bytes());
        }
        Layout::Float => out.extend_from_slice(f64::from_bits(word(bytes, 0)).to_string().as_bytes()),
        Layout::Bool => {
            let is_false = bytes.first().is_none_or(|byte| *byte == 0);
            out.extend_from_slice(if is_false { b"false" } else { b"true" });
        }
        Layout::Pointer => out.extend_from_slice(format!("{:#x}", word(bytes, 0)).as_bytes()),
        Layout::Text { n } => out.extend_from_slice(string(&bytes[..bytes.len().min(*n as usize)])),
        Layout::Array { of, n } => {
            out.push(b'[');
            let size = of.size_bytes() as usize;
            for index in 0..*n as usize {
                if index > 0 {
                    out.push(b',');
                }
                whole(of, None, bytes.get(index * size..).unwrap_or_default(), out);
            }
            out.push(b']');
        }
        Layout::Record { members, .. } => {
            for (index, member) in members.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"{ ." } else { b", ." });
                out.extend_from_slice(member.name.as_bytes());
                out.extend_from_slice(b" = ");
                whole(
                    &member.layout,
                    member.bits,
                    bytes.get(member.offset as usize..).unwrap_or_default(),
                    out,
                );
            }
            out.extend_from_slice(if members.is_empty() { b"{}" } else { b" }" });
        }
    }
}

pub(crate) fn string(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
}

/// The bytes behind the length.
pub(crate) fn buffer(bytes: &[u8]) -> &[u8] {
    let body = bytes.get(8..).unwrap_or_default();
    &body[..(word(bytes, 0) as usize).min(body.len())]
}

/// Bytes that are no text as `\x0a`.
pub(crate) fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            0x20..=0x7e => out.push(*byte),
            // Writing to a vector does not fail.
            _ => write!(out, "\\x{byte:02x}").unwrap_or_default(),
        }
    }
}

pub(crate) fn probe(number: u64, names: &dyn Names) -> String {
    names.probe(number as u32, (number >> 32) as u32)
}

pub(crate) fn symbol(found: Option<(String, u64)>, address: u64, has_offset: bool) -> String {
    match found {
        Some((name, offset)) if has_offset => format!("{name}+{offset}"),
        Some((name, _)) => name,
        None => format!("{address:#x}"),
    }
}

/// Innermost first.
pub(crate) fn user_frames(bytes: &[u8], form: StackForm, names: &dyn Names) -> Vec<String> {
    let pid = word(bytes, 0) as u32;
    // A caller goes on behind its call, which may be the last instruction of its function: the byte before is the call's.
    let within = |index: usize, address: u64| address.saturating_sub(u64::from(index > 0));
    let name = |index, address| {
        let of_call = within(index, address);
        let found = names.user_symbol(pid, of_call);
        let found = found.map(|(name, offset)| (name, offset + (address - of_call)));
        symbol(found.or_else(|| names.user_symbol(pid, address)), address, true)
    };
    frames(bytes.get(8..).unwrap_or_default(), |index, address| match form {
        StackForm::Bpftrace => name(index, address),
        StackForm::Perf => {
            let file = names.user_file(pid, within(index, address)).unwrap_or_else(|| "[unknown]".into());
            format!("{address:x} {} ({file})", name(index, address))
        }
        StackForm::Raw => format!("{address:x}"),
        StackForm::BuildId => match names.user_build_id(pid, address) {
            Some((id, offset)) => {
                let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{id} {offset:#x}")
            }
            None => format!("{address:x}"),
        },
    })
}

pub(crate) fn kernel_frames(bytes: &[u8], form: StackForm, names: &dyn Names) -> Vec<String> {
    let name = |address| symbol(names.kernel_symbol(address), address, true);
    frames(bytes, |_, address| match form {
        StackForm::Bpftrace => name(address),
        StackForm::Perf => format!("{address:x} {}", name(address)),
        StackForm::Raw | StackForm::BuildId => format!("{address:x}"),
    })
}

/// `show` is given how many frames are further in, and the address.
fn frames(bytes: &[u8], show: impl Fn(usize, u64) -> String) -> Vec<String> {
    let n = (word(bytes, 0) as usize).min(bytes.len() / 8);
    (1..=n).filter(|index| index * 8 < bytes.len()).map(|index| show(index - 1, word(bytes, index))).collect()
}

fn stack(frames: &[String], form: StackForm, place: Place, out: &mut Vec<u8>) {
    let indent = match (form, place) {
        (StackForm::Bpftrace, Place::Value) => "        ",
        (StackForm::Bpftrace, Place::Key) => "    ",
        (StackForm::Perf, _) => "\t",
        (StackForm::Raw | StackForm::BuildId, _) => "",
    };
    out.push(b'\n');
    for frame in frames {
        out.extend_from_slice(indent.as_bytes());
        out.extend_from_slice(frame.as_bytes());
        out.push(b'\n');
    }
}

fn inet(bytes: &[u8]) -> String {
    const IPV4: u64 = 2;
    let address = bytes.get(8..).unwrap_or_default();
    let mut whole = [0u8; 16];
    let n = address.len().min(16);
    whole[..n].copy_from_slice(&address[..n]);
    if word(bytes, 0) == IPV4 {
        std::net::Ipv4Addr::new(whole[0], whole[1], whole[2], whole[3]).to_string()
    } else {
        std::net::Ipv6Addr::from(whole).to_string()
    }
}

fn mac(number: u64) -> String {
    let pairs: Vec<String> = number.to_le_bytes()[..6].iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestNames;
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn values_as_print_shows_them() {
        let int = |is_signed| Type::Int { size_bytes: 8, is_signed };
        let text = Type::Str { max_bytes: 8 };
        for (value_type, bytes, want) in [
            (int(true), words(&[-5i64 as u64]), "-5"),
            (int(false), words(&[u64::MAX]), "18446744073709551615"),
            (Type::Float, words(&[0.5f64.to_bits()]), "0.5"),
            (Type::Pointer, words(&[123]), "0x7b"),
            (text.clone(), b"abc\0\0\0\0\0".to_vec(), "abc"),
            (text.clone(), vec![], ""),
            (Type::Buffer { max_bytes: 8 }, [&words(&[4])[..], b"a\x01b\n\0\0\0\0"].concat(), "a\\x01b\\x0a"),
            (
                Type::Tuple(vec![int(true), text.clone(), Type::Tuple(vec![int(true), int(true)])]),
                [&words(&[1])[..], b"two\0\0\0\0\0", &words(&[3, 4])].concat(),
                "(1, two, (3, 4))",
            ),
            (Type::Probe, words(&[1 << 32 | 2]), "probe2.1"),
            (Type::UserSymbol, words(&[0x1010, 7]), "main"),
            (Type::UserSymbol, words(&[5, 7]), "0x5"),
            (Type::KernelSymbol, words(&[0x1003]), "vfs_read"),
            (
                Type::UserStack { max_frames: 3, form: StackForm::Bpftrace },
                words(&[7, 2, 0x1004, 0x20, 0]),
                "\n        main+4\n        0x20\n",
            ),
            (
                Type::KernelStack { max_frames: 2, form: StackForm::Bpftrace },
                words(&[9, 0x1000, 0x1001]),
                "\n        vfs_read+0\n        vfs_read+1\n",
            ),
            (
                Type::UserStack { max_frames: 2, form: StackForm::Perf },
                words(&[7, 2, 0x1004, 0x20]),
                "\n\t1004 main+4 ([unknown])\n\t20 0x20 ([unknown])\n",
            ),
            (
                Type::KernelStack { max_frames: 2, form: StackForm::Perf },
                words(&[1, 0x1001]),
                "\n\t1001 vfs_read+1\n",
            ),
            (
                Type::UserStack { max_frames: 2, form: StackForm::Raw },
                words(&[7, 2, 0x1004, 0x20]),
                "\n1004\n20\n",
            ),
            (Type::Time { format: "%H".into() }, words(&[9]), "%H@9"),
            (Type::Enum { labels: vec![(1, "GET".into())] }, words(&[1]), "GET"),
            (Type::Enum { labels: vec![(1, "GET".into())] }, words(&[2]), "2"),
            (Type::Inet, [&words(&[2])[..], &[127, 0, 0, 1], &[0; 12]].concat(), "127.0.0.1"),
            (Type::Inet, [&words(&[10])[..], &[0; 15], &[1]].concat(), "::1"),
            (Type::Mac, vec![0xde, 0xad, 0, 1, 2, 3, 0, 0], "DE:AD:00:01:02:03"),
            (Type::Username, words(&[0]), "root"),
            (Type::Username, words(&[12]), "12"),
            (Type::ErrorText, words(&[2]), "No such file or directory"),
            (Type::ErrorText, words(&[4095]), "Unknown error 4095"),
        ] {
            let mut out = Vec::new();
            value(&value_type, &bytes, &TestNames, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want, "{value_type:?}");
        }
    }
}
