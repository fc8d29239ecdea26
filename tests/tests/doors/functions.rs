//! Functions through the user door: what the list says of them, counts and values, the code meanwhile and afterwards.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::tools::section;
use nopal_tests::{copy_program, nopal, run, scratch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const NAMES: [&str; 11] = [
    "f_choice", "f_down", "f_get", "f_half", "f_jump", "f_length", "f_many", "f_maybe", "f_set", "f_sum",
    "f_tail",
];

fn program() -> PathBuf {
    build("functions", &["functions.c"], Build::Pie)
}

#[test]
fn the_list_tells_what_each_function_can_be_traced_by() {
    let program = program();
    let text = run(Command::new(nopal()).args(["list", "--functions", "--json"]).arg(&program).arg("f_*"));
    let list: Value = serde_json::from_str(&text).unwrap();
    let nm = run(Command::new("nm").args(["-S", "--defined-only"]).arg(&program));
    for name in NAMES {
        let row = list.as_array().unwrap().iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("{name}: {text}"));
        let line = nm.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        let words: Vec<u64> =
            line.split(' ').take(2).map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
        assert_eq!(
            (row["address"].as_u64(), row["size"].as_u64()),
            (Some(words[0]), Some(words[1])),
            "{name}"
        );
        assert_eq!(row["entry"]["door"], "user", "{row}");
        assert!(row["exits"]["user"].as_u64() > Some(0), "{row}");
    }
    let shown = run(Command::new(nopal()).args(["list", "--functions"]).arg(&program).arg("f_sum"));
    assert!(shown.contains("f_sum  user door; 1 exit"), "{shown}");
    let missing =
        Command::new(nopal()).args(["list", "--functions"]).arg(&program).arg("nowhere*").output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no function matches `nowhere*`"));
}

