//! What there is to attach to, by patterns as `bpftrace -l` takes them: `uprobe:./app:*`, `*ware:*`, `struct file`. Prints nothing.

mod arguments;

use super::btf::Btf;
use super::catalog::LiveCatalog;
use nopal_script::catalog::{Catalog, KnownPoint, PointSpec};
use nopal_sdt::pattern::glob;

/// A point, or a type of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    /// Its arguments, one declaration each.
    pub arguments: Vec<String>,
    /// Of a type.
    pub definition: Option<String>,
}

/// How much is to be said about each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Detail {
    pub has_arguments: bool,
    /// Files of processes are called by a path that leads to them from here: `/proc/PID/root/usr/bin/app`.
    pub has_own_paths: bool,
}

const UNITS: [&str; 4] = ["hz", "ms", "s", "us"];

/// Names, with the short ones. A pattern without a type is looked for in those of the kernel.
const KINDS: [(&str, &[&str], bool); 15] = [
    ("fentry", &["f", "kfunc"], true),
    ("fexit", &["fr", "kretfunc"], false),
    ("hardware", &["h"], true),
    ("interval", &["i"], false),
    ("iter", &["it"], false),
    ("kprobe", &["k"], true),
    ("kretprobe", &["kr"], false),
    ("profile", &["p"], false),
    ("rawtracepoint", &["rt"], true),
    ("self", &[], false),
    ("software", &["s"], true),
    ("tracepoint", &["t"], true),
    ("uprobe", &["u"], false),
    ("uretprobe", &["ur"], false),
    ("usdt", &["U"], false),
];

/// The points and types that a pattern stands for, each once and in order. `Err` is why a file cannot be looked at.
pub fn matching(catalog: &LiveCatalog, search: &str, detail: Detail) -> Result<Vec<Listed>, String> {
    if ["struct ", "union ", "enum "].iter().any(|word| search.starts_with(word)) {
        return Ok(definitions(catalog, search));
    }
    let mut found = match search.split_once(':') {
        Some((kind, rest)) if kind.contains(['*', '?', '[']) => by_wildcard(catalog, kind, rest, detail),
        Some((kind, rest)) => of_kind(catalog, kind, rest, detail)?,
        None => everywhere(catalog, search, detail),
    };
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup_by(|a, b| a.name == b.name);
    Ok(found)
}

/// The points of one probe of a script.
pub fn of_spec(catalog: &LiveCatalog, spec: &PointSpec, detail: Detail) -> Result<Vec<Listed>, String> {
    let first = spec.parts.first().map(String::as_str).unwrap_or_default();
    Ok(match spec.kind.as_str() {
        "interval" | "profile" | "software" | "hardware" => {
            vec![plain(format!("{}:{first}:", spec.kind))]
        }
        "BEGIN" | "END" => Vec::new(),
        "bench" | "self" | "watchpoint" | "asyncwatchpoint" => {
            vec![plain(format!("{}:{}", spec.kind, spec.parts.join(":")))]
        }
        "fentry" | "fexit" | "iter" | "rawtracepoint" => {
            of_kind(catalog, &spec.kind, &spec.parts.join(":"), detail)?
        }
        _ => {
            let mut found = of_catalog(catalog, spec, detail, true)?;
            found.sort_by(|a, b| a.name.cmp(&b.name));
            found.dedup_by(|a, b| a.name == b.name);
            found
        }
    })
}

fn plain(name: String) -> Listed {
    Listed { name, arguments: Vec::new(), definition: None }
}

fn definitions(catalog: &LiveCatalog, search: &str) -> Vec<Listed> {
    let Some(types) = catalog.kernel_types() else { return Vec::new() };
    let found = types.definitions(|name| glob(search, name));
    let listed = |(name, text)| Listed { name, arguments: Vec::new(), definition: Some(text) };
    found.into_iter().map(listed).collect()
}

/// Of all types whose name fits. Files that cannot be looked at have nothing to list.
fn by_wildcard(catalog: &LiveCatalog, kind: &str, rest: &str, detail: Detail) -> Vec<Listed> {
    let mut found = Vec::new();
    // `uprobe:*` without a file would be every file there is.
    let has_file = rest.contains('/') || catalog.paths().next().is_some();
    for (name, _, is_of_kernel) in KINDS.iter().filter(|(name, ..)| glob(kind, name)) {
        let is_wanted = *is_of_kernel || (has_file && ["uprobe", "usdt"].contains(name)) || kind.len() > 1;
        if !is_wanted {
            continue;
        }
        match kernel_names(catalog, name) {
            Some(names) => {
                let fits = |short: &String| glob(rest, short) || (rest.is_empty());
                let names = names.into_iter().filter(fits);
                found.extend(names.map(|short| plain(format!("{name}:{short}"))));
            }
            None if rest.is_empty() => {}
            None => found.extend(
                of_kind(catalog, name, rest, Detail { has_arguments: false, ..detail }).unwrap_or_default(),
            ),
        }
    }
    with_arguments(catalog, found, detail)
}

/// A pattern without a type: in the names of all points of the kernel, and in those of the functions and probes of processes.
fn everywhere(catalog: &LiveCatalog, pattern: &str, detail: Detail) -> Vec<Listed> {
    let mut found = Vec::new();
    for (kind, _, is_of_kernel) in KINDS {
        if is_of_kernel {
            let names = kernel_names(catalog, kind).unwrap_or_default();
            found.extend(names.into_iter().map(|short| plain(format!("{kind}:{short}"))));
        }
    }
    if catalog.paths().next().is_some() {
        for kind in ["uprobe", "usdt"] {
            let detail = Detail { has_arguments: false, ..detail };
            found.extend(of_kind(catalog, kind, "*", detail).unwrap_or_default());
        }
    }
    found.retain(|listed| pattern.is_empty() || glob(pattern, &listed.name));
    with_arguments(catalog, found, detail)
}

