//! From the words of a C type to how its values are shown.

use crate::ast::Kind;
use std::collections::HashMap;

/// What a type name stands for: a kind behind some number of pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Base {
    pub kind: Kind,
    /// Of the value without the pointers.
    pub size_bytes: Option<u8>,
    pub n_pointers: u8,
}

const fn base(kind: Kind, size_bytes: u8) -> Base {
    Base { kind, size_bytes: Some(size_bytes), n_pointers: 0 }
}

pub(super) const UNKNOWN: Base = Base { kind: Kind::Unknown, size_bytes: None, n_pointers: 0 };

pub(super) const QUALIFIERS: [&str; 9] =
    ["const", "volatile", "restrict", "__restrict", "register", "static", "extern", "userland", "kernel"];
/// Words of which several may make up one type.
pub(super) const ARITHMETIC: [&str; 11] =
    ["char", "short", "int", "long", "signed", "unsigned", "float", "double", "void", "_Bool", "__signed__"];

/// The kind and size of a type with these words, `n_pointers` stars or brackets behind them.
pub(super) fn kind_of(words: &[&str], n_pointers: usize, types: &HashMap<&str, Base>) -> (Kind, Option<u8>) {
    let base = base_of(words, types);
    let n_pointers = n_pointers + usize::from(base.n_pointers);
    match (base.kind, n_pointers) {
        (kind, 0) => (kind, base.size_bytes),
        (Kind::Char, 1) => (Kind::CString, Some(8)),
        _ => (Kind::Pointer, Some(8)),
    }
}

/// As `kind_of`, but keeps the pointers apart: for a typedef, whose users may add some.
pub(super) fn base_of(words: &[&str], types: &HashMap<&str, Base>) -> Base {
    let has = |word: &str| words.contains(&word);
    if has("enum") {
        return base(Kind::Enum, 4);
    }
    if has("struct") || has("union") {
        return UNKNOWN;
    }
    if has("double") {
        return base(Kind::Float, if has("long") { 16 } else { 8 });
    }
    if has("float") {
        return base(Kind::Float, 4);
    }
    if has("_Bool") {
        return base(Kind::Bool, 1);
    }
    let is_signed = has("signed") || has("__signed__");
    if has("char") && !has("unsigned") {
        return base(if is_signed { Kind::Signed } else { Kind::Char }, 1);
    }
    if ["char", "short", "int", "long", "unsigned"].iter().any(|w| has(w)) || is_signed {
        let size_bytes = match (has("char"), has("short"), has("long")) {
            (true, _, _) => 1,
            (_, true, _) => 2,
            (_, _, true) => 8,
            (false, false, false) => 4,
        };
        return base(if has("unsigned") { Kind::Unsigned } else { Kind::Signed }, size_bytes);
    }
    let Some(name) = words.iter().find(|w| !QUALIFIERS.contains(w)) else { return UNKNOWN };
    types.get(name).copied().unwrap_or_else(|| well_known(name))
}

/// Names from C's, POSIX's, DTrace's and GLib's headers.
fn well_known(name: &str) -> Base {
    match name {
        "bool" => base(Kind::Bool, 1),
        "boolean_t" | "gboolean" => base(Kind::Bool, 4),
        "string" => Base { n_pointers: 1, ..base(Kind::Char, 1) },
        "int8_t" => base(Kind::Signed, 1),
        "int16_t" => base(Kind::Signed, 2),
        "int32_t" | "pid_t" => base(Kind::Signed, 4),
        "int64_t" | "intptr_t" | "intmax_t" | "ssize_t" | "ptrdiff_t" | "off_t" | "time_t" | "clock_t"
        | "suseconds_t" | "longlong_t" | "hrtime_t" => base(Kind::Signed, 8),
        "uint8_t" | "u_int8_t" | "uchar_t" | "uchar" | "u_char" => base(Kind::Unsigned, 1),
        "uint16_t" | "u_int16_t" | "ushort_t" | "ushort" | "u_short" => base(Kind::Unsigned, 2),
        "uint32_t" | "u_int32_t" | "uint_t" | "uint" | "u_int" | "uid_t" | "gid_t" | "id_t" | "mode_t"
        | "socklen_t" => base(Kind::Unsigned, 4),
        "uint64_t" | "u_int64_t" | "uintptr_t" | "uintmax_t" | "size_t" | "dev_t" | "ino_t" | "nlink_t"
        | "ulong_t" | "ulong" | "u_long" | "u_longlong_t" => base(Kind::Unsigned, 8),
        _ => UNKNOWN,
    }
}
