//! What `dtrace` writes, used for real: headers compiled, objects linked by every linker, Rust built, tapsets parsed.

use nopal_tests::{nopal, root, run, scratch};
use std::fs;
use std::path::Path;
use std::process::Command;

const D_FILE: &str = "provider app {
    /** A call begins.
     * @param name who is called
     * @length name len
     * @enum how 0=SYNC 1=ASYNC */
    probe call__start(const char *name, int len, int how, unsigned long long n, void *p, double x);
    probe call__end(int id);
    probe none();
    probe twelve(int, int, int, int, int, int, int, int, int, int, int, int class);
};
provider app__two { probe call__start(uint64_t type); };
";

const USER: &str = "#include \"app.h\"
int main(int argc, char **argv) {
    if (APP_CALL_START_ENABLED()) APP_CALL_START(argv[0], 3, argc, 4UL, argv, 0.5);
    APP_CALL_END(argc);
    APP_NONE();
    APP_TWELVE(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, argc);
    APP__TWO_CALL_START(7UL);
    return APP_NONE_ENABLED() ? 1 : 0;
}
";

fn folder(name: &str) -> std::path::PathBuf {
    let folder = scratch(name);
    fs::write(folder.join("app.d"), D_FILE).expect("written");
    fs::write(folder.join("use.c"), USER).expect("written");
    folder
}

fn dtrace(folder: &Path, args: &str) -> String {
    run(Command::new(nopal()).arg("dtrace").args(args.split_whitespace()).current_dir(folder))
}

fn shell(folder: &Path, script: &str) -> String {
    let include = root().join("include");
    run(Command::new("sh").args(["-e", "-c", script]).current_dir(folder).env("INC", include))
}

#[test]
fn headers_compile_without_a_warning() {
    let folder = folder("dtrace-header");
    dtrace(&folder, "-h -s app.d");
    dtrace(&folder, "-G -s app.d");
    dtrace(&folder, "-DSTAP_SDT_V1 -G -s app.d -o v1.o");
    let flags = "-Wall -Wextra -Werror -pedantic";
    for include in ["-I$INC", ""] {
        for (compiler, language, standards) in [
            ("gcc", "c", "gnu99 gnu11 gnu17 c99"),
            ("g++", "c++", "gnu++98 gnu++11 gnu++20"),
            ("clang", "c", "gnu99 gnu17"),
        ] {
            for standard in standards.split(' ') {
                // clang finds fault with systemtap's own header under -pedantic.
                if compiler == "clang" && include.is_empty() {
                    continue;
                }
                let script = format!(
                    "{compiler} {flags} {include} -std={standard} -x {language} -c use.c -o use.o
                     {compiler} use.o app.o -o use && ./use"
                );
                shell(&folder, &script);
            }
        }
        let script = format!("gcc {flags} {include} -DSTAP_SDT_V1 -O2 use.c v1.o -o use && ./use");
        shell(&folder, &script);
    }
}

/// The seds of the projects leave a header that still compiles.
#[test]
fn headers_survive_what_projects_do_to_them() {
    let folder = folder("dtrace-sed");
    dtrace(&folder, "-h -s app.d -o plain.h");
    dtrace(&folder, "-G -s app.d");
    let table = [
        ("memcached", "sed -e 's,void \\*,const void \\*,' -e 's,char \\*,const char \\*,g'", "APP"),
        ("CPython", "sed 's/APP_/PyDTrace_/'", "PyDTrace"),
        (
            "PostgreSQL",
            "sed -e 's/APP_/TRACE_APP_/g' -e 's/( *char \\*/(const char */g' -e 's/, *char \\*/, const char */g'",
            "TRACE_APP",
        ),
        ("PHP", "sed -e 's,APP_,DTRACE_,g'", "DTRACE"),
        ("Perl", "sed -e '/const/!s/char \\*/const char */g' -e '/const/!s/void \\*/const void */g'", "APP"),
    ];
    for (project, sed, prefix) in table {
        let user = USER.replace("APP_", &format!("{prefix}_"));
        fs::write(folder.join("use.c"), user).expect("written");
        // The second provider's macros begin with the first's name and are renamed with them.
        let script = format!(
            "{sed} plain.h > app.h && gcc -Wall -Werror -pedantic -I$INC -O2 use.c app.o -o use && ./use"
        );
        shell(&folder, &script);
        let _ = project;
    }
    // GLib replaces the two defines by undefs: their lines are there, literally.
    let header = fs::read_to_string(folder.join("plain.h")).unwrap();
    assert!(header.lines().any(|l| l == "#define _SDT_HAS_SEMAPHORES 1"));
    assert!(header.lines().any(|l| l.starts_with("#define STAP_HAS_SEMAPHORES 1")));
    assert!(!header.contains("_H\n"), "no include guard");
}