/// Runs a script over the program, whose last line of output is what it counted itself.
fn traced(script: &str, rounds: &str) -> (BTreeMap<String, i64>, BTreeMap<String, Value>, String) {
    let program = program();
    let mut command = Command::new(nopal());
    command.args(["run", "-v", "--json", "-e", &script.replace("FILE", program.to_str().unwrap()), "--"]);
    let output = command.arg(&program).arg(rounds).stdin(Stdio::null()).output().unwrap();
    let (out, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{out}{errors}");
    let own = out.lines().find(|line| line.starts_with("f_sum=")).unwrap_or_else(|| panic!("{out}{errors}"));
    let own = own.split(' ').map(|pair| pair.split_once('=').unwrap());
    let own: BTreeMap<String, i64> =
        own.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect();
    assert_eq!(own["errors"], 0, "{errors}");
    let answer: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(answer["complete"], true, "{answer}{errors}");
    let row = |row: &Value| {
        let key = match &row["key"][0] {
            Value::String(text) => text.rsplit(':').next().unwrap_or(text).to_owned(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        (format!("{}[{key}]", row["map"].as_str().unwrap()), row["value"].clone())
    };
    (own, answer["rows"].as_array().unwrap().iter().map(row).collect(), errors)
}

#[test]
fn functions_are_counted_where_they_are_entered_and_left() {
    let (own, rows, errors) = traced(
        "uprobe:FILE:f_* { @in[probe] = count(); } uretprobe:FILE:f_* { @out[probe] = count(); }",
        "5000",
    );
    for name in NAMES {
        let n = own[name];
        assert_eq!(rows[&format!("@in[{name}]")], n, "{name}: {errors}");
        // Every other call of this one is left by longjmp: entered and not left.
        let n_left = if name == "f_jump" { n / 2 } else { n };
        assert_eq!(rows[&format!("@out[{name}]")], n_left, "{name}: {errors}");
    }
    let by_user = |probe: &str| errors.lines().any(|l| l.contains(probe) && l.contains(": user door: "));
    // Functions of two instructions have room for one jump: then both edges are told of by the other door.
    let by_kernel = |name: &str, why: &str| {
        let is_told =
            |l: &str| l.contains(&format!(":{name} at")) && l.contains(&format!(": kernel door: {why}"));
        errors.lines().any(is_told)
    };
    for name in NAMES {
        // Where it is left on a condition, the kernel cannot tell.
        let is_divided = by_user(&format!(":{name} at")) && by_kernel(name, "");
        assert!(!is_divided || name == "f_maybe", "{name}: {errors}");
    }
    assert!(by_kernel("f_get", "another jump of ours is too near"), "{errors}");
    assert!(by_kernel("f_get", "another edge of the function"), "{errors}");
    assert!(by_user("f_sum at") && errors.contains("door: user"), "{errors}");
    // One of its exits has a jump whose bytes say where it lands: now and then the heap is there.
    assert!(by_user("f_choice at") || by_kernel("f_choice", "its jump would land at"), "{errors}");
    // A part of a function is not a function.
    assert!(!errors.contains("f_choice.cold"), "{errors}");
    // Where only entries are asked for, there is nothing to be put in order.
    let (own, rows, errors) = traced("uprobe:FILE:f_get { @in = count(); }", "300");
    assert_eq!(rows["@in[]"], own["f_get"], "{errors}");
    let is_by_user = |l: &str| l.contains("f_get at") && l.contains(": user door: ");
    assert!(errors.lines().any(is_by_user), "{errors}");
}

#[test]
fn counts_stay_in_the_program() {
    let (own, rows, errors) = traced("uprobe:FILE:f_sum { @in = count(); @sum = sum(arg1); }", "3000");
    assert_eq!(rows["@in[]"], own["f_sum"], "{errors}");
    assert!(errors.contains("nothing is sent") && errors.contains("nopal: 0 hits were sent"), "{errors}");
}

#[test]
fn arguments_and_what_is_returned() {
    let (own, rows, errors) = traced(
        "uprobe:FILE:f_length { @name[str(arg0)] = count(); @more[arg1] = count(); }
         uretprobe:FILE:f_length { @length[retval] = count(); }
         uprobe:FILE:f_many { @last = sum(arg0 + arg5); }
         uretprobe:FILE:f_down /retval == 1/ { @bottom = count(); }
         uretprobe:FILE:f_tail { @tail = sum(retval); }",
        "700",
    );
    for i in 0..7 {
        assert_eq!(rows[&format!("@name[name{i}]")], 100, "{errors}");
    }
    // The other calls come from a choice, with the number of the round.
    assert_eq!(rows["@length[8]"].as_i64().unwrap(), 700 + 1, "{errors}");
    assert_eq!(rows["@last[]"], (0..700).map(|i| i + 5).sum::<i64>());
    assert_eq!(rows["@bottom[]"], 700, "{errors}");
    assert_eq!(rows["@tail[]"], (0..700).map(|i| i * 3 + 1).sum::<i64>());
    assert_eq!(own["f_tail"], 700);
    let tail = errors.lines().find(|l| l.contains("f_tail at")).unwrap();
    assert!(tail.contains("kernel door") && tail.contains("no return value yet"), "{tail}");
}

/// Beginning and length of each instruction of a file's `.text`, as objdump has them.
pub(super) fn instructions(file: &Path) -> Vec<(u64, usize)> {
    let text = run(Command::new("objdump").args(["-d", "--insn-width=16", "-j", ".text"]).arg(file));
    let line = |line: &str| {
        let mut parts = line.split('\t');
        let address = u64::from_str_radix(parts.next()?.trim().strip_suffix(':')?, 16).ok()?;
        Some((address, parts.next()?.split_whitespace().count()))
    };
    text.lines().filter_map(line).collect()
}

/// The link-time address of the file's beginning.
fn first_address(file: &Path) -> u64 {
    let text = run(Command::new("readelf").arg("-lW").arg(file));
    let loads = text.lines().filter_map(|line| line.trim().strip_prefix("LOAD"));
    let mut words = loads.map(|line| line.split_whitespace().map(|word| word.trim_start_matches("0x")));
    let [offset, address] = words.find_map(|mut words| Some([words.next()?, words.next()?])).unwrap();
    assert!(offset.bytes().all(|byte| byte == b'0'), "{text}");
    u64::from_str_radix(address, 16).unwrap()
}

/// The code of a file as a process has it: link-time address, what the file has, what there is now.
pub(super) fn code_of(pid: u32, file: &Path) -> (u64, Vec<u8>, Vec<u8>) {
    let (address, offset, len) = section(file, ".text").unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let is_first = |line: &&str| line.ends_with(file.to_str().unwrap()) && line.contains(" 00000000 ");
    let bias = maps.lines().find(is_first).and_then(|line| line.split('-').next()).unwrap();
    let bias = u64::from_str_radix(bias, 16).unwrap() - first_address(file);
    let (mut now, mut then) = (vec![0; len as usize], vec![0; len as usize]);
    fs::File::open(format!("/proc/{pid}/mem")).unwrap().read_exact_at(&mut now, bias + address).unwrap();
    fs::File::open(file).unwrap().read_exact_at(&mut then, offset).unwrap();
    (address, then, now)
}

/// Starts nopal on a process and waits until it says that sites are open.
pub(super) fn attach(pid: u32, script: &str, log: &Path) -> Running {
    let mut command = Command::new(nopal());
    command.args(["run", "-v", "-e", script, "-p", &pid.to_string()]);
    command.stdout(Stdio::null()).stderr(fs::File::create(log).unwrap());
    let running = Running::start(&mut command);
    wait_until("sites are open", 120, || fs::read_to_string(log).is_ok_and(|text| text.contains("sites: ")));
    running
}

pub(super) fn stop(mut tracer: Running) {
    // SAFETY: sends a signal to a child that has not been waited for.
    unsafe { libc::kill(tracer.pid() as i32, libc::SIGINT) };
    assert!(tracer.0.wait().unwrap().success());
}

/// A file of its own: others put breakpoints into whoever maps it.
pub(super) fn busy_program(name: &str, more: &[&str]) -> (Running, PathBuf) {
    let copy = scratch(name).join("functions");
    copy_program(&program(), &copy);
    let program = copy;
    let mut command = Command::new(&program);
    command.args(["0", "3"]).args(more).stdout(Stdio::piped());
    (Running::start(&mut command), program)
}

/// Ends the program, which has checked every result of its own.
pub(super) fn end(mut target: Running) {
    // SAFETY: sends a signal to a child that has not been waited for.
    unsafe { libc::kill(target.pid() as i32, libc::SIGTERM) };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut target.0.stdout.take().unwrap(), &mut said).unwrap();
    let status = target.0.wait().unwrap();
    assert!(status.success() && said.contains("errors=0"), "{status}: {said}");
}

#[test]
fn of_one_instruction_the_first_byte_changes_alone_or_never_and_all_come_back() {
    let (target, program) = busy_program("functions_bytes", &[]);
    let boundaries = instructions(&program);
    let script =
        format!("uprobe:{0}:f_* {{ @ = count(); }} uretprobe:{0}:f_* {{ @r = count(); }}", program.display());
    let log = program.with_extension("log");
    for _ in 0..3 {
        let tracer = attach(target.pid(), &script, &log);
        let (start, then, now) = code_of(target.pid(), &program);
        let mut n_changed = 0;
        for (address, len) in &boundaries {
            let range = (address - start) as usize..(address - start) as usize + len;
            let (then, now) = (&then[range.clone()], &now[range]);
            let n = then.iter().zip(now).filter(|(a, b)| a != b).count();
            n_changed += usize::from(n > 0);
            // What fills up behind a return is never run.
            let is_filling = matches!(then[0], 0x66 | 0x0f | 0x2e | 0x90);
            assert!(n <= 1 || then[0] == now[0] || is_filling, "{address:#x}: {then:02x?} {now:02x?}");
        }
        assert!(n_changed >= NAMES.len(), "{n_changed}");
        stop(tracer);
        let (_, then, now) = code_of(target.pid(), &program);
        let changed: BTreeSet<usize> = (0..now.len()).filter(|i| now[*i] != then[*i]).collect();
        assert!(changed.is_empty(), "{changed:x?}");
    }
    end(target);
}

/// A tool with uprobes of the kernel on these points, for a moment.
fn visit(tool: &str, pid: u32, points: &[String]) {
    let script = format!("{} {{ @[probe] = count(); }} interval:ms:300 {{ exit(); }}", points.join(","));
    let mut command = Command::new(tool);
    if tool != "bpftrace" {
        command.args(["run", "--door", "kernel"]);
    }
    command.args(["-p", &pid.to_string(), "-e", &script]).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{said}{}", String::from_utf8_lossy(&stderr));
    let n_seen = said.lines().filter(|line| line.starts_with("@[")).count();
    assert_eq!(n_seen, points.len(), "{said}{}", String::from_utf8_lossy(&stderr));
}

#[test]
fn other_tools_beside_the_jumps_of_functions_harm_nobody() {
    let (target, program) = busy_program("functions_beside", &[]);
    let file = program.display().to_string();
    let script = format!("uprobe:{file}:f_* {{ @ = count(); }} uretprobe:{file}:f_* {{ @r = count(); }}");
    let tracer = attach(target.pid(), &script, &program.with_extension("log"));
    let nm = run(Command::new("nm").args(["-S", "--defined-only"]).arg(&program));
    let place = |name: &str| {
        let line = nm.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        let words: Vec<u64> = line.split(' ').take(2).map(|w| u64::from_str_radix(w, 16).unwrap()).collect();
        words[0]..words[0] + words[1]
    };
    let boundaries = instructions(&program);
    for name in ["f_sum", "f_tail", "f_maybe", "f_choice"] {
        // On the entry and on each of the instructions behind it, which the distance of a jump may be made of.
        let at = boundaries.iter().map(|(at, _)| *at).filter(|at| place(name).contains(at)).take(4);
        let probes: Vec<String> =
            at.map(|at| format!("uprobe:{file}:{name}+{}", at - place(name).start)).collect();
        visit(nopal().to_str().unwrap(), target.pid(), &probes);
        visit("bpftrace", target.pid(), &[format!("uprobe:{file}:{name}")]);
    }
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-q",
        "-batch",
        "-p",
        &target.pid().to_string(),
        "-ex",
        "break *f_sum",
        "-ex",
        "break *f_length+4",
    ]);
    gdb.args(["-ex", "continue", "-ex", "continue", "-ex", "delete", "-ex", "detach"]);
    let said = run(gdb.stdin(Stdio::null()));
    assert!(
        said.matches("hit Breakpoint").count() >= 2 || said.matches("Breakpoint ").count() >= 4,
        "{said}"
    );
    stop(tracer);
    let (_, then, now) = code_of(target.pid(), &program);
    assert!(then == now, "all bytes are back");
    end(target);
}

