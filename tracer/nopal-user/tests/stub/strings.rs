//! Strings and byte strings: what is readable arrives, what is not costs nothing but the string.

use nopal_abi::ring::Mode;
use nopal_abi::stub_space::{N_READABLE, ProcessPage};
use nopal_capture::Capture;
use nopal_capture::record::{RecordKind, RecordView, Text, Value};
use nopal_user::consumer::Source;
use nopal_user::stub::Heap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::harness::{Harness, Place, distinct, has_rseq, map, operand, record, value};

const PAGE: usize = 4096;

/// Two readable pages and one that is not.
fn pages() -> &'static mut [u8] {
    let start = map(0, 3 * PAGE, libc::PROT_READ | libc::PROT_WRITE, None);
    // SAFETY: the third page of what was just mapped; the first two are ours for good.
    unsafe {
        assert_eq!(libc::mprotect((start as usize + 2 * PAGE) as *mut _, PAGE, libc::PROT_NONE), 0);
        std::slice::from_raw_parts_mut(start as *mut u8, 2 * PAGE)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Got {
    bytes: Vec<u8>,
    is_null: bool,
    is_unreadable: bool,
    is_truncated: bool,
}

fn whole(bytes: &[u8]) -> Got {
    Got { bytes: bytes.to_vec(), is_null: false, is_unreadable: false, is_truncated: false }
}

impl From<Text<'_>> for Got {
    fn from(text: Text<'_>) -> Got {
        Got {
            bytes: text.bytes.to_vec(),
            is_null: text.is_null,
            is_unreadable: text.is_unreadable,
            is_truncated: text.is_truncated,
        }
    }
}

/// Hits the site with pointer and length in these registers and gives the string that was captured.
fn capture(
    harness: &Harness,
    layout: &nopal_capture::record::RecordLayout,
    pointer: u64,
    length: u64,
) -> Got {
    let mut state = distinct();
    state.gpr[6] = pointer;
    state.gpr[0] = length;
    harness.pass(&state);
    let mut got = None;
    harness.reader().poll(|_, view| {
        if view.kind != RecordKind::Event(3) {
            return;
        }
        let values: Vec<_> = layout.values(view.payload).map(Result::unwrap).collect();
        let [Value::Unsigned(before), Value::Text(text), Value::Text(second), Value::Unsigned(after)] =
            values[..]
        else {
            panic!("{values:?}")
        };
        assert_eq!((before, after), (state.gpr[6], state.gpr[15]));
        assert_eq!(second.bytes, b"second");
        got = Some(text.into());
    });
    got.expect("one record")
}

static SECOND: &[u8] = b"second\0";

/// A value, the string, another string, another value.
fn around(capture: Capture) -> Vec<Capture> {
    let second = nopal_sdt::operand::Operand {
        place: nopal_sdt::operand::Place::Constant(SECOND.as_ptr() as i64),
        ..operand("8@$1")
    };
    vec![
        value("8@%rsi"),
        capture,
        Capture::CString { pointer: second, max_bytes: 64, is_trusted: true },
        value("8@%r15"),
    ]
}

const NON_CANONICAL: u64 = 0x8000_0000_0000_0000;
const KERNEL: u64 = 0xffff_ffff_8100_0000;

