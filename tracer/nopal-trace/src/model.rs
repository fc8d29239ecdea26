//! What a recording can say: event types, their fields, and the types of values. Shared by the writer, which prints
//! it as metadata, and by the reader, which gets it from metadata, be it CTF 1.8 or CTF 2. Holds no bytes of events.

use crate::location::Location;
use crate::role::Roles;
use std::sync::Arc;

/// An event type: `provider:name` with its fields in the order in which their bytes lie.
#[derive(Debug, Clone, PartialEq)]
pub struct EventType {
    pub provider: String,
    pub name: String,
    pub fields: Vec<Field>,
    /// As LTTng counts them: 0 emergency to 14 debug.
    pub log_level: Option<i64>,
    pub model_uri: Option<String>,
}

/// A named value.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// As people see it.
    pub name: String,
    /// As the metadata has it: with a leading underscore, so that it is never a keyword.
    pub(crate) raw: String,
    pub ty: Type,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    Integer(Integer),
    Float(Float),
    /// Ends at its NUL.
    String,
    Enum(Arc<Enum>),
    Struct(Arc<Struct>),
    Array(Arc<Array>),
    Variant(Arc<Variant>),
    // Of CTF 2 only, and only read:
    /// True if any of its bits is set.
    Bool(Bits),
    /// Bits that are not a number, some of which may have names.
    BitMap(Arc<BitMap>),
    /// A number in as many bytes as it needs (LEB128).
    Variable(Arc<Variable>),
    /// Text in UTF-16 or UTF-32.
    Wide(Arc<Wide>),
    Blob(Arc<Blob>),
    Optional(Arc<Optional>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteOrder {
    Little,
    Big,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Integer {
    /// 1 to 64.
    pub bits: u32,
    /// A power of two.
    pub align_bits: u32,
    pub is_signed: bool,
    /// How it is printed: 2, 8, 10 or 16.
    pub base: u8,
    /// `None`: that of the recording.
    pub order: Option<ByteOrder>,
    /// An array of these is text.
    pub is_text: bool,
    /// The clock whose value it holds.
    pub(crate) clock: Option<Arc<str>>,
    /// Its first bit is where its last would be.
    pub(crate) is_reversed: bool,
    /// As CTF 2 declares them; `None` if names tell, as in CTF 1.8.
    pub(crate) roles: Option<Roles>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Float {
    /// 16, 32 or 64.
    pub bits: u32,
    pub align_bits: u32,
    pub order: Option<ByteOrder>,
    /// Its first bit is where its last would be.
    pub is_reversed: bool,
}

/// Where the bits of a value lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// 1 to 64.
    pub bits: u32,
    pub align_bits: u32,
    pub order: ByteOrder,
    pub(crate) is_reversed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BitMap {
    pub bits: Bits,
    /// By name; none for a plain array of bits.
    pub flags: Vec<Flag>,
}

/// A name for some bits, of which any makes it active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    pub name: String,
    pub mask: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// With 64 bits.
    pub integer: Integer,
    /// Names of values, if some have any.
    pub table: Option<Arc<Enum>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Wide {
    pub encoding: Encoding,
    /// In bytes; `None`: up to its NUL.
    pub length: Option<Length>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Utf16(ByteOrder),
    Utf32(ByteOrder),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Blob {
    /// In bytes.
    pub length: Length,
    pub media_type: String,
    pub(crate) roles: Roles,
}

/// A value that is there or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Optional {
    pub ty: Type,
    pub(crate) selector: Location,
    /// It is there if the selector is in one of these; `None`: if the selector is true.
    pub(crate) ranges: Option<Vec<Span>>,
    pub(crate) depth: u32,
}

/// Integers from the first to the last.
pub(crate) type Span = (i128, i128);

#[derive(Debug, Clone, PartialEq)]
pub struct Enum {
    pub integer: Integer,
    pub labels: Vec<Label>,
    /// Several labels of one value are shown in braces, as babeltrace2 shows those of CTF 2.
    pub(crate) has_braces: bool,
}

/// One row of an enum's table; ranges may overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub text: String,
    pub first: i128,
    pub last: i128,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Struct {
    pub fields: Vec<Field>,
    /// The largest of its own and its fields'.
    pub align_bits: u32,
    pub(crate) depth: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub element: Type,
    pub length: Length,
    /// The larger of its own and its elements'.
    pub(crate) align_bits: u32,
    pub(crate) depth: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Length {
    Fixed(u64),
    /// Path of the integer that holds it, as the metadata spells it.
    Field(Vec<String>),
    /// The same in CTF 2.
    Located(Location),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    pub(crate) tag: Tag,
    pub options: Vec<Field>,
    pub(crate) depth: u32,
}

/// What says which option a variant is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tag {
    /// Path of an enum with the names of the options.
    Label(Vec<String>),
    /// An integer, and for each option the values that stand for it.
    Ranges(Location, Vec<Vec<Span>>),
}

impl EventType {
    pub fn new(provider: impl Into<String>, name: impl Into<String>) -> Self {
        EventType {
            provider: provider.into(),
            name: name.into(),
            fields: Vec::new(),
            log_level: None,
            model_uri: None,
        }
    }

    /// Adds a field. A sequence brings its length field `_NAME_length` (32 bits, as LTTng does it) along.
    pub fn field(mut self, name: &str, ty: impl Into<FieldType>) -> Self {
        push_field(&mut self.fields, name, ty.into());
        self
    }

    pub fn log_level(mut self, level: i64) -> Self {
        self.log_level = Some(level);
        self
    }

    /// `provider:name`, or the name alone if there is no provider.
    pub fn full_name(&self) -> String {
        if self.provider.is_empty() { self.name.clone() } else { format!("{}:{}", self.provider, self.name) }
    }
}

/// Appends a field to a list, with its length field if it is a sequence.
pub fn push_field(fields: &mut Vec<Field>, name: &str, ty: FieldType) {
    match ty {
        FieldType::One(ty) => fields.push(Field::new(name, ty)),
        FieldType::Sequence(element) => {
            let length = Field::new(&format!("_{name}_length"), Type::unsigned(32));
            let array = Type::array_of(element, Length::Field(vec![length.raw.clone()]));
            fields.push(length);
            fields.push(Field::new(name, array));
        }
    }
}

/// What [`EventType::field`] takes: a type, or a sequence of one.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldType {
    One(Type),
    Sequence(Type),
}

impl From<Type> for FieldType {
    fn from(ty: Type) -> Self {
        FieldType::One(ty)
    }
}

impl Field {
    /// Characters that TSDL has no place for in a name become underscores.
    pub fn new(name: &str, ty: Type) -> Self {
        let name: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        Field { raw: format!("_{name}"), name, ty }
    }

    /// A field whose name is that of the metadata, as in CTF 2.
    pub(crate) fn exact(name: String, ty: Type) -> Self {
        Field { raw: name.clone(), name, ty }
    }

    pub(crate) fn from_raw(raw: String, ty: Type) -> Self {
        let name = raw.strip_prefix('_').unwrap_or(&raw).to_owned();
        Field { name, raw, ty }
    }
}

impl Integer {
    pub fn new(bits: u32, is_signed: bool) -> Self {
        Integer {
            bits,
            align_bits: 8,
            is_signed,
            base: 10,
            order: None,
            is_text: false,
            clock: None,
            is_reversed: false,
            roles: None,
        }
    }

    /// Printed in base 2, 8, 10 or 16.
    pub fn base(self, base: u8) -> Self {
        Integer { base, ..self }
    }

    pub fn order(self, order: ByteOrder) -> Self {
        Integer { order: Some(order), ..self }
    }

    /// An array of these is text.
    pub fn text(self) -> Self {
        Integer { is_text: true, ..self }
    }
}

impl Type {
    pub fn unsigned(bits: u32) -> Type {
        Type::Integer(Integer::new(bits, false))
    }

    pub fn signed(bits: u32) -> Type {
        Type::Integer(Integer::new(bits, true))
    }

    /// Unsigned, printed in hexadecimal: addresses, flags.
    pub fn hex(bits: u32) -> Type {
        Type::Integer(Integer { base: 16, ..Integer::new(bits, false) })
    }

    /// One byte, 0 or 1, printed as `false` or `true`.
    pub fn bool() -> Type {
        Type::enumeration(Integer::new(8, false), [("false", 0, 0), ("true", 1, 1)])
    }

    pub fn float(bits: u32) -> Type {
        Type::Float(Float { bits, align_bits: 8, order: None, is_reversed: false })
    }

    pub fn enumeration<'a>(
        integer: Integer,
        labels: impl IntoIterator<Item = (&'a str, i128, i128)>,
    ) -> Type {
        let labels = labels
            .into_iter()
            .map(|(text, first, last)| Label { text: text.to_owned(), first, last })
            .collect();
        Type::Enum(Arc::new(Enum { integer, labels, has_braces: false }))
    }

    pub fn array(element: Type, count: u64) -> Type {
        Type::array_of(element, Length::Fixed(count))
    }

    /// Text of at most `count` bytes in a fixed place, ending at its first NUL if it has one.
    pub fn text(count: u64) -> Type {
        Type::array(Type::Integer(Integer { is_text: true, ..Integer::new(8, true) }), count)
    }

    pub fn structure(fields: Vec<Field>) -> Type {
        Type::struct_of(fields, 8)
    }

    pub(crate) fn struct_of(fields: Vec<Field>, align_bits: u32) -> Type {
        let align_bits = fields.iter().map(|f| f.ty.align_bits()).max().unwrap_or(1).max(align_bits);
        let depth = deepest(&fields) + 1;
        Type::Struct(Arc::new(Struct { fields, align_bits, depth }))
    }

    pub(crate) fn variant_of(tag: Tag, options: Vec<Field>) -> Type {
        let depth = deepest(&options) + 1;
        Type::Variant(Arc::new(Variant { tag, options, depth }))
    }

    pub(crate) fn array_of(element: Type, length: Length) -> Type {
        Type::aligned_array(element, length, 1)
    }

    pub(crate) fn aligned_array(element: Type, length: Length, align_bits: u32) -> Type {
        let (depth, align_bits) = (element.depth() + 1, element.align_bits().max(align_bits));
        Type::Array(Arc::new(Array { element, length, align_bits, depth }))
    }

    pub(crate) fn optional_of(ty: Type, selector: Location, ranges: Option<Vec<Span>>) -> Type {
        let depth = ty.depth() + 1;
        Type::Optional(Arc::new(Optional { ty, selector, ranges, depth }))
    }

    /// Types within types. Kept, not counted: a type that names another twice would be walked twice as often per level.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Type::Integer(_) | Type::Float(_) | Type::String | Type::Enum(_) => 0,
            Type::Bool(_) | Type::BitMap(_) | Type::Variable(_) | Type::Wide(_) | Type::Blob(_) => 0,
            Type::Struct(s) => s.depth,
            Type::Array(a) => a.depth,
            Type::Variant(v) => v.depth,
            Type::Optional(o) => o.depth,
        }
    }

    /// As many elements as a 32-bit length in front of them says.
    pub fn sequence(element: Type) -> FieldType {
        FieldType::Sequence(element)
    }

    /// A byte string: a sequence of bytes printed in hexadecimal.
    pub fn bytes() -> FieldType {
        FieldType::Sequence(Type::hex(8))
    }

    pub(crate) fn align_bits(&self) -> u32 {
        match self {
            Type::Integer(i) => i.align_bits,
            Type::Float(f) => f.align_bits,
            Type::String | Type::Variable(_) | Type::Wide(_) | Type::Blob(_) => 8,
            Type::Enum(e) => e.integer.align_bits,
            Type::Bool(b) => b.align_bits,
            Type::BitMap(b) => b.bits.align_bits,
            Type::Struct(s) => s.align_bits,
            Type::Array(a) => a.align_bits,
            // These have the alignment of what they turn out to be.
            Type::Variant(_) | Type::Optional(_) => 1,
        }
    }
}

