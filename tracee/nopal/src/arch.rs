//! The instruction sets, one file each. Each file defines the macros `__define_site!` and `__is_enabled!`.

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64", not(nopal_off)))]
mod x86_64;

#[cfg(all(target_os = "linux", target_arch = "aarch64", target_endian = "little", not(nopal_off)))]
mod aarch64;

#[cfg(not(all(
    target_os = "linux",
    any(
        all(target_arch = "x86_64", target_pointer_width = "64"),
        all(target_arch = "aarch64", target_endian = "little")
    ),
    not(nopal_off)
)))]
mod off;
