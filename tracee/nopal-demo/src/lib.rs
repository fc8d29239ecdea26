//! A small cache server with probes, and a load for it: what `nopal demo` traces.
//!
//! The server speaks memcached's text protocol and RESP, the protocol of Redis and Valkey, on one port. It is a real
//! server, small enough to read in one sitting, and shows how a program is instrumented with the `nopal` crate:
//!
//! | file | holds |
//! |---|---|
//! | `probes.rs` | the probes, declared; start here |
//! | `memcached.rs`, `resp.rs` | a protocol each: requests, replies, and the probes between |
//! | `store.rs` | the data: expiry, bounded memory, eviction |
//! | `server.rs` | connections and threads |
//! | `load.rs` | clients that keep the server busy, some of them slow |
//!
//! Prints nothing and reads no arguments; the `nopal` command runs it as a child process of its own.
#![forbid(unsafe_code)]

mod load;
mod memcached;
pub mod probes;
mod random;
mod resp;
mod server;
mod store;

pub use load::run_load;
pub use server::Server;

use std::io::Read;

/// Ends this process as soon as standard input does, which is when the process that holds its other end is gone,
/// however it went.
pub fn end_with_standard_input() {
    std::thread::spawn(|| {
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|n| n > 0) {}
        std::process::exit(0);
    });
}

/// Fires the probe of `nopal doctor --self-test` once.
pub fn fire_self_test(number: u64) {
    probes::nopal_self_test::fired::lazy(|probe| {
        // A number has no zero bytes.
        let text = std::ffi::CString::new(format!("hit {number}")).unwrap_or_default();
        probe.fire(number, &text);
    });
}
