//! Every form of operand, executed: the value in the record is the value at the site, and nothing else changed.

use nopal_capture::record::{RecordKind, RecordLayout, Value};
use nopal_capture::{Capture, Predicate, Relation};
use nopal_sdt::operand::{Base, Memory, Operand, Place as OperandPlace};
use nopal_user::stub::StubError;

use crate::harness::{Harness, Place, State, distinct, operand, record, value};

/// Bytes that memory operands point into.
static MEMORY: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut i = 0;
    while i < 256 {
        bytes[i] = (i as u8).wrapping_mul(7) ^ 0x93;
        i += 1;
    }
    bytes
};

fn memory_at(offset: usize, size: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(&MEMORY[offset..offset + size]);
    u64::from_le_bytes(bytes)
}

fn bits(value: Value<'_>) -> u64 {
    match value {
        Value::Unsigned(bits) => bits,
        Value::Signed(value) => value as u64,
        Value::Float(value) => value.to_bits(),
        Value::Wide(_) | Value::Text(_) => panic!("not a number: {value:?}"),
    }
}

/// The values that a hit with this state leaves, or nothing.
fn hit(harness: &Harness, layout: &RecordLayout, state: &State) -> Vec<Vec<u64>> {
    harness.pass(state);
    hits(harness, layout)
}

fn hits(harness: &Harness, layout: &RecordLayout) -> Vec<Vec<u64>> {
    let mut hits = Vec::new();
    harness.reader().poll(|_, view| {
        if view.kind == RecordKind::Event(7) {
            hits.push(layout.values(view.payload).map(|value| bits(value.unwrap())).collect());
        }
    });
    hits
}

#[test]
fn every_operand_form_gives_its_value() {
    let memory = MEMORY.as_ptr() as u64;
    let state = distinct();
    let g = state.gpr;
    // Registers that are set to `MEMORY` in the second state; see below.
    type Expected = Box<dyn Fn(&State) -> u64>;
    let fixed = |bits: u64| -> Expected { Box::new(move |_| bits) };
    let register = |n: usize, size: u32, is_signed: bool| -> Expected {
        Box::new(move |state| {
            let unused = 64 - 8 * size;
            if is_signed {
                ((state.gpr[n] << unused) as i64 >> unused) as u64
            } else {
                state.gpr[n] << unused >> unused
            }
        })
    };
    let mut table: Vec<(String, Expected)> = Vec::new();
    let names: [[&str; 4]; 16] = [
        ["rax", "eax", "ax", "al"],
        ["rcx", "ecx", "cx", "cl"],
        ["rdx", "edx", "dx", "dl"],
        ["rbx", "ebx", "bx", "bl"],
        ["rsp", "esp", "sp", "spl"],
        ["rbp", "ebp", "bp", "bpl"],
        ["rsi", "esi", "si", "sil"],
        ["rdi", "edi", "di", "dil"],
        ["r8", "r8d", "r8w", "r8b"],
        ["r9", "r9d", "r9w", "r9b"],
        ["r10", "r10d", "r10w", "r10b"],
        ["r11", "r11d", "r11w", "r11b"],
        ["r12", "r12d", "r12w", "r12b"],
        ["r13", "r13d", "r13w", "r13b"],
        ["r14", "r14d", "r14w", "r14b"],
        ["r15", "r15d", "r15w", "r15b"],
    ];
    for (number, widths) in names.iter().enumerate().filter(|(number, _)| *number != 4) {
        for (name, size) in widths.iter().zip([8, 4, 2, 1]) {
            table.push((format!("{size}@%{name}"), register(number, size, false)));
            table.push((format!("-{size}@%{name}"), register(number, size, true)));
        }
        // As notes of real programs have it: the size is the argument's, the register is whole.
        table.push((format!("-4@%{}", widths[0]), register(number, 4, true)));
        table.push((format!("1@%{}", widths[0]), register(number, 1, false)));
    }
    for (number, name) in [(0, "ah"), (1, "ch"), (2, "dh"), (3, "bh")] {
        table.push((format!("1@%{name}"), Box::new(move |state| state.gpr[number] >> 8 & 0xff)));
        table.push((
            format!("-1@%{name}"),
            Box::new(move |state| i64::from((state.gpr[number] >> 8) as i8) as u64),
        ));
    }
    table.push(("8@%rsp".into(), Box::new(|state| state.gpr[4])));
    for (text, bits) in [
        ("-4@$-3", -3i64 as u64),
        ("8@$4294967296", 1 << 32),
        ("-8@$-4294967296", -4_294_967_296i64 as u64),
        ("1@$200", 200),
        ("2@$65535", 65535),
        ("-2@$-1", u64::MAX),
        ("4@$7", 7),
    ] {
        table.push((text.into(), fixed(bits)));
    }
    for (text, place) in [("8@16(%rsp)", 0), ("8@24(%rsp)", 1), ("8@40(%rsp)", 3)] {
        table.push((text.into(), Box::new(move |state| state.stack[place])));
    }
    table.push(("-1@16(%rsp)".into(), Box::new(|state| i64::from(state.stack[0] as i8) as u64)));
    // Below the stack pointer: the red zone, where leaf functions keep their locals.
    table.push(("8@-8(%rsp)".into(), Box::new(|state| state.red_zone[15])));
    table.push(("8@-128(%rsp)".into(), Box::new(|state| state.red_zone[0])));
    let run = |table: &[(String, Expected)], state: &State| {
        for (text, expected) in table {
            let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
            // Two others beside it, so that registers get scarce.
            let stub = harness
                .attach(Place::Everything, &record(7, vec![value("8@%rsi"), value(text), value("4@%edx")]));
            let after = harness.pass(state);
            let values = vec![state.gpr[6], expected(&after), state.gpr[2] & 0xffff_ffff];
            assert_eq!(hits(&harness, &stub.layout), [values], "{text}");
        }
    };
    run(&table, &state);

    // Memory through every base and with indices; the pointers make the registers equal, so they come separately.
    let mut table: Vec<(String, Expected)> = Vec::new();
    let mut pointing = state.clone();
    for (number, widths) in names.iter().enumerate().filter(|(number, _)| *number != 4) {
        pointing.gpr[number] = memory + number as u64;
        let name = widths[0];
        for (size, disp) in [(8, 0), (4, 5), (2, 33), (1, 127), (8, 130)] {
            let expected = memory_at(number + disp, size);
            let unused = 64 - 8 * size as u32;
            let signed = ((expected << unused) as i64 >> unused) as u64;
            table.push((format!("{size}@{disp}(%{name})"), fixed(expected)));
            table.push((format!("-{size}@{disp}(%{name})"), fixed(signed)));
        }
        table.push((format!("8@-{}(%{name})", number), fixed(memory_at(0, 8))));
    }
    run(&table, &pointing);

    let mut table: Vec<(String, Expected)> = Vec::new();
    let mut indexed = state.clone();
    for (base, index) in [(0, 2), (2, 0), (5, 13), (13, 5), (6, 7), (1, 8), (12, 3)] {
        indexed.gpr[base] = memory;
        indexed.gpr[index] = 3;
        let (base_name, index_name) = (names[base][0], names[index][0]);
        for scale in [1, 2, 4, 8] {
            table.push((
                format!("8@9(%{base_name},%{index_name},{scale})"),
                fixed(memory_at(9 + 3 * scale, 8)),
            ));
        }
        let mut state = state.clone();
        state.gpr[base] = memory;
        state.gpr[index] = 3;
        run(&table, &state);
        table.clear();
    }
    assert_ne!(g[0], g[1], "distinct() gives distinct registers");
}

