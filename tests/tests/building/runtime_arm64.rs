//! Probes that are declared at run time, on arm64: the library compiled with Debian's Rust and run by qemu. The same
//! program is run here, too: where the arguments lie is asked of the machine, not of a tracer.

use nopal_sdt::operand::Arch;
use nopal_tests::arm64::{debian_rust, rustc};
use nopal_tests::{root, run, runtime, scratch};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `trap` and returns the object it had made, and what it said.
fn run_trap(command: &mut Command) -> (nopal_sdt::Object, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let path = lines.next().unwrap().unwrap();
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {said:?}");
    (nopal_sdt::read(&bytes[..]).unwrap(), said.join("\n"))
}

fn check(arch: Arch, site: &[u8], operands: &str, (object, said): (nopal_sdt::Object, String)) {
    assert_eq!(said, "100 101 102 103 104 105 106 107 108 109 110 111 \nok", "{arch:?}");
    assert_eq!(object.arch, Some(arch));
    let probe = object.probe("app", "twelve").unwrap();
    let [place] = &probe.sites[..] else { panic!("{probe:?}") };
    assert!(place.code.starts_with(site), "{probe:?}");
    assert!(place.semaphore.is_some() && probe.description.is_some(), "{probe:?}");
    assert_eq!(place.args.len(), 12, "{probe:?}");
    for arg in &place.args {
        assert!(arg.operand.is_ok(), "{arg:?}");
    }
    let texts: Vec<&str> = place.args.iter().map(|arg| arg.text.as_str()).collect();
    assert_eq!(texts.join(" "), operands);
}

#[test]
fn arguments_lie_where_the_note_says_on_x86_64() {
    let program = runtime::compile("trap", &["-lnopal"]);
    let operands = "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8 8@%r9 8@8(%rsp) 8@16(%rsp) 8@24(%rsp) 8@32(%rsp) 8@40(%rsp) 8@48(%rsp)";
    let site = [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
    check(Arch::X86_64, &site, operands, run_trap(&mut Command::new(program)));
}

#[test]
fn arguments_lie_where_the_note_says_on_arm64() {
    let usr = debian_rust();
    let out = scratch("runtime-arm64");
    let library = |source: &str, externs: &[(&str, &Path)], kind: &str, name: &str| {
        rustc(&usr, source, "opt-level=3", externs, kind, out.join(name))
    };
    let runtime = library("tracee/nopal-runtime/src/lib.rs", &[], "rlib", "libnopal_runtime.rlib");
    library("tracee/nopal-c/src/lib.rs", &[("nopal_runtime", &runtime)], "cdylib", "libnopal.so");
    let program = out.join("trap");
    run(Command::new("aarch64-linux-gnu-gcc")
        .args(["-std=gnu99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(root().join("tests/fixtures/runtime/trap.c"))
        .arg("-L")
        .arg(&out)
        .args(["-lnopal", "-o"])
        .arg(&program));
    let operands = "8@x0 8@x1 8@x2 8@x3 8@x4 8@x5 8@x6 8@x7 8@[sp] 8@[sp, 8] 8@[sp, 16] 8@[sp, 24]";
    let mut qemu = Command::new("qemu-aarch64");
    qemu.args(["-L", "/usr/aarch64-linux-gnu", "-E"])
        .arg(format!("LD_LIBRARY_PATH={}", out.display()))
        .arg(&program);
    check(Arch::Arm64, &[0x1f, 0x20, 0x03, 0xd5], operands, run_trap(&mut qemu));
}
