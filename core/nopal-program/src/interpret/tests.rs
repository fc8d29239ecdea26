//! A table per kind of op: what goes in, what is emitted.

use super::*;
use crate::aggregate::Aggregate;
use crate::op::{Binary, Unary};
use crate::{Action, Clause, Limits, MapDef, MapValue, Type};

struct TestHit;

impl Hit for TestHit {
    fn arg(&self, index: u8) -> i64 {
        [7, -3, 1 << 40][usize::from(index)]
    }
    fn arg_string(&self, index: u8) -> &[u8] {
        [&b"get"[..], b"a longer string"][usize::from(index)]
    }
    fn arg_bytes(&self, _: u8) -> &[u8] {
        b"\x01\0\xff"
    }
    fn builtin(&self, what: Builtin) -> u64 {
        match what {
            Builtin::Pid => 42,
            Builtin::Tid => 43,
            Builtin::Nsecs => 1_000_000,
            _ => 0,
        }
    }
    fn comm(&self) -> &[u8] {
        b"memcached"
    }
    fn record(&self) -> &[u8] {
        // u16 -2, then a place (8) and length (3), then "abc" and more.
        b"\xfe\xff\0\0\x08\0\x03\0abcdef\0\0"
    }
    fn register(&self, index: u8) -> u64 {
        u64::from(index) * 10
    }
    fn read(&self, _: Space, address: u64, to: &mut [u8]) -> bool {
        to.fill(address as u8);
        address != 0
    }
    fn read_string(&self, _: Space, address: u64, to: &mut [u8]) -> bool {
        let n = to.len().min(5);
        to[..n].copy_from_slice(&b"hello"[..n]);
        address != 0
    }
    fn user_stack(&self, each: &mut dyn FnMut(u64)) {
        [0x11, 0x22, 0x33].into_iter().for_each(each);
    }
}

const MAPS: u32 = 3;
const NUMBERS: MapId = 0;
const COUNTS: MapId = 1;
const PAIRS: MapId = 2;

fn program(ops: Vec<Op>) -> Program {
    let map = |key: Vec<Type>, value| MapDef { name: "@m".into(), key, value };
    Program {
        clauses: vec![Clause { points: vec![], code: Code { ops, n_regs: 8, frame_bytes: 256 } }],
        maps: vec![
            map(vec![Type::U64], MapValue::Plain(Type::U64)),
            map(vec![Type::U64], MapValue::Aggregate(Aggregate::Sum { is_signed: true })),
            map(vec![], MapValue::Plain(Type::Tuple(vec![Type::U64, Type::U64]))),
        ],
        actions: vec![Action::Clear { map: 0 }; 4],
        constants: vec![b"get".to_vec(), b"et\0".to_vec()],
        limits: Limits { map_entries: 4, ..Limits::default() },
        ..Program::default()
    }
}

fn run(ops: Vec<Op>) -> (Interpreter, Vec<Vec<u8>>) {
    let mut interpreter = Interpreter::new(Arc::new(program(ops)), 99).expect("a good program");
    let mut out = Vec::new();
    interpreter.run(0, 5, &TestHit, |maps, emitted| {
        assert_eq!(maps.len() as u32, MAPS);
        out.push(emitted.payload.to_vec());
        true
    });
    (interpreter, out)
}

const fn s(at: u32, len: u32) -> Slot {
    Slot { at, len }
}

/// Stores register 0 and emits it.
fn show_r0(mut ops: Vec<Op>) -> i64 {
    ops.push(Op::Store { at: 248, src: 0, size_bytes: 8 });
    ops.push(Op::Emit { action: 0, payload: s(248, 8) });
    let (_, out) = run(ops);
    i64::from_le_bytes(out[0][..].try_into().unwrap())
}

fn show(mut ops: Vec<Op>, slot: Slot) -> Vec<u8> {
    ops.push(Op::Emit { action: 0, payload: slot });
    run(ops).1.remove(0)
}

fn c(dst: u16, value: i64) -> Op {
    Op::Const { dst, value }
}

