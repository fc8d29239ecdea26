//! The probes and spans that one can ask for: of processes, of a command, of files that declare spans.

use crate::failure::Failure;
use crate::reading::{cannot_read, provider_file, text_file};
use crate::target_args::TargetArgs;
use nopal_answers::inventory;
use nopal_spans::span::Source;
use nopal_spans::{Available, Span, file};
use std::path::{Path, PathBuf};

/// The spans of what is to be traced.
pub(crate) fn available(target: &TargetArgs, spans_file: Option<&Path>) -> Result<Available, Failure> {
    of_processes(&target.processes.pids, target, declared(spans_file)?, false)
}

pub(crate) fn of_processes(
    pids: &[u32],
    target: &TargetArgs,
    files: Vec<Span>,
    has_functions: bool,
) -> Result<Available, Failure> {
    let given = target.providers.iter().map(|path| provider_file(path)).collect::<Result<Vec<_>, _>>()?;
    let program = target.command.first().map(Path::new);
    let probes = inventory::of_targets(pids, program, &given).map_err(|error| cannot_read(&error))?;
    if probes.is_empty() && program.is_none() && !has_functions {
        return Err(Failure::new("no-probes", "neither the processes nor their libraries have probes").hint(
            "they were built without them (projects have switches such as --enable-dtrace); functions need none: \
             `nopal latency FILE:FUNCTION -p PID`",
        ));
    }
    Ok(Available::new(files, probes, program.is_some()))
}

/// The spans of the file that was named, or of a `nopal.toml` here.
pub(crate) fn declared(named: Option<&Path>) -> Result<Vec<Span>, Failure> {
    let found = PathBuf::from("nopal.toml");
    let path = match named {
        Some(path) => path,
        None if found.is_file() => &found,
        None => return Ok(Vec::new()),
    };
    declared_in(path)
}

/// The spans of a file.
pub(crate) fn declared_in(path: &Path) -> Result<Vec<Span>, Failure> {
    let text = text_file(path).map_err(|error| {
        Failure::new("cannot-read", format!("{}: {error}", path.display()))
            .hint("docs/spans.md shows how spans are declared")
    })?;
    file::parse(&text, &Source::File(path.display().to_string())).map_err(|error| {
        Failure::new("bad-spans", format!("{}: {error}", path.display()))
            .hint("docs/spans.md shows how spans are declared")
    })
}