#[test]
fn symbols_floats_and_vectors() {
    let mut harness = Harness::new(|_| {});
    let symbol = |name: &str, address: Option<u64>, size_bytes| Operand {
        size_bytes,
        is_signed: false,
        is_float: false,
        place: OperandPlace::Memory(Memory {
            base: Base::Symbol { name: name.into(), address },
            index: None,
            displacement: 4,
        }),
    };
    let vector = |number, size_bytes, is_float| Operand {
        size_bytes,
        is_signed: false,
        is_float,
        place: OperandPlace::Vector(number),
    };
    let float = Operand { is_float: true, ..operand("8@%rax") };
    let bias = 0x10_0000;
    let captures = vec![
        Capture::Value { operand: symbol("known", Some(MEMORY.as_ptr() as u64 - bias), 8) },
        Capture::Value { operand: vector(0, 8, true) },
        Capture::Value { operand: vector(15, 4, true) },
        Capture::Value { operand: vector(9, 16, false) },
        Capture::Value { operand: vector(3, 2, false) },
        Capture::Value { operand: float },
        Capture::Value { operand: Operand { size_bytes: 16, ..operand("8@(%rbx)") } },
        Capture::Value { operand: Operand { size_bytes: 32, ..operand("8@(%rdx)") } },
    ];
    let mut spec = record(7, captures);
    spec.load_bias = bias;
    let stub = harness.attach(Place::Everything, &spec);
    let mut state = distinct();
    state.gpr[0] = 1.5f64.to_bits();
    state.gpr[3] = MEMORY.as_ptr() as u64;
    state.gpr[2] = MEMORY.as_ptr() as u64 + 1;
    state.xmm[0][..8].copy_from_slice(&2.25f64.to_le_bytes());
    state.xmm[15][..4].copy_from_slice(&(-0.5f32).to_le_bytes());
    harness.pass(&state);
    let mut n = 0;
    harness.reader().poll(|_, view| {
        if view.kind != RecordKind::Event(7) {
            return;
        }
        n += 1;
        let values: Vec<_> = stub.layout.values(view.payload).map(Result::unwrap).collect();
        let two = u64::from(u16::from_le_bytes([state.xmm[3][0], state.xmm[3][1]]));
        let expected = [
            Value::Unsigned(memory_at(4, 8)),
            Value::Float(2.25),
            Value::Float(-0.5),
            Value::Wide(&state.xmm[9]),
            Value::Unsigned(two),
            Value::Float(1.5),
            Value::Wide(&MEMORY[..16]),
            Value::Wide(&MEMORY[1..33]),
        ];
        assert_eq!(values, expected);
    });
    assert_eq!(n, 1);

    let site = harness.space.site(Place::Everything.address()).unwrap();
    let refused = |capture| harness.space.add_stub(&site, &harness.session, &record(7, vec![capture]));
    let unknown = refused(Capture::Value { operand: symbol("gone", None, 8) });
    assert_eq!(unknown, Err(StubError::UnknownSymbol { name: "gone".into() }));
    let too_many = refused(Capture::Value { operand: vector(16, 8, true) });
    assert!(matches!(too_many, Err(StubError::Operand { .. })));
    let too_long =
        refused(Capture::CString { pointer: operand("8@%rdi"), max_bytes: 1 << 16, is_trusted: false });
    assert!(matches!(too_long, Err(StubError::RecordTooLong { .. })));
}

