//! `nopal run -l` and `bpftrace -l`: what there is to attach to, one point a line. A pattern with a type asks for that type alone; one
//! without is looked for in the names of all tracepoints, events and functions of the kernel.

use super::output::Out;
use crate::failure::Failure;
use nopal_run::catalog::LiveCatalog;
use nopal_script::catalog::{Catalog, PointSpec};
use nopal_sdt::pattern::glob;
use std::fmt::Write as _;

/// The points that match, in the files of the processes if some are named.
pub(crate) fn listing(pids: &[u32], search: &str) -> Result<(), Failure> {
    let mut catalog = LiveCatalog::new(Vec::new());
    for pid in pids {
        catalog.add_process(*pid).map_err(|e| Failure::new("target", e.to_string()))?;
    }
    let found = matching(&catalog, search).map_err(|why| Failure::new("list", why))?;
    if found.is_empty() && !search.is_empty() {
        tell!("No probes found matching '{search}'");
    }
    let mut text = String::new();
    found.iter().for_each(|name| _ = writeln!(text, "{name}"));
    Out::default().write(text.as_bytes())?;
    Ok(())
}

/// Hardware counters and their short names.
const HARDWARE: [&str; 13] = [
    "backend-stalls",
    "branch-instructions",
    "branch-misses",
    "branches",
    "bus-cycles",
    "cache-misses",
    "cache-references",
    "cpu-cycles",
    "cycles",
    "frontend-stalls",
    "instructions",
    "ref-cycles",
    "stalled-cycles-backend",
];

/// Types whose points are found by asking the catalog for every one of them.
const KERNEL: [(&str, usize); 2] = [("tracepoint", 2), ("kprobe", 1)];

/// The names that match, each once and in order.
fn matching(catalog: &LiveCatalog, search: &str) -> Result<Vec<String>, String> {
    let mut found = match search.split_once(':') {
        Some((kind, rest)) => of_kind(catalog, kind, rest)?,
        None => everywhere(catalog, search),
    };
    found.sort();
    found.dedup();
    Ok(found)
}

fn of_kind(catalog: &LiveCatalog, kind: &str, rest: &str) -> Result<Vec<String>, String> {
    let kind = kind.to_ascii_lowercase();
    let events = |kind: &str, names: &[&str]| {
        let is_wanted = |name: &&&str| glob(rest.trim_end_matches(':'), name) || rest.is_empty();
        names.iter().filter(is_wanted).map(|name| format!("{kind}:{name}:")).collect()
    };
    match kind.as_str() {
        "software" | "s" => Ok(events("software", &nopal_script::software_events())),
        "hardware" | "h" => Ok(events("hardware", &HARDWARE)),
        "*" => Ok(everywhere(catalog, &format!("*{rest}"))),
        _ => {
            let text = format!("{kind}:{rest} {{}}");
            let options = nopal_script::Options::default();
            let script = nopal_script::parse(&text, "-l", &[], &options).map_err(|diagnostics| {
                diagnostics.first().map_or_else(String::new, |diagnostic| diagnostic.message.clone())
            })?;
            let mut names = Vec::new();
            for spec in script.specs() {
                let points = match catalog.points(spec) {
                    Ok(points) => points,
                    Err(no_point) if spec.kind.starts_with('u') && !no_point.is_only_absent => {
                        return Err(no_point.reason);
                    }
                    // What is not there is nothing to list.
                    Err(_) => Vec::new(),
                };
                let is_there = |name: &String| !name.contains('*') || !rest.contains('*');
                names.extend(points.into_iter().map(|known| known.point.name).filter(is_there));
            }
            Ok(names)
        }
    }
}

fn everywhere(catalog: &LiveCatalog, pattern: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (kind, n_parts) in KERNEL {
        let spec = PointSpec { kind: kind.to_owned(), parts: vec!["*".to_owned(); n_parts] };
        let points = catalog.points(&spec).unwrap_or_default();
        names.extend(points.into_iter().map(|known| known.point.name));
    }
    names.extend(nopal_script::software_events().iter().map(|name| format!("software:{name}:")));
    names.extend(HARDWARE.iter().map(|name| format!("hardware:{name}:")));
    names.retain(|name| pattern.is_empty() || glob(pattern, name));
    names
}
