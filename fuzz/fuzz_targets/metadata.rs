//! The metadata of a recording, TSDL of CTF 1.8 or fragments of CTF 2, as text or in packets: read, or refused with a place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_trace::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    match std::str::from_utf8(bytes) {
        Ok(text) => _ = fuzzing::metadata(text),
        Err(_) => _ = fuzzing::packed_metadata(bytes),
    }
});
