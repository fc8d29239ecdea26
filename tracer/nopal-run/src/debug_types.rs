//! Parameters of functions and types of programs, as debug information has them, for scripts.

use super::source_lines::SourceLine;
use nopal_dwarf::{
    DebugInfo, GoKind, GoParameter, GoPlace, GoValue, NoLine, Parameter, Place as Where, RecordId, Type,
};
use nopal_proc::Image;
use nopal_proc::go::GoCode;
use nopal_proc::symbols::{FileSymbols, Function};
use nopal_program::Place;
use nopal_script::catalog::{ArgType, KnownArg};
use nopal_script::ctype::{CType, Member, Record};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How many registers scripts reach, as `arg0` to `arg5`.
const N_ARGUMENTS: usize = 6;

/// What was read so far, and what names in scripts stand for.
#[derive(Debug, Default)]
pub(crate) struct DebugTypes {
    files: RefCell<HashMap<PathBuf, Option<Rc<DebugFile>>>>,
    named: RefCell<HashMap<String, Named>>,
    /// Files whose functions a script names: as the targets call each, and a path that leads there from here.
    mentioned: RefCell<Vec<(PathBuf, PathBuf)>>,
    /// Where debug files are looked for besides the usual places.
    pub folders: Vec<PathBuf>,
}

#[derive(Debug)]
struct DebugFile {
    path: PathBuf,
    info: DebugInfo,
    symbols: FileSymbols,
    go: Option<GoCode>,
}

impl DebugFile {
    /// Go has rules of its own for where parameters are.
    fn is_go(&self, address: u64) -> bool {
        self.go.as_ref().is_some_and(|go| go.contains(address))
    }
}

/// The record a name stands for.
#[derive(Debug, Clone)]
struct Named {
    file: Rc<DebugFile>,
    id: RecordId,
    size_bytes: u64,
}

