//! A target that writes rubbish into its rings: the reader counts damage and lives.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use nopal_abi::ring::{Mode, STATE_SHIFT};
use nopal_capture::Capture;
use nopal_capture::record::{Parsed, RecordLayout, RecordView};
use nopal_user::consumer::{Reader, any_has_thread};
use nopal_user::ring::{RingConfig, RingMemory, memfd};

use crate::harness::{operand, value};

/// xorshift: the same rubbish every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

fn small(mode: Mode) -> (std::fs::File, Arc<RingMemory>) {
    let file = memfd(c"nopal-hostile").unwrap();
    let mut config = RingConfig::new(2);
    config.mode = mode;
    (config.ring_bytes, config.sub_bytes) = (16 << 10, 4 << 10);
    (config.locked_ring_bytes, config.locked_sub_bytes) = (16 << 10, 4 << 10);
    let ring = RingMemory::format(&file, &config).unwrap();
    (std::fs::File::from(file), Arc::new(ring))
}

#[test]
fn rubbish_never_hurts_the_reader() {
    let layout = RecordLayout::new(
        &[
            value("8@%rdi"),
            Capture::CString { pointer: operand("8@%rdi"), max_bytes: 100, is_trusted: false },
            value("4@%edi"),
        ],
        true,
        true,
    );
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut total = 0;
    for mode in [Mode::Discard, Mode::Overwrite] {
        let (file, ring) = small(mode);
        let mut reader = Reader::of_one(ring.clone());
        reader.set_liveness(|_| false);
        for round in 0..2_000u64 {
            let plan = *ring.layout();
            // Rings full of rubbish, some of it with small sizes so that several records pass.
            let mut bytes = vec![0; (plan.total_bytes - plan.rseq.offset) as usize];
            random.fill(&mut bytes);
            for word in bytes.chunks_mut(8) {
                if random.next().is_multiple_of(3) {
                    word[0] &= 0x78;
                    word[1] &= 1;
                    (word[2], word[3]) = (0, word[3] & 0x1f);
                }
            }
            file.write_all_at(&bytes, plan.rseq.offset).unwrap();
            for state in 0..4u64 {
                let at = plan.states_offset + (state << STATE_SHIFT);
                let head = match round % 4 {
                    0 => random.next(),
                    1 => random.next() % (64 << 10),
                    2 => (random.next() % (64 << 10)) & !7,
                    _ => u64::MAX - random.next() % (32 << 10),
                };
                file.write_all_at(&head.to_le_bytes(), at).unwrap();
                if round % 8 > 5 {
                    file.write_all_at(&random.next().to_le_bytes(), at + 8).unwrap();
                }
            }
            let mut look = |_, view: RecordView<'_>| {
                total += layout.values(view.payload).filter(Result::is_ok).count();
                total += view.comm().len();
            };
            reader.poll(&mut look);
            reader.snapshot(&mut look);
        }
    }
    assert!(total > 0, "some of the rubbish looked like records");
}

#[test]
fn a_bad_length_costs_one_sub_buffer() {
    let (file, ring) = small(Mode::Discard);
    let plan = *ring.layout();
    let mut reader = Reader::of_one(ring.clone());
    // Two sub-buffers of 16-byte records; one header in the first is broken.
    let mut bytes = vec![0; 8 << 10];
    for (i, record) in bytes.chunks_mut(16).enumerate() {
        record[..4].copy_from_slice(&16u32.to_le_bytes());
        record[4..8].copy_from_slice(&(i as u32).to_le_bytes());
    }
    bytes[16 * 100..16 * 100 + 4].copy_from_slice(&5000u32.to_le_bytes());
    file.write_all_at(&bytes, plan.rseq.offset).unwrap();
    file.write_all_at(&(8192u64).to_le_bytes(), plan.states_offset).unwrap();
    let polled = reader.poll(|_, _| {});
    assert_eq!((polled.records, polled.damaged), (100 + 256, 1));
    assert_eq!(reader.poll(|_, _| {}).records, 0);
}

