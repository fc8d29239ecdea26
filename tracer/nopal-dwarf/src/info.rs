//! Functions, types and records of one file's debug information.

use crate::abi::{Language, Records, Rules};
use crate::find::{self, Reader};
use crate::part::{COMMON, Part};
use crate::place::{Place, Told, text, told, told_at};
use crate::split;
use crate::types::{Label, Member, Record, RecordId, Type};
use gimli::{AttributeValue, DebugInfoOffset, UnitOffset, constants as dw};
use nopal_proc::Image;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

type Entry = gimli::DebuggingInformationEntry<Reader>;

/// A typedef of a typedef of a ... has an end.
const MAX_CHAIN: u32 = 64;
/// No function has more parameters, no record more members, no enum more labels that anybody reads.
const MAX_PARTS: usize = 4096;
/// Nor an array more dimensions.
const MAX_DIMENSIONS: usize = 8;
/// Clones whose parameters the compiler has changed.
const CHANGED: [&str; 3] = [".constprop", ".isra", ".part"];

/// What a function is given and returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub parameters: Vec<Parameter>,
    pub returns: Type,
    /// As its source has it: `const char *`.
    pub returned: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    /// As its source has it: `const char *`.
    pub written: String,
    pub ty: Type,
    /// When the function is entered.
    pub place: Place,
}

/// A part, and a unit of it.
type UnitAt = (usize, usize);
/// What describes the functions of a unit, by where each begins.
type Functions = HashMap<u64, UnitOffset>;

/// The debug information of a file.
#[derive(Debug)]
pub struct DebugInfo {
    /// The file's own, what it shares with others ([`COMMON`], empty if there is nothing), then the files it was split into.
    pub(crate) files: Vec<Part>,
    /// First and last address, and the part and the unit that describe what is there.
    ranges: OnceCell<Vec<(u64, u64, UnitAt)>>,
    functions: RefCell<HashMap<UnitAt, Rc<Functions>>>,
    records: OnceCell<HashMap<String, RecordId>>,
}

/// A place in the information.
#[derive(Debug, Clone)]
pub(crate) struct At {
    pub part: usize,
    pub unit: Rc<gimli::Unit<Reader>>,
    pub entry: Entry,
}

impl DebugInfo {
    /// Of a file: its own, or that of the debug file that belongs to it. `None`: there is none.
    pub fn of_file(path: &Path, image: &Image) -> Option<DebugInfo> {
        DebugInfo::of_file_or(path, image, &[])
    }

    /// The same, and debug files are looked for in these folders, too: absolute, or seen from where the file is.
    pub fn of_file_or(path: &Path, image: &Image, folders: &[PathBuf]) -> Option<DebugInfo> {
        let (found, dwarf) = find::load(path, image, folders)?;
        let mut info = DebugInfo::new(dwarf);
        info.files.extend(split::parts(&found, &info.files[0]));
        Some(info)
    }

    /// Of the sections with these names: `.debug_info`, `.debug_abbrev`...
    pub fn of_sections(section: impl Fn(&str) -> Vec<u8>) -> DebugInfo {
        let load = |id: gimli::SectionId| Reader::new(Arc::from(section(id.name())), gimli::LittleEndian);
        match gimli::Dwarf::load(|id| Ok::<_, std::convert::Infallible>(load(id))) {
            Ok(dwarf) => DebugInfo::new(dwarf),
            Err(never) => match never {},
        }
    }

    fn new(dwarf: gimli::Dwarf<Reader>) -> DebugInfo {
        let dwarf = Arc::new(dwarf);
        let empty = |_| Ok::<_, gimli::Error>(Reader::new(Arc::default(), gimli::LittleEndian));
        let common = dwarf.sup.clone().or_else(|| gimli::Dwarf::load(empty).ok().map(Arc::new));
        let files = std::iter::once(dwarf).chain(common).map(Part::new).collect();
        DebugInfo { files, ranges: OnceCell::new(), functions: RefCell::default(), records: OnceCell::new() }
    }

