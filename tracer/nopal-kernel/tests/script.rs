//! Programs in the kernel do what the interpreter says: every operation by itself, then random programs. They run as the
//! kernel runs a raw tracepoint program for testing, in this process, so that its memory is what they read.

use nopal_kernel::script::{Entry, ScriptDoor, ScriptError, ScriptOptions};
use nopal_program::aggregate::Aggregate;
use nopal_program::interpret::{Hit, Interpreter};
use nopal_program::op::{Binary, Builtin, Op, Slot, Space, Unary};
use nopal_program::{Action, Clause, Code, MapDef, MapValue, Point, PointKind, Program, StackForm, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What string operations read: texts of different lengths, one without an end, one empty.
static MEMORY: &[u8] = b"hello\0a longer text than most\0\0caf\xc3\xa9\0no end";

struct Here<'a> {
    args: &'a [u64; 12],
    comm: Vec<u8>,
}

impl Here<'_> {
    fn memory(address: u64) -> Option<&'static [u8]> {
        let at = address.checked_sub(MEMORY.as_ptr() as u64)? as usize;
        MEMORY.get(at..)
    }
}

impl Hit for Here<'_> {
    fn arg(&self, index: u8) -> i64 {
        self.args.get(usize::from(index)).copied().unwrap_or(0) as i64
    }
    fn arg_string(&self, index: u8) -> &[u8] {
        let bytes = Here::memory(self.arg(index) as u64).unwrap_or_default();
        &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
    }
    fn arg_bytes(&self, index: u8) -> &[u8] {
        Here::memory(self.arg(index) as u64).unwrap_or_default()
    }
    fn builtin(&self, what: Builtin) -> u64 {
        match what {
            Builtin::Pid => u64::from(std::process::id()),
            // SAFETY: these calls have no preconditions.
            Builtin::Tid => unsafe { libc::gettid() as u64 },
            // SAFETY: as above.
            Builtin::Uid => unsafe { u64::from(libc::getuid()) },
            // SAFETY: as above.
            Builtin::Gid => unsafe { u64::from(libc::getgid()) },
            Builtin::Cpu
            | Builtin::Nsecs
            | Builtin::Elapsed
            | Builtin::Rand
            | Builtin::Cgroup
            | Builtin::Curtask
            | Builtin::Retval
            | Builtin::Ip
            | Builtin::Ctx
            | Builtin::NsecsBoot
            | Builtin::NsecsTai
            | Builtin::Jiffies
            | Builtin::NumaNode => 0,
        }
    }
    fn comm(&self) -> &[u8] {
        &self.comm
    }
    fn read(&self, space: Space, address: u64, to: &mut [u8]) -> bool {
        let found = (space == Space::User).then(|| Here::memory(address)).flatten();
        match found.and_then(|bytes| bytes.get(..to.len())) {
            Some(bytes) => {
                to.copy_from_slice(bytes);
                true
            }
            None => to.is_empty(),
        }
    }
    fn read_string(&self, space: Space, address: u64, to: &mut [u8]) -> bool {
        let found = (space == Space::User).then(|| Here::memory(address)).flatten();
        let Some(bytes) = found else { return false };
        let n = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()).min(to.len());
        to[..n].copy_from_slice(&bytes[..n]);
        to[n..].fill(0);
        true
    }
}

fn program(code: Code, maps: Vec<MapDef>) -> Program {
    let begin = Point { name: "BEGIN".to_owned(), kind: PointKind::Begin };
    Program {
        clauses: vec![Clause { points: vec![begin], code }],
        maps,
        actions: vec![Action::PrintMap { map: 0, top: 0, div: 1, rank: Default::default() }; 4],
        constants: vec![b"hello".to_vec(), b"text\0tail".to_vec(), vec![7; 300], Vec::new()],
        ..Program::default()
    }
}

/// One whose maps have all their memory from the beginning: the kernel gives no large shares in the middle of a hit whenever it has
/// none ready.
fn small(code: Code, maps: Vec<MapDef>) -> Program {
    let mut program = program(code, maps);
    program.limits.map_entries = 16;
    program
}

type Outcome = (Vec<(u32, Vec<u8>)>, Vec<BTreeMap<Vec<u8>, Vec<u8>>>);

/// One run for each of `inputs`, one after another.
fn in_kernel(program: &Program, inputs: &[[u64; 12]]) -> Outcome {
    let options = ScriptOptions { ring_bytes: 1 << 20, ..ScriptOptions::default() };
    let mut door = match ScriptDoor::open(program, &options) {
        Ok(door) => door,
        Err(error) => panic!("{error}"),
    };
    let mut emitted = Vec::new();
    for args in inputs {
        match door.run_with(&PointKind::Begin, args) {
            Ok(()) => {}
            Err(ScriptError::Refused { error, log, .. }) => {
                let tail: Vec<&str> = log.lines().rev().take(60).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                panic!("{error}\n{}\n{:#?}", tail.join("\n"), program.clauses[0].code.ops);
            }
            Err(error) => panic!("{error}: {:#?}", program.clauses[0].code.ops),
        }
        door.poll(|each| emitted.push((each.action, each.payload.to_vec())));
    }
    let loss = door.loss().unwrap();
    assert_eq!((loss.n_emitted, loss.n_crowded, loss.n_cut), (0, 0, 0), "{loss:?}");
    let entries = |map| {
        let all = door.map_entries(map).unwrap().into_iter();
        all.map(|Entry { key, value }| (key, value)).collect()
    };
    (emitted, (0..program.maps.len() as u32).map(entries).collect())
}

fn in_interpreter(program: &Program, inputs: &[[u64; 12]]) -> Outcome {
    let mut interpreter = Interpreter::new(Arc::new(program.clone()), 1).unwrap();
    let mut emitted = Vec::new();
    let comm = std::fs::read("/proc/thread-self/comm").unwrap();
    for args in inputs {
        let here = Here { args, comm: comm.trim_ascii_end().to_vec() };
        interpreter.run(0, 0, &here, |_, each| emitted.push((each.action, each.payload.to_vec())));
    }
    let entries = |table: &nopal_program::interpret::Table| {
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        table.entries().map(|(key, words)| (key.to_vec(), bytes(words))).collect()
    };
    (emitted, interpreter.maps.iter().map(entries).collect())
}

#[track_caller]
fn agree(program: &Program, inputs: &[[u64; 12]]) {
    let (want, got) = (in_interpreter(program, inputs), in_kernel(program, inputs));
    assert_eq!(got.0, want.0, "emitted by\n{:#?}", program.clauses[0].code);
    for (map, (got, want)) in got.1.iter().zip(&want.1).enumerate() {
        assert_eq!(got, want, "map {} after\n{:#?}", program.maps[map].name, program.clauses[0].code);
    }
}

