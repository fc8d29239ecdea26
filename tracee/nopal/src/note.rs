//! Builds the description of a probe (`.note.nopal`, see docs/formats.md section 3) at compile time. The assembler
//! gets it as numbers, so that doc texts may hold any character.

use crate::arg::{Arg, sealed::Words};
use crate::shape::{Kind, Shape};

const VERSION: u16 = 1;
const PROVIDER: u16 = 0x01;
const NAME: u16 = 0x02;
const DOC: u16 = 0x03;
const PAIR: u16 = 0x04;
const LOG_LEVEL: u16 = 0x05;
const ARG: u16 = 0x10;
const ARG_NAME: u16 = 0x11;
const ARG_TYPE: u16 = 0x12;
const ARG_DOC: u16 = 0x13;
const ARG_LENGTH: u16 = 0x14;
const ARG_ENUM: u16 = 0x15;
const ARG_ELEMENT: u16 = 0x16;
const ARG_TRUSTED: u16 = 0x19;

/// The largest number of operands that other tracers read.
pub(crate) const MAX_OPERANDS: usize = 12;

/// 16-byte words that the assembler is handed at most; `describe.rs` has two lists, this is the longer one.
pub(crate) const MAX_WORDS: usize = 192;
const CAPACITY: usize = MAX_WORDS * 16;

/// Which end of a span a probe is, and the probe at the other end.
#[derive(Debug, Clone, Copy)]
pub enum Pair {
    /// The probe begins what the named one ends.
    Start(&'static str),
    /// The probe ends what the named one began.
    End(&'static str),
}

/// What a declaration says of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    pub provider: &'static str,
    pub name: &'static str,
    /// Lines of the doc comment.
    pub doc: &'static [&'static str],
    pub pair: Option<Pair>,
    pub log_level: Option<i32>,
}

/// What a declaration says of an argument.
#[derive(Debug, Clone, Copy)]
pub struct ArgDescription {
    name: &'static str,
    type_name: &'static str,
    doc: &'static [&'static str],
    labels: &'static [(i64, &'static str)],
    shape: Shape,
}

impl ArgDescription {
    /// `type_name` as the declaration spells it; empty takes the type's own. The same with `labels`.
    pub const fn new<A: Arg>(
        name: &'static str,
        type_name: &'static str,
        doc: &'static [&'static str],
        labels: &'static [(i64, &'static str)],
    ) -> Self {
        let type_name = if type_name.is_empty() { A::TYPE } else { type_name };
        ArgDescription {
            name,
            type_name,
            doc,
            labels: if labels.is_empty() { A::LABELS } else { labels },
            shape: shape::<A>(),
        }
    }
}

/// The shape of an argument type.
pub const fn shape<A: Arg>() -> Shape {
    <A::As as Words>::SHAPE
}

/// The description of one nopal note, ready to be written out word by word.
#[derive(Debug)]
pub struct Note {
    bytes: [u8; CAPACITY],
    len: usize,
    id: u64,
}

/// A type that stands for a probe and the types of its arguments.
pub trait Described {
    const NOTE: &'static Note;
}

impl Note {
    pub const fn new(description: &Description, args: &[ArgDescription]) -> Self {
        assert_is_name(
            description.provider,
            "a provider's name has only letters, digits, `_`, `$`, `.` and `-`",
        );
        assert_is_name(description.name, "a probe's name has only letters, digits, `_`, `$`, `.` and `-`");
        let mut note = Note { bytes: [0; CAPACITY], len: 0, id: id(description.provider, description.name) };
        note.u16(VERSION);
        note.u16(0);
        note.text(PROVIDER, description.provider);
        note.text(NAME, description.name);
        note.lines(DOC, description.doc);
        match description.pair {
            Some(Pair::Start(partner)) => note.pair(1, partner),
            Some(Pair::End(partner)) => note.pair(2, partner),
            None => {}
        }
        if let Some(level) = description.log_level {
            note.item(LOG_LEVEL, 4);
            note.u32(level as u32);
        }
        let mut operand = 1;
        let mut i = 0;
        while i < args.len() {
            note.arg(&args[i], operand);
            operand += if args[i].shape.has_length { 2 } else { 1 };
            i += 1;
        }
        assert!(
            operand - 1 <= MAX_OPERANDS,
            "a probe has at most 12 operands; a string or slice takes two, address and length"
        );
        note
    }

