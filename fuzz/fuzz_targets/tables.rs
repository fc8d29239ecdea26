//! The small files beside a recording's streams: index, verdict, tasks and code. The first byte says which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_trace::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let text = || std::str::from_utf8(bytes).unwrap_or_default();
    match which % 4 {
        0 => assert!(fuzzing::index(bytes) <= bytes.len() / 16),
        1 => {
            if let Some(verdict) = fuzzing::verdict(text()) {
                assert!(verdict.gaps.len() <= bytes.len());
                assert!(!verdict.is_complete() || verdict.n_all_lost() == 0);
            }
        }
        2 => _ = fuzzing::tasks(text()).get((1, 1)),
        _ => {
            let code = fuzzing::code(bytes);
            for address in [0, 0x1000, 0x7f00_0000_1000, u64::MAX] {
                let found = code.at(1, i64::MAX, address);
                assert!(found.is_none_or(|code| (code.start..code.end).contains(&address)));
                let _ = code.always_at(1, address);
            }
        }
    }
});