#[test]
fn what_a_dead_thread_left_is_skipped() {
    let (file, ring) = small(Mode::Discard);
    let plan = *ring.layout();
    let mut reader = Reader::of_one(ring.clone());
    reader.set_liveness(|tid| tid != 4711);
    let locked_state = plan.states_offset + (2 << STATE_SHIFT);
    let write = |at: u64, word: u32, event: u32| {
        file.write_all_at(&(u64::from(event) << 32 | u64::from(word)).to_le_bytes(), plan.locked.offset + at)
            .unwrap();
    };
    let busy = nopal_abi::record::flags::BUSY;
    write(0, 16, 1);
    write(16, 24 | busy, 4711);
    write(40, 16, 2);
    write(56, 16 | busy, 4712);
    write(72, 16, 3);
    file.write_all_at(&88u64.to_le_bytes(), locked_state).unwrap();
    let first = reader.poll(|_, _| {});
    assert_eq!((first.records, first.abandoned), (1, 0), "its writer may still be at it");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let second = reader.poll(|_, _| {});
    assert_eq!((second.records, second.abandoned, second.damaged), (1, 1, 0));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(reader.poll(|_, _| {}).records, 0, "4712 lives and will finish");
    write(56, 16, 4);
    let last = reader.poll(|_, _| {});
    assert_eq!((last.records, last.abandoned), (2, 0));
}

#[test]
fn the_last_reading_leaves_nothing_behind() {
    let busy = nopal_abi::record::flags::BUSY;
    // Whether the writers live, and what is told: records, and records that were never finished.
    for (lives, expected) in [(false, (4, 2)), (true, (4, 2))] {
        let (file, ring) = small(Mode::Discard);
        let plan = *ring.layout();
        let mut reader = Reader::of_one(ring.clone());
        reader.set_liveness(move |_| lives);
        let write = |at: u64, word: u32, event: u32| {
            let header = u64::from(event) << 32 | u64::from(word);
            file.write_all_at(&header.to_le_bytes(), plan.locked.offset + at).unwrap();
        };
        write(0, 16, 1);
        write(16, 24 | busy, 4711);
        write(40, 16, 2);
        // From 56 to 80 a thread has reserved a record and not yet written a header.
        write(80, 16, 3);
        write(96, 16, 4);
        file.write_all_at(&112u64.to_le_bytes(), plan.states_offset + (2 << STATE_SHIFT)).unwrap();
        let polled = reader.poll_rest(|_, _| {});
        assert_eq!((polled.records, polled.abandoned), expected, "writers that live: {lives}");
        assert_eq!(polled.damaged, 0);
        assert_eq!(reader.poll_rest(|_, _| {}), Default::default());
    }
}

#[test]
fn a_thread_that_lives_is_waited_for() {
    let (file, ring) = small(Mode::Discard);
    let plan = *ring.layout();
    let mut reader = Reader::of_one(ring.clone());
    let (asked, ask) = std::sync::mpsc::channel();
    reader.set_liveness(move |_| {
        let _ = asked.send(());
        true
    });
    file.write_all_at(&(16 | nopal_abi::record::flags::BUSY).to_le_bytes(), plan.locked.offset).unwrap();
    file.write_all_at(&16u64.to_le_bytes(), plan.states_offset + (2 << STATE_SHIFT)).unwrap();
    std::thread::scope(|scope| {
        // It finishes once somebody has looked for it.
        let file = &file;
        scope.spawn(move || {
            ask.recv().unwrap();
            file.write_all_at(&16u32.to_le_bytes(), plan.locked.offset).unwrap();
        });
        let polled = reader.poll_rest(|_, _| {});
        assert_eq!((polled.records, polled.abandoned), (1, 0));
    });
}

