//! The test programs of `tests/fixtures/targets`, built once per test binary and variant.

use crate::{root, run, target_dir};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// How a test program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    Pie,
    NonPie,
    Static,
    StaticPie,
    Musl,
}

/// Builds `sources` into one program and returns its path. Built anew when a source is newer.
pub fn build(name: &str, sources: &[&str], how: Build) -> PathBuf {
    build_with(name, sources, how, &[])
}

pub fn build_with(name: &str, sources: &[&str], how: Build, more: &[&str]) -> PathBuf {
    let folder = target_dir().join("lab/targets");
    fs::create_dir_all(&folder).expect("the lab folder can be made");
    let lock = fs::File::create(folder.join("lock")).expect("the lock file can be made");
    lock.lock().expect("the lock can be taken");
    let program = folder.join(format!("{name}-{how:?}").to_lowercase());
    let from = root().join("tests/fixtures/targets");
    let modified = |path: PathBuf| fs::metadata(path).and_then(|m| m.modified()).ok();
    let built = modified(program.clone());
    let header = modified(root().join("include/sys/sdt.h"));
    if built.is_some() && sources.iter().all(|s| modified(from.join(s)) < built) && header < built {
        return program;
    }
    let (compiler, flags): (&str, &[&str]) = match how {
        Build::Pie => ("gcc", &["-fPIE", "-pie"]),
        Build::NonPie => ("gcc", &["-fno-pie", "-no-pie"]),
        Build::Static => ("gcc", &["-static"]),
        Build::StaticPie => ("gcc", &["-static-pie", "-fPIE"]),
        // systemtap's header is in the multi-arch folder, which musl-gcc does not look into.
        Build::Musl => ("musl-gcc", &["-idirafter", "/usr/include/x86_64-linux-gnu"]),
    };
    let unfinished = program.with_extension("new");
    run(Command::new(compiler)
        .args(["-O2", "-g", "-Wall", "-pthread", "-o"])
        .arg(&unfinished)
        .args(flags)
        .args(sources.iter().map(|s| from.join(s)))
        .args(more));
    fs::rename(&unfinished, &program).expect("the program can be put in place");
    program
}
