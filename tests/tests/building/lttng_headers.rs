//! Programs written for LTTng, compiled with our headers: every tracer sees their tracepoints, and nopal records what
//! LTTng itself records of the same program, value by value.

use nopal_tests::{lttng, nopal, root, run, scratch, tools};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of the fixtures: its folder, its files, the providers it speaks for.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) folder: &'static str,
    pub(super) sources: &'static [&'static str],
    pub(super) providers: &'static [&'static str],
    pub(super) is_cplusplus: bool,
}

pub(super) const PROGRAMS: [Program; 4] = [
    Program {
        name: "hello",
        folder: "lttng",
        sources: &["hello.c", "hello-tp.c"],
        providers: &["hello_world"],
        is_cplusplus: true,
    },
    Program {
        name: "fields",
        folder: "lttng_fields",
        sources: &["fields.c", "messages.c"],
        providers: &["fields", "lttng_ust_tracef", "lttng_ust_tracelog"],
        is_cplusplus: false,
    },
    Program {
        name: "surface",
        folder: "lttng",
        sources: &["surface.c"],
        providers: &["surface"],
        is_cplusplus: true,
    },
    Program {
        name: "old",
        folder: "lttng",
        sources: &["old.c", "old-messages.c"],
        providers: &["old_words", "lttng_ust_tracef", "lttng_ust_tracelog"],
        is_cplusplus: false,
    },
];

/// How our programs are compiled. One of them is also compared with LTTng's recording: all must give the same events.
const COMPILERS: [&[&str]; 7] = [
    &["gcc", "-O0", "-g"],
    &["gcc", "-O2", "-std=c99", "-D_GNU_SOURCE"],
    &["gcc", "-O3", "-flto", "-ffunction-sections", "-Wl,--gc-sections"],
    &["clang", "-O0"],
    &["clang", "-O3", "-flto", "-fuse-ld=lld", "-fvisibility=hidden"],
    &["g++", "-O2", "-x", "c++"],
    &["clang++", "-O2", "-x", "c++", "-std=c++17"],
];

pub(super) fn compile(program: &Program, compiler: &[&str], flags: &[String], into: PathBuf) -> PathBuf {
    let folder = root().join("tests/fixtures").join(program.folder);
    run(Command::new(compiler[0])
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(&compiler[1..])
        .arg("-I")
        .arg(&folder)
        .args(program.sources.iter().map(|source| folder.join(source)))
        // Libraries are no C++.
        .args(compiler.contains(&"-x").then_some("-xnone"))
        .arg("-o")
        .arg(&into)
        .args(flags));
    into
}

/// Records a program from its start, in the folder of that program.
pub(super) fn record(
    dir: &Path,
    name: &str,
    providers: &[&str],
    command: &[&str],
    env: &[(&str, &str)],
) -> PathBuf {
    let recording = dir.join(name);
    let mut nopal = Command::new(nopal());
    nopal.current_dir(dir).arg("record").arg("-o").arg(&recording);
    for provider in providers {
        let is_probe = provider.contains(':');
        nopal.arg("-e").arg(if is_probe { (*provider).to_owned() } else { format!("{provider}:*") });
    }
    let output = nopal.arg("--").args(command).envs(env.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("complete"), "{name}: {said}");
    recording
}

#[test]
fn nopal_records_what_lttng_records() {
    for program in &PROGRAMS {
        let dir = scratch(&format!("lttng-{}", program.name));
        compile(program, &["gcc", "-Wno-unused-parameter"], &lttng::theirs(), dir.join("program"));
        let wanted = lttng::events(&lttng::record(&dir, program.providers, "./program one two"));
        assert!(wanted.len() >= 5, "{}: {wanted:?}", program.name);
        for (idx, compiler) in COMPILERS.iter().enumerate() {
            if compiler.contains(&"c++") && !program.is_cplusplus {
                continue;
            }
            compile(program, compiler, &lttng::ours(), dir.join("program"));
            let command = ["./program", "one", "two"];
            let recording = record(&dir, &format!("recording-{idx}"), program.providers, &command, &[]);
            let got = lttng::events(&recording);
            for (got, wanted) in got.iter().zip(&wanted) {
                assert_eq!(got, wanted, "{} by {compiler:?}", program.name);
            }
            assert_eq!(got.len(), wanted.len(), "{} by {compiler:?}", program.name);
        }
    }
}