#[test]
fn c_strings_of_every_length_and_place() {
    for is_trusted in [false, true] {
        let memory = pages();
        let base = memory.as_ptr() as u64;
        let mut harness = Harness::new(|_| {});
        let max_bytes = 40;
        let pointer = operand("8@%rsi");
        let stub = harness.attach(
            Place::Everything,
            &record(3, around(Capture::CString { pointer, max_bytes, is_trusted })),
        );
        // At every alignment, at every length around the limit, and across the page's end.
        for start in (0..9).chain(PAGE - 45..PAGE + 3) {
            for length in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 20, 31, 39, 40, 41, 60] {
                memory.fill(b'#');
                for (i, byte) in memory[start..start + length].iter_mut().enumerate() {
                    *byte = b'a' + (i % 26) as u8;
                }
                memory[start + length] = 0;
                let mut expected = whole(&memory[start..start + length.min(40)]);
                expected.is_truncated = length > 40;
                assert_eq!(
                    capture(&harness, &stub.layout, base + start as u64, 0),
                    expected,
                    "{length} at {start}"
                );
            }
        }
        let null = Got { is_null: true, ..whole(b"") };
        assert_eq!(capture(&harness, &stub.layout, 0, 0), null);
        if is_trusted {
            continue;
        }
        let unreadable = Got { is_unreadable: true, ..whole(b"") };
        for pointer in
            [base + 2 * PAGE as u64, base + 2 * PAGE as u64 + 5, 1, 8, NON_CANONICAL, KERNEL, u64::MAX - 3]
        {
            assert_eq!(capture(&harness, &stub.layout, pointer, 0), unreadable, "{pointer:#x}");
        }
        // No NUL before memory ends.
        memory.fill(b'x');
        for left in [1, 7, 8, 13, 39] {
            let expected = Got { is_unreadable: true, ..whole(&vec![b'x'; left]) };
            let pointer = base + (2 * PAGE - left) as u64;
            assert_eq!(capture(&harness, &stub.layout, pointer, 0), expected, "{left} bytes left");
        }
        // Exactly the limit is left: whether a NUL follows cannot be seen.
        let exact = capture(&harness, &stub.layout, base + (2 * PAGE - 40) as u64, 0);
        assert_eq!(exact, Got { is_unreadable: true, ..whole(&[b'x'; 40]) });
        memory[2 * PAGE - 1] = 0;
        let last = capture(&harness, &stub.layout, base + (2 * PAGE - 9) as u64, 0);
        assert_eq!(last, whole(b"xxxxxxxx"));
    }
}

#[test]
fn long_strings_take_as_many_pages_as_they_need() {
    let memory = pages();
    memory.fill(b'y');
    let base = memory.as_ptr() as u64;
    let mut harness = Harness::new(|_| {});
    let pointer = operand("8@%rsi");
    let capture_spec = Capture::CString { pointer, max_bytes: 6000, is_trusted: false };
    let stub = harness.attach(Place::Everything, &record(3, around(capture_spec)));
    memory[5900] = 0;
    assert_eq!(capture(&harness, &stub.layout, base + 3, 0), whole(&vec![b'y'; 5897]));
    memory[5900] = b'y';
    let expected = Got { is_truncated: true, ..whole(&vec![b'y'; 6000]) };
    assert_eq!(capture(&harness, &stub.layout, base + 3, 0), expected);
    let expected = Got { is_unreadable: true, ..whole(&vec![b'y'; 5000]) };
    assert_eq!(capture(&harness, &stub.layout, base + 2 * PAGE as u64 - 5000, 0), expected);
}

