//! Recordings made by the library: babeltrace2 reads them without a word of complaint, and `nopal view` prints the same
//! lines. Also what happens to recordings that are cut short, damaged, or lose events.

use nopal_tests::{nopal, scratch};
use nopal_trace::{
    ByteOrder, EnvValue, EventType, Field, Integer, Range, Recording, RecordingInfo, RecordingWriter, Type,
};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

pub(super) const START_NS: u64 = 5_000_000_000;

pub(super) fn info() -> RecordingInfo {
    let mut info = RecordingInfo::of_this_host();
    info.hostname = "lab".to_owned();
    info.clock_offset_ns = 1_794_710_000_000_000_000;
    info.env("program", EnvValue::Text("a \"quoted\" \\ program".to_owned()))
        .env("pid", EnvValue::Number(4242))
}

pub(super) fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// What babeltrace2 prints; it must have nothing to complain about.
#[track_caller]
fn babeltrace(dir: &Path, options: &[&str]) -> Vec<u8> {
    let out = output(Command::new("babeltrace2").args(options).arg(dir));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "babeltrace2 complains");
    out.stdout
}

#[track_caller]
pub(super) fn view(dir: &Path, options: &[&str]) -> Output {
    let out = output(Command::new(nopal()).arg("view").arg(dir).args(options));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Both readers print the same lines, `count` of them.
#[track_caller]
fn same_lines(dir: &Path, count: usize) -> String {
    let ours = view(dir, &[]);
    let theirs = babeltrace(dir, &[]);
    for (line, (a, b)) in ours.stdout.split(|b| *b == b'\n').zip(theirs.split(|b| *b == b'\n')).enumerate() {
        assert_eq!(String::from_utf8_lossy(a), String::from_utf8_lossy(b), "line {}", line + 1);
    }
    assert!(ours.stdout == theirs, "one of the two prints more");
    assert_eq!(ours.stdout.iter().filter(|b| **b == b'\n').count(), count);
    String::from_utf8_lossy(&ours.stdout).into_owned()
}

/// A recording with events of every field type the writer has.
pub(super) fn write_every_type(writer: &mut RecordingWriter) -> usize {
    let mut count = 0;
    let mut stream = writer.stream(1).unwrap();
    let mut now = START_NS;
    let mut tick = || {
        now += 1_234;
        now
    };

    let integer = |bits, is_signed, base, order: Option<ByteOrder>| {
        let integer = Integer::new(bits, is_signed).base(base);
        Type::Integer(order.map_or(integer.clone(), |order| integer.order(order)))
    };
    let mut ints = EventType::new("every", "ints").log_level(6);
    for bits in [8, 16, 32, 64] {
        for is_signed in [false, true] {
            for base in [10, 16, 8, 2] {
                for order in [None, Some(ByteOrder::Big)] {
                    let name = format!("i{bits}_{is_signed}_{base}_{}", order.is_some());
                    ints = ints.field(&name, integer(bits, is_signed, base, order));
                }
            }
        }
    }
    let ints = writer.add_event_type(ints).unwrap();
    for value in [0, 1, 7, 8, 127, 128, 255, 256, 65535, 1 << 31, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef] {
        stream
            .append_with(ints, tick(), &[], |out| {
                for bits in [8, 16, 32, 64] {
                    for _ in 0..8 {
                        out.unsigned(bits, value).big(bits, value);
                    }
                }
            })
            .unwrap();
        count += 1;
    }

    let floats = EventType::new("every", "floats").field("f", Type::float(32)).field("d", Type::float(64));
    let floats = writer.add_event_type(floats).unwrap();
    for value in [0.0, -0.0, 1.5, 1e10, 123456.789, -1e-7, 1e300, 5e-324, f64::NAN, f64::INFINITY, 999_999.5]
    {
        stream
            .append_with(floats, tick(), &[], |out| {
                out.float32(value as f32).float64(value);
            })
            .unwrap();
        count += 1;
    }

    let texts = EventType::new("every", "texts")
        .field("s", Type::String)
        .field("t", Type::text(6))
        .field("struct", Type::String)
        .field("odd name!", Type::String);
    let texts = writer.add_event_type(texts).unwrap();
    for text in [
        &b""[..],
        b"plain",
        b"q\"b\\",
        b"it's?",
        b"\n\t\r\x07\x08\x0b\x0c\x1b\x01\x7f",
        "caf\u{e9} \u{20ac}".as_bytes(),
        b"\xff\xfe bad",
        b"cut\0here",
    ] {
        stream
            .append_with(texts, tick(), &[], |out| {
                out.string(text).text(6, text).string(b"keyword").string(b"odd");
            })
            .unwrap();
        count += 1;
    }

    let lists = EventType::new("every", "lists")
        .field("array", Type::array(Type::signed(16), 3))
        .field("grid", Type::array(Type::array(Type::unsigned(8), 2), 2))
        .field("sequence", Type::sequence(Type::hex(32)))
        .field("blob", Type::bytes())
        .field("words", Type::sequence(Type::String))
        .field("pair", Type::array(Type::String, 2))
        .field("floats", Type::sequence(Type::float(64)));
    let lists = writer.add_event_type(lists).unwrap();
    for n in 0..4u32 {
        stream
            .append_with(lists, tick(), &[], |out| {
                out.signed(16, -1).signed(16, 0).signed(16, 1).raw(&[1, 2, 3, 4]);
                out.count(n);
                for i in 0..n {
                    out.unsigned(32, u64::from(i) << 28);
                }
                out.bytes(&vec![0xab; n as usize]).count(n);
                for _ in 0..n {
                    out.string(b"w");
                }
                out.string(b"left").string(b"right").count(n);
                for i in 0..n {
                    out.float64(f64::from(i) / 3.0);
                }
            })
            .unwrap();
        count += 1;
    }

    let kind = [("SOCKET", 0, 0), ("RANGE", 10, 20), ("in range", 15, 15), ("isn't it?", -3, -2)];
    let inner = vec![Field::new("x", Type::unsigned(8)), Field::new("name", Type::String)];
    let mixed = EventType::new("every", "mixed")
        .field("kind", Type::enumeration(Integer::new(32, true), kind))
        .field("hex", Type::enumeration(Integer::new(8, false).base(16), [("A", 0, 200)]))
        .field("yes", Type::bool())
        .field("inner", Type::structure(inner))
        .field("empty", Type::structure(Vec::new()))
        .field("bools", Type::sequence(Type::bool()));
    let mixed = writer.add_event_type(mixed).unwrap();
    for value in [-4, -3, 0, 1, 9, 10, 15, 20, 21] {
        stream
            .append_with(mixed, tick(), &[], |out| {
                out.signed(32, value).signed(8, value).bool(value > 0).unsigned(8, 7).string(b"inside");
                out.count(2).bool(true).bool(false);
            })
            .unwrap();
        count += 1;
    }

    let none = writer.add_event_type(EventType::new("every", "none")).unwrap();
    stream.append(none, tick(), &[], &[]).unwrap();
    stream.finish().unwrap();
    count + 1
}

#[test]
fn every_field_type_reads_the_same_in_babeltrace2() {
    let dir = scratch("recording-types");
    let mut writer = Recording::create(&dir, info()).unwrap();
    let count = write_every_type(&mut writer);
    let text = same_lines(&dir, count);
    assert!(
        text.contains("lab every:mixed: { cpu_id = 1 }, { kind = ( \"SOCKET\" : container = 0 )"),
        "{text}"
    );
    for (ours, theirs) in [
        (&["--date"][..], &["--clock-date"][..]),
        (&["--seconds"], &["--clock-seconds"]),
        (&["--utc", "--date"], &["--clock-gmt", "--clock-date"]),
        (&["--no-delta"], &["--no-delta"]),
    ] {
        assert!(view(&dir, ours).stdout == babeltrace(&dir, theirs), "{ours:?}");
    }
}

#[test]
fn times_are_local_and_follow_the_zone() {
    let dir = scratch("recording-zone");
    let mut writer = Recording::create(&dir, info()).unwrap();
    write_every_type(&mut writer);
    let in_zone = |program: &Path, verb: &[&str], zone: &str| {
        output(Command::new(program).args(verb).arg(&dir).env("TZ", zone)).stdout
    };
    let (ours, theirs) =
        (in_zone(nopal(), &["view"], "Asia/Tokyo"), in_zone("babeltrace2".as_ref(), &[], "Asia/Tokyo"));
    assert!(ours == theirs);
    assert!(ours != in_zone(nopal(), &["view"], "UTC0"));
}

#[test]
fn streams_are_merged_by_time_with_gaps_of_any_length_and_many_event_types() {
    // Gaps across the 27 and 32 bits of the short headers, ids beyond the compact ones, both header forms.
    for n_types in [3, 40] {
        let dir = scratch(&format!("recording-merge-{n_types}"));
        let mut info = info();
        info.n_event_types = if n_types > 31 { n_types } else { 0 };
        info.packet_bytes = 4096;
        let info = info.context("vpid", Type::signed(32)).context("procname", Type::text(17));
        let mut writer = Recording::create(&dir, info).unwrap();
        let types: Vec<_> = (0..n_types.max(35))
            .map(|i| {
                let ty = EventType::new("merge", format!("e{i}")).field("n", Type::unsigned(64));
                writer.add_event_type(ty).unwrap()
            })
            .collect();
        let mut streams: Vec<_> = (0..3).map(|cpu| writer.stream(cpu).unwrap()).collect();
        let mut now = START_NS;
        let mut context = 77i32.to_le_bytes().to_vec();
        context.extend_from_slice(b"program\0\0\0\0\0\0\0\0\0\0");
        let gaps = [1, 999, 1 << 20, (1 << 27) - 1, 1 << 27, (1 << 27) + 1, 1 << 32, 1 << 33, 3];
        let count = 2_000;
        for n in 0..count {
            now += gaps[(n * 7 % gaps.len() as u64) as usize];
            let stream = &mut streams[(n * n % 3) as usize];
            stream.append(types[(n % types.len() as u64) as usize], now, &context, &n.to_le_bytes()).unwrap();
            if n % 500 == 0 {
                stream.flush(now).unwrap();
            }
        }
        drop(streams);
        let text = same_lines(&dir, count as usize);
        assert!(text.contains("{ vpid = 77, procname = \"program\" }, { n = 1999 }"), "{n_types}");
        assert!(fs::read_dir(dir.join("index")).unwrap().count() >= 2);
        // The index says where each packet is: LTTng's own reader of it is the relay, so its bytes are checked here.
        let index = fs::read(dir.join("index/channel0_1.idx")).unwrap();
        let stream = fs::read(dir.join("channel0_1")).unwrap();
        assert_eq!(index[..16], [0xc1, 0xf1, 0xdc, 0xc1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 72]);
        let mut end = 0;
        for entry in index[16..].chunks(72) {
            let field = |i: usize| u64::from_be_bytes(entry[i * 8..i * 8 + 8].try_into().unwrap());
            assert_eq!(field(0), end, "packets lie one after the other");
            let at = end as usize;
            assert_eq!(stream[at..at + 4], 0xc1fc_1fc1u32.to_le_bytes());
            let in_packet =
                |offset: usize| u64::from_le_bytes(stream[at + offset..at + offset + 8].try_into().unwrap());
            assert_eq!([field(3), field(4)], [in_packet(32), in_packet(40)]);
            end += field(1) / 8;
        }
        assert_eq!(end, stream.len() as u64);
    }
}

#[test]
fn an_event_takes_no_more_bytes_than_lttngs() {
    // LTTng 2.13 with its default channel: 22.0 bytes for two u64, 35.0 for a string of 20 bytes and a u64.
    let fields = |is_string: bool| {
        let ty = EventType::new("size", "of");
        let ty = if is_string { ty.field("s", Type::String) } else { ty.field("a", Type::unsigned(64)) };
        ty.field("b", Type::unsigned(64))
    };
    for (is_string, n_types, most) in
        [(false, 0, 22.0), (true, 0, 35.0), (false, 100, 22.1), (true, 100, 35.1)]
    {
        let dir = scratch(&format!("recording-size-{is_string}-{n_types}"));
        let mut info = info();
        info.n_event_types = n_types;
        let mut writer = Recording::create(&dir, info).unwrap();
        let ty = writer.add_event_type(fields(is_string)).unwrap();
        let mut stream = writer.stream(0).unwrap();
        let payload: &[u8] = if is_string { b"twenty bytes of text\0\x01\0\0\0\0\0\0\0" } else { &[7; 16] };
        let count = 100_000u64;
        for n in 0..count {
            stream.append(ty, START_NS + n * 100, &[], payload).unwrap();
        }
        stream.finish().unwrap();
        let bytes = fs::metadata(dir.join("channel0_0")).unwrap().len();
        let per_event = bytes as f64 / count as f64;
        assert!(per_event <= most, "{per_event} bytes an event, at most {most}");
    }
}

#[test]
fn losses_are_stated_with_their_span() {
    let dir = scratch("recording-loss");
    let mut writer = Recording::create(&dir, info()).unwrap();
    let ty = writer.add_event_type(EventType::new("p", "n").field("a", Type::unsigned(8))).unwrap();
    let mut stream = writer.stream(2).unwrap();
    stream.append(ty, START_NS, &[], &[1]).unwrap();
    stream.discarded(17, START_NS + 1_000..START_NS + 9_000).unwrap();
    stream.append(ty, START_NS + 10_000, &[], &[2]).unwrap();
    stream.discarded(3, START_NS + 20_000..START_NS + 30_000).unwrap();
    stream.finish().unwrap();

    let out = view(&dir, &["--utc"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("2 events; lost 20 events in 2 gaps"), "{said}");
    let span =
        "17 events between [2026-11-15 02:33:25.000001000] and [2026-11-15 02:33:25.000009000] on cpu 2";
    assert!(said.contains(span), "{said}");

    let theirs = output(Command::new("babeltrace2").arg("--clock-gmt").arg(&dir));
    let said = String::from_utf8_lossy(&theirs.stderr);
    assert!(theirs.status.success());
    assert!(
        said.contains("Tracer discarded 17 events between [02:33:25.000001000] and [02:33:25.000009000]"),
        "{said}"
    );
    assert!(said.contains("Tracer discarded 3 events"), "{said}");
    let ours = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(ours, String::from_utf8_lossy(&theirs.stdout));

    let json = view(&dir, &["--count", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["complete"], &json["lost"], &json["total"]), (&false.into(), &20.into(), &2.into()));
}

#[test]
fn numbers_of_the_metadata_may_have_a_sign() {
    let dir = scratch("recording-signs");
    let mut writer = Recording::create(&dir, info()).unwrap();
    let count = write_every_type(&mut writer);
    drop(writer);
    let metadata = fs::read_to_string(dir.join("metadata")).unwrap();
    assert!(metadata.contains("freq = 1") && metadata.contains("tracer_minor = "));
    let signed = metadata.replace("freq = 1", "freq = +1").replace("tracer_minor = ", "tracer_minor = +");
    fs::write(dir.join("metadata"), signed).unwrap();
    same_lines(&dir, count);
}

/// Cuts the stream file at every byte: what is read is always a prefix, up to the last whole packet.
#[test]
fn a_recording_cut_short_is_read_up_to_its_last_whole_packet() {
    let dir = scratch("recording-cut");
    let mut writer = Recording::create(&dir, info()).unwrap();
    let ty = writer.add_event_type(EventType::new("p", "n").field("a", Type::unsigned(64))).unwrap();
    let mut stream = writer.stream(0).unwrap();
    for n in 0..20u64 {
        stream.append(ty, START_NS + n, &[], &n.to_le_bytes()).unwrap();
        if n % 4 == 3 {
            stream.flush(START_NS + n).unwrap();
        }
    }
    stream.finish().unwrap();
    let path = dir.join("channel0_0");
    let whole = fs::read(&path).unwrap();
    let packet = whole.len() / 5;
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let recording = Recording::open(&dir).unwrap();
        let mut events = recording.events(Range::default()).unwrap();
        let mut count = 0;
        while events.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, cut / packet * 4, "cut at byte {cut}");
        assert_eq!(events.report().is_truncated, cut % packet != 0, "cut at byte {cut}");
    }
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let out = output(Command::new(nopal()).arg("view").arg(&dir));
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        said.contains("the file ends within this packet") && said.contains("16 events, not complete"),
        "{said}"
    );
}