    const fn arg(&mut self, arg: &ArgDescription, operand: usize) {
        let kind = if arg.labels.is_empty() { arg.shape.kind } else { Kind::Enum };
        self.item(ARG, 2);
        self.u8(operand as u8);
        self.u8(kind as u8);
        if !arg.name.is_empty() {
            self.text(ARG_NAME, arg.name);
        }
        self.text(ARG_TYPE, arg.type_name);
        self.lines(ARG_DOC, arg.doc);
        if arg.shape.has_length {
            self.item(ARG_LENGTH, 1);
            self.u8(operand as u8 + 1);
        }
        if !arg.labels.is_empty() {
            self.labels(arg.labels);
        }
        if let Some(element) = arg.shape.element {
            self.item(ARG_ELEMENT, 6);
            self.u8(element.kind as u8);
            self.u8(element.size_bytes);
            self.u32(0);
        }
        if arg.shape.is_trusted {
            self.item(ARG_TRUSTED, 0);
        }
    }

    const fn labels(&mut self, labels: &[(i64, &str)]) {
        let mut len = 0;
        let mut i = 0;
        while i < labels.len() {
            assert!(labels[i].1.len() <= 255, "a label has at most 255 bytes");
            len += 17 + labels[i].1.len();
            i += 1;
        }
        self.item(ARG_ENUM, len);
        let mut i = 0;
        while i < labels.len() {
            // First and last value of the range, which is one value here.
            self.raw(&labels[i].0.to_ne_bytes());
            self.raw(&labels[i].0.to_ne_bytes());
            self.u8(labels[i].1.len() as u8);
            self.raw(labels[i].1.as_bytes());
            i += 1;
        }
    }

    const fn pair(&mut self, role: u8, partner: &str) {
        self.item(PAIR, 1 + partner.len());
        self.u8(role);
        self.raw(partner.as_bytes());
    }

    /// The lines of a doc comment as one text. `///` leaves a blank before each line.
    const fn lines(&mut self, tag: u16, lines: &[&str]) {
        let mut len = 0;
        let mut i = 0;
        while i < lines.len() {
            len += doc_line(lines[i]).len() + if i == 0 { 0 } else { 1 };
            i += 1;
        }
        if len == 0 {
            return;
        }
        self.item(tag, len);
        let mut i = 0;
        while i < lines.len() {
            if i > 0 {
                self.u8(b'\n');
            }
            self.raw(doc_line(lines[i]));
            i += 1;
        }
    }

    const fn text(&mut self, tag: u16, text: &str) {
        self.item(tag, text.len());
        self.raw(text.as_bytes());
    }

    const fn item(&mut self, tag: u16, len: usize) {
        assert!(len <= u16::MAX as usize, "an item of the note has at most 65535 bytes");
        self.u16(tag);
        self.u16(len as u16);
    }

    const fn u8(&mut self, value: u8) {
        self.raw(&[value]);
    }

    const fn u16(&mut self, value: u16) {
        self.raw(&value.to_ne_bytes());
    }

    const fn u32(&mut self, value: u32) {
        self.raw(&value.to_ne_bytes());
    }

    const fn raw(&mut self, bytes: &[u8]) {
        assert!(
            self.len + bytes.len() <= CAPACITY,
            "names, types and docs of a probe take more than 3072 bytes: shorten the doc comments"
        );
        let mut i = 0;
        while i < bytes.len() {
            self.bytes[self.len + i] = bytes[i];
            i += 1;
        }
        self.len += bytes.len();
    }

    /// The same for two notes of one probe, and for no others.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Length of the description in bytes.
    pub const fn n_bytes(&self) -> usize {
        self.len
    }

    /// How many whole words there are. `max` is how many the caller can write.
    pub const fn n_words(&self, max: usize) -> usize {
        assert!(
            self.len / 16 <= max,
            "names and types of the probe's arguments take more than 768 bytes: declare it with provider!"
        );
        self.len / 16
    }

    /// How many 4-byte pieces follow the last whole word; the last of them may end in padding.
    pub const fn n_tail(&self) -> usize {
        (self.len % 16).div_ceil(4)
    }

    pub const fn word(&self, index: usize) -> u128 {
        let mut bytes = [0; 16];
        let mut i = 0;
        while i < 16 {
            bytes[i] = self.bytes[index * 16 + i];
            i += 1;
        }
        u128::from_ne_bytes(bytes)
    }

    pub const fn tail(&self, index: usize) -> u32 {
        let word = if self.len / 16 < MAX_WORDS { self.word(self.len / 16) } else { 0 };
        (word >> (32 * index)) as u32
    }
}

