//! Valkey 9.1, whose tracing was written for LTTng: built with our headers as its README says, run, listed, traced.

use nopal_tests::valkey::{self, Server};
use nopal_tests::{lttng, nopal, run, scratch};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The providers and events that Valkey's README lists.
const EVENTS: [(&str, &[&str]); 6] = [
    ("valkey_commands", &["command_call"]),
    (
        "valkey_server",
        &[
            "eventloop",
            "eventloop_cron",
            "while_blocked_cron",
            "module_acquire_gil",
            "command_unblocking",
            "fast_command",
            "command",
        ],
    ),
    (
        "valkey_db",
        &[
            "expire_del",
            "active_defrag_cycle",
            "eviction_del",
            "eviction_lazyfree",
            "eviction_cycle",
            "expire_cycle",
            "expire_cycle_keys",
            "expire_cycle_fields",
        ],
    ),
    (
        "valkey_cluster",
        &[
            "fork",
            "cluster_config_open",
            "cluster_config_write",
            "cluster_config_fsync",
            "cluster_config_rename",
            "cluster_config_dir_fsync",
            "cluster_config_close",
            "cluster_config_unlink",
        ],
    ),
    ("valkey_rdb", &["fork", "rdb_unlink_temp_file"]),
    (
        "valkey_aof",
        &[
            "fork",
            "aof_write_pending_fsync",
            "aof_write_active_child",
            "aof_write_alone",
            "aof_write",
            "aof_fsync_always",
            "aof_fstat",
            "aof_rename",
            "aof_flush",
        ],
    ),
];

/// The built programs; `None`, with the reason said, where the source package cannot be had.
fn programs() -> Option<std::path::PathBuf> {
    valkey::build().map_err(|reason| eprintln!("skipped: no source package of Valkey: {reason}")).ok()
}