impl DebugTypes {
    /// The parameters of a function in their order. `reachable`: a path that leads to the file from here.
    pub(crate) fn parameters(&self, path: &Path, reachable: &Path, place: &Place) -> Vec<KnownArg> {
        let Some(file) = self.file(path, reachable) else { return Vec::new() };
        let found = match place {
            Place::Symbol { name, offset: 0 } => file.symbols.named(name),
            // Further on registers have other values.
            Place::Symbol { .. } => Vec::new(),
            Place::Address(address) => {
                file.symbols.at(*address).filter(|f| f.address == *address).into_iter().collect()
            }
        };
        let parameters = |function: &Function<'_>| {
            if file.is_go(function.address) {
                let signature = file.info.go_signature(function.address)?;
                return Some(
                    signature.parameters.iter().flat_map(|one| self.known_of_go(&file, one)).collect(),
                );
            }
            let signature = file.info.signature(function.address, function.name)?;
            Some(signature.parameters.iter().map(|one| self.known(&file, one)).collect::<Vec<_>>())
        };
        let mut all = found.iter().map(parameters);
        let first = all.next().flatten().unwrap_or_default();
        if all.all(|other| other.as_ref() == Some(&first)) {
            return first;
        }
        // A script means all functions of a name.
        let why = "the file has several functions of that name, which differ";
        let absent = |arg: KnownArg| KnownArg { arg_type: ArgType::Absent { why: why.to_owned() }, ..arg };
        first.into_iter().map(absent).collect()
    }

    /// The parameters of a function as its source declares them, written as bpftrace does: `char* name`.
    pub(crate) fn written(&self, path: &Path, reachable: &Path, place: &Place) -> Vec<String> {
        let (Some(file), Place::Symbol { name, offset: 0 }) = (self.file(path, reachable), place) else {
            return Vec::new();
        };
        let functions = file.symbols.named(name);
        let Some(function) = functions.first() else { return Vec::new() };
        if file.is_go(function.address) {
            let signature = file.info.go_signature(function.address);
            let shown = |one: &GoParameter| format!("{} {}", one.written, one.name);
            return signature.iter().flat_map(|signature| signature.parameters.iter().map(shown)).collect();
        }
        let signature = file.info.signature(function.address, function.name);
        let shown = |one: &Parameter| format!("{} {}", one.written.replace(" *", "*"), one.name);
        signature.map(|signature| signature.parameters.iter().map(shown).collect()).unwrap_or_default()
    }

    /// Where a line of a source begins. `Err(None)`: the file has no debug information.
    pub(crate) fn line_address(
        &self,
        path: &Path,
        reachable: &Path,
        line: &SourceLine<'_>,
    ) -> Result<u64, Option<NoLine>> {
        let file = self.file(path, reachable).ok_or(None)?;
        file.info.line_address(line.source, line.line, line.column).map_err(Some)
    }

    /// Where a function was put into others.
    pub(crate) fn inlined(&self, path: &Path, reachable: &Path, name: &str) -> Vec<u64> {
        self.file(path, reachable).map(|file| file.info.inlined(name)).unwrap_or_default()
    }

    /// A record by the name that a script has for it.
    pub(crate) fn record(&self, name: &str) -> Option<Record> {
        let known = self.named.borrow().get(name).cloned();
        let Named { file, id, size_bytes } = known.or_else(|| self.by_name(name))?;
        let members = file.info.members(id)?.into_iter().filter_map(|member| {
            Some(Member {
                name: member.name,
                offset: u32::try_from(member.offset).ok()?,
                value_type: self.c_type(&file, &member.ty),
                bits: member.bits,
            })
        });
        let members = members.collect();
        Some(Record { size_bytes: u32::try_from(size_bytes).ok()?, align_bytes: 8, members })
    }

    /// One that a script casts to, in the files whose functions it names.
    fn by_name(&self, name: &str) -> Option<Named> {
        let mentioned = self.mentioned.borrow();
        mentioned.iter().find_map(|(path, reachable)| {
            let file = self.file(path, reachable)?;
            let record = file.info.record(name)?;
            Some(Named { id: record.id, size_bytes: record.size_bytes, file })
        })
    }

    fn file(&self, path: &Path, reachable: &Path) -> Option<Rc<DebugFile>> {
        let read = || {
            let image = Image::open(reachable).ok()?;
            let info = DebugInfo::of_file_or(path, &image, &self.folders)?;
            let symbols = FileSymbols::read(image.bytes());
            let go = GoCode::read(image.bytes(), &symbols);
            Some(Rc::new(DebugFile { path: path.to_owned(), info, symbols, go }))
        };
        self.files.borrow_mut().entry(path.to_owned()).or_insert_with(read).clone()
    }

    /// A script names functions of this file: its casts may be to types of it.
    pub(crate) fn mention(&self, path: &Path, reachable: &Path) {
        let mut mentioned = self.mentioned.borrow_mut();
        if !mentioned.iter().any(|(known, _)| known == path) {
            mentioned.push((path.to_owned(), reachable.to_owned()));
        }
    }

    fn known(&self, file: &Rc<DebugFile>, parameter: &Parameter) -> KnownArg {
        let absent = |why: &str| ArgType::Absent { why: why.to_owned() };
        let number = match parameter.place {
            Where::Register(register) => register.argument(),
            Where::Vector(_) | Where::Elsewhere => None,
        };
        let arg_type = match (number, &parameter.ty) {
            (_, Type::Float { .. }) => absent("floating-point numbers of functions are not read"),
            (_, Type::Record(_) | Type::Array { .. } | Type::Other { .. }) => {
                absent("it is passed as a whole")
            }
            (None, _) => absent("where the function is entered it is in no register"),
            (Some(number), ty) => {
                let labels = match ty {
                    Type::Enum { labels, .. } => {
                        labels.iter().map(|label| (label.value, label.text.clone())).collect()
                    }
                    _ => Vec::new(),
                };
                ArgType::InRegister { number, value: self.c_type(file, ty), labels }
            }
        };
        KnownArg { name: parameter.name.clone(), arg_type }
    }

    /// A parameter of a function of Go, part by part: a structure `p` has its parts as `p_X`.
    fn known_of_go(&self, file: &Rc<DebugFile>, parameter: &GoParameter) -> Vec<KnownArg> {
        let absent = |why: &str| ArgType::Absent { why: why.to_owned() };
        let number = |value: &GoValue| match value.place {
            Some(GoPlace::Register(register)) => {
                register.go_argument().filter(|number| usize::from(*number) < N_ARGUMENTS)
            }
            Some(GoPlace::Vector(_) | GoPlace::Stack(_)) | None => None,
        };
        let mut known = Vec::new();
        if parameter.values.is_empty() {
            let arg_type = absent("it is passed as a whole");
            known.push(KnownArg { name: parameter.name.clone(), arg_type });
        }
        let mut rest = parameter.values.as_slice();
        while let Some((value, behind)) = rest.split_first() {
            rest = behind;
            let separator = if value.part.is_empty() { "" } else { "_" };
            let name = format!("{}{separator}{}", parameter.name, value.part);
            let in_register = |value_type: CType| match number(value) {
                Some(number) => ArgType::InRegister { number, value: value_type, labels: Vec::new() },
                None => absent(
                    "where the function is entered it is in none of the registers of arg0 to arg5; events of `function:` may have it",
                ),
            };
            let word = CType::Int { size_bytes: 8, is_signed: true };
            let (name, arg_type) = match &value.kind {
                GoKind::Word(Type::Float { .. }) => {
                    (name, absent("floating-point numbers of functions are not read"))
                }
                GoKind::Word(ty) => (name, in_register(self.c_type(file, ty))),
                GoKind::Text => match (number(value), behind.first().and_then(number)) {
                    (Some(number), Some(length)) => (name, ArgType::TextInRegisters { number, length }),
                    _ => (name, in_register(CType::Void.pointer())),
                },
                GoKind::Slice(of) => (name, in_register(self.c_type(file, of).pointer())),
                GoKind::Length => (format!("{name}_len"), in_register(word)),
                GoKind::Room => (format!("{name}_cap"), in_register(word)),
            };
            known.push(KnownArg { name, arg_type });
        }
        known
    }

    fn c_type(&self, file: &Rc<DebugFile>, ty: &Type) -> CType {
        let sized = |size_bytes: u8, is_signed: bool| match size_bytes {
            1 | 2 | 4 | 8 => CType::Int { size_bytes, is_signed },
            other => bytes(u64::from(other)),
        };
        match ty {
            Type::Void => CType::Void,
            Type::Int { size_bytes, is_signed } | Type::Enum { size_bytes, is_signed, .. } => {
                sized(*size_bytes, *is_signed)
            }
            Type::Bool => CType::Bool,
            Type::Char => CType::Char,
            Type::Float { size_bytes: 8 } => CType::Float,
            Type::Float { size_bytes } => bytes(u64::from(*size_bytes)),
            Type::Pointer { to, .. } => self.c_type(file, to).pointer(),
            Type::Array { of, n } => CType::Array(Box::new(self.c_type(file, of)), *n),
            Type::Record(record) => {
                let named = Named { file: Rc::clone(file), id: record.id, size_bytes: record.size_bytes };
                CType::Record(self.name(&record.name, named))
            }
            Type::Other { size_bytes: 0 } => CType::Void,
            Type::Other { size_bytes } => bytes(*size_bytes),
        }
    }

    /// Records of two files may have one name.
    fn name(&self, name: &str, record: Named) -> String {
        let mut named = self.named.borrow_mut();
        let is_same = |other: &Named| {
            Rc::ptr_eq(&other.file, &record.file)
                && (other.id == record.id || other.size_bytes == record.size_bytes || record.size_bytes == 0)
        };
        match named.get(name) {
            Some(other) if is_same(other) => name.to_owned(),
            Some(_) => {
                let longer =
                    format!("{name} of {} ({} bytes)", record.file.path.display(), record.size_bytes);
                named.insert(longer.clone(), record);
                longer
            }
            None => {
                named.insert(name.to_owned(), record);
                name.to_owned()
            }
        }
    }
}

/// What has no type here is so many bytes.
fn bytes(size_bytes: u64) -> CType {
    let byte = CType::Int { size_bytes: 1, is_signed: false };
    CType::Array(Box::new(byte), u32::try_from(size_bytes).unwrap_or(0))
}
