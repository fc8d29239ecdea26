//! Parameters and results of functions of Go. A string, a slice, an interface or a small structure takes several registers, one
//! for each of its parts: they are told part by part.
//!
//! Where a parameter is when its function is entered stands in the debug information, register by register. What is said to be in
//! the frame may have come in registers and be copied there later, behind the entry: that is believed only where the registers
//! that are left cannot hold it. Where results are follows from the rules of Go's calls ("Go internal ABI specification").

use crate::find::Reader;
use crate::info::{At, DebugInfo};
use crate::place::{Register, expression_at};
use crate::types::Type;
use gimli::{AttributeValue, Operation, constants as dw};

/// Those that Go passes numbers and addresses in, as DWARF numbers them: rax, rbx, rcx, rdi, rsi, r8 to r11.
const NUMBERS: [u16; 9] = [0, 3, 2, 5, 4, 8, 9, 10, 11];
const FIRST_VECTOR: u16 = 17;
const N_VECTORS: usize = 15;
/// What a call leaves between the stack pointer and the arguments.
const RETURN_ADDRESS_BYTES: i64 = 8;
/// Structures in structures have an end, and nobody reads one with more parts.
const MAX_DEPTH: u32 = 16;
const MAX_VALUES: usize = 32;
const WORD: u64 = 8;

/// What a function of Go is given and returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoSignature {
    pub parameters: Vec<GoParameter>,
    pub results: Vec<GoParameter>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoParameter {
    /// Results without one are called `~r0`, `~r1`.
    pub name: String,
    /// As Go has it: `[]string`.
    pub written: String,
    /// Empty: it has parts that are not told one by one.
    pub values: Vec<GoValue>,
}

