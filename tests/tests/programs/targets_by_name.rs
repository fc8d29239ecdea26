//! Processes that are named by their program, their control group or their container, instead of by number.

use nopal_tests::containers::{Podman, install, ticker};
use nopal_tests::process::{Cgroup, Running, wait_until};
use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

fn unique(what: &str) -> String {
    format!("{what}{}", std::process::id())
}

/// The numbers of the processes whose events came, and how the trace ended.
fn traced(args: &[&str], n_events: usize) -> (BTreeSet<u64>, Output) {
    let limit = n_events.to_string();
    let output = Command::new(nopal())
        .args(["trace", "--json", "--limit", &limit, "--duration", "60s"])
        .args(args)
        .arg("ticker:tick")
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&output.stdout);
    let pids = lines.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["pid"].as_u64().unwrap_or_else(|| panic!("no pid in {line}"))
    });
    (pids.collect(), output)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_command_that_outlives_its_tracing_is_named() {
    let folder = scratch("targets_outlives");
    let program = ticker(&folder, &unique("long"), &[]);
    let program = program.to_str().unwrap();
    for args in [
        vec!["trace", "--limit", "1", "ticker:tick", "--", program],
        vec!["count", "--duration", "300ms", "ticker:tick", "--", program],
        vec!["record", "-e", "ticker:tick", "-o", "rec", "--duration", "300ms", "--", program],
    ] {
        // A pipe would be open as long as the command runs, which has it, too.
        let file = std::fs::File::create(folder.join("said")).unwrap();
        let mut command = Command::new(nopal());
        command.args(&args).current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        assert!(command.status().unwrap().success(), "{args:?}");
        let said = std::fs::read_to_string(folder.join("said")).unwrap();
        let pid = said.split("the command goes on as process ").nth(1).and_then(|rest| rest.lines().next());
        let pid = pid.unwrap_or_else(|| panic!("{args:?}: {said}"));
        let running = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        assert_eq!(running.to_str(), Some(program), "{args:?}");
        run(Command::new("kill").arg(pid));
    }
}

#[test]
fn all_processes_of_a_program() {
    let folder = scratch("targets_name");
    let name = unique("tick");
    let program = ticker(&folder, &name, &[]);
    let other = ticker(&folder, &unique("other"), &[]);
    let two = [Running::start(&mut Command::new(&program)), Running::start(&mut Command::new(&program))];
    let _other = Running::start(&mut Command::new(other));
    let expected: BTreeSet<u64> = two.iter().map(|one| u64::from(one.pid())).collect();
    for named in [name.as_str(), program.to_str().unwrap()] {
        let (pids, output) = traced(&["-n", named], 200);
        assert_eq!(pids, expected, "{output:?}");
        assert!(said(&output).contains("\"complete\":true"), "{output:?}");
    }
    // The same option is understood by the other verbs.
    for (args, wanted) in [
        (vec!["list", "-n", &name], "ticker:tick"),
        (vec!["count", "ticker:tick", "-n", &name, "--duration", "1s"], "ticker:tick"),
        (vec!["run", "-e", "usdt::ticker:tick { @[pid] = count(); }", "-n", &name, "--duration", "2s"], "@["),
        (vec!["doctor", "-n", &name], ""),
        (vec!["detach", "-n", &name], ""),
    ] {
        let output = Command::new(nopal()).args(&args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(wanted), "{args:?}: {output:?}");
        if args[0] == "run" {
            for pid in &expected {
                assert!(text.contains(&format!("@[{pid}]")), "{text}");
            }
        }
    }
}

#[test]
fn names_that_nothing_has_are_told() {
    for (args, wanted) in [
        (vec!["-n", "no-such-program-here"], "no process runs a program called `no-such-program-here`"),
        (vec!["--cgroup", "/no/such/group"], "there is no control group /no/such/group"),
        (vec!["--container", "no-such-box"], "no running container is called `no-such-box`"),
        (vec!["-p", "postgres"], "`-n postgres`"),
        (vec![], "-n NAME"),
    ] {
        let output = Command::new(nopal()).arg("trace").args(&args).arg("a:b").output().unwrap();
        assert!(!output.status.success() && said(&output).contains(wanted), "{args:?}: {output:?}");
    }
}

/// A script names a file of another mount namespace, where this one has another file.
#[test]
fn a_file_below_the_root_of_a_process() {
    let folder = scratch("targets_root");
    let program = ticker(&folder, &unique("inner"), &[]);
    let mount = folder.join("mount");
    std::fs::create_dir(&mount).unwrap();
    let inner = mount.join(program.file_name().unwrap());
    std::fs::copy("/bin/true", &inner).unwrap();
    let (mount, from, to) = (mount.display(), program.display(), inner.display());
    let line = format!("mount -t tmpfs t {mount} && cp {from} {to} && exec {to}");
    let running = Running::start(Command::new("unshare").args(["-m", "sh", "-c", &line]));
    let pid = running.pid();
    wait_until("it runs", 60, || {
        std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.file_name() == inner.file_name())
    });
    let script = format!("usdt:/proc/{pid}/root{to}:ticker:tick {{ @ = count(); }}");
    for door in ["user", "kernel"] {
        let mut command = Command::new(nopal());
        command.args(["run", "--json", "--door", door, "--duration", "500ms", "-e", &script]);
        let text = run(command.args(["-p", &pid.to_string()]));
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["rows"][0]["value"].as_u64() > Some(20), "{door}: {answer}");
    }
}

