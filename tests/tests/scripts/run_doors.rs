//! `nopal run` where one door is not enough: sites that the user door leaves to the kernel, and tracefs in the place of eBPF.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, run, scratch};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TRACEFS: &str = "/sys/kernel/tracing";

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The answer a run with --json ends with.
fn answer(printed: &str) -> Value {
    serde_json::from_str(printed.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {printed}"))
}

/// Whether all is there, and the rows as (map and key) to value.
fn rows(answer: &Value) -> (bool, BTreeMap<String, Value>) {
    let rows = answer["rows"].as_array().unwrap();
    let row = |row: &Value| (format!("{}{}", row["map"].as_str().unwrap(), row["key"]), row["value"].clone());
    (answer["complete"] == json!(true), rows.iter().map(row).collect())
}

#[test]
fn sites_that_the_user_door_cannot_open_are_the_kernels() {
    const ROUNDS: i64 = 500;
    let folder = scratch("run_doors_mixed");
    let (gate, out, log) = (folder.join("gate"), folder.join("out"), folder.join("log"));
    let program = build("behind", &["behind.c"], Build::Pie);
    let mut target = Running::start(
        Command::new(&program)
            .args(["-t", "2", "-n", &ROUNDS.to_string(), "-g"])
            .arg(&gate)
            .stdout(Stdio::piped()),
    );
    // The second map is kept by the stubs, as far as there are any.
    let script = format!(
        "usdt:{0}:behind:* {{ @by[probe] = count(); }} usdt:{0}:behind:* {{ @n = count(); @sum = sum(arg0); }}",
        program.display()
    );
    // It takes the memory around it before it says so.
    let mut ready = String::new();
    let mut words = BufReader::new(target.0.stdout.take().unwrap());
    words.read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let mut tracer = Running::start(
        Command::new(nopal())
            .args(["run", "-v", "--json", "--door", "auto", "-e", &script, "-p", &target.pid().to_string()])
            .stdout(fs::File::create(&out).unwrap())
            .stderr(fs::File::create(&log).unwrap()),
    );
    let said = || fs::read_to_string(&log).unwrap();
    wait_until("the sites are open", 60, || said().contains("sites: "));
    fs::write(&gate, "").unwrap();
    assert!(target.0.wait().unwrap().success());
    assert!(tracer.0.wait().unwrap().success(), "{}", said());
    assert!(said().contains("sites: 6 user door, 3 kernel door"), "{}", said());
    let (is_complete, rows) = rows(&answer(&fs::read_to_string(&out).unwrap()));
    assert!(is_complete, "{}", said());
    let (all, half) = (2 * ROUNDS, ROUNDS);
    let numbers = (0..ROUNDS).sum::<i64>() * 2;
    // Every other round passes `entered`, which are those of even numbers or those of odd ones.
    let of_half = |first: i64| (first..ROUNDS).step_by(2).sum::<i64>() * 2;
    for probe in ["and", "jump", "load", "stack", "slid", "branch", "short", "plain"] {
        let name = format!("@by[\"usdt:{}:behind:{probe}\"]", program.display());
        assert_eq!(rows.get(&name), Some(&json!(all)), "{probe}: {rows:?}");
    }
    let name = format!("@by[\"usdt:{}:behind:entered\"]", program.display());
    assert_eq!(rows.get(&name), Some(&json!(half)), "{rows:?}");
    assert_eq!(rows["@n[]"], json!(8 * all + half));
    let sum = rows["@sum[]"].as_i64().unwrap() - 8 * numbers;
    assert!([of_half(0), of_half(1)].contains(&sum), "{rows:?}");
}

#[test]
fn children_have_the_kernels_sites_also_where_uprobes_are_not_inherited() {
    const ROUNDS: i64 = 300;
    // Of the kernel's rights only those that eBPF needs: tracefs, by which uprobes are inherited, is root's.
    let place = std::env::temp_dir().join(format!("nopal-run-doors-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    let (tool, program) = (place.join("nopal"), place.join("behind"));
    copy_program(nopal(), &tool);
    copy_program(&build("behind", &["behind.c"], Build::Pie), &program);
    run(Command::new("chmod").args(["-R", "a+rwX"]).arg(&place));
    let nobody = |rights: &str, program: &Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", rights]);
        command.args(["--ambient-caps", rights]).arg(program);
        command
    };
    let (gate, forked) = (place.join("gate"), place.join("forked"));
    let (out, log) = (place.join("out"), place.join("log"));
    let mut target = Running::start(
        nobody("-all", &program)
            .args(["-t", "1", "-n", &ROUNDS.to_string(), "-g"])
            .arg(&gate)
            .arg("-f")
            .arg(&forked)
            .stdout(Stdio::piped()),
    );
    let mut ready = String::new();
    let mut words = BufReader::new(target.0.stdout.take().unwrap());
    words.read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let script = format!("usdt:{}:behind:* {{ @[probe] = count(); }}", program.display());
    let mut tracer = Running::start(
        nobody("+bpf,+perfmon", &tool)
            .args(["run", "-v", "--json", "-e", &script, "-p", &target.pid().to_string()])
            .stdout(fs::File::create(&out).unwrap())
            .stderr(fs::File::create(&log).unwrap()),
    );
    let said = || fs::read_to_string(&log).unwrap();
    wait_until("the sites are open", 60, || said().contains("sites: "));
    assert!(said().contains("6 user door, 3 kernel door"), "{}", said());
    fs::write(&gate, "").unwrap();
    wait_until("the child's sites are open", 60, || said().contains("3 sites were opened a moment after"));
    fs::write(&forked, "").unwrap();
    assert!(target.0.wait().unwrap().success());
    assert!(tracer.0.wait().unwrap().success(), "{}", said());
    let (is_complete, rows) = rows(&answer(&fs::read_to_string(&out).unwrap()));
    let said = said();
    fs::remove_dir_all(&place).unwrap();
    for probe in ["and", "jump", "load", "stack", "slid", "branch", "entered", "plain", "short"] {
        let name = format!("@[\"usdt:{}:behind:{probe}\"]", program.display());
        let n = if probe == "entered" { ROUNDS } else { 2 * ROUNDS };
        assert_eq!(rows.get(&name), Some(&json!(n)), "{probe}: {rows:?} {said}");
    }
    // What a child hits before it is seen is not known.
    assert!(!is_complete, "{said}");
}

#[test]
fn a_library_that_the_command_loads_later_is_named_by_its_path() {
    const CALLS: i64 = 100;
    let folder = scratch("run_doors_library");
    let (library, source, program) = (folder.join("plugin.so"), folder.join("a.c"), folder.join("a"));
    let plugin = nopal_tests::root().join("tests/fixtures/targets/plugin.c");
    run(Command::new("gcc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(plugin));
    let text = format!(
        "#include <dlfcn.h>\nint main() {{ int (*f)(int) = dlsym(dlopen(\"{}\", RTLD_NOW), \"plugin\"); \
         for (int i = 0; i < {CALLS}; i++) f(i); return 0; }}",
        library.display()
    );
    fs::write(&source, text).unwrap();
    run(Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(&source));
    let script = format!("usdt:{}:life:plugin {{ @n = count(); @sum = sum(arg0); }}", library.display());
    for door in ["user", "kernel", "auto"] {
        let output = Command::new(nopal())
            .args(["run", "--json", "--door", door, "-e", &script, "--"])
            .arg(&program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{door}: {}", errors(&output));
        let (is_complete, rows) = rows(&answer(&String::from_utf8_lossy(&output.stdout)));
        // A library waits only so long for the user door; then that is told.
        if door != "kernel" && errors(&output).contains("ms after it was loaded") {
            continue;
        }
        let want = BTreeMap::from([
            ("@n[]".to_owned(), json!(CALLS)),
            ("@sum[]".to_owned(), json!((0..CALLS).sum::<i64>())),
        ]);
        assert_eq!((is_complete, rows), (true, want), "{door}: {}", errors(&output));
    }
}

/// A command with the rights of root but for those that eBPF needs.
fn without_bpf(program: &Path) -> Command {
    if !Path::new(TRACEFS).join("uprobe_events").exists() {
        run(Command::new("mount").args(["-t", "tracefs", "nodev", TRACEFS]));
    }
    let mut command = Command::new("setpriv");
    let dropped = "-sys_admin,-bpf,-perfmon";
    command.args(["--bounding-set", dropped, "--inh-caps", dropped]).arg(program);
    command
}

/// Events and instances of the tracer with this pid that are still there.
fn left_by(pid: u32) -> usize {
    let group = format!("nopal_ftrace_{pid}_");
    let events = fs::read_to_string(format!("{TRACEFS}/uprobe_events")).unwrap();
    let instances = fs::read_dir(format!("{TRACEFS}/instances")).unwrap().flatten();
    events.matches(&group).count()
        + instances.filter(|entry| entry.file_name().to_string_lossy().starts_with(&group)).count()
}

#[test]
fn where_ebpf_is_not_permitted_tracefs_tells_the_same() {
    // A program of its own: another process that had it mapped would be in the way.
    let program = build("script-tracefs", &["script.c"], Build::Pie);
    let file = program.to_str().unwrap();
    let script = format!(
        "usdt:{file}:script:request {{ @by[arg0] = count(); @sum = sum(arg1); @hist = hist(arg1); @key[str(arg2), arg3] = count(); }}
         usdt:{file}:script:done /arg0 == 3/ {{ @done = count(); @last = arg1; }}"
    );
    let arguments = ["run", "--json", "--door", "kernel", "-e", &script, "--", file, "2000"];
    let whole = run(Command::new(nopal()).args(arguments));
    let output = without_bpf(nopal()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(
        errors(&output).contains("eBPF is not permitted, so hits are read through tracefs"),
        "{}",
        errors(&output)
    );
    let told = rows(&answer(&String::from_utf8_lossy(&output.stdout)));
    assert_eq!(told, rows(&answer(&whole)));
    assert!(told.0 && told.1.len() > 20, "{told:?}");

    let arguments = ["trace", "--door", "kernel", "script:done", "--", file, "300"];
    let output = without_bpf(nopal()).args(arguments).output().unwrap();
    let lines =
        String::from_utf8_lossy(&output.stdout).lines().filter(|l| l.contains("script:done: ")).count();
    assert_eq!(lines, 300, "{}", errors(&output));
    assert!(errors(&output).contains("300 events, complete"), "{}", errors(&output));

    let script =
        format!("uprobe:{file}:main {{ @in = count(); }} uretprobe:{file}:main {{ @out = count(); }}");
    let arguments = ["run", "--door", "kernel", "-e", &script, "--", file, "10"];
    let output = without_bpf(nopal()).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("@in: 1") && said.contains("@out: 1"), "{said}{}", errors(&output));

    let refused = [
        (format!("usdt:{file}:script:done {{ @[ustack] = count(); }}"), "stack"),
        (format!("usdt:{file}:script:request {{ @[buf(arg2, 4)] = count(); }}"), "bytes with a length"),
    ];
    for (script, named) in refused {
        let arguments = ["run", "--door", "kernel", "-e", &script, "--", file, "10"];
        let output = without_bpf(nopal()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{script}: {}", errors(&output));
        assert!(errors(&output).contains(named), "{script}: {}", errors(&output));
    }

    // However it ends, nothing stays; after SIGKILL until the next one comes.
    let script = format!("usdt:{file}:script:done {{ @n = count(); printf(\"hit\\n\"); }}");
    let out = scratch("run_doors_tracefs").join("out");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let wait = || {
            let mut command = Command::new(&program);
            command.args(["10", "wait"]).stdin(Stdio::piped());
            Running(command.spawn().unwrap())
        };
        let mut target = wait();
        let pid = target.pid().to_string();
        let arguments = ["run", "--door", "kernel", "-e", &script, "-p", &pid];
        let tracer = without_bpf(nopal())
            .args(arguments)
            .stdout(fs::File::create(&out).unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let tracer_pid = tracer.id();
        wait_until("the site is armed", 30, || {
            let group = fs::read_dir(format!("{TRACEFS}/instances")).unwrap().flatten().find(|entry| {
                entry.file_name().to_string_lossy().starts_with(&format!("nopal_ftrace_{tracer_pid}_"))
            });
            group.is_some_and(|group| {
                let events = group.path().join("events").join(group.file_name()).join("enable");
                fs::read_to_string(events).is_ok_and(|on| on.starts_with('1'))
            })
        });
        if signal == libc::SIGINT {
            // Others who have the file mapped would be slowed down.
            let (first, _second) = (wait(), wait());
            let pid = first.pid().to_string();
            let arguments = ["run", "--door", "kernel", "-e", &script, "-p", &pid];
            let output = without_bpf(nopal()).args(arguments).output().unwrap();
            assert!(errors(&output).contains("2 other processes"), "{}", errors(&output));
        }
        target.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let printed = || fs::read_to_string(&out).unwrap();
        wait_until("the hits are printed", 60, || printed().matches("hit\n").count() == 10);
        // SAFETY: a pid we started and have not reaped.
        unsafe { libc::kill(tracer_pid as i32, signal) };
        let output = tracer.wait_with_output().unwrap();
        if signal == libc::SIGKILL {
            assert!(left_by(tracer_pid) > 0);
            let arguments = ["run", "--door", "kernel", "-e", &script, "-p", &pid, "--duration", "50ms"];
            let next = without_bpf(nopal()).args(arguments).output().unwrap();
            assert!(next.status.success(), "{}", errors(&next));
        } else {
            let shown = printed();
            assert!(output.status.success() && shown.ends_with("\n@n: 10\n"), "{shown}{}", errors(&output));
            assert!(errors(&output).ends_with("complete\n"), "{}", errors(&output));
        }
        assert_eq!(left_by(tracer_pid), 0, "signal {signal}");
        target.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert!(target.0.wait().unwrap().success());
    }
}

/// Ended by SIGKILL, a tracer leaves its events and its instance in tracefs: both are in the way of nobody for long.
#[test]
fn what_a_killed_tracer_left_in_tracefs_is_removed_by_detach_and_by_the_next_tracer() {
    let program = build("script-tracefs-killed", &["script.c"], Build::Pie);
    let wait = || {
        let mut command = Command::new(&program);
        command.args(["10", "wait"]).stdin(Stdio::piped());
        Running(command.spawn().unwrap())
    };
    let other = build("script-tracefs-next", &["script.c"], Build::Pie);
    // Whether it was ours who removed it: a tracer of another test that starts in between does, too.
    let attempt = |is_detached: bool| {
        let target = wait();
        let pid = target.pid().to_string();
        let line = ["trace", "--door", "kernel", "script:*", "-p", &pid];
        let mut tracer = without_bpf(nopal());
        let tracer = tracer.args(line).stdout(Stdio::null()).stderr(Stdio::null());
        let mut tracer = Running(tracer.spawn().unwrap());
        let tracer_pid = tracer.pid();
        wait_until("its sites are armed", 60, || {
            let group =
                format!("{TRACEFS}/instances/nopal_ftrace_{tracer_pid}_0/events/nopal_ftrace_{tracer_pid}_0");
            fs::read_to_string(format!("{group}/enable")).is_ok_and(|on| on.starts_with('1'))
        });
        tracer.0.kill().unwrap();
        tracer.0.wait().unwrap();
        let mut is_ours = left_by(tracer_pid) > 1;
        if is_detached {
            let output = Command::new(nopal()).args(["detach", "-p", &pid]).output().unwrap();
            assert!(output.status.success(), "{}", errors(&output));
            is_ours &= errors(&output).contains("of a killed tracer removed from the kernel");
        } else {
            // One that needs nothing of the kernel.
            let line = ["trace", "--door", "user", "script:*", "--", other.to_str().unwrap(), "10"];
            run(Command::new(nopal()).args(line));
        }
        // That other one may be at it still.
        wait_until("nothing is left", 20, || left_by(tracer_pid) == 0);
        is_ours
    };
    for is_detached in [true, false] {
        assert!((0..5).any(|_| attempt(is_detached)), "by detach: {is_detached}");
    }
}
