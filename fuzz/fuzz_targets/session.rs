//! A session as a file: whatever it says, it is read or refused, and what was read is written as a file that says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_session::SessionConfig;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(config) = SessionConfig::from_toml(text) {
        let again = SessionConfig::from_toml(&config.to_toml()).expect("what nopal writes it can read");
        assert_eq!(again, config);
    }
});
