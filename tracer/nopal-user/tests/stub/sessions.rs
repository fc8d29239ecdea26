//! Several sessions on one site, coming and going; reuse of what they leave; the classic site with its tail.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use nopal_abi::stub_space::{JournalKind, JournalState, NO_SESSION};
use nopal_capture::record::RecordKind;
use nopal_user::consumer::Reader;
use nopal_user::ring::RingMemory;
use nopal_user::stub::chain::landing;
use nopal_user::stub::space::{Entry, ObjectIdentity, SessionFacts, Space};
use nopal_user::stub::tail::plan_tail;

use crate::harness::{Harness, Place, hit2, map, nopal_test_pun, record, value, write_text};

/// Events by number.
fn events(ring: &Arc<RingMemory>) -> HashMap<u32, usize> {
    let mut events = HashMap::new();
    Reader::of_one(ring.clone()).poll(|_, view| {
        if let RecordKind::Event(event) = view.kind {
            *events.entry(event).or_default() += 1;
        }
    });
    events
}

#[test]
fn sessions_come_and_go_in_any_order() {
    let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
    let sessions: Vec<_> =
        (0..3).map(|_| harness.another_session(|config| config.ring_bytes = 128 << 10)).collect();
    let mut stubs = Vec::new();
    for (event, (_, session)) in (0..).zip(&sessions) {
        stubs.push(harness.attach_for(session, Place::TwoArguments, &record(event, vec![value("8@%rdi")])));
    }
    let site = harness.space.site(Place::TwoArguments.address()).unwrap();
    let mut expected = [0; 3];
    // Every order of leaving and coming back: bit i says whether session i is on.
    let mut now = 0b111;
    for wanted in [0b111, 0b101, 0b001, 0b011, 0b110, 0b000, 0b010, 0b111, 0b000, 0b100, 0b111] {
        for (i, stub) in stubs.iter().enumerate() {
            match (now >> i & 1, wanted >> i & 1) {
                (0, 1) => harness.space.link(stub),
                (1, 0) => harness.space.unlink(stub),
                _ => {}
            }
        }
        now = wanted;
        hit2(1, 2);
        assert_eq!(harness.space.is_chained(&site), wanted != 0);
        for (i, (ring, _)) in sessions.iter().enumerate() {
            expected[i] = wanted >> i & 1;
            assert_eq!(events(ring).get(&(i as u32)).copied().unwrap_or(0), expected[i], "{wanted:03b} {i}");
        }
    }
    // A session whose tracer died is unchained from the journal alone.
    harness.space.unlink_session(sessions[1].1.index);
    hit2(1, 2);
    let counts: Vec<usize> = sessions.iter().map(|(ring, _)| events(ring).values().sum()).collect();
    assert_eq!(counts, [1, 0, 1]);
}

#[test]
fn attaching_again_takes_no_more_room() {
    let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
    let spec = record(4, vec![value("8@%rdi"), value("8@%rsi")]);
    let layout = *harness.ring.layout();
    let facts = |ring_address| SessionFacts {
        tracer_pid: 1,
        tracer_start: 2,
        generation: 3,
        ring_address,
        ring_inode: 4,
        layout,
    };
    let mut used = Vec::new();
    let stub = harness.attach(Place::TwoArguments, &spec);
    harness.space.unlink(&stub);
    harness.space.leave_session(harness.session.index);
    for _ in 0..50 {
        let (index, ring_address) = harness.space.left_session(layout.total_bytes).expect("one has left");
        assert_eq!((index, ring_address), (harness.session.index, harness.ring_address));
        let session = harness.space.enter_session(index, &facts(ring_address)).unwrap();
        let stub = harness.attach_for(&session, Place::TwoArguments, &spec);
        hit2(1, 2);
        harness.space.unlink(&stub);
        harness.space.leave_session(index);
        let n_entries = harness.space.entries().count();
        used.push((harness.space.code_bytes_used(), n_entries));
    }
    assert!(used.iter().all(|now| *now == used[0]), "{used:?}");
    assert_eq!(events(&harness.ring), HashMap::from([(4, 50)]));
    // Another event is another stub.
    let (index, ring_address) = harness.space.left_session(layout.total_bytes).unwrap();
    let session = harness.space.enter_session(index, &facts(ring_address)).unwrap();
    let mut spec = spec;
    spec.event = 5;
    harness.attach_for(&session, Place::TwoArguments, &spec);
    assert!(harness.space.code_bytes_used() > used[0].0);
    hit2(1, 2);
    assert_eq!(events(&harness.ring), HashMap::from([(5, 1)]));
}