    /// Where functions begin that it tells of.
    pub fn starts(&self) -> Vec<u64> {
        let units =
            self.files.iter().flat_map(|part| (0..part.headers.len()).filter_map(|i| part.functions(i)));
        units.flat_map(HashMap::into_keys).collect()
    }

    /// Of the function that begins at a link-time address, by one of its names. `None`: nobody says.
    pub fn signature(&self, address: u64, symbol: &str) -> Option<Signature> {
        let at = self.function(address)?;
        let is_changed = CHANGED.iter().any(|part| symbol.contains(part));
        let (returns, returned) = self.typed(&at);
        let is_called_otherwise =
            self.number(&at, dw::DW_AT_calling_convention) == Some(u64::from(dw::DW_CC_nocall.0));
        let mut rules = Rules::new(self, at.language(self), &returns);
        let mut parameters = Vec::new();
        for parameter in self.children(&at, |tag| tag == dw::DW_TAG_formal_parameter) {
            let (ty, written) = self.typed(&parameter);
            let told = self.told(&parameter, address);
            let by_rules = rules.place(self, &ty, told);
            let place = match told {
                _ if is_called_otherwise => Place::Elsewhere,
                Some(Told::Place(place)) => place,
                Some(Told::ByRules) if !is_changed => by_rules,
                Some(Told::ByRules | Told::AddressByRules) | None => Place::Elsewhere,
            };
            let name = self.name(&parameter).unwrap_or_default();
            parameters.push(Parameter { name, written, ty, place });
        }
        Some(Signature { parameters, returns, returned })
    }

    /// The members of a record in their order. `None`: it is only declared, or damaged.
    pub fn members(&self, id: RecordId) -> Option<Vec<Member>> {
        let at = self.at(id.part, id.at)?;
        let is_member = |tag| tag == dw::DW_TAG_member || tag == dw::DW_TAG_inheritance;
        let members = self.children(&at, is_member).into_iter().filter_map(|member| self.member(&member));
        (!self.is_declared_only(&at)).then(|| members.collect())
    }

    /// By its name: `struct conn`, `union x`, or what a `typedef` calls one.
    pub fn record(&self, name: &str) -> Option<Record> {
        let id = *self.records.get_or_init(|| self.all_records()).get(name)?;
        match self.type_of(&self.at(id.part, id.at)?, 0) {
            Type::Record(record) => Some(record),
            _ => None,
        }
    }

    /// Whether nothing is to be done when it is copied or goes away.
    fn is_plain(&self, at: &At, id: RecordId) -> bool {
        let name = self.name(at).unwrap_or_default();
        let name = name.split('<').next().unwrap_or_default();
        let is_special = |function: &At| {
            self.name(function).is_some_and(|called| called.starts_with('~') || called == name)
        };
        !self.children(at, |tag| tag == dw::DW_TAG_subprogram).iter().any(is_special)
            && self.members(id).is_some_and(|members| {
                members.iter().all(|member| !matches!(member.ty, Type::Record(_) | Type::Other { .. }))
            })
    }

    // Finding entries.

    pub(crate) fn function(&self, address: u64) -> Option<At> {
        let ranges = self.ranges.get_or_init(|| self.all_ranges());
        let covering = ranges.iter().filter(|(first, last, _)| (*first..=*last).contains(&address));
        for (_, _, at @ (part, unit)) in covering {
            let own = &self.files[*part];
            let known = self.functions.borrow().get(at).cloned();
            let functions = known.unwrap_or_else(|| {
                let found = Rc::new(own.functions(*unit).unwrap_or_default());
                self.functions.borrow_mut().insert(*at, Rc::clone(&found));
                found
            });
            if let Some(offset) = functions.get(&address) {
                let unit = own.unit(*unit)?;
                let entry = unit.entry(*offset).ok()?;
                return Some(At { part: *part, unit, entry });
            }
        }
        None
    }

