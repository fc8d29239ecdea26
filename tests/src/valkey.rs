//! Valkey with its own tracepoints, built with our headers; a server of it, and loads that reach all its providers.

use crate::process::{Running, free_port, wait_until};
use crate::{debian, lab, lttng, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The suite with Valkey 9.1.
const SUITE: &str = "sid";

/// Valkey's source tree, pristine, or why it cannot be had.
pub fn source() -> Result<PathBuf, String> {
    debian::source_from(SUITE, "valkey")
}

/// A folder with valkey-server, valkey-cli and valkey-benchmark, and what the compiler said. `USE_LTTNG=yes make` as its
/// README has it, with nothing but paths to our headers and library; malloc is libc's, since building another one takes
/// as long as Valkey itself.
pub fn build() -> Result<PathBuf, String> {
    let source = source()?;
    let installed = lttng::installed();
    Ok(lab::cached("valkey", &lttng::ingredients(), |folder| {
        let tree = folder.join("tree");
        fs::create_dir_all(&tree).expect("the folder can be made");
        lab::copy_tree(&source, &tree);
        let output = Command::new("make")
            .args(["-j2", "MALLOC=libc", "valkey-server", "valkey-cli", "valkey-benchmark"])
            .current_dir(tree.join("src"))
            .env("USE_LTTNG", "yes")
            .env("CFLAGS", format!("-I{}", installed.join("include").display()))
            .env("LDFLAGS", format!("-L{}", installed.join("lib").display()))
            .output()
            .expect("make can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        fs::write(folder.join("said"), said).expect("the messages can be kept");
        for program in ["valkey-server", "valkey-cli", "valkey-benchmark"] {
            let built = tree.join("src").join(program);
            run(Command::new("cp").arg(&built).arg(folder.join(program)));
        }
        fs::remove_dir_all(&tree).expect("the tree can be removed");
    }))
}

/// A running server with a folder of its own.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    running: Running,
    port: u16,
}

impl Server {
    /// Starts `valkey-server` in `dir` with these options, and waits until it answers.
    pub fn start(programs: &Path, dir: &Path, options: &[&str]) -> Server {
        let port = free_port();
        let log = fs::File::create(dir.join("server.log")).expect("the log can be made");
        let running = Running::start(
            Command::new(programs.join("valkey-server"))
                .args(["--port", &port.to_string(), "--save", "", "--dir"])
                .arg(dir)
                .args(options)
                .stdout(Stdio::from(log)),
        );
        let server = Server { programs: programs.to_owned(), running, port };
        wait_until("valkey-server answers", 30, || server.cli(&["PING"]) == "PONG");
        server
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What valkey-cli prints.
    pub fn cli(&self, words: &[&str]) -> String {
        let output = Command::new(self.programs.join("valkey-cli"))
            .args(["-p", &self.port.to_string()])
            .args(words)
            .output()
            .expect("valkey-cli can be run");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Commands as people give them: SET, GET, KEYS.
    pub fn drive_commands(&self) {
        for n in 0..50 {
            let (key, value) = (format!("key:{n}"), format!("value {n}"));
            assert_eq!(self.cli(&["SET", &key, &value]), "OK");
            assert_eq!(self.cli(&["GET", &key]), value);
        }
        assert_eq!(self.cli(&["KEYS", "key:*"]).lines().count(), 50);
    }

    /// Keys that expire, and keys that have to go for lack of memory.
    pub fn drive_database(&self) {
        for n in 0..20 {
            assert_eq!(self.cli(&["SET", &format!("brief:{n}"), "x", "PX", "20"]), "OK");
        }
        wait_until("the brief keys expire", 20, || self.cli(&["KEYS", "brief:*"]).is_empty());
        for n in 0..200 {
            self.cli(&["SET", &format!("large:{n}"), &"x".repeat(10_000)]);
        }
        assert_eq!(self.cli(&["CONFIG", "SET", "maxmemory", "2mb", "maxmemory-policy", "allkeys-lru"]), "OK");
        self.cli(&["SET", "one:more", &"x".repeat(10_000)]);
        wait_until("keys are evicted", 20, || self.cli(&["DBSIZE"]).parse().is_ok_and(|n: u32| n < 200));
        assert_eq!(self.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    }

    /// The log of commands, rewritten once; the snapshot, in the background and in between.
    pub fn drive_files(&self, dir: &Path) {
        assert_eq!(self.cli(&["CONFIG", "SET", "appendfsync", "always"]), "OK");
        assert_eq!(self.cli(&["CONFIG", "SET", "appendonly", "yes"]), "OK");
        wait_until("the log is being written", 20, || {
            self.cli(&["INFO", "persistence"]).contains("aof_rewrite_in_progress:0")
        });
        for n in 0..20 {
            assert_eq!(self.cli(&["SET", &format!("logged:{n}"), "x"]), "OK");
        }
        assert!(!self.cli(&["BGREWRITEAOF"]).contains("ERR"));
        wait_until("the log is rewritten", 20, || {
            self.cli(&["INFO", "persistence"]).contains("aof_rewrite_in_progress:0")
        });
        assert!(self.cli(&["BGSAVE"]).contains("started"));
        wait_until("the snapshot is written", 20, || dir.join("dump.rdb").exists());
        wait_until("its child has ended", 20, || {
            self.cli(&["INFO", "persistence"]).contains("rdb_bgsave_in_progress:0")
        });
    }

    /// What changes the file of a cluster's configuration.
    pub fn drive_cluster(&self) {
        assert_eq!(self.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "OK");
        assert_eq!(self.cli(&["CLUSTER", "BUMPEPOCH"]).split(' ').next(), Some("BUMPED"));
        assert_eq!(self.cli(&["CLUSTER", "SAVECONFIG"]), "OK");
    }
}
