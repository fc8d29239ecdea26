//! Types of values while a body is compiled: those of the program, and what only the script knows, such as what a
//! pointer leads to.

use crate::ctype::CType;
use crate::diagnostic::Span;
use nopal_program::Type;
use nopal_program::layout::Layout;
use nopal_program::op::{Reg, Slot, Space};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ty {
    /// Of a map or variable that nothing was assigned to yet.
    Unknown,
    /// Of a call that gives none.
    Nothing,
    Int {
        size_bytes: u8,
        is_signed: bool,
    },
    Pointer {
        to: CType,
        space: Space,
    },
    /// A record or an array where it lies.
    Memory(CType),
    Tuple(Vec<Ty>),
    /// A tuple whose members have names.
    Record(Vec<(String, Ty)>),
    /// A record or an array that was copied to the frame.
    Whole {
        what: CType,
        layout: Layout,
    },
    /// As in the program.
    Plain(Type),
}

impl Ty {
    pub(crate) const U64: Ty = Ty::Int { size_bytes: 8, is_signed: false };
    pub(crate) const BOOL: Ty = Ty::Plain(Type::Bool);
    pub(crate) const I64: Ty = Ty::Int { size_bytes: 8, is_signed: true };

    pub(crate) fn str(max_bytes: u32) -> Ty {
        Ty::Plain(Type::Str { max_bytes })
    }

    pub(crate) fn to_type(&self) -> Type {
        match self {
            Ty::Unknown | Ty::Nothing | Ty::Memory(_) => Type::U64,
            Ty::Int { size_bytes, is_signed } => Type::Int { size_bytes: *size_bytes, is_signed: *is_signed },
            Ty::Pointer { .. } => Type::Pointer,
            Ty::Tuple(members) => Type::Tuple(members.iter().map(Ty::to_type).collect()),
            Ty::Record(members) => {
                Type::Record(members.iter().map(|(name, ty)| (name.clone(), ty.to_type())).collect())
            }
            Ty::Whole { layout, .. } => Type::Whole(layout.clone()),
            Ty::Plain(plain) => plain.clone(),
        }
    }

    pub(crate) fn size_bytes(&self) -> u32 {
        match self {
            Ty::Tuple(members) => members.iter().map(Ty::size_bytes).sum(),
            Ty::Record(members) => members.iter().map(|(_, member)| member.size_bytes()).sum(),
            Ty::Whole { layout, .. } => layout.size_bytes().next_multiple_of(8),
            Ty::Plain(plain) => plain.size_bytes(),
            Ty::Unknown | Ty::Nothing | Ty::Int { .. } | Ty::Pointer { .. } | Ty::Memory(_) => 8,
        }
    }

