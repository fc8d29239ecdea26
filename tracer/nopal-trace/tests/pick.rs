//! Fields that are picked out of events without a plan: of many event types, made by a plan that is the same each time, the values are
//! those that were written, and what cannot be picked is refused.

use nopal_trace::{
    ByteOrder, EventType, FieldType, Integer, Payload, PickedKind, Range, Recording, RecordingInfo, Type,
    Version,
};
use std::fs;
use std::path::Path;

/// Numbers that look random and are not.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 20
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unsigned(u32),
    Signed(u32),
    Big(u32),
    String,
    Text(u64),
    Float,
    Enumeration,
    Bool,
    Array,
    /// A structure or a sequence: ends what can be picked.
    Structure,
    Sequence,
}

const KINDS: [Kind; 16] = [
    Kind::Unsigned(8),
    Kind::Unsigned(16),
    Kind::Unsigned(32),
    Kind::Unsigned(64),
    Kind::Signed(8),
    Kind::Signed(32),
    Kind::Signed(64),
    Kind::Big(16),
    Kind::Big(64),
    Kind::String,
    Kind::Text(1),
    Kind::Text(9),
    Kind::Float,
    Kind::Enumeration,
    Kind::Bool,
    Kind::Array,
];

impl Kind {
    fn ty(self) -> FieldType {
        match self {
            Kind::Unsigned(bits) => Type::unsigned(bits).into(),
            Kind::Signed(bits) => Type::signed(bits).into(),
            Kind::Big(bits) => Type::Integer(Integer::new(bits, false).order(ByteOrder::Big)).into(),
            Kind::String => Type::String.into(),
            Kind::Text(n) => Type::text(n).into(),
            Kind::Float => Type::float(32).into(),
            Kind::Enumeration => Type::enumeration(Integer::new(16, false), [("a", 0, 9)]).into(),
            Kind::Bool => Type::bool().into(),
            Kind::Array => Type::array(Type::unsigned(16), 3).into(),
            Kind::Structure => Type::structure(Vec::new()).into(),
            Kind::Sequence => Type::sequence(Type::unsigned(8)),
        }
    }

    /// Writes a value; returns what is to be picked of it.
    fn put(self, numbers: &mut Numbers, payload: &mut Payload<'_>) -> Picked {
        let n = numbers.next() << (numbers.below(21));
        let text = &b"abcd\xff\xc3\xa4xyz"[..numbers.below(10) as usize];
        match self {
            Kind::Unsigned(bits) => {
                payload.unsigned(bits, n);
                return Picked::Number(n & (u64::MAX >> (64 - bits)));
            }
            Kind::Signed(bits) => {
                let value = n as i64 >> (64 - bits);
                payload.signed(bits, value);
                return Picked::Number(value as u64);
            }
            Kind::Big(bits) => {
                let value = n & (u64::MAX >> (64 - bits));
                payload.big(bits, value);
                return Picked::Number(value);
            }
            Kind::String => {
                payload.string(text);
                return Picked::Text(text.to_vec());
            }
            Kind::Text(size) => {
                payload.text(size as usize, text);
                return Picked::Text(text[..text.len().min(size as usize)].to_vec());
            }
            Kind::Float => payload.float32(1.5),
            Kind::Enumeration => payload.unsigned(16, 3),
            Kind::Bool => payload.bool(true),
            Kind::Array => payload.unsigned(16, 1).unsigned(16, 2).unsigned(16, 3),
            Kind::Structure => payload,
            Kind::Sequence => payload.count(2).unsigned(8, 1).unsigned(8, 2),
        };
        Picked::Nothing
    }

    fn can_be_picked(self) -> bool {
        matches!(self, Kind::Unsigned(_) | Kind::Signed(_) | Kind::Big(_) | Kind::String | Kind::Text(_))
    }

