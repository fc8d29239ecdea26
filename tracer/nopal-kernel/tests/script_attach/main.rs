//! Scripts attached to running programs of our own: USDT probes, functions, tracepoints, timers.

mod app;

use app::{App, app, scratch, start};
use nopal_kernel::script::{Attached, ScriptDoor, ScriptOptions, State, processes_mapping};
use nopal_proc::symbols::Symbolizer;
use nopal_program::aggregate::Aggregate;
use nopal_program::op::{Binary, Builtin, Op, Slot, Space};
use nopal_program::{
    Action, Clause, Code, Limits, MapDef, MapValue, Place, Point, PointKind, Program, SoftwareEvent, Type,
};
use std::path::Path;
use std::process::Command;

fn usdt(app: &App, name: &str) -> Point {
    let path = app.path.to_str().unwrap().to_owned();
    let kind = PointKind::Usdt { path, provider: "app".to_owned(), name: name.to_owned() };
    Point { name: format!("usdt:app:{name}"), kind }
}

fn function(app: &App, is_return: bool) -> Point {
    let path = app.path.to_str().unwrap().to_owned();
    let place = Place::Symbol { name: "twice".to_owned(), offset: 0 };
    let kind =
        if is_return { PointKind::Uretprobe { path, place } } else { PointKind::Uprobe { path, place } };
    Point { name: "twice".to_owned(), kind }
}

fn script(clauses: Vec<(Vec<Point>, Code)>, maps: Vec<MapDef>) -> Program {
    Program {
        clauses: clauses.into_iter().map(|(points, code)| Clause { points, code }).collect(),
        maps,
        actions: vec![Action::PrintMap { map: 0, top: 0, div: 1, rank: Default::default() }; 8],
        limits: Limits::default(),
        ..Program::default()
    }
}

fn open(program: &Program) -> ScriptDoor {
    ScriptDoor::open(program, &ScriptOptions::default()).unwrap()
}

fn armed(states: &[Attached]) -> usize {
    let n = |state: &State| match state {
        State::Armed { n_sites } => *n_sites,
        other => panic!("{other:?}"),
    };
    states.iter().map(|attached| n(&attached.state)).sum()
}

fn emitted(door: &mut ScriptDoor) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::new();
    door.poll(|each| all.push((each.action, each.payload.to_vec())));
    all
}

fn words(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes[..bytes.iter().position(|b| *b == 0).unwrap()].to_vec()).unwrap()
}

const ARGS: [Op; 4] = [
    Op::Arg { dst: 0, index: 0 },
    Op::Arg { dst: 1, index: 2 },
    Op::Arg { dst: 2, index: 3 },
    Op::Arg { dst: 3, index: 4 },
];

fn args_and_text() -> Code {
    let mut ops = ARGS.to_vec();
    ops.extend((0..4).map(|src| Op::Store { at: u32::from(src) * 8, src, size_bytes: 8 }));
    ops.push(Op::ArgString { to: Slot { at: 32, len: 16 }, index: 1, len: None });
    ops.push(Op::Emit { action: 0, payload: Slot { at: 0, len: 48 } });
    Code { ops, n_regs: 4, frame_bytes: 48 }
}

#[test]
fn arguments_and_strings_of_a_probe() {
    for has_uprobe_multi in [true, false] {
        let mut app = app(&[]);
        let program = script(vec![(vec![usdt(&app, "hit")], args_and_text())], Vec::new());
        let options = ScriptOptions { has_uprobe_multi, ..ScriptOptions::default() };
        let mut door = ScriptDoor::open(&program, &options).unwrap();
        assert_eq!(armed(&door.attach_process(app.pid()).unwrap()), 1);
        assert_eq!(door.attach_process(app.pid()).unwrap(), [], "attached already");
        assert_eq!(app.ask("3"), (3, 1), "the semaphore is up");
        let all = emitted(&mut door);
        let numbers: Vec<Vec<i64>> = all.iter().map(|(_, payload)| words(&payload[..32])).collect();
        assert_eq!(numbers, [[0, 0, 0, 0], [1, -1, 0, 1], [2, -2, 0, 2]]);
        let texts: Vec<String> = all.iter().map(|(_, payload)| text(&payload[32..])).collect();
        assert_eq!(texts, ["even and longer", "odd", "even and longer"]);
        door.detach();
        app.wait_for_no_tracer();
        assert_eq!(app.ask("2"), (5, 0), "the semaphore is down");
        assert_eq!(emitted(&mut door), []);
        assert_eq!(door.loss().unwrap(), Default::default());
    }
}