/// A full disk is an error, and what was written before it stays readable.
#[test]
fn a_full_disk_leaves_a_valid_recording() {
    let dir = scratch("recording-full");
    // RLIMIT_FSIZE gives the same failure as a full disk, without one; the child is this test binary itself.
    if std::env::var_os("NOPAL_TEST_FULL_DISK").is_some() {
        return fill_the_disk(&dir);
    }
    let test = std::env::current_exe().unwrap();
    let out = output(
        Command::new(test)
            .args([
                "--exact",
                &nopal_tests::test_name(module_path!(), "a_full_disk_leaves_a_valid_recording"),
            ])
            .arg("--nocapture")
            .env("NOPAL_TEST_FULL_DISK", "1"),
    );
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let n_whole = (100_000 - 84) / (84 + 400 * 12) * 400;
    let text = String::from_utf8_lossy(&out.stdout);
    let n_kept: usize =
        text.split("kept ").nth(1).and_then(|t| t.split(' ').next()).unwrap().parse().unwrap();
    assert!(n_kept >= n_whole, "{n_kept} of at least {n_whole}");
    same_lines(&dir, n_kept);
}

fn fill_the_disk(dir: &Path) {
    let limit = libc::rlimit { rlim_cur: 100_000, rlim_max: 100_000 };
    // SAFETY: SIGXFSZ is ignored so that the limit is an error code; both calls take valid arguments.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    let mut info = info();
    info.packet_bytes = 4096;
    let mut writer = Recording::create(dir, info).unwrap();
    let ty = writer.add_event_type(EventType::new("p", "n").field("a", Type::unsigned(64))).unwrap();
    let mut stream = writer.stream(0).unwrap();
    let (mut n_kept, mut n_waiting) = (0, 0);
    for n in 0..100_000u64 {
        let before = stream.bytes_written();
        match stream.append(ty, START_NS + n, &[], &n.to_le_bytes()) {
            Ok(()) => n_waiting += 1,
            Err(e) => {
                assert!(e.is_disk_full(), "{e}");
                assert_eq!(stream.events_discarded(), n_waiting + 1);
                break;
            }
        }
        if stream.bytes_written() > before {
            n_kept += n_waiting - 1;
            n_waiting = 1;
        }
    }
    assert!(n_kept > 0 && n_waiting > 1);
    assert!(stream.bytes_written() <= 100_000);
    std::mem::forget(stream);
    println!("kept {n_kept} events");
}