/// Ops, then everything in registers and frame is emitted.
fn shown(mut ops: Vec<Op>, n_regs: u16, frame_bytes: u32) -> Code {
    let regs_at = frame_bytes.next_multiple_of(8);
    let all = regs_at + u32::from(n_regs) * 8;
    for reg in 0..n_regs {
        ops.push(Op::Store { at: regs_at + u32::from(reg) * 8, src: reg, size_bytes: 8 });
    }
    ops.push(Op::Emit { action: 1, payload: Slot { at: 0, len: all } });
    Code { ops, n_regs, frame_bytes: all }
}

const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    7,
    63,
    64,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff,
    0x1234_5678_9abc_def0,
    0xffff_ffff_ffff_fff9,
];

const BINARY: [Binary; 23] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::DivUnsigned,
    Binary::DivSigned,
    Binary::RemUnsigned,
    Binary::RemSigned,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Shl,
    Binary::ShrUnsigned,
    Binary::ShrSigned,
    Binary::Eq,
    Binary::Ne,
    Binary::LtUnsigned,
    Binary::LtSigned,
    Binary::LeUnsigned,
    Binary::LeSigned,
    Binary::GtUnsigned,
    Binary::GtSigned,
    Binary::GeUnsigned,
    Binary::GeSigned,
];

#[test]
fn arithmetic() {
    for op in BINARY {
        // Every pair of the numbers, each with its emitted result.
        let mut ops = Vec::new();
        for a in 0..12 {
            ops.push(Op::Arg { dst: 0, index: a });
            for b in 0..12 {
                ops.push(Op::Arg { dst: 1, index: b });
                ops.push(Op::Binary { op, dst: 2, a: 0, b: 1 });
                ops.push(Op::BinaryConst { op, dst: 3, a: 0, b: NUMBERS[usize::from(b)] as i64 });
                ops.push(Op::Store { at: 0, src: 2, size_bytes: 8 });
                ops.push(Op::Store { at: 8, src: 3, size_bytes: 8 });
                ops.push(Op::Emit { action: 0, payload: Slot { at: 0, len: 16 } });
            }
        }
        agree(&program(Code { ops, n_regs: 4, frame_bytes: 16 }, Vec::new()), &[NUMBERS]);
    }
    let mut ops = Vec::new();
    for index in 0..12 {
        ops.push(Op::Arg { dst: 0, index });
        for op in [Unary::Neg, Unary::BitNot, Unary::Not] {
            ops.push(Op::Unary { op, dst: 1, a: 0 });
            ops.push(Op::Store { at: 0, src: 1, size_bytes: 8 });
            ops.push(Op::Emit { action: 0, payload: Slot { at: 0, len: 8 } });
        }
        for size_bytes in [1, 2, 4, 8] {
            for is_signed in [false, true] {
                ops.push(Op::Extend { dst: 1, src: 0, size_bytes, is_signed });
                ops.push(Op::Store { at: 0, src: 1, size_bytes: 8 });
                ops.push(Op::Store { at: 8, src: 0, size_bytes });
                ops.push(Op::Load { dst: 1, at: 8, size_bytes, is_signed });
                ops.push(Op::Store { at: 16, src: 1, size_bytes: 8 });
                ops.push(Op::Emit { action: 0, payload: Slot { at: 0, len: 24 } });
            }
        }
    }
    agree(&program(Code { ops, n_regs: 2, frame_bytes: 24 }, Vec::new()), &[NUMBERS]);
}

/// A frame that fits the stack and one that does not.
const FRAMES: [u32; 2] = [256, 2048];

#[test]
fn strings_and_bytes() {
    let texts: Vec<u64> = [0u64, 1, 6, 28, 29, 30, 31].iter().map(|at| MEMORY.as_ptr() as u64 + at).collect();
    let mut args = [0; 12];
    args[..7].copy_from_slice(&texts);
    args[7] = 8;
    args[8] = 3;
    let slot = |at, len| Slot { at, len };
    for frame in FRAMES {
        for index in 0..8 {
            for len in [24, 19, 8, 1] {
                let ops = vec![
                    Op::Arg { dst: 0, index },
                    Op::Arg { dst: 1, index: 8 },
                    Op::Constant { to: slot(24, 40), constant: 2 },
                    Op::ArgString { to: slot(0, len), index, len: None },
                    Op::ArgString { to: slot(24, 8), index, len: Some(1) },
                    Op::String { to: slot(32, 16), address: 0, len: None, space: Space::User },
                    Op::String { to: slot(48, len.min(8)), address: 0, len: Some(1), space: Space::User },
                    Op::Buffer { to: slot(64, 24), address: 0, len: 1, space: Space::User },
                    Op::ArgBytes { to: slot(88, 24), index, len: 1 },
                    Op::Read { to: slot(112, 5), address: 0, space: Space::User },
                    Op::String { to: slot(120, 8), address: 2, len: None, space: Space::Kernel },
                    Op::Read { to: slot(128, 8), address: 2, space: Space::Kernel },
                    Op::Strlen { dst: 3, a: slot(0, len) },
                    Op::Constant { to: slot(136, 9), constant: 0 },
                    Op::Strncmp { dst: 4, a: slot(0, len), b: slot(136, 9), n: 3 },
                    Op::Strncmp { dst: 5, a: slot(0, len), b: slot(136, 9), n: 100 },
                    Op::Equal { dst: 6, a: slot(0, len), b: slot(136, 9) },
                    Op::Constant { to: slot(152, 9), constant: 1 },
                    Op::StrFind { dst: 7, haystack: slot(32, 16), needle: slot(152, 9) },
                    Op::Element {
                        dst: 2,
                        from: slot(136, 9),
                        index: 6,
                        n: 9,
                        size_bytes: 1,
                        is_signed: true,
                    },
                    Op::StrFind { dst: 8, haystack: slot(0, len), needle: slot(136, 3) },
                    Op::StrFind { dst: 9, haystack: slot(0, len), needle: slot(200, 8) },
                    Op::Move { to: slot(168, 13), from: slot(0, len) },
                    Op::Move { to: slot(184, 16), from: slot(192, 16) },
                    Op::Zero { to: slot(64, 3) },
                    Op::StrConcat { to: slot(88, 24), a: slot(0, len), b: slot(136, 9) },
                    Op::StrConcat { to: slot(112, 5), a: slot(152, 9), b: slot(0, len) },
                ];
                agree(&program(shown(ops, 10, frame), Vec::new()), &[args]);
            }
        }
    }
}