    /// What each unit describes; what of a file that was split into several stands in for another is that other's.
    fn all_ranges(&self) -> Vec<(u64, u64, UnitAt)> {
        let mut found = Vec::new();
        for (first, last, unit) in self.files[0].ranges() {
            let split = self.files.iter().position(|part| part.stands_in() == Some(unit));
            let part = split.unwrap_or(0);
            let units = if part == 0 { unit..unit + 1 } else { 0..self.files[part].headers.len() };
            found.extend(units.map(|unit| (first, last, (part, unit))));
        }
        found
    }

    /// The entry at an offset of a part.
    fn at(&self, part: usize, offset: usize) -> Option<At> {
        let own = self.files.get(part)?;
        let after = own.headers.partition_point(|header| header.offset().0 <= offset);
        let unit = own.unit(after.checked_sub(1)?)?;
        let within = DebugInfoOffset(offset).to_unit_offset(&unit.header)?;
        let entry = unit.entry(within).ok()?;
        Some(At { part, unit, entry })
    }

    pub(crate) fn follow(&self, from: &At, attribute: gimli::DwAt) -> Option<At> {
        match from.entry.attr_value(attribute)? {
            AttributeValue::UnitRef(offset) => {
                let entry = from.unit.entry(offset).ok()?;
                Some(At { part: from.part, unit: Rc::clone(&from.unit), entry })
            }
            AttributeValue::DebugInfoRef(offset) => self.at(from.part, offset.0),
            AttributeValue::DebugInfoRefSup(offset) => self.at(COMMON, offset.0),
            _ => None,
        }
    }

    /// An attribute of an entry, or of the one that it is a copy or the body of.
    pub(crate) fn with<T>(&self, at: &At, mut get: impl FnMut(&At) -> Option<T>) -> Option<T> {
        let mut at = at.clone();
        for _ in 0..MAX_CHAIN {
            if let Some(found) = get(&at) {
                return Some(found);
            }
            at = self
                .follow(&at, dw::DW_AT_abstract_origin)
                .or_else(|| self.follow(&at, dw::DW_AT_specification))?;
        }
        None
    }

    pub(crate) fn name(&self, at: &At) -> Option<String> {
        self.text_of(at, dw::DW_AT_name)
    }

    pub(crate) fn text_of(&self, at: &At, attribute: gimli::DwAt) -> Option<String> {
        self.with(at, |at| {
            let value = at.entry.attr_value(attribute)?;
            let dwarf = &self.files[at.part].dwarf;
            dwarf.attr_string(&at.unit, value).ok().map(|name| text(&name))
        })
    }

    pub(crate) fn number(&self, at: &At, attribute: gimli::DwAt) -> Option<u64> {
        self.with(at, |at| match at.entry.attr_value(attribute)? {
            AttributeValue::CallingConvention(convention) => Some(u64::from(convention.0)),
            AttributeValue::Encoding(encoding) => Some(u64::from(encoding.0)),
            AttributeValue::Language(language) => Some(u64::from(language.0)),
            other => other.udata_value(),
        })
    }

    pub(crate) fn children(&self, at: &At, is_wanted: impl Fn(gimli::DwTag) -> bool) -> Vec<At> {
        let mut found = Vec::new();
        if let Ok(mut tree) = at.unit.entries_tree(Some(at.entry.offset()))
            && let Ok(root) = tree.root()
        {
            let mut children = root.children();
            while let Ok(Some(child)) = children.next() {
                if is_wanted(child.entry().tag()) && found.len() < MAX_PARTS {
                    let (unit, entry) = (Rc::clone(&at.unit), child.entry().clone());
                    found.push(At { part: at.part, unit, entry });
                }
            }
        }
        found
    }

    fn told(&self, at: &At, address: u64) -> Option<Told> {
        let value = at.entry.attr_value(dw::DW_AT_location)?;
        let encoding = at.unit.encoding();
        if let AttributeValue::Exprloc(expression) = value {
            return Some(told(expression, encoding));
        }
        let dwarf = &self.files[at.part].dwarf;
        let list = dwarf.attr_locations(&at.unit, value).ok()??;
        Some(told_at(list, address, encoding))
    }

    // Types.

