//! Static probes that cost a `nop` until somebody traces them.
//!
//! A probe is a place in a program that tracers know by name: `redis:call__start`. In the code it is a `nop`, in the
//! ELF file a note that says where the `nop` is and where its arguments are. Nothing is linked, started or allocated,
//! and every tracer there is finds it: nopal, bpftrace, perf, gdb, SystemTap, bcc.
//!
//! # Fire a probe
//!
//! ```
//! let (client, command) = (7_u64, "GET");
//! nopal::probe!(redis, call__start, client, command);
//! ```
//!
//! and watch it, here with nopal and with bpftrace:
//!
//! ```text
//! $ nopal trace -p $(pidof server) redis:call__start
//! $ bpftrace -p $(pidof server) -e 'usdt:*:redis:call__start { printf("%d %s\n", arg0, str(arg1, arg2)); }'
//! ```
//!
//! | macro | arguments are evaluated | costs, untraced |
//! |---|---|---|
//! | [`probe!`] | always | two nops |
//! | [`probe_lazy!`] | when somebody traces | a compare and a branch not taken |
//! | [`provider!`] | as its functions are called | either of these |
//! | [`enabled!`] | | a compare and a branch not taken |
//!
//! # Declare a provider
//!
//! A program with more than a few probes declares them in one place. The compiler then checks the types, and the file
//! tells tracers what each argument is called and means:
//!
//! ```
//! nopal::provider! {
//!     /// What the cache does.
//!     pub mod cache {
//!         /// A key was looked up.
//!         probe lookup(
//!             /// The key.
//!             key: &str,
//!             /// Whether it was there.
//!             hit: bool,
//!         );
//!     }
//! }
//!
//! cache::lookup("user:1", true);
//! cache::lookup::lazy(|probe| probe.fire(&format!("user:{}", 1), false));
//! ```
//!
//! The same from a `.d` file in the DTrace language, in `build.rs`, with the crate `nopal-provider`:
//!
//! ```text
//! fn main() {
//!     nopal_provider::build::rust_module("redis.d");   // writes $OUT_DIR/redis.rs
//! }
//! ```
//!
//! and `include!(concat!(env!("OUT_DIR"), "/redis.rs"));` in the program.
//!
//! # Arguments
//!
//! | type | operands | shown by nopal as |
//! |---|---|---|
//! | `i8` to `i64`, `u8` to `u64`, `isize`, `usize` | one of its size and sign | number |
//! | `bool`, `char` | one, `1@` and `4@` | `true`, `'x'` |
//! | `f32`, `f64` | one, the bits as an integer | number |
//! | `*const T`, `*mut T`, `NonNull<T>` | one | address |
//! | `&str`, `&[u8]` | two, address and length in bytes | text, bytes |
//! | `&[T]` of other numbers | two, address and number of elements | list |
//! | `&CStr`, [`CharPtr`] | one, address | text |
//! | `Option` of a borrowed one | the same, `None` is a null address | as above |
//! | your own | those of [`Arg::As`] | as that, or by [`Arg::LABELS`] |
//!
//! Nothing is copied or converted: a string is an address and a length in two registers. There are at most 12 operands.
//! A value that the compiler has in a register stays there; others are loaded for the probe.
//!
//! # What is promised
//!
//! - **One semaphore per probe** and linked file, however many sites inlining and generics make of it. It is named
//!   `provider_probe_semaphore`, as in C, and shared with C code of the same provider.
//! - **It survives the build**: debug and release, fat and thin LTO, `--gc-sections`, `strip`, and the linkers bfd,
//!   gold, lld and mold keep sites, notes, `.stapsdt.base` and semaphores. (gold, which is no longer maintained, refuses
//!   to drop a function that has a probe: give it `-Clink-arg=-Wl,--no-gc-sections`.)
//! - **No `unsafe` in your code**, no dependency, no `std`, no build script, no start-up code.
//! - **Elsewhere nothing**: on other systems than Linux on x86-64 and arm64, and with `RUSTFLAGS='--cfg nopal_off'`, the
//!   macros check their arguments and leave no code; an argument with a side effect still has it.
//!
//! Probes in a generic or inlined function have as many sites as the compiler makes copies. One probe should have the
//! same arguments at every site; a tracer takes names and types from the first description it finds.
//!
//! An ordinary user can attach to a running program only if Yama allows it: see [`allow_tracing`].
#![no_std]
// `--cfg nopal_off` leaves every probe out of a build; cargo does not know the name.
#![allow(unexpected_cfgs)]

mod arch;
mod arg;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod describe;
mod macros;
mod note;
mod permission;
mod provider;
mod shape;
mod site;

pub use arg::{Arg, CharPtr, Primitive};
pub use permission::allow_tracing;

/// What the macros' expansions name. Not for direct use.
#[doc(hidden)]
pub mod __private {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub use crate::describe::{long, short};
    pub use crate::note::{ArgDescription, Described, Description, Note, Pair, shape};
    pub use core::arch::asm;
    pub use core::hint::cold_path;
    pub use core::marker::PhantomData;

    use crate::arg::{Arg, sealed::Words};
    use core::mem::MaybeUninit;

    #[inline(always)]
    pub fn narrow<A: Arg>(arg: A) -> MaybeUninit<u32> {
        arg.to_primitive().narrow()
    }

    #[inline(always)]
    pub fn wide<A: Arg>(arg: A) -> MaybeUninit<u64> {
        arg.to_primitive().wide()
    }

    #[inline(always)]
    pub fn length<A: Arg>(arg: A) -> MaybeUninit<u64> {
        arg.to_primitive().length()
    }

    /// The address of the block of lengths, or nothing at all if no argument has one.
    #[inline(always)]
    pub fn block(lengths: &[MaybeUninit<u64>], is_needed: bool) -> MaybeUninit<*const MaybeUninit<u64>> {
        if is_needed { MaybeUninit::new(lengths.as_ptr()) } else { MaybeUninit::uninit() }
    }
}
