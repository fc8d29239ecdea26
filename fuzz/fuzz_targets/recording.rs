//! A recording that anybody may have made: metadata, a stream with its index, the verdict and the table of tasks. Whatever
//! they hold, the reader opens and prints it or says why not, and memory stays bounded.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use libfuzzer_sys::fuzz_target;
use nopal_trace::{
    EventType, JsonLines, Range, Recording, RecordingInfo, Selection, TextForm, TextLines, Type, print,
};

/// Between the files of one input.
const MARK: &[u8] = b"\n%%\n";
/// Below the folder of the recording.
const FILES: [&str; 5] = ["metadata", "channel0_0", "index/channel0_0.idx", "nopal/verdict", "nopal/tasks"];

/// A folder in memory, with metadata of ours for inputs that have none.
fn folder() -> &'static (PathBuf, Vec<u8>) {
    static FOLDER: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let dir = PathBuf::from(format!("/dev/shm/nopal-fuzz-{}", std::process::id()));
        let mut info = RecordingInfo::of_this_host().context("vpid", Type::unsigned(32));
        info.clock_offset_ns = 0;
        let mut writer = Recording::create(&dir.join("ours"), info).unwrap();
        let event = EventType::new("p", "n").field("a", Type::unsigned(64)).field("s", Type::String);
        writer.add_event_type(event).unwrap();
        let metadata = fs::read(dir.join("ours/metadata")).unwrap();
        for below in ["rec/index", "rec/nopal"] {
            fs::create_dir_all(dir.join(below)).unwrap();
        }
        (dir.join("rec"), metadata)
    })
}

fn parts(mut data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some(at) = data.windows(MARK.len()).position(|window| window == MARK) {
        parts.push(&data[..at]);
        data = &data[at + MARK.len()..];
    }
    parts.push(data);
    parts
}

fuzz_target!(|data: &[u8]| {
    let (dir, ours) = folder();
    let mut given = parts(data).into_iter();
    for (i, name) in FILES.iter().enumerate() {
        let bytes = match given.next() {
            Some([]) | None if i == 0 => ours.as_slice(),
            Some(bytes) => bytes,
            None => &[],
        };
        fs::write(dir.join(name), bytes).unwrap();
    }
    let Ok(recording) = Recording::open(dir) else { return };
    let stop = AtomicBool::new(false);
    let mut out = Vec::new();
    let selection = Selection { limit: Some(1000), ..Selection::default() };
    let _ = print(&recording, &selection, || TextLines::new(TextForm::default()), &mut out, &stop);
    let _ = print(&recording, &selection, || JsonLines::new(true), &mut out, &stop);
    if let Ok(counts) = recording.count(Range::default(), |_| true, &stop) {
        assert!(counts.report.verdict.is_complete() <= (counts.report.verdict.n_all_lost() == 0));
    }
});
