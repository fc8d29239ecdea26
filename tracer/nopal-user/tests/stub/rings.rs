//! The rings' modes, through real stubs.

use nopal_abi::ring::Mode;
use nopal_abi::stub_space::Path;
use nopal_capture::Action;
use nopal_capture::record::{RecordKind, Value};
use nopal_user::ring::{RingConfig, RingError, RingLayout, RingMemory, Set, memfd};
use nopal_user::stub::StubSpec;

use crate::harness::{Harness, Place, RSEQ_BYTES, has_rseq, hit2, record, value};

#[test]
fn overwriting_keeps_the_newest() {
    if !has_rseq() {
        return; // Locked rings do not overwrite.
    }
    let mut harness = Harness::new(|config| {
        config.mode = Mode::Overwrite;
        (config.ring_bytes, config.sub_bytes) = (64 << 10, 8 << 10);
    });
    let stub = harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let mut reader = harness.reader();
    let mut sent = 0u64;
    for round in 1..=5u64 {
        for _ in 0..round * 1_500 {
            hit2(1, sent);
            sent += 1;
        }
        let mut seen = Vec::new();
        let polled = reader.snapshot(|_, view| {
            let values: Vec<_> = stub.layout.values(view.payload).map(Result::unwrap).collect();
            let Value::Unsigned(count) = values[1] else { panic!("{values:?}") };
            seen.push(count);
        });
        assert_eq!(polled.damaged, 0);
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "none twice");
        assert_eq!(seen.last(), Some(&(sent - 1)), "the newest is there");
        // At least all sub-buffers but the one being written and the one that may be scribbled on, if one CPU had it all.
        let least = (64 - 2 * 8) * 1024 / 40;
        assert!(seen.len() as u64 >= least.min(sent), "{} of {sent}", seen.len());
    }
}

#[test]
fn a_snapshot_beside_a_writer_makes_sense() {
    if !has_rseq() {
        return;
    }
    let mut harness = Harness::new(|config| {
        config.mode = Mode::Overwrite;
        (config.ring_bytes, config.sub_bytes) = (32 << 10, 4 << 10);
    });
    let stub = harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let mut reader = harness.reader();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..2_000_000u64).for_each(|count| hit2(!count, count)));
        let mut records = 0;
        while !writer.is_finished() {
            let polled = reader.snapshot(|_, view| {
                let values: Vec<_> = stub.layout.values(view.payload).map(Result::unwrap).collect();
                let [Value::Unsigned(a), Value::Unsigned(b)] = values[..] else { panic!("{values:?}") };
                assert_eq!(a, !b, "torn");
            });
            assert_eq!(polled.damaged, 0);
            records += polled.records;
        }
        assert!(records > 0);
    });
}

#[test]
fn parts_of_a_record_are_left_out_when_not_wanted() {
    for (has_time, has_task) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
        let mut spec = record(9, vec![value("4@%edi")]);
        spec.action = Action::Record { captures: vec![value("4@%edi")], has_time, has_task };
        let stub = harness.attach(Place::TwoArguments, &spec);
        hit2(5, 6);
        let mut n = 0;
        harness.reader().poll(|_, view| {
            if view.kind == RecordKind::Process {
                return;
            }
            n += 1;
            assert_eq!((view.time.is_some(), view.task.is_some()), (has_time, has_task));
            assert_eq!(view.kind, RecordKind::Event(9));
            let values: Vec<_> = stub.layout.values(view.payload).map(Result::unwrap).collect();
            assert_eq!(values, [Value::Unsigned(5)]);
            if let Some(task) = view.task {
                // SAFETY: no arguments, no effect.
                let tid = unsafe { libc::gettid() } as u32;
                assert_eq!((task.tid, task.pid), (tid, std::process::id()));
            }
        });
        assert_eq!(n, 1);
    }
}

#[test]
fn every_path_of_the_stub_space_gives_the_record() {
    let mut harness = Harness::new(|_| {});
    let stub = harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let usual = harness.space.path();
    let offsets = (usual.rseq_offset, usual.tid_offset);
    // SAFETY: no arguments, no effect.
    let tid = unsafe { libc::gettid() } as u32;
    for (path, set, expected_tid) in [
        (Path::Locked, Set::Locked, tid),
        (Path::LockedTls, Set::Locked, tid),
        (Path::Rseq, if has_rseq() { Set::Rseq } else { Set::Locked }, tid),
        (Path::LockedSilent, Set::Locked, 0),
    ] {
        harness.space.set_path(path, offsets.0, RSEQ_BYTES, offsets.1);
        hit2(path as u64, 77);
        let mut n = 0;
        harness.reader().poll(|source, view| {
            if view.kind == RecordKind::Process {
                return;
            }
            n += 1;
            assert_eq!(source.set, set, "{path:?}");
            assert_eq!(view.task.unwrap().tid, expected_tid, "{path:?}");
            let values: Vec<_> = stub.layout.values(view.payload).map(Result::unwrap).collect();
            assert_eq!(values, [Value::Unsigned(path as u64), Value::Unsigned(77)]);
        });
        assert_eq!(n, 1, "{path:?}");
    }
    harness.space.set_path(Path::Rseq, offsets.0, RSEQ_BYTES, offsets.1);
    harness.ring.set_enabled(false);
    hit2(1, 1);
    assert_eq!(harness.reader().poll(|_, _| {}).records, 0, "disabled sessions record nothing");
}

