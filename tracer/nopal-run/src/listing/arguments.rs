//! What `-lv` shows below a point: its arguments as they are declared.

use super::{Listed, LiveCatalog};
use crate::tracepoints;
use nopal_program::{Point, PointKind};
use std::collections::HashMap;

/// Of a point in a file.
pub(super) fn of_point(catalog: &LiveCatalog, point: &Point) -> Vec<String> {
    match &point.kind {
        PointKind::Uprobe { path, place } => catalog.written_parameters(path, place),
        PointKind::Tracepoint { category, name } => tracepoints::declarations(category, name),
        _ => {
            let mut one = [super::plain(point.name.clone())];
            of_kernel(catalog, &mut one);
            let [one] = one;
            one.arguments
        }
    }
}

/// Of points of the kernel, by their names.
pub(super) fn of_kernel(catalog: &LiveCatalog, found: &mut [Listed]) {
    let Some(types) = catalog.kernel_types() else { return };
    let functions: HashMap<_, _> = types.functions().collect();
    let raw: HashMap<_, _> = types.raw_tracepoints().collect();
    for listed in found {
        let (kind, rest) = listed.name.split_once(':').unwrap_or_default();
        let last = rest.rsplit(':').next().unwrap_or_default();
        if kind == "tracepoint" {
            let category = rest.split(':').next().unwrap_or_default();
            listed.arguments = tracepoints::declarations(category, last);
            continue;
        }
        let known = match kind {
            "rawtracepoint" => raw.get(last),
            _ => functions.get(last),
        };
        let Some((parameters, returned)) = known.and_then(|known| types.signature(*known)) else { continue };
        let named =
            || parameters.iter().map(|[written, name]| format!("{written} {name}").trim_end().to_owned());
        let returned = || returned.iter().map(|written| format!("{written} retval"));
        listed.arguments = match kind {
            "fentry" => named().collect(),
            "fexit" => named().chain(returned()).collect(),
            "kprobe" => {
                let numbered = parameters.iter().zip(0..);
                numbered.map(|([written, _], index)| format!("{written} arg{index}")).collect()
            }
            "kretprobe" => returned().collect(),
            // The first is the tracepoint's own.
            "rawtracepoint" => named().skip(1).collect(),
            _ => Vec::new(),
        };
    }
}
