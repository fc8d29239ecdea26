//! The programs that check themselves, and what they share with whoever runs them.

use crate::cycles::Chance;
use crate::root;
use crate::targets::{Build, build_with};
use std::fmt;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What the native program does; see `checked.cpp`.
const WORKS: [&str; 13] = [
    "threads",
    "exceptions",
    "longjmp",
    "altstack",
    "plugs",
    "forks",
    "vforks",
    "execs",
    "seccomp",
    "namespaces",
    "users",
    "dying",
    "brood",
];
/// Those of them in which there is one process only.
const N_ALONE: usize = 5;

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Native(Vec<&'static str>),
    Python,
    Ruby,
}

impl Kind {
    pub(super) fn drawn(chance: &mut Chance) -> Kind {
        match chance.below(12) {
            0 => Kind::Python,
            1 => Kind::Ruby,
            n => {
                // Without children half of the time: what they need is often told as a gap.
                let choice = if n < 7 { &WORKS[..N_ALONE] } else { &WORKS[..] };
                let mut works = vec!["threads"];
                for _ in 0..chance.below(4) {
                    let work = *chance.one_of(choice);
                    if !works.contains(&work) {
                        works.push(work);
                    }
                }
                Kind::Native(works)
            }
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Kind::Native(works) => works.iter().map(|work| (*work).to_owned()).collect(),
            Kind::Python => vec!["python".to_owned()],
            Kind::Ruby => vec!["ruby".to_owned()],
        }
    }

    /// gdb's breakpoints kill the children of a program, with or without nopal.
    pub(super) fn has_children(&self) -> bool {
        match self {
            Kind::Native(works) => works.iter().any(|work| WORKS[N_ALONE..].contains(work)),
            Kind::Python | Kind::Ruby => true,
        }
    }

    /// Python and Ruby hit their probes before they count.
    pub(super) fn can_be_launched(&self) -> bool {
        matches!(self, Kind::Native(_))
    }

    pub(crate) fn probes(&self) -> &'static str {
        match self {
            Kind::Native(_) => "checked:*",
            Kind::Python => "python:gc__start",
            Kind::Ruby => "ruby:raise",
        }
    }

    /// The file with the probe that other tracers are sent to, and the probe.
    pub(crate) fn site(&self) -> (PathBuf, &'static str) {
        match self {
            Kind::Native(_) => (program(), "checked:hit"),
            Kind::Python => ("/usr/bin/python3.11".into(), "python:gc__start"),
            Kind::Ruby => ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1".into(), "ruby:raise"),
        }
    }

    /// The command line that runs it.
    pub(crate) fn line(&self, shared: &Path) -> Vec<String> {
        let text = |path: &Path| path.to_str().expect("paths of tests are text").to_owned();
        let script = |name: &str| text(&root().join("tests/fixtures/targets").join(name));
        match self {
            Kind::Native(works) => {
                let line = [text(&program()), text(shared), text(&plug())];
                line.into_iter().chain(works.iter().map(|work| (*work).to_owned())).collect()
            }
            Kind::Python => vec!["/usr/bin/python3.11".to_owned(), script("checked.py"), text(shared)],
            Kind::Ruby => vec!["/usr/bin/ruby".to_owned(), script("checked.rb"), text(shared)],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.names().join("+"))
    }
}

fn program() -> PathBuf {
    build_with("checked", &["checked.cpp"], Build::Pie, &["-lstdc++"])
}

fn plug() -> PathBuf {
    build_with("checked_plug", &["checked_plug.cpp"], Build::Pie, &["-shared", "-fPIC"])
}

/// The numbers in the shared page, in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field {
    Begun,
    Done,
    Errors,
    Phase,
    State,
    Burst,
    Raised,
    Pid,
    Children,
}

pub(crate) const GO: u64 = 1;
pub(crate) const STOP: u64 = 2;
pub(crate) const END: u64 = 3;
pub(crate) const READY: u64 = 1;
pub(crate) const QUIET: u64 = 3;

/// The page that the program counts in.
#[derive(Debug)]
pub(crate) struct Shared(fs::File);

impl Shared {
    pub(crate) fn create(path: &Path) -> std::io::Result<Shared> {
        fs::write(path, [0; 4096])?;
        Ok(Shared(fs::File::options().read(true).write(true).open(path)?))
    }

    pub(crate) fn get(&self, field: Field) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, field as u64 * 8).expect("the page is there");
        u64::from_ne_bytes(bytes)
    }

    pub(crate) fn set(&self, field: Field, value: u64) {
        self.0.write_all_at(&value.to_ne_bytes(), field as u64 * 8).expect("the page is there");
    }

    /// The first error that the program noticed.
    pub(crate) fn what(&self) -> String {
        let mut bytes = [0; 256];
        self.0.read_exact_at(&mut bytes, 72).expect("the page is there");
        String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
    }
}
