//! Real programs that do a bounded piece of work when they are asked to, with a result that is the same each time.

use crate::postgres::{Connection, Postgres};
use crate::process::{Running, free_port, wait_until};
use crate::{root, run, scratch, target_dir};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

pub trait AtWork {
    /// Which process a tracer is given: the process, or the one all others are children of.
    fn pid(&self) -> u32;

    /// Who does what is counted.
    fn worker(&self) -> u32 {
        self.pid()
    }

    /// What came of it.
    fn work(&mut self) -> String;
}

/// A source of `tests/fixtures/thousand`.
fn source(name: &str) -> PathBuf {
    root().join("tests/fixtures/thousand").join(name)
}

/// A program that does its work once for each line that it reads, and answers with a line.
#[derive(Debug)]
pub struct Asked {
    running: Running,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Asked {
    pub fn start(command: &mut Command) -> Asked {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (questions, answers) = (child.stdin.take(), child.stdout.take());
        let running = Running(child);
        Asked {
            running,
            questions: questions.expect("a pipe"),
            answers: BufReader::new(answers.expect("a pipe")),
        }
    }

    pub fn python() -> Asked {
        let mut command = Command::new("/usr/bin/python3.11");
        // Texts hash alike in every run.
        Asked::start(command.arg(source("work.py")).env("PYTHONHASHSEED", "0"))
    }

    /// OpenSSL, called by Python's modules.
    pub fn openssl(name: &str) -> Asked {
        let folder = scratch(name);
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-keyout"]);
        command.arg(folder.join("key")).arg("-out").arg(folder.join("cert"));
        run(command.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]));
        Asked::start(Command::new("/usr/bin/python3.11").arg(source("tls.py")).arg(folder))
    }

    pub fn ruby() -> Asked {
        Asked::start(Command::new("/usr/bin/ruby").arg(source("work.rb")))
    }

    pub fn java(name: &str) -> Asked {
        let folder = scratch(name);
        run(Command::new("javac").arg("-d").arg(&folder).arg(source("Work.java")));
        Asked::start(
            Command::new("java").arg("-XX:+UseG1GC").arg("-Xmx64m").arg("-cp").arg(folder).arg("Work"),
        )
    }
}

impl AtWork for Asked {
    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn work(&mut self) -> String {
        self.questions.write_all(b"work\n").expect("the program reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the program answers");
        if line.is_empty() {
            panic!("it has ended: {:?}", self.running.0.wait());
        }
        line
    }
}

/// The HTTP server of Go, with addresses of its own (`pie`) or with fixed ones (`exe`).
pub fn go_server(mode: &str) -> PathBuf {
    let folder = target_dir().join("lab/go");
    fs::create_dir_all(&folder).expect("the lab folder can be made");
    let lock = fs::File::create(folder.join("lock")).expect("the lock file can be made");
    lock.lock().expect("the lock can be taken");
    let program = folder.join(format!("server-{mode}"));
    let mut command = Command::new("go");
    command.args(["build", &format!("-buildmode={mode}"), "-o"]).arg(&program).arg(source("work.go"));
    command.env("GOCACHE", folder.join("cache")).env("GOPATH", folder.join("path")).env("CGO_ENABLED", "0");
    run(command.env("GO111MODULE", "off").current_dir(&folder));
    program
}

pub fn rust_program(name: &str) -> PathBuf {
    let program = scratch(name).join("work");
    run(Command::new("rustc").args(["-O", "--edition=2024", "-o"]).arg(&program).arg(source("work.rs")));
    program
}

/// A web server that serves five files, packed and not.
#[derive(Debug)]
pub struct Nginx {
    running: Running,
    folder: PathBuf,
    port: u16,
}

impl Nginx {
    pub fn start(name: &str) -> Nginx {
        let (folder, port) = (scratch(name), free_port());
        let at = folder.display();
        for i in 0..5 {
            let text = format!("{i} line\n").repeat(10_usize.pow(i));
            fs::write(folder.join(format!("file{i}")), text).expect("a file can be written");
        }
        let settings = format!(
            "user root; daemon off; worker_processes 1; pid {at}/pid; error_log {at}/errors; events {{}}
             http {{ access_log {at}/requests; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
             fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
             gzip on; gzip_types *;
             server {{ listen 127.0.0.1:{port}; root {at}; location /old {{ rewrite ^/old/(.*) /$1 redirect; }} }} }}"
        );
        fs::write(folder.join("settings"), settings).expect("a file can be written");
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-p").arg(&folder).arg("-c").arg(folder.join("settings"));
        let running = Running::start(command.arg("-e").arg(folder.join("errors")));
        wait_until("nginx listens", 60, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Nginx { running, folder, port }
    }

    /// First line and body of what it answers.
    fn get(&self, path: &str, more: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("nginx listens");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: here\r\n{more}\r\n").expect("nginx reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("nginx answers");
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a head and a body");
        let head = String::from_utf8_lossy(&answer[..end]).lines().next().unwrap_or_default().to_owned();
        (head, answer.split_off(end + 4))
    }
}

impl AtWork for Nginx {
    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn worker(&self) -> u32 {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it lives");
        children.trim().parse().expect("one worker")
    }

