//! `nopal list -p` and `-u` on running programs: other namespaces, deleted files, memfd objects, an ordinary user.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::{copy_program, nopal, root, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// A program that fires a probe in a library of its own name and then waits.
const WAITER: &str = "#include <sys/sdt.h>
#include <unistd.h>
int main(void) { DTRACE_PROBE1(waiter, ready, 7); for (;;) pause(); }";
const LIBRARY: &str = "#include <sys/sdt.h>
void fire(int n) { DTRACE_PROBE1(loaded, fire, n); }";
/// Loads the library of its first argument, deletes it if there is a second one, and waits.
const LOADER: &str = "#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int n, char **v) {
  if (!dlopen(v[1], RTLD_NOW)) { puts(dlerror()); return 1; }
  if (n > 2) unlink(v[1]);
  for (;;) pause();
}";
const NOBODY: &str = "65534";

fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn open_folder_path() -> PathBuf {
    std::env::temp_dir().join(format!("nopal-list-live-{}", std::process::id()))
}

extern "C" fn remove_open_folder() {
    let _ = fs::remove_dir_all(open_folder_path());
}

/// A folder that every user can read, with nopal and the test programs in it: the target folder may be private. It
/// is removed when the tests are over.
fn open_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = open_folder_path();
        // SAFETY: the function takes nothing, does not unwind and may run at any time.
        unsafe { libc::atexit(remove_open_folder) };
        fs::create_dir_all(&folder).expect("a folder below /tmp can be made");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it can be opened to all");
        copy_program(nopal(), &folder.join("nopal"));
        for (name, source, flags) in [
            ("waiter", WAITER, &[][..]),
            ("loader", LOADER, &[]),
            ("library.so", LIBRARY, &["-shared", "-fPIC"]),
        ] {
            let file = folder.join(format!("{name}.c"));
            fs::write(&file, source).expect("the source can be written");
            run(Command::new("gcc")
                .arg(format!("-I{}", root().join("include").display()))
                .args(["-O2", "-o"])
                .arg(folder.join(name))
                .arg(&file)
                .args(flags));
        }
        folder
    })
}

/// `command` as the user nobody; as ourselves if we are an ordinary user already.
fn as_nobody(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(program);
    command
}

fn list(mut nopal: Command, args: &[&str]) -> Output {
    nopal.arg("list").args(args).stdin(Stdio::null()).output().expect("nopal runs")
}

fn listed(nopal: Command, pid: u32) -> String {
    let output = list(nopal, &["-v", "-p", &pid.to_string()]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    out.into_owned()
}

/// Waits until `pid` maps code of a file whose path has `part` in it.
fn wait_for_mapping(pid: u32, part: &str) {
    wait_until(&format!("{pid} maps {part}"), 60, || {
        fs::read_to_string(format!("/proc/{pid}/maps"))
            .is_ok_and(|maps| maps.lines().any(|line| line.contains(" r-xp ") && line.contains(part)))
    });
}

#[test]
fn addresses_are_those_of_the_process() {
    let folder = open_folder();
    let program = folder.join("waiter");
    let child = Running::start(&mut Command::new(&program));
    wait_for_mapping(child.pid(), "waiter");
    let output = list(Command::new(nopal()), &["--json", "-p", &child.pid().to_string(), "waiter:ready"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let site = &json[0]["sites"][0];
    assert_eq!(site["pid"], child.pid());
    let address = site["memory_address"].as_u64().expect("where it is in memory");
    let memory = fs::File::open(format!("/proc/{}/mem", child.pid())).expect("our own child can be read");
    let mut code = [0; 11];
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut code, address).expect("the site is mapped");
    assert_eq!(code, [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], "a site of our own header");
}

#[test]
fn python_and_its_probes() {
    let mut python = Command::new("/usr/bin/python3.11");
    let child = Running::start(python.args(["-c", "import time; time.sleep(600)"]));
    wait_for_mapping(child.pid(), "python3.11");
    let out = listed(Command::new(nopal()), child.pid());
    assert!(out.contains("python:function__entry"), "{out}");
    assert!(out.contains("char *filename"), "with the names of the catalog: {out}");
}

#[test]
fn every_loaded_library_is_listed() {
    let folder = open_folder();
    let mut loader = Command::new(folder.join("loader"));
    let child = Running::start(loader.arg(folder.join("library.so")));
    wait_for_mapping(child.pid(), "library.so");
    let out = listed(Command::new(nopal()), child.pid());
    assert!(out.contains("loaded:fire") && out.contains("library.so: 1 probe"), "{out}");
}

#[test]
fn a_program_only_its_own_namespace_can_see() {
    let folder = open_folder();
    let mut unshare = Command::new("unshare");
    if !is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let script = format!(
        "mount -t tmpfs none /mnt && cp {}/waiter /mnt/hidden-waiter && exec /mnt/hidden-waiter",
        folder.display()
    );
    let outer =
        Running::start(unshare.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script]));
    let inner = || {
        let children =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.pid())).unwrap_or_default();
        children.split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok())
    };
    wait_until("unshare starts its child", 60, || inner().is_some());
    let pid = inner().expect("it has started");
    wait_for_mapping(pid, "hidden-waiter");
    assert!(!Path::new("/mnt/hidden-waiter").exists(), "it is in the other namespace only");
    let out = listed(Command::new(nopal()), pid);
    assert!(out.contains("/mnt/hidden-waiter: 1 probe") && out.contains("waiter:ready"), "{out}");
}

