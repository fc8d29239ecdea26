//! The list as scripts read it: an array of probes, each with its sites in all files.

use super::findings::Found;
use super::text::{brackets, operand_type};
use nopal_sdt::probe::{ArgDescription, Kind, PairRole, Probe, Site};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct ProbeJson<'a> {
    provider: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    doc: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<PairJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_uri: Option<&'a str>,
    /// What the probe says of its arguments, in their order: more than the operands of its sites can tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<FieldJson<'a>>,
    sites: Vec<SiteJson<'a>>,
}

#[derive(Serialize)]
struct PairJson<'a> {
    role: &'static str,
    partner: &'a str,
}

#[derive(Serialize)]
struct FieldJson<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_name: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    doc: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<LabelJson<'a>>,
    /// 16, say; 10 is not mentioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<u8>,
    #[serde(skip_serializing_if = "is_false")]
    is_big_endian: bool,
    /// For conditions only, no part of the recorded event.
    #[serde(skip_serializing_if = "is_false")]
    is_unwritten: bool,
}

#[derive(Serialize)]
struct LabelJson<'a> {
    first: i64,
    last: i64,
    text: &'a str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_false(fact: &bool) -> bool {
    !fact
}

#[derive(Serialize)]
struct SiteJson<'a> {
    file: String,
    address: u64,
    offset: u64,
    /// Its address; null without one.
    semaphore: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    semaphore_offset: Option<u64>,
    args: Vec<ArgJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Where the site is in the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_address: Option<u64>,
}

#[derive(Serialize)]
struct ArgJson<'a> {
    name: Option<&'a str>,
    #[serde(rename = "type")]
    type_name: String,
    operand: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    doc: &'a str,
    /// The name of the argument whose length in bytes this one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    length_of: Option<&'a str>,
    /// Why the operand cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

pub(super) fn render(all: &[Found]) -> String {
    let mut probes: BTreeMap<(&str, &str), ProbeJson<'_>> = BTreeMap::new();
    for found in all {
        for probe in &found.object.probes {
            let description = probe.description.as_ref();
            let entry = probes.entry((&probe.provider, &probe.name)).or_insert_with(|| ProbeJson {
                provider: &probe.provider,
                name: &probe.name,
                doc: description.map(|description| description.doc.as_str()).filter(|doc| !doc.is_empty()),
                pair: description.and_then(|description| description.pair.as_ref()).map(|pair| PairJson {
                    role: match pair.role {
                        PairRole::Start => "start",
                        PairRole::End => "end",
                    },
                    partner: &pair.partner,
                }),
                log_level: description.and_then(|description| description.log_level),
                model_uri: description.and_then(|description| description.model_uri.as_deref()),
                fields: description.iter().flat_map(|description| &description.args).map(field).collect(),
                sites: Vec::new(),
            });
            entry.sites.extend(probe.sites.iter().map(|site| site_json(found, probe, site)));
        }
    }
    let probes: Vec<_> = probes.into_values().collect();
    let mut text = serde_json::to_string_pretty(&probes).expect("strings, numbers and lists become JSON");
    text.push('\n');
    text
}

fn field(arg: &ArgDescription) -> FieldJson<'_> {
    FieldJson {
        name: &arg.name,
        type_name: format!("{}{}", arg.c_type, brackets(arg)),
        kind: match arg.kind {
            Kind::Unknown => "unknown",
            Kind::Signed => "signed",
            Kind::Unsigned => "unsigned",
            Kind::Pointer => "pointer",
            Kind::Bool => "bool",
            Kind::CString | Kind::Str => "string",
            Kind::Bytes => "bytes",
            Kind::Float => "float",
            Kind::Enum => "enum",
            Kind::Array | Kind::Sequence if arg.element.is_some_and(|e| e.kind == Kind::Char) => "text",
            Kind::Array => "array",
            Kind::Sequence => "sequence",
            Kind::Char => "char",
        },
        doc: &arg.doc,
        labels: arg
            .labels
            .iter()
            .map(|label| LabelJson { first: label.first, last: label.last, text: &label.text })
            .collect(),
        base: arg.base.filter(|base| *base != 10),
        is_big_endian: arg.is_big_endian,
        is_unwritten: arg.is_unwritten,
    }
}

fn site_json<'a>(found: &'a Found, probe: &'a Probe, site: &'a Site) -> SiteJson<'a> {
    SiteJson {
        file: found.path.to_string_lossy().into_owned(),
        address: site.address,
        offset: site.file_offset,
        semaphore: site.semaphore.map(|semaphore| semaphore.address),
        semaphore_offset: site.semaphore.map(|semaphore| semaphore.file_offset),
        args: (0..site.args.len()).map(|idx| arg_json(probe, site, idx)).collect(),
        pid: found.pid,
        memory_address: found.bias.map(|bias| site.address.wrapping_add(bias)),
    }
}

fn arg_json<'a>(probe: &'a Probe, site: &'a Site, idx: usize) -> ArgJson<'a> {
    let arg = &site.args[idx];
    let operand = u8::try_from(idx + 1).ok();
    let known = || probe.description.iter().flat_map(|description| &description.args);
    let description =
        known().find(|description| description.operand.is_some() && description.operand == operand);
    let measured = known()
        .find(|description| description.length_operand.is_some() && description.length_operand == operand);
    let machine_type = || arg.operand.as_ref().map_or_else(|_| "?".to_owned(), operand_type);
    ArgJson {
        name: description.map(|description| description.name.as_str()).filter(|name| !name.is_empty()),
        type_name: match description {
            Some(description) if !description.c_type.is_empty() => description.c_type.clone(),
            _ => machine_type(),
        },
        operand: &arg.text,
        doc: description.map_or("", |description| description.doc.as_str()),
        length_of: measured.map(|description| description.name.as_str()),
        error: arg.operand.as_ref().err().map(|error| error.reason.as_str()),
    }
}