#[test]
fn threads_are_known_by_their_own_number() {
    let own = [std::process::id() as i32];
    // SAFETY: no arguments, no effect.
    let tid = || unsafe { libc::gettid() } as u32;
    assert!(any_has_thread(&own, tid()) && any_has_thread(&own, 0));
    assert!(!any_has_thread(&[], tid()) && !any_has_thread(&[], 0));
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        send.send(tid()).unwrap();
        wait.recv().unwrap_err();
    });
    let other = receive.recv().unwrap();
    assert!(any_has_thread(&own, other));
    drop(done);
    thread.join().unwrap();
    // The kernel takes the thread off its list a little after join comes back.
    while std::path::Path::new(&format!("/proc/self/task/{other}")).exists() {
        std::thread::yield_now();
    }
    assert!(!any_has_thread(&own, other));
}

#[test]
fn records_shorter_than_their_parts_are_damaged() {
    use nopal_abi::record::flags::{BUSY, PADDING, TASK, TIME};
    let table = [
        (8, true),
        (16 | TIME, true),
        (8 | TIME, false),
        (16 | TIME | TASK, false),
        (24 | TIME | TASK, true),
        (12, false),
        (0, false),
        (72, false),
        (16 | 1 << 31, false),
        (16 | PADDING | TIME, false),
    ];
    for (word, is_record) in table {
        let mut bytes = [0u8; 64];
        bytes[..4].copy_from_slice(&u32::to_le_bytes(word));
        assert_eq!(matches!(RecordView::parse(&bytes), Parsed::Record(..)), is_record, "{word:#x}");
    }
    let mut bytes = [0u8; 64];
    bytes[..8].copy_from_slice(&(7u64 << 32 | u64::from(16 | BUSY)).to_le_bytes());
    assert_eq!(RecordView::parse(&bytes), Parsed::Busy { tid: 7, bytes: 16 });
    for cut in 0..8 {
        assert_eq!(RecordView::parse(&bytes[..cut]), Parsed::Damaged);
    }
}

#[test]
fn a_stub_space_is_written_to_by_its_maker_alone() {
    use nopal_user::stub::space::Space;
    use std::os::fd::AsRawFd;
    let file = std::fs::File::from(memfd(c"nopal-stubs").unwrap());
    let bytes = 64 << 10;
    let space = Space::format(&file, 0x10_0000, bytes, 8, 0).unwrap();
    let copy = std::fs::File::from(memfd(c"nopal-stubs").unwrap());
    let _copy = Space::copied(&copy, 0x10_0000, &space.bytes(), bytes).unwrap();
    let (write, run) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
    let map = |fd: i32, rights: i32| {
        // SAFETY: a new mapping where nothing is.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, fd, 0) };
        (at != libc::MAP_FAILED).then_some(at)
    };
    for file in [&file, &copy] {
        let fd = file.as_raw_fd();
        let at = map(fd, run).expect("it can be mapped to be run");
        for rights in [write, write | libc::PROT_EXEC] {
            // SAFETY: our own mapping, which nothing uses.
            let result = unsafe { libc::mprotect(at, bytes, rights) };
            assert_ne!(result, 0, "no change of rights makes it writable");
            assert_eq!(map(fd, rights), None, "nor a new mapping");
        }
        // SAFETY: as above.
        assert_ne!(unsafe { libc::madvise(at, bytes, libc::MADV_REMOVE) }, 0);
        let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
        assert!(memory.write_at(&[0], at as u64).is_err(), "not even as a debugger");
        let again = std::fs::OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{fd}"));
        let again = again.unwrap();
        assert_eq!(map(again.as_raw_fd(), write), None, "nor through a descriptor of one's own");
        assert!(again.write_at(&[0], 0).is_err() && again.set_len(0).is_err());
        let (hole, keep) = (libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_KEEP_SIZE);
        // SAFETY: plain numbers.
        assert_ne!(unsafe { libc::fallocate(again.as_raw_fd(), hole | keep, 0, 4096) }, 0);
        // SAFETY: mapped above, used by nobody.
        unsafe { libc::munmap(at, bytes) };
    }
    // The maker goes on.
    let tail = nopal_user::stub::tail::Tail::to(0x10_2000);
    space.add_site(0x10_1000, &tail, Default::default()).unwrap();
}