/// Flips bytes of a small recording with every type: reading always ends, without a panic and in bounded memory.
#[test]
fn damaged_recordings_are_refused_or_read_never_feared() {
    let dir = scratch("recording-damage");
    let mut writer = Recording::create(&dir, info()).unwrap();
    write_every_type(&mut writer);
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let read = || -> Result<u64, nopal_trace::Error> {
        let recording = Recording::open(&dir)?;
        let mut events = recording.events(Range::default())?;
        let mut lines = nopal_trace::TextLines::new(nopal_trace::TextForm::default());
        let mut json = nopal_trace::JsonLines::new(true);
        let (mut out, mut count) = (Vec::new(), 0);
        while let Some(event) = events.next()? {
            out.clear();
            let _ = nopal_trace::Lines::print(&mut lines, &event, &mut out);
            let _ = nopal_trace::Lines::print(&mut json, &event, &mut out);
            count += 1;
        }
        Ok(count)
    };
    let whole = read().unwrap();
    let mut n_refused = 0;
    for file in ["channel0_1", "metadata"] {
        let path = dir.join(file);
        let good = fs::read(&path).unwrap();
        for _ in 0..1_500 {
            let mut bad = good.clone();
            for _ in 0..1 + random() % 4 {
                let at = (random() % bad.len() as u64) as usize;
                bad[at] = if random() % 2 == 0 { random() as u8 } else { bad[at] ^ (1 << (random() % 8)) };
            }
            if random() % 8 == 0 {
                bad.truncate((random() % good.len() as u64) as usize);
            }
            fs::write(&path, &bad).unwrap();
            match read() {
                // An event takes a bit at least.
                Ok(count) => assert!(count <= 8 * fs::metadata(dir.join("channel0_1")).unwrap().len()),
                Err(_) => n_refused += 1,
            }
        }
        fs::write(&path, &good).unwrap();
    }
    assert_eq!(read().unwrap(), whole);
    assert!(n_refused > 100, "damaged metadata is noticed: {n_refused}");
}