#[test]
fn long_constants_strings_and_comparisons() {
    let slot = |at, len| Slot { at, len };
    let ops = vec![
        Op::Constant { to: slot(0, 1024), constant: 2 },
        Op::Constant { to: slot(1024, 299), constant: 2 },
        Op::Equal { dst: 0, a: slot(0, 1024), b: slot(1024, 299) },
        Op::Move { to: slot(1400, 1000), from: slot(0, 1024) },
        Op::Equal { dst: 1, a: slot(0, 1000), b: slot(1400, 1000) },
        Op::Strlen { dst: 2, a: slot(1400, 1000) },
        Op::StrFind { dst: 3, haystack: slot(0, 1024), needle: slot(1024, 299) },
        Op::StrConcat { to: slot(1400, 1000), a: slot(0, 1024), b: slot(1024, 299) },
        Op::Strncmp { dst: 4, a: slot(0, 1024), b: slot(1024, 299), n: 1000 },
        Op::Strncmp { dst: 5, a: slot(0, 1024), b: slot(1024, 299), n: 299 },
        Op::Move { to: slot(0, 1000), from: slot(8, 1000) },
        Op::Comm { to: slot(2400, 40) },
        Op::Comm { to: slot(2440, 4) },
    ];
    agree(&program(shown(ops, 6, 2600), Vec::new()), &[[0; 12]]);
}

#[test]
fn the_task() {
    let mut ops = vec![Op::Probe { dst: 4 }, Op::Comm { to: Slot { at: 0, len: 16 } }];
    for (dst, what) in [(0, Builtin::Pid), (1, Builtin::Tid), (2, Builtin::Uid), (3, Builtin::Gid)] {
        ops.push(Op::Builtin { dst, what });
    }
    ops.push(Op::Builtin { dst: 5, what: Builtin::Retval });
    ops.push(Op::Builtin { dst: 6, what: Builtin::Ip });
    ops.push(Op::Register { dst: 7, index: 3 });
    ops.push(Op::Field { dst: 8, offset: 8, size_bytes: 4, is_signed: true });
    ops.push(Op::FieldString { to: Slot { at: 16, len: 8 }, offset: 8 });
    ops.push(Op::FieldBytes { to: Slot { at: 24, len: 8 }, offset: 8 });
    agree(&program(shown(ops, 9, 32), Vec::new()), &[[0; 12]]);
}

#[test]
fn what_only_the_kernel_knows() {
    let all = [Builtin::Cpu, Builtin::Nsecs, Builtin::Elapsed, Builtin::Rand, Builtin::Curtask, Builtin::Ctx];
    let mut ops: Vec<Op> = (0..).zip(all).map(|(dst, what)| Op::Builtin { dst, what }).collect();
    ops.push(Op::Builtin { dst: 6, what: Builtin::Cgroup });
    ops.push(Op::KernelStack { to: Slot { at: 0, len: 808 } });
    ops.push(Op::UserStack { to: Slot { at: 808, len: 816 } });
    let program = program(shown(ops, 7, 1624), Vec::new());
    let now = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a live timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let start_ns = now();
    let mut door = ScriptDoor::open(
        &program,
        &ScriptOptions { ring_bytes: 1 << 16, start_ns, ..ScriptOptions::default() },
    )
    .unwrap();
    door.run(&PointKind::Begin).unwrap();
    door.run(&PointKind::Begin).unwrap();
    let end_ns = now();
    let mut rounds = Vec::new();
    door.poll(|each| {
        let words: Vec<u64> =
            each.payload.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        assert!(start_ns <= each.ns && each.ns <= end_ns);
        assert_eq!(each.pid, std::process::id());
        rounds.push((u64::from(each.cpu), words));
    });
    assert_eq!(rounds.len(), 2);
    let regs: Vec<&[u64]> = rounds.iter().map(|(_, words)| &words[203..]).collect();
    for ((cpu, words), regs) in rounds.iter().zip(&regs) {
        assert_eq!(regs[0], *cpu);
        assert!(start_ns <= regs[1] && regs[1] <= end_ns, "nsecs");
        assert!(regs[2] <= end_ns - start_ns, "elapsed");
        assert!(regs[4] >> 48 == 0xffff && regs[5] >> 48 == 0xffff, "pointers of the kernel: {regs:x?}");
        assert!(regs[6] > 0, "cgroup");
        let n = words[0] as usize;
        assert!(n > 2 && n <= 100, "{n} frames of the kernel");
        assert!(words[1..=n].iter().all(|address| address >> 48 == 0xffff), "{words:x?}");
        assert!(words[n + 1..101].iter().all(|address| *address == 0), "zeros behind the stack");
        assert_eq!(words[101], u64::from(std::process::id()));
        let n = words[102] as usize;
        assert!(n > 0 && n <= 100, "{n} frames of the program");
        assert!(words[103 + n..203].iter().all(|address| *address == 0));
    }
    assert_eq!(regs[0][4], regs[1][4], "the same task");
    assert_ne!(regs[0][3], regs[1][3], "random numbers");
}

fn def(name: &str, key: Vec<Type>, value: MapValue) -> MapDef {
    MapDef { name: name.to_owned(), key, value }
}

fn aggregates() -> Vec<Aggregate> {
    let mut all = vec![
        Aggregate::Count,
        Aggregate::Hist { bits: 0 },
        Aggregate::Hist { bits: 3 },
        Aggregate::Lhist { min: -10, max: 100, step: 7 },
        Aggregate::Quantiles { bits: 4 },
        Aggregate::Quantiles { bits: 6 },
    ];
    for is_signed in [false, true] {
        all.push(Aggregate::Sum { is_signed });
        all.push(Aggregate::Avg { is_signed });
        all.push(Aggregate::Min { is_signed });
        all.push(Aggregate::Max { is_signed });
        all.push(Aggregate::Stats { is_signed });
    }
    all
}

