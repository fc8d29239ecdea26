//! A thousand functions of real programs at work: right results, counts that others tell too, and every byte back afterwards.

use super::function_programs::{Memcached, open};
use super::functions::stop;
use nopal_tests::at_work::{Asked, AtWork, Database, Nginx, changed_code, family, go_server, rust_program};
use nopal_tests::cycles::cycles;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::{root, run, scratch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

pub(super) const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
const N_FUNCTIONS: usize = 1000;

/// Who says how often functions are entered in a piece of work.
enum Told {
    /// uprobes of bpftrace, in a piece of work just before.
    ByBpftrace(&'static [&'static str]),
    /// The work is known.
    ByPlan(&'static [(&'static str, i64)]),
}

/// Counts of bpftrace over one piece of work. The kernel may count a hit twice that something interrupts: two times must be alike.
fn by_bpftrace(program: &mut dyn AtWork, file: &str, names: &[&str], folder: &Path) -> BTreeMap<String, i64> {
    let mut all: Vec<_> = (0..2).map(|_| counted_once(program, file, names, folder)).collect();
    while all[all.len() - 1] != all[all.len() - 2] {
        assert!(all.len() < 5, "bpftrace counts something else each time: {all:?}");
        all.push(counted_once(program, file, names, folder));
    }
    all.pop().expect("there are two")
}

fn counted_once(
    program: &mut dyn AtWork,
    file: &str,
    names: &[&str],
    folder: &Path,
) -> BTreeMap<String, i64> {
    let points: Vec<String> = names.iter().map(|name| format!("uprobe:{file}:{name}")).collect();
    let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {} {{ @[probe] = count(); }}", points.join(","));
    let out = folder.join("bpftrace");
    let mut command = Command::new("bpftrace");
    command.args(["-p", &program.worker().to_string(), "-e", &script]);
    command.stdout(fs::File::create(&out).unwrap()).stderr(Stdio::inherit());
    let mut tracer = Running::start(&mut command);
    let said = || fs::read_to_string(&out).unwrap();
    // Its probes are there before BEGIN runs.
    wait_until("bpftrace is ready", 60, || said().contains("ready"));
    program.work();
    // SAFETY: sends a signal to a child that has not been waited for.
    unsafe { libc::kill(tracer.pid() as i32, libc::SIGINT) };
    assert!(tracer.0.wait().unwrap().success());
    let row = |line: &str| {
        let (point, count) = line.strip_prefix("@[")?.split_once("]: ")?;
        Some((point.rsplit(':').next()?.to_owned(), count.trim().parse().ok()?))
    };
    let counts: BTreeMap<String, i64> = said().lines().filter_map(row).collect();
    assert_eq!(counts.len(), names.len(), "each is called: {}", said());
    counts
}

/// Entered and left, by name.
fn counts(answer: &Value) -> BTreeMap<String, [i64; 2]> {
    let mut counts: BTreeMap<String, [i64; 2]> = BTreeMap::new();
    for row in answer["rows"].as_array().unwrap() {
        // Names of C++ and Rust have colons, too.
        let name = row["key"][0].as_str().unwrap().splitn(3, ':').nth(2).unwrap();
        counts.entry(name.to_owned()).or_default()[usize::from(row["map"] == "@out")] +=
            row["value"].as_i64().unwrap();
    }
    counts
}

/// Names of the functions that the log says are open where they are entered (`uprobe`) or left (`uretprobe`).
fn opened(log: &str, point: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix(point)?.strip_prefix(':')?;
        let is_open = rest.contains(": user door: ") || rest.contains(": kernel door: ");
        is_open.then(|| rest.split_once(':')?.1.split_once(" at 0x").map(|(name, _)| name.to_owned()))?
    };
    log.lines().filter_map(name).collect()
}

