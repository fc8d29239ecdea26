//! The events of a recording as the points that a script can name.

use crate::catalog::{is_name, is_spelled_out};
use crate::tracepoints::no_point;
use nopal_program::{Point, PointKind};
use nopal_script::catalog::{ArgType, Catalog, KnownArg, KnownPoint, NoPoint, PointSpec};
use nopal_sdt::pattern::{glob, nearest};
use nopal_trace::{EventClass, Length, Recording, Trace, Type};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The events of a recording as points. It does not say which file an event is of, so that a script's FILE is a name only.
#[derive(Debug)]
pub struct RecordingCatalog<'r> {
    recording: &'r Recording,
    /// The file that the script calls an event's, by full name of the event.
    files: RefCell<HashMap<String, String>>,
}

impl<'r> RecordingCatalog<'r> {
    pub fn new(recording: &'r Recording) -> RecordingCatalog<'r> {
        RecordingCatalog { recording, files: RefCell::default() }
    }

    /// FILE, PROVIDER and NAME, as a running program's catalog takes them apart.
    fn parts<'s>(&self, spec: &'s PointSpec) -> (Option<&'s str>, &'s str, &'s str) {
        match &spec.parts[..] {
            [file, provider, name] => (
                Some(file.as_str()).filter(|file| !file.is_empty()),
                if provider.is_empty() { "*" } else { provider },
                name,
            ),
            [first, name] if self.is_file(first) => (Some(first), "*", name),
            [first, name] => (None, first, name),
            [name] => (None, "*", name),
            _ => (None, "*", "*"),
        }
    }

    fn is_file(&self, text: &str) -> bool {
        let program = |trace: &'r Trace| Path::new(trace.env_text("program")?).file_name()?.to_str();
        text.contains('/')
            || text.contains(".so")
            || self.recording.traces().iter().filter_map(program).any(|program| program == text)
    }

    /// What the script's FILE makes of an event's name; two files cannot be told apart.
    fn check_file(&self, class: &EventClass, file: &str) -> Result<(), NoPoint> {
        let event = class.ty.full_name();
        let mut files = self.files.borrow_mut();
        let known = files.entry(event.clone()).or_insert_with(|| file.to_owned());
        if known == file
            || fs::canonicalize(&*known).is_ok_and(|a| fs::canonicalize(file).is_ok_and(|b| a == b))
        {
            return Ok(());
        }
        Err(no_point(
            format!(
                "a recording does not say which file `{event}` is of: `{known}` and `{file}` cannot be told apart"
            ),
            Some("name one of them, or run the script on the program itself".to_owned()),
        ))
    }
}

