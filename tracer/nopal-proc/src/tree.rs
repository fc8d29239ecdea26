//! The processes below a process, asked for many times a second while tracing.
//!
//! Reading all of `/proc` each time costs half a CPU where there are 500 processes. Who is whose child is therefore kept,
//! and only numbers given out since the last time are looked at: the kernel gives them in turn, and says the last one.

use super::process::{Process, processes, read_short};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// All of `/proc` is read again this often, for processes whose number was chosen by themselves (`clone3` with `set_tid`)
/// and for forks that take very long.
const FULL_LOOK: Duration = Duration::from_secs(2);
/// A number is given out before its process can be seen; this long it is looked for again.
const BIRTH: Duration = Duration::from_millis(300);
/// With more new numbers than these, all of `/proc` is not much more.
const MAX_NEW: u32 = 128;
/// Where processes come and go faster than they are read, some answer is needed.
const MAX_ROUNDS: usize = 8;

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

/// The live processes below `pid`, parents before children, without `pid` itself. A process whose parent has ended
/// is no longer below it: the kernel gives it another parent.
pub fn descendants(pid: u32) -> Vec<u32> {
    descendants_of_all(&[pid])
}

/// The live processes below any of these, each once and without themselves: for a hundred of them the kernel is asked no
/// more than for one.
pub fn descendants_of_all(pids: &[u32]) -> Vec<u32> {
    // A panic in here leaves a table whose entries are all read again before they are believed.
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let last = last_number();
    match (&mut *table, last) {
        (Some(table), Some(last)) if now < table.read_at + FULL_LOOK && table.n_new(last) <= MAX_NEW => {
            table.add_new(last, now);
        }
        _ => *table = Some(Table::read(last.unwrap_or(0), now)),
    }
    table.as_mut().map(|table| table.below(pids)).unwrap_or_default()
}

/// The number that was last given to a process or thread, in our namespace. `None` where the kernel does not say.
pub(super) fn last_number() -> Option<u32> {
    let text = read_short(Path::new("/proc/loadavg")).ok()?;
    let last = std::str::from_utf8(&text).ok()?.split_ascii_whitespace().nth(4)?.parse().ok()?;
    (last != 0).then_some(last)
}

/// Who is whose child, as far as it has been looked at.
#[derive(Debug)]
struct Table {
    parents: BTreeMap<u32, u32>,
    last: u32,
    read_at: Instant,
    /// Numbers without a process, and when they were first seen to be given out.
    unborn: BTreeMap<u32, Instant>,
}

impl Table {
    fn read(last: u32, now: Instant) -> Table {
        let parents = processes().into_iter().map(|process| (process.pid, process.parent)).collect();
        // Those just before may be of processes that are on their way.
        let unborn = (last.saturating_sub(MAX_NEW / 4)..=last).map(|pid| (pid, now)).collect();
        Table { parents, last, read_at: now, unborn }
    }

    /// How many numbers were given out since; more than can be if they began again from the lowest.
    fn n_new(&self, last: u32) -> u32 {
        last.checked_sub(self.last).unwrap_or(u32::MAX)
    }

    fn add_new(&mut self, last: u32, now: Instant) {
        self.unborn.extend((self.last + 1..=last).map(|pid| (pid, now)));
        self.last = last;
        let parents = &mut self.parents;
        self.unborn.retain(|pid, since| match Process::read(*pid) {
            Ok(process) if is_process(*pid) => {
                parents.insert(*pid, process.parent);
                false
            }
            Ok(_) => false,
            Err(_) => {
                // Whoever had the number before is gone.
                parents.remove(pid);
                now < *since + BIRTH
            }
        });
    }