    fn can_be_passed(self) -> bool {
        !matches!(self, Kind::Structure | Kind::Sequence)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Picked {
    Number(u64),
    Text(Vec<u8>),
    Nothing,
}

const N_EVENTS: usize = 20;

/// One recording of one event type; returns whether its wanted fields could be picked.
fn check(dir: &Path, numbers: &mut Numbers) -> bool {
    let mut kinds: Vec<Kind> =
        (0..numbers.below(7)).map(|_| KINDS[numbers.below(KINDS.len() as u64) as usize]).collect();
    if numbers.below(4) == 0 {
        let other = if numbers.below(2) == 0 { Kind::Structure } else { Kind::Sequence };
        kinds.insert(numbers.below(kinds.len() as u64 + 1) as usize, other);
    }
    // Half of the time only what can be picked is wanted.
    let is_any = numbers.below(2) == 0;
    let wanted: Vec<bool> =
        kinds.iter().map(|kind| (is_any || kind.can_be_picked()) && numbers.below(3) > 0).collect();
    let mut info = RecordingInfo::of_this_host();
    if numbers.below(2) == 0 {
        info = info.context("vpid", Type::signed(32)).context("small", Type::unsigned(8));
    }
    if numbers.below(2) == 0 {
        info.version = Version::Ctf2;
    }
    let context_bytes = vec![7; info.context.len().min(1) * 5];
    let mut writer = Recording::create(dir, info).unwrap();
    let mut ty = EventType::new("p", "e");
    for (at, kind) in kinds.iter().enumerate() {
        ty = ty.field(&format!("f{at}"), kind.ty());
    }
    let ty = writer.add_event_type(ty).unwrap();
    let mut stream = writer.stream(0).unwrap();
    let mut written: Vec<Vec<Picked>> = Vec::new();
    for n in 0..N_EVENTS {
        let mut bytes = Vec::new();
        let mut payload = Payload::new(&mut bytes);
        let values: Vec<Picked> = kinds.iter().map(|kind| kind.put(numbers, &mut payload)).collect();
        written
            .push(values.into_iter().zip(&wanted).filter(|(_, is)| **is).map(|(value, _)| value).collect());
        stream.append(ty, 1_000_000 + n as u64, &context_bytes, &bytes).unwrap();
    }
    stream.finish().unwrap();
    drop(writer);
    let last = wanted.iter().rposition(|is| *is);
    let expected = last.is_none_or(|last| {
        let of_last =
            |at: usize| if wanted[at] { kinds[at].can_be_picked() } else { kinds[at].can_be_passed() };
        (0..=last).all(of_last)
    });
    let recording = Recording::open(dir).unwrap();
    let mut events = recording.events(Range::default()).unwrap();
    let (mut n, mut values) = (0, Vec::new());
    while let Some(event) = events.next().unwrap() {
        let picker = event.picker(|name| !name.starts_with('_'), &wanted);
        assert_eq!(picker.is_some(), expected, "{kinds:?} {wanted:?}");
        if let Some(picker) = picker {
            event.pick(&picker, &mut values).unwrap();
            let picked: Vec<Picked> = values
                .iter()
                .zip(picker.kinds())
                .map(|(value, kind)| match kind {
                    PickedKind::Signed | PickedKind::Unsigned => Picked::Number(*value),
                    PickedKind::Text => Picked::Text(event.picked_text(*value).to_vec()),
                })
                .collect();
            assert_eq!(picked, written[n], "{kinds:?} {wanted:?}");
        }
        n += 1;
    }
    assert_eq!(n, N_EVENTS);
    expected && last.is_some()
}

#[test]
fn picked_values_are_those_that_were_written() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pick");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut numbers = Numbers(11);
    const N: usize = 200;
    let n_picked = (0..N).filter(|at| check(&folder.join(at.to_string()), &mut numbers)).count();
    assert!((N / 4..N * 3 / 4).contains(&n_picked), "{n_picked}");
    fs::remove_dir_all(&folder).unwrap();
}
