//! Takes chosen fields out of events of one class where they lie, without running a plan: whole numbers and texts between values of a
//! size that is known, and strings.

use super::decode::{Content, Damage, find_nul};
use super::event::Event;
use super::plan::{Count, Kind, Step};

/// How to get at the chosen fields of a class.
#[derive(Debug, Clone)]
pub struct Picker {
    moves: Vec<Move>,
    kinds: Vec<PickedKind>,
}

/// What a picked value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PickedKind {
    Signed,
    Unsigned,
    /// See [`Event::picked_text`].
    Text,
}

/// Offsets are from the first whole byte behind the header, or from the end of the last string.
#[derive(Debug, Clone, Copy)]
enum Move {
    Integer { offset_bits: u64, bits: u32, is_big: bool, is_signed: bool },
    Text { offset_bits: u64, n_bytes: u64 },
    String { offset_bits: u64, is_wanted: bool },
}

impl Event<'_> {
    /// Where the fields are that `is_wanted` says of their places among those that `is_visible` says of their names. None if one of
    /// them, or one before it, needs a plan.
    pub fn picker(&self, is_visible: impl Fn(&str) -> bool, is_wanted: &[bool]) -> Option<Picker> {
        let mut offset_bits = 0;
        for scope in [&self.stream.event_context, &self.class().context].into_iter().flatten() {
            offset_bits += scope.plan.fixed_bits?;
        }
        let mut builder = Builder { offset_bits, moves: Vec::new(), kinds: Vec::new() };
        let n_wanted = is_wanted.iter().filter(|is_wanted| **is_wanted).count();
        let steps = self.class().fields.as_ref().map_or(&[][..], |scope| &scope.plan.steps);
        let (mut pc, mut place) = (0, 0);
        while builder.kinds.len() < n_wanted {
            let step = steps.get(pc)?;
            let is_value = !matches!(step.kind, Kind::Align);
            let is_field = is_value && is_visible(&step.name);
            let is_wanted = is_field && is_wanted.get(place).copied().unwrap_or(false);
            place += usize::from(is_field);
            pc = builder.step(steps, pc, is_wanted)?;
        }
        Some(Picker { moves: builder.moves, kinds: builder.kinds })
    }

    /// The chosen fields of an event of the picker's class, in their order: numbers, sign-extended, and where texts are.
    #[inline]
    pub fn pick(&self, picker: &Picker, values: &mut Vec<u64>) -> Result<(), Damage> {
        values.clear();
        let content = self.packet.content();
        let mut base = (self.found.body_at + 7) & !7;
        for step in &picker.moves {
            match *step {
                Move::Integer { offset_bits, bits, is_big, is_signed } => {
                    let raw = content.bits(base + offset_bits, bits, is_big)?;
                    let unused = 64 - bits;
                    values.push(if is_signed { ((raw << unused) as i64 >> unused) as u64 } else { raw });
                }
                Move::Text { offset_bits, n_bytes } => {
                    let text = content.text(base + offset_bits, n_bytes)?;
                    values.push(place_of(base + offset_bits, text));
                }
                Move::String { offset_bits, is_wanted } => {
                    let text = content.string(base + offset_bits)?;
                    if is_wanted {
                        values.push(place_of(base + offset_bits, text));
                    }
                    base += offset_bits + (text.len() as u64 + 1) * 8;
                }
            }
        }
        Ok(())
    }

    /// The bytes of a text that [`Event::pick`] found in this event.
    #[inline]
    pub fn picked_text(&self, value: u64) -> &[u8] {
        let (first, len) = ((value >> 32) as usize, value as u32 as usize);
        self.packet.content().bytes.get(first..first + len).unwrap_or_default()
    }
}

/// Packets of 4 GiB and more are refused, so that both fit into 32 bits.
#[inline]
fn place_of(at_bits: u64, text: &[u8]) -> u64 {
    (at_bits / 8) << 32 | text.len() as u64
}

