//! Which Rust types can be arguments of a probe, and probes whose types the compiler knows.

use crate::probe::{MAX_OPERANDS, RawProbe};
use crate::provider::AnyProbe;
use crate::types::Type;
use std::ffi::CStr;
use std::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// The operands of one hit.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Words {
    words: [u64; MAX_OPERANDS],
    n_words: usize,
}

impl Words {
    #[inline]
    fn push(&mut self, word: u64) {
        // Never full: a probe of more operands does not compile.
        if let Some(place) = self.words.get_mut(self.n_words) {
            *place = word;
            self.n_words += 1;
        }
    }
}

/// A type whose values can be arguments of a probe: integers, `bool`, `f32`, `f64`, `&str`, `&[u8]` and `&CStr`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a probe",
    note = "use an integer up to 64 bits, bool, f32, f64, &str, &[u8] or &CStr"
)]
pub trait Value: sealed::Sealed {
    /// The same type with the lifetime of one hit.
    type Of<'a>;
    const TYPE: Type;
    #[doc(hidden)]
    fn push(value: Self::Of<'_>, words: &mut Words);
}

macro_rules! numbers {
    ($($type:ty, $tag:ident, $value:ident => $word:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Value for $type {
            type Of<'a> = $type;
            const TYPE: Type = Type::$tag;
            #[inline]
            fn push($value: $type, words: &mut Words) {
                words.push($word);
            }
        }
    )*};
}

numbers! {
    i8, Int8, value => value as u64;
    u8, Uint8, value => u64::from(value);
    i16, Int16, value => value as u64;
    u16, Uint16, value => u64::from(value);
    i32, Int32, value => value as u64;
    u32, Uint32, value => u64::from(value);
    i64, Int64, value => value as u64;
    u64, Uint64, value => value;
    isize, Int64, value => value as u64;
    usize, Uint64, value => value as u64;
    bool, Uint8, value => u64::from(value);
    f32, Float, value => u64::from(value.to_bits());
    f64, Double, value => value.to_bits();
}

macro_rules! borrowed {
    ($($type:ty, $tag:ident, $value:ident => [$($word:expr),*];)*) => {$(
        impl sealed::Sealed for &'static $type {}
        impl Value for &'static $type {
            type Of<'a> = &'a $type;
            const TYPE: Type = Type::$tag;
            #[inline]
            fn push($value: &$type, words: &mut Words) {
                $(words.push($word as u64);)*
            }
        }
    )*};
}

borrowed! {
    str, Text, value => [value.as_ptr() as usize, value.len()];
    [u8], Bytes, value => [value.as_ptr() as usize, value.len()];
    CStr, String, value => [value.as_ptr() as usize];
}

/// A tuple of up to twelve [`Value`]s.
pub trait Arguments: sealed::Sealed {
    /// The tuple of the values of one hit.
    type Of<'a>;
    /// One name for each.
    type Names<'a>: AsRef<[&'a str]>;
    const TYPES: &'static [Type];
    const N_OPERANDS: usize;
    #[doc(hidden)]
    fn words(values: Self::Of<'_>) -> Words;
}

macro_rules! tuples {
    ($(($($type:ident)*) $n:literal;)*) => {$(
        impl<$($type: Value),*> sealed::Sealed for ($($type,)*) {}
        impl<$($type: Value),*> Arguments for ($($type,)*) {
            type Of<'a> = ($($type::Of<'a>,)*);
            type Names<'a> = [&'a str; $n];
            const TYPES: &'static [Type] = &[$($type::TYPE),*];
            const N_OPERANDS: usize = 0 $(+ $type::TYPE.n_operands())*;
            #[inline]
            #[allow(non_snake_case, unused_mut)]
            fn words(($($type,)*): Self::Of<'_>) -> Words {
                let mut words = Words::default();
                $(<$type as Value>::push($type, &mut words);)*
                words
            }
        }
    )*};
}

tuples! {
    () 0;
    (A) 1;
    (A B) 2;
    (A B C) 3;
    (A B C D) 4;
    (A B C D E) 5;
    (A B C D E F) 6;
    (A B C D E F G) 7;
    (A B C D E F G H) 8;
    (A B C D E F G H I) 9;
    (A B C D E F G H I J) 10;
    (A B C D E F G H I J K) 11;
    (A B C D E F G H I J K L) 12;
}

/// A probe whose arguments have the types `A`, a tuple.
#[derive(Debug)]
pub struct Probe<A> {
    any: AnyProbe,
    arguments: PhantomData<fn(A)>,
}

impl<A> Clone for Probe<A> {
    fn clone(&self) -> Self {
        Probe { any: self.any.clone(), arguments: PhantomData }
    }
}

impl<A: Arguments> Probe<A> {
    pub(crate) fn new(any: AnyProbe) -> Probe<A> {
        Probe { any, arguments: PhantomData }
    }

    /// Whether a tracer listens: a load and a branch as long as none does.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.any.is_enabled()
    }

    /// Fires if a tracer listens, and says whether it did. Whoever has to compute the values first asks
    /// [`Probe::fire_with`].
    #[inline]
    pub fn fire(&self, values: A::Of<'_>) -> bool {
        self.any.is_watched() && fire_watched::<A>(&self.any, values)
    }

    /// The same with values that are computed only if a tracer listens.
    #[inline]
    pub fn fire_with<'a>(&self, values: impl FnOnce() -> A::Of<'a>) -> bool {
        self.is_enabled() && fire_watched::<A>(&self.any, values())
    }

    /// The probe without its types.
    pub fn any(&self) -> &AnyProbe {
        &self.any
    }
}

#[cold]
#[inline(never)]
fn fire_watched<A: Arguments>(probe: &RawProbe, values: A::Of<'_>) -> bool {
    let words = A::words(values);
    // SAFETY: the words are those of the types the probe was made with. What they point to is borrowed until the end.
    unsafe { probe.fire_words(&words.words, words.n_words) }.is_ok()
}
