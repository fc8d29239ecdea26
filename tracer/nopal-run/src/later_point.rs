//! The point that stands for probes of files which are mapped later.

use super::probe_args::declared_args;
use nopal_program::{LaterProbes, Point, PointKind};
use nopal_script::catalog::{ArgType, KnownArg, KnownPoint};

/// As many as a probe can have.
const N_LATER_ARGS: usize = 12;

/// The probes of files that are mapped later. Their arguments are taken to be those of the ones there are, if these agree; of a
/// probe that is not there at all, those that it is declared with; else they are numbers.
pub(super) fn later_point(
    found: &[KnownPoint],
    file: &str,
    provider: &str,
    name: &str,
    given: &[nopal_provider::File],
) -> KnownPoint {
    const UNKNOWN: ArgType = ArgType::Int { size_bytes: 8, is_signed: true };
    let of_known = |known: &KnownPoint| match &known.point.kind {
        PointKind::Usdt { path, provider, name } => Some([path.clone(), provider.clone(), name.clone()]),
        _ => None,
    };
    let args = match found {
        [first, rest @ ..] if rest.iter().all(|known| known.args == first.args) => first.args.clone(),
        _ => {
            let declared = found.is_empty().then(|| declared_args(provider, name, given)).flatten();
            declared
                .unwrap_or_else(|| vec![KnownArg { name: String::new(), arg_type: UNKNOWN }; N_LATER_ARGS])
        }
    };
    let place = if file.is_empty() { String::new() } else { format!("{file}:") };
    let kind = PointKind::UsdtLater(LaterProbes {
        file: file.to_owned(),
        provider: provider.to_owned(),
        name: name.to_owned(),
        known: found.iter().filter_map(of_known).collect(),
    });
    let point = Point { name: format!("usdt:{place}{provider}:{name}"), kind };
    KnownPoint { point, args, obstacle: None }
}
