//! The functions of `libstapsdt.h` over `nopal-runtime`.
//!
//! Programs read the structures, so that their fields are where libstapsdt has them; what is ours lies behind them.
//! Probes have a semaphore, keep their addresses when others are added, and survive a fork; nothing is ever written to a
//! folder, whatever `providerUseMemfd` was told.

mod layout;

use layout::{MAX_ARGUMENTS, Probe, ProbeListItem, Provider, SdtError};
use nopal_runtime::{Error, Type};
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// No panic leaves the library.
fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// The handle of loaded providers. Programs look whether there is one; one that closes it is told by `dlclose` that nothing
/// is open there, which the dynamic linkers see by these zeros.
static NO_OBJECT: [u64; 512] = [0; 512];

/// # Safety
/// `text` is null or a C string.
unsafe fn to_str<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: not null, and then a C string by this function's contract.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?.to_str().ok()
}

/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn providerInit(name: *const c_char) -> *mut Provider {
    guarded(ptr::null_mut(), || {
        // SAFETY: by this function's contract.
        let Some(name) = (unsafe { to_str(name) }) else { return ptr::null_mut() };
        Box::into_raw(Box::new(Provider::new(name, nopal_runtime::Provider::like_libstapsdt(name))))
    })
}

/// # Safety
/// `provider` is null or a provider.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn providerUseMemfd(provider: *mut Provider, use_memfd: c_int) -> c_int {
    // SAFETY: by this function's contract.
    let Some(provider) = (unsafe { provider.as_mut() }) else { return 0 };
    if !provider.handle.is_null() {
        return 0;
    }
    provider.use_memfd = use_memfd;
    1
}

/// Variadic in C. On the systems where probes can be loaded, integers are passed alike to both kinds of functions; those
/// beyond `n_args` hold anything and are not looked at.
///
/// # Safety
/// `provider` is null or a provider, `name` null or a C string, and `n_args` types follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn providerAddProbe(
    provider: *mut Provider,
    name: *const c_char,
    n_args: c_int,
    arg1: c_int,
    arg2: c_int,
    arg3: c_int,
    arg4: c_int,
    arg5: c_int,
    arg6: c_int,
) -> *mut Probe {
    guarded(ptr::null_mut(), || {
        let pointer = provider;
        // SAFETY: by this function's contract.
        let Some(provider) = (unsafe { provider.as_mut() }) else { return ptr::null_mut() };
        let n_args = match usize::try_from(n_args) {
            Ok(n_args) if n_args <= MAX_ARGUMENTS => n_args,
            _ => {
                provider.set_error(SdtError::ElfCreation, "a probe has 0 to 6 arguments");
                return ptr::null_mut();
            }
        };
        let formats = [arg1, arg2, arg3, arg4, arg5, arg6];
        let types: Option<Vec<Type>> = formats[..n_args].iter().map(|format| type_of(*format)).collect();
        let Some(types) = types else {
            let text = "an argument is of no type: use uint8, int8 and so on up to int64";
            provider.set_error(SdtError::ElfCreation, text);
            return ptr::null_mut();
        };
        // SAFETY: by this function's contract.
        let Some(name) = (unsafe { to_str(name) }) else {
            provider.set_error(SdtError::ElfCreation, "the probe's name is NULL or not UTF-8");
            return ptr::null_mut();
        };
        let added = match provider.runtime.add_unnamed(name, &types) {
            Ok(added) => added,
            Err(error) => {
                provider.set_error(SdtError::ElfCreation, &error.to_string());
                return ptr::null_mut();
            }
        };
        let mut arg_formats = [0; MAX_ARGUMENTS];
        arg_formats[..n_args].copy_from_slice(&formats[..n_args]);
        let item = Box::new(ProbeListItem {
            probe: Probe {
                name: CString::new(name).unwrap_or_default().into_raw(),
                arg_formats,
                fire: ptr::null_mut(),
                provider: pointer,
                n_args: n_args as c_int,
            },
            next: provider.probes,
            runtime: added,
        });
        provider.probes = Box::into_raw(item);
        // A probe is the first thing in its item.
        provider.probes.cast()
    })
}

