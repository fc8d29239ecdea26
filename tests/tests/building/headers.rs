//! sys/sdt.h and nopal.h with every compiler, standard, optimisation and linker: site bytes, notes, base, semaphores.

use nopal_tests::tools::{self, Note};
use nopal_tests::{root, run, scratch};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `nop`, then the 10-byte nop.
const SITE: [u8; 11] = [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

const C: [&str; 2] = ["gcc", "clang"];
const CXX: [&str; 2] = ["g++", "clang++"];

/// Sizes and signs of the arguments of `values.c`, which no compiler may change: it only chooses where they are.
const VALUES: &[(&str, &str)] = &[
    ("named:guarded", "-4 8 8 8 8 8 8 2 4"),
    ("named:lazy", "8"),
    ("named:plain", "-4 1"),
    ("values:constants", "-4 -8 1 -8"),
    ("values:floats", "4f 8f"),
    ("values:leaf", "8"),
    ("values:narrow", "-1 1 -2 2"),
    ("values:nothing", ""),
    ("values:pointers", "8 8 8"),
    ("values:scalars", "1 -1 4 -4 -4"),
    ("values:twelve", "8 8 8 8 8 8 8 8 8 8 8 8"),
    ("values:twice", "-4"),
    ("values:wide", "-4 4 -8 8"),
];

const OLD: &[(&str, &str)] = &[
    ("old:five", "-1 8 4 8 8f"),
    ("old:nothing", ""),
    ("old:twelve", "-4 -4 -4 -4 -4 -4 -4 -4 -4 -4 -4 -4"),
];

fn fixture(path: &str) -> PathBuf {
    root().join("tests/fixtures").join(path)
}

/// What stands before each `@`.
fn sizes(note: &Note) -> String {
    let words = note.args.split_whitespace().filter_map(|word| word.split_once('@'));
    words.map(|(size, _)| size).collect::<Vec<_>>().join(" ")
}

/// Checks a linked file as a whole and returns its notes by probe.
#[track_caller]
fn check(file: &Path, site: &[u8], what: &str) -> BTreeMap<String, Vec<Note>> {
    let (base, _, size) = tools::section(file, ".stapsdt.base").unwrap_or_else(|| panic!("{what}: no base"));
    assert_eq!(size, 1, "{what}: one base");
    let probes = tools::section(file, ".probes");
    let mut by_probe: BTreeMap<String, Vec<Note>> = BTreeMap::new();
    for note in tools::readelf(file) {
        assert_eq!(note.base, base, "{what}: {note:?}");
        assert_eq!(tools::code_at(file, note.site.address, site.len()), site, "{what}: {note:?}");
        if note.site.semaphore != 0 {
            let (start, _, size) = probes.unwrap_or_else(|| panic!("{what}: no semaphores"));
            assert!((start..start + size).contains(&note.site.semaphore), "{what}: {note:?}");
        }
        by_probe.entry(note.site.probe.clone()).or_default().push(note);
    }
    by_probe
}

#[track_caller]
fn check_sizes(notes: &BTreeMap<String, Vec<Note>>, expected: &[(&str, &str)], what: &str) {
    let found: Vec<(&str, String)> =
        notes.iter().map(|(probe, notes)| (probe.as_str(), sizes(&notes[0]))).collect();
    let expected: Vec<(&str, String)> =
        expected.iter().map(|(probe, sizes)| (*probe, (*sizes).to_owned())).collect();
    assert_eq!(found, expected, "{what}");
    for notes in notes.values() {
        assert!(notes.iter().all(|note| sizes(note) == sizes(&notes[0])), "{what}: {notes:?}");
    }
}

/// Builds and runs values.c and checks it.
fn check_values(compiler: &[&str], flags: &[&str], folder: &Path) {
    let what = format!("{compiler:?} {flags:?}");
    let program = tools::compile(compiler, flags, &[fixture("c-probes/values.c")], folder.join("values"));
    assert_eq!(run(Command::new(&program).arg("2")), "evaluated 0\n", "{what}");
    let notes = check(&program, &SITE, &what);
    check_sizes(&notes, VALUES, &what);
    // Or more, where the compiler made two loops of one.
    assert!(notes["values:twice"].len() >= 2, "{what}");
    for (probe, notes) in &notes {
        let is_guarded = ["named:guarded", "named:lazy"].contains(&probe.as_str());
        assert!(notes.iter().all(|note| (note.site.semaphore != 0) == is_guarded), "{what}: {probe}");
    }
    assert_eq!(n_descriptions(&program), 3, "{what}");
}

/// How many nopal notes a file has.
fn n_descriptions(file: &Path) -> usize {
    let text = run(Command::new("readelf").arg("-nW").arg(file).env("LC_ALL", "C"));
    text.lines().filter(|line| line.starts_with("  nopal ")).count()
}

#[test]
fn every_c_standard() {
    let folder = scratch("headers_c");
    for compiler in C {
        for standard in ["-std=c99", "-std=gnu99", "-std=gnu11", "-std=gnu17", "-std=gnu2x"] {
            let flags: &[&str] =
                if standard == "-std=c99" { &["-O2", "-D_POSIX_C_SOURCE=200809L"] } else { &["-O2"] };
            check_values(&[compiler, standard], flags, &folder);
        }
        let program = tools::compile(
            &[compiler, "-std=gnu89"],
            &["-O2"],
            &[fixture("c-probes/old.c")],
            folder.join("old"),
        );
        run(&mut Command::new(&program));
        check_sizes(&check(&program, &SITE, compiler), OLD, compiler);
    }
}

#[test]
fn every_cxx_standard() {
    let folder = scratch("headers_cxx");
    for compiler in CXX {
        for standard in ["-std=c++11", "-std=gnu++14", "-std=gnu++17", "-std=gnu++20", "-std=gnu++2b"] {
            check_values(&[compiler, "-x", "c++", standard], &["-O2", "-Wno-old-style-cast"], &folder);
        }
        let program = tools::compile(
            &[compiler, "-x", "c++", "-std=gnu++98"],
            &["-O2"],
            &[fixture("c-probes/old.c")],
            folder.join("old"),
        );
        run(&mut Command::new(&program));
        check_sizes(&check(&program, &SITE, compiler), OLD, compiler);
    }
}

const TYPES: &[(&str, &str)] = &[
    ("types:captured", "1 -4"),
    ("types:enums", "-1 8 -4 4"),
    ("types:guarded", "-1 8"),
    ("types:in__template", "-8 -8 8 8"),
    ("types:members", "8 8 -4 -4 -2"),
    ("types:named__in__template", "-8 8 8"),
    ("types:others", "8 8 -4 2 -8"),
];

/// A header that is found by `-I` is not taken for one of the system, and its warnings would be the project's.
#[test]
fn no_warning_points_into_the_header() {
    let folder = scratch("headers-warnings");
    let source = folder.join("a.c");
    let text = "#include <sys/sdt.h>\nint main(void) {\n  char c = 'a';\n  int *unused;\n  DTRACE_PROBE2(shop, sale, c, &c);\n  return 0;\n}\n";
    fs::write(&source, text).unwrap();
    for compiler in
        [&["clang", "-Weverything"] as &[&str], &["gcc", "-Wall", "-Wextra", "-Wundef", "-Wunused-macros"]]
    {
        let mut command = Command::new(compiler[0]);
        command
            .args(&compiler[1..])
            .arg("-I")
            .arg(root().join("include"))
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg("/dev/null");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // The project's own are still there.
        assert!(output.status.success() && said.contains("unused"), "{said}");
        assert!(!said.contains("include/sys/"), "{said}");
    }
}

#[test]
fn types_of_cxx() {
    let folder = scratch("headers_types");
    for compiler in CXX {
        for flags in [["-std=gnu++11", "-O0"], ["-std=gnu++20", "-O2"]] {
            let program =
                tools::compile(&[compiler], &flags, &[fixture("c-probes/types.cc")], folder.join("types"));
            run(&mut Command::new(&program));
            let what = format!("{compiler} {flags:?}");
            check_sizes(&check(&program, &SITE, &what), TYPES, &what);
        }
    }
}

#[test]
fn every_optimisation_and_code_model() {
    let folder = scratch("headers_optimisation");
    for compiler in [C, CXX].concat() {
        let language: &[&str] = if compiler.ends_with("++") { &["-x", "c++"] } else { &[] };
        let compiler = [&[compiler], language].concat();
        for optimise in ["-O0", "-O1", "-O2", "-O3", "-Os", "-Og"] {
            check_values(&compiler, &[optimise], &folder);
        }
        for model in [
            &["-fno-pie", "-no-pie"][..],
            &["-fPIC", "-pie"],
            &["-static"],
            &["-O2", "-fno-omit-frame-pointer"],
        ] {
            check_values(&compiler, model, &folder);
        }
    }
    check_values(&["musl-gcc"], &["-O2", "-static"], &folder);
}

#[test]
fn intel_syntax_compiles() {
    let folder = scratch("headers_intel");
    for compiler in C {
        let flags = ["-O2", "-masm=intel"];
        let program =
            tools::compile(&[compiler], &flags, &[fixture("c-probes/values.c")], folder.join("values"));
        assert_eq!(run(Command::new(&program).arg("2")), "evaluated 0\n");
        check(&program, &SITE, compiler);
    }
}

/// Compilers and linkers that can do LTO together.
fn can_lto(compiler: &str, linker: &str) -> bool {
    match linker {
        "bfd" | "gold" => true,
        "lld" => compiler.starts_with("clang"),
        _ => false,
    }
}

#[test]
fn every_linker_keeps_base_semaphores_and_one_description() {
    let folder = scratch("headers_linkers");
    for compiler in CXX {
        for linker in ["bfd", "gold", "lld", "mold"] {
            for lto in [false, true] {
                if lto && !can_lto(compiler, linker) {
                    continue;
                }
                // Without the retain flag, as an older assembler would have it.
                for retain in ["-D_NOPAL_SDT_RETAIN=1", "-D_NOPAL_SDT_RETAIN=0"] {
                    let use_linker = format!("-fuse-ld={linker}");
                    let mut flags =
                        vec!["-O2", retain, "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"];
                    flags.push(&use_linker);
                    flags.extend(lto.then_some("-flto"));
                    check_links(compiler, &[&flags[..], &["-fPIE", "-pie"]].concat(), &folder);
                    check_links(compiler, &[&flags[..], &["-fPIC", "-shared"]].concat(), &folder);
                }
            }
        }
    }
}

fn check_links(compiler: &str, flags: &[&str], folder: &Path) {
    let what = format!("{compiler} {flags:?}");
    let sources = [fixture("c-links/one.cc"), fixture("c-links/two.cc")];
    let file = tools::compile(&[compiler], flags, &sources, folder.join("links"));
    let notes = check(&file, &SITE, &what);
    assert_eq!(notes.keys().collect::<Vec<_>>(), ["links:plain", "links:tick"], "{what}");
    let semaphore = notes["links:tick"][0].site.semaphore;
    assert_ne!(semaphore, 0, "{what}");
    assert!(notes["links:tick"].iter().all(|note| note.site.semaphore == semaphore), "{what}: one semaphore");
    assert!(notes["links:plain"].iter().all(|note| note.site.semaphore == 0), "{what}");
    assert_eq!(n_descriptions(&file), 2, "{what}");

    let compiler = &[compiler.replace("++", if compiler == "g++" { "cc" } else { "" })];
    let compiler: Vec<&str> = compiler.iter().map(String::as_str).collect();
    let file =
        tools::compile(&compiler, flags, &[fixture("c-links/semaphores.c")], folder.join("semaphores"));
    let notes = check(&file, &SITE, &what);
    let semaphores: Vec<u64> = notes.values().map(|notes| notes[0].site.semaphore).collect();
    assert!(
        semaphores.len() == 2 && semaphores[0] != semaphores[1] && !semaphores.contains(&0),
        "{what}: {notes:?}"
    );
}

#[test]
fn arm64_programs_run_and_have_their_notes() {
    let folder = scratch("headers_arm64");
    for optimise in ["-O0", "-O2"] {
        let compiler = ["aarch64-linux-gnu-gcc"];
        let flags = [optimise, "-static"];
        let program =
            tools::compile(&compiler, &flags, &[fixture("c-probes/values.c")], folder.join("values"));
        assert_eq!(run(Command::new("qemu-aarch64").arg(&program).arg("2")), "evaluated 0\n");
        let nop = 0xd503_201f_u32.to_le_bytes();
        let notes = check(&program, &nop, optimise);
        // char has no sign there.
        let expected: Vec<(&str, &str)> = VALUES
            .iter()
            .map(|(probe, sizes)| (*probe, if *probe == "values:scalars" { "1 1 4 -4 -4" } else { *sizes }))
            .collect();
        check_sizes(&notes, &expected, optimise);
        // Half an address, such as [x0, #:lo12:.LANCHOR1], would be of no use to anybody.
        assert!(notes.values().flatten().all(|note| !note.args.contains("lo12")), "{notes:?}");
        assert_eq!(n_descriptions(&program), 3);
    }
    // clang has no arm64 libraries here, but it can compile.
    tools::compile(
        &["clang", "--target=aarch64-linux-gnu", "-I/usr/aarch64-linux-gnu/include"],
        &["-O2", "-c"],
        &[fixture("c-probes/values.c")],
        folder.join("values.o"),
    );
}