#[test]
fn a_deleted_program() {
    let folder = open_folder();
    for (name, is_ordinary) in [("deleted-by-root", false), ("deleted-by-nobody", true)] {
        let copy = folder.join(name);
        copy_program(&folder.join("waiter"), &copy);
        let child = Running::start(&mut as_nobody(&copy));
        wait_for_mapping(child.pid(), name);
        fs::remove_file(&copy).expect("it can be deleted");
        let nopal = if is_ordinary { as_nobody(&folder.join("nopal")) } else { Command::new(nopal()) };
        let out = listed(nopal, child.pid());
        assert!(out.contains("waiter:ready"), "{name}: {out}");
    }
}

#[test]
fn a_replaced_program_is_not_taken_for_the_running_one() {
    let folder = open_folder();
    let copy = folder.join("replaced");
    copy_program(&folder.join("waiter"), &copy);
    let child = Running::start(&mut as_nobody(&copy));
    wait_for_mapping(child.pid(), "replaced");
    // As a package upgrade does: another file of the same name, and here with another probe.
    fs::copy(folder.join("library.so"), folder.join("replacement")).expect("it can be copied");
    fs::rename(folder.join("replacement"), &copy).expect("it can be replaced");
    let out = listed(as_nobody(&folder.join("nopal")), child.pid());
    assert!(out.contains("waiter:ready") && !out.contains("loaded:fire"), "{out}");
}

#[test]
fn a_deleted_library_needs_root() {
    let folder = open_folder();
    let copy = folder.join("deleted-library.so");
    fs::copy(folder.join("library.so"), &copy).expect("it can be copied");
    if is_root() {
        std::os::unix::fs::chown(&copy, Some(65534), Some(65534)).expect("root can give it away");
    }
    let mut loader = as_nobody(&folder.join("loader"));
    let child = Running::start(loader.arg(&copy).arg("delete"));
    wait_for_mapping(child.pid(), "deleted-library.so");
    wait_until("the library is deleted", 60, || !copy.exists());
    if is_root() {
        assert!(listed(Command::new(nopal()), child.pid()).contains("loaded:fire"));
    }
    let output = list(as_nobody(&folder.join("nopal")), &["-p", &child.pid().to_string()]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("deleted-library.so was deleted or replaced after process"), "{err}");
    assert!(err.contains("can still read it"), "{err}");
}

#[test]
fn a_library_that_never_had_a_name() {
    let folder = open_folder();
    let script = format!(
        "import os, ctypes, time\n\
         fd = os.memfd_create('nameless')\n\
         os.write(fd, open('{}/library.so', 'rb').read())\n\
         library = ctypes.CDLL('/proc/self/fd/%d' % fd)\n\
         time.sleep(600)\n",
        folder.display()
    );
    let mut python = as_nobody(Path::new("/usr/bin/python3.11"));
    let child = Running::start(python.args(["-c", &script]));
    wait_for_mapping(child.pid(), "/memfd:nameless");
    for nopal in [Command::new(nopal()), as_nobody(&folder.join("nopal"))] {
        let out = listed(nopal, child.pid());
        assert!(out.contains("/memfd:nameless: 1 probe") && out.contains("loaded:fire"), "{out}");
    }
}

