//! Threads that switch `%fs` to something of their own around a site, and very many threads: no block that is not a
//! thread's own storage is touched, and every hit arrives with its thread's number.

use std::arch::asm;
use std::collections::HashMap;

use nopal_abi::stub_space::Path;
use nopal_capture::record::{RecordKind, Value};
use nopal_capture::{Action, Cell};
use nopal_user::ring::Set;
use nopal_user::stub::StubSpec;

use crate::harness::{
    Harness, Place, RSEQ_BYTES, fs_base, has_rseq, hit2, map, nopal_test_hit2, record, value,
};

const BLOCK_BYTES: usize = 16 << 10;
const HITS: u64 = 50;

/// Passes the site while `%fs` stands for `address`. No code of ours runs meanwhile that could need what is there.
fn hit_with_fs(address: u64, a: u64, b: u64) {
    // SAFETY: %fs is as before when this is over, and in between nothing but the site is passed, further down the stack.
    unsafe {
        asm!(
            "mov r15, rsp",
            "mov rax, fs:[0]",
            "mov [rsp - 16], rax",
            "sub rsp, 256",
            "and rsp, -16",
            "mov eax, 158",    // arch_prctl
            "mov edi, 0x1002", // ARCH_SET_FS
            "mov rsi, r12",
            "syscall",
            "mov rdi, r13",
            "mov rsi, r14",
            "call {site}",
            "mov eax, 158",
            "mov edi, 0x1002",
            "mov rsi, [r15 - 16]",
            "syscall",
            "mov rsp, r15",
            site = sym nopal_test_hit2,
            in("r12") address,
            in("r13") a,
            in("r14") b,
            out("r15") _,
            clobber_abi("C"),
        );
    }
}

fn tid() -> u32 {
    // SAFETY: no arguments, no effect.
    unsafe { libc::gettid() as u32 }
}

/// Blocks that `%fs` may be switched to: what they are, the address, the bytes to look after.
fn blocks() -> Vec<(&'static str, u64, *mut u8)> {
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let block = |name, fill: &dyn Fn(*mut u8, u64)| {
        let start = map(0, BLOCK_BYTES, writable, None) as *mut u8;
        let middle = start as u64 + BLOCK_BYTES as u64 / 2;
        fill(start, middle);
        (name, middle, start)
    };
    // SAFETY: each closure writes to the block that was just mapped.
    unsafe {
        vec![
            block("zeros", &|_, _| {}),
            block("ones", &|start, _| start.write_bytes(1, BLOCK_BYTES)),
            block("a pattern", &|start, _| start.write_bytes(0x5a, BLOCK_BYTES)),
            block("with a pointer to itself", &|_, middle| {
                (middle as *mut u64).write(middle);
                (middle as *mut u64).add(2).write(middle);
            }),
            // As libraries make it that have the C library go on working.
            block("a copy of its own", &|_, middle| {
                std::ptr::copy_nonoverlapping(
                    (fs_base() - 64) as *const u8,
                    (middle - 64) as *mut u8,
                    64 + 2304,
                );
            }),
        ]
    }
}

#[test]
fn a_block_that_is_not_the_threads_own_is_left_alone() {
    let mut harness = Harness::new(|_| {});
    let stub = harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let usual = harness.space.path();
    let offsets = (usual.rseq_offset, usual.tid_offset);
    let unmapped = map(0, BLOCK_BYTES, libc::PROT_NONE, None) + BLOCK_BYTES as u64 / 2;
    let nothing = [
        ("address 0", 0, std::ptr::null_mut()),
        ("memory that is not there", unmapped, std::ptr::null_mut()),
    ];
    for path in [Path::Rseq, Path::LockedTls, Path::Locked] {
        harness.space.set_path(path, offsets.0, RSEQ_BYTES, offsets.1);
        for (name, address, start) in blocks().into_iter().chain(nothing) {
            let bytes = || match start.is_null() {
                true => Vec::new(),
                // SAFETY: mapped by blocks(), that long.
                false => unsafe { std::slice::from_raw_parts(start, BLOCK_BYTES) }.to_vec(),
            };
            let before = bytes();
            for n in 0..HITS {
                hit_with_fs(address, 7, n);
                hit2(8, n);
            }
            assert!(bytes() == before, "{path:?}, {name}: the block was changed");
            let mut seen: HashMap<u64, Vec<u64>> = HashMap::new();
            harness.reader().poll(|source, view| {
                if view.kind == RecordKind::Process {
                    return;
                }
                assert_eq!(view.task.unwrap().tid, tid(), "{path:?}, {name}");
                let values: Vec<_> = stub.layout.values(view.payload).map(Result::unwrap).collect();
                let [Value::Unsigned(which), Value::Unsigned(n)] = values[..] else { panic!("{values:?}") };
                if which == 8 && path == Path::Rseq && has_rseq() {
                    assert_eq!(source.set, Set::Rseq, "with its own storage it goes on as ever");
                } else {
                    assert_eq!(source.set, Set::Locked, "{path:?}, {name}");
                }
                seen.entry(which).or_default().push(n);
            });
            let all: Vec<u64> = (0..HITS).collect();
            for which in [7, 8] {
                let mut numbers = seen.remove(&which).unwrap_or_default();
                numbers.sort_unstable();
                assert_eq!(numbers, all, "{path:?}, {name}");
            }
        }
    }
}

#[test]
fn aggregates_count_hits_of_a_switched_thread() {
    let mut harness = Harness::new(|config| config.cells_bytes = 64);
    let cell = Cell::count(0);
    let spec = StubSpec { action: Action::Aggregate(vec![cell.clone()]), ..record(1, vec![]) };
    harness.attach(Place::TwoArguments, &spec);
    for (_, address, _) in blocks() {
        for n in 0..HITS {
            hit_with_fs(address, 1, n);
            hit2(1, n);
        }
    }
    let hits = 2 * HITS * blocks().len() as u64;
    assert_eq!(harness.ring.read_cell(&cell).keys, [(0, vec![hits])]);
}

#[test]
fn very_many_threads_all_have_their_place() {
    const N_THREADS: u64 = 400;
    let mut harness = Harness::new(|_| {});
    let stub = harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi"), value("8@%rsi")]));
    let (start, end) =
        (std::sync::Barrier::new(N_THREADS as usize), std::sync::Barrier::new(N_THREADS as usize));
    let tids: HashMap<u64, u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..N_THREADS)
            .map(|number| {
                let (start, end) = (&start, &end);
                let work = move || {
                    start.wait();
                    (0..10).for_each(|n| hit2(number, n));
                    end.wait();
                    tid()
                };
                std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, work).unwrap()
            })
            .collect();
        (0..).zip(threads).map(|(number, thread)| (number, thread.join().unwrap())).collect()
    });
    let mut n_hits = 0;
    harness.reader().poll(|source, view| {
        if view.kind == RecordKind::Process {
            return;
        }
        let values: Vec<_> = stub.layout.values(view.payload).map(Result::unwrap).collect();
        let Value::Unsigned(number) = values[0] else { panic!("{values:?}") };
        assert_eq!(view.task.unwrap().tid, tids[&number]);
        assert_eq!(source.set, if has_rseq() { Set::Rseq } else { Set::Locked });
        n_hits += 1;
    });
    assert_eq!(n_hits, 10 * N_THREADS);
}