/// OpenJDK includes `sys/sdt.h` first and never runs `-G`: no semaphore may then be asked for.
#[test]
fn without_the_object_a_program_that_read_sdt_h_first_still_links() {
    let folder = folder("dtrace-openjdk");
    dtrace(&folder, "-h -s app.d");
    let user = "#include <sys/sdt.h>\n#include \"app.h\"\nint main(int c, char **v) { APP_CALL_END(c); (void)v; return 0; }\n";
    fs::write(folder.join("use.c"), user).expect("written");
    shell(&folder, "gcc -Wall -Werror -I$INC -O2 use.c -o use && ./use");
}

#[test]
fn every_linker_takes_the_object() {
    let folder = folder("dtrace-link-object");
    dtrace(&folder, "-h -s app.d");
    dtrace(&folder, "-G -s app.d");
    fs::write(folder.join("begin.d"), "BEGIN{}\n").expect("written");
    dtrace(&folder, "-G -s begin.d");
    for linker in ["bfd", "lld", "gold", "mold"] {
        for extra in
            ["", "-Wl,--gc-sections -ffunction-sections -fdata-sections", "-static", "-shared -fPIC", "-flto"]
        {
            // lld does not read gcc's intermediate code.
            if (linker, extra) == ("lld", "-flto") {
                continue;
            }
            let script = format!(
                "gcc -Wall -Werror -I$INC -O2 -fuse-ld={linker} {extra} -Wl,--fatal-warnings use.c app.o begin.o -o use
                 readelf -nW use; readelf -SW use; readelf -lW use"
            );
            let text = shell(&folder, &script);
            let case = format!("{linker} {extra}");
            assert_eq!(text.matches("Provider: app").count(), 5, "{case}: {text}");
            assert_eq!(
                text.lines().filter(|l| l.trim_start().starts_with("nopal ")).count(),
                5,
                "{case}: {text}"
            );
            let probes =
                text.lines().find(|l| l.contains(" .probes ")).unwrap_or_else(|| panic!("{case}: {text}"));
            assert!(probes.contains(" 00000a ") && probes.contains(" WA "), "{case}: {probes}");
            let stack =
                text.lines().find(|l| l.contains("GNU_STACK")).unwrap_or_else(|| panic!("{case}: {text}"));
            assert!(stack.contains(" RW "), "{case}: {stack}");
        }
    }
    shell(&folder, "musl-gcc -I$INC -O2 use.c app.o begin.o -o use-musl && ./use-musl");
}

/// The linker gives a program IBT and shadow stacks only if no object objects.
#[test]
fn the_object_does_not_cost_the_program_its_hardening() {
    let folder = folder("dtrace-cet");
    dtrace(&folder, "-h -s app.d");
    dtrace(&folder, "-G -s app.d");
    let script =
        "gcc -I$INC -fcf-protection=full -fPIC -shared -nostdlib use.c app.o -o use.so && readelf -nW use.so";
    let text = shell(&folder, script);
    assert!(text.contains("x86 feature: IBT, SHSTK"), "{text}");
}

