//! bpftrace's command line, as getopt_long(3) takes it apart: options may stand anywhere before `--`.

use super::script::release::Release;
use std::ffi::OsString;
use std::path::PathBuf;

/// What was asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Asked {
    Help,
    Version,
    Info,
    Work(Box<Options>),
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Options {
    /// Of the last -e.
    pub script: Option<String>,
    /// The file, unless there is a script, and `$1`, `$2` and so on.
    pub words: Vec<String>,
    /// What stands behind `--`.
    pub named: Vec<String>,
    pub pid: Option<u32>,
    pub command: Option<String>,
    pub output: Option<PathBuf>,
    pub probe_filter: Option<String>,
    pub include_dirs: Vec<PathBuf>,
    pub include_files: Vec<PathBuf>,
    pub debug_folders: Vec<PathBuf>,
    pub is_json: bool,
    pub is_quiet: bool,
    pub is_verbose: bool,
    pub is_listing: bool,
    pub is_dry_run: bool,
    pub is_format: bool,
    pub is_bench: bool,
    pub is_unsafe: bool,
    pub has_no_warnings: bool,
    /// How often `-k` was given.
    pub n_helper_warnings: u32,
}

/// Short name, long name, whether a value follows.
const OPTIONS: [(char, &str, bool); 33] = [
    ('e', "", true),
    ('l', "list", false),
    ('v', "verbose", false),
    ('h', "help", false),
    ('V', "version", false),
    ('p', "pid", true),
    ('c', "cmd", true),
    ('o', "output", true),
    ('f', "", true),
    ('B', "", true),
    ('q', "quiet", false),
    ('k', "warnings", false),
    ('I', "", true),
    ('d', "debug", true),
    ('b', "btf", false),
    ('\0', "info", false),
    ('\0', "include", true),
    ('\0', "unsafe", false),
    ('\0', "no-warnings", false),
    ('\0', "dry-run", false),
    ('\0', "fmt", false),
    ('\0', "mode", true),
    ('\0', "test", false),
    ('\0', "bench", false),
    ('\0', "usdt-file-activation", false),
    ('\0', "probe-filter", true),
    ('\0', "dwarf-pid", true),
    ('\0', "debuginfo", true),
    ('\0', "traceable-functions", true),
    ('\0', "no-feature", true),
    ('\0', "verify-llvm-ir", false),
    ('\0', "emit-elf", true),
    ('\0', "emit-llvm", true),
];

/// Behind `--`: whether it is an option of the script; a negative number is a parameter.
fn is_named(arg: &str) -> bool {
    let mut letters = arg.chars();
    letters.next() == Some('-') && letters.next().is_some_and(|second| !second.is_ascii_digit())
}

/// `Err` is what to say on standard error.
pub(super) fn parse(args: impl IntoIterator<Item = OsString>, release: Release) -> Result<Asked, String> {
    let mut options = Options::default();
    let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        if arg == "--" {
            let (named, words): (Vec<String>, Vec<String>) = args.partition(|arg| is_named(arg));
            options.named.extend(named);
            options.words.extend(words);
            break;
        }
        if let Some(long) = arg.strip_prefix("--") {
            let (name, given) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let Some((_, name, takes_value)) = known_long(name) else {
                return Err(format!("bpftrace: unrecognized option '--{name}'\n{}", super::USAGE));
            };
            let value = match (takes_value, given) {
                (false, None) => None,
                (false, Some(_)) => return Err(format!("bpftrace: option '--{name}' takes no value")),
                (true, Some(value)) => Some(value),
                (true, None) => {
                    Some(args.next().ok_or(format!("bpftrace: option '--{name}' requires an argument"))?)
                }
            };
            if let Some(asked) = options.take(name, value, release)? {
                return Ok(asked);
            }
        } else if arg.len() > 1 && arg.starts_with('-') {
            let mut letters = arg[1..].chars();
            while let Some(letter) = letters.next() {
                let Some((short, long, takes_value)) = OPTIONS.iter().find(|(short, ..)| *short == letter)
                else {
                    return Err(format!("bpftrace: invalid option -- '{letter}'\n{}", super::USAGE));
                };
                let value = match takes_value {
                    false => None,
                    true if letters.as_str().is_empty() => Some(
                        args.next().ok_or(format!("bpftrace: option requires an argument -- '{letter}'"))?,
                    ),
                    true => Some(letters.as_str().to_owned()),
                };
                let own = short.to_string();
                let name = if long.is_empty() { own.as_str() } else { long };
                if let Some(asked) = options.take(name, value, release)? {
                    return Ok(asked);
                }
                if *takes_value {
                    break;
                }
            }
        } else {
            options.words.push(arg);
        }
    }
    if options.pid.is_some() && options.command.is_some() {
        return Err("ERROR: USAGE: Cannot use both -c and -p.".to_owned());
    }
    let has_nothing = options.script.is_none() && options.words.is_empty();
    let has_too_many = options.is_listing && options.script.is_none() && options.words.len() > 1;
    if has_nothing && !options.is_listing || has_too_many {
        return Err(super::USAGE.to_owned());
    }
    Ok(Asked::Work(Box::new(options)))
}