#[test]
fn functions_are_recorded_as_events() {
    let program = program();
    let recording = scratch("functions_recorded").join("rec");
    let mut command = Command::new(nopal());
    command.args(["record", "-v", "-e", &format!("function:{}:f_[lsdj]*", program.display()), "-o"]);
    let output =
        command.arg(&recording).arg("--").arg(&program).arg("300").stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("complete"), "{errors}");
    let text = run(Command::new("babeltrace2").arg(&recording));
    let events =
        |name: &str| text.lines().filter(|line| line.contains(&format!(":{name}: "))).collect::<Vec<_>>();
    for (name, n) in [("f_sum", 800), ("f_length", 350), ("f_down", 900), ("f_set", 300), ("f_jump", 300)] {
        let n_left = if name == "f_jump" { n / 2 } else { n };
        let (entered, left) =
            (events(&format!("{name}__entry")).len(), events(&format!("{name}__return")).len());
        assert_eq!((entered, left), (n, n_left), "{name}: {errors}");
    }
    // 300 of the program's own and 50 of a choice.
    let returned =
        |value: &str| events("f_length__return").iter().filter(|line| line.contains(value)).count();
    assert!(returned("retval = 8, sp = ") >= 300, "{text}");
    assert!(events("f_set__entry")[7].contains("value = 7"), "{}", events("f_set__entry")[7]);
    // Their names make them spans.
    let latency =
        run(Command::new(nopal()).args(["latency", "--json", "f_length", "--recording"]).arg(&recording));
    let answer: Value = serde_json::from_str(&latency).unwrap();
    assert_eq!((&answer["rows"][0]["count"], &answer["complete"]), (&350.into(), &true.into()), "{latency}");
}
