//! Aggregates that stubs keep in cells, compared with what the aggregate's own definition makes of the same values.

use std::collections::BTreeMap;

use nopal_abi::stub_space::Path;
use nopal_capture::{Action, Capture, Cell, Predicate, Relation, cell};
use nopal_program::aggregate::Aggregate;
use nopal_user::stub::{StubError, StubSpec};

use crate::harness::{Harness, Place, has_rseq, hit2, operand, record};

const AGGREGATES: [Aggregate; 13] = [
    Aggregate::Count,
    Aggregate::Sum { is_signed: true },
    Aggregate::Avg { is_signed: false },
    Aggregate::Stats { is_signed: true },
    Aggregate::Min { is_signed: true },
    Aggregate::Min { is_signed: false },
    Aggregate::Max { is_signed: true },
    Aggregate::Max { is_signed: false },
    Aggregate::Hist { bits: 0 },
    Aggregate::Hist { bits: 3 },
    Aggregate::Lhist { min: -20, max: 100, step: 7 },
    Aggregate::Lhist { min: 0, max: 1 << 20, step: 1 << 14 },
    Aggregate::Quantiles { bits: 4 },
];

fn aggregate(cells: Vec<Cell>) -> StubSpec {
    StubSpec { action: Action::Aggregate(cells), ..record(0, vec![]) }
}

/// Values at the edges of every bucket, and others.
fn values() -> Vec<i64> {
    let mut values = vec![0, 1, -1, 99, 100, 101, -20, -21, i64::MIN, i64::MIN + 1, i64::MAX];
    for shift in 0..63 {
        let power = 1i64 << shift;
        values.extend([power, power - 1, power + 1, -power]);
    }
    let mut seed = 0x1234_5678_9abc_def1u64;
    for i in 0..400 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        values.push((seed as i64) >> (i % 64));
    }
    values
}

/// The words a model of the aggregate has after these values.
fn model(aggregate: Aggregate, values: impl IntoIterator<Item = i64>) -> Vec<u64> {
    let mut words = vec![0; aggregate.n_words() as usize];
    values.into_iter().for_each(|value| aggregate.take(&mut words, value));
    words
}

/// Stubs with one cell of each aggregate, at places of their own.
fn all_cells(key: impl Fn(Cell) -> Cell) -> (Vec<Cell>, u32) {
    let mut offset = 0;
    let cells = AGGREGATES
        .into_iter()
        .map(|aggregate| {
            let cell = key(Cell::new(offset, aggregate, operand("-8@%rsi")));
            offset += cell.bytes() as u32;
            cell
        })
        .collect();
    (cells, offset)
}

fn paths() -> Vec<Path> {
    if has_rseq() {
        vec![Path::Rseq, Path::LockedTls, Path::Locked]
    } else {
        vec![Path::LockedTls, Path::Locked]
    }
}

fn set_path(harness: &Harness, path: Path) {
    let known = harness.space.path();
    harness.space.set_path(path, known.rseq_offset, known.rseq_bytes, known.tid_offset);
}

#[test]
fn every_aggregate_of_several_threads_is_exact() {
    let (cells, bytes) = all_cells(|cell| cell);
    for path in paths() {
        let mut harness = Harness::new(|config| config.cells_bytes = bytes);
        set_path(&harness, path);
        harness.attach(Place::TwoArguments, &aggregate(cells.clone()));
        for cell in &cells {
            assert_eq!(harness.ring.read_cell(cell).keys, [], "nothing yet");
        }
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| values().into_iter().for_each(|value| hit2(0, value as u64)));
            }
        });
        for cell in &cells {
            let thrice = (0..3).flat_map(|_| values());
            let reading = harness.ring.read_cell(cell);
            assert_eq!(reading.keys, [(0, model(cell.aggregate, thrice))], "{:?}, {path:?}", cell.aggregate);
            harness.ring.clear_cell(cell);
            assert_eq!(harness.ring.read_cell(cell).keys, [], "cleared");
        }
        // One value alone, also one that is the worst an extreme can be.
        for value in [0, -1, 5, i64::MIN, i64::MAX] {
            hit2(0, value as u64);
            for cell in &cells {
                let reading = harness.ring.read_cell(cell);
                assert_eq!(
                    reading.keys,
                    [(0, model(cell.aggregate, [value]))],
                    "{value}: {:?}",
                    cell.aggregate
                );
                harness.ring.clear_cell(cell);
            }
        }
        assert_eq!(harness.reader().poll(|_, _| {}).records, 0, "no record is written");
    }
}

