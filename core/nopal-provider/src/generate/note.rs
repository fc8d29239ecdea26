//! The bytes of nopal notes: what each probe of a provider says of itself. `docs/formats.md` section 3 has the format.

use crate::ast::{Arg, Probe, Provider};

mod tag {
    pub(super) const PROVIDER: u16 = 0x01;
    pub(super) const NAME: u16 = 0x02;
    pub(super) const DOC: u16 = 0x03;
    pub(super) const PAIR: u16 = 0x04;
    pub(super) const ARG: u16 = 0x10;
    pub(super) const ARG_NAME: u16 = 0x11;
    pub(super) const ARG_TYPE: u16 = 0x12;
    pub(super) const ARG_DOC: u16 = 0x13;
    pub(super) const ARG_LENGTH: u16 = 0x14;
    pub(super) const ARG_ENUM: u16 = 0x15;
}

const VERSION: u16 = 1;
const NOTE_TYPE: u32 = 1;
/// Texts are cut here: a note is read into memory by every tracer.
const MAX_TEXT: usize = 4096;

/// Appends the whole note of one probe, padded to 4 bytes. Little endian, as both supported machines are.
pub(super) fn push_note(out: &mut Vec<u8>, provider: &Provider, probe: &Probe) {
    let description = describe(provider, probe);
    let owner = b"nopal\0\0\0";
    out.extend(6u32.to_le_bytes());
    out.extend(u32::try_from(description.len()).expect("13 arguments of limited texts fit").to_le_bytes());
    out.extend(NOTE_TYPE.to_le_bytes());
    out.extend(owner);
    out.extend(&description);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The description of the nopal note of one probe, without the head of the note.
pub fn describe(provider: &Provider, probe: &Probe) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(VERSION.to_le_bytes());
    out.extend(0u16.to_le_bytes());
    push_text(&mut out, tag::PROVIDER, &provider.name);
    push_text(&mut out, tag::NAME, &probe.name);
    push_optional(&mut out, tag::DOC, &probe.doc);
    if let Some(pair) = &probe.pair {
        let mut value = vec![pair.role as u8];
        value.extend(cut(&pair.partner).as_bytes());
        push(&mut out, tag::PAIR, &value);
    }
    for (i, arg) in probe.args.iter().enumerate() {
        push_arg(&mut out, i, arg);
    }
    out
}

fn push_arg(out: &mut Vec<u8>, idx: usize, arg: &Arg) {
    push(out, tag::ARG, &[operand(idx), arg.kind as u8]);
    push_optional(out, tag::ARG_NAME, arg.name.as_deref().unwrap_or_default());
    push_optional(out, tag::ARG_TYPE, &arg.c_type);
    push_optional(out, tag::ARG_DOC, &arg.doc);
    if let Some(length) = arg.length {
        push(out, tag::ARG_LENGTH, &[operand(length)]);
    }
    let mut table = Vec::new();
    for label in &arg.labels {
        let text = &label.text.as_bytes()[..label.text.floor_char_boundary(255)];
        if table.len() + 17 + text.len() > usize::from(u16::MAX) {
            break;
        }
        table.extend(label.value.to_le_bytes());
        table.extend(label.value.to_le_bytes());
        table.push(u8::try_from(text.len()).expect("cut to 255 bytes"));
        table.extend(text);
    }
    if !table.is_empty() {
        push(out, tag::ARG_ENUM, &table);
    }
}

/// Operands count from 1.
fn operand(idx: usize) -> u8 {
    u8::try_from(idx + 1).expect("the parser accepts 12 arguments at most")
}

fn push_optional(out: &mut Vec<u8>, tag: u16, text: &str) {
    if !text.is_empty() {
        push_text(out, tag, text);
    }
}

fn push_text(out: &mut Vec<u8>, tag: u16, text: &str) {
    push(out, tag, cut(text).as_bytes());
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

fn push(out: &mut Vec<u8>, tag: u16, value: &[u8]) {
    out.extend(tag.to_le_bytes());
    out.extend(u16::try_from(value.len()).expect("texts and tables are cut to fit").to_le_bytes());
    out.extend(value);
}
