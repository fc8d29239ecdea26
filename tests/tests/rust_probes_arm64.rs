//! Probes of the `nopal` crate on arm64: compiled with Debian's Rust, which has an arm64 library, and run by qemu.

use nopal_sdt::operand::Arch;
use nopal_tests::{root, run, target_dir};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `nop`.
const SITE: [u8; 4] = [0x1f, 0x20, 0x03, 0xd5];

/// Unpacked, not installed: the packages exclude rustup's compiler, and nothing else needs them.
const PACKAGES: [&str; 4] = ["rustc-web", "libstd-rust-web-1.96", "libllvm22", "libstd-rust-web-dev:arm64"];

/// The folder with Debian's Rust compiler and its library for arm64.
fn debian_rust() -> PathBuf {
    let lab = target_dir().join("lab/arm64-rust");
    for folder in ["lists/partial", "cache/archives/partial", "debs"] {
        fs::create_dir_all(lab.join(folder)).expect("the lab folder can be made");
    }
    let lock = fs::File::create(lab.join("lock")).expect("the lock file can be made");
    lock.lock().expect("the lock can be taken");
    let done = lab.join("unpacked");
    if !done.exists() {
        let config = lab.join("apt.conf");
        let text = format!(
            "APT::Architectures {{ \"amd64\"; \"arm64\"; }};\nAPT::Sandbox::User \"root\";\n\
             Dir::State::Lists \"{0}/lists\";\nDir::Cache \"{0}/cache\";\n",
            lab.display()
        );
        fs::write(&config, text).expect("apt.conf can be written");
        let apt = || {
            let mut command = Command::new("apt-get");
            command.arg("-c").arg(&config).arg("-qq").current_dir(lab.join("debs"));
            command
        };
        run(apt().arg("update"));
        run(apt().arg("download").args(PACKAGES));
        for deb in fs::read_dir(lab.join("debs")).expect("the packages are there").flatten() {
            run(Command::new("dpkg-deb").arg("-x").arg(deb.path()).arg(lab.join("root")));
        }
        fs::write(&done, "").expect("the mark can be written");
    }
    lab.join("root/usr")
}

/// Compiles one crate for arm64 and returns the file.
fn rustc(
    usr: &Path,
    source: &str,
    level: &str,
    externs: &[(&str, &Path)],
    kind: &str,
    into: PathBuf,
) -> PathBuf {
    let name = into.file_stem().and_then(|n| n.to_str()).expect("a plain name").trim_start_matches("lib");
    let mut command = Command::new(usr.join("bin/rustc"));
    command
        .env("LD_LIBRARY_PATH", usr.join("lib/x86_64-linux-gnu"))
        .arg("--sysroot")
        .arg(usr)
        .args(["--target", "aarch64-unknown-linux-gnu", "--edition", "2024", "--crate-type", kind])
        .args(["--crate-name", name])
        .args(["-C", level, "-C", "linker=aarch64-linux-gnu-gcc", "-o"])
        .arg(&into)
        .arg(root().join(source));
    for (name, file) in externs {
        command.arg("--extern").arg(format!("{name}={}", file.display()));
    }
    run(&mut command);
    into
}

#[test]
fn arm64_programs_have_the_same_probes() {
    let usr = debian_rust();
    for level in ["opt-level=0", "opt-level=3"] {
        let out = nopal_tests::scratch(&format!("rust-arm64-{level}"));
        let nopal = rustc(&usr, "tracee/nopal/src/lib.rs", level, &[], "rlib", out.join("libnopal.rlib"));
        let inner = "tests/fixtures/rust-probes/inner/src/lib.rs";
        let inner = rustc(&usr, inner, level, &[("nopal", &nopal)], "rlib", out.join("libinner.rlib"));
        let app = "tests/fixtures/rust-probes/app/src/main.rs";
        let app = rustc(&usr, app, level, &[("nopal", &nopal), ("inner", &inner)], "bin", out.join("app"));
        // The app checks its own guards.
        run(Command::new("qemu-aarch64").args(["-L", "/usr/aarch64-linux-gnu"]).arg(&app));

        let object = nopal_sdt::read(&fs::read(&app).unwrap()).unwrap();
        assert_eq!(object.arch, Some(Arch::Arm64));
        assert_eq!(object.probes.len(), 14, "{level}: {:?}", object.probes);
        for probe in &object.probes {
            let semaphores: BTreeSet<_> =
                probe.sites.iter().map(|s| s.semaphore.map(|s| s.address)).collect();
            assert_eq!(semaphores.len(), 1, "{level}: one semaphore or none: {probe:?}");
            assert!(probe.about.is_some(), "{level}: {probe:?}");
            for site in &probe.sites {
                assert!(site.code.starts_with(&SITE), "{level}: {probe:?}");
                for arg in &site.args {
                    assert!(arg.operand.is_ok(), "{level}: {probe:?}");
                }
            }
        }
        for (name, expected) in [
            ("signed", &[-1, -2, -4, -8, -8][..]),
            ("twelve", &[-4; 12]),
            ("seven", &[1, 8, 8, -2, 8, 8, 8, 8, 8, 8, 8, 8]),
        ] {
            let site = &object.probe("types", name).unwrap().sites[0];
            let sizes: Vec<i32> = site
                .args
                .iter()
                .map(|a| a.operand.as_ref().unwrap())
                .map(|o| i32::from(o.size_bytes) * if o.is_signed { -1 } else { 1 })
                .collect();
            assert_eq!(sizes, expected, "{level}: types:{name}");
        }
    }
}
