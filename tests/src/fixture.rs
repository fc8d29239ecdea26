//! Cargo projects outside of the workspace (fixtures and examples), built by the tests with flags of their own.

use crate::{root, run, target_dir};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A build of a fixture. Builds with the same label share a folder, so one label has one set of flags.
#[derive(Debug)]
pub struct Build<'a> {
    /// Folder below `tests/fixtures`, or `examples/NAME`.
    pub fixture: &'a str,
    pub label: &'a str,
    /// A profile of the fixture's manifest, or `dev`.
    pub profile: &'a str,
    pub rustflags: &'a str,
}

impl Build<'_> {
    /// Builds the whole fixture and returns the folder with its programs and libraries.
    #[track_caller]
    pub fn run(&self) -> PathBuf {
        let out = target_dir().join("lab/fixtures").join(self.fixture).join(self.label);
        fs::create_dir_all(&out).expect("the lab folder can be made");
        let lock = fs::File::create(out.join("test.lock")).expect("the lock file can be made");
        lock.lock().expect("the lock can be taken");
        let folder = match self.fixture.starts_with("examples/") {
            true => root().join(self.fixture),
            false => root().join("tests/fixtures").join(self.fixture),
        };
        run(Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--locked", "--workspace", "--profile", self.profile])
            .current_dir(folder)
            .env("CARGO_TARGET_DIR", &out)
            .env("RUSTFLAGS", self.rustflags)
            .env_remove("CARGO_ENCODED_RUSTFLAGS"));
        out.join(if self.profile == "dev" { "debug" } else { self.profile })
    }
}
