//! Finds the ELF files that a command line of `nopal list` names, and tells files from patterns.

use super::findings::Findings;
use super::{Args, folder};
use crate::failure::Failure;
use crate::reading::{cannot_read, read_file};
use nopal_proc::TargetError;
use nopal_sdt::{Pattern, ReadError};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Reads everything the command line names; the rest of its words are patterns.
pub(super) fn find(args: &Args) -> Result<(Findings, Vec<Pattern>), Failure> {
    let mut findings = Findings::default();
    if !args.processes.is_empty() {
        for &pid in &args.processes.pids {
            if let Err(failure) = read_process(&mut findings, pid) {
                findings.fail(failure);
            }
        }
        // A wrapper has none; those that it has started are traced with it.
        if findings.found.is_empty() && findings.failure.is_none() {
            for pid in nopal_proc::descendants_of_all(&args.processes.pids) {
                // It may have ended, or belong to somebody else.
                let _ = read_process(&mut findings, pid);
            }
        }
        return Ok((findings, all_patterns(&args.what)?));
    }
    let mut patterns = Vec::new();
    let mut n_files = 0;
    for word in &args.what {
        match file_of(word, n_files == 0) {
            Ok(Some(path)) => {
                n_files += 1;
                read_path(&mut findings, &path);
            }
            Ok(None) => patterns.push(Pattern::parse(&word.to_string_lossy())),
            Err(failure) => return Err(failure),
        }
    }
    if n_files == 0 {
        return Err(Failure::usage("no file and no process to read is named").hint(
            "name a program, a library or a folder, or a process with -p PID or -n NAME; `nopal list -u` shows running programs",
        ));
    }
    Ok((findings, patterns))
}

/// The files that the command line names, and the rest of its words.
pub(super) fn files_and_words(args: &Args) -> Result<(Vec<PathBuf>, Vec<String>), Failure> {
    let (mut files, mut words) = (Vec::new(), Vec::new());
    for word in &args.what {
        match file_of(word, files.is_empty())? {
            Some(path) => files.push(path),
            None => words.push(word.to_string_lossy().into_owned()),
        }
    }
    if files.is_empty() {
        return Err(Failure::usage("no file to read is named").hint("name a program or a library"));
    }
    Ok((files, words))
}

/// Where a process is named, or none, all words are patterns.
pub(super) fn all_patterns(words: &[OsString]) -> Result<Vec<Pattern>, Failure> {
    let mut patterns = Vec::new();
    for word in words {
        let text = word.to_string_lossy();
        if text.contains('/') && !text.contains(':') {
            return Err(Failure::usage(format!("{text} is a file, and a process was named"))
                .hint("give either files, or -p PID, -n NAME, or -u"));
        }
        patterns.push(Pattern::parse(&text));
    }
    Ok(patterns)
}

/// The file that a word names, or `None` for a pattern. The first word may be a program on the `PATH`.
fn file_of(word: &OsStr, is_first: bool) -> Result<Option<PathBuf>, Failure> {
    let path = Path::new(word);
    let text = word.to_string_lossy();
    match std::fs::metadata(path) {
        Ok(_) => return Ok(Some(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::NotADirectory => {}
        // It is there and cannot be looked at; reading it will say why.
        Err(_) => return Ok(Some(path.to_owned())),
    }
    if Pattern::is_evident(&text) && !text.starts_with('/') {
        return Ok(None);
    }
    if text.contains('/') || text.is_empty() {
        return Err(Failure::new("no-such-file", format!("{text}: no such file")).hint("check the path"));
    }
    if !is_first {
        return Ok(None);
    }
    match on_path(word) {
        Some(path) => Ok(Some(path)),
        None => {
            Err(Failure::new("no-such-file", format!("{text}: no such file, and no program on the PATH"))
                .hint(
                    "give the path of a program, library or folder; `nopal list -u` shows running programs",
                ))
        }
    }
}

fn on_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn read_path(findings: &mut Findings, path: &Path) {
    if path.is_dir() {
        return match folder::read(findings, path) {
            Ok(()) => {}
            Err(failure) => findings.fail(failure),
        };
    }
    match read_file(path) {
        Ok(object) => {
            if object.is_debug_copy {
                findings.warnings.push(format!(
                    "{} is a separate debug file; the probes are in the program it belongs to",
                    path.display()
                ));
            }
            findings.add(path.to_owned(), object, None, None);
        }
        Err(failure) => findings.fail(failure),
    }
}

fn read_process(findings: &mut Findings, pid: u32) -> Result<(), Failure> {
    let objects = nopal_proc::mapped_objects(pid).map_err(|error| cannot_read(&error))?;
    if objects.is_empty() {
        // No code at all: a zombie or a kernel thread.
        let process = nopal_proc::Process::read(pid).map_err(|error| cannot_read(&error))?;
        let why = process.check_traceable().err().unwrap_or(TargetError::KernelThread { pid });
        return Err(cannot_read(&why));
    }
    for mapped in objects {
        let image = match mapped.open() {
            Ok(image) => image,
            Err(error @ TargetError::NoSuchProcess { .. }) => return Err(cannot_read(&error)),
            Err(error) => {
                findings.warnings.push(error.to_string());
                continue;
            }
        };
        match nopal_sdt::read(image.bytes()) {
            Ok(object) => {
                let bias = mapped.load_biases(&object).first().copied();
                findings.add(mapped.path, object, Some(pid), bias);
            }
            // Code that a just-in-time compiler keeps in a file, and the like.
            Err(ReadError::NotElf) => {}
            Err(error) => findings.warnings.push(format!("{}: {error}", mapped.path.display())),
        }
    }
    Ok(())
}

/// Everything was read, and there is no probe in it.
pub(super) fn no_probes(args: &Args, n_read: usize) -> Failure {
    let message = match (args.processes.pids.as_slice(), args.what.as_slice()) {
        ([pid], _) => format!(
            "none of the {n_read} programs and libraries of process {pid} and what it started has probes"
        ),
        ([_, ..], _) => "none of the processes has probes".to_owned(),
        (_, [file]) if n_read == 1 => format!("{} has no probes", file.display()),
        _ => format!("none of the {n_read} ELF files read has probes"),
    };
    Failure::new("no-probes", message)
        .hint("it was built without them; many projects switch them on with --enable-dtrace or -Ddtrace=true")
}
