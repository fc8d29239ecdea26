//! `bpftrace -l`: by a pattern, of a script, or of a file with one.

use super::options::Options;
use super::script::input::Source;
use super::script::points::{Wanted, listing};
use crate::failure::Failure;
use nopal_run::listing::Detail;
use std::path::Path;

pub(super) fn list(options: Options) -> Result<(), Failure> {
    let detail = Detail { has_arguments: options.is_verbose, has_own_paths: true };
    let pids = options.pid.as_slice();
    let is_file =
        options.script.is_none() && options.words.first().is_some_and(|word| Path::new(word).is_file());
    if options.script.is_none() && !is_file {
        let search = options.words.first().map_or("", String::as_str);
        if search.ends_with(".bt") && !options.has_no_warnings {
            tell!(
                "WARNING: It appears that '{search}' is a filename but the file does not exist. Treating '{search}' as a search pattern."
            );
        }
        return listing(pids, options.debug_folders, &Wanted::Search(search), detail);
    }
    let mut words = options.words;
    let mut source = Source::read(&mut words, options.script.into_iter().collect())?;
    source.is_bpftrace = true;
    let parsing = nopal_script::Options { named: options.named, ..nopal_script::Options::default() };
    let script = nopal_script::parse(&source.text, &source.name, &words, &parsing)
        .map_err(|diagnostics| source.failure(&diagnostics))?;
    listing(pids, options.debug_folders, &Wanted::Script(&source, &script), detail)
}