#[test]
fn room_that_sessions_left_is_used_again() {
    let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
    let layout = *harness.ring.layout();
    let ring_address = harness.ring_address;
    harness.space.leave_session(harness.session.index);
    let mut most = 0;
    for round in 0..4000u32 {
        let (index, _) = harness.space.left_session(layout.total_bytes).expect("one has left");
        let facts = SessionFacts {
            tracer_pid: 1,
            tracer_start: 2,
            generation: 3,
            ring_address,
            ring_inode: 4,
            layout,
        };
        if harness.space.is_tight() {
            // The last hit is over, but its restartable sequence may still be the thread's last.
            crate::harness::forget_sequence();
            let disused = harness.space.disused();
            assert!(!disused.is_empty());
            harness.space.reclaim(disused);
        }
        let session = harness.space.enter_session(index, &facts).unwrap();
        // Another stub each time, of another length now and then.
        let captures = (0..=round % 5).map(|_| value("8@%rdi")).collect();
        let stub = harness.attach_for(&session, Place::TwoArguments, &record(round, captures));
        hit2(1, 2);
        assert_eq!(events(&harness.ring), HashMap::from([(round, 1)]), "round {round}");
        harness.space.unlink(&stub);
        harness.space.leave_session(index);
        hit2(1, 2);
        most = most.max(harness.space.code_bytes_used());
    }
    // A stub has some 400 bytes: all of them would take more than the megabyte there is.
    assert!(most < 700 << 10, "{most}");
}

#[test]
fn a_session_meets_a_process_anew_at_an_index_used_before() {
    let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
    let spec = record(4, vec![value("8@%rdi")]);
    let stub = harness.attach(Place::TwoArguments, &spec);
    let n_processes = |ring: &Arc<RingMemory>| {
        let mut pids = Vec::new();
        Reader::of_one(ring.clone()).poll(|_, view| {
            if view.kind == RecordKind::Process {
                pids.push(view.task.unwrap().pid);
            }
        });
        pids
    };
    (0..3).for_each(|i| hit2(i, i));
    assert_eq!(n_processes(&harness.ring), [std::process::id()]);
    harness.space.unlink(&stub);
    harness.space.leave_session(harness.session.index);

    let file = nopal_user::ring::memfd(c"nopal-ring").unwrap();
    let mut config = nopal_user::ring::RingConfig::new(harness.ring.layout().n_cpus);
    config.ring_bytes = 128 << 10;
    let ring = Arc::new(RingMemory::format(&file, &config).unwrap());
    ring.set_enabled(true);
    let bytes = ring.layout().total_bytes as usize;
    // SAFETY: no thread is in a stub; the old ring's mapping gives way to the new one's, as on a new attach.
    unsafe { libc::munmap(harness.ring_address as *mut _, bytes) };
    map(harness.ring_address, bytes, libc::PROT_READ | libc::PROT_WRITE, Some(file.as_fd()));
    let facts = SessionFacts {
        tracer_pid: 1,
        tracer_start: 2,
        generation: ring.generation(),
        ring_address: harness.ring_address,
        ring_inode: 4,
        layout: *ring.layout(),
    };
    let session = harness.space.enter_session(harness.session.index, &facts).unwrap();
    let again = harness.attach_for(&session, Place::TwoArguments, &spec);
    assert_eq!(again.entry, stub.entry, "the old code does");
    (0..3).for_each(|i| hit2(i, i));
    assert_eq!(n_processes(&ring), [std::process::id()]);
}

