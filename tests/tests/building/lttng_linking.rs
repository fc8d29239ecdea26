//! How programs written for LTTng are put together: providers in objects, archives and libraries that come and go, linkers,
//! and where our library is found.

use super::lttng_headers::{PROGRAMS, compile, record};
use nopal_tests::{lttng, nopal, root, run, scratch, tools};
use std::path::Path;
use std::process::Command;

/// The same with LTTng's headers.
fn link_with_theirs(dir: &Path, script: &str) {
    let script = format!(
        "cd {}; source={}; cc() {{ gcc -I$source \"$@\"; }}\n{script}",
        dir.display(),
        root().join("tests/fixtures/lttng").display(),
    );
    run(Command::new("sh").args(["-e", "-c", &script]));
}

/// A plug-in that is loaded after the library with the probes of its tracepoints.
#[test]
fn probes_are_found_by_what_is_loaded_after_them() {
    let script = |lib: &str| {
        format!(
            "cc -fPIC -shared -o probes.so $source/two-probes.c {lib}
             cc -DDYNAMIC -fPIC -shared -o plug.so $source/two-plug.c $source/two-define.c {lib}
             cc -o program $source/plugs.c -ldl"
        )
    };
    let (ours, theirs) = (scratch("lttng-plug"), scratch("lttng-plug-theirs"));
    link(&ours, &script("$lib"));
    link_with_theirs(&theirs, &script("-llttng-ust -ldl"));
    for libraries in ["./probes.so ./plug.so", "./plug.so ./probes.so ./plug.so"] {
        let recorded = lttng::record(&theirs, &["two_files"], &format!("./program {libraries}"));
        let wanted = lttng::events(&recorded);
        std::fs::remove_dir_all(&recorded).unwrap();
        assert_eq!(wanted.len(), 3, "LTTng's: {wanted:?}");
        let command: Vec<&str> = std::iter::once("./program").chain(libraries.split(' ')).collect();
        let recording = record(&ours, &libraries.replace(['.', '/', ' '], ""), &["two_files"], &command, &[]);
        assert_eq!(lttng::events(&recording), wanted, "{libraries}");
    }
}

/// Objects and libraries of the provider in three files.
fn link(dir: &Path, script: &str) {
    let flags = lttng::ours();
    let script = format!(
        "cc() {{ gcc -Wall -Wextra -Werror -O2 -I{source} {include} \"$@\"; }}\ncd {dir}\nsource={source}\nlib='{lib}'\n{script}",
        source = root().join("tests/fixtures/lttng").display(),
        include = flags[0],
        lib = flags[1..].join(" "),
        dir = dir.display(),
    );
    run(Command::new("sh").args(["-e", "-c", &script]));
}

#[test]
fn providers_may_be_linked_in_any_way() {
    let both = [
        "{ n = 1, s = \"before\", _p_length = 1, p = [ [0] = 10 ] }",
        "{ n = 3, s = \"after\", _p_length = 3, p = [ [0] = 10, [1] = 20, [2] = 30 ] }",
    ];
    let preload = |dir: &Path| dir.join("probes.so").display().to_string();
    for (name, script, command, is_preloaded, wanted) in [
        (
            "one-file",
            "cc -DDEFINE_TOO -o program $source/two.c $source/two-probes.c $lib",
            &["./program"][..],
            false,
            &both[..],
        ),
        (
            "three-files",
            "cc -o program $source/two.c $source/two-probes.c $source/two-define.c $lib",
            &["./program"],
            false,
            &both,
        ),
        (
            "archive",
            "cc -c $source/two-probes.c -o probes.o; cc -c $source/two-define.c -o define.o
             ar rcs libtwo.a probes.o define.o; cc -o program $source/two.c libtwo.a $lib",
            &["./program"],
            false,
            &both,
        ),
        (
            "library",
            "cc -DDEFINE_TOO -fPIC -shared -o libtwo.so $source/two-probes.c $lib
             cc -o program $source/two.c ./libtwo.so -ldl",
            &["./program"],
            false,
            &both,
        ),
        (
            "library-and-program-define",
            "cc -DDEFINE_TOO -fPIC -shared -o libtwo.so $source/two-probes.c $lib
             cc -o program $source/two.c $source/two-define.c ./libtwo.so -ldl",
            &["./program"],
            false,
            &both,
        ),
        (
            "library-without-pie",
            "cc -DDEFINE_TOO -fPIC -shared -o libtwo.so $source/two-probes.c $lib
             cc -fno-pie -no-pie -o program $source/two.c ./libtwo.so -ldl",
            &["./program"],
            false,
            &both,
        ),
        (
            "static",
            "cc -DDEFINE_TOO -static -o program $source/two.c $source/two-probes.c $lib",
            &["./program"],
            false,
            &both,
        ),
        (
            "loaded-before",
            "cc -fPIC -shared -o probes.so $source/two-probes.c $lib
             cc -DDYNAMIC -o program $source/two.c $source/two-define.c -ldl",
            &["./program"],
            true,
            &both,
        ),
        (
            "loaded-later",
            "cc -fPIC -shared -o probes.so $source/two-probes.c $lib
             cc -DDYNAMIC -o program $source/two.c $source/two-define.c -ldl",
            &["./program", "./probes.so"],
            false,
            &both[1..],
        ),
        (
            "never-loaded",
            "cc -DDYNAMIC -o program $source/two.c $source/two-define.c -ldl",
            &["./program"],
            false,
            &[],
        ),
    ] {
        let dir = scratch(&format!("lttng-linked-{name}"));
        link(&dir, script);
        let env = [("LD_PRELOAD", preload(&dir))];
        let env: Vec<(&str, &str)> =
            env.iter().filter(|_| is_preloaded).map(|(key, value)| (*key, value.as_str())).collect();
        let recording = record(&dir, "recording", &["two_files"], command, &env);
        let wanted: Vec<String> = wanted.iter().map(|fields| format!("two_files:called: {fields}")).collect();
        assert_eq!(lttng::events(&recording), wanted, "{name}");
    }
}

