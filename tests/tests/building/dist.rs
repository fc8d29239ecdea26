//! The packages that `./x dist` makes, packed here from the program under test: what is in them, what Debian's own checker
//! says, and that they can be installed, used and removed.

use nopal_tests::{nopal, root, run, runtime, scratch};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn pack(name: &str) -> PathBuf {
    let out = scratch(name);
    run(Command::new(root().join("dist/pack"))
        .arg("--nopal")
        .arg(nopal())
        .arg("--libraries")
        .arg(runtime::libraries())
        .arg("--out")
        .arg(&out));
    out
}

fn package_in(out: &Path) -> PathBuf {
    let files = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|path| path.extension().is_some_and(|e| e == "deb")).expect("a package")
}

/// A folder with what maintainer scripts and the command need, and nothing else.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Root {
        let root = Root(scratch(name));
        for folder in
            ["bin", "tmp", "dev", "var/lib/dpkg/info", "var/lib/dpkg/updates", "etc/alternatives", "usr/bin"]
        {
            fs::create_dir_all(root.0.join(folder)).unwrap();
        }
        fs::create_dir_all(root.0.join("var/lib/dpkg/alternatives")).unwrap();
        fs::write(root.0.join("var/lib/dpkg/status"), "").unwrap();
        fs::write(root.0.join("dev/null"), "").unwrap();
        fs::copy("/bin/busybox", root.0.join("bin/busybox")).unwrap();
        symlink("busybox", root.0.join("bin/sh")).unwrap();
        root.bring(Path::new("/usr/bin/update-alternatives"), true);
        root.bring(nopal(), false);
        root
    }

    /// A program, and the libraries that it is linked with.
    fn bring(&self, program: &Path, is_whole: bool) {
        let linked = run(Command::new("ldd").arg(program));
        let libraries = linked.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
        for file in libraries.chain(is_whole.then(|| program.to_owned())) {
            let to = self.0.join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&file, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn dpkg(&self, words: &[&str]) -> String {
        let mut command = Command::new("dpkg");
        // What it depends on is here, but no package.
        command.arg(format!("--root={}", self.0.display())).arg("--force-depends").args(words);
        run(&mut command)
    }

    fn inside(&self, words: &[&str]) -> String {
        run(Command::new("chroot").arg(&self.0).args(words))
    }
}

#[test]
fn the_package_is_installed_used_and_removed() {
    let out = pack("dist-package");
    let package = package_in(&out);
    let text = package.to_str().unwrap();
    let checked = Command::new("lintian").args(["--fail-on", "error", text]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out));

    let root = Root::new("dist-root");
    root.dpkg(&["--install", text]);
    assert!(root.inside(&["/usr/bin/nopal", "--version"]).starts_with("nopal "));
    assert!(root.inside(&["/usr/bin/nopal", "run", "--list"]).contains("mctop"));
    fs::write(root.0.join("tmp/p.d"), "provider shop { probe sale(int); };\n").unwrap();
    root.inside(&["/usr/bin/dtrace", "-h", "-s", "/tmp/p.d", "-o", "/tmp/p.h"]);
    assert!(fs::read_to_string(root.0.join("tmp/p.h")).unwrap().contains("SHOP_SALE"));
    for file in [
        "usr/include/nopal/nopal.h",
        "usr/include/nopal/sys/sdt.h",
        "usr/lib/nopal/libnopal.so",
        "usr/lib/nopal/libstapsdt.so.0",
        "usr/share/man/man1/nopal-trace.1.gz",
        "usr/share/bash-completion/completions/nopal",
        "usr/share/zsh/vendor-completions/_nopal",
        "usr/share/fish/vendor_completions.d/nopal.fish",
        "usr/share/nopal/tools/mctop.bt",
        "lib/systemd/system/nopal-serve.service",
        "lib/systemd/system/nopal-flight.service",
    ] {
        assert!(root.0.join(file).is_file(), "{file}");
    }
    root.dpkg(&["--remove", "nopal"]);
    let is_there = |file: &str| root.0.join(file).symlink_metadata().is_ok();
    assert!(!is_there("usr/bin/nopal") && !is_there("usr/bin/dtrace") && !is_there("usr/share/nopal"));
}

#[test]
fn the_same_source_gives_the_same_files() {
    let (first, second) = (pack("dist-first"), pack("dist-second"));
    let sums = |out: &Path| fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    assert_eq!(sums(&first), sums(&second));
    let files = run(Command::new("tar").arg("tzf").arg(
        fs::read_dir(&first)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|e| e == "gz"))
            .unwrap(),
    ));
    assert!(files.contains("/bin/nopal\n") && files.contains("LICENSE-MIT"), "{files}");
}

/// What `./x dist` allows its command, which is not built here: it takes minutes.
#[test]
fn a_command_that_has_grown_is_not_packed() {
    let task = fs::read_to_string(root().join("x")).unwrap();
    let most = task.split("--most ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    assert!(most.parse::<u64>().unwrap() <= MOST_BYTES, "{most}");
    let out = scratch("dist-grown");
    let mut pack = Command::new(root().join("dist/pack"));
    pack.arg("--nopal").arg(nopal()).arg("--libraries").arg(runtime::libraries()).arg("--out").arg(&out);
    // That of the tests is not built to be small.
    let output = pack.args(["--most", most]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&format!("may have {most}")), "{said}");
    assert!(!out.join("SHA256SUMS").exists());
}

const MOST_BYTES: u64 = 12_000_000;