#[test]
fn semaphores_have_the_visibility_that_was_asked_for() {
    let folder = folder("dtrace-visibility");
    let table = [
        ("", "HIDDEN", "app_none_semaphore"),
        ("-DSTAP_SDT_V2", "DEFAULT", "app_none_semaphore"),
        ("-D STAP_SDT_V2=1", "DEFAULT", "app_none_semaphore"),
        ("-DSTAP_SDT_V1", "HIDDEN", "none_semaphore"),
    ];
    for (define, visibility, name) in table {
        dtrace(&folder, &format!("{define} -G -s app.d -o x.o"));
        let symbols = shell(&folder, "readelf -sW x.o");
        let line =
            symbols.lines().find(|l| l.ends_with(&format!(" {name}"))).unwrap_or_else(|| panic!("{symbols}"));
        assert!(line.contains(&format!(" 2 OBJECT  GLOBAL {visibility}")), "{define}: {line}");
    }
}

#[test]
fn the_object_is_for_the_compilers_machine() {
    let folder = folder("dtrace-arm64");
    dtrace(&folder, "-h -s app.d");
    let dtrace = nopal().display().to_string();
    let script = format!(
        "export CC=aarch64-linux-gnu-gcc
         {dtrace} dtrace -G -s app.d
         $CC -Wall -Werror -pedantic -I$INC -O2 -static use.c app.o -o use && readelf -hnW use && qemu-aarch64 ./use"
    );
    let text = shell(&folder, &script);
    assert!(text.contains("AArch64"), "{text}");
    assert_eq!(text.matches("Provider: app").count(), 5, "{text}");
}

#[test]
fn wrappers_test_before_they_fire_and_vanish_without_the_guard() {
    let folder = folder("dtrace-wrap");
    let d_file = "provider app { probe call__start(int id, const char *name); probe none(); };";
    fs::write(folder.join("app.d"), d_file).expect("written");
    dtrace(&folder, "-h -s app.d");
    dtrace(&folder, "-G -s app.d");
    dtrace(&folder, "--wrap TRACE -s app.d");
    let user = "#include \"trace.h\"\nint n_calls;\nint cost(int x) { n_calls++; return x; }
        int main(int argc, char **argv) {
            const char *only_for_the_probe = argv[0];
            TRACE_CALL_START(cost(argc), only_for_the_probe);
            if (argc > 5) TRACE_NONE(); else n_calls += 0;
            if (TRACE_NONE_ENABLED()) n_calls = 100;
            return n_calls;
        }";
    fs::write(folder.join("use.c"), user).expect("written");
    let flags = "-Wall -Wextra -Werror -pedantic -I$INC -O2";
    // Nobody traces: the argument is not evaluated, so the program returns 0, with and without probes.
    let text = shell(&folder, &format!("gcc {flags} -DUSE_USDT use.c app.o -o on && ./on && readelf -n on"));
    assert_eq!(text.matches("Provider: app").count(), 2, "{text}");
    let text = shell(&folder, &format!("gcc {flags} use.c -o off && ./off && readelf -n off && nm off"));
    assert!(!text.contains("stapsdt") && !text.contains("semaphore"), "{text}");
    dtrace(&folder, "--wrap=T_ --guard HAVE_PROBES --header gen/app.h -s app.d -o t.h");
    let text = fs::read_to_string(folder.join("t.h")).unwrap();
    assert!(text.contains("#ifdef HAVE_PROBES\n\n#include \"gen/app.h\"\n"), "{text}");
}

