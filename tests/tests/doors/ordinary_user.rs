//! The tests of the user door once more, as a user without any privilege, on processes of that user.

use nopal_tests::{copy_program, nopal, root, run};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of this folder, and the tests in them that need root for another reason than the user door.
const SUITES: [(&str, &[&str]); 4] = [
    ("user_door", &["an_ordinary_user_traces_its_own_program", "bpftrace"]),
    ("user_door_hijack", &[]),
    ("user_door_life", &["other_tracers_come_and_go"]),
    (
        "tracing",
        &[
            "both_doors_tell_the_truth",
            "children_have_the_kernel_doors_sites",
            "processes_of_other_namespaces",
            "programs_that_a_command_starts",
            "conditions_choose_events",
            "an_ordinary_user",
            "memcached",
            "a_full_disk",
            "wrong_requests",
        ],
    ),
];
const USER: u32 = 65534;

#[test]
fn the_user_door_needs_no_privilege() {
    let place = Place::new();
    let program = place.copy(&std::env::current_exe().expect("this program is a file"), "doors");
    for (suite, skipped) in SUITES {
        let mut command = Command::new("setpriv");
        command
            .args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"])
            .arg(&program)
            .args([&format!("{suite}::"), "--test-threads=2"])
            .args(skipped.iter().flat_map(|name| ["--skip", name]))
            .env("HOME", &place.0)
            .env("CARGO_TARGET_DIR", place.0.join("target"))
            .env("NOPAL_BIN", place.0.join("nopal"))
            .env("NOPAL_ROOT", &place.0)
            .current_dir(&place.0);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{suite}: {said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(!said.contains("result: ok. 0 passed"), "{suite} ran no test: {said}");
    }
}

/// A folder that belongs to the user, with what the tests need: the source tree may be out of the user's reach.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let place = Place(std::env::temp_dir().join(format!("nopal-ordinary-{}", std::process::id())));
        fs::create_dir_all(place.0.join("tests")).unwrap();
        run(Command::new("cp").arg("-r").arg(root().join("include")).arg(place.0.join("include")));
        run(Command::new("cp")
            .arg("-r")
            .arg(root().join("tests/fixtures"))
            .arg(place.0.join("tests/fixtures")));
        place.copy(nopal(), "nopal");
        run(Command::new("chmod").args(["-R", "a+rX"]).arg(&place.0));
        chown(&place.0, Some(USER), Some(USER)).unwrap();
        place
    }

    fn copy(&self, from: &Path, name: &str) -> PathBuf {
        let to = self.0.join(name);
        copy_program(from, &to);
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
