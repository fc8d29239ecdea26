//! Where the headers of a script are: finds those it includes, and reads the numbers that they define.

use super::input::Source;
use crate::failure::Failure;
use nopal_script::{Headers, Include};
use std::path::{Path, PathBuf};

/// Where compilers look, too.
const SYSTEM: [&str; 3] = ["/usr/local/include", "/usr/include", "/usr/include/x86_64-linux-gnu"];

/// Of the kernel's own headers, which describe what it describes itself. They need not be installed.
const OF_KERNEL: [&str; 6] = ["linux/", "net/", "asm/", "asm-generic/", "uapi/", "trace/"];

/// Larger files are no headers.
const MAX_BYTES: u64 = 4 << 20;

/// What is asked for on the command line.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub dirs: Vec<PathBuf>,
    pub files: Vec<PathBuf>,
    /// Headers that are not there are errors, as they are for bpftrace.
    pub is_strict: bool,
}

/// The numbers that the headers of a script and those of the command line define.
pub(crate) fn numbers(source: &Source, wanted: &Wanted) -> Result<Vec<(String, String)>, Failure> {
    let mut includes: Vec<(Include, Option<String>)> = Vec::new();
    for file in &wanted.files {
        let name = file.to_string_lossy().into_owned();
        let missing = format!("fatal error: '{name}' file not found");
        includes.push((Include { name, is_system: false, n_before: 0 }, Some(missing)));
    }
    for include in nopal_script::includes(&source.text) {
        // As clang tells it of the file that bpftrace makes of a script's lines.
        let line_no = include.n_before + 2;
        let missing = format!("definitions.h:{line_no}:10: fatal error: '{}' file not found", include.name);
        let is_of_kernel = OF_KERNEL.iter().any(|of| include.name.starts_with(of));
        includes.push((include, (!is_of_kernel).then_some(missing)));
    }
    let mut find = |include: &Include| find(include, &wanted.dirs);
    let mut headers = Headers::default();
    for (include, missing) in &includes {
        match (find(include), missing) {
            (Some(text), _) => headers.read(&text, &mut find),
            (None, Some(missing)) if wanted.is_strict => {
                let mut failure =
                    Failure::new("script", missing.clone()).hint("-I DIR adds a folder of headers");
                failure.is_styled = true;
                return Err(failure);
            }
            (None, _) => {}
        }
    }
    Ok(if includes.is_empty() { Vec::new() } else { headers.numbers() })
}

fn find(include: &Include, dirs: &[PathBuf]) -> Option<String> {
    let here = (!include.is_system).then(|| PathBuf::from("."));
    let system = SYSTEM.iter().map(PathBuf::from);
    dirs.iter().cloned().chain(here).chain(system).find_map(|dir| read(&dir.join(&include.name)))
}

fn read(path: &Path) -> Option<String> {
    nopal_files::foreign::read_text(path, MAX_BYTES).ok()
}
