//! Which types can be arguments of a probe, and how each travels: size, sign, kind, and the machine words it takes.

use crate::shape::{Element, Kind, Shape};
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// A type whose values can be arguments of a probe.
///
/// It is there for integers up to 64 bits, `bool`, `char`, `f32`, `f64`, raw pointers, `&str`, `&[u8]` and slices of
/// other numbers, `&CStr`, and `Option` of the borrowed ones (`None` is a null pointer). A type of your own joins by
/// saying which of these it is shown as:
///
/// ```
/// #[derive(Clone, Copy)]
/// struct ConnectionId(u64);
///
/// impl nopal::Arg for ConnectionId {
///     type As = u64;
///     const TYPE: &'static str = "ConnectionId";
///     fn to_primitive(self) -> u64 {
///         self.0
///     }
/// }
///
/// nopal::probe!(server, accept, ConnectionId(7));
/// ```
///
/// An enum that lists its labels is shown by name:
///
/// ```
/// #[derive(Clone, Copy)]
/// enum Verdict { Hit = 1, Miss = 2 }
///
/// impl nopal::Arg for Verdict {
///     type As = u8;
///     const TYPE: &'static str = "Verdict";
///     const LABELS: &'static [(i64, &'static str)] = &[(1, "hit"), (2, "miss")];
///     fn to_primitive(self) -> u8 {
///         self as u8
///     }
/// }
///
/// nopal::probe!(cache, lookup, verdict = Verdict::Hit);
/// ```
///
/// 128-bit integers are refused, because no tracer can read them from a note's operand:
///
/// ```compile_fail,E0277
/// nopal::probe!(server, big, 5u128);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a probe",
    label = "not an integer up to 64 bits, bool, char, float, raw pointer, &str, &[u8] or &CStr",
    note = "split a 128-bit integer into two u64; pass `s.as_str()` for a String, `&v[..]` for a Vec",
    note = "pass `&raw const x` for the address of x, or implement `nopal::Arg` for a type of your own"
)]
pub trait Arg: Copy {
    /// What it is shown as.
    type As: Primitive;
    /// The type's name in the note.
    const TYPE: &'static str = <Self::As as Words>::SHAPE.type_name;
    /// Names of integer values; a tracer shows them instead of the number.
    const LABELS: &'static [(i64, &'static str)] = &[];

    fn to_primitive(self) -> Self::As;
}

/// The types every other argument is shown as. Closed: each has a form in the notes.
pub trait Primitive: sealed::Words {}
impl<T: sealed::Words> Primitive for T {}

pub(crate) mod sealed {
    //! How a primitive fills an assembler operand. Out of reach of other crates.

    use super::{MaybeUninit, Shape};

    /// The words of a value. Those that a type does not have stay uninitialised and then cost no instruction: the
    /// compiler gives them whatever register is at hand.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a primitive argument type",
        note = "choose an integer up to 64 bits, bool, char, f32, f64, a raw pointer, &str, &[u8] or &CStr"
    )]
    pub trait Words: Copy {
        const SHAPE: Shape;

        /// The value, if it has at most 32 bits; upper bits are not looked at.
        #[inline(always)]
        fn narrow(self) -> MaybeUninit<u32> {
            MaybeUninit::uninit()
        }

        /// The value, extended to 64 bits without regard to its sign.
        fn wide(self) -> MaybeUninit<u64>;

        /// The length of a string or slice.
        #[inline(always)]
        fn length(self) -> MaybeUninit<u64> {
            MaybeUninit::uninit()
        }
    }
}
use sealed::Words;

/// Implements [`Arg`] for a primitive, which is shown as itself.
macro_rules! shown_as_itself {
    ([$($generics:tt)*] $ty:ty) => {
        impl<$($generics)*> Arg for $ty {
            type As = Self;
            #[inline(always)]
            fn to_primitive(self) -> Self {
                self
            }
        }
    };
}

macro_rules! narrow_integers {
    ($($ty:ident $bits:ident $size:literal $kind:ident;)*) => {$(
        impl Words for $ty {
            const SHAPE: Shape = Shape::number(stringify!($ty), Kind::$kind, $size);
            #[inline(always)]
            fn narrow(self) -> MaybeUninit<u32> {
                MaybeUninit::new(self as $bits as u32)
            }
            #[inline(always)]
            fn wide(self) -> MaybeUninit<u64> {
                MaybeUninit::new(self as $bits as u64)
            }
        }
        shown_as_itself!([] $ty);
    )*};
}

narrow_integers! {
    i8 u8 1 Signed;
    u8 u8 1 Unsigned;
    i16 u16 2 Signed;
    u16 u16 2 Unsigned;
    i32 u32 4 Signed;
    u32 u32 4 Unsigned;
    bool u8 1 Bool;
    char u32 4 Char;
}

macro_rules! wide_integers {
    ($($ty:ident $kind:ident;)*) => {$(
        impl Words for $ty {
            const SHAPE: Shape = Shape::number(stringify!($ty), Kind::$kind, 8);
            #[inline(always)]
            fn wide(self) -> MaybeUninit<u64> {
                MaybeUninit::new(self as u64)
            }
        }
        shown_as_itself!([] $ty);
    )*};
}

