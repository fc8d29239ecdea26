//! What the end-to-end tests share: the built command, scratch folders, child processes, waiting with a bound.

pub mod arm64;
pub mod asking;
pub mod at_work;
pub mod bindings;
pub mod containers;
pub mod cycles;
pub mod debian;
pub mod faults;
pub mod fixture;
pub mod lab;
pub mod lttng;
pub mod postgres;
pub mod process;
pub mod runtime;
pub mod targets;
pub mod tools;
pub mod user_door;
pub mod valkey;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the source tree, or of a copy of what the tests need of it (`NOPAL_ROOT`).
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| match std::env::var_os("NOPAL_ROOT") {
        Some(copy) => PathBuf::from(copy),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("tests/ is one level below the root")
            .to_owned(),
    })
}

/// The whole name of a test of this program, given its `module_path!()`: the program starts itself with it.
pub fn test_name(module: &str, name: &str) -> String {
    // The first part is the program.
    let inner = module.split_once("::").map_or(String::new(), |(_, inner)| format!("{inner}::"));
    format!("{inner}{name}")
}

/// The folder cargo builds into.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The `nopal` command, built anew once per test binary so that a test never runs an old one; or `NOPAL_BIN`, for a user
/// who cannot build.
pub fn nopal() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(built) = std::env::var_os("NOPAL_BIN") {
            return PathBuf::from(built);
        }
        // The whole workspace, as the tests are built: with the features of one crate alone everything would be compiled again.
        let mut build = Command::new(env!("CARGO"));
        run(build.args(["build", "--quiet", "--workspace", "--bin", "nopal"]).current_dir(root()));
        target_dir().join("debug/nopal")
    })
}

/// A fresh, empty folder for one test, below the target folder.
pub fn scratch(name: &str) -> PathBuf {
    let dir = target_dir().join("scratch").join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).expect("the scratch folder can be removed");
    }
    std::fs::create_dir_all(&dir).expect("the scratch folder can be made");
    dir
}

/// Copies a program that is to be run. A process of its own does it: a file that this one had open for writing could be
/// inherited by the child of another test for a moment, and a program that is open for writing cannot be started.
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    run(Command::new("cp").arg(from).arg(to));
}

/// Runs a command that must succeed and returns its standard output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
