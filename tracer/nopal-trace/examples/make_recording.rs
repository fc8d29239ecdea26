//! Writes a recording with `COUNT` events of (u64, u64) on two CPUs into `DIR`: something to measure readers with.
//! `cargo run --release -p nopal-trace --example make_recording -- DIR COUNT`

use nopal_trace::{EventType, Recording, RecordingInfo, Type};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(dir), Some(count)) = (args.next(), args.next()) else {
        return Err("usage: make_recording DIR COUNT".into());
    };
    let count: u64 = count.to_string_lossy().parse()?;
    let mut writer = Recording::create(&PathBuf::from(dir), RecordingInfo::of_this_host())?;
    let ty = EventType::new("bench", "pair")
        .field("first", Type::unsigned(64))
        .field("second", Type::unsigned(64));
    let ty = writer.add_event_type(ty)?;
    let mut streams = [writer.stream(0)?, writer.stream(1)?];
    let mut now = nopal_trace::clock::monotonic_ns();
    for n in 0..count {
        now += 150 + n % 97;
        // Threads stay on a CPU for a while, so the CPUs take turns.
        let stream = &mut streams[(n / 5_000 % 2) as usize];
        let mut payload = [0; 16];
        payload[..8].copy_from_slice(&n.to_le_bytes());
        payload[8..].copy_from_slice(&(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 64)).to_le_bytes());
        stream.append(ty, now, &[], &payload)?;
    }
    for stream in streams {
        stream.finish()?;
    }
    Ok(())
}