wide_integers! {
    i64 Signed;
    u64 Unsigned;
    isize Signed;
    usize Unsigned;
}

// Floats travel by bit pattern in a general register: eBPF programs cannot read vector registers, and widely used
// tracers drop an operand spelt `8f@`. The operand is a plain `8@`, the nopal note says that it is a float.
impl Words for f32 {
    const SHAPE: Shape = Shape::number("f32", Kind::Float, 4);
    #[inline(always)]
    fn narrow(self) -> MaybeUninit<u32> {
        MaybeUninit::new(self.to_bits())
    }
    #[inline(always)]
    fn wide(self) -> MaybeUninit<u64> {
        MaybeUninit::new(self.to_bits() as u64)
    }
}
shown_as_itself!([] f32);

impl Words for f64 {
    const SHAPE: Shape = Shape::number("f64", Kind::Float, 8);
    #[inline(always)]
    fn wide(self) -> MaybeUninit<u64> {
        MaybeUninit::new(self.to_bits())
    }
}
shown_as_itself!([] f64);

macro_rules! pointers {
    ($([$($generics:tt)*] $ty:ty, $name:literal, $kind:ident, $trusted:literal, |$p:ident| $address:expr;)*) => {$(
        impl<$($generics)*> Words for $ty {
            const SHAPE: Shape = Shape::pointer($name, Kind::$kind, $trusted);
            #[inline(always)]
            fn wide(self) -> MaybeUninit<u64> {
                let $p = self;
                MaybeUninit::new($address as u64)
            }
        }
        shown_as_itself!([$($generics)*] $ty);
    )*};
}

pointers! {
    [T] *const T, "*const _", Pointer, false, |p| p as usize;
    [T] *mut T, "*mut _", Pointer, false, |p| p as usize;
    [T] NonNull<T>, "NonNull<_>", Pointer, false, |p| p.as_ptr() as usize;
    [] &CStr, "&CStr", CString, true, |s| s.as_ptr() as usize;
    // Null is not an address to read from, so this one comes without a promise.
    [] Option<&CStr>, "Option<&CStr>", CString, false, |s| s.map_or(0, |s| s.as_ptr() as usize);
    [] CharPtr, "*const c_char", CString, false, |s| s.0 as usize;
}

/// A C string by its address, which nobody vouches for: tracers read it with care, and it may be null.
///
/// ```
/// fn on_open(path: *const core::ffi::c_char) {
///     nopal::probe!(vfs, open, path = nopal::CharPtr(path));
/// }
/// on_open(c"/etc/hosts".as_ptr());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct CharPtr(pub *const c_char);

macro_rules! slices {
    ($($ty:ty, $element:literal, $shape:ident($($more:expr),*);)*) => {$(
        impl Words for &$ty {
            const SHAPE: Shape = $shape(concat!("&", $element), $($more),*);
            #[inline(always)]
            fn wide(self) -> MaybeUninit<u64> {
                MaybeUninit::new(self.as_ptr() as usize as u64)
            }
            #[inline(always)]
            fn length(self) -> MaybeUninit<u64> {
                MaybeUninit::new(self.len() as u64)
            }
        }
        shown_as_itself!([] &$ty);

        impl Words for Option<&$ty> {
            const SHAPE: Shape = $shape(concat!("Option<&", $element, ">"), $($more),*);
            #[inline(always)]
            fn wide(self) -> MaybeUninit<u64> {
                MaybeUninit::new(self.map_or(0, |s| s.as_ptr() as usize as u64))
            }
            #[inline(always)]
            fn length(self) -> MaybeUninit<u64> {
                MaybeUninit::new(self.map_or(0, |s| s.len() as u64))
            }
        }
        shown_as_itself!([] Option<&$ty>);
    )*};
}

const fn text(name: &'static str) -> Shape {
    Shape::sized(name, Kind::Str, None)
}

const fn bytes(name: &'static str) -> Shape {
    Shape::sized(name, Kind::Bytes, None)
}

const fn sequence(name: &'static str, kind: Kind, size_bytes: u8) -> Shape {
    Shape::sized(name, Kind::Sequence, Some(Element { kind, size_bytes }))
}

slices! {
    str, "str", text();
    [u8], "[u8]", bytes();
    [i8], "[i8]", sequence(Kind::Signed, 1);
    [i16], "[i16]", sequence(Kind::Signed, 2);
    [u16], "[u16]", sequence(Kind::Unsigned, 2);
    [i32], "[i32]", sequence(Kind::Signed, 4);
    [u32], "[u32]", sequence(Kind::Unsigned, 4);
    [i64], "[i64]", sequence(Kind::Signed, 8);
    [u64], "[u64]", sequence(Kind::Unsigned, 8);
    [f32], "[f32]", sequence(Kind::Float, 4);
    [f64], "[f64]", sequence(Kind::Float, 8);
}

impl<'a, const N: usize> Arg for &'a [u8; N] {
    type As = &'a [u8];
    #[inline(always)]
    fn to_primitive(self) -> &'a [u8] {
        self
    }
}
