//! `nopal run`: the same script on the same program gives the same through both doors and over a recording, and what bpftrace
//! gives; what goes wrong says so.

use nopal_tests::process::{Running, free_port, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, lab, nopal, run, scratch};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ROUNDS: i64 = 5000;

fn program() -> PathBuf {
    build("script", &["script.c"], Build::Pie)
}

fn nopal_run(arguments: &[&str]) -> Output {
    Command::new(nopal()).arg("run").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The answer a run with --json ends with.
fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{}", errors(output));
    let text = text(output);
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The rows of an answer as (map and key) to value.
fn rows(answer: &Value) -> BTreeMap<String, Value> {
    let rows = answer["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| (format!("{}{}", row["map"].as_str().unwrap(), row["key"]), row["value"].clone()))
        .collect()
}

fn through_user_door(script: &str, more: &[&str]) -> Value {
    through("user", script, more)
}

fn through(door: &str, script: &str, more: &[&str]) -> Value {
    let program = program();
    let rounds = ROUNDS.to_string();
    let mut arguments = vec!["--json", "--door", door, "-e", script];
    arguments.extend_from_slice(more);
    arguments.extend(["--", program.to_str().unwrap(), &rounds]);
    answer(&nopal_run(&arguments))
}

/// What is known of the probes' arguments.
fn provider_file(folder: &Path) -> PathBuf {
    let path = folder.join("script.d");
    let text = "provider script {\n  probe request(int kind, long size, char *key, unsigned char flag);\n  \
                probe done(int kind, long i);\n};\n";
    fs::write(&path, text).unwrap();
    path
}

fn recording(folder: &Path, more: &[&str]) -> PathBuf {
    let dir = folder.join("recording");
    run(Command::new(nopal())
        .args(["record", "--door", "user", "-e", "script:*", "-o"])
        .arg(&dir)
        .args(more)
        .arg("--")
        .arg(program())
        .arg(ROUNDS.to_string()));
    dir
}

/// Everything a map can gather.
fn script(file: &str) -> String {
    format!(
        "usdt:{file}:script:request {{
            @n = count(); @by[arg0] = count(); @sum = sum(arg1); @min[arg0] = min(arg1); @max = max(arg1);
            @stats[arg0] = stats(arg1); @hist = hist(arg1); @lhist = lhist(arg1, 0, 1000, 100);
            @key[str(arg2), arg3] = count(); @size[arg0] = arg1;
        }}
        usdt:{file}:script:done /arg0 == 3 && arg1 > 10/ {{ @done = count(); @last = arg1; }}"
    )
}

/// What the script must find.
fn truth() -> BTreeMap<String, Value> {
    let mut rows: BTreeMap<String, Value> = BTreeMap::new();
    let add = |rows: &mut BTreeMap<String, Value>, name: String, n: i64| {
        let before = rows.get(&name).and_then(Value::as_i64).unwrap_or(0);
        rows.insert(name, json!(before + n));
    };
    let keys = ["alpha", "beta", "gamma", "delta"];
    let mut stats: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    let (mut hist, mut lhist) = (BTreeMap::<u32, i64>::new(), BTreeMap::<i64, i64>::new());
    for i in 0..ROUNDS {
        let (kind, size, flag) = (i % 7 - 2, (i * 37) % 1009, i % 3);
        add(&mut rows, "@n[]".into(), 1);
        add(&mut rows, format!("@by[{kind}]"), 1);
        add(&mut rows, "@sum[]".into(), size);
        add(&mut rows, format!("@key[\"{}\",{flag}]", keys[(i % 4) as usize]), 1);
        let name = format!("@min[{kind}]");
        let least = rows.get(&name).and_then(Value::as_i64).unwrap_or(i64::MAX).min(size);
        rows.insert(name, json!(least));
        let most = rows.get("@max[]").and_then(Value::as_i64).unwrap_or(0).max(size);
        rows.insert("@max[]".into(), json!(most));
        rows.insert(format!("@size[{kind}]"), json!(size));
        let (count, total) = stats.entry(kind).or_default();
        (*count, *total) = (*count + 1, *total + size);
        *hist.entry(if size == 0 { 0 } else { 64 - size.leading_zeros() }).or_default() += 1;
        *lhist.entry(size / 100).or_default() += 1;
        if kind == 3 && i > 10 {
            add(&mut rows, "@done[]".into(), 1);
            rows.insert("@last[]".into(), json!(i));
        }
    }
    for (kind, (count, total)) in stats {
        let value = json!({"count": count, "average": total / count, "total": total});
        rows.insert(format!("@stats[{kind}]"), value);
    }
    let bucket = |(bits, count): (&u32, &i64)| match bits {
        0 => json!({"min": 0, "max": 0, "count": count}),
        bits => json!({"min": 1i64 << (bits - 1), "max": (1i64 << bits) - 1, "count": count}),
    };
    rows.insert("@hist[]".into(), hist.iter().map(bucket).collect());
    let bucket = |(bucket, count): (&i64, &i64)| match bucket {
        10 => json!({"min": 1000, "count": count}),
        bucket => json!({"min": bucket * 100, "max": bucket * 100 + 99, "count": count}),
    };
    rows.insert("@lhist[]".into(), lhist.iter().map(bucket).collect());
    rows
}

