//! Static probes that are declared while a program runs.
//!
//! A probe is a real USDT site, a nop in the code with a note that says where, in a small shared object that exists in
//! memory alone. nopal, bpftrace, bcc, perf and gdb find it through the process. For probes that are known when the program
//! is compiled, the `nopal` crate is cheaper: those cost a nop and nothing else.
//!
//! ```
//! use nopal_runtime::Provider;
//!
//! let app = Provider::new("app")?;
//! let request = app.probe::<(u64, &str)>("request", ["id", "path"])?;
//! app.load()?;
//!
//! // Nobody listens, so that this is a load and a branch.
//! assert!(!request.fire((7, "/index.html")));
//!
//! // Where the values are not at hand, they are computed only while somebody listens.
//! let path = || format!("/user/{}", 7);
//! if request.is_enabled() {
//!     request.fire((7, &path()));
//! }
//!
//! // Probes may be added at any time. Those that are loaded stay where they are, and tracers stay attached to them.
//! let done = app.probe::<(u64, f64)>("done", ["id", "seconds"])?;
//! app.load()?;
//! done.fire((7, 0.25));
//!
//! // `nopal trace -p PID app:*`, or `bpftrace -p PID -e 'usdt:/proc/PID/fd/N:app:request { ... }'`:
//! assert!(app.path().is_some_and(|path| path.starts_with("/proc/")));
//! # Ok::<(), nopal_runtime::Error>(())
//! ```
//!
//! Handles may be shared by threads. Firing takes no lock and allocates nothing, also in a signal handler or while another
//! thread loads or unloads. A forked child has its parent's probes. Nothing is written to any folder.
//!
//! `libnopal.so` (`nopal.h`) and `libstapsdt.so` (`libstapsdt.h`) give the same to C and to other languages.

mod error;
mod fork;
mod loaded;
#[doc(hidden)]
pub mod object;
mod probe;
mod provider;
#[cfg_attr(
    not(all(
        target_os = "linux",
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )),
    path = "sys_elsewhere.rs"
)]
mod sys;
mod types;
mod value;

pub use error::{Error, Result};
pub use probe::{MAX_OPERANDS, RawProbe};
pub use provider::{AnyProbe, Provider};
pub use types::{Argument, Type};
pub use value::{Arguments, Probe, Value};
