//! A shop with the probes of shop.d. Run it, and look at it meanwhile:
//!
//! ```text
//! cargo run --release &
//! nopal list target/release/rust-build-d
//! nopal trace -p $! 'shop:*'
//! ```
#![forbid(unsafe_code)]

include!(concat!(env!("OUT_DIR"), "/shop.rs"));

fn main() {
    let n_orders = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(i32::MAX);
    nopal::allow_tracing();
    for id in 0..n_orders {
        shop::order__start(id, c"alice");
        // The price takes time to find, so it is looked up only if somebody wants to know.
        shop::order__done::lazy(|probe| probe.fire(id, price_of(id)));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn price_of(id: i32) -> u64 {
    (0..=id as u64).sum()
}