#[test]
fn arithmetic() {
    use Binary::*;
    let min = i64::MIN;
    for (op, a, b, want) in [
        (Add, i64::MAX, 1, min),
        (Sub, 3, 5, -2),
        (Mul, -4, 3, -12),
        (DivUnsigned, -1, 2, i64::MAX),
        (DivUnsigned, 7, 0, 0),
        (DivSigned, -7, 2, -3),
        (DivSigned, 7, 0, 0),
        (DivSigned, min, -1, min),
        (RemUnsigned, 7, 4, 3),
        (RemUnsigned, 7, 0, 7),
        (RemSigned, -7, 4, -3),
        (RemSigned, -7, 0, -7),
        (RemSigned, min, -1, 0),
        (And, 12, 10, 8),
        (Or, 12, 10, 14),
        (Xor, 12, 10, 6),
        (Shl, 1, 65, 2),
        (ShrUnsigned, -1, 63, 1),
        (ShrSigned, -8, 1, -4),
        (Eq, 1, 1, 1),
        (Ne, 1, 1, 0),
        (LtUnsigned, -1, 1, 0),
        (LtSigned, -1, 1, 1),
        (LeUnsigned, 1, 1, 1),
        (LeSigned, 2, 1, 0),
        (GtUnsigned, -1, 1, 1),
        (GtSigned, -1, 1, 0),
        (GeUnsigned, 1, 1, 1),
        (GeSigned, 1, 2, 0),
    ] {
        let by_reg = show_r0(vec![c(1, a), c(2, b), Op::Binary { op, dst: 0, a: 1, b: 2 }]);
        let by_const = show_r0(vec![c(1, a), Op::BinaryConst { op, dst: 0, a: 1, b }]);
        assert_eq!((by_reg, by_const), (want, want), "{op:?} {a} {b}");
    }
    for (op, a, want) in [
        (Unary::Neg, 5, -5),
        (Unary::BitNot, 0, -1),
        (Unary::Not, 0, 1),
        (Unary::Not, 7, 0),
        (Unary::Neg, min, min),
    ] {
        assert_eq!(show_r0(vec![c(1, a), Op::Unary { op, dst: 0, a: 1 }]), want, "{op:?} {a}");
    }
    for (size_bytes, is_signed, want) in [(1, true, -1), (1, false, 255), (2, false, 0xffff), (4, true, -1)] {
        assert_eq!(show_r0(vec![c(1, -1), Op::Extend { dst: 0, src: 1, size_bytes, is_signed }]), want);
    }
    assert_eq!(show_r0(vec![c(3, 9), Op::Copy { dst: 0, src: 3 }]), 9);
}

#[test]
fn what_a_hit_gives_as_numbers() {
    for (op, want) in [
        (Op::Arg { dst: 0, index: 1 }, -3),
        (Op::Builtin { dst: 0, what: Builtin::Nsecs }, 1_000_000),
        (Op::Field { dst: 0, offset: 0, size_bytes: 2, is_signed: true }, -2),
        (Op::Field { dst: 0, offset: 0, size_bytes: 2, is_signed: false }, 0xfffe),
        (Op::Field { dst: 0, offset: 999, size_bytes: 8, is_signed: false }, 0),
        (Op::Register { dst: 0, index: 4 }, 40),
        (Op::Probe { dst: 0 }, 5 << 32),
        (Op::MapLen { dst: 0, map: NUMBERS }, 0),
    ] {
        assert_eq!(show_r0(vec![op]), want, "{op:?}");
    }
}