impl Enum {
    /// The texts of all rows that hold `value`, in the order of the table.
    pub fn labels_of(&self, value: i128) -> impl Iterator<Item = &str> {
        self.labels.iter().filter(move |l| l.first <= value && value <= l.last).map(|l| l.text.as_str())
    }

    /// Whether this is what [`Type::bool`] makes.
    pub fn is_bool(&self) -> bool {
        let row = |at: usize, text: &str, value: i128| {
            self.labels.get(at).is_some_and(|l| l.text == text && l.first == value && l.last == value)
        };
        self.labels.len() == 2 && row(0, "false", 0) && row(1, "true", 1)
    }
}

impl BitMap {
    /// The names of which any bit is set in `raw`.
    pub fn active(&self, raw: u64) -> impl Iterator<Item = &str> {
        self.flags.iter().filter(move |flag| flag.mask & raw != 0).map(|flag| flag.name.as_str())
    }
}

fn deepest(fields: &[Field]) -> u32 {
    fields.iter().map(|f| f.ty.depth()).max().unwrap_or(0)
}

/// A raw integer as a number: sign-extended values are negative only if the type is signed.
pub fn number(raw: u64, is_signed: bool) -> i128 {
    if is_signed { i128::from(raw as i64) } else { i128::from(raw) }
}