impl Picker {
    /// Of the values, in their order.
    pub fn kinds(&self) -> &[PickedKind] {
        &self.kinds
    }
}

struct Builder {
    offset_bits: u64,
    moves: Vec<Move>,
    kinds: Vec<PickedKind>,
}

impl Builder {
    /// Gets past the value at `pc`; returns where the next one is.
    fn step(&mut self, steps: &[Step], pc: usize, is_wanted: bool) -> Option<usize> {
        let step = &steps[pc];
        // Also bits behind a header that does not end with a byte would be somewhere else.
        let is_aligned = step.align_bits == 8 || step.align_bits < 8 && matches!(step.kind, Kind::Align);
        if !is_aligned {
            return None;
        }
        let offset_bits = self.offset_bits;
        match step.kind {
            Kind::Align => {}
            Kind::Integer { bits, is_signed, is_big, .. } => {
                if is_wanted && step.is_reversed {
                    return None;
                }
                self.fixed(bits.into(), 1)?;
                if is_wanted {
                    self.moves.push(Move::Integer { offset_bits, bits, is_big, is_signed });
                    self.kinds.push(if is_signed { PickedKind::Signed } else { PickedKind::Unsigned });
                }
            }
            Kind::String => {
                self.moves.push(Move::String { offset_bits, is_wanted });
                self.kinds.extend(is_wanted.then_some(PickedKind::Text));
                self.offset_bits = 0;
            }
            Kind::Text { length: Count::Fixed(n_bytes) } => {
                self.fixed(8, n_bytes)?;
                if is_wanted {
                    self.moves.push(Move::Text { offset_bits, n_bytes });
                    self.kinds.push(PickedKind::Text);
                }
            }
            Kind::Enum { bits, .. }
            | Kind::Float { bits, .. }
            | Kind::Bool { bits, .. }
            | Kind::BitMap { bits, .. }
                if !is_wanted =>
            {
                self.fixed(bits.into(), 1)?;
            }
            Kind::Array { length: Count::Fixed(count), end } if !is_wanted => {
                let [element, last] = steps.get(pc + 1..end as usize)? else { return None };
                let (Kind::Integer { bits, .. }, Kind::ArrayEnd { .. }) = (&element.kind, &last.kind) else {
                    return None;
                };
                if element.align_bits != 8 {
                    return None;
                }
                self.fixed(u64::from(*bits), count)?;
                return Some(end as usize);
            }
            Kind::Enum { .. }
            | Kind::Float { .. }
            | Kind::Bool { .. }
            | Kind::BitMap { .. }
            | Kind::Text { .. }
            | Kind::Array { .. }
            | Kind::ArrayEnd { .. }
            | Kind::Struct
            | Kind::StructEnd
            | Kind::Variant { .. }
            | Kind::VariantEnd { .. }
            | Kind::Variable { .. }
            | Kind::Wide { .. }
            | Kind::Blob { .. }
            | Kind::Optional { .. }
            | Kind::OptionalEnd => return None,
        }
        Some(pc + 1)
    }

    /// So many values of whole bytes.
    fn fixed(&mut self, bits: u64, count: u64) -> Option<()> {
        if bits == 0 || !bits.is_multiple_of(8) {
            return None;
        }
        // Positions are added to without a check; no packet is as large.
        let end_bits = bits.checked_mul(count)?.checked_add(self.offset_bits)?;
        self.offset_bits = (end_bits < 1 << 40).then_some(end_bits)?;
        Some(())
    }
}

impl<'a> Content<'a> {
    /// An array of characters, up to its NUL.
    fn text(&self, at: u64, n_bytes: u64) -> Result<&'a [u8], Damage> {
        let bytes = self.run_of(at, n_bytes)?;
        Ok(find_nul(bytes).map_or(bytes, |nul| &bytes[..nul]))
    }
}
