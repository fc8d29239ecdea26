//! The arguments of static probes, as their notes and declarations have them.

use super::site;
use nopal_script::catalog::{ArgType, KnownArg};
use nopal_sdt::probe::{Kind, Probe};

/// The arguments that a `.d` file or the catalog has for a probe.
pub(super) fn declared_args(
    provider: &str,
    name: &str,
    given: &[nopal_provider::File],
) -> Option<Vec<KnownArg>> {
    let (provider, name) = (provider.to_owned(), name.to_owned());
    let mut probe = Probe { provider, name, sites: Vec::new(), description: None };
    nopal_sdt::describe(std::slice::from_mut(&mut probe), given);
    probe.description.is_some().then(|| known_args(&probe))
}

/// The length of a text that is an address and a length, as C programs would call it: `keylen` of `key`.
fn length_name(probe: &Probe, index: u8) -> Option<String> {
    let args = &probe.description.as_ref()?.args;
    let text = args.iter().find(|arg| arg.length_operand == Some(index + 1))?;
    let name = format!("{}len", text.name);
    (!text.name.is_empty() && !args.iter().any(|arg| arg.name == name)).then_some(name)
}

/// Its arguments in the order of their operands.
pub(super) fn known_args(probe: &Probe) -> Vec<KnownArg> {
    let declared = probe.description.iter().flat_map(|description| &description.args);
    let n_declared = declared.filter_map(|arg| arg.operand.max(arg.length_operand)).max().unwrap_or(0);
    let in_sites = probe.sites.iter().map(|site| site.args.len()).max();
    let n_args = in_sites.map_or(n_declared, |n| n.min(255) as u8);
    (0..n_args)
        .map(|index| {
            let description = site::arg_description(probe.description.as_ref(), index);
            let operands = || probe.sites.iter().filter_map(|s| site::operand(s, index).ok());
            let size_bytes = operands().map(|o| o.size_bytes.min(8)).max().unwrap_or(8);
            let is_signed = operands().any(|o| o.is_signed);
            let is_float = operands().next().is_some() && operands().all(|o| o.is_float);
            let number = ArgType::Int { size_bytes, is_signed };
            let arg_type = match description.map_or(Kind::Unknown, |a| a.kind) {
                Kind::CString | Kind::Str if size_bytes == 8 => ArgType::Str,
                Kind::Bytes | Kind::Sequence if size_bytes == 8 => ArgType::Bytes {
                    length_arg: description.and_then(|a| a.length_operand).and_then(|n| n.checked_sub(1)),
                },
                Kind::Pointer => ArgType::Pointer,
                Kind::Float => ArgType::Float,
                Kind::Unknown if is_float => ArgType::Float,
                Kind::Enum => ArgType::Enum {
                    labels: description
                        .map(|a| a.labels.iter().map(|l| (l.first, l.text.clone())).collect())
                        .unwrap_or_default(),
                },
                Kind::Unknown
                | Kind::Signed
                | Kind::Unsigned
                | Kind::Bool
                | Kind::Char
                | Kind::Array
                | Kind::CString
                | Kind::Str
                | Kind::Bytes
                | Kind::Sequence => number,
            };
            let name = description.map(|a| a.name.clone()).or_else(|| length_name(probe, index));
            KnownArg { name: name.unwrap_or_default(), arg_type }
        })
        .collect()
}
