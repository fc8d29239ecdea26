//! `nopal run -l` and `bpftrace -l`: what there is to attach to, one point a line, by a pattern or as a script names it.

use super::input::Source;
use super::output::Out;
use crate::failure::Failure;
use nopal_run::catalog::LiveCatalog;
use nopal_run::listing::{self, Detail, Listed};
use std::fmt::Write as _;
use std::path::PathBuf;

/// What is to be listed.
#[derive(Debug)]
pub(crate) enum Wanted<'a> {
    /// One pattern or several with commas between them; the empty one is everything.
    Search(&'a str),
    /// The points of a script.
    Script(&'a Source, &'a nopal_script::Script),
}

/// The points that match, in the files of the processes if some are named.
pub(crate) fn listing(
    pids: &[u32],
    debug_folders: Vec<PathBuf>,
    wanted: &Wanted<'_>,
    detail: Detail,
) -> Result<(), Failure> {
    let mut catalog = LiveCatalog::new(Vec::new());
    catalog.look_for_debug_files(debug_folders);
    for pid in pids {
        catalog.add_process(*pid).map_err(|e| Failure::new("target", e.to_string()))?;
    }
    let mut text = String::new();
    match wanted {
        Wanted::Search(search) => {
            for pattern in search.split(',') {
                let found = listing::matching(&catalog, pattern.trim(), detail);
                let found = found.map_err(|why| Failure::new("list", why))?;
                // bpftrace says nothing of it.
                if found.is_empty() && !search.is_empty() && !detail.has_own_paths {
                    tell!("No probes found matching '{pattern}'");
                }
                found.iter().for_each(|listed| show(&mut text, listed, detail));
            }
        }
        Wanted::Script(source, script) => {
            for spec in script.specs() {
                let found = listing::of_spec(&catalog, spec, detail);
                let found =
                    found.map_err(|why| Failure::new("list", format!("{}: {why}", source.shown_name())))?;
                found.iter().for_each(|listed| show(&mut text, listed, detail));
            }
        }
    }
    Out::default().write(text.as_bytes())?;
    Ok(())
}

fn show(text: &mut String, listed: &Listed, detail: Detail) {
    let _ = match (&listed.definition, detail.has_arguments) {
        (Some(definition), true) => writeln!(text, "vmlinux: {definition};\n"),
        _ => writeln!(text, "{}", listed.name),
    };
    listed.arguments.iter().for_each(|argument| _ = writeln!(text, "    {argument}"));
}