    /// In a register.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Ty::Unknown | Ty::Int { .. } | Ty::Pointer { .. } => true,
            Ty::Nothing | Ty::Memory(_) | Ty::Tuple(_) | Ty::Record(_) | Ty::Whole { .. } => false,
            Ty::Plain(plain) => plain.is_scalar(),
        }
    }

    /// Numbers can be calculated with; pointers and labels of enums count as such.
    pub(crate) fn is_number(&self) -> bool {
        matches!(
            self,
            Ty::Unknown | Ty::Int { .. } | Ty::Pointer { .. } | Ty::Plain(Type::Enum { .. } | Type::Bool)
        )
    }

    pub(crate) fn is_signed(&self) -> bool {
        matches!(self, Ty::Int { is_signed: true, .. } | Ty::Plain(Type::Enum { .. } | Type::Bool))
    }

    pub(crate) fn is_str(&self) -> bool {
        matches!(self, Ty::Plain(Type::Str { .. }))
    }

    /// One type for what holds both, the first deciding where they differ in sign.
    pub(crate) fn unify(&self, other: &Ty) -> Option<Ty> {
        Some(match (self, other) {
            (Ty::Unknown, known) | (known, Ty::Unknown) => known.clone(),
            (Ty::Int { size_bytes: a, is_signed }, Ty::Int { size_bytes: b, .. }) => {
                Ty::Int { size_bytes: *a.max(b), is_signed: *is_signed }
            }
            (Ty::Plain(a), Ty::Plain(b)) => Ty::Plain(unify_plain(a, b)?),
            (Ty::Int { .. }, Ty::Plain(Type::Enum { .. } | Type::Bool)) => self.clone(),
            (Ty::Plain(Type::Enum { .. } | Type::Bool), Ty::Int { .. }) => other.clone(),
            (Ty::Tuple(a), Ty::Tuple(b)) if a.len() == b.len() => {
                Ty::Tuple(a.iter().zip(b).map(|(a, b)| a.unify(b)).collect::<Option<_>>()?)
            }
            (Ty::Record(a), Ty::Record(b)) if a.len() == b.len() => {
                // In whatever order they are given.
                let both = |(name, a): &(String, Ty)| {
                    let (_, b) = b.iter().find(|(other, _)| other == name)?;
                    Some((name.clone(), a.unify(b)?))
                };
                Ty::Record(a.iter().map(both).collect::<Option<_>>()?)
            }
            _ if self == other => self.clone(),
            _ => return None,
        })
    }

    /// As a message names it.
    pub(crate) fn text(&self) -> String {
        match self {
            Ty::Unknown => "unknown".into(),
            Ty::Nothing => "nothing".into(),
            Ty::Int { size_bytes, is_signed } => {
                format!("{}int{}", if *is_signed { "" } else { "u" }, u32::from(*size_bytes) * 8)
            }
            Ty::Pointer { to, .. } => format!("{} *", to.text()),
            Ty::Memory(what) => what.text(),
            Ty::Tuple(members) => {
                format!("({})", members.iter().map(Ty::text).collect::<Vec<_>>().join(", "))
            }
            Ty::Record(members) => {
                let members = members.iter().map(|(name, ty)| format!("{name} = {}", ty.text()));
                format!("({})", members.collect::<Vec<_>>().join(", "))
            }
            Ty::Whole { what, .. } => what.text(),
            Ty::Plain(plain) => match plain {
                Type::Bool => "bool".into(),
                Type::Record(_) => "record".into(),
                Type::Whole(_) => "memory".into(),
                Type::Int { .. } => "integer".into(),
                Type::Float => "double".into(),
                Type::Pointer => "pointer".into(),
                Type::Str { .. } => "string".into(),
                Type::Buffer { .. } => "buffer".into(),
                Type::Tuple(_) => "tuple".into(),
                Type::Probe => "probe".into(),
                Type::UserSymbol => "usym".into(),
                Type::KernelSymbol => "ksym".into(),
                Type::UserStack { .. } => "ustack".into(),
                Type::KernelStack { .. } => "kstack".into(),
                Type::Time { .. } => "timestamp".into(),
                Type::Enum { .. } => "enum".into(),
                Type::Inet => "inet".into(),
                Type::Mac => "mac_address".into(),
                Type::Username => "username".into(),
                Type::ErrorText => "strerror".into(),
                Type::CgroupPath { .. } => "cgroup_path".into(),
            },
        }
    }
}

fn unify_plain(a: &Type, b: &Type) -> Option<Type> {
    Some(match (a, b) {
        (Type::Str { max_bytes: a }, Type::Str { max_bytes: b }) => Type::Str { max_bytes: *a.max(b) },
        (Type::Buffer { max_bytes: a }, Type::Buffer { max_bytes: b }) => {
            Type::Buffer { max_bytes: *a.max(b) }
        }
        (Type::UserStack { max_frames: a, form }, Type::UserStack { max_frames: b, form: other })
            if form == other =>
        {
            Type::UserStack { max_frames: *a.max(b), form: *form }
        }
        (Type::KernelStack { max_frames: a, form }, Type::KernelStack { max_frames: b, form: other })
            if form == other =>
        {
            Type::KernelStack { max_frames: *a.max(b), form: *form }
        }
        _ if a == b => a.clone(),
        _ => return None,
    })
}

/// What an expression gave, and where it is.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub ty: Ty,
    pub at: At,
    /// Where the number leads if it is used as an address.
    pub space: Option<Space>,
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum At {
    Nowhere,
    Const(i64),
    Reg(Reg),
    Slot(Slot),
    /// At an address of the traced program or the kernel.
    Memory {
        base: Reg,
        offset: i64,
        space: Space,
    },
}

impl Value {
    pub(crate) fn new(ty: Ty, at: At, span: Span) -> Value {
        Value { ty, at, space: None, span }
    }

    pub(crate) fn nothing(span: Span) -> Value {
        Value::new(Ty::Nothing, At::Nowhere, span)
    }

    pub(crate) fn number(value: i64, span: Span) -> Value {
        Value::new(Ty::I64, At::Const(value), span)
    }

    pub(crate) fn constant(&self) -> Option<i64> {
        match self.at {
            At::Const(value) => Some(value),
            At::Nowhere | At::Reg(_) | At::Slot(_) | At::Memory { .. } => None,
        }
    }
}
