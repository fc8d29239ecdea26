//! The `.d` language: whatever the text, it is parsed or refused with a place.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = nopal_provider::parse("fuzz.d", text) {
        assert!(!error.diagnostics.is_empty());
    }
});