#[test]
fn texts_that_cannot_be_read_are_empty_by_every_door_and_over_a_recording() {
    let folder = scratch("run_nowhere");
    let provider = folder.join("nowhere.d");
    fs::write(&provider, "provider nowhere { probe text(char *text); };").unwrap();
    let program = build("nowhere", &["nowhere.c"], Build::Pie);
    let (provider, program) = (provider.to_str().unwrap(), program.to_str().unwrap());
    let script = format!("usdt:{program}:nowhere:text {{ @[str(arg0)] = count(); }}");
    let want = BTreeMap::from([("@[\"\"]".to_owned(), json!(2)), ("@[\"text\"]".to_owned(), json!(1))]);
    for door in ["user", "kernel"] {
        let answer = answer(&nopal_run(&["--json", "--door", door, "-e", &script, "--", program]));
        assert_eq!(rows(&answer), want, "{door}");
    }
    let dir = folder.join("recording");
    let dir = dir.to_str().unwrap();
    let arguments = ["record", "--provider", provider, "-e", "nowhere:*", "-o", dir, "--", program];
    run(Command::new(nopal()).args(arguments));
    assert_eq!(rows(&answer(&nopal_run(&["--json", "-e", &script, "--recording", dir]))), want);
}

#[test]
fn both_doors_and_a_recording_give_what_is_true() {
    let folder = scratch("run_truth");
    let provider = provider_file(&folder);
    let more = ["--provider", provider.to_str().unwrap()];
    let script = script(program().to_str().unwrap());
    for door in ["user", "kernel"] {
        let answer = through(door, &script, &more);
        assert_eq!((&answer["complete"], &answer["lost"]), (&json!(true), &json!(0)), "{door}: {answer}");
        assert_eq!(rows(&answer), truth(), "{door}");
    }
    let dir = recording(&folder, &more);
    let over = answer(&nopal_run(&["--json", "-e", &script, "--recording", dir.to_str().unwrap()]));
    assert_eq!(over["complete"], json!(true));
    assert_eq!(rows(&over), truth());
}

#[test]
fn what_stubs_count_alone_is_what_the_interpreter_counts() {
    // The second body of each pair does the same, but shows its maps in between, so that no stub can do it.
    let file = program();
    let file = file.to_str().unwrap();
    let body = "@n = count(); @sum = sum(arg1); @hist = hist(arg1); @min = min(arg1); @max = max(arg0);
                @lhist = lhist(arg1, 0, 900, 100); @flags[arg3] = count(); @by_flag[arg3] = hist(arg1);";
    for condition in ["", "/arg0 == 3/", "/arg0 < 0/", "/arg1 >= 500 && arg0 != 1/", "/arg3/"] {
        let alone = format!("usdt:{file}:script:request {condition} {{ {body} }}");
        let sent = format!(
            "{alone} END {{ if (@n > 0) {{ printf(\"\"); }} if (@flags[0] > 0) {{ printf(\"\"); }} }}"
        );
        let sent = format!("{sent} usdt:{file}:script:request {{ @other[pid] = count(); }}");
        let (alone, sent) = (through_user_door(&alone, &[]), through_user_door(&sent, &[]));
        assert_eq!((&alone["complete"], &sent["complete"]), (&json!(true), &json!(true)));
        let mut wanted = rows(&sent);
        wanted.retain(|name, _| !name.starts_with("@other"));
        assert_eq!(rows(&alone), wanted, "{condition}");
        assert!(!wanted.is_empty());
    }
}