#[test]
fn a_hit_that_does_not_fit_its_type_is_refused_and_leaves_no_trace() {
    let dir = scratch("recording-misfit");
    let mut writer = Recording::create(&dir, info()).unwrap();
    let ty = EventType::new("p", "n").field("s", Type::String).field("q", Type::bytes());
    let ty = writer.add_event_type(ty).unwrap();
    let mut stream = writer.stream(0).unwrap();
    stream.append(ty, START_NS, &[], b"ok\0\x01\0\0\0x").unwrap();
    for bad in [&b""[..], b"no end", b"ok\0\x02\0\0\0x", b"ok\0\x01\0\0\0xy", b"ok\0\xff\xff\xff\xff"] {
        let e = stream.append(ty, START_NS + 1, &[], bad).unwrap_err();
        assert!(e.to_string().contains("p:n"), "{e}");
    }
    stream.append(ty, START_NS + 1, b"stray context", b"ok\0\0\0\0\0").unwrap_err();
    stream.append(nopal_trace::TypeId(9), START_NS, &[], b"").unwrap_err();
    stream.append(ty, START_NS + 2, &[], b"end\0\0\0\0\0").unwrap();
    stream.finish().unwrap();
    same_lines(&dir, 2);
    let e = Recording::create(&dir, info()).unwrap_err();
    assert!(e.to_string().contains("already holds a recording"), "{e}");
}
