//! The public names of sys/sdt.h one by one, what nopal.h and sys/sdt.h refuse, and that both notes can be read back.

use nopal_sdt::probe::Kind;
use nopal_tests::tools::{self, Note};
use nopal_tests::{root, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Writes `text` to a file with that name and returns its path.
fn source(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("the source can be written");
    path
}

/// The notes of an object made of `text`, as (probe, arguments, has a semaphore).
#[track_caller]
fn object(compiler: &[&str], folder: &Path, name: &str, text: &str) -> Vec<(String, String, bool)> {
    let file =
        tools::compile(compiler, &["-c", "-O1"], &[source(folder, name, text)], folder.join("object.o"));
    // The address in an object is still to be relocated, so the relocations tell whether there is a semaphore.
    let relocations = run(Command::new("readelf").arg("-rW").arg(&file));
    tools::readelf(&file)
        .into_iter()
        .map(|Note { site, args, .. }| {
            let semaphore = format!(" {}_semaphore ", site.probe.replace(':', "_"));
            (site.probe, args, relocations.contains(&semaphore))
        })
        .collect()
}

const COMPILERS: [(&[&str], &str); 4] = [
    (&["gcc", "-std=gnu11"], "surface.c"),
    (&["clang", "-std=gnu11"], "surface.c"),
    (&["g++", "-std=gnu++17"], "surface.cc"),
    (&["clang++", "-std=gnu++17"], "surface.cc"),
];

/// A program, and each of its notes as the compilers must all write it.
const FORMS: &[(&str, &[(&str, &str)])] = &[
    // The number of arguments.
    (
        "#include <sys/sdt.h>
         void f(void) { DTRACE_PROBE(p, n0); DTRACE_PROBE1(p, n1, 1); DTRACE_PROBE2(p, n2, 1, 2);
           DTRACE_PROBE3(p, n3, 1, 2, 3); DTRACE_PROBE4(p, n4, 1, 2, 3, 4); STAP_PROBE5(p, n5, 1, 2, 3, 4, 5);
           STAP_PROBE6(p, n6, 1, 2, 3, 4, 5, 6); STAP_PROBE7(p, n7, 1, 2, 3, 4, 5, 6, 7); }",
        &[
            ("p:n0", ""),
            ("p:n1", "-4@$1"),
            ("p:n2", "-4@$1 -4@$2"),
            ("p:n3", "-4@$1 -4@$2 -4@$3"),
            ("p:n4", "-4@$1 -4@$2 -4@$3 -4@$4"),
            ("p:n5", "-4@$1 -4@$2 -4@$3 -4@$4 -4@$5"),
            ("p:n6", "-4@$1 -4@$2 -4@$3 -4@$4 -4@$5 -4@$6"),
            ("p:n7", "-4@$1 -4@$2 -4@$3 -4@$4 -4@$5 -4@$6 -4@$7"),
        ],
    ),
    // Counted arguments, none of them included.
    (
        "#define SDT_USE_VARIADIC
         #include <sys/sdt.h>
         void f(void) { STAP_PROBEV(p, none); STAP_PROBEV(p, two, 1, 2L);
           STAP_PROBEV(p, twelve, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12); }",
        &[
            ("p:none", ""),
            ("p:two", "-4@$1 -8@$2"),
            ("p:twelve", "-4@$1 -4@$2 -4@$3 -4@$4 -4@$5 -4@$6 -4@$7 -4@$8 -4@$9 -4@$10 -4@$11 -4@$12"),
        ],
    ),
    // In asm statements: operands as they stand, and found by the compiler.
    (
        "#include <sys/sdt.h>
         void f(void) { __asm__ (\"nop\\n\" STAP_PROBE_ASM(p, raw, -4@%eax 8@8(%rsi,%rdi)) \"nop\");
           __asm__ (\"nop\\n\" STAP_PROBE_ASM(p, more, 8@[sp, 8] 4@[sp, 16] 2@%%ax) \"nop\" : : \"r\" (1));
           __asm__ (\"nop\\n\" STAP_PROBE_ASM(p, found, STAP_PROBE_ASM_TEMPLATE(2)) \"nop\" : :
                    STAP_PROBE_ASM_OPERANDS(2, 7, -8L)); }",
        &[
            ("p:raw", "-4@%eax 8@8(%rsi,%rdi)"),
            ("p:more", "8@[sp, 8] 4@[sp, 16] 2@%ax"),
            ("p:found", "-4@$7 -8@$-8"),
        ],
    ),
    // A constraint of one's own.
    (
        "#define STAP_SDT_ARG_CONSTRAINT m
         #include <sys/sdt.h>
         int x; void f(void) { DTRACE_PROBE1(p, memory, x); x++; }",
        &[("p:memory", "-4@x(%rip)")],
    ),
    // Names that are macros: other projects pass the provider that way.
    (
        "#include <sys/sdt.h>
         #define PROVIDER real
         #define PROBE(name) DTRACE_PROBE(PROVIDER, name)
         void f(void) { PROBE(name); }",
        &[("real:name", "")],
    ),
    // Inside a condition without braces, twice on a line, in a macro of one's own with a trailing comma operator.
    (
        "#include <sys/sdt.h>
         void f(int x) { if (x) DTRACE_PROBE(p, yes); else DTRACE_PROBE(p, no); }",
        &[("p:yes", ""), ("p:no", "")],
    ),
];

#[test]
fn every_form_in_c_and_cxx() {
    let folder = scratch("headers_forms");
    for (compiler, name) in COMPILERS {
        for (text, expected) in FORMS {
            let mut found = object(compiler, &folder, name, &format!("{text}\n"));
            found.sort();
            let mut expected: Vec<_> = expected
                .iter()
                .map(|(probe, args)| ((*probe).to_owned(), (*args).to_owned(), false))
                .collect();
            expected.sort();
            assert_eq!(found, expected, "{compiler:?}\n{text}");
        }
    }
}

/// A program, and whether its probe p:n refers to a semaphore.
const SEMAPHORES: &[(&str, bool)] = &[
    (
        "#define _SDT_HAS_SEMAPHORES 1
         #include <sys/sdt.h>
         extern unsigned short p_n_semaphore; void f(void) { DTRACE_PROBE(p, n); }",
        true,
    ),
    // Decided when the header is read first: OpenJDK includes it before the generated header and never runs -G.
    (
        "#include <sys/sdt.h>
         #define _SDT_HAS_SEMAPHORES 1
         #include <sys/sdt.h>
         void f(void) { DTRACE_PROBE(p, n); }",
        false,
    ),
    // nopal.h does not decide it.
    (
        "#include <nopal.h>
         #define _SDT_HAS_SEMAPHORES 1
         #include <sys/sdt.h>
         extern unsigned short p_n_semaphore; void f(void) { DTRACE_PROBE(p, n); }",
        true,
    ),
];

#[test]
fn semaphores_are_decided_when_the_header_is_first_read() {
    let folder = scratch("headers_semaphores");
    for (compiler, name) in COMPILERS {
        for (text, has_semaphore) in SEMAPHORES {
            let found = object(compiler, &folder, name, &format!("{text}\n"));
            assert_eq!(found, [("p:n".to_owned(), String::new(), *has_semaphore)], "{compiler:?}\n{text}");
        }
        // The generated header of STAP_SDT_V1 renames the semaphore by a macro.
        let text = "#define _SDT_HAS_SEMAPHORES 1
            #include <sys/sdt.h>
            #define p_n_semaphore n_semaphore
            extern unsigned short n_semaphore; void f(void) { DTRACE_PROBE(p, n); }\n";
        let file =
            tools::compile(compiler, &["-c"], &[source(&folder, name, text)], folder.join("renamed.o"));
        let relocations = run(Command::new("readelf").arg("-rW").arg(&file));
        assert!(
            relocations.contains(" n_semaphore ") && !relocations.contains("p_n_semaphore"),
            "{relocations}"
        );
    }
}

#[test]
fn assembler_programs() {
    let folder = scratch("headers_assembler");
    let text = "#include <sys/sdt.h>
	.text
	.globl f
f:	DTRACE_PROBE(p, none)
	STAP_PROBE2(p, two, -4@%eax, 8@8(%rsi,%rdi,4))
	ret
	.section .note.GNU-stack,\"\",@progbits\n";
    for compiler in [&["gcc"][..], &["clang"]] {
        let found = object(compiler, &folder, "f.S", text);
        let expected = [("p:none", "", false), ("p:two", "-4@%eax 8@8(%rsi,%rdi,4)", false)];
        assert_eq!(
            found,
            expected.map(|(probe, args, semaphore)| (probe.to_owned(), args.to_owned(), semaphore))
        );
        // The whole program: C calls it.
        let main = source(&folder, "main.c", "void f(void); int main(void) { f(); return 0; }\n");
        let program =
            tools::compile(compiler, &["-pie"], &[main, folder.join("f.S")], folder.join("program"));
        run(&mut Command::new(&program));
        for note in tools::readelf(&program) {
            assert_ne!(note.base, 0);
            let site = tools::code_at(&program, note.site.address, 11);
            assert_eq!(site, [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]);
        }
    }
    let arm64 = text.replace("-4@%eax, 8@8(%rsi,%rdi,4)", "-4@x0, 8@[x1]").replace("@progbits", "%progbits");
    let found = object(&["aarch64-linux-gnu-gcc"], &folder, "f.S", &arm64);
    assert_eq!(found[1], ("p:two".to_owned(), "-4@x0 8@[x1]".to_owned(), false));
}

/// What must not compile, and words that the message must have.
const REFUSED: &[(&str, &str)] = &[
    (
        "#include <sys/sdt.h>
         struct s { int a, b; }; void f(struct s x) { DTRACE_PROBE1(p, n, x); }",
        "probe_argument_must_be_a_number_or_a_pointer",
    ),
    (
        "#include <sys/sdt.h>
         union u { int a; long b; }; void f(union u *x) { DTRACE_PROBE2(p, n, 1, *x); }",
        "probe_argument_must_be_a_number_or_a_pointer",
    ),
    (
        "#include <nopal.h>
         void f(int a) { NOPAL_PROBE(p, n, NOPAL_ARG(int, a), NOPAL_ARG(int, a), NOPAL_ARG(int, a), NOPAL_ARG(int, a),
           NOPAL_ARG(int, a), NOPAL_ARG(int, a), NOPAL_ARG(int, a), NOPAL_ARG(int, a), NOPAL_ARG(int, a),
           NOPAL_ARG(int, a), NOPAL_ARG(int, a), NOPAL_ARG(int, a), NOPAL_ARG(int, a)); }",
        "a probe has at most 12 values",
    ),
    (
        "#include <nopal.h>
         void f(void) { NOPAL_PROBE(p, n, NOPAL_DOC(\"1\"), NOPAL_DOC(\"2\"), NOPAL_DOC(\"3\"), NOPAL_DOC(\"4\"),
           NOPAL_DOC(\"5\"), NOPAL_DOC(\"6\"), NOPAL_DOC(\"7\"), NOPAL_DOC(\"8\"), NOPAL_DOC(\"9\"), NOPAL_DOC(\"10\"),
           NOPAL_DOC(\"11\"), NOPAL_DOC(\"12\"), NOPAL_DOC(\"13\"), NOPAL_DOC(\"14\"), NOPAL_DOC(\"15\")); }",
        "a probe has at most 14 items",
    ),
    (
        "#include <nopal.h>
         struct s { int a, b; }; void f(struct s x) { NOPAL_PROBE(p, n, NOPAL_ARG(struct s, x)); }",
        "probe_argument_must_be_a_number_or_a_pointer",
    ),
];

#[test]
fn what_cannot_be_an_argument_is_refused_by_name() {
    let folder = scratch("headers_refused");
    for (compiler, name) in COMPILERS {
        for (text, words) in REFUSED {
            let output = Command::new(compiler[0])
                .args(&compiler[1..])
                .args(["-c", "-o", "/dev/null", "-I"])
                .arg(root().join("include"))
                .arg(source(&folder, name, &format!("{text}\n")))
                .output()
                .expect("the compiler can be run");
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && message.contains(words), "{compiler:?}\n{text}\n{message}");
        }
    }
}

#[test]
fn disabled_probes_leave_nothing_and_evaluate_nothing() {
    let folder = scratch("headers_disabled");
    let text = "#define NOPAL_DISABLE
        #include <nopal.h>
        int main(int argc, char **argv) {
          int n = 0;
          NOPAL_PROBE(p, a, NOPAL_ARG(int, n, ++n), NOPAL_STR(arg, argv[0]), NOPAL_BYTES(argv, argc));
          NOPAL_PROBE_GUARDED(p, b, NOPAL_FLOAT(x, 0.5));
          if (NOPAL_ENABLED(p, b)) NOPAL_FIRE(p, b, NOPAL_ARG(int, n, ++n));
          return n; }\n";
    for (compiler, name) in COMPILERS {
        let program = tools::compile(compiler, &[], &[source(&folder, name, text)], folder.join("program"));
        run(&mut Command::new(&program));
        assert!(tools::readelf(&program).is_empty() && tools::section(&program, ".note.nopal").is_none());
    }
}

#[test]
fn operands_are_those_of_systemtaps_header() {
    let folder = scratch("headers_systemtap");
    let fixture = root().join("tests/fixtures/c-probes/old.c");
    for flags in [&["-O0"][..], &["-O1"], &["-O2"], &["-O3", "-fPIC"]] {
        let args = |include: &[&str], name: &str| {
            let program = folder.join(name);
            run(Command::new("gcc").args(flags).args(include).arg(&fixture).arg("-o").arg(&program));
            tools::readelf(&program).into_iter().map(|note| (note.site.probe, note.args)).collect::<Vec<_>>()
        };
        let ours = format!("-I{}", root().join("include").display());
        assert_eq!(args(&[&ours], "ours"), args(&[], "theirs"), "{flags:?}");
    }
}

#[test]
fn the_description_says_what_the_source_says() {
    let folder = scratch("headers_description");
    for (compiler, _) in COMPILERS {
        let language: &[&str] = if compiler[0].ends_with("++") { &["-x", "c++"] } else { &[] };
        let fixture = root().join("tests/fixtures/c-probes/values.c");
        let program =
            tools::compile(&[compiler, language].concat(), &["-O2"], &[fixture], folder.join("values"));
        let image = fs::read(&program).expect("the program can be read");
        let probes = nopal_sdt::read(&image[..]).expect("its notes can be read").probes;
        let probe =
            probes.iter().find(|p| p.provider == "named" && p.name == "guarded").expect("the probe is there");
        let description = probe.description.as_ref().expect("it has a description");
        assert_eq!(description.doc, "One round of the test program.");
        assert_eq!(description.pair.as_ref().map(|pair| pair.partner.as_str()), Some("plain"));
        let args: Vec<_> = description
            .args
            .iter()
            .map(|arg| {
                (
                    arg.operand,
                    arg.kind,
                    arg.name.as_str(),
                    arg.c_type.as_str(),
                    arg.length_operand,
                    arg.is_trusted,
                )
            })
            .collect();
        let expected = [
            (Some(1), Kind::Signed, "id", "int", None, false),
            (Some(2), Kind::CString, "path", "const char *", None, true),
            (Some(3), Kind::Str, "key", "const char *", Some(4), true),
            (Some(5), Kind::Bytes, "raw", "const void *", Some(6), true),
            (Some(7), Kind::Float, "load", "double", None, false),
            (Some(8), Kind::Unsigned, "flags", "unsigned short", None, false),
            (Some(9), Kind::Enum, "colour", "enum colour", None, false),
        ];
        assert_eq!(args, expected, "{compiler:?}");
        assert_eq!(description.args[0].doc, "Counts from one.");
        assert_eq!(description.args[5].base, Some(16));
        let labels: Vec<_> =
            description.args[6].labels.iter().map(|l| (l.first, l.last, l.text.as_str())).collect();
        assert_eq!(labels, [(0, 0, "red"), (1, 1, "green")]);
    }
}