#[test]
fn an_ordinary_user_and_processes_of_his_own_and_of_others() {
    let folder = open_folder();
    let own = Running::start(&mut as_nobody(&folder.join("waiter")));
    wait_for_mapping(own.pid(), "waiter");
    assert!(listed(as_nobody(&folder.join("nopal")), own.pid()).contains("waiter:ready"));

    let running = list(as_nobody(&folder.join("nopal")), &["-u", "waiter"]);
    let out = String::from_utf8_lossy(&running.stdout);
    assert!(out.contains(&own.pid().to_string()) && out.contains("waiter 1"), "{out}");
    assert!(out.contains(" waiter: ready\n"), "{out}");
    if is_root() {
        let others = Running::start(&mut Command::new(folder.join("waiter")));
        wait_for_mapping(others.pid(), "waiter");
        let output = list(as_nobody(&folder.join("nopal")), &["-p", &others.pid().to_string()]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(err.contains("it may not be read") && err.contains("or as root"), "{err}");
    }
}

#[test]
fn running_programs_as_json() {
    let folder = open_folder();
    let child = Running::start(&mut Command::new(folder.join("waiter")));
    wait_for_mapping(child.pid(), "waiter");
    let output = list(Command::new(nopal()), &["-u", "--json", "waiter:*"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = json.as_array().and_then(|rows| rows.iter().find(|row| row["pid"] == child.pid()));
    let row = row.unwrap_or_else(|| panic!("{json}"));
    assert_eq!(row["providers"][0]["provider"], "waiter");
    assert_eq!(row["providers"][0]["probes"], 1);
    assert_eq!(row["providers"][0]["names"], serde_json::json!([{ "name": "ready" }]));
}

#[test]
fn a_wrapper_shows_what_it_has_started() {
    let folder = open_folder();
    let script = format!("{}; true", folder.join("waiter").display());
    let wrapper = Running::start(Command::new("sh").args(["-c", &script]));
    let children = || nopal_proc::children(wrapper.pid());
    wait_until("it has started one", 60, || !children().is_empty());
    wait_for_mapping(children()[0], "waiter");
    let output = list(Command::new(nopal()), &["-p", &wrapper.pid().to_string()]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("waiter:ready"), "{said}");
    for pid in children() {
        // SAFETY: a signal to a process that this test has started.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
}

#[test]
fn processes_of_one_program_are_one_block() {
    let folder = open_folder();
    let children = [(); 3].map(|()| Running::start(&mut Command::new(folder.join("waiter"))));
    children.iter().for_each(|child| wait_for_mapping(child.pid(), "waiter"));
    let output = list(Command::new(nopal()), &["-u", "-v", "waiter:*"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let pids = children.each_ref().map(|child| child.pid().to_string());
    // Other tests may run the same program, too.
    let begins = |line: &&str| pids.iter().any(|pid| line.split_whitespace().next() == Some(pid));
    assert!(said.lines().filter(begins).count() <= 1, "{said}");
    assert!(pids.iter().all(|pid| said.contains(pid)), "{said}");
}

#[test]
fn a_process_that_has_ended() {
    let mut child = Command::new("true").spawn().expect("true starts");
    let pid = child.id();
    wait_until("it has ended", 60, || {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
    let zombie = list(Command::new(nopal()), &["-p", &pid.to_string()]);
    let err = String::from_utf8_lossy(&zombie.stderr).into_owned();
    child.wait().expect("it has ended");
    assert!(err.contains("has ended; only its exit status is left"), "{err}");
    let gone = list(Command::new(nopal()), &["-p", &pid.to_string()]);
    let err = String::from_utf8_lossy(&gone.stderr);
    assert!(err.contains(&format!("no process has the pid {pid}")), "{err}");
}
