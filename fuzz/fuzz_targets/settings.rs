//! Files that people write and others hand on, in TOML: spans (`--spans`) and the configuration of `nopal serve`. The first
//! byte says which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_serve::Config;
use nopal_spans::{Source, file};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match which % 2 {
        0 => match file::parse(text, &Source::File("a.toml".to_owned())) {
            Ok(spans) => assert!(spans.len() <= text.len()),
            Err(error) => assert!(!error.to_string().is_empty()),
        },
        _ => match Config::parse(text) {
            Ok(config) => assert!(!config.targets.is_empty()),
            Err(error) => assert!(!error.to_string().is_empty()),
        },
    }
});
