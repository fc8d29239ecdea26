//! Turns shop.d into a Rust module.

fn main() {
    nopal_provider::build::rust_module("shop.d");
}