/// The time stamp counter.
fn now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[test]
fn times_that_cannot_be_are_refused_and_counted() {
    use nopal_abi::record::flags::TIME;
    let (file, ring) = small(Mode::Discard);
    let plan = *ring.layout();
    let mut reader = Reader::of_one(ring.clone());
    let (mut head, hour) = (0u64, 3600 * 2_000_000_000);
    let mut write = |times: &[u64]| {
        for time in times {
            let record = [u64::from(24 | TIME), *time, 7].map(u64::to_le_bytes).concat();
            file.write_all_at(&record, plan.rseq.offset + head).unwrap();
            head += 24;
        }
        file.write_all_at(&head.to_le_bytes(), plan.states_offset).unwrap();
    };
    let mut read = || {
        let mut times = Vec::new();
        let polled = reader.poll(|_, view| times.extend(view.time));
        assert_eq!(polled.records, times.len() as u64);
        (times, polled.forged, polled.damaged)
    };
    let start = now();
    write(&[start, start + 5, u64::MAX, 1 << 62, start + hour, start + 9]);
    assert_eq!(read(), (vec![start, start + 5, start + 9], 3, 0), "what is to come has not come");
    let later = now();
    write(&[later, 0, 1, start - hour, later]);
    assert_eq!(read(), (vec![later, later], 3, 0), "nor does what was before the ring come now");
    // Clocks of two processors are not quite the same.
    write(&[later - 1000, later]);
    assert_eq!(read(), (vec![later - 1000, later], 0, 0));
}

#[test]
fn what_a_program_does_to_its_ring_is_told() {
    let (file, ring) = small(Mode::Discard);
    let plan = *ring.layout();
    ring.set_enabled(true);
    let mut reader = Reader::of_one(ring.clone());
    let enabled = |file: &std::fs::File| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 32).unwrap();
        u32::from_le_bytes(bytes)
    };
    let put = |at: u64, word: u64| file.write_all_at(&word.to_le_bytes(), at).unwrap();
    put(plan.rseq.offset, 16);
    put(plan.states_offset, 16);
    put(plan.states_offset + 8, 3);
    let polled = reader.poll(|_, _| {});
    assert_eq!((polled.records, polled.n_damaged()), (1, 0));
    assert_eq!(polled.gaps.iter().map(|gap| gap.count).sum::<u64>(), 3);
    // All of it becomes zeros, as by MADV_REMOVE: nothing would be recorded any more.
    let (hole, keep) = (libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_KEEP_SIZE);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: plain numbers, on a descriptor of ours.
    assert_eq!(unsafe { libc::fallocate(fd, hole | keep, 0, plan.total_bytes as i64) }, 0);
    assert_eq!(enabled(&file), 0);
    let polled = reader.poll(|_, _| {});
    assert!(polled.damaged > 0 && polled.records == 0, "{polled:?}");
    assert!(
        polled.gaps.iter().all(|gap| gap.count < 1 << 48),
        "a count that goes back counts nothing: {polled:?}"
    );
    assert_eq!(enabled(&file), 1, "hits are wanted again");
    assert_eq!(reader.poll(|_, _| {}).n_damaged(), 0, "told once");
    // And what comes then is read.
    put(plan.rseq.offset, 16);
    put(plan.states_offset, 16);
    let polled = reader.poll(|_, _| {});
    assert_eq!((polled.records, polled.n_damaged()), (1, 0));
    // One that switches itself off.
    file.write_all_at(&[0; 4], 32).unwrap();
    assert_eq!((reader.poll(|_, _| {}).damaged, enabled(&file)), (1, 1));
    // A tail that a program moves makes writers lose or overwrite.
    put(plan.states_offset + 128, 0);
    assert_eq!(reader.poll(|_, _| {}).damaged, 1);
}