/// By its name, or by a beginning of it that no other has.
fn known_long(name: &str) -> Option<(char, &'static str, bool)> {
    if let Some(known) = OPTIONS.iter().find(|(_, long, _)| !long.is_empty() && *long == name) {
        return Some(*known);
    }
    let mut like = OPTIONS.iter().filter(|(_, long, _)| !name.is_empty() && long.starts_with(name));
    match (like.next(), like.next()) {
        (Some(known), None) => Some(*known),
        _ => None,
    }
}

impl Options {
    /// Takes one option; `Some` if nothing else matters.
    fn take(&mut self, name: &str, value: Option<String>, release: Release) -> Result<Option<Asked>, String> {
        let value = value.unwrap_or_default();
        match name {
            "e" => self.script = Some(value),
            "list" => self.is_listing = true,
            "verbose" => self.is_verbose = true,
            "help" => return Ok(Some(Asked::Help)),
            "version" => return Ok(Some(Asked::Version)),
            "info" => return Ok(Some(Asked::Info)),
            "pid" if release == Release::Old => self.pid = Some(decimal_pid(&value)?),
            "pid" => self.pid = Some(pid(&value)?),
            "cmd" => self.command = Some(value),
            "output" => self.output = Some(PathBuf::from(value)),
            "f" => match value.as_str() {
                "text" | "" => self.is_json = false,
                "json" => self.is_json = true,
                _ => {
                    return Err(format!(
                        "ERROR: Invalid output format \"{value}\"\nValid formats: 'text', 'json'"
                    ));
                }
            },
            // What has been printed is written at once, line by line or in larger pieces.
            "B" if ["line", "full", "none"].contains(&value.as_str()) => {}
            "B" => return Err("ERROR: USAGE: -B must be either 'line', 'full', or 'none'.".to_owned()),
            "quiet" => self.is_quiet = true,
            "I" => self.include_dirs.push(PathBuf::from(value)),
            "include" => self.include_files.push(PathBuf::from(value)),
            // `+` asks for a checksum of files without a build id, which are never taken here.
            "debuginfo" => {
                let folders = value.split(':').map(|folder| folder.trim_start_matches('+'));
                self.debug_folders.extend(folders.filter(|folder| !folder.is_empty()).map(PathBuf::from));
            }
            "unsafe" => self.is_unsafe = true,
            "probe-filter" => self.probe_filter = Some(value),
            "warnings" => self.n_helper_warnings += 1,
            "no-warnings" => self.has_no_warnings = true,
            "dry-run" => self.is_dry_run = true,
            "fmt" => self.is_format = true,
            "mode" if value == "format" => self.is_format = true,
            "mode" if value == "bench" => self.is_bench = true,
            "bench" => self.is_bench = true,
            "mode" if value == "codegen" => self.is_dry_run = true,
            "mode" | "test" | "emit-elf" | "emit-llvm" | "debug" => {
                return Err(format!(
                    "ERROR: nopal, which was called as bpftrace, has no --{name}; `nopal run --help` shows what it has"
                ));
            }
            // Without a meaning here: what they switch is found by nopal itself.
            _ => {}
        }
        Ok(None)
    }
}

