//! A ring as a hostile program may leave it: whatever its heads and bytes, the reader comes to an end, and what it hands
//! out lies inside what was there.
#![no_main]

use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use nopal_abi::ring::{Mode, STATE_SHIFT};
use nopal_capture::Capture;
use nopal_capture::record::{RecordLayout, RecordView};
use nopal_sdt::operand::{Arch, parse};
use nopal_user::consumer::Reader;
use nopal_user::ring::{RingConfig, RingLayout, RingMemory, memfd};

struct Target {
    file: std::fs::File,
    ring: Arc<RingMemory>,
    layout: RecordLayout,
}

fn target() -> &'static [Target; 2] {
    static TARGET: OnceLock<[Target; 2]> = OnceLock::new();
    TARGET.get_or_init(|| {
        [Mode::Discard, Mode::Overwrite].map(|mode| {
            let file = memfd(c"nopal-fuzz").unwrap();
            let mut config = RingConfig::new(1);
            config.mode = mode;
            (config.ring_bytes, config.sub_bytes) = (8 << 10, 4 << 10);
            (config.locked_ring_bytes, config.locked_sub_bytes) = (8 << 10, 4 << 10);
            let ring = Arc::new(RingMemory::format(&file, &config).unwrap());
            let operand = |text| parse(Arch::X86_64, text).unwrap();
            let captures = [
                Capture::Value { operand: operand("-2@%rax") },
                Capture::CString { pointer: operand("8@%rdi"), max_bytes: 64, is_trusted: false },
                Capture::CString { pointer: operand("8@%rsi"), max_bytes: 64, is_trusted: false },
                Capture::Value { operand: operand("8f@%rax") },
            ];
            let layout = RecordLayout::new(&captures, true, true);
            Target { file: std::fs::File::from(file), ring, layout }
        })
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((heads, bytes)) = data.split_at_checked(17) else { return };
    let target = &target()[usize::from(heads[0] & 1)];
    let plan: RingLayout = *target.ring.layout();
    let bytes = &bytes[..bytes.len().min(16 << 10)];
    target.file.write_all_at(bytes, plan.rseq.offset).unwrap();
    target.file.write_all_at(bytes, plan.locked.offset).unwrap();
    for (i, head) in [&heads[1..9], &heads[9..17]].into_iter().enumerate() {
        let state = plan.states_offset + ((i as u64) << STATE_SHIFT);
        target.file.write_all_at(head, state).unwrap();
        target.file.write_all_at(&[0; 8], state + 128).unwrap();
    }
    let mut reader = Reader::of_one(target.ring.clone());
    let mut n_bytes = 0;
    let mut look = |_, view: RecordView<'_>| {
        n_bytes += 8 + view.payload.len();
        for value in target.layout.values(view.payload) {
            let _ = value;
        }
        assert!(view.comm().len() <= 3 * 16);
    };
    reader.poll(&mut look);
    reader.snapshot(&mut look);
    assert!(n_bytes <= 3 * (8 << 10));
});