/// Key 0 to 3 in the frame at 0; the map with it and the map without.
#[test]
fn every_aggregate() {
    for aggregate in aggregates() {
        let maps = vec![
            def("@none", Vec::new(), MapValue::Aggregate(aggregate)),
            def("@by", vec![Type::U64], MapValue::Aggregate(aggregate)),
        ];
        let (none, key) = (Slot { at: 8, len: 0 }, Slot { at: 0, len: 8 });
        let ops = vec![
            Op::MapHas { dst: 4, map: 0, key: none },
            Op::MapLoad { dst: 5, map: 0, key: none },
            Op::Arg { dst: 0, index: 0 },
            Op::BinaryConst { op: Binary::And, dst: 1, a: 0, b: 3 },
            Op::Store { at: 0, src: 1, size_bytes: 8 },
            Op::Aggregate { map: 0, key: none, value: 0 },
            Op::Aggregate { map: 1, key, value: 0 },
            Op::MapLoad { dst: 2, map: 0, key: none },
            Op::MapLoad { dst: 3, map: 1, key },
            Op::MapLen { dst: 6, map: 0 },
            Op::MapLen { dst: 7, map: 1 },
            Op::MapHas { dst: 8, map: 1, key },
            Op::Const { dst: 9, value: 77 },
            Op::Store { at: 0, src: 9, size_bytes: 8 },
            Op::MapHas { dst: 10, map: 1, key },
            Op::MapLoad { dst: 11, map: 1, key },
            Op::MapHas { dst: 12, map: 0, key: none },
        ];
        let mut inputs: Vec<[u64; 12]> = NUMBERS.iter().map(|n| [*n; 12]).collect();
        inputs.extend((0..200u64).map(|n| [n * n; 12]));
        inputs.extend((0..64).map(|bit| [(1u64 << bit) - 1; 12]));
        agree(&small(shown(ops, 13, 16), maps), &inputs);
    }
}

#[test]
fn aggregates_are_deleted_cleared_and_zeroed() {
    for aggregate in aggregates() {
        let maps = vec![
            def("@none", Vec::new(), MapValue::Aggregate(aggregate)),
            def("@by", vec![Type::U64], MapValue::Aggregate(aggregate)),
        ];
        let (none, key) = (Slot { at: 8, len: 0 }, Slot { at: 0, len: 8 });
        let take = vec![
            Op::Arg { dst: 0, index: 0 },
            Op::Aggregate { map: 0, key: none, value: 0 },
            Op::Aggregate { map: 1, key, value: 0 },
        ];
        let mut ops = take.clone();
        ops.extend([Op::MapDelete { map: 0, key: none }, Op::MapDelete { map: 1, key }]);
        ops.extend([Op::MapHas { dst: 1, map: 0, key: none }, Op::MapHas { dst: 2, map: 1, key }]);
        ops.extend([Op::MapLoad { dst: 3, map: 0, key: none }, Op::MapLoad { dst: 4, map: 1, key }]);
        agree(&small(shown(ops, 5, 16), maps.clone()), &[[5; 12]]);

        let program = program(Code { ops: take, n_regs: 1, frame_bytes: 16 }, maps);
        let mut door = ScriptDoor::open(&program, &ScriptOptions::default()).unwrap();
        door.run_with(&PointKind::Begin, &[5; 12]).unwrap();
        for map in [0, 1] {
            let before = door.map_entries(map).unwrap();
            assert_eq!(before.len(), 1);
            door.zero(map).unwrap();
            let zero = vec![0; before[0].value.len()];
            assert_eq!(door.map_entries(map).unwrap(), [Entry { key: before[0].key.clone(), value: zero }]);
            door.clear(map).unwrap();
            assert_eq!(door.map_entries(map).unwrap(), []);
        }
        door.run_with(&PointKind::Begin, &[5; 12]).unwrap();
        assert_eq!(door.map_entries(0).unwrap().len(), 1);
    }
}

#[test]
fn plain_maps() {
    let text = Type::Str { max_bytes: 24 };
    let maps = vec![
        def("@number", Vec::new(), MapValue::Plain(Type::I64)),
        def("@text", Vec::new(), MapValue::Plain(text.clone())),
        def("@by_text", vec![text.clone(), Type::U64], MapValue::Plain(Type::U64)),
        def("@text_by", vec![Type::U64], MapValue::Plain(text)),
    ];
    let (none, key, long) = (Slot { at: 0, len: 0 }, Slot { at: 0, len: 8 }, Slot { at: 0, len: 32 });
    let to = |at| Slot { at, len: 24 };
    for frame in FRAMES {
        let ops = vec![
            Op::MapHas { dst: 0, map: 0, key: none },
            Op::MapHas { dst: 1, map: 1, key: none },
            Op::MapLen { dst: 2, map: 0 },
            Op::MapLoad { dst: 3, map: 0, key: none },
            Op::MapRead { to: to(32), map: 1, key: none },
            Op::Arg { dst: 4, index: 0 },
            Op::BinaryConst { op: Binary::And, dst: 5, a: 4, b: 7 },
            Op::MapStore { map: 0, key: none, src: 4 },
            Op::MapAdd { dst: 6, map: 0, key: none, delta: 4 },
            Op::Constant { to: long, constant: 0 },
            Op::Store { at: 24, src: 5, size_bytes: 8 },
            Op::MapAdd { dst: 7, map: 2, key: long, delta: 5 },
            Op::MapAdd { dst: 5, map: 2, key: long, delta: 5 },
            Op::MapStore { map: 2, key: Slot { at: 32, len: 32 }, src: 4 },
            Op::MapWrite { map: 1, key: none, from: Slot { at: 0, len: 24 } },
            Op::MapLoad { dst: 8, map: 2, key: long },
            Op::MapRead { to: to(64), map: 1, key: none },
            Op::Store { at: 0, src: 4, size_bytes: 8 },
            Op::MapWrite { map: 3, key, from: to(8) },
            Op::MapRead { to: to(88), map: 3, key },
            Op::MapRead { to: Slot { at: 112, len: 10 }, map: 3, key },
            Op::MapRead { to: Slot { at: 128, len: 40 }, map: 3, key },
            Op::MapWrite { map: 3, key, from: Slot { at: 8, len: 8 } },
            Op::MapRead { to: Slot { at: 168, len: 24 }, map: 3, key },
            Op::MapHas { dst: 9, map: 3, key },
            Op::MapStore { map: 3, key, src: 4 },
            Op::MapDelete { map: 2, key: Slot { at: 32, len: 32 } },
            Op::MapDelete { map: 1, key: none },
            Op::MapHas { dst: 10, map: 1, key: none },
            Op::MapLen { dst: 11, map: 3 },
            Op::MapRead { to: to(192), map: 1, key: none },
        ];
        let inputs: Vec<[u64; 12]> = NUMBERS.iter().map(|n| [*n; 12]).collect();
        agree(&program(shown(ops, 12, frame), maps.clone()), &inputs);
    }
}