    /// The type of what an entry describes, and as its source has it.
    pub(crate) fn typed(&self, at: &At) -> (Type, String) {
        match self.with(at, |at| self.follow(at, dw::DW_AT_type)) {
            Some(ty) => (self.type_of(&ty, 0), self.written(&ty, 0)),
            None => (Type::Void, "void".to_owned()),
        }
    }

    pub(crate) fn type_of(&self, at: &At, n_chained: u32) -> Type {
        let size_bytes = self.number(at, dw::DW_AT_byte_size).unwrap_or(0);
        let small = |size_bytes: u64| u8::try_from(size_bytes).unwrap_or(0);
        if n_chained > MAX_CHAIN {
            return Type::Other { size_bytes };
        }
        let next = |at: &At| match self.follow(at, dw::DW_AT_type) {
            Some(ty) => self.type_of(&ty, n_chained + 1),
            None => Type::Void,
        };
        match at.entry.tag() {
            dw::DW_TAG_base_type => self.base_type(at, small(size_bytes)),
            dw::DW_TAG_typedef
            | dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_atomic_type => next(at),
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                // Records lead to each other: what a pointer leads to is named, not gone into.
                Type::Pointer { to: Box::new(next(at)), is_to_const: self.is_const(at) }
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                self.record_type(at, size_bytes)
            }
            dw::DW_TAG_enumeration_type => self.enum_type(at, small(size_bytes), n_chained),
            dw::DW_TAG_array_type => self.array_type(at, next(at)),
            _ => Type::Other { size_bytes },
        }
    }

    /// Whether what a pointer leads to is `const`, behind the names it has.
    fn is_const(&self, at: &At) -> bool {
        let mut at = self.follow(at, dw::DW_AT_type);
        for _ in 0..MAX_CHAIN {
            match at {
                Some(to) if to.entry.tag() == dw::DW_TAG_const_type => return true,
                Some(to) if matches!(to.entry.tag(), dw::DW_TAG_typedef | dw::DW_TAG_volatile_type) => {
                    at = self.follow(&to, dw::DW_AT_type);
                }
                _ => return false,
            }
        }
        false
    }

    fn base_type(&self, at: &At, size_bytes: u8) -> Type {
        let encoding =
            self.number(at, dw::DW_AT_encoding).and_then(|n| u8::try_from(n).ok()).map(gimli::DwAte);
        match encoding {
            Some(dw::DW_ATE_boolean) if size_bytes == 1 => Type::Bool,
            Some(dw::DW_ATE_float) => Type::Float { size_bytes },
            Some(dw::DW_ATE_signed_char | dw::DW_ATE_unsigned_char)
                if size_bytes == 1 && self.name(at).as_deref() == Some("char") =>
            {
                Type::Char
            }
            Some(dw::DW_ATE_signed | dw::DW_ATE_signed_char) => Type::Int { size_bytes, is_signed: true },
            Some(dw::DW_ATE_unsigned | dw::DW_ATE_unsigned_char | dw::DW_ATE_UTF | dw::DW_ATE_boolean) => {
                Type::Int { size_bytes, is_signed: false }
            }
            _ => Type::Other { size_bytes: u64::from(size_bytes) },
        }
    }

    fn record_type(&self, at: &At, size_bytes: u64) -> Type {
        let is_union = at.entry.tag() == dw::DW_TAG_union_type;
        let word = if is_union { "union" } else { "struct" };
        let Some(offset) = at.entry.offset().to_debug_info_offset(&at.unit.header) else {
            return Type::Other { size_bytes };
        };
        let mut id = RecordId { part: at.part, at: offset.0 };
        let name = match self.name(at) {
            Some(name) => format!("{word} {name}"),
            None if id.part == 0 => format!("{word} (number {:#x})", id.at),
            None => format!("{word} (number {:#x} of {})", id.at, id.part),
        };
        let mut size_bytes = size_bytes;
        // Another unit may have it whole.
        if self.is_declared_only(at)
            && let Some(whole) = self.records.get_or_init(|| self.all_records()).get(&name)
        {
            id = *whole;
            size_bytes = self
                .at(id.part, id.at)
                .and_then(|at| self.number(&at, dw::DW_AT_byte_size))
                .unwrap_or(size_bytes);
        }
        Type::Record(Record { id, name, size_bytes, is_union })
    }

    fn enum_type(&self, at: &At, size_bytes: u8, n_chained: u32) -> Type {
        let labels: Vec<Label> = self
            .children(at, |tag| tag == dw::DW_TAG_enumerator)
            .into_iter()
            .filter_map(|label| {
                let value = match label.entry.attr_value(dw::DW_AT_const_value)? {
                    AttributeValue::Udata(value) => value as i64,
                    other => other.sdata_value()?,
                };
                Some(Label { value, text: self.name(&label)? })
            })
            .collect();
        let under = self.follow(at, dw::DW_AT_type).map(|under| self.type_of(&under, n_chained + 1));
        let is_signed = match under {
            Some(Type::Int { is_signed, .. }) => is_signed,
            _ => labels.iter().any(|label| label.value < 0),
        };
        Type::Enum { size_bytes, is_signed, labels }
    }

    fn array_type(&self, at: &At, of: Type) -> Type {
        let ranges = self.children(at, |tag| tag == dw::DW_TAG_subrange_type);
        let dimensions = ranges.iter().map(|range| {
            let count = self.number(range, dw::DW_AT_count);
            count.or_else(|| self.number(range, dw::DW_AT_upper_bound)?.checked_add(1)).unwrap_or(0)
        });
        dimensions
            .take(MAX_DIMENSIONS)
            .rev()
            .fold(of, |of, n| Type::Array { of: Box::new(of), n: u32::try_from(n).unwrap_or(0) })
    }

    fn member(&self, at: &At) -> Option<Member> {
        let ty = self.type_of(&self.follow(at, dw::DW_AT_type)?, 0);
        let name = self.name(at).unwrap_or_default();
        let offset = self.number(at, dw::DW_AT_data_member_location).unwrap_or(0);
        let Some(n_bits) = self.number(at, dw::DW_AT_bit_size) else {
            return Some(Member { name, offset, ty, bits: None });
        };
        let unit_bits = ty.size_bytes().clamp(1, 8) * 8;
        let bit = match self.number(at, dw::DW_AT_data_bit_offset) {
            Some(bit) => bit,
            // Until DWARF 3 bits were counted from the highest.
            None => {
                let from_top = self.number(at, dw::DW_AT_bit_offset)?;
                offset.checked_mul(8)?.checked_add(unit_bits)?.checked_sub(from_top)?.checked_sub(n_bits)?
            }
        };
        // The unit of its type that it lies in, as a compiler reads it.
        let start = bit / unit_bits * unit_bits;
        let bits = (u8::try_from(bit - start).ok()?, u8::try_from(n_bits).ok()?);
        Some(Member { name, offset: start / 8, ty, bits: Some(bits) })
    }

    fn is_declared_only(&self, at: &At) -> bool {
        matches!(at.entry.attr_value(dw::DW_AT_declaration), Some(AttributeValue::Flag(true)))
    }

    /// As the source has it, near enough.
    pub(crate) fn written(&self, at: &At, n_chained: u32) -> String {
        let next = || match self.follow(at, dw::DW_AT_type) {
            Some(to) if n_chained < MAX_CHAIN => self.written(&to, n_chained + 1),
            Some(_) => "...".to_owned(),
            None => "void".to_owned(),
        };
        let star = |sign: &str| {
            let to = next();
            if to.ends_with('*') { format!("{to}{sign}") } else { format!("{to} {sign}") }
        };
        match at.entry.tag() {
            dw::DW_TAG_pointer_type => star("*"),
            dw::DW_TAG_reference_type => star("&"),
            dw::DW_TAG_rvalue_reference_type => star("&&"),
            dw::DW_TAG_const_type => {
                let of = next();
                if of.ends_with('*') { format!("{of} const") } else { format!("const {of}") }
            }
            dw::DW_TAG_volatile_type => format!("volatile {}", next()),
            dw::DW_TAG_restrict_type | dw::DW_TAG_atomic_type => next(),
            dw::DW_TAG_array_type => format!("{}[]", next()),
            dw::DW_TAG_subroutine_type => format!("{} (...)", next()),
            dw::DW_TAG_structure_type
            | dw::DW_TAG_class_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_enumeration_type => {
                let word = match at.entry.tag() {
                    dw::DW_TAG_union_type => "union",
                    dw::DW_TAG_enumeration_type => "enum",
                    _ => "struct",
                };
                let is_c = at.language(self) == Language::C;
                match self.name(at) {
                    Some(name) if is_c => format!("{word} {name}"),
                    Some(name) => name,
                    None => word.to_owned(),
                }
            }
            _ => self.name(at).unwrap_or_else(|| "...".to_owned()),
        }
    }

    /// All records that are described whole, and what a `typedef` calls those without a name.
    fn all_records(&self) -> HashMap<String, RecordId> {
        let mut found = HashMap::new();
        for (part, file) in self.files.iter().enumerate() {
            for index in 0..file.headers.len() {
                let Some(unit) = file.unit(index) else { continue };
                let mut entries = unit.entries();
                while let Ok(Some(entry)) = entries.next_dfs() {
                    let word = match entry.tag() {
                        dw::DW_TAG_structure_type | dw::DW_TAG_class_type => "struct ",
                        dw::DW_TAG_union_type => "union ",
                        dw::DW_TAG_typedef => "",
                        _ => continue,
                    };
                    let Some(value) = entry.attr_value(dw::DW_AT_name) else { continue };
                    let at = At { part, unit: Rc::clone(&unit), entry: entry.clone() };
                    let described = if word.is_empty() { self.follow(&at, dw::DW_AT_type) } else { Some(at) };
                    let is_record = |at: &At| {
                        matches!(
                            at.entry.tag(),
                            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type
                        ) && !self.is_declared_only(at)
                    };
                    let Some(described) = described.filter(is_record) else { continue };
                    let offset = described.entry.offset().to_debug_info_offset(&described.unit.header);
                    if let (Ok(name), Some(offset)) = (file.dwarf.attr_string(&unit, value), offset) {
                        let id = RecordId { part: described.part, at: offset.0 };
                        found.entry(format!("{word}{}", text(&name))).or_insert(id);
                    }
                }
            }
        }
        found
    }
}