    /// Everything found is read again, as parents end and children get others, until all of it holds.
    fn below(&mut self, roots: &[u32]) -> Vec<u32> {
        let mut live = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let mut has_changed = false;
            live.clear();
            for pid in self.walk(roots) {
                let now = Process::read(pid).ok();
                if now.as_ref().is_some_and(|process| !process.is_zombie) {
                    live.push(pid);
                }
                let parent = now.map(|process| process.parent);
                if parent != self.parents.get(&pid).copied() {
                    has_changed = true;
                    match parent {
                        Some(parent) => self.parents.insert(pid, parent),
                        None => self.parents.remove(&pid),
                    };
                }
            }
            if !has_changed {
                break;
            }
        }
        live
    }

    fn walk(&self, roots: &[u32]) -> Vec<u32> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, parent) in &self.parents {
            children.entry(*parent).or_default().push(*pid);
        }
        let mut found = roots.to_vec();
        // What is not true any more may go in circles.
        let mut seen: BTreeSet<u32> = roots.iter().copied().collect();
        let mut next = 0;
        while let Some(parent) = found.get(next) {
            let below = children.get(parent).into_iter().flatten();
            let fresh: Vec<u32> = below.copied().filter(|pid| seen.insert(*pid)).collect();
            found.extend(fresh);
            next += 1;
        }
        found.split_off(roots.len())
    }
}

/// Threads have numbers of the same kind, and files under them in `/proc`.
fn is_process(pid: u32) -> bool {
    let status = super::read_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    group.is_some_and(|group| group.trim().parse() == Ok(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, ChildStdout, Command, Stdio};

    fn shell(script: &str) -> (Child, BufReader<ChildStdout>) {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        (child, out)
    }

    fn line(out: &mut BufReader<ChildStdout>) -> String {
        let mut line = String::new();
        out.read_line(&mut line).expect("the shell speaks");
        line.trim().to_owned()
    }

    #[test]
    fn new_processes_are_seen_at_once_and_orphans_no_longer() {
        // Each line makes one more child, or takes the one in the middle away.
        let script = "while read word; do case $word in \
            child) sleep 60 & echo $! ;; \
            nested) sh -c 'sleep 60 & echo $!; wait' & echo $! ;; \
            *) exit ;; esac; done";
        let (mut top, mut out) = shell(script);
        let say = |word: &str| {
            use std::io::Write;
            let mut stdin = top.stdin.as_ref().expect("a pipe");
            writeln!(stdin, "{word}").expect("the shell listens");
        };
        assert_eq!(descendants(top.id()), []);
        let mut children = Vec::new();
        for _ in 0..20 {
            say("child");
            children.push(line(&mut out).parse::<u32>().expect("a pid"));
            let mut found = descendants(top.id());
            found.sort_unstable();
            let mut want = children.clone();
            want.sort_unstable();
            assert_eq!(found, want);
        }
        say("nested");
        let mut nested = [line(&mut out), line(&mut out)].map(|pid| pid.parse::<u32>().expect("a pid"));
        nested.sort_unstable();
        let [middle, leaf] = nested;
        let found = descendants(top.id());
        assert!(found.contains(&middle) && found.contains(&leaf), "{found:?} {nested:?}");
        let end = |pid: u32| {
            // SAFETY: processes of our own shell, which lives.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            while Process::read(pid).is_ok_and(|p| !p.is_zombie) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        end(middle);
        let found = descendants(top.id());
        assert!(!found.contains(&middle) && !found.contains(&leaf), "{found:?} {nested:?}");
        children.push(leaf);
        children.into_iter().for_each(end);
        assert_eq!(descendants(top.id()), []);
        drop(top.stdin.take());
        top.wait().expect("the shell ends");
    }

    #[test]
    fn threads_are_nobodys_children() {
        let me = std::process::id();
        let parent = Process::read(me).expect("it is running").parent;
        descendants(parent);
        let (tid, found) = std::thread::spawn(move || {
            // SAFETY: gettid has no arguments and cannot fail.
            (unsafe { libc::gettid() } as u32, descendants(parent))
        })
        .join()
        .expect("the thread ends");
        assert!(found.contains(&me) && !found.contains(&tid), "{tid} in {found:?}");
    }

    #[test]
    fn what_is_not_true_any_more_ends() {
        let table = Table {
            parents: BTreeMap::from([(2, 3), (3, 2), (4, 4), (5, 3)]),
            last: 5,
            read_at: Instant::now(),
            unborn: BTreeMap::new(),
        };
        assert_eq!(table.walk(&[2]), [3, 5]);
        assert_eq!(table.walk(&[4]), []);
        assert_eq!(table.walk(&[4, 3]), [2, 5]);
        assert_eq!(table.walk(&[2, 3]), [5]);
        assert_eq!(table.walk(&[5, 6]), []);
    }
}