#[test]
fn small_keys_have_cells_of_their_own_and_others_are_counted() {
    let (first, n_keys) = (-3i64, 9u32);
    let (cells, bytes) = all_cells(|cell| cell.by_key(operand("-4@%edi"), first, n_keys));
    for path in paths() {
        let mut harness = Harness::new(|config| config.cells_bytes = bytes);
        set_path(&harness, path);
        harness.attach(Place::TwoArguments, &aggregate(cells.clone()));
        let mut expected: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let mut n_outside = 0;
        for (i, value) in values().into_iter().enumerate() {
            // Key 2 never comes.
            let key = [-3, -2, 0, 5, -4, 6, 1 << 30, i64::from(i32::MIN), 1, 3, 4][i % 11];
            hit2(key as u64, value as u64);
            if (first..first + i64::from(n_keys)).contains(&key) {
                expected.entry(key).or_default().push(value);
            } else {
                n_outside += 1;
            }
        }
        for cell in &cells {
            let reading = harness.ring.read_cell(cell);
            let model: Vec<_> = expected
                .iter()
                .map(|(key, values)| (*key, model(cell.aggregate, values.iter().copied())))
                .collect();
            assert_eq!(reading.keys, model, "{:?}, {path:?}", cell.aggregate);
            assert_eq!(reading.overflow, n_outside, "{:?}, {path:?}", cell.aggregate);
        }
    }
}

#[test]
fn hits_with_other_keys_leave_records_and_change_no_cell() {
    let (first, n_keys) = (-3i64, 9u32);
    // Two keys, and cells without one: all or none.
    let (mut cells, mut bytes) = all_cells(|cell| cell.by_key(operand("-4@%edi"), first, n_keys));
    let plain = Cell::count(bytes);
    bytes += plain.bytes() as u32;
    let by_value = Cell::count(bytes).by_key(operand("-8@%rsi"), -1000, 2000);
    bytes += by_value.bytes() as u32;
    cells.splice(0..0, [plain.clone()]);
    cells.push(by_value.clone());
    for path in paths() {
        for cells in [cells.clone(), vec![plain.clone(), cells[1].clone()]] {
            let mut harness = Harness::new(|config| config.cells_bytes = bytes);
            set_path(&harness, path);
            let captures = vec![
                Capture::Value { operand: operand("-4@%edi") },
                Capture::Value { operand: operand("-8@%rsi") },
            ];
            let action = Action::AggregateOrRecord {
                cells: cells.clone(),
                captures,
                has_time: false,
                has_task: false,
            };
            harness.attach(Place::TwoArguments, &StubSpec { action, ..record(7, vec![]) });
            let is_by_value = cells.contains(&by_value);
            let mut inside: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
            let mut outside: Vec<(i32, i64)> = Vec::new();
            for (i, value) in values().into_iter().enumerate() {
                let key = [-3, -2, 0, 5, -4, 6, 1 << 30, i64::from(i32::MIN), 1, 3, 4][i % 11];
                hit2(key as u64, value as u64);
                let is_small = !is_by_value || (-1000..1000).contains(&value);
                if is_small && (first..first + i64::from(n_keys)).contains(&key) {
                    inside.entry(key).or_default().push(value);
                } else {
                    outside.push((key as i32, value));
                }
            }
            for cell in cells.iter().filter(|cell| cell.key.as_ref().is_some_and(|key| key.n_keys == n_keys))
            {
                let reading = harness.ring.read_cell(cell);
                let want: Vec<_> = inside
                    .iter()
                    .map(|(key, values)| (*key, model(cell.aggregate, values.iter().copied())))
                    .collect();
                assert_eq!((reading.keys, reading.overflow), (want, 0), "{:?}, {path:?}", cell.aggregate);
            }
            let n_inside = inside.values().map(Vec::len).sum::<usize>() as u64;
            assert_eq!(harness.ring.read_cell(&plain).keys, [(0, vec![n_inside])], "{path:?}");
            let mut sent = Vec::new();
            harness.reader().poll(|_, record| {
                let (key, value) = record.payload.split_at(4);
                let value = i64::from_le_bytes(value[..8].try_into().unwrap());
                sent.push((i32::from_le_bytes(key.try_into().unwrap()), value));
            });
            // Locked and restartable rings are read one after the other, and a thread may move to another CPU.
            sent.sort_unstable();
            outside.sort_unstable();
            assert!(n_inside > 0 && !outside.is_empty());
            assert_eq!(sent, outside, "{path:?}");
        }
    }
}

