//! Code of a function as it may stand in any file: decoded, and its entry and exits found, in two pieces with something
//! behind them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_functions::{Body, Stretch, stack_check_len};

const ADDRESS: u64 = 0x1000;
const COLD: u64 = 0x8000;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[n_main, n_behind, n_unowned, is_split], code)) = bytes.split_first_chunk() else { return };
    let _ = stack_check_len(code);
    let (main, rest) = code.split_at(code.len().min(usize::from(n_main)));
    let (behind, cold) = rest.split_at(rest.len().min(usize::from(n_behind % 32)));
    let n_unowned = usize::from(n_unowned).min(behind.len());
    let mut stretches = vec![Stretch { address: ADDRESS, code: main, behind, n_unowned }];
    if is_split % 2 == 0 && !cold.is_empty() {
        stretches.push(Stretch { address: COLD, code: cold, behind: &[], n_unowned: 0 });
    }
    let Ok(body) = Body::new(stretches) else { return };
    assert_eq!(body.entry(), ADDRESS);
    let ranges: Vec<(u64, u64)> = body.stretches().collect();
    let is_inside = |address: u64| ranges.iter().any(|(start, end)| (*start..*end).contains(&address));
    assert!(body.outward().iter().all(|out| is_inside(out.address)));
    let entry = body.entry_edge(0);
    assert!(entry.line_len <= entry.code.len());
    if let Ok(exits) = body.exits() {
        assert!(exits.iter().all(|exit| is_inside(exit.address)));
    }
});