#[test]
fn several_probes_of_one_clause_are_told_apart() {
    let mut app = app(&[]);
    let key = Slot { at: 0, len: 8 };
    let ops = vec![
        Op::Probe { dst: 0 },
        Op::Store { at: 0, src: 0, size_bytes: 8 },
        Op::Arg { dst: 1, index: 0 },
        Op::Aggregate { map: 0, key, value: 1 },
    ];
    let maps = vec![MapDef {
        name: "@".to_owned(),
        key: vec![Type::Probe],
        value: MapValue::Aggregate(Aggregate::Sum { is_signed: true }),
    }];
    let points = vec![usdt(&app, "hit"), usdt(&app, "done"), usdt(&app, "nothing")];
    let program = script(vec![(points, Code { ops, n_regs: 2, frame_bytes: 8 })], maps);
    let mut door = open(&program);
    let states = door.attach_process(app.pid()).unwrap();
    let refused: Vec<_> = states.iter().filter(|s| matches!(s.state, State::Refused { .. })).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].point, 2);
    app.ask("10");
    let mut entries: Vec<(i64, i64)> =
        door.map_entries(0).unwrap().iter().map(|e| (words(&e.key)[0], words(&e.value)[0])).collect();
    entries.sort_unstable();
    assert_eq!(entries, [(0, 45), (1 << 32, 90)]);
}

#[test]
fn functions_their_arguments_and_what_they_return() {
    for has_uprobe_multi in [true, false] {
        let mut app = app(&[]);
        let store = |at, src| Op::Store { at, src, size_bytes: 8 };
        let entry = vec![
            Op::Arg { dst: 0, index: 0 },
            Op::Arg { dst: 1, index: 2 },
            Op::Arg { dst: 2, index: 5 },
            Op::Arg { dst: 3, index: 7 },
            Op::Builtin { dst: 4, what: Builtin::Ip },
            Op::Register { dst: 5, index: 16 },
            store(0, 0),
            store(8, 1),
            store(16, 2),
            store(24, 3),
            store(32, 4),
            store(40, 5),
            Op::Emit { action: 0, payload: Slot { at: 0, len: 48 } },
        ];
        let exit = vec![
            Op::Builtin { dst: 0, what: Builtin::Retval },
            store(0, 0),
            Op::Builtin { dst: 0, what: Builtin::Ip },
            store(8, 0),
            Op::Emit { action: 1, payload: Slot { at: 0, len: 16 } },
        ];
        let clauses = vec![
            (vec![function(&app, false)], Code { ops: entry, n_regs: 6, frame_bytes: 48 }),
            (vec![function(&app, true)], Code { ops: exit, n_regs: 1, frame_bytes: 16 }),
        ];
        let options = ScriptOptions { has_uprobe_multi, ..ScriptOptions::default() };
        let mut door = ScriptDoor::open(&script(clauses, Vec::new()), &options).unwrap();
        assert_eq!(armed(&door.attach_process(app.pid()).unwrap()), 2);
        app.ask("3");
        let all = emitted(&mut door);
        let entries: Vec<Vec<i64>> = all.iter().filter(|e| e.0 == 0).map(|e| words(&e.1)).collect();
        let returned: Vec<Vec<i64>> = all.iter().filter(|e| e.0 == 1).map(|e| words(&e.1)).collect();
        assert_eq!(
            entries.iter().map(|e| e[..4].to_vec()).collect::<Vec<_>>(),
            [[0, 3, 6, 8], [1, 3, 6, 8], [2, 3, 6, 8]]
        );
        assert_eq!(returned.iter().map(|e| e[0]).collect::<Vec<_>>(), [0, 2, 4]);
        let mut symbolizer = Symbolizer::new();
        symbolizer.remember(app.pid());
        let pid = app.pid();
        drop(app);
        for address in [entries[0][4], entries[0][5]] {
            let symbol = symbolizer.user(pid, address as u64).expect("a name after the process has ended");
            assert_eq!((symbol.name.as_str(), symbol.offset), ("twice", 0));
        }
        if has_uprobe_multi {
            assert_eq!(returned[0][1], entries[0][4], "the function that returned");
        }
    }
}

