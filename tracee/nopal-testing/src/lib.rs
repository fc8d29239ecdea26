//! A project's own tests assert on its probes: how often they come, in which order, with which values. Needs no root.
//!
//! ```no_run
//! # fn sell(id: u64, customer: &str) { nopal::probe!(shop, sale, id, customer); }
//! #[test]
//! fn a_sale_is_seen() {
//!     let hits = nopal_testing::listen(&["shop:*"], || sell(7, "Ada"));
//!     hits.assert_count("shop:sale", 1);
//!     hits.assert_values("shop:sale", "arg0", [7]);
//! }
//! ```
//!
//! [`listen`] has the command `nopal` trace this process, and those it starts, until the block ends; a [`Listener`] may
//! listen to another one, such as a server that the test has started. The command is found in `PATH`, or named by
//! `NOPAL_COMMAND`.
//!
//! What was not seen cannot be asserted on: if events were lost or a site could not be opened, listening fails.
//!
//! Tests that run in parallel listen one after the other and see each other's hits: [`Hits::on_this_thread`] keeps those of
//! the thread that asks.

mod command;
mod hits;

pub use command::{Error, Listener};
pub use hits::{Count, Hit, Hits};
pub use serde_json::Value;

/// Runs a block and gives the hits of these probes meanwhile. Panics with a reason where that cannot be done.
///
/// Probes are named as `provider:name`, with `*` and `?`.
#[track_caller]
pub fn listen(probes: &[&str], block: impl FnOnce()) -> Hits {
    match Listener::new(probes).run(block) {
        Ok(hits) => hits,
        Err(error) => panic!("{error}"),
    }
}
