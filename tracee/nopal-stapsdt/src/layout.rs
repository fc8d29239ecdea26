//! The structures of `libstapsdt.h`, and what of ours lies behind their last field.

use nopal_runtime::AnyProbe;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;

pub(crate) const MAX_ARGUMENTS: usize = 6;

/// `SDTError_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum SdtError {
    None = -1,
    ElfCreation = 0,
    TmpCreation = 1,
    SharedLibraryOpen = 2,
}

/// `SDTProbe_t`.
#[derive(Debug)]
#[repr(C)]
pub struct Probe {
    pub name: *mut c_char,
    pub arg_formats: [c_int; MAX_ARGUMENTS],
    /// Null while the probe is not loaded.
    pub fire: *mut c_void,
    pub provider: *mut Provider,
    pub n_args: c_int,
}

/// `SDTProbeList_t`, and the probe itself.
#[derive(Debug)]
#[repr(C)]
pub struct ProbeListItem {
    pub probe: Probe,
    pub next: *mut ProbeListItem,
    pub runtime: AnyProbe,
}

/// `SDTProvider_t`, and the provider itself.
#[derive(Debug)]
#[repr(C)]
pub struct Provider {
    pub name: *mut c_char,
    /// The newest first.
    pub probes: *mut ProbeListItem,
    pub errno: SdtError,
    pub error: *mut c_char,
    pub handle: *mut c_void,
    /// Belongs to `runtime`.
    pub filename: *mut c_char,
    pub memfd: c_int,
    pub use_memfd: c_int,
    pub runtime: nopal_runtime::Provider,
}

const _: () = {
    assert!(offset_of!(Probe, arg_formats) == 8 && offset_of!(Probe, fire) == 32);
    assert!(offset_of!(Probe, provider) == 40 && offset_of!(Probe, n_args) == 48);
    assert!(offset_of!(ProbeListItem, probe) == 0 && offset_of!(ProbeListItem, next) == 56);
    assert!(offset_of!(Provider, probes) == 8 && offset_of!(Provider, errno) == 16);
    assert!(offset_of!(Provider, error) == 24 && offset_of!(Provider, handle) == 32);
    assert!(offset_of!(Provider, filename) == 40 && offset_of!(Provider, memfd) == 48);
    assert!(offset_of!(Provider, use_memfd) == 52);
};

impl Provider {
    pub fn new(name: &str, runtime: nopal_runtime::Provider) -> Provider {
        Provider {
            name: CString::new(name).unwrap_or_default().into_raw(),
            probes: ptr::null_mut(),
            errno: SdtError::None,
            error: ptr::null_mut(),
            handle: ptr::null_mut(),
            filename: ptr::null_mut(),
            memfd: -1,
            use_memfd: 1,
            runtime,
        }
    }

    pub fn set_error(&mut self, errno: SdtError, text: &str) {
        self.errno = errno;
        replace(&mut self.error, Some(text));
    }

    pub fn items(&mut self) -> impl Iterator<Item = &mut ProbeListItem> {
        let mut next = self.probes;
        std::iter::from_fn(move || {
            // SAFETY: the list holds items that providerAddProbe made and that live until the provider does not; each is
            // visited once.
            let item = unsafe { next.as_mut() }?;
            next = item.next;
            Some(item)
        })
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let mut next = self.probes;
        while !next.is_null() {
            // SAFETY: made by providerAddProbe, and nobody uses it any more.
            let mut item = unsafe { Box::from_raw(next) };
            next = item.next;
            replace(&mut item.probe.name, None);
        }
        replace(&mut self.name, None);
        replace(&mut self.error, None);
    }
}

/// Frees the text that a field has and gives it another, or none.
fn replace(field: &mut *mut c_char, text: Option<&str>) {
    let new = text.map_or(ptr::null_mut(), |text| CString::new(text).unwrap_or_default().into_raw());
    let old = std::mem::replace(field, new);
    if !old.is_null() {
        // SAFETY: made by `into_raw` here or where the structure was made.
        drop(unsafe { CString::from_raw(old) });
    }
}