impl Catalog for RecordingCatalog<'_> {
    fn points(&self, spec: &PointSpec) -> Result<Vec<KnownPoint>, NoPoint> {
        if spec.kind != "usdt" {
            return Err(no_point(
                format!("a recording has no points of the kind `{}`", spec.kind),
                Some("its events are usdt:PROVIDER:NAME".to_owned()),
            ));
        }
        let (file, provider, name) = self.parts(spec);
        let file = file.filter(|file| is_spelled_out(file));
        let mut found: Vec<KnownPoint> = Vec::new();
        for class in self.recording.event_classes() {
            let ty = &class.ty;
            if !glob(provider, &ty.provider) || !is_name(name, &ty.name) {
                continue;
            }
            if let Some(file) = file {
                self.check_file(class, file)?;
            }
            let known = known_point(class, file);
            // Several streams declare the same event.
            if !found.iter().any(|k| k.point == known.point) {
                found.push(known);
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let all: Vec<String> =
            self.recording.event_classes().iter().map(|class| class.ty.full_name()).collect();
        let wanted = format!("{provider}:{name}");
        let hint = nearest(&wanted, all.iter().map(String::as_str));
        let hint = match hint {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`nopal view --stats DIR` shows what a recording has".to_owned(),
        };
        Err(no_point(format!("the recording has no event `{wanted}`"), Some(hint)))
    }
}

fn known_point(class: &EventClass, file: Option<&str>) -> KnownPoint {
    let (provider, name) = (class.ty.provider.clone(), class.ty.name.clone());
    let args = numbered(class)
        .into_iter()
        .map(|field| match field {
            Some((name, arg_type)) => KnownArg { name, arg_type },
            None => {
                KnownArg { name: String::new(), arg_type: ArgType::Int { size_bytes: 8, is_signed: false } }
            }
        })
        .collect();
    KnownPoint {
        point: Point {
            name: match file {
                Some(file) => format!("usdt:{file}:{provider}:{name}"),
                None => format!("usdt:{provider}:{name}"),
            },
            kind: PointKind::Usdt { path: String::new(), provider, name },
        },
        args,
        obstacle: None,
    }
}

/// Fields that people see, in their order.
fn visible(class: &EventClass) -> impl Iterator<Item = &nopal_trace::Field> {
    let fields = &class.ty.fields;
    let is_length = |name: &str| {
        fields.iter().any(|f| {
            matches!(&f.ty, Type::Array(array) if matches!(&array.length, Length::Field(path)
                if path.last().is_some_and(|last| last.trim_start_matches('_') == name.trim_start_matches('_'))))
        })
    };
    fields.iter().filter(move |field| !is_length(&field.name))
}

/// The fields by argument index: those called `argN` at N, the others in their order in the places left.
pub(super) fn numbered(class: &EventClass) -> Vec<Option<(String, ArgType)>> {
    let places = places(class);
    let n = places.iter().map(|place| place + 1).max().unwrap_or(0);
    let mut args = vec![None; n];
    for (field, place) in visible(class).zip(&places) {
        let is_numbered = number_of(&field.name) == Some(*place);
        let name = if is_numbered { String::new() } else { field.name.clone() };
        args[*place] = Some((name, arg_type(&field.ty)));
    }
    args
}

/// By visible field: its argument index.
pub(super) fn places(class: &EventClass) -> Vec<usize> {
    let taken: Vec<usize> = visible(class).filter_map(|field| number_of(&field.name)).collect();
    let mut next = 0;
    visible(class)
        .map(|field| {
            number_of(&field.name).unwrap_or_else(|| {
                while taken.contains(&next) {
                    next += 1;
                }
                next += 1;
                next - 1
            })
        })
        .collect()
}

/// Beyond that a name only looks like a number.
const MAX_ARGS: usize = 64;

fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix("arg")?.parse().ok().filter(|n| *n < MAX_ARGS)
}

fn arg_type(ty: &Type) -> ArgType {
    match ty {
        Type::Integer(integer) if integer.base == 16 && integer.bits == 64 => ArgType::Pointer,
        Type::Integer(integer) => ArgType::Int {
            size_bytes: integer.bits.div_ceil(8).next_power_of_two().min(8) as u8,
            is_signed: integer.is_signed,
        },
        Type::Float(_) => ArgType::Float,
        Type::String => ArgType::Str,
        Type::Enum(table) => ArgType::Enum {
            labels: table
                .labels
                .iter()
                .filter_map(|label| Some((i64::try_from(label.first).ok()?, label.text.clone())))
                .collect(),
        },
        Type::Array(array) => match &array.element {
            Type::Integer(integer) if integer.is_text => ArgType::Str,
            Type::Integer(integer) if integer.bits == 8 => ArgType::Bytes { length_arg: None },
            _ => ArgType::Int { size_bytes: 8, is_signed: false },
        },
        Type::Bool(_) => ArgType::Enum { labels: vec![(0, "false".to_owned()), (1, "true".to_owned())] },
        Type::Variable(variable) => match &variable.table {
            Some(table) => arg_type(&Type::Enum(table.clone())),
            None => ArgType::Int { size_bytes: 8, is_signed: variable.integer.is_signed },
        },
        Type::Wide(_) => ArgType::Str,
        Type::Blob(_) => ArgType::Bytes { length_arg: None },
        Type::Optional(optional) => arg_type(&optional.ty),
        Type::Struct(_) | Type::Variant(_) | Type::BitMap(_) => {
            ArgType::Int { size_bytes: 8, is_signed: false }
        }
    }
}