/// Opens the functions while the program works. `unlike` are functions that are not left as often as they are entered, each for a
/// reason: they are left by an exception or `longjmp`, or begin again by a jump to their beginning.
fn check(name: &str, program: &mut dyn AtWork, functions: &[(&str, &str)], told: &Told, unlike: &[&str]) {
    let folder = scratch(&format!("thousand_{name}"));
    let expected = program.work();
    assert_eq!(program.work(), expected, "{name} does the same each time");
    let told = match told {
        Told::ByPlan(planned) => planned.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
        Told::ByBpftrace(names) => by_bpftrace(program, functions[0].0, names, &folder),
    };
    let clauses = functions.iter().map(|(file, pattern)| {
        format!(
            "uprobe:{file}:{pattern} {{ @in[probe] = count(); }} uretprobe:{file}:{pattern} {{ @out[probe] = count(); }}"
        )
    });
    let script = clauses.collect::<Vec<_>>().join(" ");
    for _ in 0..cycles(1) {
        let (tracer, out, log) = open(&["run", "-e", &script], program.pid(), &folder);
        assert_eq!(program.work(), expected, "{name}: the result is another one");
        stop(tracer);
        let (out, log) = (fs::read_to_string(out).unwrap(), fs::read_to_string(log).unwrap());
        let answer: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!([&answer["lost"], &answer["late_processes"]], [0, 0], "{name}: {out}");
        let (entries, exits) = (opened(&log, "uprobe"), opened(&log, "uretprobe"));
        assert!(entries.len() >= N_FUNCTIONS, "{name}: {} functions", entries.len());
        let counts = counts(&answer);
        for (function, n) in &told {
            // Of a name of Rust only a part is known.
            let found = || counts.iter().find(|(name, _)| name.contains(function)).map(|(_, n)| n);
            let found = counts.get(function).or_else(found).map(|n| n[0]);
            assert_eq!(found, Some(*n), "{name}: {function}: {told:?}");
        }
        let n_threads: usize = family(program.pid()).into_iter().map(n_threads).sum();
        let (mut n_calls, mut unequal) = (0, Vec::new());
        for (function, [n_in, n_out]) in &counts {
            n_calls += n_in;
            // A thread may have been within one when tracing began or ended.
            let is_equal = (n_in - n_out).unsigned_abs() as usize <= n_threads;
            let is_told = entries.contains(function) && exits.contains(function);
            let is_known = unlike.iter().any(|part| function.contains(part));
            if is_told && !is_equal && !is_known {
                unequal.push(format!("{function}: entered {n_in} times, left {n_out} times"));
            }
        }
        assert!(unequal.is_empty(), "{name}: {unequal:#?}");
        println!(
            "{name}: {} functions open, {} of them called, {n_calls} calls, {} told by another",
            entries.len(),
            counts.len(),
            told.len()
        );
        for pid in family(program.pid()) {
            code_is_back(pid, name);
        }
        assert_eq!(program.work(), expected, "{name}: the result is another one afterwards");
    }
}

/// All code of a process is that of its files again. Breakpoints of others, who trace the same files at the same time, come and go.
pub(super) fn code_is_back(pid: u32, after: &str) {
    let mut changed = changed_code(pid);
    for _ in 0..300 {
        if changed.is_empty() {
            return;
        }
        sleep(Duration::from_millis(200));
        changed = changed_code(pid);
    }
    panic!("process {pid} after {after}: {changed:?}");
}

fn n_threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

#[test]
fn of_postgresql() {
    let mut database = Database::start("thousand");
    let file = "/usr/lib/postgresql/15/bin/postgres";
    let told = Told::ByBpftrace(&["heap_insert", "heap_update", "heap_delete", "int4mod", "int4div"]);
    // A division by zero leaves by longjmp.
    check("postgresql", &mut database, &[(file, "[bhi]*")], &told, &["int4div"]);
}

#[test]
fn of_nginx() {
    let mut nginx = Nginx::start("thousand_nginx_files");
    let libc = format!("{LIBRARIES}/libc.so.6");
    let told = Told::ByBpftrace(&[
        "ngx_http_create_request",
        "ngx_http_send_header",
        "ngx_palloc",
        "ngx_http_output_filter",
        "ngx_close_connection",
    ]);
    // Its loop begins where it is entered.
    let unlike = ["ngx_chain_update_sent"];
    check("nginx", &mut nginx, &[("/usr/sbin/nginx", "*"), (&libc, "[a-g]*")], &told, &unlike);
}

#[test]
fn of_memcached() {
    let mut memcached = Memcached::start();
    let file = memcached.program().display().to_string();
    let libc = format!("{LIBRARIES}/libc.so.6");
    let told = Told::ByPlan(&[("process_command_ascii", 2000), ("do_item_alloc", 1000)]);
    check("memcached", &mut memcached, &[(&file, "*"), (&libc, "[a-g]*")], &told, &[]);
}

