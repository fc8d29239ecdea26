//! What people write: how many instructions it takes, and that the kernel accepts it.

use crate::maps::def;
use crate::{MEMORY, program};
use nopal_kernel::script::{Entry, ScriptDoor, ScriptError, ScriptOptions};
use nopal_program::aggregate::Aggregate;
use nopal_program::op::{Binary, Builtin, Op, Slot};
use nopal_program::{Clause, Code, MapDef, MapValue, PointKind, StackForm, Type};

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
    let want = include_str!("counts.txt");
    assert_eq!(lines.join("\n") + "\n", want, "tests/script/counts.txt");
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
    // The kernel goes by frame pointers, which this program has not everywhere: how many stacks it takes them for is its own.
    let by_stack = door.map_entries(4).unwrap();
    let count = |entry: &Entry| u64::from_le_bytes(entry.value[..8].try_into().unwrap());
    assert_eq!(by_stack.iter().map(count).sum::<u64>(), 100);
    let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    let comm = comm.trim_end().as_bytes();
    assert!(by_stack.iter().all(|entry| entry.key[1032..].starts_with(comm)), "{by_stack:?}");
    assert_eq!(door.loss().unwrap(), Default::default());
    let mut n = 0;
    while door.poll(|_| n += 1) > 0 {}
    assert_eq!(n, 200);
}