    /// 200 requests.
    fn work(&mut self) -> String {
        let mut said = String::new();
        for _ in 0..20 {
            for i in 0..5 {
                let path = format!("/file{i}");
                let (head, body) = self.get(&path, "");
                assert!(body == fs::read(self.folder.join(&path[1..])).expect("it is there"), "{head}");
                said += &head;
                let (head, packed) = self.get(&path, "Accept-Encoding: gzip\r\n");
                said += &format!("{head} {}\n", packed.len());
            }
            said += &self.get("/none", "").0;
            said += &self.get("/old/file1", "").0;
        }
        said
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SAFETY: a pid we started and have not reaped. SIGTERM ends its worker, too.
        unsafe { libc::kill(self.running.pid() as i32, libc::SIGTERM) };
        let _ = self.running.0.wait();
    }
}

/// A connection to a PostgreSQL of its own.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    server: Postgres,
    backend: u32,
}

impl Database {
    pub fn start(name: &str) -> Database {
        let server = Postgres::start_with(name, &["-c", "autovacuum=off"]);
        server.query("create table t (a int primary key, b text, c numeric)");
        let mut connection = Connection::open(&server);
        let backend = connection.ask("select pg_backend_pid()").parse().expect("a number");
        Database { connection, server, backend }
    }
}

impl AtWork for Database {
    fn pid(&self) -> u32 {
        self.server.pid()
    }

    fn worker(&self) -> u32 {
        self.backend
    }

    /// 3,000 rows put in, changed, sorted and removed, with errors in between; and three connections that come and go.
    fn work(&mut self) -> String {
        let mut said = self.connection.ask(
            "insert into t select i, md5(i::text), i / 7.0 from generate_series(1, 3000) i;
             update t set c = c + 1 where a % 3 = 0; delete from t where a % 5 = 0;
             select count(*), sum(c), md5(string_agg(b, ',' order by a)) from t",
        );
        said += &self.connection.ask(
            "do $$ begin for i in 1..50 loop begin perform 1 / (i % 2); exception when division_by_zero then null;
             end; end loop; end $$;
             select md5(string_agg(y.b, ',' order by x.b)) from t x join t y on x.a = y.a + 1",
        );
        for _ in 0..3 {
            said += &self.server.query("select count(*), max(b) from t");
        }
        said + &self.connection.ask("begin; delete from t; commit; select count(*) from t")
    }
}

/// Files that a process has mapped for running whose bytes in memory are not those of the file.
pub fn changed_code(pid: u32) -> Vec<String> {
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return Vec::new() };
    let Ok(memory) = fs::File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut changed = Vec::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, "r-xp", offset, _, _, path] = words[..] else { continue };
        if !path.starts_with('/') {
            continue;
        }
        let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let (start, end) = range.split_once('-').expect("a range");
        let mut now = vec![0; (hex(end) - hex(start)) as usize];
        let mut then = now.clone();
        use std::os::unix::fs::FileExt as _;
        if memory.read_exact_at(&mut now, hex(start)).is_err() {
            continue; // It has ended meanwhile.
        }
        // The last page may be longer than the file.
        let n = read_what_there_is(Path::new(path), hex(offset), &mut then);
        if now[..n] == then[..n] {
            continue;
        }
        let places: Vec<usize> = (0..n).filter(|at| now[*at] != then[*at]).collect();
        if let Some(first) = places.first() {
            let at = hex(offset) + *first as u64;
            changed.push(format!("{path}: {} bytes, the first at {at:#x} of the file", places.len()));
        }
    }
    changed
}

fn read_what_there_is(path: &Path, offset: u64, into: &mut [u8]) -> usize {
    use std::os::unix::fs::FileExt as _;
    let file = fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut n = 0;
    while n < into.len() {
        match file.read_at(&mut into[n..], offset + n as u64).expect("the file can be read") {
            0 => break,
            more => n += more,
        }
    }
    n
}

/// The process and all that descend from it.
pub fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}
