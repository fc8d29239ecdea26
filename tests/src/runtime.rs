//! Programs with probes that are declared while they run: the libraries, and a program that does what it is told.

use crate::process::Running;
use crate::{root, run, scratch, target_dir};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// The folder with `libnopal.so`, `libstapsdt.so` and `libstapsdt.so.0`, built anew once per test binary.
pub fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        run(Command::new(cargo)
            .args(["build", "--quiet", "-p", "nopal-c", "-p", "nopal-stapsdt"])
            .current_dir(root()));
        // Each test binary has its own: cargo may write the file anew while another program maps it.
        let folder = scratch(&format!("runtime-libraries-{}", std::process::id()));
        for (built, name) in [
            ("libnopal.so", "libnopal.so"),
            ("libstapsdt.so", "libstapsdt.so"),
            ("libstapsdt.so", "libstapsdt.so.0"),
        ] {
            crate::copy_program(&target_dir().join("debug").join(built), &folder.join(name));
        }
        folder
    })
}

/// Compiles `tests/fixtures/runtime/NAME.c`, with warnings as errors, and links it with libraries of [`libraries`].
pub fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let source = root().join(format!("tests/fixtures/runtime/{name}.c"));
    let folder = scratch(&format!("runtime-{name}-{}", std::process::id()));
    let (search, place) =
        (format!("-L{}", libraries().display()), format!("-Wl,-rpath,{}", libraries().display()));
    let mut all = vec!["-O2", "-pthread", "-D_GNU_SOURCE", &search, &place];
    all.extend(flags);
    let program = folder.join(name);
    run(Command::new("gcc")
        .args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(source)
        .args(all)
        .arg("-o")
        .arg(&program));
    program
}

/// `tests/fixtures/runtime/talk.c`, running.
#[derive(Debug)]
pub struct Talk {
    pub process: Running,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Talk {
    pub fn start() -> Talk {
        Talk::with(&mut Command::new(Talk::program()))
    }

    /// Compiled once: the tests that share it run at the same time.
    pub fn program() -> &'static Path {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        PROGRAM.get_or_init(|| compile("talk", &["-lnopal"]))
    }

    /// The program under another one.
    pub fn with(command: &mut Command) -> Talk {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let hears = child.stdin.take().expect("standard input is a pipe");
        let says = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        Talk { process: Running(child), says, hears }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Says a line and returns the answer.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.hears, "{line}").unwrap_or_else(|e| panic!("{line}: {e}"));
        let mut answer = String::new();
        self.says.read_line(&mut answer).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(answer.ends_with('\n'), "{line}: the program has ended: {:?}", self.process.0.try_wait());
        answer.trim_end().to_owned()
    }

    /// Says lines of which each must be answered as stated.
    #[track_caller]
    pub fn expect(&mut self, lines: &[(&str, &str)]) {
        for (line, want) in lines {
            assert_eq!(self.ask(line), *want, "{line}");
        }
    }
}
