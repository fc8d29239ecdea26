//! The functions of `nopal.h`, section 8, over `nopal-runtime`. What each does is written there.

mod errors;

use errors::{fail, guarded};
use nopal_runtime::{Argument, Error, MAX_OPERANDS, Provider, RawProbe, Type};
use std::ffi::{CStr, c_char, c_int};
use std::ptr;

/// `nopal_arg`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Arg {
    name: *const c_char,
    kind: u32,
    reserved: u32,
}

/// `nopal_value`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Value {
    word: u64,
    length: u64,
}

const _: () = assert!(size_of::<Arg>() == 16 && size_of::<Value>() == 16);

/// The text of a C string that must be one of UTF-8.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn text<'a>(text: *const c_char, what: &'static str) -> Result<&'a str, errors::Problem> {
    if text.is_null() {
        return Err(errors::Problem::Null(what));
    }
    // SAFETY: not null, and then a C string by this function's contract.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Error::Name { name: bytes.to_string_lossy().into_owned() }.into())
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_provider_new(name: *const c_char) -> *mut Provider {
    guarded(ptr::null_mut(), || {
        // SAFETY: by this function's contract.
        let name = unsafe { text(name, "the provider's name") }?;
        Ok(Box::into_raw(Box::new(Provider::new(name)?)))
    })
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_provider_add(
    provider: *const Provider,
    name: *const c_char,
    args: *const Arg,
    n_args: usize,
) -> *const RawProbe {
    guarded(ptr::null(), || {
        // SAFETY: null or a provider, by this function's contract.
        let provider = unsafe { provider.as_ref() }.ok_or(errors::Problem::Null("the provider"))?;
        // SAFETY: by this function's contract.
        let name = unsafe { text(name, "the probe's name") }?;
        if n_args > MAX_OPERANDS {
            return Err(Error::TooManyOperands { probe: name.to_owned(), n_operands: n_args }.into());
        }
        if args.is_null() && n_args > 0 {
            return Err(errors::Problem::Null("the array of arguments"));
        }
        let mut arguments = Vec::with_capacity(n_args);
        for index in 0..n_args {
            // SAFETY: the array has `n_args` elements, by this function's contract.
            let arg = unsafe { args.add(index).read() };
            let type_ =
                Type::from_number(arg.kind).ok_or(errors::Problem::Type { index, number: arg.kind })?;
            let name = match arg.name.is_null() {
                true => format!("arg{index}"),
                // SAFETY: by this function's contract.
                false => unsafe { text(arg.name, "the argument's name") }?.to_owned(),
            };
            arguments.push(Argument::new(name, type_));
        }
        Ok(&raw const *provider.add(name, arguments)?)
    })
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_provider_load(provider: *const Provider) -> c_int {
    guarded(errors::FAILED, || {
        // SAFETY: null or a provider, by this function's contract.
        let provider = unsafe { provider.as_ref() }.ok_or(errors::Problem::Null("the provider"))?;
        provider.load()?;
        Ok(0)
    })
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_provider_unload(provider: *const Provider) -> c_int {
    guarded(errors::FAILED, || {
        // SAFETY: null or a provider, by this function's contract.
        let provider = unsafe { provider.as_ref() }.ok_or(errors::Problem::Null("the provider"))?;
        provider.unload();
        Ok(0)
    })
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_provider_destroy(provider: *mut Provider) {
    guarded((), || {
        if !provider.is_null() {
            // SAFETY: made by nopal_provider_new, and nobody uses it or its probes any more, by this function's contract.
            drop(unsafe { Box::from_raw(provider) });
        }
        Ok(())
    });
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_provider_path(provider: *const Provider) -> *const c_char {
    guarded(ptr::null(), || {
        // SAFETY: null or a provider, by this function's contract.
        let provider = unsafe { provider.as_ref() }.ok_or(errors::Problem::Null("the provider"))?;
        Ok(provider.raw_path().ok_or(Error::NotLoaded)?)
    })
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_probe_enabled(probe: *const RawProbe) -> c_int {
    // SAFETY: null or a probe, by this function's contract.
    unsafe { probe.as_ref() }.is_some_and(RawProbe::is_enabled).into()
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_probe_fire(
    probe: *const RawProbe,
    values: *const Value,
    n_values: usize,
) -> c_int {
    // SAFETY: null or a probe, by this function's contract.
    match unsafe { probe.as_ref() } {
        Some(probe) if !probe.is_watched() => 0,
        // SAFETY: by this function's contract.
        probe => unsafe { fire_watched(probe, values, n_values) },
    }
}

/// The rest of a hit, apart and of C's kind, which never unwinds: so the way of a hit that nobody listens to needs no frame.
///
/// # Safety
/// As for [`nopal_probe_fire`].
#[cold]
#[inline(never)]
unsafe extern "C" fn fire_watched(probe: Option<&RawProbe>, values: *const Value, n_values: usize) -> c_int {
    let Some(probe) = probe else { return fail(&errors::Problem::Null("the probe")) };
    let arguments = probe.arguments();
    if !probe.is_loaded() {
        return fail(&Error::NotLoaded.into());
    }
    if n_values != arguments.len() {
        return fail(&Error::WrongNumber { n_expected: arguments.len(), n_given: n_values }.into());
    }
    if values.is_null() && n_values > 0 {
        return fail(&errors::Problem::Null("the array of values"));
    }
    let mut words = [0; MAX_OPERANDS];
    let mut n_words = 0;
    for (index, argument) in arguments.iter().enumerate() {
        // SAFETY: the array has `n_values` elements, by this function's contract.
        let value = unsafe { values.add(index).read() };
        words[n_words] = value.word;
        if argument.type_.has_length() {
            words[n_words + 1] = if value.word == 0 { 0 } else { value.length };
        }
        n_words += argument.type_.n_operands();
    }
    // SAFETY: the probe was made with these types, and the addresses are valid, by this function's contract.
    match unsafe { probe.fire_words(&words, n_words) } {
        Ok(()) => 1,
        Err(error) => fail(&error.into()),
    }
}

/// # Safety
/// As `nopal.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nopal_probe_semaphore(probe: *const RawProbe) -> *const u16 {
    // SAFETY: null or a probe, by this function's contract.
    unsafe { probe.as_ref() }.map_or(ptr::null(), RawProbe::semaphore)
}

#[unsafe(no_mangle)]
pub extern "C" fn nopal_error() -> *const c_char {
    errors::text()
}

#[unsafe(no_mangle)]
pub extern "C" fn nopal_runtime_version() -> u32 {
    const VERSION: u32 = {
        const fn number(text: &str) -> u32 {
            let (bytes, mut n, mut i) = (text.as_bytes(), 0, 0);
            while i < bytes.len() {
                n = n * 10 + (bytes[i] - b'0') as u32;
                i += 1;
            }
            n
        }
        number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
            | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
            | number(env!("CARGO_PKG_VERSION_PATCH"))
    };
    VERSION
}
