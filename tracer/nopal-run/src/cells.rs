//! Clauses that the stubs in the traced program do alone: counters and histograms in per-CPU cells, nothing is sent. Of a
//! map with a key the cells hold the small ones; a hit with another key is sent, and what comes of it is added when the map
//! is read.

use super::perform::MapAccess;
use super::{Maps, entries_of, is_of_site};
use nopal_capture::{self as stub, Cell};
use nopal_program::aggregate::Aggregate;
use nopal_program::lower::{Key, Lowered, Relation, Test, Update, Value, lower};
use nopal_program::op::Op;
use nopal_program::{Action, Program, Type};
use nopal_script::render::Entry;
use nopal_sdt::operand::{Operand, Place};
use nopal_sdt::probe::Site;
use nopal_user::ring::Rings;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Which clauses stubs can do, and where the cells of their maps are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cells {
    /// By clause.
    lowered: Vec<Option<Lowered>>,
    /// By map.
    places: Vec<Option<CellPlace>>,
    pub n_bytes: u32,
}

#[derive(Debug, Clone, Copy)]
struct CellPlace {
    offset: u32,
    aggregate: Aggregate,
    /// How many keys have cells; 0 for a map without a key.
    n_keys: u32,
}

/// What a stub does at the hits of a site.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SiteCells {
    pub predicates: Vec<stub::Predicate>,
    pub cells: Vec<Cell>,
    /// The keys that have cells, if not all hits are counted in them.
    pub keys: Option<RangeInclusive<i64>>,
}

/// As much as a ring has room for.
const MAX_BYTES: u64 = 1 << 20;
/// For the cells of one map with a key; a histogram of each of 512 keys.
const MAX_KEYED_BYTES: u64 = 288 << 10;
/// Fewer keys are not worth it.
const KEYS: RangeInclusive<u32> = 16..=1024;

/// Most keys are counts or codes of errors: an eighth of them are below 0.
fn first_key(n_keys: u32) -> i64 {
    -i64::from(n_keys / 8)
}

impl Cells {
    /// Every hit is sent.
    pub(crate) fn none(program: &Program) -> Cells {
        let (places, lowered) = (vec![None; program.maps.len()], vec![None; program.clauses.len()]);
        Cells { places, lowered, ..Cells::default() }
    }

    pub(crate) fn of(program: &Program) -> Cells {
        let mut cells = Cells { places: vec![None; program.maps.len()], ..Cells::default() };
        for clause in &program.clauses {
            let is_of_sites = clause.points.iter().all(|p| is_of_site(&p.kind));
            let lowered = lower(program, clause)
                .filter(|lowered| is_of_sites && lowered.updates.iter().all(|u| can_keep(program, u)))
                // Declared room is kept to exactly.
                .filter(|lowered| {
                    lowered
                        .updates
                        .iter()
                        .all(|u| program.room(u.map as usize) == (program.limits.map_entries, false))
                })
                .filter(|lowered| cells.make_room(lowered, program.limits.map_entries));
            cells.lowered.push(lowered);
        }
        cells
    }

    fn make_room(&mut self, lowered: &Lowered, map_entries: u32) -> bool {
        for update in &lowered.updates {
            if self.places[update.map as usize].is_some() {
                continue;
            }
            let mut place = CellPlace { offset: self.n_bytes, aggregate: update.aggregate, n_keys: 0 };
            if update.key != Key::None {
                place.n_keys = *KEYS.end();
                while place.n_keys >= *KEYS.start() && place.cell().bytes() > MAX_KEYED_BYTES {
                    place.n_keys /= 2;
                }
                // A map that may not have so many entries has to be full at the right moment.
                if place.n_keys < *KEYS.start() || place.n_keys > map_entries {
                    return false;
                }
            }
            let end = u64::from(self.n_bytes) + place.cell().bytes();
            if end > MAX_BYTES {
                return false;
            }
            self.places[update.map as usize] = Some(place);
            self.n_bytes = end as u32;
        }
        true
    }

    /// What the stub of a site does for its clauses, if it can do all of them.
    pub(crate) fn at(&self, site: &Site, clauses: &[u32]) -> Option<SiteCells> {
        let lowered: Vec<&Lowered> = clauses
            .iter()
            .map(|clause| self.lowered.get(*clause as usize)?.as_ref())
            .collect::<Option<_>>()?;
        let (first, rest) = lowered.split_first()?;
        // A stub has one set of conditions.
        if rest.iter().any(|other| other.tests != first.tests) {
            return None;
        }
        let predicates = first.tests.iter().map(|test| predicate(site, test)).collect::<Option<Vec<_>>>()?;
        let updates = lowered.iter().flat_map(|lowered| &lowered.updates);
        let cells = updates.map(|update| self.cell(site, update)).collect::<Option<Vec<_>>>()?;
        let n_least = cells.iter().filter_map(|cell| cell.key.as_ref()).map(|key| key.n_keys).min();
        let keys = n_least.map(|n_keys| first_key(n_keys)..=first_key(n_keys) + i64::from(n_keys) - 1);
        Some(SiteCells { predicates, cells, keys })
    }