/// A parameter, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoValue {
    /// Which part: `X`, or `From_X` of a part of a part. Empty: it is the whole.
    pub part: String,
    pub kind: GoKind,
    /// When the function is entered, or where it is left. `None`: not known.
    pub place: Option<GoPlace>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoKind {
    /// A number, a truth value or an address.
    Word(Type),
    /// An address and, in the next value, its length.
    Text,
    /// An address and, in the next value, how many of these there are.
    Slice(Type),
    /// Of the text or the slice just before.
    Length,
    /// How much room a slice has.
    Room,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoPlace {
    Register(Register),
    Vector(u8),
    /// So many bytes above the stack pointer, where the function is entered.
    Stack(u32),
}

/// A part before it has a place.
struct Leaf {
    part: String,
    kind: GoKind,
    offset: u64,
    is_float: bool,
}

/// Where the information has a value.
enum Told {
    /// Piece by piece; `None`: nowhere.
    Pieces(Vec<Option<GoPlace>>),
    /// All of it in the frame, so far above where the arguments on the stack begin.
    Frame(i64),
    Unknown,
}

/// The parts of a type, and whether calls may have it in registers.
#[derive(Default)]
struct Parts {
    leaves: Vec<Leaf>,
    is_for_stack: bool,
    /// There are more, or some that are not understood.
    is_cut: bool,
}

impl Register {
    /// Which of the registers of Go's arguments it is.
    pub fn go_argument(self) -> Option<u8> {
        NUMBERS.iter().position(|number| Register::numbered(*number) == Some(self)).map(|index| index as u8)
    }
}

impl DebugInfo {
    /// Of the function of Go that begins at a link-time address. `None`: nobody says.
    pub fn go_signature(&self, address: u64) -> Option<GoSignature> {
        let at = self.function(address)?;
        let (mut parameters, mut results) = (Vec::new(), Vec::new());
        let mut n_taken = 0;
        let mut rules = Results::default();
        for parameter in self.children(&at, |tag| tag == dw::DW_TAG_formal_parameter) {
            // Of a function that was also put into others, a description that all of these share has the type.
            let flag = self.with(&parameter, |at| at.entry.attr_value(dw::DW_AT_variable_parameter));
            let is_result = matches!(flag, Some(AttributeValue::Flag(true)));
            let ty = self.with(&parameter, |at| self.follow(at, dw::DW_AT_type))?;
            let mut parts = Parts::default();
            self.go_parts(&ty, String::new(), 0, 0, &mut parts);
            let places = match is_result {
                true => rules.places(&parts),
                false => {
                    let told = self.go_told(&parameter, address);
                    let places = entry_places(&parts, &told, n_taken);
                    if let Told::Pieces(pieces) = &told {
                        n_taken += pieces.iter().filter(|p| matches!(p, Some(GoPlace::Register(_)))).count();
                    }
                    places
                }
            };
            let values = match parts.is_cut || places.len() != parts.leaves.len() {
                true => Vec::new(),
                false => parts
                    .leaves
                    .into_iter()
                    .zip(places)
                    .map(|(Leaf { part, kind, .. }, place)| GoValue { part, kind, place })
                    .collect(),
            };
            let name = self.name(&parameter).unwrap_or_default();
            let written = self.name(&ty).unwrap_or_else(|| "...".to_owned());
            let parameter = GoParameter { name, written, values };
            if is_result { results.push(parameter) } else { parameters.push(parameter) }
        }
        Some(GoSignature { parameters, results })
    }

    /// Where a parameter is when its function is entered.
    fn go_told(&self, parameter: &At, address: u64) -> Told {
        let Some(value) = parameter.entry.attr_value(dw::DW_AT_location) else { return Told::Unknown };
        let expression = match value {
            AttributeValue::Exprloc(expression) => Some(expression),
            other => {
                let list = self.files[parameter.part].dwarf.attr_locations(&parameter.unit, other);
                list.ok().flatten().and_then(|list| expression_at(list, address))
            }
        };
        expression.map_or(Told::Unknown, |expression| told(expression, parameter.unit.encoding()))
    }

    /// The parts of a type, in the order in which calls place them.
    fn go_parts(&self, ty: &At, part: String, offset: u64, depth: u32, parts: &mut Parts) {
        if depth > MAX_DEPTH || parts.leaves.len() >= MAX_VALUES {
            parts.is_cut = true;
            return;
        }
        let name = self.name(ty).unwrap_or_default();
        let mut leaf = |kind: GoKind, part: String, offset: u64, is_float: bool| {
            parts.leaves.push(Leaf { part, kind, offset, is_float });
        };
        match ty.entry.tag() {
            dw::DW_TAG_typedef => match self.follow(ty, dw::DW_AT_type) {
                Some(to) => self.go_parts(&to, part, offset, depth + 1, parts),
                None => parts.is_cut = true,
            },
            dw::DW_TAG_structure_type if name == "string" => {
                leaf(GoKind::Text, part.clone(), offset, false);
                leaf(GoKind::Length, part, offset + WORD, false);
            }
            dw::DW_TAG_structure_type if name.starts_with("[]") => {
                let is_member = |tag| tag == dw::DW_TAG_member;
                let first = self.children(ty, is_member).into_iter().next();
                let array = first.and_then(|member| self.follow(&member, dw::DW_AT_type));
                let of = match array.map(|array| self.type_of(&array, 0)) {
                    Some(Type::Pointer { to, .. }) => *to,
                    _ => Type::Other { size_bytes: 0 },
                };
                leaf(GoKind::Slice(of), part.clone(), offset, false);
                leaf(GoKind::Length, part.clone(), offset + WORD, false);
                leaf(GoKind::Room, part, offset + 2 * WORD, false);
            }
            dw::DW_TAG_structure_type => {
                for member in self.children(ty, |tag| tag == dw::DW_TAG_member) {
                    let own = self.name(&member).unwrap_or_default();
                    let at = self.number(&member, dw::DW_AT_data_member_location).unwrap_or(0);
                    let (Some(to), Some(at)) = (self.follow(&member, dw::DW_AT_type), offset.checked_add(at))
                    else {
                        parts.is_cut = true;
                        return;
                    };
                    let separator = if part.is_empty() || own.is_empty() { "" } else { "_" };
                    self.go_parts(&to, format!("{part}{separator}{own}"), at, depth + 1, parts);
                }
            }
            dw::DW_TAG_array_type => {
                let Type::Array { n, .. } = self.type_of(ty, 0) else {
                    parts.is_cut = true;
                    return;
                };
                match (n, self.follow(ty, dw::DW_AT_type)) {
                    (0, _) => {}
                    (1, Some(of)) => self.go_parts(&of, part, offset, depth + 1, parts),
                    _ => (parts.is_for_stack, parts.is_cut) = (true, true),
                }
            }
            dw::DW_TAG_subroutine_type | dw::DW_TAG_pointer_type => {
                let ty = match self.type_of(ty, 0) {
                    pointer @ Type::Pointer { .. } => pointer,
                    _ => Type::Pointer { to: Box::new(Type::Void), is_to_const: false },
                };
                leaf(GoKind::Word(ty), part, offset, false);
            }
            dw::DW_TAG_base_type => match self.type_of(ty, 0) {
                ty @ Type::Float { .. } => leaf(GoKind::Word(ty), part, offset, true),
                ty @ (Type::Int { .. } | Type::Bool | Type::Char) => {
                    leaf(GoKind::Word(ty), part, offset, false);
                }
                // Complex numbers.
                _ => parts.is_cut = true,
            },
            dw::DW_TAG_unspecified_type => {
                let to = Box::new(Type::Void);
                leaf(GoKind::Word(Type::Pointer { to, is_to_const: false }), part, offset, false);
            }
            _ => parts.is_cut = true,
        }
    }
}

fn told(expression: gimli::Expression<Reader>, encoding: gimli::Encoding) -> Told {
    let mut operations = expression.operations(encoding);
    let (mut pieces, mut last, mut frame, mut n_pieces) = (Vec::new(), None, None, 0);
    while let Ok(Some(operation)) = operations.next() {
        match operation {
            Operation::Register { register } => last = place_of(register.0),
            Operation::FrameOffset { offset } => frame = Some(offset),
            Operation::CallFrameCFA => frame = Some(0),
            Operation::Piece { .. } => {
                // What the frame is said to have of a value in pieces was copied there.
                pieces.push(last.take().filter(|_| frame.is_none()));
                n_pieces += 1;
            }
            _ => return Told::Unknown,
        }
        if n_pieces > MAX_VALUES {
            return Told::Unknown;
        }
    }
    match (n_pieces, last, frame) {
        (0, Some(place), None) => Told::Pieces(vec![Some(place)]),
        (0, None, Some(offset)) => Told::Frame(offset),
        (0, ..) => Told::Unknown,
        _ => Told::Pieces(pieces),
    }
}

fn place_of(number: u16) -> Option<GoPlace> {
    let vector = || number.checked_sub(FIRST_VECTOR).filter(|n| usize::from(*n) < N_VECTORS);
    match NUMBERS.contains(&number) {
        true => Register::numbered(number).map(GoPlace::Register),
        false => vector().map(|number| GoPlace::Vector(number as u8)),
    }
}

/// Of each part when the function is entered; as many as there are parts, else they are not known.
fn entry_places(parts: &Parts, told: &Told, n_taken: usize) -> Vec<Option<GoPlace>> {
    match told {
        Told::Pieces(pieces) => pieces.clone(),
        Told::Frame(offset) => {
            let n_numbers = parts.leaves.iter().filter(|leaf| !leaf.is_float).count();
            let has_no_room = n_numbers > NUMBERS.len().saturating_sub(n_taken);
            if !parts.is_for_stack && !has_no_room {
                return vec![None; parts.leaves.len()];
            }
            let place = |leaf: &Leaf| {
                let above = RETURN_ADDRESS_BYTES.checked_add(*offset)?.checked_add_unsigned(leaf.offset)?;
                u32::try_from(above).ok().filter(|above| i64::from(*above) >= RETURN_ADDRESS_BYTES)
            };
            parts.leaves.iter().map(|leaf| place(leaf).map(GoPlace::Stack)).collect()
        }
        Told::Unknown => vec![None; parts.leaves.len()],
    }
}

/// Hands out registers to results: each goes into registers as a whole, or not at all.
#[derive(Default)]
struct Results {
    n_numbers: usize,
    n_vectors: usize,
    /// A result that is not understood: nor is it known where those behind it are.
    is_lost: bool,
}

impl Results {
    fn places(&mut self, parts: &Parts) -> Vec<Option<GoPlace>> {
        self.is_lost |= parts.is_cut && !parts.is_for_stack;
        let nowhere = vec![None; parts.leaves.len()];
        if self.is_lost || parts.is_for_stack {
            return nowhere;
        }
        let (mut n_numbers, mut n_vectors) = (self.n_numbers, self.n_vectors);
        let mut places = Vec::new();
        for leaf in &parts.leaves {
            let place = match leaf.is_float {
                true if n_vectors < N_VECTORS => {
                    n_vectors += 1;
                    Some(GoPlace::Vector((n_vectors - 1) as u8))
                }
                false if n_numbers < NUMBERS.len() => {
                    n_numbers += 1;
                    Register::numbered(NUMBERS[n_numbers - 1]).map(GoPlace::Register)
                }
                _ => return nowhere,
            };
            places.push(place);
        }
        (self.n_numbers, self.n_vectors) = (n_numbers, n_vectors);
        places
    }
}