#[test]
fn stacks_lead_to_main() {
    let mut app = app(&[]);
    let to = Slot { at: 0, len: 16 + 8 * 20 };
    let ops = vec![Op::UserStack { to }, Op::Emit { action: 0, payload: to }];
    let program =
        script(vec![(vec![function(&app, false)], Code { ops, n_regs: 0, frame_bytes: to.len })], Vec::new());
    let mut door = open(&program);
    armed(&door.attach_process(app.pid()).unwrap());
    app.ask("1");
    let all = emitted(&mut door);
    let stack = words(&all[0].1);
    assert_eq!(stack[0], i64::from(app.pid()));
    let n = stack[1] as usize;
    let mut symbolizer = Symbolizer::new();
    let names: Vec<String> = stack[2..2 + n]
        .iter()
        .filter_map(|address| symbolizer.user(app.pid(), *address as u64))
        .map(|symbol| symbol.name)
        .collect();
    assert_eq!(names.first().map(String::as_str), Some("twice"), "{names:?}");
    assert!(names.iter().any(|name| name == "main"), "{names:?}");
}

#[test]
fn a_string_that_is_not_in_memory_is_waited_for() {
    let dir = scratch();
    let file = dir.join("cold");
    let mut bytes = vec![b'.'; 8192];
    bytes[4090..4103].copy_from_slice(b"over the edge");
    bytes[4103] = 0;
    std::fs::write(&file, &bytes).unwrap();
    let mut app = app(&[file.to_str().unwrap()]);
    let mut code = args_and_text();
    code.ops.insert(4, Op::Arg { dst: 3, index: 1 });
    let at = code.ops.len() - 1;
    code.ops.insert(at, Op::Read { to: Slot { at: 48, len: 5 }, address: 3, space: Space::User });
    code.ops.insert(at, Op::BinaryConst { op: Binary::Add, dst: 3, a: 3, b: 8 });
    code.ops.pop();
    code.ops.push(Op::Emit { action: 0, payload: Slot { at: 0, len: 56 } });
    code.frame_bytes = 56;
    let program = script(vec![(vec![usdt(&app, "hit")], code)], Vec::new());
    let mut door = open(&program);
    armed(&door.attach_process(app.pid()).unwrap());
    app.ask("c");
    let all = emitted(&mut door);
    assert_eq!(text(&all[0].1[32..]), "over the edge");
    assert_eq!(&all[0].1[48..53], b" edge");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn other_processes_are_left_alone_unless_all_are_meant() {
    let mut app = app(&[]);
    let mut other = start(app.path.clone(), &[]);
    let count = vec![Op::Aggregate { map: 0, key: Slot { at: 0, len: 0 }, value: 0 }];
    let maps = || {
        vec![MapDef { name: "@".to_owned(), key: Vec::new(), value: MapValue::Aggregate(Aggregate::Count) }]
    };
    let code = Code { ops: count, n_regs: 1, frame_bytes: 0 };
    let program = script(vec![(vec![usdt(&app, "hit")], code)], maps());
    let n =
        |door: &ScriptDoor| door.map_entries(0).unwrap().first().map_or(0, |entry| words(&entry.value)[0]);

    let mut door = open(&program);
    armed(&door.attach_process(app.pid()).unwrap());
    app.ask("5");
    assert_eq!(other.ask("5"), (5, 0), "its semaphore is down");
    assert_eq!(n(&door), 5);
    armed(&door.attach_process(other.pid()).unwrap());
    other.ask("4");
    assert_eq!(n(&door), 9);
    drop(door);

    assert_eq!(processes_mapping(&app.path).len(), 2);
    let mut door = open(&program);
    assert_eq!(armed(&door.attach_files().unwrap()), 1);
    app.ask("5");
    other.ask("6");
    assert_eq!(n(&door), 11);
    drop(door);
    // The file is removed by the first.
    drop(other);
}

#[test]
fn what_cannot_be_attached_says_why() {
    let app = app(&[]);
    let path = app.path.to_str().unwrap().to_owned();
    let arg = |index| Code { ops: vec![Op::Arg { dst: 0, index }], n_regs: 1, frame_bytes: 0 };
    let symbol = |name: &str, offset| PointKind::Uprobe {
        path: path.clone(),
        place: Place::Symbol { name: name.to_owned(), offset },
    };
    let point = |kind| Point { name: "x".to_owned(), kind };
    let cases = [
        (usdt(&app, "leaf"), arg(0), "5-byte nop"),
        (usdt(&app, "nothing"), arg(0), "no probe app:nothing"),
        (usdt(&app, "hit"), arg(9), "no arg9"),
        (point(symbol("nobody", 0)), arg(0), "no function nobody"),
        (point(symbol("hit", 2)), arg(0), "not the beginning of an instruction"),
        (point(symbol("hit", 100_000)), arg(0), "outside the function bounds"),
        (
            point(PointKind::Uprobe { path: "/no/such".to_owned(), place: Place::Address(0) }),
            arg(0),
            "no file",
        ),
    ];
    for (point, code, why) in cases {
        let mut door = open(&script(vec![(vec![point], code)], Vec::new()));
        let states = door.attach_process(app.pid()).unwrap();
        let State::Refused { why: got } = &states[0].state else { panic!("{states:?}") };
        assert!(got.to_string().contains(why), "{got}");
    }
    // The entry of a function is safe whatever is there.
    let mut door = open(&script(vec![(vec![point(symbol("leaf", 0))], arg(0))], Vec::new()));
    armed(&door.attach_process(app.pid()).unwrap());
    let gone = door.attach_process(4_000_000);
    assert!(gone.is_err(), "{gone:?}");

    let kprobe = point(PointKind::Kprobe { function: "vfs_read".to_owned(), offset: 0 });
    let mut door = open(&script(vec![(vec![kprobe], arg(0))], Vec::new()));
    let states = door.attach_events().unwrap();
    if !std::path::Path::new("/sys/bus/event_source/devices/kprobe").exists() {
        let State::Refused { why } = &states[0].state else { panic!("{states:?}") };
        assert!(why.to_string().contains("without kprobes"), "{why}");
    }
}

#[test]
fn a_library_that_is_loaded_later_is_waited_for() {
    let dir = scratch();
    let (library, holder) = (dir.join("liblate.so"), dir.join("holder"));
    let build = |source: &str, to: &Path, flags: &[&str]| {
        let file = to.with_extension("c");
        std::fs::write(&file, source).unwrap();
        assert!(
            Command::new("gcc")
                .arg("-O2")
                .arg(&file)
                .arg("-o")
                .arg(to)
                .args(flags)
                .status()
                .unwrap()
                .success()
        );
    };
    build("long late(long a) { return a + 1; }", &library, &["-shared", "-fPIC"]);
    build(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(int c, char **v) { char l[8]; puts(\"ready\"); fflush(stdout);\
         fgets(l, 8, stdin); long (*f)(long) = dlsym(dlopen(v[1], RTLD_NOW), \"late\"); printf(\"%ld 0\\n\", f(6));\
         fflush(stdout); return getchar(); }",
        &holder,
        &["-ldl"],
    );
    let mut app = start(holder, &[library.to_str().unwrap()]);
    let count = vec![Op::Aggregate { map: 0, key: Slot { at: 0, len: 0 }, value: 0 }];
    let maps =
        vec![MapDef { name: "@".to_owned(), key: Vec::new(), value: MapValue::Aggregate(Aggregate::Count) }];
    let place = Place::Symbol { name: "late".to_owned(), offset: 0 };
    let kind = PointKind::Uprobe { path: library.to_str().unwrap().to_owned(), place };
    let missing = PointKind::Uprobe { path: "/no/such".to_owned(), place: Place::Address(0) };
    let points = [kind, missing].map(|kind| Point { name: "x".to_owned(), kind }).to_vec();
    let mut door = open(&script(vec![(points, Code { ops: count, n_regs: 1, frame_bytes: 0 })], maps));
    let states = door.attach_process(app.pid()).unwrap();
    assert!(states.iter().any(|s| s.state == State::Waiting { n_sites: 1 }), "{states:?}");
    assert!(states.iter().any(|s| matches!(s.state, State::Refused { .. })), "{states:?}");
    assert_eq!(door.attach_process(app.pid()).unwrap(), [], "nothing is said twice");
    assert_eq!(app.ask("go").0, 7);
    assert_eq!(armed(&door.attach_process(app.pid()).unwrap()), 1);
    assert_eq!(words(&door.map_entries(0).unwrap()[0].value), [1]);
}

#[test]
fn timers_and_counters() {
    let count = |map| vec![Op::Aggregate { map, key: Slot { at: 0, len: 0 }, value: 0 }];
    let point = |kind| vec![Point { name: "x".to_owned(), kind }];
    let code = |map| Code { ops: count(map), n_regs: 1, frame_bytes: 0 };
    let stack = Slot { at: 0, len: 8 + 8 * 16 };
    let mut profile = code(1);
    profile.ops.extend([Op::KernelStack { to: stack }, Op::Builtin { dst: 0, what: Builtin::Ip }]);
    profile.frame_bytes = stack.len;
    let clauses = vec![
        (point(PointKind::Interval { period_ns: 2_000_000 }), code(0)),
        (point(PointKind::Profile { period_ns: 2_000_000 }), profile),
        (point(PointKind::Software { event: SoftwareEvent::ContextSwitches, count: 1 }), code(2)),
    ];
    let map =
        || MapDef { name: "@".to_owned(), key: Vec::new(), value: MapValue::Aggregate(Aggregate::Count) };
    let program = script(clauses, vec![map(), map(), map()]);
    let mut door = open(&program);
    let states = door.attach_events().unwrap();
    assert_eq!(states.len(), 3);
    armed(&states);
    let n = |door: &ScriptDoor, map| door.map_entries(map).unwrap().first().map_or(0, |e| words(&e.value)[0]);
    for _ in 0..1000 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        if (0..3).all(|map| n(&door, map) > 2) {
            break;
        }
    }
    door.detach();
    let counts = || (0..3).map(|map| n(&door, map)).collect::<Vec<i64>>();
    assert!(counts().iter().all(|n| *n > 2), "{:?}", counts());
    // A child that another test forks has copies of the events until its exec.
    let stands_still = || {
        let before = counts();
        std::thread::sleep(std::time::Duration::from_millis(20));
        before == counts()
    };
    assert!((0..100).any(|_| stands_still()), "detached: {:?}", counts());
}

/// The tracepoint of a system call that only this test makes, told from others by its thread.
#[test]
fn tracepoints_and_their_fields() {
    let root = "/sys/kernel/tracing";
    mount_tracefs();
    let format = std::fs::read_to_string(format!("{root}/events/task/task_rename/format")).unwrap();
    let offset = |field: &str| -> u16 {
        let line = format.lines().find(|line| line.contains(field)).unwrap();
        line.split("offset:").nth(1).unwrap().split(';').next().unwrap().parse().unwrap()
    };
    let ops = vec![
        Op::Builtin { dst: 0, what: Builtin::Tid },
        // SAFETY: has no preconditions.
        Op::BinaryConst { op: Binary::Eq, dst: 0, a: 0, b: unsafe { libc::gettid() as i64 } },
        Op::JumpUnless { condition: 0, to: 9 },
        Op::FieldBytes { to: Slot { at: 0, len: 16 }, offset: offset("newcomm[16]") },
        Op::Field { dst: 1, offset: offset("oom_score_adj"), size_bytes: 2, is_signed: true },
        Op::Store { at: 16, src: 1, size_bytes: 8 },
        Op::Field { dst: 1, offset: offset("common_pid"), size_bytes: 4, is_signed: true },
        Op::Store { at: 24, src: 1, size_bytes: 8 },
        Op::Emit { action: 0, payload: Slot { at: 0, len: 32 } },
    ];
    let kind = PointKind::Tracepoint { category: "task".to_owned(), name: "task_rename".to_owned() };
    let points = vec![Point { name: "x".to_owned(), kind }];
    let mut door = open(&script(vec![(points, Code { ops, n_regs: 2, frame_bytes: 32 })], Vec::new()));
    armed(&door.attach_events().unwrap());
    std::fs::write("/proc/thread-self/comm", "renamed").unwrap();
    let all = emitted(&mut door);
    assert_eq!(all.len(), 1);
    assert_eq!(text(&all[0].1[..16]), "renamed");
    // SAFETY: has no preconditions.
    assert_eq!(words(&all[0].1[16..])[1], unsafe { i64::from(libc::gettid()) });
    let none = PointKind::Tracepoint { category: "task".to_owned(), name: "no_such".to_owned() };
    let points = vec![Point { name: "x".to_owned(), kind: none }];
    let mut door = open(&script(vec![(points, Code::default())], Vec::new()));
    let states = door.attach_events().unwrap();
    assert!(
        matches!(&states[0].state, State::Refused { why } if why.to_string().contains("no tracepoint")),
        "{states:?}"
    );
}

fn mount_tracefs() {
    if !std::path::Path::new("/sys/kernel/tracing/uprobe_events").exists() {
        // SAFETY: all three are C strings; mounting tracefs where it belongs is what this test needs.
        let mounted = unsafe {
            libc::mount(
                c"nodev".as_ptr(),
                c"/sys/kernel/tracing".as_ptr(),
                c"tracefs".as_ptr(),
                0,
                std::ptr::null(),
            )
        };
        assert_eq!(mounted, 0, "tracefs can be mounted");
    }
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives over the call; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn without_bpf_the_records_of_tracefs_do() {
    use nopal_capture::Capture;
    use nopal_capture::record::RecordLayout;
    use nopal_kernel::ftrace::{FtraceDoor, FtraceSite, payload};
    mount_tracefs();
    let mut app = app(&[]);
    let mut other = start(app.path.clone(), &[]);
    let bytes = std::fs::read(&app.path).unwrap();
    let object = nopal_sdt::read(&bytes[..]).unwrap();
    let site = |name: &str, args: &[(usize, bool)]| {
        let site = &object.probe("app", name).unwrap().sites[0];
        FtraceSite {
            path: app.path.clone(),
            file_offset: site.file_offset,
            ref_ctr_offset: site.semaphore.map_or(0, |semaphore| semaphore.file_offset),
            args: args.iter().map(|(i, s)| (site.args[*i].operand.clone().unwrap(), *s)).collect(),
        }
    };
    let ours = format!("nopal_ftrace_{}_", std::process::id());
    let mut door = FtraceDoor::open().unwrap();
    door.add(&site("hit", &[(0, false), (1, true), (2, false)])).unwrap();
    door.add(&site("done", &[(0, false)])).unwrap();
    door.start(&[app.pid()]).unwrap();
    let before_ns = monotonic_ns();
    assert_eq!(app.ask("3"), (3, 1), "the semaphore is up");
    other.ask("5");
    let captures = {
        let operand =
            |index: usize| object.probe("app", "hit").unwrap().sites[0].args[index].operand.clone().unwrap();
        let pointer = operand(1);
        [
            Capture::Value { operand: operand(0) },
            Capture::CString { pointer, max_bytes: 32, is_trusted: false },
            Capture::Value { operand: operand(2) },
        ]
    };
    let (mut payloads, mut times) = (Vec::new(), Vec::new());
    let polled = door.poll(|hit| {
        assert_eq!(hit.tid, app.pid());
        times.push(hit.ns);
        if hit.event == 0 {
            payloads.push(payload(&captures, &hit.values));
        }
    });
    assert_eq!(polled.unwrap(), 6);
    assert_eq!(door.counts(), [3, 3], "another process is not shown");
    assert_eq!(door.n_lost(), 0);
    assert!(times.iter().all(|ns| (before_ns..monotonic_ns()).contains(ns)));
    // The number, how long the text is, another number, the text.
    let layout = RecordLayout::new(&captures, true, true);
    let shown = |payload: &Vec<u8>| {
        let text = layout.text(payload, 1).unwrap();
        assert!(!text.is_truncated && !text.is_unreadable);
        let number = |index: usize| layout.bits(payload, index).unwrap();
        (number(0), String::from_utf8_lossy(text.bytes).into_owned(), number(2))
    };
    let mut first: Vec<_> = payloads.iter().map(shown).collect();
    first.sort();
    let wanted = [(0, "even and longer", 0), (1, "odd", -1i64 as u64), (2, "even and longer", -2i64 as u64)];
    assert_eq!(first, wanted.map(|(a, text, b)| (a, text.to_owned(), b)));
    drop(door);
    app.wait_for_no_tracer();
    assert_eq!(app.ask("1").1, 0, "the semaphore is down");
    let left = std::fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap();
    assert!(!left.contains(&ours), "{left}");
    let instances = std::fs::read_dir("/sys/kernel/tracing/instances").unwrap().flatten();
    assert!(instances.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with(&ours)));
}