/// As release 0.17 reads it.
fn decimal_pid(text: &str) -> Result<u32, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("ERROR: pid '{text}' is not a valid decimal number"));
    }
    match text.parse() {
        Ok(pid) if (1..=MAX_PID).contains(&pid) => Ok(pid),
        _ => Err(format!("ERROR: pid '{text}' out of valid pid range [1,{MAX_PID}]")),
    }
}

/// What Linux gives at most.
const MAX_PID: u32 = 0x0040_0000;

/// As strtoull(3) reads it: after blanks, with a sign, in base 8, 10 or 16.
fn pid(text: &str) -> Result<u32, String> {
    let failed = |why: &str| Err(format!("ERROR: Failed to parse pid: {why}: {text}"));
    let number = text.trim_start();
    let (is_negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (digits, base) = match number.strip_prefix("0x").or(number.strip_prefix("0X")) {
        Some(rest) => (rest, 16),
        None if number.starts_with('0') => (number, 8),
        None => (number, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    if end == 0 {
        return failed("invalid integer");
    }
    if end < digits.len() {
        return failed("invalid trailing bytes");
    }
    let Ok(value) = u64::from_str_radix(digits, base) else {
        return failed("overflow error, maximum value is 18446744073709551615");
    };
    let value = if is_negative { value.wrapping_neg() } else { value };
    match u32::try_from(value) {
        Ok(pid) if pid <= MAX_PID => Ok(pid),
        _ => Err(format!("ERROR: Pid out of range: {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(line: &[&str]) -> Options {
        match parse(line.iter().map(OsString::from), Release::New) {
            Ok(Asked::Work(options)) => *options,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn options_stand_anywhere_and_the_last_script_counts() {
        let options = work(&[
            "-e", "BEGIN {}", "1", "-qf", "json", "two", "-e", "END {}", "--", "--x=1", "-q", "3", "-4",
        ]);
        assert_eq!(options.script.as_deref(), Some("END {}"));
        assert_eq!(options.words, ["1", "two", "3", "-4"]);
        assert_eq!(options.named, ["--x=1", "-q"]);
        assert!(options.is_quiet && options.is_json && !options.is_listing);
        let options = work(&["-p12", "--unsaf", "--output=x", "a.bt", "-"]);
        assert_eq!((options.pid, options.output), (Some(12), Some(PathBuf::from("x"))));
        assert_eq!((options.words, options.is_unsafe), (vec!["a.bt".into(), "-".into()], true));
    }

    #[test]
    fn wrong_lines_are_told() {
        for (line, word) in [
            (&["--nonsense"][..], "unrecognized option '--nonsense'"),
            (&["-Z"], "invalid option -- 'Z'"),
            (&["-e"], "requires an argument"),
            (&["-B", "much", "x"], "-B must be"),
            (&["-f", "xml", "x"], "Invalid output format"),
            (&["-p", "no", "x"], "Failed to parse pid: invalid integer: no"),
            (&["-p", "1x", "x"], "Failed to parse pid: invalid trailing bytes: 1x"),
            (&["-p", "5000000", "x"], "Pid out of range: 5000000"),
            (&["-p", "-5", "x"], "Pid out of range: 18446744073709551611"),
            (&["-p", "99999999999999999999", "x"], "overflow error"),
            (&["-p", "1", "-c", "ls", "x"], "both -c and -p"),
            (&[], "USAGE:"),
        ] {
            let error = parse(line.iter().map(OsString::from), Release::New).unwrap_err();
            assert!(error.contains(word), "{line:?}: {error}");
        }
        for (pid, why) in
            [("a1", "is not a valid decimal number"), ("0", "out of valid pid range [1,4194304]")]
        {
            let line = ["-p", pid, "x"].map(OsString::from);
            assert_eq!(parse(line, Release::Old), Err(format!("ERROR: pid '{pid}' {why}")));
        }
    }
}