/// The probes of a program's tracepoints are in a library that comes and goes while the program is traced.
#[test]
fn probes_may_be_unloaded_and_loaded_again() {
    let dir = scratch("lttng-unloaded");
    link(
        &dir,
        "cc -fPIC -shared -o probes.so $source/two-probes.c $lib; cp probes.so again.so
         cc -DDYNAMIC -o program $source/reload.c $source/two-define.c -lpthread -ldl",
    );
    let theirs = |name: &str, arguments: &str| {
        let dir = scratch(&format!("lttng-unloaded-{name}"));
        link_with_theirs(
            &dir,
            "cc -fPIC -shared -o probes.so $source/two-probes.c -llttng-ust; cp probes.so again.so
             cc -DDYNAMIC -o program $source/reload.c $source/two-define.c -lpthread -ldl",
        );
        lttng::events(&lttng::record(&dir, &["two_files"], &format!("./program {arguments}")))
    };
    let comes_and_goes = "1 +./probes.so 2 -./probes.so 3 +./probes.so 1 -./probes.so 2";
    let two_libraries = "+./probes.so 1 +./again.so 2 -./probes.so 3 -./again.so 1";
    let (wanted, twice) = (theirs("theirs", comes_and_goes), theirs("twice", two_libraries));
    assert_eq!((wanted.len(), twice.len()), (2, 4), "LTTng's: {wanted:?} {twice:?}");
    let called = |n: usize| {
        let list = ["[0] = 10", "[1] = 20", "[2] = 30"][..n].join(", ");
        format!("two_files:called: {{ n = {n}, s = \"call\", _p_length = {n}, p = [ {list} ] }}")
    };
    let asked = || "two_files:asked: { n = 0 }".to_owned();
    for door in ["user", "kernel"] {
        for (arguments, wanted) in [
            (comes_and_goes, wanted.clone()),
            // The same probes in two libraries, each of which is asked.
            (two_libraries, twice.clone()),
            // 0 of the probe says that it was waited for.
            ("during ./probes.so 1 during ./probes.so +./probes.so 2", vec![asked(), asked(), called(2)]),
        ] {
            let recording = dir.join(format!("{door}-{}", arguments.replace(['.', '/', ' '], "")));
            let output = run(Command::new(nopal())
                .current_dir(&dir)
                .args(["record", "--door", door, "-e", "two_files:*", "-o"])
                .arg(&recording)
                .args(["--", "./program"])
                .args(arguments.split(' ')));
            assert_eq!(output, "done\n", "{door}, {arguments}");
            assert_eq!(lttng::events(&recording), wanted, "{door}, {arguments}");
        }
    }
}

#[test]
fn the_library_is_found_by_pkg_config_and_needed_by_no_running_program() {
    let dir = scratch("lttng-pkg-config");
    let path = lttng::installed().join("lib/pkgconfig");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "lttng-ust"])
        .env("PKG_CONFIG_PATH", &path));
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    for linker in ["bfd", "gold", "lld", "mold"] {
        let linker = format!("-fuse-ld={linker}");
        let program = compile(&PROGRAMS[3], &["gcc", "-DSHORT_LEVELS", &linker], &flags, dir.join("program"));
        let needed = run(Command::new("readelf").arg("-dW").arg(&program));
        assert!(!needed.contains("lttng"), "{linker}: {needed}");
        let recording = record(&dir, &linker, PROGRAMS[3].providers, &["./program"], &[]);
        let events = lttng::events(&recording);
        assert_eq!(events.len(), 10, "{linker}: {events:?}");
        assert!(events[9].contains("msg = \"no such file\""), "{linker}: {events:?}");
    }
}

#[test]
fn the_library_may_be_moved_and_have_blanks_in_its_path() {
    let dir = scratch("lttng-blanks");
    let folder = dir.join("here and there");
    run(Command::new(root().join("tracee/nopal-lttng/install")).arg(dir.join("first here")));
    std::fs::rename(dir.join("first here"), &folder).unwrap();
    let named =
        [format!("-I{}", folder.join("include").display()), format!("-L{}", folder.join("lib").display())];
    let named = [&named[..], &["-llttng-ust".to_owned()]].concat();
    let by_file = [named[0].clone(), folder.join("lib/liblttng-ust.so").display().to_string()];
    // As a shell reads it: blanks are behind a backslash.
    let script = "eval printf '%s\\\\n' \"$(pkg-config --cflags --libs lttng-ust)\"";
    let asked = run(Command::new("sh")
        .args(["-e", "-c", script])
        .env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig")));
    let asked: Vec<String> = asked.lines().map(str::to_owned).collect();
    assert!(asked[0].contains("here and there"), "{asked:?}");
    for (way, flags) in [("named", &named[..]), ("by_file", &by_file), ("asked", &asked)] {
        for linker in ["bfd", "gold", "lld", "mold"] {
            let linker = format!("-fuse-ld={linker}");
            let program =
                compile(&PROGRAMS[3], &["gcc", "-DSHORT_LEVELS", &linker], flags, dir.join("program"));
            let probes = tools::readelf(&program);
            let is_message = |note: &&tools::Note| note.site.probe == "lttng_ust_tracef:event";
            assert_eq!(probes.iter().filter(is_message).count(), 1, "{way}, {linker}");
        }
    }
}