#[test]
fn of_openssl() {
    let (crypto, ssl) = (format!("{LIBRARIES}/libcrypto.so.3"), format!("{LIBRARIES}/libssl.so.3"));
    let told =
        Told::ByBpftrace(&["EVP_DigestUpdate", "EVP_DigestFinal_ex", "EVP_MD_CTX_new", "EVP_MD_CTX_free"]);
    let functions = [(crypto.as_str(), "EVP_*"), (ssl.as_str(), "SSL_*")];
    check("openssl", &mut Asked::openssl("thousand_openssl_keys"), &functions, &told, &[]);
}

#[test]
fn of_ruby() {
    let file = format!("{LIBRARIES}/libruby-3.1.so.3.1.2");
    let told = Told::ByBpftrace(&[
        "rb_str_concat_literals",
        "rb_hash_aset",
        "rb_ary_sort_bang",
        "rb_obj_call_init_kw",
    ]);
    // What raises and throws leaves by longjmp, which passes those that wait for it.
    let unlike = ["rb_vm_exec", "rb_throw_obj", "rb_exc_raise", "rb_rescue", "rb_vrescue", "rb_catch"];
    check("ruby", &mut Asked::ruby(), &[(&file, "rb_*")], &told, &unlike);
}

#[test]
fn of_python() {
    let told = Told::ByBpftrace(&[
        "PyNumber_Remainder",
        "PyUnicode_Format",
        "PyList_Append",
        "PyTraceBack_Here",
        "PyIter_Next",
    ]);
    check(
        "python",
        &mut Asked::python(),
        &[("/usr/bin/python3.11", "Py*"), ("/usr/bin/python3.11", "_Py[A-D]*")],
        &told,
        &[],
    );
}

const JVM: &str = "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so";

#[test]
fn of_the_java_machine() {
    let told = Told::ByPlan(&[("JVM_FillInStackTrace", 4000), ("JVM_StartThread", 4), ("JVM_GC", 1)]);
    let functions = [(JVM, "G1[A-H]*"), (JVM, "JVM_*")];
    check("java", &mut Asked::java("thousand_java_classes"), &functions, &told, &[]);
}

fn go(mode: &str) {
    let program = go_server(mode);
    let file = program.display().to_string();
    let mut server = Asked::start(&mut Command::new(&program));
    let told = Told::ByPlan(&[
        ("main.answer", 400),
        ("main.ask", 4),
        ("net/http.(*Client).do", 400),
        ("net/http.(*Transport).roundTrip", 400),
        ("net/http.(*ServeMux).ServeHTTP", 400),
    ]);
    let name = format!("go_{mode}");
    check(&name, &mut server, &[(&file, "net?*"), (&file, "main?*")], &told, &[]);
}

#[test]
fn of_a_go_server() {
    go("pie");
}

#[test]
fn of_a_rust_program() {
    let program = rust_program("thousand_rust_program");
    let (file, libc) = (program.display().to_string(), format!("{LIBRARIES}/libc.so.6"));
    let mut program = Asked::start(&mut Command::new(&program));
    let told = Told::ByPlan(&[("4work6thrown", 6000)]);
    // Panics begin in these, and pass them.
    let unlike = ["thrown", "panic"];
    check("rust", &mut program, &[(&file, "*"), (&libc, "[a-e]*")], &told, &unlike);
}

/// A Java machine that checks its results, until it is told to end.
#[test]
fn functions_of_the_java_machine_are_opened_and_closed_under_load() {
    let folder = scratch("thousand_java_toggles");
    run(Command::new("javac").arg("-d").arg(&folder).arg(root().join("tests/fixtures/targets/Churn.java")));
    let (out, end) = (folder.join("churn"), folder.join("end"));
    let mut command = Command::new("java");
    command.args(["-XX:+UseG1GC", "-Xmx64m", "-cp"]).arg(&folder).arg("Churn").arg(&end);
    let mut java = Running::start(command.stdout(fs::File::create(&out).unwrap()));
    let said = || fs::read_to_string(&out).unwrap();
    wait_until("Java runs", 60, || said().contains("ready"));
    for pattern in
        ["G1Allocator*", "ObjectMonitor*", "G1CollectedHeap*"].iter().cycle().take(cycles(3) as usize)
    {
        let script = format!(
            "uprobe:{JVM}:{pattern} {{ @in = count(); }} uretprobe:{JVM}:{pattern} {{ @out = count(); }}"
        );
        stop(super::functions::attach(java.pid(), &script, &folder.join("log")));
        code_is_back(java.pid(), pattern);
    }
    fs::write(&end, "").unwrap();
    let status = java.0.wait().unwrap();
    assert!(status.success() && said().contains("all right after"), "{status}: {}", said());
}
