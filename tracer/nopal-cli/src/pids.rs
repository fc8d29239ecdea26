//! `-p` with one process or several: `-p 12`, `-p 12,34`, `-p 12 34` as `-p $(pidof NAME)` gives, and `-p 12 -p 34`.

use crate::failure::Failure;
use std::ffi::{OsStr, OsString};

/// The verbs that have `-p`.
const VERBS: [&str; 15] = [
    "list", "trace", "record", "run", "detach", "track", "untrack", "spans", "latency", "top", "tree",
    "hist", "count", "test", "doctor",
];
/// A number behind the first one of `nopal run -p`: a script may take it for a parameter.
const FURTHER: &str = "--further-pid";

/// One process of a command line.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ if text.bytes().all(|b| b.is_ascii_digit()) => {
            Err("there is no process with this number".to_owned())
        }
        _ => Err(format!("it is a name, not a process number; `-n {text}` means every process of a program")),
    }
}

/// Gives each number that follows a `-p` an option of its own, so that none is taken for something else.
pub(crate) fn spread(args: Vec<OsString>) -> Vec<OsString> {
    let verb = args.get(1).and_then(|verb| verb.to_str()).filter(|verb| VERBS.contains(verb));
    let Some(verb) = verb.map(str::to_owned) else { return args };
    let mut spread = Vec::with_capacity(args.len());
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        if arg == "--" {
            spread.push(arg);
            break;
        }
        let is_alone = arg == "-p" || arg == "--pid" || arg == "--vpid";
        let is_with_number = arg.to_str().is_some_and(|arg| {
            let rest = arg.strip_prefix("--pid=").or_else(|| arg.strip_prefix("-p"));
            rest.is_some_and(|rest| is_numbers(OsStr::new(rest)))
        });
        spread.push(arg);
        if is_alone {
            match args.next_if(|next| is_numbers(next)) {
                Some(first) => spread.push(first),
                None => continue,
            }
        }
        while (is_alone || is_with_number) && args.peek().is_some_and(|next| is_numbers(next)) {
            spread.push(if verb == "run" { FURTHER } else { "-p" }.into());
            spread.extend(args.next());
        }
    }
    spread.extend(args);
    spread
}

/// `12` or `12,34`.
fn is_numbers(word: &OsStr) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    word.to_str().is_some_and(|word| word.split(',').all(is_number))
}

/// Numbers behind `nopal run -p PID` are processes, unless the script has parameters, which they could be as well.
pub(crate) fn check_further(pids: &[u32], further: &[u32], script: &str) -> Result<(), Failure> {
    let (Some(first), true) = (further.first(), has_parameters(script)) else { return Ok(()) };
    let all: Vec<String> = pids.iter().chain(further).map(u32::to_string).collect();
    Err(Failure::usage(format!("`{first}` behind -p can be a process or the script's $1")).hint(format!(
        "processes: -p {}; parameters: before -p, or behind the name of the script",
        all.join(",")
    )))
}

/// `$1`, `$2` and so on, or their number.
fn has_parameters(script: &str) -> bool {
    let next_to_sign = script.split('$').skip(1).filter_map(|rest| rest.bytes().next());
    next_to_sign.into_iter().any(|byte| byte.is_ascii_digit() || byte == b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread_line(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = spread(words).into_iter().map(|word| word.into_string().expect("text"));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_verb_with_several_processes_is_known() {
        let command = crate::commands::command();
        let takes_several = |verb: &&clap::Command| {
            let of_pid = |arg: &&clap::Arg| arg.get_long() == Some("pid");
            verb.get_arguments()
                .find(of_pid)
                .is_some_and(|arg| matches!(arg.get_action(), clap::ArgAction::Append))
        };
        let verbs: Vec<&str> =
            command.get_subcommands().filter(takes_several).map(clap::Command::get_name).collect();
        assert!(verbs.len() > 10, "{verbs:?}");
        let forgotten: Vec<&&str> = verbs.iter().filter(|verb| !VERBS.contains(verb)).collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
    }

    #[test]
    fn numbers_behind_p_are_processes() {
        for (line, expected) in [
            ("nopal trace -p 1 2 3 a:b", "nopal trace -p 1 -p 2 -p 3 a:b"),
            ("nopal trace a:b -p 1,2 3", "nopal trace a:b -p 1,2 -p 3"),
            ("nopal record --pid 1 2 -e a:b", "nopal record --pid 1 -p 2 -e a:b"),
            ("nopal record --pid=1 2 -e a:b", "nopal record --pid=1 -p 2 -e a:b"),
            ("nopal record -p1 2 -e a:b", "nopal record -p1 -p 2 -e a:b"),
            ("nopal track -u --vpid 1 2", "nopal track -u --vpid 1 -p 2"),
            ("nopal run -p 1 2 -e x", "nopal run -p 1 --further-pid 2 -e x"),
            ("nopal run -p 1 2 x.bt 3", "nopal run -p 1 --further-pid 2 x.bt 3"),
            ("nopal run x.bt 3 -p 1", "nopal run x.bt 3 -p 1"),
            ("nopal run -e x -- prog -p 1 2", "nopal run -e x -- prog -p 1 2"),
            ("nopal trace -p -e", "nopal trace -p -e"),
            ("nopal trace -p x 2", "nopal trace -p x 2"),
            ("nopal dtrace -p 1 2", "nopal dtrace -p 1 2"),
            ("nopal", "nopal"),
        ] {
            assert_eq!(spread_line(line), expected);
        }
    }

    #[test]
    fn what_may_be_a_parameter_is_not_guessed() {
        for (script, is_ambiguous) in [
            ("usdt:a:b { @ = count(); }", false),
            ("usdt:a:b { $x = 1; @ = $x; }", false),
            ("usdt:a:b /arg0 > $1/ { @ = count(); }", true),
            ("BEGIN { print($#); }", true),
        ] {
            assert_eq!(check_further(&[1], &[2], script).is_err(), is_ambiguous, "{script}");
            assert!(check_further(&[1], &[], script).is_ok());
        }
        let failure = check_further(&[1], &[2, 3], "$1").expect_err("it is ambiguous");
        assert!(failure.hint.is_some_and(|hint| hint.contains("-p 1,2,3")));
    }

    #[test]
    fn a_name_is_told_how_to_become_numbers() {
        assert_eq!(pid("12"), Ok(12));
        assert!(pid("postgres").is_err_and(|why| why.contains("`-n postgres`")));
        assert!(pid("0").is_err() && pid("99999999999").is_err() && pid("").is_err());
    }
}
