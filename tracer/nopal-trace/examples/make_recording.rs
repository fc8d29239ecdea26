//! Writes a recording with `COUNT` events on two CPUs into `DIR`: something to measure readers with. The events are of (u64, u64); with
//! `spans` they are the begins and ends of requests, each with a step within it, of eight threads.
//! `cargo run --release -p nopal-trace --example make_recording -- DIR COUNT [spans]`

use nopal_trace::{EventType, Payload, Recording, RecordingInfo, RecordingWriter, Type};
use std::path::PathBuf;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args_os().skip(1);
    let (Some(dir), Some(count)) = (args.next(), args.next()) else {
        return Err("usage: make_recording DIR COUNT [spans]".into());
    };
    let (dir, count) = (PathBuf::from(dir), count.to_string_lossy().parse()?);
    match args.next().is_some_and(|what| what == "spans") {
        true => spans(&dir, count),
        false => pairs(Recording::create(&dir, RecordingInfo::of_this_host())?, count),
    }
}

fn pairs(mut writer: RecordingWriter, count: u64) -> Result<(), Failure> {
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

fn spans(dir: &std::path::Path, count: u64) -> Result<(), Failure> {
    let info = RecordingInfo::of_this_host();
    let info = info.context("vpid", Type::signed(32)).context("vtid", Type::signed(32));
    let mut writer = Recording::create(dir, info)?;
    let plain = |name: &str| EventType::new("bench", name);
    let request = plain("request__start").field("command", Type::String).field("size", Type::unsigned(32));
    let types = [
        writer.add_event_type(request)?,
        writer.add_event_type(plain("step__start"))?,
        writer.add_event_type(plain("step__done"))?,
        writer.add_event_type(plain("request__done"))?,
    ];
    let mut streams = [writer.stream(0)?, writer.stream(1)?];
    let mut now = nopal_trace::clock::monotonic_ns();
    for n in 0..count {
        let (request, part) = (n / 4, n % 4);
        now += 150 + n % 97 + request.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1000;
        let stream = &mut streams[(request / 1_000 % 2) as usize];
        let mut context = Vec::new();
        Payload::new(&mut context).unsigned(32, 1000).unsigned(32, 1000 + request / 1_000 % 8);
        let mut payload = Vec::new();
        if part == 0 {
            let command = format!("command-{}", request % 50);
            Payload::new(&mut payload).string(command.as_bytes()).unsigned(32, request % 4096);
        }
        stream.append(types[part as usize], now, &context, &payload)?;
    }
    for stream in streams {
        stream.finish()?;
    }
    Ok(())
}