/// Every embedded `.d` file becomes a header and wrappers that compile, and an object that links.
#[test]
fn the_whole_catalog_can_be_generated_and_compiled() {
    let folder = scratch("dtrace-catalog");
    let mut n_files = 0;
    for entry in
        fs::read_dir(root().join("core/nopal-provider/catalog")).expect("the catalog is there").flatten()
    {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_none_or(|e| e != "d") {
            continue;
        }
        n_files += 1;
        let d_file = path.display();
        dtrace(&folder, &format!("-h -s {d_file} -o {stem}.h"));
        dtrace(&folder, &format!("-G -s {d_file} -o {stem}.o"));
        dtrace(&folder, &format!("--wrap TRACE_ -s {d_file} -o trace.h"));
        let user = "#include \"trace.h\"\nint main(void) { return 0; }\n";
        fs::write(folder.join("use.c"), user).expect("written");
        let flags = "-Wall -Wextra -Werror -pedantic -I$INC -I.";
        shell(
            &folder,
            &format!("gcc {flags} -DUSE_USDT use.c {stem}.o -o use && ./use && gcc {flags} use.c -o use"),
        );
    }
    assert!(n_files >= 13, "{n_files} files");
}

/// SystemTap reads the tapset. It looks at a kernel's build folder first, which need only look like one.
#[test]
fn systemtap_parses_the_tapset() {
    let folder = folder("dtrace-tapset");
    dtrace(&folder, "--tapset --process ./use -s app.d");
    dtrace(&folder, "-h -s app.d");
    dtrace(&folder, "-G -s app.d");
    shell(&folder, "gcc -I$INC -O2 use.c app.o -o use");
    let release = run(Command::new("uname").arg("-r"));
    let kernel = folder.join("kernel");
    for file in
        [".config", "include/config/kernel.release", "include/linux/compile.h", "Makefile", "Module.symvers"]
    {
        let path = kernel.join(file);
        fs::create_dir_all(path.parent().expect("below kernel")).expect("made");
        let text = if file.ends_with("release") { release.as_str() } else { "" };
        fs::write(path, text).expect("written");
    }
    let stap =
        |args: &[&str]| run(Command::new("stap").arg("-r").arg(&kernel).args(args).current_dir(&folder));
    let parsed = stap(&["-p1", "app.stp"]);
    for text in ["app.call__start", "user_string_n2(", "process(\"./use\")", "arg12"] {
        let text = text.replace("arg12", "class");
        assert!(parsed.contains(&text), "{text}: {parsed}");
    }
}

/// The Rust module builds against the `nopal` crate, from the command line's text and from a build script.
#[test]
fn rust_from_a_d_file_builds_and_has_the_same_probes() {
    let folder = folder("dtrace-rust");
    fs::create_dir_all(folder.join("src")).expect("made");
    let root = root().display();
    let manifest = format!(
        "[workspace]\n[package]\nname = \"use-d\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\nnopal = {{ path = \"{root}/tracee/nopal\" }}\n\
         [build-dependencies]\nnopal-provider = {{ path = \"{root}/core/nopal-provider\" }}\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).expect("written");
    fs::write(folder.join("build.rs"), "fn main() { nopal_provider::build::rust_module(\"app.d\"); }")
        .expect("written");
    let main = "#![deny(warnings)]\ninclude!(concat!(env!(\"OUT_DIR\"), \"/app.rs\"));
        pub mod by_command { include!(\"../app.rs\"); }
        fn main() {
            app::call__start(\"name\", How::ASYNC, 4, core::ptr::null(), 0.5);
            app::call__end(1);
            app::none();
            app::twelve(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
            app__two::call__start(7);
        }";
    fs::write(folder.join("src/main.rs"), main).expect("written");
    dtrace(&folder, "--rust -s app.d -o app.rs");
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline"])
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .current_dir(&folder));
    let text = shell(&folder, "readelf -nW target/debug/use-d");
    let probes: Vec<&str> = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("Name: "))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    assert_eq!(probes, ["call__end", "call__start", "none", "twelve"], "{text}");
    let list = run(Command::new(nopal()).args(["list", "target/debug/use-d"]).current_dir(&folder));
    assert!(list.contains("call__start") && list.contains("how"), "{list}");
}
