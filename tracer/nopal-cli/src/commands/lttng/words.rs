//! LTTng's command lines as nopal's: which verb, and with which options.

use crate::failure::Failure;
use std::ffi::OsString;

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Help,
    Version,
    /// Command lines of nopal, each without its first word.
    Lines(Vec<Vec<OsString>>),
    Start {
        session: Option<String>,
        line: Vec<OsString>,
    },
}

/// Verbs that nopal has with LTTng's options.
const SAME: [&str; 15] = [
    "add-context",
    "clear",
    "destroy",
    "disable-channel",
    "disable-event",
    "disable-rotation",
    "enable-channel",
    "enable-event",
    "enable-rotation",
    "rotate",
    "set-session",
    "snapshot",
    "status",
    "stop",
    "untrack",
];
/// Options before the verb that are about LTTng's daemons, and so of no effect; those that have a value, and others.
const GENERAL_WITH_VALUE: [&str; 4] = ["--group", "-g", "--sessiond-path", "--relayd-path"];
const GENERAL: [&str; 6] = ["--no-sessiond", "-n", "--quiet", "-q", "--verbose", "-v"];
/// Verbs and options that nopal has not: what it has instead.
const INSTEAD: [(&str, &str); 26] = [
    ("add-trigger", "`create NAME --snapshot --trigger 'PROBE if CONDITION'` makes a session with a trigger"),
    ("list-triggers", "`status NAME` shows the triggers of a session"),
    ("remove-trigger", "`save` the session, take the trigger out of the file, and `load` it"),
    ("metadata", "metadata is written before the events that need it"),
    (
        "regenerate",
        "metadata is written before the events that need it, and `rotate` begins a recording with the clock of now",
    ),
    ("reclaim-memory", "rings have the size that `enable-channel` gave them"),
    ("--mi", "nopal's verbs have --json: `nopal status --json`"),
    ("-m", "nopal's verbs have --json: `nopal status --json`"),
    ("--live", "`view NAME --live` follows every session"),
    ("--ctrl-url", "record here, and copy or `nopal export` the folder; nopal sends nothing over a network"),
    ("--data-url", "record here, and copy or `nopal export` the folder; nopal sends nothing over a network"),
    ("--no-output", "leave it out: a session with --snapshot writes nothing before it is asked to"),
    ("--shm-path", "leave it out: what a killed recorder has written is whole, and `start` goes on"),
    ("--kernel", "there is only the userspace domain; `nopal run` has the kernel's probes in scripts"),
    ("--jul", "there is only the userspace domain"),
    ("--log4j", "there is only the userspace domain"),
    ("--python", "there is only the userspace domain; Python's own probes are `python:*`"),
    ("--syscall", "there is only the userspace domain; `nopal run` has system calls in scripts"),
    ("--probe", "there is only the userspace domain; `nopal run` has the kernel's functions in scripts"),
    ("--function", "`function:FILE:NAME` is an event for each function of a program"),
    ("--userspace-probe", "`function:FILE:NAME` is an event for each function of a program"),
    ("--vgid", "processes are named by --vpid, --vuid, --program, --cgroup and --container"),
    ("--gid", "processes are named by --vpid, --vuid, --program, --cgroup and --container"),
    ("--max-size", "a snapshot has what the rings hold; `enable-channel --subbuf-size` makes them smaller"),
    ("--override-url", "`load FILE --output DIR` says where its recordings go"),
    ("--statedump", "there is no state dump"),
];

pub(super) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Asked, Failure> {
    let mut args = args.into_iter().peekable();
    while let Some(word) = args.next_if(is_option) {
        let text = word.to_string_lossy().into_owned();
        let name = text.split('=').next().unwrap_or_default();
        match name {
            "--version" | "-V" => return Ok(Asked::Version),
            "--help" | "-h" => return Ok(Asked::Help),
            _ if GENERAL_WITH_VALUE.contains(&name) => {
                if name == text {
                    args.next();
                }
            }
            _ if GENERAL.contains(&name) || is_verbose(name) => {}
            _ => return Err(missing(name)),
        }
    }
    let Some(verb) = args.next() else { return Ok(Asked::Help) };
    let verb = verb.to_string_lossy().into_owned();
    let rest: Vec<OsString> = args.collect();
    check(&rest)?;
    match verb.as_str() {
        "version" => Ok(Asked::Version),
        "help" => Ok(match rest.first() {
            None => Asked::Help,
            Some(verb) => one([verb.clone(), "--help".into()]),
        }),
        "create" => Ok(one(with("create", url(rest)?))),
        "list" => list(&rest),
        "start" => Ok(Asked::Start {
            session: rest
                .iter()
                .find(|word| !is_option(word))
                .map(|word| word.to_string_lossy().into_owned()),
            line: with("start", rest),
        }),
        "track" => Ok(one(with("track", all_of_user(rest)))),
        "view" => Ok(one(with("view", view(rest)))),
        "save" => Ok(one(with("save", save(rest)))),
        "load" => Ok(one(with("load", load(rest)))),
        same if SAME.contains(&same) => Ok(one(with(same, rest))),
        other => Err(missing(other)),
    }
}