/// As most containers have it: all system calls are allowed, by a filter.
const FILTER: &str = "#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
__attribute__((constructor)) static void sandbox(void)
{
    struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog filter = { 1, all };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}";

/// The user door enters none of these, with probes or without; they were there before, and are no newcomers.
#[test]
fn a_control_group_behind_a_filter_of_system_calls() {
    let folder = scratch("targets_filtered");
    let (filter, plain) = (folder.join("filter.c"), folder.join("plain"));
    std::fs::write(&filter, FILTER).unwrap();
    std::fs::write(folder.join("plain.c"), "#include <unistd.h>\nint main(void) { sleep(200); }").unwrap();
    let program = ticker(&folder, &unique("filtered"), &[filter.to_str().unwrap()]);
    run(Command::new("gcc").arg("-o").arg(&plain).arg(folder.join("plain.c")).arg(&filter));
    let group = Cgroup::new("nopal-test-filtered");
    let both = [program, plain].map(|program| Running::start(&mut Command::new(program)));
    both.iter().for_each(|one| group.add(one.pid()));
    let mut count = Command::new(nopal());
    count.args(["count", "--json", "--duration", "2s", "ticker:*", "--cgroup"]).arg(&group.0);
    let answer: Value = serde_json::from_str(&run(&mut count)).unwrap();
    assert_eq!(answer["complete"], true, "{answer}");
    assert!(answer["events"].as_u64() > Some(100), "{answer}");
}

#[test]
fn a_control_group_and_what_joins_it() {
    let folder = scratch("targets_cgroup");
    let program = ticker(&folder, &unique("grouped"), &[]);
    let group = Cgroup::new("nopal-test");
    let start = || Running::start(&mut Command::new(&program));
    let (inside, outside) = (start(), start());
    group.add(inside.pid());
    let (path, name) = (group.0.to_str().unwrap(), group.0.file_name().unwrap().to_str().unwrap());
    for named in [path, name, &format!("/{name}")] {
        let (pids, output) = traced(&["--cgroup", named], 100);
        assert_eq!(pids, BTreeSet::from([u64::from(inside.pid())]), "{output:?}");
        assert!(said(&output).contains("\"complete\":true"), "{output:?}");
    }
    // What comes in later is traced, and nobody claims that its first hits were seen.
    let joining = Command::new(nopal())
        .args(["trace", "--json", "--duration", "60s", "--cgroup", path, "ticker:tick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut joining = Running(joining);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(joining.0.stdout.take().unwrap()));
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["pid"], inside.pid());
    group.add(outside.pid());
    let is_from_outside =
        |line: &String| serde_json::from_str::<Value>(line).is_ok_and(|event| event["pid"] == outside.pid());
    assert!(lines.by_ref().map_while(Result::ok).any(|line| is_from_outside(&line)), "it is never traced");
    // SAFETY: the process is ours and has not been reaped.
    unsafe { libc::kill(joining.pid() as i32, libc::SIGINT) };
    lines.for_each(drop);
    let mut verdict = String::new();
    std::io::Read::read_to_string(&mut joining.0.stderr.take().unwrap(), &mut verdict).unwrap();
    let verdict: Value = serde_json::from_str(verdict.lines().last().unwrap()).unwrap();
    assert_eq!((&verdict["complete"], &verdict["late_processes"]), (&false.into(), &1.into()), "{verdict}");
}

#[test]
fn a_container_from_the_host_and_from_beside_it() {
    let folder = scratch("targets_podman");
    let name = unique("boxed");
    let program = ticker(&folder, &name, &["-static"]);
    let mut podman = Podman::new(&folder);
    install(&program, &podman.rootfs());
    install(nopal(), &podman.rootfs());
    let (first, second) = (unique("nopal-one-"), unique("nopal-two-"));
    let inside = format!("/bin/{name}");
    let id = podman.start(&first, &[], &[&inside]);
    podman.start(&second, &[], &[&inside]);
    let pid_of = |container: &str| {
        let text = run(podman.command().args(["inspect", "--format", "{{.State.Pid}}", container]));
        text.trim().parse::<u64>().unwrap()
    };
    let wanted = BTreeSet::from([pid_of(&first)]);
    for named in [first.as_str(), &id, &id[..12]] {
        let (pids, output) = traced(&["--container", named], 50);
        assert_eq!(pids, wanted, "{named}: {output:?}");
        assert!(said(&output).contains("\"complete\":true"), "{output:?}");
    }
    // As `kubectl debug --target` does it: a container beside it that shares its processes and may trace.
    let beside = unique("nopal-side-");
    let processes = format!("container:{first}");
    podman.start(
        &beside,
        &["--pid", &processes, "--cap-drop=all", "--cap-add=SYS_PTRACE"],
        &["/bin/nopal", "trace", "--json", "--limit", "20", "-n", &name, "ticker:tick"],
    );
    wait_until("the side container ends", 120, || {
        run(podman.command().args(["inspect", "--format", "{{.State.Status}}", &beside])).trim() == "exited"
    });
    let logs = podman.command().args(["logs", &beside]).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&logs.stdout), said(&logs));
    assert_eq!(text.lines().filter(|line| line.contains("\"provider\":\"ticker\"")).count(), 20, "{text}");
    assert!(text.contains("\"complete\":true"), "{text}");
}