/// A number that two names make (FNV-1a). Of names that make the same, which hardly happens, one description is written.
const fn id(provider: &str, name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let texts = [provider.as_bytes(), b":", name.as_bytes()];
    let mut text = 0;
    while text < texts.len() {
        let mut i = 0;
        while i < texts[text].len() {
            hash = (hash ^ texts[text][i] as u64).wrapping_mul(0x0100_0000_01b3);
            i += 1;
        }
        text += 1;
    }
    hash
}

/// A line of a doc comment without the blank that follows `///`.
const fn doc_line(line: &str) -> &[u8] {
    match line.as_bytes() {
        [b' ', rest @ ..] => rest,
        bytes => bytes,
    }
}

/// Names go into symbols and into blank-separated lists of other tracers.
const fn assert_is_name(name: &str, rule: &'static str) {
    let bytes = name.as_bytes();
    assert!(!bytes.is_empty(), "{}", rule);
    let mut i = 0;
    while i < bytes.len() {
        let ok = bytes[i].is_ascii_alphanumeric() || matches!(bytes[i], b'_' | b'$' | b'.' | b'-');
        assert!(ok, "{}", rule);
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    /// Put together again from the pieces that the assembler gets.
    fn written(note: &Note) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..note.n_words(MAX_WORDS)).flat_map(|i| note.word(i).to_ne_bytes()).collect();
        bytes.extend((0..note.n_tail()).flat_map(|i| note.tail(i).to_ne_bytes()));
        bytes
    }

    fn description(provider: &'static str, name: &'static str) -> Description {
        Description { provider, name, doc: &[], pair: None, log_level: None }
    }

    #[test]
    fn items_are_those_of_the_format() {
        let note = Note::new(
            &Description {
                doc: &[" Two", " lines"],
                pair: Some(Pair::End("s")),
                log_level: Some(-1),
                ..description("p", "n")
            },
            &[
                ArgDescription::new::<i16>("a", "", &[" d"], &[(-1, "no")]),
                ArgDescription::new::<&str>("", "&'a str", &[], &[]),
            ],
        );
        let mut expected: Vec<u8> = Vec::from([1, 0, 0, 0]);
        for (tag, value) in [
            (0x01, &b"p"[..]),
            (0x02, b"n"),
            (0x03, b"Two\nlines"),
            (0x04, b"\x02s"),
            (0x05, b"\xff\xff\xff\xff"),
            (0x10, &[1, 9]),
            (0x11, b"a"),
            (0x12, b"i16"),
            (0x13, b"d"),
            (0x15, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02no"),
            (0x10, &[2, 6]),
            (0x12, b"&'a str"),
            (0x14, &[3]),
            (0x19, &[]),
        ] {
            expected.extend([tag, 0, value.len() as u8, 0]);
            expected.extend(value);
        }
        assert_eq!(written(&note)[..note.n_bytes()], expected);
    }

    #[test]
    fn every_length_is_written_whole() {
        const NAMES: &str = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop";
        for len in 1..=40 {
            let note = Note::new(&description("p", &NAMES[..len]), &[]);
            let bytes = written(&note);
            assert_eq!(bytes.len(), note.n_bytes().next_multiple_of(4), "{len}");
            assert_eq!(&bytes[13..13 + len], &NAMES.as_bytes()[..len], "{len}");
        }
    }

    #[test]
    fn bad_declarations_are_refused() {
        fn refused(build: impl Fn() -> Note + std::panic::UnwindSafe) -> bool {
            std::panic::catch_unwind(build).is_err()
        }
        assert!(refused(|| Note::new(&description("", "n"), &[])), "no provider");
        assert!(refused(|| Note::new(&description("p", "a b"), &[])), "a blank in a name");
        assert!(refused(|| Note::new(&description("p", "a\"b"), &[])), "a quote in a name");
        let string = ArgDescription::new::<&str>("", "", &[], &[]);
        assert!(!refused(move || Note::new(&description("p", "n"), &[string; 6])), "twelve operands");
        assert!(refused(move || Note::new(&description("p", "n"), &[string; 7])), "fourteen operands");
        const LONG: &str = match core::str::from_utf8(&[b'x'; 4000]) {
            Ok(text) => text,
            Err(_) => panic!(),
        };
        assert!(
            refused(|| Note::new(&Description { doc: &[LONG], ..description("p", "n") }, &[])),
            "too long a text"
        );
    }
}