fn is_option(word: &OsString) -> bool {
    word.to_string_lossy().starts_with('-')
}

/// `-vv`
fn is_verbose(name: &str) -> bool {
    name.len() > 1 && name[1..].bytes().all(|b| b == b'v')
}

fn one(line: impl IntoIterator<Item = OsString>) -> Asked {
    Asked::Lines(vec![line.into_iter().collect()])
}

fn with(verb: &str, rest: Vec<OsString>) -> Vec<OsString> {
    [OsString::from(verb)].into_iter().chain(rest).collect()
}

/// What nopal has not, as an error.
fn missing(word: &str) -> Failure {
    let hint = INSTEAD.iter().find(|(name, _)| *name == word).map(|(_, instead)| *instead);
    let what = if word.starts_with('-') { "option" } else { "command" };
    Failure::usage(format!("nopal has not the {what} `{word}` of LTTng"))
        .hint(hint.unwrap_or("`lttng help` shows the commands there are, `lttng help COMMAND` their options"))
}

/// Refuses options that nopal has not. Behind one that has a value stands no option.
fn check(rest: &[OsString]) -> Result<(), Failure> {
    let options = rest.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--");
    for word in options {
        let name = match word.split('=').next().unwrap_or_default() {
            "-k" => "--kernel",
            "-j" => "--jul",
            name => name,
        };
        if !name.starts_with("--") {
            continue;
        }
        if INSTEAD.iter().any(|(known, _)| *known == name) {
            return Err(missing(name));
        }
    }
    Ok(())
}

/// `--set-url=file:///DIR` is `--output DIR`.
fn url(rest: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let mut line = Vec::new();
    let mut rest = rest.into_iter();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy().into_owned();
        let url = match text.split_once('=') {
            Some(("--set-url", url)) => url.to_owned(),
            _ if text == "--set-url" || text == "-U" => {
                rest.next().map(|url| url.to_string_lossy().into_owned()).unwrap_or_default()
            }
            _ => {
                line.push(word);
                continue;
            }
        };
        let Some(dir) = url.strip_prefix("file://") else { return Err(missing("--ctrl-url")) };
        line.extend(["--output".into(), dir.into()]);
    }
    Ok(line)
}

/// `list` alone is the sessions, with a name that one, with `-u` the programs that can be traced.
fn list(rest: &[OsString]) -> Result<Asked, Failure> {
    let mut words = rest.iter().map(|word| word.to_string_lossy().into_owned());
    let (mut name, mut is_running, mut has_fields) = (None, false, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-u" | "--userspace" => is_running = true,
            "-f" | "--fields" => has_fields = true,
            "-uf" | "-fu" => (is_running, has_fields) = (true, true),
            "-d" | "--domain" => {}
            // All channels are shown.
            "-c" | "--channel" => drop(words.next()),
            "-k" => return Err(missing("--kernel")),
            "-j" => return Err(missing("--jul")),
            "-l" => return Err(missing("--log4j")),
            "-p" => return Err(missing("--python")),
            _ if word.starts_with("--channel=") => {}
            _ if word.starts_with('-') => return Err(missing(&word)),
            _ => name = Some(word),
        }
    }
    let line: Vec<&str> = match &name {
        Some(name) => vec!["status", name],
        None if is_running && has_fields => vec!["list", "--running", "--fields"],
        None if is_running => vec!["list", "--running"],
        None => vec!["status"],
    };
    Ok(one(line.into_iter().map(OsString::from)))
}

/// `track --all --vpid`: every process of who calls it.
fn all_of_user(rest: Vec<OsString>) -> Vec<OsString> {
    let is_all = |word: &OsString| word == "--all" || word == "-a";
    if !rest.iter().any(is_all) {
        return rest;
    }
    // Which kind of number all stands for makes no difference.
    let kinds = ["--pid", "--vpid", "--uid", "--vuid", "-p"];
    // SAFETY: getuid has no preconditions.
    let user = unsafe { libc::getuid() }.to_string();
    let others = rest.into_iter().filter(|word| !is_all(word) && !kinds.iter().any(|kind| word == kind));
    others.chain(["--user".into(), user.into()]).collect()
}