#[test]
fn wide_vectors_are_stored_whole() {
    if !std::is_x86_feature_detected!("avx") {
        return; // No operand can name a register that the processor does not have.
    }
    let mut harness = Harness::new(|_| {});
    let captures = [1, 14]
        .map(|number| Capture::Value {
            operand: Operand {
                size_bytes: 32,
                is_signed: false,
                is_float: false,
                place: OperandPlace::Vector(number),
            },
        })
        .to_vec();
    let stub = harness.attach(Place::Everything, &record(7, captures));
    let state = distinct();
    harness.pass(&state);
    let mut n = 0;
    harness.reader().poll(|_, view| {
        if view.kind == RecordKind::Event(7) {
            n += 1;
            for (value, number) in stub.layout.values(view.payload).zip([1, 14]) {
                let Value::Wide(bytes) = value.unwrap() else { panic!("32 bytes") };
                // movups left the upper half as it was.
                assert_eq!(bytes[..16], state.xmm[number]);
            }
        }
    });
    assert_eq!(n, 1);
}

#[test]
fn flags_survive() {
    let mut harness = Harness::new(|_| {});
    harness.attach(Place::Everything, &record(7, vec![value("8@%rax"), value("-4@%edi")]));
    let mut state = distinct();
    // Every combination of carry, parity, adjust, zero, sign and overflow, with the direction flag both ways.
    for combination in 0..128u64 {
        let places = [0, 2, 4, 6, 7, 10, 11];
        state.flags = 2 | places.iter().enumerate().map(|(i, at)| (combination >> i & 1) << at).sum::<u64>();
        harness.pass(&state);
    }
    assert!(harness.reader().poll(|_, _| {}).records >= 128);
}

#[test]
fn predicates_decide_before_anything_is_written() {
    let cases: &[(&str, Relation, i128, u64, bool)] = &[
        ("8@%rax", Relation::Greater, 100, 101, true),
        ("8@%rax", Relation::Greater, 100, 100, false),
        ("8@%rax", Relation::Greater, 100, u64::MAX, true),
        ("-8@%rax", Relation::Greater, 100, u64::MAX, false),
        ("-8@%rax", Relation::Less, 0, u64::MAX, true),
        ("8@%rax", Relation::Less, 0, u64::MAX, false),
        ("-4@%eax", Relation::Equal, -1, 0x1_ffff_ffff, true),
        ("4@%eax", Relation::Equal, -1, 0x1_ffff_ffff, false),
        ("4@%eax", Relation::Equal, 0xffff_ffff, 0x1_ffff_ffff, true),
        ("8@%rax", Relation::NotEqual, -1, u64::MAX, true),
        ("8@%rax", Relation::LessEqual, u64::MAX as i128, u64::MAX, true),
        ("8@%rax", Relation::GreaterEqual, u64::MAX as i128, u64::MAX - 1, false),
        ("8@%rax", Relation::GreaterEqual, 1 << 40, 1 << 40, true),
        ("8@%rax", Relation::LessEqual, (1 << 40) - 1, 1 << 40, false),
        ("-1@%al", Relation::LessEqual, -128, 0x80, true),
        ("8@%rax", Relation::Less, 1 << 80, 5, true),
        ("8@%rax", Relation::Greater, 1 << 80, 5, false),
        ("8@%rax", Relation::Greater, -1, 5, true),
    ];
    for (text, relation, constant, input, holds) in cases {
        let mut harness = Harness::new(|config| config.ring_bytes = 128 << 10);
        let mut spec = record(7, vec![value("8@%rdx")]);
        let is_true = Predicate { operand: operand("8@%rcx"), relation: Relation::Equal, constant: 4711 };
        spec.predicates =
            vec![is_true, Predicate { operand: operand(text), relation: *relation, constant: *constant }];
        let stub = harness.attach(Place::Everything, &spec);
        let mut state = distinct();
        state.gpr[0] = *input;
        state.gpr[1] = 4711;
        let hits = hit(&harness, &stub.layout, &state);
        assert_eq!(hits.len(), usize::from(*holds), "{text} {relation:?} {constant} with {input:#x}");
        state.gpr[1] = 4712;
        assert_eq!(hit(&harness, &stub.layout, &state).len(), 0);
    }
}