#[test]
fn a_sum_of_nothing_but_zeros_is_one() {
    let cell =
        Cell::new(0, Aggregate::Sum { is_signed: true }, operand("8@%rsi")).by_key(operand("8@%rdi"), 0, 4);
    let mut harness = Harness::new(|config| config.cells_bytes = 4096);
    harness.attach(Place::TwoArguments, &aggregate(vec![cell.clone()]));
    hit2(2, 0);
    assert_eq!(harness.ring.read_cell(&cell).keys, [(2, vec![0])]);
}

#[test]
fn a_predicate_keeps_hits_out() {
    let cell = Cell::count(8);
    let mut harness = Harness::new(|config| config.cells_bytes = 64);
    let mut spec = aggregate(vec![cell.clone()]);
    spec.predicates =
        vec![Predicate { operand: operand("8@%rdi"), relation: Relation::Less, constant: 1 << 60 }];
    harness.attach(Place::TwoArguments, &spec);
    for i in 0..1000 {
        hit2(i, 0);
    }
    hit2(u64::MAX, 0);
    assert_eq!(harness.ring.read_cell(&cell).keys, [(0, vec![1000])]);
}

#[test]
fn cells_that_do_not_fit_are_refused() {
    let value = || operand("8@%rsi");
    let linear = |min, max, step| Cell::new(0, Aggregate::Lhist { min, max, step }, value());
    let table = [
        ("beyond the end", Cell::count(4096)),
        ("not at a multiple of 8", Cell::count(4)),
        ("too many keys", Cell::count(0).by_key(operand("8@%rdi"), 0, 512)),
        ("as many keys as numbers", Cell::count(0).by_key(operand("8@%rdi"), 0, u32::MAX)),
        ("no keys", Cell::count(0).by_key(operand("8@%rdi"), 0, 0)),
        ("no value", Cell { aggregate: Aggregate::Sum { is_signed: true }, ..Cell::count(0) }),
        ("no step", linear(0, 10, 0)),
        ("backwards", linear(10, 0, 1)),
        ("too many steps", linear(0, 1 << 40, 1)),
        ("all steps there are", linear(i64::MIN, i64::MAX, 1)),
    ];
    for (name, cell) in table {
        let harness = Harness::new(|config| config.cells_bytes = 4096);
        let made = harness.try_stub(Place::TwoArguments, &aggregate(vec![cell.clone()]));
        assert_eq!(made.err(), Some(StubError::BadCell { offset: cell.offset }), "{name}");
        assert_eq!(harness.ring.read_cell(&cell).keys, [], "{name}");
    }
    assert_eq!(cell::identity(true, true), 1 << 63);
}