#[test]
fn every_reader_of_probes_sees_the_tracepoints() {
    let dir = scratch("lttng-readers");
    let surface = &PROGRAMS[2];
    let program = compile(surface, COMPILERS[2], &lttng::ours(), dir.join("program"));
    let notes = tools::readelf(&program);
    let names = [
        "surface:broken",
        "surface:evaluated",
        "surface:made",
        "surface:many",
        "surface:nothing",
        "surface:states",
        "surface:unwritten",
    ];
    let mut sites: Vec<tools::Site> = notes.iter().map(|note| note.site.clone()).collect();
    sites.sort();
    assert_eq!(sites.iter().map(|site| site.probe.as_str()).collect::<Vec<_>>(), names);
    let n_semaphores =
        sites.iter().map(|site| site.semaphore).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(n_semaphores, names.len(), "each has its own");
    for note in &notes {
        let code = tools::code_at(&program, note.site.address, 11);
        assert_eq!(code, [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "{}", note.site.probe);
    }
    let operands = |name: &str| &notes.iter().find(|note| note.site.probe == name).unwrap().args;
    assert_eq!(operands("surface:made"), "-4@0(%rdi) 8@8(%rdi) 8@16(%rdi) 8@24(%rdi)");
    assert_eq!(
        operands("surface:many"),
        "8@0(%rdi) -4@8(%rdi) -4@16(%rdi) -4@24(%rdi) -4@32(%rdi) -4@40(%rdi) -4@48(%rdi) -4@56(%rdi) \
         -4@64(%rdi) -8@72(%rdi) 8@80(%rdi) 8@88(%rdi)"
    );
    let mut gdb = tools::gdb_sites(&program);
    gdb.sort();
    assert_eq!(gdb, sites);
    let listed = tools::bpftrace_list(&program);
    assert_eq!(listed.iter().map(String::as_str).collect::<Vec<_>>(), names);
    let perf = tools::perf_list(&program, &dir.join("perf"));
    assert_eq!(perf.iter().map(String::as_str).collect::<Vec<_>>(), names);
}

#[test]
fn on_arm64_operands_are_at_the_first_parameter() {
    let dir = scratch("lttng-arm64");
    let folder = root().join("tests/fixtures/lttng");
    for level in ["-O0", "-O2"] {
        let object = dir.join("surface.o");
        run(Command::new("aarch64-linux-gnu-gcc")
            .args(["-Wall", "-Wextra", "-Werror", level, "-c", "-I"])
            .arg(root().join("include"))
            .arg("-I")
            .arg(&folder)
            .arg(folder.join("surface.c"))
            .arg("-o")
            .arg(&object));
        let notes = tools::readelf(&object);
        let made = notes.iter().find(|note| note.site.probe == "surface:made").expect("it has a note");
        assert_eq!(made.args, "-4@[x0, 0] 8@[x0, 8] 8@[x0, 16] 8@[x0, 24]", "{level}");
    }
}

#[test]
fn list_shows_the_fields() {
    let dir = scratch("lttng-list");
    let program = compile(&PROGRAMS[2], COMPILERS[1], &lttng::ours(), dir.join("program"));
    let text = run(Command::new(nopal()).arg("list").arg(&program));
    for arguments in [
        "int id, unsigned long size, const char *name, double weight",
        "const char *i1, int a, int b, int c, int d, short pair[2], int e,",
    ] {
        assert!(text.contains(arguments), "{arguments} is in {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&run(Command::new(nopal()).args(["list", "--json"]).arg(&program))).unwrap();
    let probe = |name: &str| {
        json.as_array()
            .unwrap()
            .iter()
            .find(|probe| probe["name"] == name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(probe("broken")["log_level"], 3);
    assert_eq!(probe("broken")["model_uri"], "http://example.org/?thing=100%25");
    assert!(probe("made")["log_level"].is_null());
    let state = &probe("states")["fields"][0];
    assert_eq!((&state["name"], &state["kind"]), (&"signed_state".into(), &"enum".into()));
    let labels: Vec<(i64, i64, &str)> = state["labels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| (l["first"].as_i64().unwrap(), l["last"].as_i64().unwrap(), l["text"].as_str().unwrap()))
        .collect();
    assert_eq!(
        labels,
        [
            (0, 0, "FIRST"),
            (1, 1, "SECOND"),
            (4, 4, "IDLE"),
            (5, 5, "50% {a|b} done"),
            (6, 6, "after \"busy\""),
            (-5_000_000_000, -4_000_000_000, "far"),
            (1 << 40, (1 << 40) + 5, "beyond"),
        ]
    );
    let fields = probe("unwritten")["fields"].as_array().unwrap();
    let written: Vec<&str> = fields
        .iter()
        .filter(|field| field["is_unwritten"] != true)
        .map(|field| field["type"].as_str().unwrap())
        .collect();
    assert_eq!((fields.len(), written), (16, vec!["int[2]", "short[]"]));
}

#[test]
fn arguments_are_evaluated_only_while_somebody_traces() {
    let dir = scratch("lttng-evaluated");
    let program = compile(&PROGRAMS[2], COMPILERS[1], &lttng::ours(), dir.join("program"));
    assert_eq!(run(&mut Command::new(&program)), "0 evaluated\n");
    let output = |pattern: &str| {
        let recording = dir.join(pattern.replace(':', "-"));
        run(Command::new(nopal())
            .args(["record", "-e", pattern, "-o"])
            .arg(recording)
            .arg("--")
            .arg(&program))
    };
    assert!(output("surface:evaluated").contains("4 evaluated"), "three by tracepoint, one by do_tracepoint");
    assert!(output("surface:made").contains("0 evaluated"), "another probe");
}

#[test]
fn fields_that_are_not_written_serve_conditions() {
    let dir = scratch("lttng-conditions");
    let program = compile(&PROGRAMS[2], COMPILERS[1], &lttng::ours(), dir.join("program"));
    for (condition, n_events) in [
        ("surface:unwritten if i == 5", 4),
        ("surface:unwritten if i == 6", 0),
        ("surface:unwritten if s == \"text\"", 4),
        ("surface:unwritten if at == \"te\"", 4),
        ("surface:unwritten if qt == \"tex\"", 1),
        ("surface:many if i3 == \"(null)\"", 1),
        ("surface:many if j2 > 0", 1),
        ("surface:states if signed_state > 100", 2),
    ] {
        let text = run(Command::new(nopal()).args(["trace", "--json", condition, "--"]).arg(&program));
        let events = text.lines().filter(|line| line.starts_with('{')).count();
        assert_eq!(events, n_events, "{condition}: {text}");
    }
}

/// Events of 30000 bytes and more, on the smallest stack a thread can have and on one of 8 KiB for signals.
#[test]
fn tracepoints_need_little_of_the_stack() {
    let stacks = Program {
        name: "stacks",
        folder: "lttng_stacks",
        sources: &["stacks.c"],
        providers: &["stacks"],
        is_cplusplus: true,
    };
    let dir = scratch("lttng-stacks");
    for (idx, compiler) in COMPILERS.iter().enumerate() {
        compile(&stacks, compiler, &lttng::ours(), dir.join("program"));
        // What the kernel sees does not depend on the compiler.
        for door in if idx == 0 { &["user", "kernel"][..] } else { &["user"] } {
            let recording = dir.join(format!("{door}-{idx}"));
            let output = run(Command::new(nopal())
                .args(["record", "--door", door, "-e", "stacks:*", "-o"])
                .arg(&recording)
                .arg("--")
                .arg(dir.join("program")));
            assert_eq!(output, "done\n", "{door}, {compiler:?}");
            let events: Vec<String> =
                lttng::events(&recording).iter().map(|event| shortened(event)).collect();
            let wanted = ["thread: long", "handler: long", "thread: 504", "handler: 504"].map(|texts| {
                let (place, n) = texts.split_once(": ").expect("they are so above");
                [
                    format!("stacks:sequences: {{ where = \"{place}\", text = {n}, n = 30000 }}"),
                    format!("stacks:arrays: {{ where = \"{place}\", text = 3, last = 7 }}"),
                ]
            });
            assert_eq!(events, wanted.concat(), "{door}, {compiler:?}");
        }
    }
}

/// The text by its length, where what a recording keeps at least is long; without the numbers.
fn shortened(event: &str) -> String {
    let (start, rest) = event.split_once("text = \"").expect("it has a text");
    let (text, rest) = rest.split_once('"').expect("the text ends");
    assert!(text.bytes().all(|byte| byte == b'z'), "{event}");
    let (_, rest) = rest.split_once("], ").expect("it has numbers");
    let start = start.replace(&format!("_text_length = {}, ", text.len()), "");
    let length = if text.len() >= 4092 { "long".to_owned() } else { text.len().to_string() };
    format!("{start}text = {length}, {rest}")
}

/// The examples that come with LTTng's headers, as they are.
#[test]
fn lttngs_own_examples_record_unchanged() {
    let examples = Path::new("/usr/share/doc/liblttng-ust-dev/examples");
    if !examples.exists() {
        eprintln!("skipped: liblttng-ust-dev was installed without its documentation");
        return;
    }
    for (name, build, probes, preload, wanted) in [
        (
            "easy-ust",
            "cc -o program sample.c tp.c $lib",
            "sample_component",
            "",
            &["sample_component:message: { message = \"Hello World\" }"][..],
        ),
        (
            "hello-static-lib",
            "cc -c tp.c; ar rcs libtp.a tp.o; cc -o program hello.c libtp.a $lib",
            // It has a million; a few are enough.
            "ust_tests_hello:tptest if intfield == 3",
            "",
            &["ust_tests_hello:tptest: { intfield = 3, intfield2 = 0x3, longfield = 3, netintfield = 3, \
               netintfieldhex = 0x3, arrfield1 = [ [0] = 1, [1] = 2, [2] = 3 ], arrfield2 = \"test\", \
               _seqfield1_length = 4, seqfield1 = [ [0] = 116, [1] = 101, [2] = 115, [3] = 116 ], \
               _seqfield2_length = 4, seqfield2 = \"test\", stringfield = \"test\", floatfield = 2222, \
               doublefield = 2 }"],
        ),
        (
            "demo",
            "for n in tp tp2 tp3; do cc -fpic -c $n.c; done; cc -shared -o all.so tp.o tp2.o tp3.o $lib
             cc -o program demo.c -ldl",
            "ust_tests_demo",
            "./all.so",
            &["ust_tests_demo:starting: { value = 123 }", "ust_tests_demo:done: { value = 456 }"],
        ),
        (
            "demo-tracef",
            "cc -o program demo-tracef.c $lib",
            "lttng_ust_tracef",
            "",
            &[
                "lttng_ust_tracef:event: { _msg_length = 46, msg = \"This is a \\\"mystring test\\\" formatted 0 event 42\" }",
                "1",
                "2",
                "3",
                "4",
            ],
        ),
    ] {
        let dir = scratch(&format!("lttng-example-{name}"));
        run(Command::new("cp").arg("-r").arg(examples.join(name).join(".")).arg(&dir));
        let flags = lttng::ours();
        let script =
            format!("cc() {{ gcc -O2 -I. {} \"$@\"; }}\nlib='{}'\n{build}", flags[0], flags[1..].join(" "));
        run(Command::new("sh").args(["-e", "-c", &script]).current_dir(&dir));
        let env = [("LD_PRELOAD", preload)];
        let env = if preload.is_empty() { &[][..] } else { &env[..] };
        let recording = record(&dir, "recording", &[probes], &["./program"], env);
        let events = lttng::events(&recording);
        // The first example says the same a hundred thousand times.
        let n_events = if name == "easy-ust" { 100_000 } else { wanted.len() };
        assert_eq!(events.len(), n_events, "{name}");
        for (event, wanted) in events.iter().zip(wanted) {
            // A number stands for the message with that number.
            let is_it = if wanted.len() > 1 {
                event == wanted
            } else {
                event.contains(&format!("formatted {wanted} "))
            };
            assert!(is_it, "{name}: {event}");
        }
    }
}