#[test]
fn bytes_with_a_length() {
    let memory = pages();
    for (i, byte) in memory.iter_mut().enumerate() {
        *byte = (i * 31) as u8;
    }
    let base = memory.as_ptr() as u64;
    let end = base + 2 * PAGE as u64;
    let cut = |got: Got| Got { is_truncated: true, ..got };
    let unreadable = |got: Got| Got { is_unreadable: true, ..got };
    let at = |from: usize, n: usize| whole(&memory[from..from + n]);
    // Length operand, unit, pointer, length, what is expected.
    let table = [
        ("8@%rax", 1, base + 1, 0, at(1, 0)),
        ("8@%rax", 1, base + 1, 1, at(1, 1)),
        ("8@%rax", 1, base + 3, 20, at(3, 20)),
        ("8@%rax", 1, base + 3, 100, at(3, 100)),
        ("8@%rax", 1, base + 3, 101, cut(at(3, 100))),
        ("8@%rax", 1, base + 3, u64::MAX, cut(at(3, 100))),
        ("-8@%rax", 1, base + 3, u64::MAX, at(3, 0)),
        ("-4@%eax", 1, base + 3, 0xffff_ff00, at(3, 0)),
        ("-4@%eax", 1, base + 3, 0x7777_0000_0005, at(3, 5)),
        ("2@%ax", 1, base + 3, 0x5_0007, at(3, 7)),
        ("4@%eax", 4, base + 3, 3, at(3, 12)),
        ("4@%eax", 4, base + 3, 25, at(3, 100)),
        ("4@%eax", 4, base + 3, 26, cut(at(3, 100))),
        ("4@%eax", 16, base + 3, 1 << 30, cut(at(3, 96))),
        ("8@%rax", 1, base + PAGE as u64 - 50, 100, at(PAGE - 50, 100)),
        ("8@%rax", 1, end - 100, 100, at(2 * PAGE - 100, 100)),
        ("8@%rax", 1, end - 10, 20, unreadable(at(2 * PAGE - 10, 10))),
        ("8@%rax", 1, end - 1, 1, at(2 * PAGE - 1, 1)),
        ("8@%rax", 1, end, 1, unreadable(whole(b""))),
        ("8@%rax", 1, end, 0, whole(b"")),
        ("8@%rax", 1, 0, 5, Got { is_null: true, ..whole(b"") }),
        ("8@%rax", 1, NON_CANONICAL, 5, unreadable(whole(b""))),
        ("8@%rax", 1, KERNEL, 5, unreadable(whole(b""))),
    ];
    for (length, unit_bytes, pointer, n, expected) in table {
        for is_trusted in [false, true] {
            if is_trusted && expected.is_unreadable {
                continue;
            }
            let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
            let spec = Capture::Bytes {
                pointer: operand("8@%rsi"),
                length: operand(length),
                unit_bytes,
                max_bytes: 100,
                is_trusted,
            };
            let stub = harness.attach(Place::Everything, &record(3, around(spec)));
            let got = capture(&harness, &stub.layout, pointer, n);
            assert_eq!(got, expected, "{length} x {unit_bytes}, {n} at {pointer:#x}, trusted: {is_trusted}");
        }
    }
}

#[test]
fn what_is_in_the_own_file_is_read_without_asking_and_no_further() {
    let memory = pages();
    let base = memory.as_ptr() as u64;
    let mut harness = Harness::new(|_| {});
    let c_string = Capture::CString { pointer: operand("8@%rsi"), max_bytes: 40, is_trusted: false };
    let mut spec = record(3, around(c_string));
    // The first page only: the second is readable, but has to be asked about, and the third is not.
    spec.own_file = base..base + PAGE as u64;
    let stub = harness.attach(Place::Everything, &spec);
    for start in (0..9).chain(PAGE - 45..PAGE + 9).chain(2 * PAGE - 45..2 * PAGE) {
        for length in [0, 1, 7, 8, 9, 20, 39, 40, 41] {
            memory.fill(b'#');
            let end = (start + length).min(2 * PAGE);
            memory[start..end].fill(b'a');
            if end < 2 * PAGE {
                memory[end] = 0;
            }
            let n = end - start;
            let expected = Got {
                is_truncated: n > 40,
                is_unreadable: end == 2 * PAGE && n <= 40,
                ..whole(&memory[start..start + n.min(40)])
            };
            assert_eq!(
                capture(&harness, &stub.layout, base + start as u64, 0),
                expected,
                "{length} at {start}"
            );
        }
    }
    for pointer in [base - 1, base + 2 * PAGE as u64, NON_CANONICAL, KERNEL, u64::MAX - 3] {
        let got = capture(&harness, &stub.layout, pointer, 0);
        assert!(got.is_unreadable || pointer == base - 1, "{pointer:#x}: {got:?}");
    }
    drop(harness);

    let mut harness = Harness::new(|_| {});
    let bytes = Capture::Bytes {
        pointer: operand("8@%rsi"),
        length: operand("8@%rax"),
        unit_bytes: 1,
        max_bytes: 100,
        is_trusted: false,
    };
    let mut spec = record(3, around(bytes));
    spec.own_file = base..base + PAGE as u64;
    let stub = harness.attach(Place::Everything, &spec);
    for (i, byte) in memory.iter_mut().enumerate() {
        *byte = (i * 31) as u8;
    }
    for (start, n, readable) in
        [(0, 10, 10), (PAGE - 10, 10, 10), (PAGE - 10, 30, 30), (PAGE, 10, 10), (2 * PAGE - 10, 30, 10)]
    {
        let expected = Got { is_unreadable: readable < n, ..whole(&memory[start..start + readable]) };
        let got = capture(&harness, &stub.layout, base + start as u64, n as u64);
        assert_eq!(got, expected, "{n} at {start}");
    }
}