#[test]
fn what_a_hit_gives_as_bytes() {
    let to = s(0, 8);
    for (ops, want) in [
        (vec![Op::Comm { to }], &b"memcach\0"[..]),
        (vec![Op::ArgString { to, index: 0, len: None }], b"get\0\0\0\0\0"),
        (vec![Op::ArgString { to, index: 1, len: None }], b"a longe\0"),
        (vec![c(1, 2), Op::ArgString { to, index: 0, len: Some(1) }], b"ge\0\0\0\0\0\0"),
        (vec![c(1, 9), Op::String { to, address: 1, len: None, space: Space::User }], b"hello\0\0\0"),
        (vec![c(1, 3), Op::String { to, address: 1, len: Some(1), space: Space::User }], b"hel\0\0\0\0\0"),
        (vec![Op::String { to, address: 1, len: None, space: Space::User }], b"\0\0\0\0\0\0\0\0"),
        (vec![c(1, 0x41), Op::Read { to: s(0, 4), address: 1, space: Space::User }], b"AAAA\0\0\0\0"),
        (vec![Op::Read { to, address: 1, space: Space::User }], b"\0\0\0\0\0\0\0\0"),
        (vec![Op::FieldString { to, offset: 4 }], b"abc\0\0\0\0\0"),
        (vec![Op::FieldString { to, offset: 200 }], b"\0\0\0\0\0\0\0\0"),
        (vec![Op::FieldBytes { to: s(0, 4), offset: 8 }], b"abcd\0\0\0\0"),
        (vec![Op::Constant { to, constant: 0 }], b"get\0\0\0\0\0"),
        (vec![Op::Constant { to, constant: 0 }, Op::Zero { to: s(0, 2) }], b"\0\0t\0\0\0\0\0"),
        (vec![Op::Constant { to: s(8, 8), constant: 0 }, Op::Move { to, from: s(8, 2) }], b"ge\0\0\0\0\0\0"),
    ] {
        assert_eq!(show(ops.clone(), to), want, "{ops:?}");
    }
    let to = s(0, 16);
    for (ops, want) in [
        (
            vec![c(1, 99), Op::ArgBytes { to, index: 0, len: 1 }],
            &b"\x03\0\0\0\0\0\0\0\x01\0\xff\0\0\0\0\0"[..],
        ),
        (vec![c(1, 1), Op::ArgBytes { to, index: 0, len: 1 }], b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"),
        (
            vec![c(1, 2), Op::Buffer { to, address: 1, len: 1, space: Space::User }],
            b"\x02\0\0\0\0\0\0\0\x02\x02\0\0\0\0\0\0",
        ),
        (vec![Op::UserStack { to: s(0, 16) }], b"\x2a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        (vec![Op::KernelStack { to }], &[0; 16]),
    ] {
        assert_eq!(show(ops.clone(), to), want, "{ops:?}");
    }
    let stack = show(vec![Op::UserStack { to: s(0, 32) }], s(0, 32));
    let words: Vec<u64> = stack.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
    assert_eq!(words, [42, 2, 0x11, 0x22]);
}

#[test]
fn strings_of_the_frame() {
    let both = || vec![Op::Constant { to: s(0, 8), constant: 0 }, Op::Constant { to: s(8, 8), constant: 1 }];
    let (a, b) = (s(0, 8), s(8, 8));
    for (op, want) in [
        (Op::Equal { dst: 0, a, b }, 0),
        (Op::Equal { dst: 0, a, b: s(0, 3) }, 1),
        (Op::Strncmp { dst: 0, a, b, n: 3 }, 1),
        (Op::Strncmp { dst: 0, a, b: a, n: 99 }, 0),
        (Op::StrFind { dst: 0, haystack: a, needle: b }, 1),
        (Op::StrFind { dst: 0, haystack: b, needle: a }, NOT_FOUND),
        (Op::Strlen { dst: 0, a }, 3),
        (Op::Element { dst: 0, from: a, index: 0, n: 8, size_bytes: 2, is_signed: false }, 0x6567),
        (Op::Element { dst: 0, from: a, index: 0, n: 0, size_bytes: 2, is_signed: false }, 0),
        (Op::Load { dst: 0, at: 1, size_bytes: 2, is_signed: false }, 0x7465),
    ] {
        let mut ops = both();
        ops.push(op);
        assert_eq!(show_r0(ops), want, "{op:?}");
    }
    let concat = |len| {
        let mut ops = both();
        ops.push(Op::StrConcat { to: s(16, len), a, b });
        show(ops, s(16, len))
    };
    assert_eq!((&concat(8)[..], &concat(5)[..]), (&b"getet\0\0\0"[..], &b"gete\0"[..]));
}

/// Key in the frame at 0: the number in register 1.
fn with_key(number: i64) -> Vec<Op> {
    vec![c(1, number), Op::Store { at: 0, src: 1, size_bytes: 8 }]
}

const KEY: Slot = s(0, 8);

#[test]
fn maps_of_numbers() {
    let store = Op::MapStore { map: NUMBERS, key: KEY, src: 1 };
    for (ops, want) in [
        (vec![Op::MapLoad { dst: 0, map: NUMBERS, key: KEY }], 0),
        (vec![store, Op::MapLoad { dst: 0, map: NUMBERS, key: KEY }], 6),
        (vec![store, Op::MapAdd { dst: 0, map: NUMBERS, key: KEY, delta: 1 }], 6),
        (
            vec![
                store,
                Op::MapAdd { dst: 2, map: NUMBERS, key: KEY, delta: 1 },
                Op::MapLoad { dst: 0, map: NUMBERS, key: KEY },
            ],
            12,
        ),
        (vec![Op::MapHas { dst: 0, map: NUMBERS, key: KEY }], 0),
        (vec![store, Op::MapHas { dst: 0, map: NUMBERS, key: KEY }], 1),
        (
            vec![
                store,
                Op::MapDelete { map: NUMBERS, key: KEY },
                Op::MapHas { dst: 0, map: NUMBERS, key: KEY },
            ],
            0,
        ),
        (vec![store, store, Op::MapLen { dst: 0, map: NUMBERS }], 1),
        (
            vec![
                Op::Aggregate { map: COUNTS, key: KEY, value: 1 },
                Op::Aggregate { map: COUNTS, key: KEY, value: 1 },
                Op::MapLoad { dst: 0, map: COUNTS, key: KEY },
            ],
            12,
        ),
    ] {
        let mut all = with_key(6);
        all.extend(ops.clone());
        assert_eq!(show_r0(all), want, "{ops:?}");
    }
}

#[test]
fn maps_of_bytes() {
    let empty = s(0, 0);
    let mut ops = with_key(6);
    ops.extend([
        Op::Store { at: 8, src: 1, size_bytes: 4 },
        Op::MapWrite { map: PAIRS, key: empty, from: s(0, 16) },
        Op::MapRead { to: s(16, 16), map: PAIRS, key: empty },
    ]);
    assert_eq!(show(ops, s(16, 16)), b"\x06\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0");
    let ops = vec![Op::MapRead { to: s(16, 16), map: PAIRS, key: empty }];
    assert_eq!(show(ops, s(16, 16)), [0; 16]);
}

#[test]
fn a_full_map_takes_no_more() {
    let mut ops = Vec::new();
    for number in 0..6 {
        ops.extend(with_key(number));
        ops.push(Op::MapStore { map: NUMBERS, key: KEY, src: 1 });
    }
    let (interpreter, _) = run(ops);
    assert_eq!((interpreter.maps[0].len(), interpreter.maps[0].n_refused), (4, 2));
}

/// Fills @m with 1, 2, 3 and goes through it; `body` sees the key at 0 and the value at 8.
fn for_each(body: &[Op]) -> (Interpreter, Vec<Vec<u8>>) {
    let mut ops = Vec::new();
    for number in 1..=3 {
        ops.extend(with_key(number));
        ops.push(Op::MapStore { map: NUMBERS, key: KEY, src: 1 });
    }
    let end = (ops.len() + 1 + body.len()) as u32;
    ops.push(Op::ForEach { map: NUMBERS, key: s(0, 8), value: s(8, 8), end });
    ops.extend_from_slice(body);
    // What a `break` jumps over, then a mark.
    ops.push(Op::Jump { to: end + 1 });
    ops.push(Op::Emit { action: 0, payload: s(0, 0) });
    run(ops)
}

#[test]
fn loops_over_maps() {
    let emit = Op::Emit { action: 0, payload: s(0, 16) };
    let (_, out) = for_each(&[emit]);
    let mut pairs: Vec<_> = out[..3].iter().map(|p| (p[0], p[8])).collect();
    pairs.sort();
    assert_eq!((pairs, out.len()), (vec![(1, 1), (2, 2), (3, 3)], 4));

    // Deleting what is gone through, one by one.
    let (interpreter, out) = for_each(&[Op::MapDelete { map: NUMBERS, key: s(0, 8) }, emit]);
    assert_eq!((interpreter.maps[0].len(), out.len()), (0, 4));

    // `continue` at once, then `break` at once: 9 ops fill the map, then come the loop, its body, the mark.
    let (_, out) = for_each(&[Op::Jump { to: 12 }, emit]);
    assert_eq!(out.len(), 1);
    let (_, out) = for_each(&[emit, Op::Jump { to: 13 }]);
    assert_eq!(out.len(), 2);

    // An empty map.
    let ops = vec![Op::ForEach { map: COUNTS, key: s(0, 8), value: s(8, 8), end: 2 }, emit];
    assert_eq!(run(ops).1.len(), 0);
}

#[test]
fn loops_within_loops() {
    let emit = Op::Emit { action: 0, payload: s(0, 0) };
    let inner = Op::ForEach { map: NUMBERS, key: s(16, 8), value: s(24, 8), end: 12 };
    let (_, out) = for_each(&[inner, emit]);
    assert_eq!(out.len(), 9 + 1);
}

#[test]
fn branches() {
    for (condition, want) in [(0, 20), (5, 10)] {
        let ops = vec![
            c(1, condition),
            Op::JumpUnless { condition: 1, to: 4 },
            c(0, 10),
            Op::Jump { to: 5 },
            c(0, 20),
        ];
        assert_eq!(show_r0(ops), want);
        let ops =
            vec![c(1, condition), Op::JumpIf { condition: 1, to: 4 }, c(0, 20), Op::Jump { to: 5 }, c(0, 10)];
        assert_eq!(show_r0(ops), want);
    }
    assert!(run(vec![Op::Return, Op::Emit { action: 0, payload: KEY }]).1.is_empty());
}

#[test]
fn a_loop_without_end_is_given_up_and_counted() {
    let (mut interpreter, _) = run(vec![Op::Jump { to: 0 }]);
    assert_eq!(interpreter.n_endless, 1);
    interpreter.run(0, 0, &TestHit, |_, _| true);
    assert_eq!(interpreter.n_endless, 2);
}

#[test]
fn a_hit_whose_output_nobody_takes_is_given_up_and_counted() {
    let ops = vec![Op::Emit { action: 0, payload: KEY }, Op::Jump { to: 0 }];
    let mut interpreter = Interpreter::new(Arc::new(program(ops)), 0).unwrap();
    let mut n_taken = 0;
    interpreter.run(0, 0, &TestHit, |_, _| {
        n_taken += 1;
        n_taken < 3
    });
    assert_eq!((n_taken, interpreter.n_endless), (3, 1));
}

#[test]
fn a_hit_sees_nothing_of_the_one_before() {
    let ops = vec![
        Op::Emit { action: 0, payload: KEY },
        Op::Store { at: 8, src: 3, size_bytes: 8 },
        Op::Emit { action: 0, payload: s(8, 8) },
        c(3, -1),
        Op::Store { at: 0, src: 3, size_bytes: 8 },
    ];
    let mut interpreter = Interpreter::new(Arc::new(program(ops)), 0).unwrap();
    for _ in 0..2 {
        interpreter.run(0, 0, &TestHit, |_, emitted| emitted.payload == [0; 8]);
        assert_eq!(interpreter.n_endless, 0);
    }
}

#[test]
fn programs_that_name_what_is_not_there_are_refused() {
    let far = s(256, 8);
    for op in [
        c(8, 0),
        Op::Copy { dst: 0, src: 9 },
        Op::Comm { to: far },
        Op::Zero { to: s(u32::MAX, 2) },
        Op::Load { dst: 0, at: 250, size_bytes: 8, is_signed: false },
        Op::Store { at: 0, src: 0, size_bytes: 3 },
        Op::Constant { to: KEY, constant: 2 },
        Op::MapLoad { dst: 0, map: 3, key: KEY },
        Op::MapLoad { dst: 0, map: NUMBERS, key: s(0, 4) },
        Op::MapStore { map: COUNTS, key: KEY, src: 0 },
        Op::Aggregate { map: NUMBERS, key: KEY, value: 0 },
        Op::Emit { action: 4, payload: KEY },
        Op::Jump { to: 2 },
        Op::ForEach { map: NUMBERS, key: KEY, value: KEY, end: 0 },
        Op::ArgString { to: KEY, index: 0, len: Some(8) },
    ] {
        assert!(Interpreter::new(Arc::new(program(vec![op])), 0).is_err(), "{op:?}");
    }
}
