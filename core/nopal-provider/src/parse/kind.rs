//! From the words of a C type to how its values are shown.

use crate::ast::Kind;
use std::collections::HashMap;

/// What a type name stands for: a kind behind some number of pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Base {
    pub kind: Kind,
    pub n_pointers: u8,
}

pub(super) const QUALIFIERS: [&str; 9] =
    ["const", "volatile", "restrict", "__restrict", "register", "static", "extern", "userland", "kernel"];
/// Words of which several may make up one type.
pub(super) const ARITHMETIC: [&str; 11] =
    ["char", "short", "int", "long", "signed", "unsigned", "float", "double", "void", "_Bool", "__signed__"];

/// The kind of a type with these words, `n_pointers` stars or brackets behind them.
pub(super) fn kind_of(words: &[&str], n_pointers: usize, types: &HashMap<&str, Base>) -> Kind {
    let base = base_of(words, types);
    let n_pointers = n_pointers + usize::from(base.n_pointers);
    match (base.kind, n_pointers) {
        (kind, 0) => kind,
        (Kind::Char, 1) => Kind::CString,
        _ => Kind::Pointer,
    }
}

/// As `kind_of`, but keeps the pointers apart: for a typedef, whose users may add some.
pub(super) fn base_of(words: &[&str], types: &HashMap<&str, Base>) -> Base {
    let plain = |kind| Base { kind, n_pointers: 0 };
    let has = |word: &str| words.contains(&word);
    if has("enum") {
        return plain(Kind::Enum);
    }
    if has("struct") || has("union") {
        return plain(Kind::Unknown);
    }
    if has("float") || has("double") {
        return plain(Kind::Float);
    }
    if has("_Bool") {
        return plain(Kind::Bool);
    }
    if has("unsigned") {
        return plain(Kind::Unsigned);
    }
    if has("char") {
        return plain(if has("signed") || has("__signed__") { Kind::Signed } else { Kind::Char });
    }
    if ["short", "int", "long", "signed", "__signed__"].iter().any(|w| has(w)) {
        return plain(Kind::Signed);
    }
    let Some(name) = words.iter().find(|w| !QUALIFIERS.contains(w)) else { return plain(Kind::Unknown) };
    if let Some(base) = types.get(name) {
        return *base;
    }
    match *name {
        "bool" | "boolean_t" | "gboolean" => plain(Kind::Bool),
        "string" => Base { kind: Kind::Char, n_pointers: 1 },
        "int8_t" | "int16_t" | "int32_t" | "int64_t" | "intptr_t" | "intmax_t" | "ssize_t" | "ptrdiff_t"
        | "pid_t" | "off_t" | "time_t" | "clock_t" | "suseconds_t" | "longlong_t" | "hrtime_t" => {
            plain(Kind::Signed)
        }
        "uint8_t" | "uint16_t" | "uint32_t" | "uint64_t" | "uintptr_t" | "uintmax_t" | "size_t" | "uid_t"
        | "gid_t" | "id_t" | "mode_t" | "dev_t" | "ino_t" | "nlink_t" | "socklen_t" | "uchar_t"
        | "ushort_t" | "uint_t" | "ulong_t" | "u_longlong_t" | "uchar" | "ushort" | "uint" | "ulong"
        | "u_char" | "u_short" | "u_int" | "u_long" | "u_int8_t" | "u_int16_t" | "u_int32_t"
        | "u_int64_t" => plain(Kind::Unsigned),
        _ => plain(Kind::Unknown),
    }
}
