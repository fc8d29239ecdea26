//! Whether a process has had children that ended, or has ended as another program: all that can be known where the kernel
//! does not tell of forks and programs, as on many machines it does not tell ordinary users.

use crate::Process;
use std::collections::BTreeMap;

/// Processes that nobody tells of, as they were last seen.
#[derive(Debug, Default)]
pub(crate) struct Reaped(BTreeMap<u32, Process>);

impl Reaped {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From now on.
    pub(crate) fn watch(&mut self, pid: u32) {
        if let Ok(process) = Process::read(pid) {
            self.0.entry(pid).or_insert(process);
        }
    }

    /// Whether one of them may have had a child that ended, or may have ended as another program than it was, since this
    /// was last asked. Of a process that has ended and was waited for nobody knows any more.
    pub(crate) fn has_grown(&mut self) -> bool {
        let mut has_grown = false;
        self.0.retain(|pid, before| {
            let Ok(now) = Process::read(*pid) else {
                has_grown |= !before.is_zombie;
                return false;
            };
            has_grown |= before.faults_of_children != now.faults_of_children
                || now.is_zombie && !before.is_zombie && before.name != now.name;
            // The name stays: what it was given between two looks may be that of a program nobody has looked at.
            *before = Process { name: std::mem::take(&mut before.name), ..now };
            true
        });
        has_grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A shell with these commands, watched.
    fn shell(commands: &str) -> (Child, Reaped) {
        let mut shell = Command::new("sh");
        shell.args(["-c", commands]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let shell = shell.spawn().expect("sh");
        let mut reaped = Reaped::default();
        reaped.watch(shell.id());
        (shell, reaped)
    }

    #[test]
    fn children_that_have_ended_are_noticed() {
        let (mut shell, mut reaped) = shell("read a; /bin/true; echo; read b");
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

    /// Also one that was seen under its new name while it lived.
    #[test]
    fn a_process_that_ends_as_another_program_is_noticed() {
        let (mut shell, mut reaped) = shell("read a; exec cat");
        let mut input = shell.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, b"\nx").expect("the shell reads");
        let mut output = shell.stdout.take().expect("piped");
        std::io::Read::read_exact(&mut output, &mut [0]).expect("cat writes");
        assert!(!reaped.has_grown(), "whoever lives can be looked at");
        drop(input);
        while !Process::read(shell.id()).expect("not waited for").is_zombie {
            std::thread::yield_now();
        }
        assert!(reaped.has_grown() && !reaped.has_grown());
        shell.wait().expect("cat ends");
    }
}