/// What stands behind the type in the names of all its points, for those that depend on no file.
fn kernel_names(catalog: &LiveCatalog, kind: &str) -> Option<Vec<String>> {
    let of_catalog = |kind: &str, parts: &[&str]| -> Vec<String> {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        let points = catalog.points(&PointSpec { kind: kind.to_owned(), parts }).unwrap_or_default();
        let short = |known: KnownPoint| known.point.name.split_once(':').map(|(_, short)| short.to_owned());
        points.into_iter().filter_map(short).collect()
    };
    let events = |names: &[&str]| names.iter().map(|name| format!("{name}:")).collect();
    let of_types = |names: fn(&Btf) -> Vec<String>| catalog.kernel_types().map(names).unwrap_or_default();
    Some(match kind {
        "fentry" | "fexit" => {
            // Those that are in line everywhere have no code of their own.
            let code: std::collections::HashSet<String> = of_catalog("kprobe", &["*"]).into_iter().collect();
            let all = of_types(|types| types.functions().map(|(name, _)| name.to_owned()).collect());
            all.into_iter().filter(|name| code.contains(name)).map(|name| format!("vmlinux:{name}")).collect()
        }
        "rawtracepoint" => {
            of_types(|types| types.raw_tracepoints().map(|(name, _)| format!("vmlinux:{name}")).collect())
        }
        "iter" => of_types(|types| {
            let found = types.definitions(|name| name.starts_with("struct bpf_iter__"));
            found.iter().filter_map(|(name, _)| Some(name.split_once("__")?.1.to_owned())).collect()
        }),
        "software" => events(&nopal_script::software_events()),
        "hardware" => events(&nopal_script::hardware_events()),
        "interval" | "profile" => events(&UNITS),
        "self" => vec!["signal:SIGUSR1".to_owned()],
        "tracepoint" => of_catalog(kind, &["*", "*"]),
        "kprobe" | "kretprobe" => of_catalog(kind, &["*"]),
        _ => return None,
    })
}

fn of_kind(catalog: &LiveCatalog, kind: &str, rest: &str, detail: Detail) -> Result<Vec<Listed>, String> {
    let known = KINDS.iter().find(|(long, short, _)| *long == kind || short.contains(&kind));
    let Some((kind, ..)) = known else { return Ok(Vec::new()) };
    // A file that is not named is any that the processes have; a module that is not named is the kernel itself.
    let n_colons = rest.matches(':').count();
    let rest = match (*kind, n_colons) {
        ("uprobe" | "uretprobe", 0) => format!("*:{rest}"),
        ("usdt", 0) if !rest.contains('/') => format!("*:*:{rest}"),
        ("fentry" | "fexit" | "rawtracepoint", 0) => format!("*:{rest}"),
        _ => rest.to_owned(),
    };
    match *kind {
        "uprobe" | "uretprobe" | "usdt" => {
            let text = format!("{kind}:{rest} {{}}");
            let options = nopal_script::Options::default();
            let script = nopal_script::parse(&text, "-l", &[], &options).map_err(|diagnostics| {
                diagnostics.first().map_or_else(String::new, |diagnostic| diagnostic.message.clone())
            })?;
            let mut found = Vec::new();
            for spec in script.specs() {
                found.extend(of_catalog(catalog, spec, detail, false)?);
            }
            Ok(found)
        }
        kind => {
            let wanted = rest.trim_end_matches(':');
            let fits = |short: &String| wanted.is_empty() || glob(wanted, short.trim_end_matches(':'));
            let names = kernel_names(catalog, kind).unwrap_or_default();
            let found = names.into_iter().filter(fits).map(|short| plain(format!("{kind}:{short}")));
            Ok(with_arguments(catalog, found.collect(), detail))
        }
    }
}

/// Of a probe in files or functions.
fn of_catalog(
    catalog: &LiveCatalog,
    spec: &PointSpec,
    detail: Detail,
    is_script: bool,
) -> Result<Vec<Listed>, String> {
    let points = match catalog.points(spec) {
        Ok(points) => points,
        Err(no_point) if is_script => return Err(no_point.reason),
        // What is not there is nothing to list.
        Err(_) if spec.parts.first().is_some_and(|file| file.contains(['*', '?', '['])) => Vec::new(),
        Err(no_point) if no_point.is_only_absent => Vec::new(),
        Err(no_point) if spec.kind.starts_with('u') => return Err(no_point.reason),
        Err(_) => Vec::new(),
    };
    let is_of_pattern = spec.parts.iter().any(|part| part.contains('*'));
    let is_there = |known: &KnownPoint| !is_of_pattern || !known.point.name.contains('*');
    let listed = |known: KnownPoint| {
        let arguments = match detail.has_arguments {
            true => arguments::of_point(catalog, &known.point),
            false => Vec::new(),
        };
        let own = detail.has_own_paths.then(|| catalog.name_by_process(&known.point)).flatten();
        Listed { name: own.unwrap_or(known.point.name), arguments, definition: None }
    };
    Ok(points.into_iter().filter(is_there).map(listed).collect())
}

fn with_arguments(catalog: &LiveCatalog, mut found: Vec<Listed>, detail: Detail) -> Vec<Listed> {
    if detail.has_arguments {
        arguments::of_kernel(catalog, &mut found);
    }
    found
}