/// The commands of Valkey's README with `lttng` replaced by `nopal`, and all providers.
fn record(server: &Server, recording: &Path, load: impl FnOnce()) {
    let home = recording.with_extension("home");
    let nopal = |line: &[&str]| {
        let mut command = Command::new(nopal());
        command.args(line).env("NOPAL_HOME", &home);
        command
    };
    let unknown = nopal(&["destroy", "valkey"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(10), "there is none yet, which is harmless");
    run(&mut nopal(&["create", "valkey", "--output", recording.to_str().unwrap()]));
    for (provider, _) in EVENTS {
        run(&mut nopal(&["enable-event", "-u", &format!("{provider}:*")]));
    }
    run(&mut nopal(&["track", "-u", "-p", &server.pid().to_string()]));
    run(&mut nopal(&["start"]));
    load();
    let stopped = run(&mut nopal(&["stop"]));
    assert!(stopped.contains("complete"), "{stopped}");
    assert!(!run(&mut nopal(&["view"])).is_empty());
    run(&mut nopal(&["destroy", "valkey"]));
}

#[test]
fn list_shows_all_events_with_their_fields() {
    let Some(programs) = programs() else { return };
    let dir = scratch("valkey-list");
    let server = Server::start(&programs, &dir, &[]);
    let text =
        run(Command::new(nopal()).args(["list", "--json", "-p", &server.pid().to_string(), "valkey_*:*"]));
    let probes: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for probe in probes.as_array().unwrap() {
        let name = format!("{}:{}", probe["provider"].as_str().unwrap(), probe["name"].as_str().unwrap());
        assert!(!probe["sites"][0]["semaphore"].is_null(), "{name}");
        let fields = probe["fields"].as_array().unwrap().iter();
        let field = |f: &serde_json::Value| {
            format!("{} {}", f["type"].as_str().unwrap(), f["name"].as_str().unwrap())
        };
        listed.insert(name, fields.map(field).collect());
    }
    let wanted: BTreeMap<String, Vec<String>> = EVENTS
        .iter()
        .flat_map(|(provider, events)| events.iter().map(move |event| (provider, event)))
        .map(|(provider, event)| {
            let fields: &[&str] = match *event {
                "command_call" => &[
                    "int enum_field",
                    "const char * addr",
                    "const char * laddr",
                    "const char * name",
                    "uint64_t duration",
                ],
                _ => &["uint64_t duration"],
            };
            (format!("{provider}:{event}"), fields.iter().map(|&f| f.to_owned()).collect())
        })
        .collect();
    assert_eq!(wanted.len(), 35);
    assert_eq!(listed, wanted);
    let text =
        run(Command::new(nopal()).args(["list", "-v", "-p", &server.pid().to_string(), "valkey_commands:*"]));
    assert!(text.contains("enum_field: 0 SOCKET, 1 UNIX, 2 TLS, 3 RDMA"), "{text}");
}

#[test]
fn every_providers_events_are_recorded() {
    let Some(programs) = programs() else { return };
    let dir = scratch("valkey-record");
    let server = Server::start(&programs, &dir, &[]);
    let recording = dir.join("alone");
    record(&server, &recording, || {
        server.drive_commands();
        server.drive_database();
        server.drive_files(&dir);
    });
    drop(server);
    let cluster_dir = dir.join("cluster");
    std::fs::create_dir_all(&cluster_dir).unwrap();
    let server = Server::start(&programs, &cluster_dir, &["--cluster-enabled", "yes"]);
    let of_cluster = dir.join("of-cluster");
    record(&server, &of_cluster, || server.drive_cluster());
    drop(server);

    let events = lttng::events(&recording);
    let mut seen: BTreeSet<&str> = events.iter().filter_map(|event| event.split(": {").next()).collect();
    let more = lttng::events(&of_cluster);
    seen.extend(more.iter().filter_map(|event| event.split(": {").next()));
    for event in [
        "valkey_commands:command_call",
        "valkey_server:eventloop",
        "valkey_server:eventloop_cron",
        "valkey_server:command",
        "valkey_server:fast_command",
        "valkey_db:expire_cycle",
        "valkey_db:expire_del",
        "valkey_db:eviction_cycle",
        "valkey_db:eviction_del",
        "valkey_cluster:cluster_config_open",
        "valkey_cluster:cluster_config_write",
        "valkey_cluster:cluster_config_rename",
        "valkey_cluster:cluster_config_close",
        "valkey_rdb:fork",
        "valkey_aof:fork",
        "valkey_aof:aof_write",
        "valkey_aof:aof_fsync_always",
        "valkey_aof:aof_rename",
    ] {
        assert!(seen.contains(event), "{event} is not among {seen:?}");
    }
    // As many as the client sent, in the shape that LTTng prints.
    let calls = |name: &str| -> Vec<&String> {
        let part = format!(", name = \"{name}\", duration = ");
        let is_call =
            |event: &&String| event.starts_with("valkey_commands:command_call: {") && event.contains(&part);
        events.iter().filter(is_call).collect()
    };
    assert_eq!(calls("get").len(), 50);
    assert!(calls("set").len() >= 50 + 20 + 201 + 20);
    assert_eq!(calls("bgsave").len(), 1);
    for call in [calls("get"), calls("keys")].concat() {
        let is_call = call.contains("{ enum_field = ( \"SOCKET\" : container = 0 ), addr = \"127.0.0.1:")
            && call.contains("\", laddr = \"127.0.0.1:");
        assert!(is_call, "{call}");
    }
    // `nopal view` prints the document's line, with the fields that 9.1 added.
    let view = run(Command::new(nopal()).arg("view").arg(&recording));
    let line = view.lines().find(|line| line.contains("name = \"keys\"")).expect("KEYS was given");
    let (time, rest) = line.split_once("] (+").expect("[time] (+delta)");
    assert!(time.starts_with('[') && time.len() == "[15:30:19.334467738".len(), "{line}");
    let (_, rest) = rest.split_once(") ").expect("a host after the delta");
    let (_, rest) = rest.split_once(' ').expect("a probe after the host");
    assert!(rest.starts_with("valkey_commands:command_call: { cpu_id = "), "{line}");
    assert!(rest.ends_with(" }") && rest.contains(", duration = "), "{line}");
}

/// The warnings that the compiler has for Valkey's files about tracing, and for all of Valkey.
#[test]
fn the_headers_bring_no_warning_that_lttngs_do_not() {
    let Some(programs) = programs() else { return };
    let said = std::fs::read_to_string(programs.join("said")).unwrap();
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("warning:")).collect();
    assert_eq!(warnings, Vec::<&str>::new(), "the whole build was quiet");
    let tree = valkey::source().unwrap().join("src");
    let dir = scratch("valkey-warnings");
    let compile = |include: &[String], label: &str| {
        let mut said = String::new();
        for file in
            ["trace", "trace_aof", "trace_cluster", "trace_commands", "trace_db", "trace_rdb", "trace_server"]
        {
            let output = Command::new("gcc")
                .args(["-std=gnu11", "-pedantic", "-Wall", "-W", "-Wextra", "-O3", "-DUSE_LTTNG", "-c"])
                .args(include)
                .args(["-I", ".", "-I", "trace", "-o"])
                .arg(dir.join(format!("{label}-{file}.o")))
                .arg(format!("trace/{file}.c"))
                .current_dir(&tree)
                .output()
                .unwrap();
            said.push_str(&String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{said}");
        }
        said.lines().filter(|line| line.contains("warning:")).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let theirs = compile(&[], "theirs");
    let ours = compile(&lttng::ours()[..1], "ours");
    assert_eq!(ours.difference(&theirs).collect::<Vec<_>>(), Vec::<&String>::new());
}