/// The pages of the heap that stubs of this process know to be readable.
fn known_pages(harness: &Harness) -> Vec<u64> {
    let table = harness.space.process_page() + offset_of!(ProcessPage, readable) as u64;
    // SAFETY: the process page is mapped for the whole of the test, and only this thread's stubs write to it.
    let table = unsafe { std::slice::from_raw_parts(table as *const AtomicU64, N_READABLE) };
    let mut known: Vec<u64> = table.iter().map(|page| page.load(Ordering::Relaxed)).collect();
    known.retain(|page| *page != 0);
    known.sort_unstable();
    known
}

#[test]
fn a_page_of_the_heap_is_asked_about_once_and_again_when_it_has_gone() {
    static HEAP_END: AtomicU64 = AtomicU64::new(0);
    let memory = pages();
    let base = memory.as_ptr() as u64;
    let page = base >> 12;
    let long = b"a string of more than a word";
    for end in [PAGE - 3, PAGE + 100, 2 * PAGE - 40] {
        memory[end - long.len()..end].copy_from_slice(long);
        memory[end] = 0;
    }
    memory[PAGE - 2..PAGE].fill(b'y');
    memory[2 * PAGE - 8..].fill(b'z');
    let at = |offset: usize| base + offset as u64;
    let c_string = || Capture::CString { pointer: operand("8@%rsi"), max_bytes: 40, is_trusted: false };
    let bytes = || Capture::Bytes {
        pointer: operand("8@%rsi"),
        length: operand("8@%rax"),
        unit_bytes: 1,
        max_bytes: 100,
        is_trusted: false,
    };
    for what in [c_string(), bytes()] {
        HEAP_END.store(at(3 * PAGE), Ordering::Relaxed);
        let mut harness = Harness::new(|_| {});
        let mut spec = record(3, around(what));
        spec.heap = Some(Heap { start: base, end_word: HEAP_END.as_ptr() as u64 });
        let stub = harness.attach(Place::Everything, &spec);
        let got = |offset: usize| capture(&harness, &stub.layout, at(offset), long.len() as u64);
        for _ in 0..3 {
            assert_eq!(got(PAGE - 3 - long.len()), whole(long));
            assert_eq!(known_pages(&harness), [page]);
        }
        for _ in 0..2 {
            // From one page into the next, and within that.
            assert_eq!(got(PAGE + 100 - long.len()), whole(long));
            assert_eq!(got(2 * PAGE - 40 - long.len()), whole(long));
            assert_eq!(known_pages(&harness), [page, page + 1]);
            // What cannot be read is not known, and what follows it is cut there.
            assert!(got(2 * PAGE).is_unreadable);
            let cut = Got { is_unreadable: true, ..whole(b"zzzz") };
            assert_eq!(got(2 * PAGE - 4), cut);
            assert_eq!(known_pages(&harness), [page, page + 1]);
        }
        // What lies outside is asked about each time.
        assert_eq!(
            capture(&harness, &stub.layout, c"elsewhere, but long enough".as_ptr() as u64, 9).bytes[..9],
            *b"elsewhere"
        );
        assert_eq!(known_pages(&harness), [page, page + 1]);

        // The heap has become smaller: its second page is gone, and nobody has said so but the C library's word.
        HEAP_END.store(at(PAGE), Ordering::Relaxed);
        // SAFETY: a page of our own, which nobody reads meanwhile.
        unsafe { assert_eq!(libc::mprotect(at(PAGE) as *mut _, PAGE, libc::PROT_NONE), 0) };
        assert!(got(2 * PAGE - 40 - long.len()).is_unreadable);
        assert_eq!(got(PAGE - 2), Got { is_unreadable: true, ..whole(b"yy") });
        assert_eq!(got(PAGE - 3 - long.len()), whole(long));
        // SAFETY: as above.
        unsafe {
            assert_eq!(libc::mprotect(at(PAGE) as *mut _, PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
        }
        // And nothing is heap before there is one.
        HEAP_END.store(0, Ordering::Relaxed);
        assert_eq!(got(2 * PAGE - 40 - long.len()), whole(long));
    }
}

#[test]
fn strings_of_all_lengths_follow_one_another_through_the_ring() {
    let memory = pages();
    memory[..PAGE].fill(b'z');
    let text = &mut memory[64..64 + 300];
    for (i, byte) in text.iter_mut().enumerate() {
        *byte = b'a' + (i % 26) as u8;
    }
    let base = text.as_ptr() as u64;
    let expected: Vec<u8> = text.to_vec();
    // Where the strings of a hit begin, and where both end.
    let places = |n: usize| {
        let (round, length) = (n / 101, n % 101);
        (256 - 2 * length, 256 - length - length.min(round), 256 - length)
    };
    for mode in [Mode::Discard, Mode::Overwrite] {
        let mut harness = Harness::new(|config| {
            config.mode = mode;
            (config.ring_bytes, config.sub_bytes) = (128 << 10, 8 << 10);
        });
        let string =
            |pointer| Capture::CString { pointer: operand(pointer), max_bytes: 256, is_trusted: true };
        let captures = vec![string("8@%rsi"), value("4@%eax"), string("8@%rdi"), string("8@%rsi")];
        let stub = harness.attach(Place::Everything, &record(3, captures));
        let mut reader = harness.reader();
        let (mut n_read, mut n_lost) = (0, 0);
        // Every place in every sub-buffer, and each string's end on every byte of a word.
        const HITS: usize = 40 * 101;
        for n in 0..HITS {
            let (one, two, end) = places(n);
            memory[64 + end] = 0;
            let mut state = distinct();
            (state.gpr[6], state.gpr[7]) = (base + one as u64, base + two as u64);
            state.gpr[0] = n as u64;
            harness.pass(&state);
            memory[64 + end] = expected[end];
            if n % 101 < 100 {
                continue;
            }
            let each = |_: Source, view: RecordView<'_>| {
                if view.kind != RecordKind::Event(3) {
                    return;
                }
                let values: Vec<_> = stub.layout.values(view.payload).map(Result::unwrap).collect();
                let [Value::Text(first), Value::Unsigned(n), Value::Text(second), Value::Text(again)] =
                    values[..]
                else {
                    panic!("{values:?}")
                };
                let (one, two, end) = places(n as usize);
                assert_eq!(first, again);
                assert_eq!(
                    (first.bytes, second.bytes),
                    (&expected[one..end], &expected[two..end]),
                    "hit {n}"
                );
                n_read += 1;
            };
            let polled = if mode == Mode::Discard { reader.poll(each) } else { reader.snapshot(each) };
            assert_eq!(polled.damaged, 0);
            n_lost += polled.gaps.iter().map(|gap| gap.count).sum::<u64>();
        }
        match mode {
            Mode::Discard => assert_eq!((n_read, n_lost), (HITS, 0)),
            // Each look shows all that is left.
            Mode::Overwrite => assert!(!has_rseq() || n_read > HITS, "{n_read} of {HITS}"),
        }
    }
}