    fn cell(&self, site: &Site, update: &Update) -> Option<Cell> {
        let mut cell = self.places[update.map as usize]?.cell();
        if update.aggregate != Aggregate::Count {
            let value = operand(site, update.value)?;
            // Eight unsigned bytes of which a script sees the sign would be another bucket or extreme.
            let is_same = value.is_signed || value.size_bytes < 8 || is_sign_free(update.aggregate);
            cell.value = Some(value).filter(|_| is_same);
            cell.value.as_ref()?;
        }
        if let (Key::Arg(index), Some(key)) = (update.key, &mut cell.key) {
            key.operand = operand(site, Value::Arg(index))?;
        }
        Some(cell)
    }

    /// Keys and words that the cells of a map hold.
    fn entries(&self, map: u32, ring: &Rings) -> Vec<Entry> {
        let Some(Some(place)) = self.places.get(map as usize) else { return Vec::new() };
        let key_of = |key: i64| if place.n_keys > 0 { key.to_le_bytes().to_vec() } else { Vec::new() };
        ring.read_cell(&place.cell()).keys.into_iter().map(|(key, words)| (key_of(key), words)).collect()
    }
}

impl CellPlace {
    /// Without the operands, which each site has its own of.
    fn cell(&self) -> Cell {
        let cell = Cell { offset: self.offset, aggregate: self.aggregate, value: None, key: None };
        let nobody = Operand { size_bytes: 1, is_signed: false, is_float: false, place: Place::Constant(0) };
        match self.n_keys {
            0 => cell,
            n_keys => cell.by_key(nobody, first_key(n_keys), n_keys),
        }
    }
}

/// Whether it gathers bits, not sizes.
fn is_sign_free(aggregate: Aggregate) -> bool {
    match aggregate {
        Aggregate::Count | Aggregate::Sum { .. } | Aggregate::Avg { .. } | Aggregate::Stats { .. } => true,
        Aggregate::Min { is_signed } | Aggregate::Max { is_signed } => !is_signed,
        Aggregate::Hist { .. } | Aggregate::Lhist { .. } | Aggregate::Quantiles { .. } => false,
    }
}

/// Whether cells can keep the map: it is added to and printed, and nothing else.
fn can_keep(program: &Program, update: &Update) -> bool {
    let is_touched = |op: &Op| match *op {
        Op::MapLoad { map, .. }
        | Op::MapRead { map, .. }
        | Op::MapStore { map, .. }
        | Op::MapWrite { map, .. }
        | Op::MapAdd { map, .. }
        | Op::MapDelete { map, .. }
        | Op::MapHas { map, .. }
        | Op::MapLen { map, .. }
        | Op::ForEach { map, .. } => map == update.map,
        _ => false,
    };
    let is_changed = |action: &Action| match action {
        Action::Clear { map } | Action::Zero { map } | Action::PrintEntry { map, .. } => *map == update.map,
        _ => false,
    };
    let is_number = |key: &[Type]| matches!(key, [] | [Type::Int { .. } | Type::Enum { .. }]);
    is_number(&program.maps[update.map as usize].key)
        && !program.clauses.iter().flat_map(|clause| &clause.code.ops).any(is_touched)
        && !program.actions.iter().any(is_changed)
}

fn operand(site: &Site, value: Value) -> Option<Operand> {
    match value {
        Value::Arg(index) => {
            let operand = super::site::operand(site, index).ok()?;
            (operand.size_bytes <= 8 && !operand.is_float).then(|| operand.clone())
        }
        Value::Constant(n) => {
            Some(Operand { size_bytes: 8, is_signed: true, is_float: false, place: Place::Constant(n) })
        }
    }
}

/// The test as a stub makes it: the argument by its own size and sign, beside a constant without limits.
fn predicate(site: &Site, test: &Test) -> Option<stub::Predicate> {
    let operand = operand(site, Value::Arg(test.arg))?;
    let (signed, unsigned) = (i128::from(test.constant), i128::from(test.constant as u64));
    let is_equality = matches!(test.relation, Relation::Equal | Relation::NotEqual);
    let constant = match (operand.is_signed, is_equality, test.is_signed) {
        (true, true, _) | (true, _, true) => signed,
        // Negative numbers would be large ones.
        (true, false, false) => return None,
        (false, true, _) | (false, _, false) => unsigned,
        (false, false, true) if operand.size_bytes < 8 => signed,
        (false, false, true) => return None,
    };
    Some(stub::Predicate { operand, relation: test.relation, constant })
}

/// The maps of a script, with what stubs have gathered for them.
#[derive(Debug)]
pub(crate) struct CellMaps<'a> {
    pub maps: &'a mut Maps,
    pub cells: &'a Cells,
    pub ring: Option<&'a Arc<Rings>>,
}

