//! The `.d` files of PostgreSQL, CPython, Ruby and PHP, with the command lines of their builds: header and object
//! compared with those of systemtap's `dtrace`, by macros and symbols.

use nopal_tests::{debian, lab, nopal, run, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// One project: its package, the files its steps read, and the steps, which leave `out.h` and `out.o`.
struct Project {
    package: &'static str,
    files: &'static [&'static str],
    steps: &'static str,
    n_probes: usize,
    /// What the post-processed macros are called.
    prefix: &'static str,
}

const PROJECTS: [Project; 4] = [
    Project {
        package: "postgresql-15",
        files: &["*/src/backend/utils/probes.d"],
        steps: "dtrace -C -h -s src/backend/utils/probes.d -o probes.h.tmp
            sed -e 's/POSTGRESQL_/TRACE_POSTGRESQL_/g' -e 's/( *char \\*/(const char */g' \
                -e 's/, *char \\*/, const char */g' probes.h.tmp > out.h
            dtrace -C -G -s src/backend/utils/probes.d access.o storage/lmgr.o -o out.o",
        n_probes: 57,
        prefix: "TRACE_POSTGRESQL_",
    },
    Project {
        package: "python3.11",
        files: &["*/Include/pydtrace.d"],
        steps: "echo 'BEGIN{}' > conftest.d
            dtrace -G -s conftest.d -o conftest.o && test -s conftest.o
            dtrace -o pydtrace_probes.h -h -s Include/pydtrace.d
            sed 's/PYTHON_/PyDTrace_/' pydtrace_probes.h > out.h
            dtrace -o out.o -G -s Include/pydtrace.d Python/ceval.o Modules/gcmodule.o",
        n_probes: 12,
        prefix: "PyDTrace_",
    },
    Project {
        package: "ruby3.1",
        files: &["*/probes.d", "*/vm_opts.h"],
        steps: "echo 'provider conftest{ probe fire(); };' > conftest_provider.d
            dtrace -h -o conftest_provider.h -s conftest_provider.d
            grep CONFTEST_FIRE conftest_provider.h
            echo 'int main(void) { return 0; }' > conftest.c && cc -c conftest.c && cp conftest.o conftest.o.bak
            dtrace -G -s conftest_provider.d conftest.o
            test -s conftest_provider.o && cmp conftest.o conftest.o.bak
            dtrace -o probes.h.tmp -h -C -I. -I./include -s probes.d
            sed -e 's/RUBY_/RUBY_DTRACE_/g' -e 's/PROBES_H_TMP/RUBY_PROBES_H/' -e 's/(char \\*/(const char */g' \
                -e 's/, char \\*/, const char */g' probes.h.tmp > out.h
            dtrace -G -C -I. -I./include -s probes.d -o out.o",
        n_probes: 22,
        prefix: "RUBY_DTRACE_",
    },
    Project {
        package: "php8.2",
        files: &["*/Zend/zend_dtrace.d"],
        steps: "CFLAGS='-g -O2' dtrace -h -C -s Zend/zend_dtrace.d -o gen.h.bak
            sed -e 's,PHP_,DTRACE_,g' gen.h.bak > out.h
            mkdir -p .libs
            CFLAGS='-g -O2' dtrace -G -o .libs/out.o -s Zend/zend_dtrace.d a.o b.o 2>/dev/null && test -f .libs/out.o
            CFLAGS='-g -O2' dtrace -G -o out.o -s Zend/zend_dtrace.d a.o b.o 2>/dev/null && test -f out.o",
        n_probes: 11,
        prefix: "DTRACE_",
    },
];

/// `#define` lines that the header adds to what `sys/sdt.h` defines, with the same spelling of blanks.
fn macros(folder: &Path) -> BTreeSet<String> {
    let defines = |text: &str| -> BTreeSet<String> {
        fs::write(folder.join("macros.c"), text).expect("the scratch folder can be written");
        let text = run(Command::new("cpp").args(["-dM", "macros.c"]).current_dir(folder));
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ").replace(" (", "(")).collect()
    };
    let base =
        defines("#define _SDT_HAS_SEMAPHORES 1\n#define STAP_HAS_SEMAPHORES 1\n#include <sys/sdt.h>\n");
    defines("#include \"out.h\"\n").difference(&base).cloned().collect()
}

/// Name, type, binding, visibility and size of each semaphore in an object.
fn semaphores(object: &Path) -> BTreeSet<Vec<String>> {
    let symbols = run(Command::new("readelf").arg("-sW").arg(object));
    let words = symbols.lines().map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let semaphores = words.filter(|w| w.last().is_some_and(|n| n.ends_with("_semaphore")));
    semaphores.map(|w| vec![w[7].clone(), w[3].clone(), w[4].clone(), w[5].clone(), w[2].clone()]).collect()
}

#[test]
fn real_d_files_give_what_systemtap_gives() {
    for project in &PROJECTS {
        let sources = debian::files(project.package, project.files);
        let mut results = Vec::new();
        for tool in ["nopal", "stap"] {
            let folder = scratch(&format!("dtrace-{}-{tool}", project.package));
            lab::copy_tree(&sources, &folder);
            let program = if tool == "nopal" { nopal() } else { Path::new("/usr/bin/dtrace") };
            let path = lab::path_with_dtrace(&folder.join(".tools"), program);
            run(Command::new("sh").args(["-e", "-c", project.steps]).current_dir(&folder).env("PATH", path));
            let left: Vec<String> = fs::read_dir(&folder)
                .expect("the scratch folder can be read")
                .flatten()
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .filter(|n| n.starts_with(".dtrace") || n.contains(".tmp.") || n.ends_with(".tmp~"))
                .collect();
            assert!(left.is_empty(), "{}: {tool} left {left:?}", project.package);
            results.push((macros(&folder), semaphores(&folder.join("out.o")), folder));
        }
        let (ours, theirs) = (&results[0], &results[1]);
        assert_eq!(ours.0, theirs.0, "macros of {}", project.package);
        assert_eq!(ours.1, theirs.1, "semaphores of {}", project.package);
        assert_eq!(ours.1.len(), project.n_probes, "{}", project.package);
        let with_prefix = ours.0.iter().filter(|m| m.starts_with(&format!("#define {}", project.prefix)));
        assert_eq!(with_prefix.count(), 2 * project.n_probes, "{}", project.package);
        compiles(&ours.2, project.package);
    }
}

/// The post-processed header in C and C++ of several standards, with the flags of the strictest project.
fn compiles(folder: &Path, package: &str) {
    fs::write(folder.join("use.c"), "#include \"out.h\"\nint main(void) { return 0; }\n").expect("written");
    let include = format!("-I{}", nopal_tests::root().join("include").display());
    for (compiler, language, standards) in
        [("gcc", "c", ["gnu99", "gnu11", "gnu17"]), ("g++", "c++", ["gnu++98", "gnu++11", "gnu++20"])]
    {
        for standard in standards {
            run(Command::new(compiler)
                .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", &include, "-x", language])
                .arg(format!("-std={standard}"))
                .arg("use.c")
                .current_dir(folder)
                .env("NOPAL_PACKAGE", package));
        }
    }
}
