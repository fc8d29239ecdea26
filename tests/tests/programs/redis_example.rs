//! `examples/redis`: Redis from the Debian source package, instrumented and built with our `dtrace` and `sys/sdt.h`,
//! served requests and watched by nopal, readelf and bpftrace.

use nopal_tests::process::{Running, free_port, wait_until};
use nopal_tests::{debian, nopal, root, run, scratch, target_dir};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The files the script changes or adds.
const TOUCHED: [&str; 10] = [
    "Makefile",
    "connection.c",
    "db.c",
    "networking.c",
    "redis_dtrace.d",
    "server.c",
    "server.h",
    "t_string.c",
    "trace.h",
    "usdt_hook.h",
];

fn example(name: &str) -> PathBuf {
    root().join("examples/redis").join(name)
}

fn copy_tree(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-rT").arg(from).arg(to));
}

fn instrument(tree: &Path) -> Output {
    let mut script = Command::new(example("instrument"));
    script.arg(tree).output().unwrap_or_else(|e| panic!("{script:?}: {e}"))
}

/// A folder that holds nothing but our `dtrace`.
fn dtrace_folder(name: &str) -> PathBuf {
    let folder = scratch(name);
    std::os::unix::fs::symlink(nopal(), folder.join("dtrace")).expect("a link can be made");
    folder
}

fn make(folder: &Path, dtrace: &Path) -> Command {
    let path = std::env::var("PATH").expect("PATH is set");
    let mut make = Command::new("make");
    make.current_dir(folder)
        .args(["MALLOC=libc", "OPT=-O2"])
        .arg(format!("REDIS_CFLAGS=-I{}", root().join("include").display()))
        .env("PATH", format!("{}:{path}", dtrace.display()))
        // The jobs of a make that runs the tests are not ours to share.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL");
    make
}

/// The instrumented server. Asked for once per run: a build while another test runs the server would take it away.
pub(super) fn server() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build_server).clone()
}

/// Builds anew only if something that goes into the server has changed.
fn build_server() -> PathBuf {
    let lab = target_dir().join("lab");
    fs::create_dir_all(&lab).expect("the lab folder can be made");
    let lock = fs::File::create(lab.join("redis-usdt.lock")).expect("the lock file can be made");
    lock.lock().expect("the lock can be taken");
    let source = debian::source("redis");
    let dtrace = dtrace_folder("redis-dtrace");

    let mut ingredients =
        run(Command::new(dtrace.join("dtrace")).args(["-h", "-o", "-", "-s"]).arg(example("redis.d")));
    let headers = [root().join("include/sys/sdt.h"), root().join("include/sys/sdt-config.h")];
    for file in
        ["instrument", "usdt.mk", "trace.h", "hook.h", "redis.d"].map(example).into_iter().chain(headers)
    {
        ingredients += &fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }
    let tree = lab.join("redis-usdt");
    let stamp = lab.join("redis-usdt.stamp");
    let server = tree.join("src/redis-server");
    if server.exists() && fs::read_to_string(&stamp).is_ok_and(|old| old == ingredients) {
        return server;
    }
    if tree.exists() {
        fs::remove_dir_all(&tree).expect("the old tree can be removed");
    }
    copy_tree(&source, &tree);
    let done = instrument(&tree);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    run(make(&tree.join("src"), &dtrace).args(["-j2", "BUILD_USDT=yes", "redis-server"]));
    fs::write(&stamp, ingredients).expect("the stamp can be written");
    server
}