impl MapAccess for CellMaps<'_> {
    fn entries(&mut self, map: u32) -> Vec<Entry> {
        let mut entries = entries_of(self.maps, map);
        let gathered = self.ring.map(|ring| self.cells.entries(map, ring)).unwrap_or_default();
        let aggregate = self.maps.get(map as usize).and_then(|table| table.aggregate());
        for (key, words) in gathered {
            match (entries.iter_mut().find(|(known, _)| *known == key), aggregate) {
                (Some((_, own)), Some(aggregate)) => aggregate.merge(own, &words),
                (_, _) => entries.push((key, words)),
            }
        }
        entries
    }

    fn clear(&mut self, map: u32) {
        MapAccess::clear(self.maps, map);
    }

    fn zero(&mut self, map: u32) {
        MapAccess::zero(self.maps, map);
    }

    fn take(&mut self, map: u32, value: i64) {
        MapAccess::take(self.maps, map, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::tests::site;
    use nopal_program::PointKind;

    #[test]
    fn tests_mean_the_same_in_a_stub() {
        let site = site("-4@%edi 4@%esi 8@%rdx");
        let less = |arg, is_signed| Test { arg, relation: Relation::Less, constant: -1, is_signed };
        let equal = |arg| Test { arg, relation: Relation::Equal, constant: -1, is_signed: true };
        let unsigned = i128::from(u64::MAX);
        for (test, want) in [
            (less(0, true), Some(-1)),
            (less(0, false), None),
            (less(1, true), Some(-1)),
            (less(1, false), Some(unsigned)),
            (less(2, true), None),
            (less(2, false), Some(unsigned)),
            (equal(0), Some(-1)),
            (equal(1), Some(unsigned)),
            (equal(2), Some(unsigned)),
            (equal(3), None),
        ] {
            assert_eq!(predicate(&site, &test).map(|p| p.constant), want, "{test:?}");
        }
    }

    #[test]
    fn small_keys_are_kept_in_cells() {
        let def = |key: Vec<Type>, aggregate| nopal_program::MapDef {
            name: "@".into(),
            key,
            value: nopal_program::MapValue::Aggregate(aggregate),
        };
        let slot = |len| nopal_program::op::Slot { at: 0, len };
        let ops = vec![
            Op::Arg { dst: 0, index: 0 },
            Op::Store { at: 0, src: 0, size_bytes: 8 },
            Op::Arg { dst: 1, index: 1 },
            Op::Aggregate { map: 0, key: slot(8), value: 1 },
            Op::Aggregate { map: 1, key: slot(0), value: 1 },
        ];
        let usdt = PointKind::Usdt { path: String::new(), provider: "p".into(), name: "n".into() };
        let program = Program {
            clauses: vec![nopal_program::Clause {
                points: vec![nopal_program::Point { name: String::new(), kind: usdt }],
                code: nopal_program::Code { ops, n_regs: 2, frame_bytes: 8 },
            }],
            maps: vec![
                def(vec![Type::I64], Aggregate::Count),
                def(vec![], Aggregate::Max { is_signed: true }),
            ],
            ..Program::default()
        };
        let cells = Cells::of(&program);
        for (operands, is_lowered) in [
            ("-1@%dil -4@%esi", true),
            ("1@%dil 4@%esi", true),
            ("-4@%edi -4@%esi", true),
            ("8@%rdi -4@%esi", true),
            ("1@%dil 8@%rsi", false),
            ("1@%dil -8@%rsi", true),
            ("1@%dil", false),
        ] {
            let at = cells.at(&site(operands), &[0]);
            assert_eq!(at.is_some(), is_lowered, "{operands}");
            assert!(at.is_none_or(|at| at.keys == Some(-128..=895)), "{operands}");
        }
        // Fewer keys where each takes more room; none where the map must be full before the cells are.
        let with = |aggregate, map_entries| {
            let maps = vec![def(vec![Type::I64], aggregate), program.maps[1].clone()];
            let limits = nopal_program::Limits { map_entries, ..program.limits };
            let program = Program { maps, limits, ..program.clone() };
            Cells::of(&program).at(&site("1@%dil -4@%esi"), &[0]).and_then(|at| at.keys)
        };
        assert_eq!(with(Aggregate::Hist { bits: 0 }, 4096), Some(-64..=447));
        assert_eq!(with(Aggregate::Quantiles { bits: 4 }, 4096), Some(-4..=27));
        assert_eq!(with(Aggregate::Lhist { min: 0, max: 1 << 20, step: 1 }, 4096), None);
        assert_eq!(with(Aggregate::Count, 1000), None);
        let cleared = Program { actions: vec![Action::Clear { map: 0 }], ..program };
        assert!(Cells::of(&cleared).at(&site("1@%dil 4@%esi"), &[0]).is_none());
    }
}
