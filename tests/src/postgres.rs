//! A private PostgreSQL of Debian's build in a folder of its own, run by the user `postgres`.

use crate::process::{Running, wait_until};
use crate::run;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// A server that ends with the test.
#[derive(Debug)]
pub struct Postgres {
    running: Running,
    folder: PathBuf,
}

/// A command by the user `postgres` if we are root, since PostgreSQL refuses root.
fn command(program: &str) -> Command {
    let program = format!("{PROGRAMS}/{program}");
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", &program]);
    command
}

impl Postgres {
    pub fn start(name: &str) -> Postgres {
        Postgres::start_with(name, &[])
    }

    /// With more options of the server.
    pub fn start_with(name: &str, options: &[&str]) -> Postgres {
        // The user postgres cannot reach the build folder of root.
        let folder = std::env::temp_dir().join(format!("nopal-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for the server");
        if let Ok(id) = Command::new("id").args(["-u", "postgres"]).output() {
            // Fails only for an ordinary user, who owns it already.
            let _ = chown(&folder, String::from_utf8_lossy(&id.stdout).trim().parse().ok(), None);
        }
        let data = folder.join("data");
        run(command("initdb").args(["-A", "trust", "--no-sync", "-D"]).arg(&data));
        let mut server = command("postgres");
        server.arg("-D").arg(&data).args(["-h", "", "-c", "fsync=off", "-k"]).arg(&folder).args(options);
        let running = Running::start(server.stdout(Stdio::null()).stderr(Stdio::null()));
        let postgres = Postgres { running, folder };
        let answers = || {
            postgres
                .client("psql")
                .args(["-Atqc", "select 1", "postgres"])
                .output()
                .is_ok_and(|o| o.status.success())
        };
        wait_until("PostgreSQL answers", 60, answers);
        postgres
    }

    /// The process all others are children of.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// One of its programs, told where the server is.
    pub fn client(&self, program: &str) -> Command {
        let mut command = command(program);
        command.arg("-h").arg(&self.folder).args(["-U", "postgres"]);
        command
    }

    /// One statement on a connection of its own.
    pub fn query(&self, text: &str) -> String {
        run(self.client("psql").args(["-AtqXc", text, "postgres"]))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SAFETY: a pid we started and have not reaped. SIGINT is its fast shutdown.
        unsafe { libc::kill(self.running.pid() as i32, libc::SIGINT) };
        let _ = self.running.0.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A connection that is kept.
#[derive(Debug)]
pub struct Connection {
    session: Running,
    answers: BufReader<ChildStdout>,
}

impl Connection {
    pub fn open(postgres: &Postgres) -> Connection {
        let mut command = postgres.client("psql");
        command.args(["-qAtX", "postgres"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = Running(command.spawn().expect("psql starts"));
        let answers = BufReader::new(session.0.stdout.take().expect("a pipe"));
        let mut connection = Connection { session, answers };
        assert_eq!(connection.ask("select 1"), "1");
        connection
    }

    /// Sends a statement that answers one line.
    pub fn ask(&mut self, statement: &str) -> String {
        let input = self.session.0.stdin.as_mut().expect("a pipe");
        input.write_all(format!("{statement};\n").as_bytes()).expect("psql reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("psql answers");
        line.trim().to_owned()
    }
}