#[test]
fn a_full_map_counts_what_it_did_not_take() {
    let maps = vec![
        def("@plain", vec![Type::U64], MapValue::Plain(Type::U64)),
        def("@count", vec![Type::U64], MapValue::Aggregate(Aggregate::Count)),
    ];
    let key = Slot { at: 0, len: 8 };
    let ops = vec![
        Op::Arg { dst: 0, index: 0 },
        Op::Store { at: 0, src: 0, size_bytes: 8 },
        Op::MapStore { map: 0, key, src: 0 },
        Op::Aggregate { map: 1, key, value: 0 },
        Op::MapAdd { dst: 1, map: 0, key, delta: 0 },
    ];
    let mut program = program(Code { ops, n_regs: 2, frame_bytes: 8 }, maps);
    program.limits.map_entries = 4;
    let mut door = ScriptDoor::open(&program, &ScriptOptions::default()).unwrap();
    for n in 0..6u64 {
        door.run_with(&PointKind::Begin, &[n; 12]).unwrap();
    }
    assert_eq!(door.map_entries(0).unwrap().len(), 4);
    assert_eq!(door.map_entries(1).unwrap().len(), 4);
    assert_eq!(door.loss().unwrap().n_full, 6);
}

#[test]
fn a_ring_without_room_counts_what_is_lost() {
    let ops = vec![Op::Emit { action: 0, payload: Slot { at: 0, len: 1000 } }];
    let program = program(Code { ops, n_regs: 0, frame_bytes: 1000 }, Vec::new());
    let mut door =
        ScriptDoor::open(&program, &ScriptOptions { ring_bytes: 4096, ..ScriptOptions::default() }).unwrap();
    for _ in 0..10 {
        door.run(&PointKind::Begin).unwrap();
    }
    let kept = door.poll(|_| {}) as u64;
    let loss = door.loss().unwrap();
    assert!(kept >= 3 && kept + loss.n_emitted == 10, "{kept} {loss:?}");
    assert!(0 < loss.first_ns && loss.first_ns < loss.last_ns);
}

#[test]
fn an_endless_loop_is_cut_and_counted() {
    let ops = vec![Op::BinaryConst { op: Binary::Add, dst: 0, a: 0, b: 1 }, Op::Jump { to: 0 }];
    let program = program(Code { ops, n_regs: 1, frame_bytes: 600 }, Vec::new());
    let mut door = ScriptDoor::open(&program, &ScriptOptions::default()).unwrap();
    for _ in 0..9 {
        door.run(&PointKind::Begin).unwrap();
    }
    let loss = door.loss().unwrap();
    assert_eq!((loss.n_cut, loss.n_crowded), (9, 0), "its working memory is given back");
}

#[test]
fn loops() {
    // Sum and product of the numbers below arg0, with a jump out of the middle.
    let ops = vec![
        Op::Arg { dst: 0, index: 0 },
        Op::Const { dst: 3, value: 1 },
        Op::Binary { op: Binary::LtUnsigned, dst: 1, a: 2, b: 0 },
        Op::JumpUnless { condition: 1, to: 9 },
        Op::BinaryConst { op: Binary::Add, dst: 2, a: 2, b: 1 },
        Op::Binary { op: Binary::Mul, dst: 3, a: 3, b: 2 },
        Op::BinaryConst { op: Binary::Eq, dst: 4, a: 2, b: 500 },
        Op::JumpIf { condition: 4, to: 9 },
        Op::Jump { to: 2 },
    ];
    for frame in FRAMES {
        agree(
            &program(shown(ops.clone(), 5, frame), Vec::new()),
            &[[0; 12], [1; 12], [10; 12], [499; 12], [100_000; 12]],
        );
    }
}

/// Goes through the entries of two maps, adding up in a third: the order does not matter.
#[test]
fn for_over_maps() {
    let value = |aggregate| MapValue::Aggregate(aggregate);
    let maps = vec![
        def("@from", vec![Type::U64], MapValue::Plain(Type::U64)),
        def("@sums", vec![Type::U64], value(Aggregate::Avg { is_signed: true })),
        def("@out", vec![Type::U64], value(Aggregate::Sum { is_signed: true })),
        def("@none", Vec::new(), MapValue::Plain(Type::U64)),
    ];
    let key = Slot { at: 0, len: 8 };
    let slot = |at| Slot { at, len: 8 };
    let fill = vec![
        Op::Arg { dst: 0, index: 0 },
        Op::Store { at: 0, src: 0, size_bytes: 8 },
        Op::MapStore { map: 0, key, src: 0 },
        Op::Aggregate { map: 1, key, value: 0 },
        Op::Const { dst: 6, value: 9 },
    ];
    let at = fill.len() as u32;
    // Two loops inside one another; the inner one passes over odd keys, and is left when the outer key is 3.
    let mut ops = fill;
    ops.extend([
        Op::ForEach { map: 0, key: slot(8), value: slot(16), end: at + 11 },
        Op::Load { dst: 1, at: 8, size_bytes: 8, is_signed: false },
        Op::ForEach { map: 1, key: slot(24), value: slot(32), end: at + 10 },
        Op::BinaryConst { op: Binary::Eq, dst: 2, a: 1, b: 3 },
        Op::JumpIf { condition: 2, to: at + 10 },
        Op::Load { dst: 3, at: 24, size_bytes: 8, is_signed: false },
        Op::BinaryConst { op: Binary::And, dst: 4, a: 3, b: 1 },
        Op::JumpIf { condition: 4, to: at + 10 },
        Op::Load { dst: 5, at: 32, size_bytes: 8, is_signed: true },
        Op::Aggregate { map: 2, key: slot(8), value: 5 },
        // End of the inner loop.
        Op::Aggregate { map: 2, key: slot(8), value: 6 },
        // End of the outer loop; what the last entry left depends on the order.
        Op::Zero { to: Slot { at: 8, len: 32 } },
    ]);
    ops.extend((1..6).map(|dst| Op::Const { dst, value: 0 }));
    let inputs: Vec<[u64; 12]> = (0..8).map(|n| [n; 12]).collect();
    for frame in FRAMES {
        agree(&program(shown(ops.clone(), 7, frame), maps.clone()), &inputs);
    }

    // A loop that ends the hit, one that ends itself, one over a map without a key.
    let ops = vec![
        Op::Arg { dst: 0, index: 0 },
        Op::MapStore { map: 3, key: Slot { at: 0, len: 0 }, src: 0 },
        Op::ForEach { map: 3, key: Slot { at: 0, len: 0 }, value: slot(8), end: 4 },
        Op::MapAdd { dst: 1, map: 0, key, delta: 0 },
        Op::ForEach { map: 0, key: slot(8), value: slot(16), end: 9 },
        Op::MapAdd { dst: 1, map: 3, key: Slot { at: 0, len: 0 }, delta: 0 },
        Op::BinaryConst { op: Binary::Eq, dst: 2, a: 0, b: 5 },
        Op::JumpIf { condition: 2, to: 10 },
        Op::Return,
        Op::Emit { action: 2, payload: Slot { at: 0, len: 0 } },
        Op::Emit { action: 3, payload: slot(0) },
    ];
    agree(&program(Code { ops, n_regs: 3, frame_bytes: 24 }, maps), &inputs);
}

