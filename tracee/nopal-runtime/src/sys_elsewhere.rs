//! In place of `sys.rs` where probes cannot be loaded: programs compile, and loading says so.

use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;

pub const READ: c_int = 0;
pub const WRITE: c_int = 0;
pub const EXECUTE: c_int = 0;

#[derive(Debug)]
pub struct LinkMap {
    pub bias: usize,
    pub name: *mut c_char,
}

pub fn memory_file(_name: &CStr) -> Result<File> {
    Err(Error::Unsupported)
}

pub fn max_files() -> usize {
    usize::MAX
}

pub fn seal(_fd: c_int) -> Result<()> {
    Err(Error::Unsupported)
}

pub fn open_object(_path: &CStr) -> Result<*mut c_void> {
    Err(Error::Unsupported)
}

/// # Safety
/// None is needed: nothing is done.
pub unsafe fn link_map(_handle: *mut c_void) -> Result<*mut LinkMap> {
    Err(Error::Unsupported)
}

/// # Safety
/// None is needed: nothing is done.
pub unsafe fn close_object(_handle: *mut c_void) {}

/// # Safety
/// None is needed: nothing is done.
pub unsafe fn map_over(
    _address: usize,
    _length: usize,
    _access: c_int,
    _fd: c_int,
    _offset: u64,
) -> Result<()> {
    Err(Error::Unsupported)
}

/// # Safety
/// None is needed: nothing is done.
pub unsafe fn replace(
    _address: usize,
    _length: usize,
    _access: c_int,
    _fill: impl FnOnce(&mut [u8]),
) -> Result<()> {
    Err(Error::Unsupported)
}

pub fn at_fork(_prepare: extern "C" fn(), _parent: extern "C" fn(), _child: extern "C" fn()) -> Result<()> {
    Err(Error::Unsupported)
}