/// Lines as babeltrace2 prints them, which LTTng's `view` starts; also on a terminal.
fn view(rest: Vec<OsString>) -> Vec<OsString> {
    let is_viewer = |word: &OsString| {
        let word = word.to_string_lossy();
        word == "-e" || word.starts_with("--viewer")
    };
    let mut line: Vec<OsString> = match rest.iter().any(is_viewer) {
        true => Vec::new(),
        false => vec!["--format".into(), "babeltrace".into()],
    };
    let mut rest = rest.into_iter();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy().into_owned();
        match text.split_once('=') {
            Some(("--trace-path", dir)) => line.push(dir.into()),
            _ if text == "--trace-path" || text == "-t" => line.extend(rest.next()),
            _ => line.push(word),
        }
    }
    line
}

/// Into a folder, which is nopal's own unless one is named; all sessions unless one is named.
fn save(rest: Vec<OsString>) -> Vec<OsString> {
    let mut line = Vec::new();
    let (mut is_named, mut has_folder) = (false, false);
    let mut rest = rest.into_iter();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy().into_owned();
        let folder = match text.split_once('=') {
            Some(("--output-path", folder)) => Some(folder.to_owned()),
            _ if text == "--output-path" || text == "-o" => {
                Some(rest.next().unwrap_or_default().to_string_lossy().into_owned())
            }
            _ => None,
        };
        match folder {
            Some(folder) => {
                has_folder = true;
                line.extend(["-o".into(), format!("{folder}/").into()]);
            }
            None => {
                is_named |= !is_option(&word) || word == "--all" || word == "-a";
                line.push(word);
            }
        }
    }
    line.extend((!is_named).then(|| "--all".into()));
    line.extend((!has_folder).then(|| "--keep".into()));
    line
}

/// All that are kept unless one is named.
fn load(rest: Vec<OsString>) -> Vec<OsString> {
    let with_value = ["-i", "--input-path", "--override-name"];
    let mut is_behind_option = false;
    let is_named = rest.iter().any(|word| {
        let is_value =
            std::mem::replace(&mut is_behind_option, with_value.iter().any(|option| word == option));
        !is_value && !is_option(word) || word == "--all" || word == "-a"
    });
    let all = (!is_named).then(|| OsString::from("--all"));
    rest.into_iter().chain(all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, Failure> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn lines_become_lines_of_nopal() {
        for (line, expected) in [
            ("create valkey", "create valkey"),
            ("create s --set-url=file:///tmp/x --snapshot", "create s --output /tmp/x --snapshot"),
            ("create s -U file:///tmp/x", "create s --output /tmp/x"),
            ("-n --sessiond-path /x enable-event -u -a", "enable-event -u -a"),
            ("--group=tracing -vv stop", "stop"),
            ("list", "status"),
            ("list valkey -c channel0", "status valkey"),
            ("list -u", "list --running"),
            ("list -uf", "list --running --fields"),
            ("track -u -p 12 34", "track -u -p 12 34"),
            ("view valkey", "view --format babeltrace valkey"),
            ("view -e babeltrace2 s", "view -e babeltrace2 s"),
            ("view -t /tmp/x", "view --format babeltrace /tmp/x"),
            ("help start", "start --help"),
            ("save", "save --all --keep"),
            ("save valkey --force", "save valkey --force --keep"),
            ("save --output-path=/tmp/x valkey", "save -o /tmp/x/ valkey"),
            ("load", "load --all"),
            ("load -i /tmp/x", "load -i /tmp/x --all"),
            ("load valkey --override-name again", "load valkey --override-name again"),
        ] {
            let Ok(Asked::Lines(lines)) = asked(line) else { panic!("{line}") };
            let lines: Vec<String> =
                lines.iter().map(|words| words.join(&OsString::from(" ")).into_string().unwrap()).collect();
            assert_eq!(lines, [expected], "{line}");
        }
        assert_eq!(asked("--version").unwrap(), Asked::Version);
        assert_eq!(asked("").unwrap(), Asked::Help);
        let Ok(Asked::Start { session, .. }) = asked("start valkey") else { panic!("start") };
        assert_eq!(session.as_deref(), Some("valkey"));
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is() {
        for (line, part) in [
            ("create s --live", "view NAME --live"),
            ("create s --set-url=net://host", "over a network"),
            ("--mi xml list", "--json"),
            ("list -k", "userspace domain"),
            ("enable-event --syscall --all", "scripts"),
            ("regenerate metadata", "rotate"),
            ("bogus", "lttng help"),
            ("list --bogus", "lttng help"),
        ] {
            let failure = asked(line).expect_err(line);
            assert_eq!(failure.exit, 2);
            assert!(failure.hint.as_deref().unwrap_or_default().contains(part), "{line}: {failure}");
        }
    }
}