/// xorshift: the same programs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn reg(&mut self) -> u16 {
        self.below(u64::from(N_REGS)) as u16
    }

    fn number(&mut self) -> i64 {
        match self.below(4) {
            0 => self.pick(&NUMBERS) as i64,
            1 => -(self.below(300) as i64),
            _ => self.below(300) as i64,
        }
    }

    /// Somewhere in the free part of the frame.
    fn slot(&mut self) -> Slot {
        let at = self.below(u64::from(FREE_BYTES / 8) - 4) as u32 * 8;
        Slot { at, len: self.below(33) as u32 }
    }
}

const N_REGS: u16 = 8;
/// What random operations may write to; behind it lie keys and what loops copy.
const FREE_BYTES: u32 = 128;
const KEY_AT: u32 = FREE_BYTES;
const LOOP_AT: u32 = FREE_BYTES + 40;

/// Registers above [`N_REGS`] belong to loops.
struct Maker {
    random: Random,
    ops: Vec<Op>,
    maps: Vec<MapDef>,
    n_regs: u16,
}

impl Maker {
    fn key(&mut self, map: usize) -> Slot {
        let len = self.maps[map].key_bytes();
        // Few different keys, so that they meet again.
        for at in (0..len).step_by(8) {
            let src = self.random.reg();
            let dst = self.n_regs;
            self.ops.push(Op::BinaryConst { op: Binary::And, dst, a: src, b: 3 });
            self.ops.push(Op::Store { at: KEY_AT + at, src: dst, size_bytes: 8 });
        }
        Slot { at: KEY_AT, len }
    }

    fn map(&mut self, is_fitting: impl Fn(&MapDef) -> bool) -> u32 {
        let fitting: Vec<usize> = (0..self.maps.len()).filter(|map| is_fitting(&self.maps[*map])).collect();
        self.random.pick(&fitting) as u32
    }

    fn one(&mut self, depth: u32) {
        let is_plain = |def: &MapDef| matches!(def.value, MapValue::Plain(_));
        let (dst, a, b) = (self.random.reg(), self.random.reg(), self.random.reg());
        let constant = self.random.number();
        let op = self.random.pick(&BINARY);
        let size_bytes = self.random.pick(&[1, 2, 4, 8]);
        let is_signed = self.random.below(2) == 0;
        let (to, from) = (self.random.slot(), self.random.slot());
        let at =
            self.random.below(u64::from(FREE_BYTES) / u64::from(size_bytes)) as u32 * u32::from(size_bytes);
        let index = self.random.below(12) as u8;
        let op = match self.random.below(31) {
            0 => Op::Const { dst, value: constant },
            1 => Op::Copy { dst, src: a },
            2 => Op::Unary { op: self.random.pick(&[Unary::Neg, Unary::BitNot, Unary::Not]), dst, a },
            3 | 4 => Op::Binary { op, dst, a, b },
            5 | 6 => Op::BinaryConst { op, dst, a, b: constant },
            7 => Op::Extend { dst, src: a, size_bytes, is_signed },
            8 => Op::Arg { dst, index },
            9 => Op::Load { dst, at, size_bytes, is_signed },
            10 => Op::Store { at, src: a, size_bytes },
            11 => Op::Zero { to },
            12 => Op::Constant { to, constant: self.random.below(4) as u32 },
            13 => Op::Move {
                to: if to.at < from.at { to } else { from },
                from: if to.at < from.at { from } else { to },
            },
            14 => Op::Equal { dst, a: to, b: from },
            15 => Op::Strncmp { dst, a: to, b: from, n: self.random.below(40) as u32 },
            16 => Op::StrFind { dst, haystack: to, needle: from },
            17 => Op::Strlen { dst, a: to },
            18 => Op::ArgString { to, index, len: is_signed.then_some(a) },
            19 => Op::Emit { action: self.random.below(4) as u32, payload: to },
            20 | 21 => {
                let map = self.map(|_| true);
                let key = self.key(map as usize);
                match self.random.below(3) {
                    0 => Op::MapLoad { dst, map, key },
                    1 => Op::MapHas { dst, map, key },
                    _ => Op::MapDelete { map, key },
                }
            }
            22 => Op::MapLen { dst, map: self.map(|_| true) },
            23 => {
                let map = self.map(is_plain);
                let key = self.key(map as usize);
                match self.random.below(3) {
                    0 => Op::MapStore { map, key, src: a },
                    1 => Op::MapAdd { dst, map, key, delta: a },
                    _ => Op::MapRead { to, map, key },
                }
            }
            24 => {
                let map = self.map(is_plain);
                let key = self.key(map as usize);
                Op::MapWrite { map, key, from }
            }
            25 | 26 => {
                let map = self.map(|def| !is_plain(def));
                let key = self.key(map as usize);
                Op::Aggregate { map, key, value: a }
            }
            30 => {
                let n = self.random.below(u64::from(to.len / u32::from(size_bytes)) + 1) as u32;
                Op::Element { dst, from: to, index: a, n, size_bytes, is_signed }
            }
            27 if depth > 0 => return self.choice(a, depth),
            28 if depth > 0 => return self.repeat(depth),
            29 if depth > 1 => return self.each(),
            _ => Op::Copy { dst, src: a },
        };
        self.ops.push(op);
    }

    fn some(&mut self, n: u64, depth: u32) {
        for _ in 0..self.random.below(n) + 1 {
            self.one(depth);
        }
    }

    fn end(&self) -> u32 {
        self.ops.len() as u32
    }

    fn choice(&mut self, condition: u16, depth: u32) {
        let at = self.ops.len();
        self.ops.push(Op::Return);
        self.some(4, depth - 1);
        let to = self.end();
        self.ops[at] = match self.random.below(2) {
            0 => Op::JumpIf { condition, to },
            _ => Op::JumpUnless { condition, to },
        };
    }

