//! Projects whose own unit tests assert on their probes, with pytest, minitest, RSpec and in Rust: run by an ordinary user, tests
//! that hold and tests that fail with a reason.

use nopal_tests::bindings::{Language, libnopal};
use nopal_tests::{copy_program, nopal, root, run, target_dir};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const USER: u32 = 65534;

/// A copy of a sample project with the bindings, the native library and nopal, for an ordinary user.
struct Project(PathBuf);

impl Project {
    fn new(language: Language) -> Project {
        let project = Project::of(match language {
            Language::Python => "python",
            Language::Ruby => "ruby",
        });
        run(Command::new("cp").arg("-r").arg(language.folder()).arg(project.0.join("binding")));
        copy_program(&libnopal(), &project.0.join("libnopal.so"));
        project
    }

    fn of(sample: &str) -> Project {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default().rsplit("::").next().unwrap_or_default();
        let dir = std::env::temp_dir().join(format!("nopal-{test}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let sample = root().join("tests/fixtures/testing").join(sample);
        run(Command::new("cp").arg("-r").arg(sample).arg(dir.join("sample")));
        copy_program(nopal(), &dir.join("nopal"));
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        chown(dir.join("sample"), Some(USER), Some(USER)).unwrap();
        Project(dir)
    }

    /// Runs its tests, and returns whether they all hold and what was said.
    fn test(&self, command: &mut Command) -> (bool, String) {
        let command = command
            .current_dir(self.0.join("sample"))
            .env("HOME", self.0.join("sample"))
            .env("NOPAL_LIBRARY", self.0.join("libnopal.so"))
            .env("NOPAL_COMMAND", self.0.join("nopal"))
            .env("PYTHONPATH", self.0.join("binding/src"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("NOPAL")
            .uid(USER)
            .gid(USER);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    fn pytest(&self, file: &str) -> (bool, String) {
        // Debian's, which has pytest.
        let mut command = Command::new("/usr/bin/python3");
        self.test(command.args(["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", file]))
    }

    fn ruby(&self, args: &[&str]) -> (bool, String) {
        self.test(Command::new("ruby").arg("-w").arg("-I").arg(self.0.join("binding/lib")).args(args))
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Each of these is said; a line may be indented as the framework likes.
#[track_caller]
fn assert_says(said: &str, expected: &[&str]) {
    let lines: Vec<&str> = said.lines().map(|line| line.trim_start_matches(['E', ' '])).collect();
    for line in expected {
        assert!(lines.iter().any(|l| l.starts_with(line)), "no line `{line}` in\n{said}");
    }
}

/// The hits of the tests that fail, which the reason lists.
const CAME: [&str; 3] = ["what came, 2 in all:", "shop:sale__start id=7", "shop:sale__done id=7 customer="];

#[test]
fn pytest_counts_orders_and_compares() {
    let project = Project::new(Language::Python);
    let (holds, said) = project.pytest("test_holds.py");
    assert!(holds && said.contains("3 passed"), "{said}");
    let (holds, said) = project.pytest("test_fails.py");
    assert!(!holds && said.contains("7 failed"), "{said}");
    assert_says(&said, &CAME);
    assert_says(
        &said,
        &[
            "AssertionError: shop:sale__done came once, expected 3 times",
            "AssertionError: shop:refund did not come after shop:sale__done",
            "AssertionError: customer of shop:sale__done was ['Ada'], expected ['Bob']",
            "AssertionError: no probe matches 'shop:sael'; listened to: shop:refund, shop:sale__done, shop:sale__start",
            "AssertionError: shop:sale__done has no argument 'price'; it has: id, customer",
            "nopal.testing.CannotListen: no probe matches `shop:sael` in what is traced; ",
            "nopal.testing.Incomplete: not every hit was seen: lost ",
        ],
    );
}

#[test]
fn minitest_counts_orders_and_compares() {
    let project = Project::new(Language::Ruby);
    let (holds, said) = project.ruby(&["holds_test.rb"]);
    assert!(holds && said.contains("2 runs, 7 assertions, 0 failures, 0 errors"), "{said}");
    let (holds, said) = project.ruby(&["fails_test.rb"]);
    assert!(!holds && said.contains("6 runs, 4 assertions, 4 failures, 2 errors"), "{said}");
    assert_says(&said, &CAME);
    assert_says(
        &said,
        &[
            "shop:sale__done came once, expected 3",
            "shop:sale__start did not come after shop:sale__done",
            "customer of shop:sale__done was [\"Ada\"], expected [\"Bob\"]",
            "no probe matches shop:sael; listened to: shop:refund, shop:sale__done, shop:sale__start",
            "StaticTracing::Testing::CannotListen: no probe matches `shop:sael` in what is traced; ",
            "StaticTracing::Testing::Incomplete: not every hit was seen: lost ",
        ],
    );
}

#[test]
fn rspec_counts_orders_and_compares() {
    let project = Project::new(Language::Ruby);
    let (holds, said) = project.ruby(&["-S", "rspec", "holds_spec.rb"]);
    assert!(holds && said.contains("5 examples, 0 failures"), "{said}");
    let (holds, said) = project.ruby(&["-S", "rspec", "fails_spec.rb"]);
    assert!(!holds && said.contains("5 examples, 5 failures"), "{said}");
    assert_says(&said, &CAME);
    assert_says(
        &said,
        &[
            "expected shop:sale__done to come 3 times, it came once",
            "expected shop:sale__done with customer=\"Bob\" to come at all, it came 0 times",
            "shop:sale__start did not come after shop:sale__done",
            "expected shop:sale__done not to come at all, it came once",
            "no probe matches `shop:sael` in what is traced; ",
        ],
    );
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let project = Project::new(Language::Python);
    let code = "import shop, nopal.testing\nwith nopal.testing.listen('shop:*'): pass";
    let script = project.0.join("sample/absent.py");
    fs::write(&script, format!("import os\nos.environ['NOPAL_COMMAND'] = 'no-such-nopal'\n{code}\n"))
        .unwrap();
    let (holds, said) = project.test(Command::new("/usr/bin/python3").arg(script));
    assert!(!holds && said.contains("NOPAL_COMMAND is 'no-such-nopal', which is not a program"), "{said}");
}

/// Builds the tests of the Rust project and gives the program of each file.
fn rust_tests() -> Vec<(String, PathBuf)> {
    let said = run(Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--quiet", "--offline", "--locked", "--message-format", "json"])
        .current_dir(root().join("tests/fixtures/testing/rust"))
        .env("CARGO_TARGET_DIR", target_dir().join("lab/fixtures/testing/rust")));
    let messages = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let program = |message: Value| {
        let executable = message["executable"].as_str()?;
        Some((message["target"]["name"].as_str()?.to_owned(), PathBuf::from(executable)))
    };
    messages.filter_map(program).collect()
}

#[test]
fn rust_counts_orders_and_compares() {
    let project = Project::of("rust");
    for (name, program) in rust_tests() {
        copy_program(&program, &project.0.join(&name));
    }
    let (holds, said) = project.test(&mut Command::new(project.0.join("holds")));
    assert!(holds && said.contains("2 passed; 0 failed"), "{said}");
    let (holds, said) = project.test(&mut Command::new(project.0.join("fails")));
    assert!(!holds && said.contains("0 passed; 7 failed"), "{said}");
    assert_says(
        &said,
        &[
            "shop:sale__done came once, expected 3",
            "shop:sale__start did not come after shop:sale__done",
            "customer of shop:sale__done was [\"Ada\"], expected [\"Bob\"]",
            "no probe matches `shop:sael`; listened to: shop:sale__done, shop:sale__start",
            "shop:sale__done has no argument `price`; it has: customer, id",
            "cannot listen: no probe matches `shop:sael` in what is traced; ",
            "not every hit was seen: lost ",
            "what came, 2 in all:",
            "shop:sale__start id=7",
            "shop:sale__done customer=\"Ada\" id=7",
        ],
    );
}
