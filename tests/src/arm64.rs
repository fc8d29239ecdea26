//! Debian's Rust, which has a library for arm64, and compiling with it. What it makes is run by qemu.

use crate::{root, run, target_dir};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Unpacked, not installed: the packages exclude rustup's compiler, and nothing else needs them.
const PACKAGES: [&str; 4] = ["rustc-web", "libstd-rust-web-1.96", "libllvm22", "libstd-rust-web-dev:arm64"];

/// The folder with Debian's Rust compiler and its library for arm64.
pub fn debian_rust() -> PathBuf {
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
pub fn rustc(
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
        // What cargo says of a package.
        .envs([
            ("CARGO_PKG_VERSION_MAJOR", "0"),
            ("CARGO_PKG_VERSION_MINOR", "1"),
            ("CARGO_PKG_VERSION_PATCH", "0"),
        ])
        .args(["-C", level, "-C", "linker=aarch64-linux-gnu-gcc", "-o"])
        .arg(&into)
        .arg(root().join(source));
    for (name, file) in externs {
        command.arg("--extern").arg(format!("{name}={}", file.display()));
    }
    run(&mut command);
    into
}