    /// A few rounds, with a way out in between.
    fn repeat(&mut self, depth: u32) {
        let (counter, test) = (self.n_regs + 1, self.n_regs + 2);
        self.n_regs += 2;
        self.ops.push(Op::Const { dst: counter, value: 0 });
        let head = self.ops.len();
        let n = self.random.below(6) as i64;
        self.ops.push(Op::BinaryConst { op: Binary::LtUnsigned, dst: test, a: counter, b: n });
        let leave = self.ops.len();
        self.ops.push(Op::Return);
        self.ops.push(Op::BinaryConst { op: Binary::Add, dst: counter, a: counter, b: 1 });
        self.some(4, depth - 1);
        let out = self.ops.len();
        self.ops.push(Op::Return);
        self.some(3, depth - 1);
        self.ops.push(Op::Jump { to: head as u32 });
        let to = self.end();
        self.ops[leave] = Op::JumpUnless { condition: test, to };
        self.ops[out] = Op::JumpIf { condition: self.random.reg(), to };
        self.ops.push(Op::Const { dst: counter, value: 0 });
    }

    /// Adds up what a map has in another, by key: the order of the entries does not show.
    fn each(&mut self) {
        let map = self.map(|def| def.key_bytes() == 8);
        let sums = SUMS;
        if map == sums {
            return;
        }
        let (value, test) = (self.n_regs + 1, self.n_regs + 2);
        self.n_regs += 2;
        let (key, slot) = (Slot { at: LOOP_AT, len: 8 }, Slot { at: LOOP_AT + 8, len: 8 });
        let at = self.ops.len();
        self.ops.push(Op::Return);
        self.ops.push(Op::Load { dst: value, at: slot.at, size_bytes: 8, is_signed: true });
        self.ops.push(Op::BinaryConst { op: Binary::And, dst: test, a: value, b: 1 });
        let pass = self.ops.len();
        self.ops.push(Op::Return);
        self.ops.push(Op::Aggregate { map: sums, key, value });
        let end = self.end();
        self.ops[at] = Op::ForEach { map, key, value: slot, end };
        self.ops[pass] = Op::JumpIf { condition: test, to: end };
        self.ops.push(Op::Zero { to: Slot { at: LOOP_AT, len: 16 } });
        self.ops.push(Op::Const { dst: value, value: 0 });
        self.ops.push(Op::Const { dst: test, value: 0 });
    }
}

/// The map that sums of other maps go into.
const SUMS: u32 = 0;

fn random_program(seed: u64) -> Program {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.below(7);
    let all = aggregates();
    let mut maps =
        vec![def("@sums", vec![Type::U64], MapValue::Aggregate(Aggregate::Sum { is_signed: true }))];
    for _ in 0..4 {
        let key = match random.below(3) {
            0 => Vec::new(),
            1 => vec![Type::U64],
            _ => vec![Type::U64, Type::Str { max_bytes: 16 }],
        };
        maps.push(def("@a", key.clone(), MapValue::Aggregate(all[random.below(all.len() as u64) as usize])));
        let value = random.pick(&[8, 16, 24]);
        let value = if value == 8 { Type::I64 } else { Type::Str { max_bytes: value } };
        maps.push(def("@p", key, MapValue::Plain(value)));
    }
    let frame = random.pick(&[256, 256, 700, 2000]);
    let mut maker = Maker { random, ops: Vec::new(), maps, n_regs: N_REGS };
    maker.some(40, 3);
    let Maker { ops, maps, n_regs, .. } = maker;
    let mut program = program(shown(ops, n_regs + 1, frame), maps);
    // Keys never meet this bound: full maps are another test's.
    program.limits.map_entries = 1024;
    program
}

