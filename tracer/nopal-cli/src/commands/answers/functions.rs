//! Functions among the words of a question: `FILE:NAME`, which is a function where no span and no probe is called so.

use crate::failure::Failure;
use crate::reading::cannot_read;
use crate::target_args::TargetArgs;
use crate::words::counted;
use nopal_answers::functions::FunctionFiles;
use nopal_sdt::pattern::nearest;
use nopal_spans::{Available, ProbeName};
use std::collections::HashSet;
use std::path::Path;

#[derive(Debug, clap::Args)]
pub(crate) struct FunctionArgs {
    /// Functions as spans, with `*` and `?`: of a program or library by its path or name, such as `libssl:SSL_*`.
    #[arg(long = "functions", value_name = "FILE:NAME")]
    pub functions: Vec<String>,
}

const PREFIX: &str = "function:";

impl FunctionArgs {
    /// The words of the question, with the functions behind them.
    pub(crate) fn words(&self, words: &[String]) -> Vec<String> {
        let functions = self.functions.iter().map(|text| match text.starts_with(PREFIX) {
            true => text.clone(),
            false => format!("{PREFIX}{text}"),
        });
        words.iter().cloned().chain(functions).collect()
    }
}

/// What is traced for the functions that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// `function:FILE:NAME`.
    pub patterns: Vec<String>,
    probes: HashSet<ProbeName>,
    pub notes: Vec<String>,
}

impl Functions {
    /// Looks for functions where a word is not the name of a span or a probe, and lets such words stand for them.
    pub(crate) fn find(
        target: &TargetArgs,
        words: &[String],
        available: &mut Available,
    ) -> Result<Functions, Failure> {
        let is_function = |word: &&String| {
            word.starts_with(PREFIX)
                || word.contains(':')
                    && available.find(word).is_err()
                    && available.match_probes(word).is_empty()
        };
        let asked: Vec<&String> = words.iter().filter(is_function).collect();
        let mut functions = Functions::default();
        if asked.is_empty() {
            return Ok(functions);
        }
        let program = target.command.first().map(Path::new);
        let files = FunctionFiles::of_targets(&target.processes.pids, program);
        let files = files.map_err(|error| cannot_read(&error))?;
        for word in asked {
            let pattern = match word.starts_with(PREFIX) {
                true => word.clone(),
                false => format!("{PREFIX}{word}"),
            };
            let found = files.find(&pattern);
            let provider = ProbeName::parse(word, "").provider;
            let is_provider = available.probes.iter().any(|probe| probe.name.provider == provider);
            // A span of that provider was meant, rather than a library of its name that may come later.
            let is_misspelt = is_provider && found.probes.is_empty() && !word.starts_with(PREFIX);
            // What the command starts may have such a probe; a function is seldom called so.
            let is_probe = found.probes.is_empty()
                && !word.starts_with(PREFIX)
                && ["__", "-"].iter().any(|part| ProbeName::parse(word, "").name.contains(part));
            if found.spans.is_empty() || is_misspelt || is_probe {
                let is_file = !is_provider && files.names(&pattern).0.is_some();
                if word.starts_with(PREFIX) || is_file || !found.endless.is_empty() {
                    return Err(none(&pattern, &found.endless, &files));
                }
                // Whatever else it is, the question says what is wrong with it.
                continue;
            }
            if !found.endless.is_empty() {
                functions.notes.push(format!(
                    "{} left out of `{}`, as it cannot be seen when they are left, such as `{}`",
                    counted(found.endless.len() as u64, "function"),
                    pattern.trim_start_matches(PREFIX),
                    found.endless[0]
                ));
            }
            let probes = found.spans.iter().flat_map(|span| span.probes().cloned());
            functions.probes.extend(probes);
            functions.patterns.push(pattern);
            available.add_functions(word, found.spans, found.probes);
        }
        Ok(functions)
    }

    pub(crate) fn has(&self, probe: &ProbeName) -> bool {
        self.probes.contains(probe)
    }
}

fn none(pattern: &str, endless: &[String], files: &FunctionFiles) -> Failure {
    let shown = pattern.trim_start_matches(PREFIX);
    if let Some(first) = endless.first() {
        return Failure::new("no-such-function", format!("it cannot be seen when `{first}` is left"))
            .hint("`nopal list --functions FILE` says what each function can be traced by; `nopal run` counts entries");
    }
    let wanted = shown.split(':').nth(1).unwrap_or_default();
    let (file, all) = files.names(pattern);
    let hint = match (file, nearest(wanted, all.iter().map(String::as_str))) {
        (Some(_), Some(near)) => format!("did you mean `{near}`?"),
        (Some(file), None) => format!("`nopal list --functions {file}` shows the functions there are"),
        (None, _) => "no file of that name is mapped; `nopal list -p PID` shows the files".to_owned(),
    };
    Failure::new("no-such-function", format!("no function matches `{shown}`")).hint(hint)
}
