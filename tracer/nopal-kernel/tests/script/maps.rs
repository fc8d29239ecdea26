//! Maps and aggregates, and what has no room in them.

use crate::operations::{FRAMES, NUMBERS};
use crate::{agree, program, shown, small};
use nopal_kernel::script::{Entry, ScriptDoor, ScriptOptions};
use nopal_program::aggregate::Aggregate;
use nopal_program::op::{Binary, Op, Slot};
use nopal_program::{Code, MapDef, MapValue, PointKind, Type};

pub(crate) fn def(name: &str, key: Vec<Type>, value: MapValue) -> MapDef {
    MapDef { name: name.to_owned(), key, value }
}

pub(crate) fn aggregates() -> Vec<Aggregate> {
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
