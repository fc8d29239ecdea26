//! The probes of what is asked about: processes, a program, a recording.

use nopal_live::plan::{EventPlan, Limits, thread_context_names};
use nopal_proc::TargetError;
use nopal_run::catalog::LiveCatalog;
use nopal_sdt::probe::{PairRole, Probe};
use nopal_spans::{FieldKind, KnownField, KnownPair, KnownProbe, ProbeName};
use nopal_trace::{EventType, Recording, Type};
use std::path::Path;

/// The probes of processes with their descendants, and of a command that is yet to be started.
pub fn of_targets(
    pids: &[u32],
    program: Option<&Path>,
    given: &[nopal_provider::File],
) -> Result<Vec<KnownProbe>, TargetError> {
    let catalog = catalog(pids, program, given)?;
    Ok(catalog.probes().map(|probe| known(probe, given)).collect())
}

/// The files of processes with their descendants, and of a command that is yet to be started.
pub(crate) fn catalog(
    pids: &[u32],
    program: Option<&Path>,
    given: &[nopal_provider::File],
) -> Result<LiveCatalog, TargetError> {
    let mut catalog = LiveCatalog::new(given.to_vec());
    for pid in pids {
        catalog.add_process(*pid)?;
    }
    if let Some(program) = program {
        catalog.add_program(program);
    }
    Ok(catalog)
}

/// A probe of a file as answers know it, after it was described.
pub fn known(probe: &Probe, given: &[nopal_provider::File]) -> KnownProbe {
    let ty = EventPlan::new(probe, Limits::default()).event_type;
    let mut known = of_type(&ty);
    if let Some(pair) = probe.description.as_ref().and_then(|description| description.pair.as_ref()) {
        let is_declared = |provider: &nopal_provider::Provider| {
            provider.name == probe.provider && provider.probe(&probe.name).is_some_and(|p| p.pair.is_some())
        };
        let is_of_file = given.iter().flat_map(|file| &file.providers).any(is_declared)
            || nopal_sdt::describe::is_paired_by_catalog(&probe.provider, &probe.name);
        known.pair = Some(KnownPair {
            is_start: pair.role == PairRole::Start,
            partner: pair.partner.clone(),
            is_of_note: !is_of_file,
        });
    }
    known
}

/// Adds the fields that every probe has where the thread context of OpenTelemetry is read.
pub fn add_thread_context(probes: &mut [KnownProbe]) {
    for probe in probes {
        let names = thread_context_names(|name| probe.fields.iter().any(|field| field.name == name));
        let field = |name| KnownField { name, kind: FieldKind::Text, labels: Vec::new() };
        probe.fields.extend(names.map(field));
    }
}

pub fn of_recording(recording: &Recording) -> Vec<KnownProbe> {
    recording.event_classes().iter().map(|class| of_type(&class.ty)).collect()
}

pub(crate) fn of_type(ty: &EventType) -> KnownProbe {
    let fields = ty.fields.iter().filter(|field| !crate::event::is_length(&field.name));
    KnownProbe {
        name: ProbeName::new(&ty.provider, &ty.name),
        fields: fields.map(|field| known_field(&field.name, &field.ty)).collect(),
        pair: None,
    }
}

fn known_field(name: &str, ty: &Type) -> KnownField {
    let (kind, labels) = match ty {
        Type::Integer(_) | Type::Float(_) => (FieldKind::Number, Vec::new()),
        Type::String => (FieldKind::Text, Vec::new()),
        Type::Enum(table) => {
            let labels = table.labels.iter().map(|label| (label.text.clone(), label.first, label.last));
            (FieldKind::Label, labels.collect())
        }
        Type::Array(array) => match &array.element {
            Type::Integer(integer) if integer.is_text || integer.bits == 8 => (FieldKind::Text, Vec::new()),
            _ => (FieldKind::Other, Vec::new()),
        },
        Type::Bool(_) => (FieldKind::Label, vec![("false".to_owned(), 0, 0), ("true".to_owned(), 1, 1)]),
        Type::BitMap(_) => (FieldKind::Number, Vec::new()),
        Type::Variable(variable) => match &variable.table {
            Some(table) => return known_field(name, &Type::Enum(table.clone())),
            None => (FieldKind::Number, Vec::new()),
        },
        Type::Wide(_) | Type::Blob(_) => (FieldKind::Text, Vec::new()),
        Type::Optional(optional) => return known_field(name, &optional.ty),
        Type::Struct(_) | Type::Variant(_) => (FieldKind::Other, Vec::new()),
    };
    KnownField { name: name.to_owned(), kind, labels }
}