#[test]
fn random_programs() {
    let mut inputs = vec![NUMBERS, [0; 12]];
    let mut texts = [0; 12];
    for (index, text) in texts.iter_mut().enumerate() {
        *text = MEMORY.as_ptr() as u64 + 3 * index as u64;
    }
    inputs.push(texts);
    inputs.push([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    // More with NOPAL_PROGRAMS=n.
    let n = std::env::var("NOPAL_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for seed in 0..n {
        let result = std::panic::catch_unwind(|| agree(&random_program(seed), &inputs));
        assert!(result.is_ok(), "program {seed}");
    }
}

fn keyed(name: &str, key: Vec<Type>, aggregate: Aggregate) -> MapDef {
    def(name, key, MapValue::Aggregate(aggregate))
}

/// What people write, as it is compiled: name, code, the maps it needs.
fn typical() -> Vec<(&'static str, Code, Vec<MapDef>)> {
    let none = Slot { at: 0, len: 0 };
    let key = Slot { at: 0, len: 8 };
    let string = |at| Slot { at, len: 256 };
    let code = |ops, n_regs, frame_bytes| Code { ops, n_regs, frame_bytes };
    let arg = |dst, index| Op::Arg { dst, index };
    let store = |at, src| Op::Store { at, src, size_bytes: 8 };
    vec![
        (
            "@ = count()",
            code(vec![Op::Aggregate { map: 0, key: none, value: 0 }], 1, 0),
            vec![keyed("@", Vec::new(), Aggregate::Count)],
        ),
        (
            "@ = hist(arg1)",
            code(vec![arg(0, 1), Op::Aggregate { map: 0, key: none, value: 0 }], 1, 0),
            vec![keyed("@", Vec::new(), Aggregate::Hist { bits: 0 })],
        ),
        (
            "@[arg0] = count()",
            code(vec![arg(0, 0), store(0, 0), Op::Aggregate { map: 0, key, value: 0 }], 1, 8),
            vec![keyed("@", vec![Type::U64], Aggregate::Count)],
        ),
        (
            "start: @start[tid] = nsecs",
            code(
                vec![
                    Op::Builtin { dst: 0, what: Builtin::Tid },
                    store(0, 0),
                    Op::Builtin { dst: 1, what: Builtin::Nsecs },
                    Op::MapStore { map: 0, key, src: 1 },
                ],
                2,
                8,
            ),
            vec![def("@start", vec![Type::U64], MapValue::Plain(Type::U64))],
        ),
        (
            "end: if (@start[tid]) { @ns = quantiles(nsecs - @start[tid]); delete(@start[tid]) }",
            code(
                vec![
                    Op::Builtin { dst: 0, what: Builtin::Tid },
                    store(0, 0),
                    Op::MapLoad { dst: 1, map: 0, key },
                    Op::JumpUnless { condition: 1, to: 8 },
                    Op::Builtin { dst: 2, what: Builtin::Nsecs },
                    Op::Binary { op: Binary::Sub, dst: 2, a: 2, b: 1 },
                    Op::Aggregate { map: 1, key: none, value: 2 },
                    Op::MapDelete { map: 0, key },
                ],
                3,
                8,
            ),
            vec![
                def("@start", vec![Type::U64], MapValue::Plain(Type::U64)),
                keyed("@ns", Vec::new(), Aggregate::Quantiles { bits: 4 }),
            ],
        ),
        (
            "printf(\"%s %d\", str(arg0), arg1)",
            code(
                vec![
                    Op::ArgString { to: string(0), index: 0, len: None },
                    arg(0, 1),
                    store(256, 0),
                    Op::Emit { action: 0, payload: Slot { at: 0, len: 264 } },
                ],
                1,
                264,
            ),
            Vec::new(),
        ),
        (
            "if (strncmp(str(arg0), \"hello\", 5) == 0) { @[str(arg0), ustack] = count() }",
            code(
                vec![
                    Op::ArgString { to: string(0), index: 0, len: None },
                    Op::Constant { to: Slot { at: 256, len: 8 }, constant: 0 },
                    Op::Strncmp { dst: 0, a: string(0), b: Slot { at: 256, len: 8 }, n: 5 },
                    Op::JumpIf { condition: 0, to: 6 },
                    Op::UserStack { to: Slot { at: 256, len: 1032 } },
                    Op::Aggregate { map: 0, key: Slot { at: 0, len: 1288 }, value: 0 },
                ],
                1,
                1288,
            ),
            vec![keyed(
                "@",
                vec![
                    Type::Str { max_bytes: 256 },
                    Type::UserStack { max_frames: 127, form: StackForm::Bpftrace },
                ],
                Aggregate::Count,
            )],
        ),
        (
            "for ($kv : @by) { @sum = sum($kv.1) }",
            code(
                vec![
                    Op::ForEach { map: 0, key, value: Slot { at: 8, len: 8 }, end: 3 },
                    Op::Load { dst: 0, at: 8, size_bytes: 8, is_signed: true },
                    Op::Aggregate { map: 1, key: none, value: 0 },
                ],
                1,
                16,
            ),
            vec![
                keyed("@by", vec![Type::U64], Aggregate::Avg { is_signed: true }),
                keyed("@sum", Vec::new(), Aggregate::Sum { is_signed: true }),
            ],
        ),
    ]
}

/// How many instructions each takes. A change here is a change of what a hit costs.
#[test]
fn instruction_counts() {
    let mut lines = Vec::new();
    for (name, code, maps) in typical() {
        let program = program(code, maps);
        let mut door = ScriptDoor::open(&program, &ScriptOptions::default()).unwrap();
        door.run(&PointKind::Begin).unwrap();
        let listing = door.listing();
        let head = listing.lines().next().unwrap();
        let count = head.rsplit(": ").next().unwrap().split(' ').next().unwrap().to_owned();
        lines.push(format!("{count} {name}"));
    }
    let want = include_str!("script_counts.txt");
    assert_eq!(lines.join("\n") + "\n", want, "tests/script_counts.txt");
}

/// Ten points with strings, stacks and five maps in one clause, and the same in ten clauses.
#[test]
fn a_script_of_realistic_size_is_accepted() {
    let string = |at| Slot { at, len: 256 };
    let maps = vec![
        keyed("@calls", vec![Type::Probe, Type::Str { max_bytes: 256 }], Aggregate::Count),
        keyed("@ns", vec![Type::Str { max_bytes: 256 }], Aggregate::Quantiles { bits: 4 }),
        keyed("@sizes", Vec::new(), Aggregate::Hist { bits: 0 }),
        def("@start", vec![Type::U64], MapValue::Plain(Type::U64)),
        keyed(
            "@stacks",
            vec![Type::UserStack { max_frames: 127, form: StackForm::Bpftrace }, Type::Str { max_bytes: 16 }],
            Aggregate::Count,
        ),
    ];
    let none = Slot { at: 0, len: 0 };
    let ops = vec![
        Op::ArgString { to: string(8), index: 0, len: None },
        Op::Probe { dst: 0 },
        Op::Store { at: 0, src: 0, size_bytes: 8 },
        Op::Aggregate { map: 0, key: Slot { at: 0, len: 264 }, value: 0 },
        Op::Builtin { dst: 1, what: Builtin::Tid },
        Op::Store { at: 264, src: 1, size_bytes: 8 },
        Op::MapLoad { dst: 2, map: 3, key: Slot { at: 264, len: 8 } },
        Op::Builtin { dst: 3, what: Builtin::Nsecs },
        Op::JumpUnless { condition: 2, to: 12 },
        Op::Binary { op: Binary::Sub, dst: 4, a: 3, b: 2 },
        Op::Aggregate { map: 1, key: string(8), value: 4 },
        Op::MapDelete { map: 3, key: Slot { at: 264, len: 8 } },
        Op::MapStore { map: 3, key: Slot { at: 264, len: 8 }, src: 3 },
        Op::Arg { dst: 5, index: 1 },
        Op::Aggregate { map: 2, key: none, value: 5 },
        Op::Constant { to: Slot { at: 272, len: 256 }, constant: 0 },
        Op::StrFind { dst: 6, haystack: string(8), needle: Slot { at: 272, len: 256 } },
        Op::BinaryConst { op: Binary::GeSigned, dst: 6, a: 6, b: 0 },
        Op::JumpUnless { condition: 6, to: 23 },
        Op::UserStack { to: Slot { at: 528, len: 1032 } },
        Op::Comm { to: Slot { at: 1560, len: 16 } },
        Op::Aggregate { map: 4, key: Slot { at: 528, len: 1048 }, value: 0 },
        Op::Emit { action: 0, payload: Slot { at: 0, len: 1576 } },
        Op::Strlen { dst: 7, a: string(8) },
        Op::KernelStack { to: Slot { at: 528, len: 1024 } },
        Op::Emit { action: 1, payload: Slot { at: 528, len: 1048 } },
    ];
    let code = Code { ops, n_regs: 8, frame_bytes: 1576 };
    let mut program = program(code.clone(), maps);
    let point = program.clauses[0].points[0].clone();
    program.clauses =
        (0..10).map(|_| Clause { points: vec![point.clone(); 10], code: code.clone() }).collect();
    let mut door = ScriptDoor::open(&program, &ScriptOptions::default()).unwrap();
    let mut args = [MEMORY.as_ptr() as u64; 12];
    args[1] = 100;
    if let Err(ScriptError::Refused { error, log, .. }) = door.run_with(&PointKind::Begin, &args) {
        panic!("{error}\n{}", &log[log.len().saturating_sub(2000)..]);
    }
    assert_eq!(door.map_entries(0).unwrap().len(), 100, "every point of every clause");
    assert_eq!(door.map_entries(4).unwrap().len(), 1);
    assert_eq!(door.loss().unwrap(), Default::default());
    let mut n = 0;
    while door.poll(|_| n += 1) > 0 {}
    assert_eq!(n, 200);
}
