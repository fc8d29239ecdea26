//! The way of a hit: is anybody listening, and if so, a call of the site. No lock, no allocation, no system call.

use crate::error::{Error, Result};
use crate::object::{Form, Machine};
use crate::types::Argument;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering};

/// The largest number of operands that other tracers read.
pub const MAX_OPERANDS: usize = 12;

/// Stands in for the site of a probe that is not loaded. It is not what a quiet site is, so that asking whether a probe is
/// loaded costs nothing as long as nobody listens.
static NO_SITE: AtomicU32 = AtomicU32::new(0);
static NO_SEMAPHORE: AtomicU16 = AtomicU16::new(0);

const _: () =
    assert!(Machine::HERE.quiet_site(Form::TwoDoors) != 0 && Machine::HERE.quiet_site(Form::FirstByte) != 0);

/// A probe whose types are not known to the compiler, for bindings.
#[derive(Debug)]
pub struct RawProbe {
    /// The first code of the site, or [`NO_SITE`].
    site: AtomicPtr<AtomicU32>,
    semaphore: AtomicPtr<AtomicU16>,
    /// What is at the site while nobody listens.
    quiet: u32,
    pub(crate) name: String,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) is_described: bool,
}

impl RawProbe {
    pub(crate) fn new(form: Form, name: String, arguments: Vec<Argument>, is_described: bool) -> RawProbe {
        RawProbe {
            site: AtomicPtr::new((&raw const NO_SITE).cast_mut()),
            semaphore: AtomicPtr::new((&raw const NO_SEMAPHORE).cast_mut()),
            quiet: Machine::HERE.quiet_site(form),
            name,
            arguments,
            is_described,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Whether a hit must go the long way: a tracer listens, or the probe is not loaded. Once that is known, firing a probe
    /// that nobody listens to is over.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        // SAFETY: both point to the statics above, or into an object that stays mapped, readable, as long as its provider
        // and therefore this probe lives. Others change them at any time: the kernel and tracers.
        unsafe {
            (*self.semaphore.load(Ordering::Acquire)).load(Ordering::Relaxed) != 0
                || (*self.site.load(Ordering::Acquire)).load(Ordering::Relaxed) != self.quiet
        }
    }

    /// Whether a tracer listens: the semaphore is raised, or the site is no longer a nop.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.is_watched() && self.is_loaded()
    }

    #[inline]
    pub fn is_loaded(&self) -> bool {
        !std::ptr::eq(self.site.load(Ordering::Acquire), &NO_SITE)
    }

    /// The semaphore; null while the probe is not loaded.
    pub fn semaphore(&self) -> *const u16 {
        match self.semaphore.load(Ordering::Acquire) {
            none if std::ptr::eq(none, &NO_SEMAPHORE) => std::ptr::null(),
            semaphore => semaphore.cast(),
        }
    }

    /// The address of the site; null while the probe is not loaded.
    pub fn site(&self) -> *const u8 {
        match self.site.load(Ordering::Acquire) {
            none if std::ptr::eq(none, &NO_SITE) => std::ptr::null(),
            site => site.cast(),
        }
    }

    /// Fires whether or not somebody listens.
    ///
    /// # Safety
    /// The first `n_words` are the operands of the probe's arguments, in their order. Addresses among them are null or valid, for their
    /// length or up to a NUL, until this returns: a tracer follows them.
    #[inline]
    pub unsafe fn fire_words(&self, words: &[u64; MAX_OPERANDS], n_words: usize) -> Result<()> {
        let site = self.site.load(Ordering::Acquire);
        if std::ptr::eq(site, &NO_SITE) {
            return Err(Error::NotLoaded);
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *words;
        // SAFETY: a function of the object with as many arguments as are passed or fewer; it returns nothing and touches
        // neither registers nor memory.
        unsafe {
            if n_words <= 6 {
                let fire: extern "C" fn(u64, u64, u64, u64, u64, u64) = std::mem::transmute(site);
                fire(a, b, c, d, e, f);
            } else {
                type Fire = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);
                let fire: Fire = std::mem::transmute(site);
                fire(a, b, c, d, e, f, g, h, i, j, k, l);
            }
        }
        Ok(())
    }

    /// The probe is loaded. The semaphore is set first: until both are, it counts as not loaded.
    pub(crate) fn set(&self, site: *mut u32, semaphore: *mut u16) {
        self.semaphore.store(semaphore.cast(), Ordering::Release);
        self.site.store(site.cast(), Ordering::Release);
    }

    pub(crate) fn unset(&self) {
        self.site.store((&raw const NO_SITE).cast_mut(), Ordering::Release);
        self.semaphore.store((&raw const NO_SEMAPHORE).cast_mut(), Ordering::Release);
    }
}