/// Lines that are results, without what bpftrace says about itself.
fn results(text: &str) -> BTreeSet<String> {
    text.lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty() && !line.starts_with("Attaching") && !line.contains("RLIMIT"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn text_is_what_bpftrace_prints() {
    let file = program();
    let file = file.to_str().unwrap();
    let script = format!(
        "BEGIN {{ printf(\"%-5s|%5d|%x|%c|%s\\n\", \"ab\", -42, 255, 65, \"end\"); print((1, \"two\", 3)); }}
         usdt:{file}:script:request {{
            @n = count(); @by[arg0, arg3] = count(); @sum = sum(arg1); @stats = stats(arg1); @hist = hist(arg1);
            @lhist = lhist(arg1, 0, 1000, 100); @key[str(arg2)] = sum(arg1); @last[arg0] = arg1;
         }}
         END {{ printf(\"bye\\n\"); clear(@last); }}"
    );
    let rounds = ROUNDS.to_string();
    let ours = nopal_run(&["--door", "user", "-e", &script, "--", file, &rounds]);
    assert!(ours.status.success(), "{}", errors(&ours));
    assert_eq!(errors(&ours), "Attaching 3 probes...\ncomplete\n");
    let theirs =
        Command::new("bpftrace").args(["-e", &script, "-c", &format!("{file} {rounds}")]).output().unwrap();
    assert!(theirs.status.success(), "{}", errors(&theirs));
    assert_eq!(results(&text(&ours)), results(&text(&theirs)));
}

#[test]
fn memcached_commands_with_their_keys() {
    let port = free_port();
    let server = Running::start(Command::new(lab::memcached()).args([
        "-u",
        "nobody",
        "-l",
        "127.0.0.1",
        "-p",
        &port.to_string(),
    ]));
    wait_until("memcached listens", 20, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let script = r#"usdt:memcached:command__set { printf("set %s %d\n", str(args.key, args.keylen), args.size); @[str(args.key, args.keylen)] = count(); }
        usdt:memcached:command__get { printf("get %s\n", str(args.key, args.keylen)); @[str(args.key, args.keylen)] = count(); }
        interval:ms:50 { if (@["last"] > 0) { exit(); } }"#;
    let nopal = Command::new(nopal())
        .args(["run", "--door", "user", "-v", "-e", script, "-p", &server.pid().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut nopal = Some(nopal);
    let maps = format!("/proc/{}/maps", server.pid());
    wait_until("the sites are open", 20, || fs::read_to_string(&maps).unwrap().contains("nopal-ring"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answer = [0; 64];
    for (command, want) in [
        ("set user:1 0 0 5\r\nhello\r\n", "STORED"),
        ("get user:1\r\n", "VALUE user:1"),
        ("get nothing\r\n", "END"),
        ("get last\r\n", "END"),
    ] {
        client.write_all(command.as_bytes()).unwrap();
        let n = client.read(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer[..n]).starts_with(want));
    }
    let output = nopal.take().unwrap().wait_with_output().unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{}", errors(&output));
    for line in ["set user:1 7", "get user:1", "get nothing", "@[user:1]: 2", "@[nothing]: 1"] {
        assert!(printed.lines().any(|l| l == line), "{line} in {printed}{}", errors(&output));
    }
    assert!(errors(&output).ends_with("complete\n"), "{}", errors(&output));
}

#[test]
fn begin_end_intervals_and_exit_codes() {
    for (script, want, code) in [
        ("BEGIN { printf(\"hi\\n\"); exit(); }", "hi\n", 0),
        ("BEGIN { exit(3); } END { printf(\"end\\n\"); }", "end\n", 3),
        ("interval:ms:10 { @n++; if (@n == 3) { exit(); } }", "@n: 3\n", 0),
        ("BEGIN { @a[1] = 5; @a[2] = 7; print(@a); clear(@a); exit(); }", "@a[1]: 5\n@a[2]: 7\n", 0),
        ("BEGIN { printf(\"%s %d\\n\", str($1), $2); exit(); }", "word 42\n", 0),
    ] {
        let output = nopal_run(&["-e", script, "word", "42"]);
        assert_eq!(
            (text(&output).as_str(), output.status.code()),
            (want, Some(code)),
            "{script} {}",
            errors(&output)
        );
        let n = if script.contains("END") { "2 probes" } else { "1 probe" };
        assert_eq!(errors(&output), format!("Attaching {n}...\ncomplete\n"), "{script}");
    }
}

/// Who asks for 30 bytes wants no more; who has no room for more is told how to make it.
#[test]
fn a_string_is_called_cut_only_where_more_room_would_help() {
    let program = build("longtext", &["longtext.c"], Build::Pie);
    let file = program.to_str().unwrap();
    let ask = |settings: &str, value: &str| {
        let script = format!("{settings} usdt:{file}:long:text {{ @[{value}] = count(); }}");
        let output = nopal_run(&["--door", "user", "-e", &script, "--", file]);
        assert!(output.status.success(), "{}", errors(&output));
        (text(&output), errors(&output))
    };
    let digits = "0123456789".repeat(6);
    for (settings, value, n, is_told) in [
        ("", "str(arg0, 30)", 30, false),
        ("", "str(arg0)", 60, false),
        ("config = { max_strlen = 32 }", "str(arg0)", 31, true),
        ("config = { max_strlen = 32 }", "str(arg0, 16)", 16, false),
        ("config = { max_strlen = 32 }", "str(arg0, 50)", 31, true),
    ] {
        let (shown, said) = ask(settings, value);
        assert_eq!(shown.trim(), format!("@[{}]: 10", &digits[..n]), "{settings} {value}");
        assert_eq!(said.contains("longer than the script keeps"), is_told, "{settings} {value}: {said}");
        assert!(said.contains("max_strlen") == is_told && said.contains("complete"), "{said}");
    }
}

#[test]
fn a_full_map_is_told_of() {
    let file = program();
    let script = format!(
        "config = {{ max_map_keys = 16 }} usdt:{}:script:done {{ @[arg1] = count(); }}",
        file.to_str().unwrap()
    );
    let output = nopal_run(&["--door", "user", "-e", &script, "--", file.to_str().unwrap(), "100"]);
    assert_eq!(text(&output).lines().filter(|l| l.starts_with("@[")).count(), 16, "{}", errors(&output));
    assert!(errors(&output).contains("84 not stored: @ was full"), "{}", errors(&output));
}

#[test]
fn an_interrupted_script_prints_its_maps_and_leaves_the_program_running() {
    let file = program();
    let mut target = Command::new(&file).args(["10", "wait"]).stdin(Stdio::piped()).spawn().unwrap();
    let script = format!("usdt:{}:script:done {{ @n = count(); }}", file.to_str().unwrap());
    let child = Command::new(nopal())
        .args(["run", "--door", "user", "-e", &script, "-p", &target.id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let maps = format!("/proc/{}/maps", target.id());
    wait_until("the sites are open", 20, || fs::read_to_string(&maps).unwrap().contains("nopal-ring"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut input = target.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    run(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let output = child.wait_with_output().unwrap();
    let said = "Attaching 1 probe...\ncomplete\n";
    assert_eq!((text(&output).as_str(), errors(&output).as_str()), ("@n: 10\n", said));
    input.write_all(b"\n").unwrap();
    assert!(target.wait().unwrap().success());
}

#[test]
fn scripts_that_come_at_the_same_moment_wait_for_each_other() {
    let file = program();
    let mut target = Command::new(&file).args(["10", "wait"]).stdin(Stdio::piped()).spawn().unwrap();
    let script = format!("usdt:{}:script:done {{ @n = count(); }}", file.to_str().unwrap());
    let pid = target.id().to_string();
    for round in 0..3 {
        let start = |_| {
            Command::new(nopal())
                .args(["run", "--door", "user", "--duration", "100ms", "-e", &script, "-p", &pid])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let children: Vec<_> = (0..3).map(start).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "round {round}: {}", errors(&output));
        }
    }
    let mut input = target.stdin.take().unwrap();
    input.write_all(b"\n\n").unwrap();
    assert!(target.wait().unwrap().success());
}

#[test]
fn in_the_kernel_children_count_from_their_first_instruction_on() {
    const CHILDREN: i64 = 200;
    const ROUNDS: i64 = 5;
    let program = build("forks", &["forks.c"], Build::Pie);
    let file = program.to_str().unwrap();
    let script = format!(
        "usdt:{file}:forks:pass {{ @passed[arg0] = count(); }} uprobe:{file}:pass {{ @called[arg0] = count(); }}
         uretprobe:{file}:pass {{ @returned = count(); }}"
    );
    // The process itself, its children, theirs, and the program that the last one starts.
    let mut truth = BTreeMap::from([("@returned[]".to_owned(), json!(2 * CHILDREN + 2))]);
    for (kind, n) in [(0, 1), (1, CHILDREN), (2, CHILDREN), (3, 1)] {
        truth.insert(format!("@passed[{kind}]"), json!(n * ROUNDS));
        truth.insert(format!("@called[{kind}]"), json!(n));
    }
    let numbers = [CHILDREN.to_string(), ROUNDS.to_string()];
    for is_running in [false, true] {
        let folder = scratch("run_children");
        let (out, log) = (folder.join("out"), folder.join("log"));
        let mut nopal = Command::new(nopal());
        nopal.args(["run", "-v", "--json", "--door", "kernel", "-e", &script]);
        nopal.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&log).unwrap());
        let mut target = None;
        if is_running {
            let started = Command::new(&program)
                .args(&numbers)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .map(Running)
                .unwrap();
            nopal.args(["-p", &started.pid().to_string()]);
            target = Some(started);
        } else {
            nopal.arg("--").arg(&program).args(&numbers).stdin(Stdio::piped());
        }
        let mut running = Running(nopal.spawn().unwrap());
        if let Some(target) = &mut target {
            wait_until("the points are attached", 60, || {
                fs::read_to_string(&log).unwrap().matches("armed").count() == 3
            });
            target.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            assert!(target.0.wait().unwrap().success());
        } else {
            running.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }
        assert!(running.0.wait().unwrap().success());
        let said = fs::read_to_string(&out).unwrap();
        let answer: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(
            answer["complete"],
            json!(true),
            "running {is_running}: {}",
            fs::read_to_string(&log).unwrap()
        );
        assert_eq!(rows(&answer), truth, "running {is_running}");
    }
}

#[test]
fn only_means_without_children_through_either_door() {
    let program = build("forks", &["forks.c"], Build::Pie);
    let file = program.to_str().unwrap();
    let script = format!("usdt:{file}:forks:pass {{ @[arg0] = count(); }}");
    for door in ["user", "kernel", "auto"] {
        let mut nopal = Command::new(nopal());
        nopal.args(["run", "--only", "--json", "--door", door, "-e", &script, "--", file, "20", "3"]);
        let mut running = Running(nopal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        running.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut said = String::new();
        running.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(running.0.wait().unwrap().success());
        let answer: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(rows(&answer), BTreeMap::from([("@[0]".to_owned(), json!(3))]), "{door}");
    }
}

#[test]
fn children_that_are_gone_have_functions_with_names() {
    let program = build("forks", &["forks.c"], Build::Pie);
    let file = program.to_str().unwrap();
    // 50 children and as many of theirs, the process itself, and through the kernel door the program that the last one
    // starts.
    for (door, named, n_least) in [("kernel", "func", 102 * 2), ("user", "usym(arg2)", 101 * 2)] {
        let script = format!("usdt:{file}:forks:pass {{ printf(\"in %s of %d\\n\", {named}, arg0); }}");
        let mut nopal = Command::new(nopal());
        nopal.args(["run", "--door", door, "-e", &script, "--"]).arg(&program).args(["50", "2"]);
        let mut running = Running(nopal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        running.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut said = String::new();
        running.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(running.0.wait().unwrap().success());
        let lines: Vec<&str> = said.lines().filter(|line| *line != "ready").collect();
        let nameless: Vec<&&str> = lines.iter().filter(|line| !line.starts_with("in pass of ")).collect();
        assert!(lines.len() >= n_least && nameless.is_empty(), "{door}: {} {nameless:?}", lines.len());
    }
}

#[test]
fn what_cannot_run_says_why_and_what_to_do() {
    let folder = scratch("run_errors");
    let program = program();
    let file = program.to_str().unwrap();
    let dir = recording(&folder, &[]);
    let dir = dir.to_str().unwrap();
    let of = |probe: &str, body: &str| format!("usdt:{file}:script:{probe} {{ {body} }}");
    let (request, texts) = (of("request", "@ = count();"), of("request", "@[str(arg2)] = count();"));
    let (missing, stacks) = (of("reqest", "@ = count();"), of("request", "@[kstack] = count();"));
    let (users, names) = (of("request", "@[uid] = count();"), of("request", "@[comm] = count();"));
    for (arguments, code, said) in [
        (&[][..], 2, &["no script given", "-e"][..]),
        (&["/nonexistent/script.bt"], 1, &["cannot read /nonexistent/script.bt"]),
        (&["-e", &request], 2, &["no process is named", "-p PID", "--all-processes"]),
        (
            &["-e", &missing, "--", file],
            1,
            &["there is no probe `script:reqest`", "did you mean `script:request`?"],
        ),
        (&["-e", "BEGIN { prinf(\"\"); }"], 1, &["prinf", "did you mean `printf`?", "BEGIN { prinf"]),
        (&["-e", &stacks, "--door", "user", "--", file], 1, &["kstack", "--door kernel"]),
        (&["-e", &request, "-p", "4000000"], 1, &["4000000"]),
        (&["-e", &request, "-p", "1", "--", file], 2, &["cannot be combined with a command"]),
        (&["-e", &request, "--recording", dir, "-p", "1"], 2, &["--recording"]),
        (&["-e", &request, "--recording", "/nonexistent"], 1, &["/nonexistent"]),
        (&["-e", &texts, "--recording", dir], 1, &["arg2", "--provider"]),
        (&["-e", &users, "--recording", dir], 1, &["uid"]),
        (&["-e", &names, "--recording", dir], 1, &["comm", "procname"]),
        (&["-e", "BEGIN { exit(); }", "-c", "'"], 2, &["quote"]),
    ] {
        let output = nopal_run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", errors(&output));
        for part in said {
            assert!(errors(&output).contains(part), "{arguments:?}: {part} in {}", errors(&output));
        }
    }
}

#[test]
fn without_privilege_the_user_door_works_and_the_kernel_door_says_what_is_missing() {
    let folder = scratch("run_nobody");
    let (tool, target) = (folder.join("nopal"), folder.join("script"));
    copy_program(nopal(), &tool);
    copy_program(&program(), &target);
    // The target folder may be below one that only its owner sees.
    let place = std::env::temp_dir().join(format!("nopal-run-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    for from in [&tool, &target] {
        copy_program(from, &place.join(from.file_name().unwrap()));
    }
    run(Command::new("chmod").args(["-R", "a+rX"]).arg(&place));
    let nobody = |door: &str| {
        let script = format!("usdt:{0}/script:script:done {{ @ = count(); }}", place.display());
        Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"])
            .arg(place.join("nopal"))
            .args(["run", "--door", door, "-e", &script, "--"])
            .arg(place.join("script"))
            .arg("100")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let (user, kernel) = (nobody("user"), nobody("kernel"));
    fs::remove_dir_all(&place).unwrap();
    let said = "Attaching 1 probe...\ncomplete\n";
    assert_eq!((text(&user).as_str(), errors(&user).as_str()), ("@: 100\n", said));
    assert_eq!(kernel.status.code(), Some(1));
    for part in ["CAP_BPF and CAP_PERFMON", "--door user needs none for your own processes"] {
        assert!(errors(&kernel).contains(part), "{}", errors(&kernel));
    }
}