/// The numbers of `ArgType_t`: the size in bytes, negative if signed.
fn type_of(format: c_int) -> Option<Type> {
    Some(match format {
        1 => Type::Uint8,
        -1 => Type::Int8,
        2 => Type::Uint16,
        -2 => Type::Int16,
        4 => Type::Uint32,
        -4 => Type::Int32,
        8 => Type::Uint64,
        -8 => Type::Int64,
        _ => return None,
    })
}

/// # Safety
/// `provider` is null or a provider.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn providerLoad(provider: *mut Provider) -> c_int {
    guarded(-1, || {
        // SAFETY: by this function's contract.
        let Some(provider) = (unsafe { provider.as_mut() }) else { return -1 };
        if let Err(error) = provider.runtime.load() {
            let kind = match error {
                Error::Linker { .. } => SdtError::SharedLibraryOpen,
                Error::System { .. } => SdtError::TmpCreation,
                _ => SdtError::ElfCreation,
            };
            provider.set_error(kind, &error.to_string());
            return -1;
        }
        for item in provider.items() {
            item.probe.fire = item.runtime.site().cast_mut().cast();
        }
        provider.handle = ptr::from_ref(&NO_OBJECT).cast_mut().cast();
        // The runtime's own text, which has another pid in a forked child. Nobody writes to it through this pointer.
        provider.filename = provider.runtime.raw_path().unwrap_or(ptr::null()).cast_mut();
        let path = provider.runtime.path();
        provider.memfd = path.as_deref().and_then(|p| p.rsplit('/').next()?.parse().ok()).unwrap_or(-1);
        0
    })
}

/// # Safety
/// `provider` is null or a provider.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn providerUnload(provider: *mut Provider) -> c_int {
    guarded(-1, || {
        // SAFETY: by this function's contract.
        let Some(provider) = (unsafe { provider.as_mut() }) else { return -1 };
        for item in provider.items() {
            item.probe.fire = ptr::null_mut();
        }
        provider.runtime.unload();
        provider.handle = ptr::null_mut();
        provider.memfd = -1;
        provider.filename = ptr::null_mut();
        0
    })
}

/// # Safety
/// `provider` is null or a provider that nobody uses any more, nor its probes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn providerDestroy(provider: *mut Provider) {
    guarded((), || {
        if !provider.is_null() {
            // SAFETY: made by providerInit, and nobody else's any more, by this function's contract.
            drop(unsafe { Box::from_raw(provider) });
        }
    });
}

/// Variadic in C, as [`providerAddProbe`] is.
///
/// # Safety
/// `probe` is null or a probe, and as many values follow as it has arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probeFire(
    probe: *mut Probe,
    arg1: u64,
    arg2: u64,
    arg3: u64,
    arg4: u64,
    arg5: u64,
    arg6: u64,
) {
    // SAFETY: null or the probe that is the first thing in its item, by this function's contract.
    let Some(item) = (unsafe { probe.cast::<ProbeListItem>().as_ref() }) else { return };
    // Whether a tracer listens the caller has asked before, if it wants to know; libstapsdt does not ask here.
    if item.runtime.is_watched() {
        let words = [arg1, arg2, arg3, arg4, arg5, arg6, 0, 0, 0, 0, 0, 0];
        let n_args = item.runtime.arguments().len().min(MAX_ARGUMENTS);
        // SAFETY: as many words as the probe has arguments. None of them is an address to us: tracers check those that
        // they follow, since there is no note that calls them valid. Fails if it is not loaded, which does no harm.
        let _ = unsafe { item.runtime.fire_words(&words, n_args) };
    }
}

/// # Safety
/// `probe` is null or a probe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probeIsEnabled(probe: *const Probe) -> c_int {
    // SAFETY: null or the probe that is the first thing in its item, by this function's contract.
    let item = unsafe { probe.cast::<ProbeListItem>().as_ref() };
    item.is_some_and(|item| item.runtime.is_enabled()).into()
}
