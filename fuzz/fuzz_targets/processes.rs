//! What the kernel tells of processes, with the names and paths that they chose: maps, records of perf events, pages of
//! tracefs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_capture::Capture;
use nopal_kernel::ftrace;
use nopal_proc::{parse_maps, perf_events};
use nopal_sdt::operand::{Arch, parse};
use nopal_user::maps::Maps;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 3 {
        0 => maps(bytes),
        1 => _ = perf_events::parse_record(bytes),
        _ => page(bytes),
    }
});

fn maps(bytes: &[u8]) {
    let read = parse_maps(bytes);
    assert!(read.len() <= bytes.len());
    let maps = Maps::parse(&String::from_utf8_lossy(bytes));
    for (start, len) in [(0, 4096), (0x7000, 0x2000), (u64::MAX - 4096, 4096)] {
        let _ = (maps.find(start), maps.is_free(start, len));
        let _ = maps.gaps(start, start.saturating_add(len));
    }
}

fn page(bytes: &[u8]) {
    let operand = |text| parse(Arch::X86_64, text).unwrap();
    let captures = [
        Capture::Value { operand: operand("-4@%edi") },
        Capture::CString { pointer: operand("8@%rsi"), max_bytes: 16, is_trusted: false },
        Capture::Value { operand: operand("8@%rdx") },
    ];
    let payloads = ftrace::payloads(bytes, &captures, 16);
    assert!(payloads.len() <= bytes.len() / 4);
    assert!(payloads.iter().all(|payload| payload.len() <= 4 + 4 + 8 + 16));
}