#[test]
fn a_waiting_stub_goes_on_when_told_or_after_a_while() {
    let mut harness = Harness::new(|_| {});
    let wait = |timeout_ms| StubSpec { action: Action::Wait { timeout_ms }, ..record(6, vec![]) };
    let stub = harness.attach(Place::TwoArguments, &wait(60_000));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| hit2(1, 2));
        let mut n_turns = 0;
        while !waiting.is_finished() {
            if harness.ring.is_waited_for() {
                n_turns += 1;
                harness.ring.take_turn(harness.ring.tickets());
            }
            std::thread::yield_now();
        }
        assert_eq!((n_turns, harness.ring.tickets(), harness.ring.impatient()), (1, 1, 0));
        // A turn that is not its own does not let it go.
        let waiting = scope.spawn(|| hit2(1, 2));
        while !harness.ring.is_waited_for() {
            std::thread::yield_now();
        }
        harness.ring.take_turn(1);
        assert!(!waiting.is_finished());
        harness.ring.take_turn(2);
        waiting.join().unwrap();
    });
    harness.space.unlink(&stub);
    // A tracer that is at it is waited for longer.
    let stub = harness.attach(Place::TwoArguments, &wait(1000));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| hit2(1, 2));
        while !harness.ring.is_waited_for() {
            std::thread::yield_now();
        }
        harness.ring.begin_look(harness.ring.tickets());
        std::thread::sleep(std::time::Duration::from_millis(1500));
        assert_eq!((waiting.is_finished(), harness.ring.impatient()), (false, 0));
        harness.ring.take_turn(harness.ring.tickets());
        waiting.join().unwrap();
    });
    harness.space.unlink(&stub);
    let stub = harness.attach(Place::TwoArguments, &wait(30));
    hit2(3, 4);
    assert_eq!(harness.ring.impatient(), 1, "nobody told it, and it went on");
    // Whoever finds that many have waited in vain does not wait at all.
    harness.ring.take_turn(harness.ring.tickets());
    harness.space.unlink(&stub);
    let stub = harness.attach(Place::TwoArguments, &wait(1));
    for _ in 0..32 {
        hit2(3, 4);
    }
    harness.space.unlink(&stub);
    harness.attach(Place::TwoArguments, &wait(600_000));
    hit2(3, 4);
    assert_eq!((harness.ring.tickets(), harness.ring.impatient()), (3 + 1 + 33, 1 + 33));
}

#[test]
fn several_long_strings_fit_a_ring_that_is_not_small() {
    for (ring_bytes, n_strings) in [(64 << 10, 0), (256 << 10, 1), (1 << 20, 3), (4 << 20, 3), (1 << 30, 3)] {
        let layout = RingLayout::plan(&RingConfig::sized(2, ring_bytes)).unwrap();
        let room = (layout.max_record_bytes - 256) / (8 << 10);
        assert_eq!(room, n_strings, "8 KiB each in rings of {ring_bytes}");
    }
}

#[test]
fn sizes_that_make_no_ring_are_refused() {
    let good = RingConfig::new(2);
    type Row = (&'static str, fn(&mut RingConfig));
    let table: &[Row] = &[
        ("no CPU", |config| config.n_cpus = 0),
        ("too many CPUs", |config| config.n_cpus = 100_000),
        ("tiny sub-buffers", |config| config.sub_bytes = 1024),
        ("one sub-buffer", |config| config.ring_bytes = config.sub_bytes),
        ("huge ring", |config| config.ring_bytes = 1 << 40),
        ("no size at all", |config| config.ring_bytes = u64::MAX),
        ("huge cells", |config| config.cells_bytes = 1 << 30),
    ];
    assert!(RingLayout::plan(&good).is_ok());
    for ring_bytes in [16 << 10, 64 << 10, 1 << 20, 1 << 30] {
        assert!(RingLayout::plan(&RingConfig::sized(2, ring_bytes)).is_ok(), "{ring_bytes}");
    }
    for (name, change) in table {
        let mut config = good;
        change(&mut config);
        assert!(matches!(RingLayout::plan(&config), Err(RingError::BadConfig { .. })), "{name}");
    }
}

#[test]
fn a_ring_is_opened_again_and_rubbish_is_not() {
    let file = memfd(c"nopal-test").unwrap();
    let mut config = RingConfig::new(3);
    config.ring_bytes = 128 << 10;
    let ring = RingMemory::format(&file, &config).unwrap();
    let again = RingMemory::open(&file).unwrap();
    assert_eq!(ring.layout(), again.layout());
    // Each word of the header, changed to something else.
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::from(file);
    for offset in [0, 8, 12, 16, 36, 40, 44, 48, 56, 64, 68, 72, 80, 84, 88, 96] {
        let mut old = [0; 4];
        file.read_exact_at(&mut old, offset).unwrap();
        for new in [old[0] ^ 0x41, 0xff] {
            file.write_all_at(&[new; 4], offset).unwrap();
            assert!(RingMemory::open(&file).is_err(), "word at {offset} is {new:#x}");
        }
        file.write_all_at(&old, offset).unwrap();
    }
    assert!(RingMemory::open(&file).is_ok());
    assert!(file.set_len(4096).is_err(), "nobody can shrink it under us");
}
