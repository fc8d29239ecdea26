//! Containers without an image: podman, a folder for a system, and a program that fires.

use crate::{root, run, target_dir};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fires a probe every few milliseconds, for at most a few minutes.
const TICKER: &str = "#include <sys/sdt.h>
#include <unistd.h>
int main(void) { for (int i = 0; i < 40000; i++) { DTRACE_PROBE1(ticker, tick, i); usleep(5000); } }";

/// The ticker under a name that nothing else on this machine has.
pub fn ticker(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("ticker.c"), folder.join(name));
    fs::write(&source, TICKER).unwrap();
    let include = format!("-I{}", root().join("include").display());
    run(Command::new("gcc").arg(include).args(["-O2", "-o"]).arg(&program).arg(&source).args(flags));
    program
}

/// podman with storage of its own. It needs root, and runc, as crun refuses machines with both kinds of control groups.
#[derive(Debug)]
pub struct Podman {
    folder: PathBuf,
    names: Vec<String>,
    _runs: fs::File,
}

/// Shared by the tests that run containers, in whichever program they are.
fn containers() -> fs::File {
    let lab = target_dir().join("lab");
    fs::create_dir_all(&lab).expect("the lab folder can be made");
    fs::File::create(lab.join("containers.lock")).expect("the lock file can be made")
}

/// While it is held, no other test runs containers. Beside them a recorder of a control group was told of processes with the file `/`
/// that ended before they could be looked at: runc's, presumably, which starts itself from a mount of its own.
pub fn none() -> fs::File {
    let lock = containers();
    lock.lock().expect("the lock can be taken");
    lock
}

impl Podman {
    /// Its storage, and the folder of an empty system, lie in `folder`.
    pub fn new(folder: &Path) -> Podman {
        let runs = containers();
        runs.lock_shared().expect("the lock can be shared");
        let podman = Podman { folder: folder.to_owned(), names: Vec::new(), _runs: runs };
        for part in ["bin", "proc", "sys", "dev", "tmp", "etc"] {
            fs::create_dir_all(podman.rootfs().join(part)).unwrap();
        }
        podman
    }

    /// What its containers have for a system.
    pub fn rootfs(&self) -> PathBuf {
        self.folder.join("rootfs")
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command.args([
            "--runtime",
            "runc",
            "--cgroup-manager",
            "cgroupfs",
            "--storage-driver",
            "vfs",
            "--root",
        ]);
        command.arg(self.folder.join("storage")).arg("--runroot").arg(self.folder.join("run"));
        command
    }

    pub fn start(&mut self, name: &str, more: &[&str], command: &[&str]) -> String {
        self.names.push(name.to_owned());
        let id = run(self
            .command()
            .args(["run", "-d", "--name", name, "--network=none", "--security-opt", "seccomp=unconfined"])
            .args(["--ulimit", "nofile=1000:1000", "--ulimit", "nproc=1000:1000"])
            .args(more)
            .arg("--rootfs")
            .arg(self.rootfs())
            .args(command));
        id.trim().to_owned()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = self.command().args(["rm", "-f", "-t", "0", name]).output();
        }
        // It mounts its storage on itself, and would keep the folder from being removed.
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let ours = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for mount in ours.filter(|at| Path::new(at).starts_with(&self.folder)) {
            let _ = Command::new("umount").args(["-l", mount]).output();
        }
    }
}

/// Copies a program and the libraries it needs to where it looks for them.
pub fn install(program: &Path, rootfs: &Path) {
    fs::copy(program, rootfs.join("bin").join(program.file_name().unwrap())).unwrap();
    let needed = Command::new("ldd").arg(program).output().unwrap();
    for library in
        String::from_utf8_lossy(&needed.stdout).split_whitespace().filter(|word| word.starts_with('/'))
    {
        let to = rootfs.join(&library[1..]);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(library, to).unwrap();
    }
}