/// A server on loopback that keeps nothing.
pub(super) fn start(server: &Path, name: &str, options: &[&str]) -> (Running, u16) {
    let port = free_port();
    let running = Running::start(
        Command::new(server)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .args(options)
            .current_dir(scratch(name))
            .stdout(Stdio::null()),
    );
    wait_until("redis-server listens", 30, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (running, port)
}

/// Sends one command and reads its reply, as deep as these tests need.
pub(super) fn ask(connection: &mut BufReader<TcpStream>, command: &str) -> String {
    connection.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("redis-server reads");
    let mut reply = String::new();
    read_reply(connection, &mut reply);
    reply
}

fn read_reply(connection: &mut BufReader<TcpStream>, reply: &mut String) {
    let mut line = String::new();
    connection.read_line(&mut line).expect("redis-server answers");
    reply.push_str(line.trim_end());
    reply.push(' ');
    let count = line.get(1..).and_then(|n| n.trim_end().parse::<i64>().ok());
    match (line.as_bytes().first(), count) {
        (Some(b'$'), Some(length)) if length >= 0 => {
            let mut text = String::new();
            connection.read_line(&mut text).expect("redis-server answers");
            reply.push_str(text.trim_end());
            reply.push(' ');
        }
        (Some(b'*'), Some(n_elements)) => (0..n_elements).for_each(|_| read_reply(connection, reply)),
        _ => {}
    }
}

/// Probe names and the operands of each site, as readelf prints them.
fn notes(file: &Path) -> Vec<(String, String)> {
    let text = run(Command::new("readelf").arg("-n").arg(file));
    let mut notes = Vec::new();
    let mut name = "";
    for line in text.lines().map(str::trim) {
        if let Some(value) = line.strip_prefix("Name: ") {
            name = value;
        } else if let Some(value) = line.strip_prefix("Arguments:") {
            notes.push((name.to_owned(), value.trim().to_owned()));
        }
    }
    notes
}

#[test]
fn the_wrappers_are_what_nopal_dtrace_generates() {
    let generated = run(Command::new(nopal())
        .args(["dtrace", "--wrap", "TRACE", "--guard", "USE_USDT", "--header", "redis_dtrace.h"])
        .args(["-o", "-", "-s"])
        .arg(example("redis.d")));
    let committed = fs::read_to_string(example("trace.h")).expect("examples/redis has trace.h");
    assert_eq!(committed, generated);
}

#[test]
fn the_catalog_describes_the_same_probes() {
    let example = fs::read_to_string(example("redis.d")).expect("examples/redis has redis.d");
    let catalog =
        fs::read_to_string(root().join("core/nopal-provider/catalog/redis.d")).expect("the catalog has it");
    assert_eq!(example, catalog);
}

#[test]
fn a_second_run_changes_nothing() {
    let source = debian::source("redis");
    let tree = scratch("redis-twice");
    copy_tree(&source.join("src"), &tree.join("src"));
    let read = || TOUCHED.map(|f| fs::read_to_string(tree.join("src").join(f)).unwrap_or_default());
    let pristine = read();
    assert!(instrument(&tree).status.success());
    let first = read();
    for (i, file) in TOUCHED.iter().enumerate() {
        assert_ne!(pristine[i], first[i], "{file} was not changed");
    }
    assert!(instrument(&tree).status.success());
    assert_eq!(first, read());
}

#[test]
fn a_tree_that_does_not_match_is_refused_and_left_alone() {
    let source = debian::source("redis");
    let cases = [
        (
            "db.c",
            "    /* Fire the flushdb modules event. */\n",
            "",
            "`emptyData` has 0 lines `    /* Fire the flushdb modules event. */`",
        ),
        ("server.c", "void call(client *c, int flags) {", "void gone(client *c) {", "no function `call`"),
        ("Makefile", "# redis-server\n", "# the server\n", "no `# redis-server` rule"),
    ];
    for (file, from, to, complaint) in cases {
        let tree = scratch("redis-mismatch");
        copy_tree(&source.join("src"), &tree.join("src"));
        let path = tree.join("src").join(file);
        let text = fs::read_to_string(&path).expect("the file is there");
        assert!(text.contains(from), "{file}: {from}");
        fs::write(&path, text.replacen(from, to, 1)).expect("the file can be written");
        let read = || TOUCHED.map(|f| fs::read_to_string(tree.join("src").join(f)).unwrap_or_default());
        let before = read();
        let output = instrument(&tree);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{file}");
        assert!(stderr.contains(complaint) && stderr.contains(file), "{file}: {stderr}");
        assert_eq!(before, read(), "{file}");
    }
    let output = instrument(Path::new("/usr/include"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("not a Redis source tree"), "{stderr}");
}

#[test]
fn without_build_usdt_nothing_is_compiled_in() {
    let source = debian::source("redis");
    let dtrace = dtrace_folder("redis-plain-dtrace");
    let tree = scratch("redis-plain");
    copy_tree(&source, &tree);
    assert!(instrument(&tree).status.success());
    let src = tree.join("src");
    let plan = run(make(&src, &dtrace).args(["-n", "redis-server"]));
    for word in ["USE_USDT", "dtrace -", "redis_dtrace.o "] {
        assert!(!plan.contains(word), "a plain make uses {word}");
    }
    for (flag, n_notes) in [("-UUSE_USDT", 0), ("-DUSE_USDT", 6)] {
        if n_notes > 0 {
            run(Command::new(dtrace.join("dtrace"))
                .args(["-h", "-s", "redis_dtrace.d", "-o", "redis_dtrace.h"])
                .current_dir(&src));
        }
        run(Command::new("cc")
            .args(["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"])
            .args(["-O2", flag, "-DREDIS_STATIC=", "-I"])
            .arg(root().join("include"))
            .args([
                "-I../deps/hiredis",
                "-I../deps/linenoise",
                "-I../deps/lua/src",
                "-I../deps/hdr_histogram",
            ])
            .args(["-c", "db.c", "-o", "db.o"])
            .current_dir(&src));
        let object = src.join("db.o");
        assert_eq!(notes(&object).len(), n_notes, "{flag}");
        let symbols = run(Command::new("nm").arg(&object));
        assert_eq!(symbols.contains("semaphore"), n_notes > 0, "{flag}: {symbols}");
    }
}

#[test]
fn every_declared_probe_is_in_the_server() {
    let server = server();
    let mut found: Vec<String> = notes(&server).into_iter().map(|(name, _)| name).collect();
    found.sort();
    found.dedup();
    let declared = nopal_provider::catalog::provider("redis").expect("redis is in the catalog");
    let mut expected: Vec<String> = declared.probes.iter().map(|p| p.name.clone()).collect();
    expected.sort();
    assert_eq!(found, expected);
    for (name, operands) in notes(&server) {
        let n_args = declared.probe(&name).map_or(0, |p| p.args.len());
        assert_eq!(operands.split_whitespace().count(), n_args, "{name}: {operands}");
    }
}

#[test]
fn nopal_lists_the_probes_of_the_file_and_of_the_process() {
    let server = server();
    let (running, _) = start(&server, "redis-list", &[]);
    let pid = running.pid().to_string();
    for target in [vec![server.to_str().expect("the path is text")], vec!["-p", &pid]] {
        let json = run(Command::new(nopal()).args(["list", "--json"]).args(&target).arg("redis:call__*"));
        let probes: serde_json::Value = serde_json::from_str(&json).expect("--json prints JSON");
        let probes = probes.as_array().expect("a list of probes");
        let names: Vec<_> = probes.iter().map(|p| p["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["call__end", "call__start"], "{target:?}");
        let expected = notes(&server);
        for probe in probes {
            assert_eq!(probe["provider"], "redis");
            let sites = probe["sites"].as_array().expect("a list of sites");
            assert_eq!(sites.len(), 1, "{probe}");
            assert_eq!(sites[0]["args"][0]["name"], "id", "{probe}");
            assert_eq!(sites[0]["args"][0]["type"], "int", "{probe}");
            let operand = sites[0]["args"][0]["operand"].as_str().unwrap_or_default().to_owned();
            let name = probe["name"].as_str().unwrap_or_default().to_owned();
            assert!(expected.contains(&(name, operand)), "{probe}");
        }
    }
}

/// What bpftrace sees of these requests, each line a hit.
const SCRIPT: &str = r#"
BEGIN { printf("ready\n"); }
usdt:SERVER:redis:call__start { printf("start %d\n", arg0); }
usdt:SERVER:redis:call__end { printf("end %d\n", arg0); }
usdt:SERVER:redis:process__command__start { printf("command %s %d\n", str(arg1, arg2 + 1), arg3); }
usdt:SERVER:redis:command__set { printf("set %s %d %d\n", str(arg1, arg2 + 1), arg2, arg3); }
usdt:SERVER:redis:command__get { printf("get %s %d\n", str(arg1, arg2 + 1), arg3); }
usdt:SERVER:redis:command__mget__end { printf("mget %d\n", arg1); }
usdt:SERVER:redis:command__del { printf("del %s %d\n", str(arg1, arg2 + 1), arg3); }
usdt:SERVER:redis:db__add__key { printf("add %d %s\n", arg0, str(arg1, arg2 + 1)); }
usdt:SERVER:redis:db__overwrite__key { printf("overwrite %d %s\n", arg0, str(arg1, arg2 + 1)); }
usdt:SERVER:redis:db__delete__key { printf("delete %d %s\n", arg0, str(arg1, arg2 + 1)); }
usdt:SERVER:redis:db__flush__end { printf("flushed %d %d\n", arg0, arg2); }
"#;

#[test]
fn bpftrace_sees_the_right_values() {
    let server = server();
    let (running, port) = start(&server, "redis-bpftrace", &[]);
    let output = scratch("redis-bpftrace-output").join("hits");
    let script = SCRIPT.replace("SERVER", server.to_str().expect("the path is text"));
    let tracer = Running::start(
        Command::new("bpftrace")
            .args(["-B", "line", "-p", &running.pid().to_string(), "-e", &script])
            .stdout(fs::File::create(&output).expect("the output file can be made")),
    );
    let hits = || fs::read_to_string(&output).unwrap_or_default();
    wait_until("bpftrace is attached", 60, || hits().lines().any(|l| l == "ready"));

    let stream = TcpStream::connect(("127.0.0.1", port)).expect("redis-server listens");
    let mut connection = BufReader::new(stream);
    let requests = [
        ("SET nopal:first hello", "+OK "),
        ("SET nopal:first hello-again", "+OK "),
        ("GET nopal:first", "$11 hello-again "),
        ("GET nopal:none", "$-1 "),
        ("MGET nopal:first nopal:none nopal:third", "*3 $11 hello-again $-1 $-1 "),
        ("DEL nopal:first nopal:none", ":1 "),
        ("SELECT 3", "+OK "),
        ("SET nopal:second 1234567", "+OK "),
        ("FLUSHDB", "+OK "),
    ];
    for (request, reply) in requests {
        assert_eq!(ask(&mut connection, request), reply, "{request}");
    }
    wait_until("the last hit is printed", 30, || {
        hits().lines().filter(|l| l.starts_with("end ")).count() >= requests.len()
    });
    drop(tracer);

    let hits = hits();
    let of = |word: &str| -> Vec<&str> {
        hits.lines().filter_map(|l| l.strip_prefix(word).and_then(|l| l.strip_prefix(' '))).collect()
    };
    let ids = of("start");
    assert_eq!(ids, of("end"), "{hits}");
    assert_eq!(ids.len(), requests.len(), "{hits}");
    // One number for each command, the same whenever that command is called.
    for (i, (one, _)) in requests.iter().enumerate() {
        for (j, (other, _)) in requests.iter().enumerate() {
            let is_same = one.split(' ').next() == other.split(' ').next();
            assert_eq!(ids[i] == ids[j], is_same, "{one} and {other}: {ids:?}");
        }
    }
    let commands: Vec<String> = requests
        .iter()
        .map(|(r, _)| format!("{} {}", r.split(' ').next().unwrap_or_default(), r.split(' ').count()))
        .collect();
    assert_eq!(of("command"), commands, "{hits}");
    assert_eq!(of("set"), ["nopal:first 11 5", "nopal:first 11 11", "nopal:second 12 7"], "{hits}");
    assert_eq!(of("get"), ["nopal:first 11", "nopal:none -1"], "{hits}");
    assert_eq!(of("mget"), ["3"], "{hits}");
    assert_eq!(of("del"), ["nopal:first 1", "nopal:none 0"], "{hits}");
    assert_eq!(of("add"), ["0 nopal:first", "3 nopal:second"], "{hits}");
    assert_eq!(of("overwrite"), ["0 nopal:first"], "{hits}");
    assert_eq!(of("delete"), ["0 nopal:first"], "{hits}");
    assert_eq!(of("flushed"), ["3 1"], "{hits}");
}
