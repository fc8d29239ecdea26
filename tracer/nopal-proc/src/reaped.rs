//! Whether a process has had children that ended, or has ended as another program: all that can be known where the kernel
//! does not tell of forks and programs, as on many machines it does not tell ordinary users.

use crate::read_short;
use std::collections::BTreeMap;
use std::path::Path;

/// Processes that nobody tells of.
#[derive(Debug, Default)]
pub(crate) struct Reaped(BTreeMap<u32, Seen>);

/// What is seen of a process, also when it has ended and was not waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// The page faults of the children that it has waited for. No child is without.
    faults: u64,
    /// That of its last program, unless it gave itself another.
    name: String,
    has_ended: bool,
}

impl Reaped {
    /// From now on.
    pub(crate) fn watch(&mut self, pid: u32) {
        if let Some(seen) = see(pid) {
            self.0.entry(pid).or_insert(seen);
        }
    }

    /// Whether one of them may have had a child that ended, or may have ended as another program than it was, since this
    /// was last asked. Of a process that has ended and was waited for nobody knows any more.
    pub(crate) fn has_grown(&mut self) -> bool {
        let mut has_grown = false;
        self.0.retain(|pid, before| {
            let Some(now) = see(*pid) else {
                has_grown |= !before.has_ended;
                return false;
            };
            has_grown |= before.faults != now.faults || now.has_ended && before.name != now.name;
            *before = now;
            true
        });
        has_grown
    }
}

/// None if it is gone.
fn see(pid: u32) -> Option<Seen> {
    let folder = format!("/proc/{pid}");
    let stat = read_short(&Path::new(&folder).join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // `12 (na) me) S 1 ...`; the state is field 3, the faults are the fields 11 and 13.
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let fields: Vec<&str> = stat[close + 1..].split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Seen {
        faults: number(11)?.wrapping_add(number(13)?),
        name: stat.get(open..close)?.to_owned(),
        has_ended: matches!(fields.first(), Some(&("Z" | "X" | "x"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_that_have_ended_are_noticed() {
        let mut shell = Command::new("sh")
            .args(["-c", "read a; /bin/true; echo; read b"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut reaped = Reaped::default();
        reaped.watch(shell.id());
        assert!(!reaped.has_grown());
        let mut input = shell.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, b"\n").expect("the shell reads");
        let mut output = shell.stdout.take().expect("piped");
        std::io::Read::read_exact(&mut output, &mut [0]).expect("the shell writes");
        assert!(reaped.has_grown() && !reaped.has_grown());
        drop(input);
        shell.wait().expect("sh ends");
        assert!(reaped.has_grown(), "nobody knows");
        assert!(!reaped.has_grown());
    }
}