impl Records for DebugInfo {
    fn members(&self, id: RecordId) -> Option<Vec<Member>> {
        DebugInfo::members(self, id)
    }

    fn is_passed_by_address(&self, id: RecordId, language: Language) -> Option<bool> {
        let at = self.at(id.part, id.at)?;
        let size_bytes = self.number(&at, dw::DW_AT_byte_size).unwrap_or(0);
        match language {
            Language::Rust if size_bytes > 16 => Some(true),
            Language::Rust => self.name(&at).is_some_and(|name| name.starts_with('&')).then_some(false),
            Language::C => Some(false),
            Language::Other => match self.number(&at, dw::DW_AT_calling_convention) {
                Some(n) if n == u64::from(dw::DW_CC_pass_by_reference.0) => Some(true),
                Some(n) if n == u64::from(dw::DW_CC_pass_by_value.0) => Some(false),
                // What is so large is returned in memory, and where it is given its place tells.
                _ if size_bytes > 16 => Some(true),
                _ => self.is_plain(&at, id).then_some(false),
            },
        }
    }
}

impl At {
    /// What is shared by several units does not say.
    fn language(&self, info: &DebugInfo) -> Language {
        let Ok(root) = self.unit.entry(self.unit.header.root_offset()) else { return Language::Other };
        let at = At { part: self.part, unit: Rc::clone(&self.unit), entry: root };
        let language = info.number(&at, dw::DW_AT_language).and_then(|n| u16::try_from(n).ok());
        match language.map(gimli::DwLang) {
            None => Language::C,
            Some(dw::DW_LANG_C | dw::DW_LANG_C89 | dw::DW_LANG_C99 | dw::DW_LANG_C11 | dw::DW_LANG_C17) => {
                Language::C
            }
            Some(dw::DW_LANG_Rust) => Language::Rust,
            Some(_) => Language::Other,
        }
    }
}
