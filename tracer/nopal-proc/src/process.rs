//! One process, and all that there are.

use super::TargetError;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// The short name, at most 15 bytes.
    pub name: String,
    pub is_zombie: bool,
    /// Clock ticks since boot. With the pid it names a process for good: pids come again, this pair does not.
    pub start_time_ticks: u64,
    /// False for a copy of its parent that has not started a program of its own.
    pub has_program_of_its_own: bool,
    /// A thread of the kernel's own, which never becomes a program.
    pub is_kernel_thread: bool,
    /// The page faults of the children that it has waited for. No child is without.
    pub faults_of_children: u64,
}

/// The word size of the program a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    Bits32,
    Bits64,
}

impl Process {
    pub fn read(pid: u32) -> Result<Process, TargetError> {
        let path = PathBuf::from(format!("/proc/{pid}/stat"));
        let text = read_short(&path).map_err(|error| TargetError::of_process(pid, &path, &error))?;
        parse_stat(&text).ok_or(TargetError::NoSuchProcess { pid })
    }

    /// Whether there is such a process, and it has not ended. One that cannot be read is taken to be alive.
    pub fn is_alive(pid: u32) -> bool {
        match Process::read(pid) {
            Ok(process) => !process.is_zombie,
            Err(error) => may_exist(pid, &error),
        }
    }

    /// Whether it is the very process that started then, not a later one with its number.
    pub fn is_still(pid: u32, start_time_ticks: u64) -> bool {
        match Process::read(pid) {
            Ok(process) => !process.is_zombie && process.start_time_ticks == start_time_ticks,
            Err(error) => may_exist(pid, &error),
        }
    }

    /// Whether its program is of 32 or of 64 bits.
    pub fn width(&self) -> Result<Width, TargetError> {
        let path = PathBuf::from(format!("/proc/{}/exe", self.pid));
        let mut head = [0; 5];
        fs::File::open(&path)
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head))
            .map_err(|error| self.why_no_program(&path, &error))?;
        Ok(if head == *b"\x7fELF\x01" { Width::Bits32 } else { Width::Bits64 })
    }

    /// `Ok` if it is a live 64-bit program that we may look into; otherwise the reason.
    pub fn check_traceable(&self) -> Result<(), TargetError> {
        if self.is_zombie {
            return Err(TargetError::Zombie { pid: self.pid });
        }
        match self.width()? {
            Width::Bits64 => Ok(()),
            Width::Bits32 => Err(TargetError::Is32Bit { pid: self.pid }),
        }
    }

    /// The program it runs, as it sees it.
    pub fn program(&self) -> Result<PathBuf, TargetError> {
        let path = PathBuf::from(format!("/proc/{}/exe", self.pid));
        fs::read_link(&path).map_err(|error| self.why_no_program(&path, &error))
    }

    fn why_no_program(&self, path: &std::path::Path, error: &std::io::Error) -> TargetError {
        match Process::read(self.pid) {
            Ok(process) if process.is_zombie => TargetError::Zombie { pid: self.pid },
            // A kernel thread has the link, and the link leads nowhere.
            Ok(_) if error.kind() == std::io::ErrorKind::NotFound => {
                TargetError::KernelThread { pid: self.pid }
            }
            Ok(_) => TargetError::of_process(self.pid, path, error),
            Err(gone) => gone,
        }
    }

    /// The command line with its arguments separated by blanks; empty for a zombie.
    pub fn command_line(&self) -> String {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words: Vec<_> = bytes.split(|&b| b == 0).map(String::from_utf8_lossy).collect();
        words.join(" ").trim_end().to_owned()
    }
}

/// Whether a process is there that could not be read, as far as can be known without a descriptor: a tracer may have no more.
fn may_exist(pid: u32, error: &TargetError) -> bool {
    // SAFETY: no signal is sent, it is only asked whether one could be.
    let is_gone = || unsafe { libc::kill(pid as i32, 0) } < 0
        && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    !matches!(error, TargetError::NoSuchProcess { .. }) && !is_gone()
}