#[test]
fn the_journal_is_read_again_and_runs_full_with_a_word() {
    let file = nopal_user::ring::memfd(c"nopal-journal").unwrap();
    let space = Space::format(&file, 0x10_0000, 64 << 10, 8, 0).unwrap();
    let entry = |address| Entry {
        kind: JournalKind::Patch,
        session: NO_SESSION,
        length: 1,
        address,
        code: 0,
        slot: 0,
        extent: 0,
        pid: 0,
        object: ObjectIdentity { device: 1, inode: 2, build_id: 3, link_address: 4 },
    };
    for i in 0..8 {
        assert_eq!(space.journal(&entry(i)).unwrap(), i as usize);
    }
    assert!(space.journal(&entry(8)).is_err());
    space.set_state(3, JournalState::Undone);
    assert!(space.journal(&entry(8)).is_err(), "an entry is used again only for the same");
    assert_eq!(space.journal(&entry(3)).unwrap(), 3);
    space.set_state(5, JournalState::InForce);
    let copy = |bytes: &[u8], address| {
        let file = nopal_user::ring::memfd(c"nopal-copy").unwrap();
        Space::copied(&file, address, bytes, 64 << 10)
    };
    let mut bytes = space.bytes();
    let again = copy(&bytes, 0x10_0000).unwrap();
    let states: Vec<_> =
        again.entries().map(|(index, old, state)| (index, old == entry(index as u64), state)).collect();
    let expected: Vec<_> = (0..8)
        .map(|i| (i, true, if i == 5 { JournalState::InForce } else { JournalState::Prepared }))
        .collect();
    assert_eq!(states, expected);
    assert!(copy(&bytes, 0x20_0000).is_err(), "it knows where it is");
    bytes[8] = 9;
    let error = copy(&bytes, 0x10_0000).unwrap_err();
    assert!(error.to_string().contains("version is 0x9"), "{error}");
}

#[test]
fn a_full_space_is_refused_and_the_rest_goes_on() {
    let file = nopal_user::ring::memfd(c"nopal-full").unwrap();
    let space = Space::format(&file, 0x10_0000, 12 << 10, 64, 0).unwrap();
    let mut sites = 0;
    let error = (0..)
        .find_map(|i| {
            let tail = plan_tail(&[0x90; 8], 0x10_4000 + 16 * i);
            let added = space.add_site(0x10_4000 + 16 * i, &tail, ObjectIdentity::default());
            sites += usize::from(added.is_ok());
            added.err()
        })
        .unwrap();
    assert!(sites > 10);
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!(space.entries().count(), sites);
}

#[test]
fn a_classic_site_runs_through_its_landing_and_tail() {
    let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
    // A stub on another site first: the space is in use.
    harness.attach(Place::TwoArguments, &record(1, vec![value("8@%rdi")]));
    let address = Place::Classic.address();
    // SAFETY: our own text.
    let code = unsafe { std::slice::from_raw_parts((address + 1) as *const u8, 12) };
    let rel = i32::from_le_bytes(code[..4].try_into().unwrap());
    let lands = (address + 5).wrapping_add(rel as u64);
    let page = lands & !0xfff;
    map(page, 8192, libc::PROT_READ | libc::PROT_WRITE, None);
    let tail = plan_tail(code, address + 1);
    assert!(!tail.copies_nothing());
    let site = harness.space.add_site(address, &tail, ObjectIdentity::default()).unwrap();
    let captures = vec![value("8@%rdi"), value("8@%rsi")];
    let stub = harness.space.add_stub(&site, &harness.session, &record(2, captures)).unwrap();
    let jump = landing(lands, site.thunk);
    assert!(landing(0x7f00_0000_0000, 0x1000).len() == 14, "out of reach takes an indirect jump");
    // SAFETY: the pages were just mapped.
    unsafe {
        std::ptr::copy_nonoverlapping(jump.as_ptr(), lands as *mut u8, jump.len());
        libc::mprotect(page as *mut _, 8192, libc::PROT_READ | libc::PROT_EXEC);
    }
    // SAFETY: the function only adds.
    let sum = |a, b| unsafe { nopal_test_pun(a, b) };
    write_text(address, &[0xe9]);
    assert_eq!(sum(3, 4), 23, "no stub yet");
    harness.space.link(&stub);
    for i in 0..100 {
        assert_eq!(sum(i, 1000), i + 1016);
    }
    harness.space.unlink(&stub);
    assert_eq!(sum(5, 6), 27);
    write_text(address, &[0x90]);
    assert_eq!(sum(7, 8), 31);
    assert_eq!(events(&harness.ring), HashMap::from([(2, 100)]));
}