/// The words of a file of `/proc` such as `cmdline` and `environ`; none if it may not be read.
pub fn words_of(pid: u32, file: &str) -> Vec<String> {
    let mut bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.split(|&b| b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The kernel's PF_FORKNOEXEC.
const FORKED_WITHOUT_EXEC: u64 = 0x40;
/// The kernel's PF_KTHREAD.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A file of `/proc` of one line, by one read: what is asked for of every process many times a second must be cheap.
pub fn read_short(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = vec![0; 2048];
    let n = fs::File::open(path)?.read(&mut text)?;
    text.truncate(n);
    Ok(text)
}

/// A file of `/proc` as text. Names of processes and files are in many of them, and may hold any bytes: a program cannot keep its
/// state from being read by what it calls itself.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The thread that holds a process by ptrace, and its name.
pub fn tracer_of(pid: u32) -> Option<(u32, String)> {
    let text = read_text(format!("/proc/{pid}/status")).ok()?;
    let tracer = text.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    let tracer: u32 = tracer.trim().parse().ok().filter(|tracer| *tracer != 0)?;
    let name = read_text(format!("/proc/{tracer}/comm")).unwrap_or_default();
    Some((tracer, name.trim_end().to_owned()))
}

/// `12 (na) me) S 1 ...`: the name may hold blanks and parentheses, so that the last `)` counts.
fn parse_stat(text: &[u8]) -> Option<Process> {
    let open = text.iter().position(|&b| b == b'(')?;
    let close = text.iter().rposition(|&b| b == b')')?;
    let pid = std::str::from_utf8(text.get(..open)?).ok()?.trim().parse().ok()?;
    let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    // The parent is field 4 of the line, the flags are field 9, the faults are 11 and 13, the start is field 22.
    let flags: u64 = fields.nth(9 - 4 - 1)?.parse().ok()?;
    let minor: u64 = fields.nth(11 - 9 - 1)?.parse().ok()?;
    let major: u64 = fields.nth(13 - 11 - 1)?.parse().ok()?;
    let start_time_ticks = fields.nth(22 - 13 - 1)?.parse().ok()?;
    Some(Process {
        pid,
        parent,
        name,
        is_zombie: matches!(state, "Z" | "X" | "x"),
        start_time_ticks,
        has_program_of_its_own: flags & FORKED_WITHOUT_EXEC == 0,
        is_kernel_thread: flags & KERNEL_THREAD != 0,
        faults_of_children: minor.wrapping_add(major),
    })
}

/// All processes of our pid namespace, by pid. One that ends meanwhile is left out.
pub fn processes() -> Vec<Process> {
    let mut all: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Process::read(pid).ok())
        .collect();
    all.sort_by_key(|process| process.pid);
    all
}

/// The numbers of the threads of `pid`, as the kernel lists them; those that have ended and are not yet gone among them.
pub fn threads(pid: u32) -> io::Result<impl Iterator<Item = u32>> {
    let folder = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The live children of `pid`.
pub fn children(pid: u32) -> Vec<u32> {
    processes().into_iter().filter(|p| p.parent == pid && !p.is_zombie).map(|p| p.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_name_that_is_no_text_keeps_nothing_from_being_read() {
        let read = std::thread::spawn(|| {
            // SAFETY: the name ends in a NUL; the tid is a plain number.
            let tid = unsafe {
                libc::prctl(libc::PR_SET_NAME, c"a\xff\xfeb".as_ptr());
                libc::gettid()
            };
            read_text(format!("/proc/self/task/{tid}/status"))
        });
        let status = read.join().expect("no panic").expect("it can be read");
        assert!(status.starts_with("Name:\ta\u{fffd}\u{fffd}b\n") && status.contains("\nUid:"), "{status}");
    }

    #[test]
    fn stat_lines() {
        let line = |name: &str, state: &str| {
            format!("12 ({name}) {state} 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 1 2 3")
        };
        for name in ["sh", "a b", "a) S 9 (b", "((", ""] {
            let process = parse_stat(line(name, "S").as_bytes()).expect("a stat line");
            let want = Process {
                pid: 12,
                parent: 7,
                name: name.to_owned(),
                is_zombie: false,
                start_time_ticks: 9876,
                has_program_of_its_own: true,
                is_kernel_thread: false,
                faults_of_children: 6,
            };
            assert_eq!(process, want);
        }
        assert!(parse_stat(line("x", "Z").as_bytes()).is_some_and(|process| process.is_zombie));
        let copy = line("x", "S").replace(" 4194560 ", " 4194624 ");
        assert!(parse_stat(copy.as_bytes()).is_some_and(|process| !process.has_program_of_its_own));
        let of_kernel = line("kworker/0:1", "I").replace(" 4194560 ", " 69238880 ");
        assert!(parse_stat(of_kernel.as_bytes()).is_some_and(|process| process.is_kernel_thread));
        for text in ["", "12", "12 (x", "12 (x)", "12 (x) S", "x (y) S 1", ")12 ("] {
            assert_eq!(parse_stat(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn children_and_their_children() {
        use super::super::descendants;
        // A shell that waits for a child which waits for its input.
        let mut shell = Command::new("sh")
            .args(["-c", "cat; true"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("sh starts");
        let me = std::process::id();
        let is_complete = || descendants(me).iter().any(|pid| children(shell.id()).contains(pid));
        let mut n_tries = 0;
        while !is_complete() && n_tries < 1000 {
            n_tries += 1;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let below = descendants(me);
        let cat = children(shell.id());
        drop(shell.stdin.take());
        shell.wait().expect("the shell ends");
        assert!(
            below.contains(&shell.id()) && cat.len() == 1 && below.contains(&cat[0]),
            "{below:?} {cat:?}"
        );
    }

    #[test]
    fn this_process_can_be_looked_into() {
        let me = Process::read(std::process::id()).expect("it is running");
        assert_eq!(me.width(), Ok(Width::Bits64));
        assert_eq!(me.check_traceable(), Ok(()));
        assert_eq!(me.program().ok(), std::env::current_exe().ok());
    }

    #[test]
    fn an_ended_child_is_a_zombie() {
        let mut child = Command::new("true").spawn().expect("true starts");
        let mut n_tries = 0;
        while Process::read(child.id()).is_ok_and(|p| !p.is_zombie) && n_tries < 1000 {
            n_tries += 1;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let process = Process::read(child.id()).expect("a zombie has a stat file");
        let why = process.check_traceable();
        child.wait().expect("it has ended");
        assert_eq!(why, Err(TargetError::Zombie { pid: child.id() }));
        assert_eq!(Process::read(child.id()), Err(TargetError::NoSuchProcess { pid: child.id() }));
    }
}
