//! Holds chosen programs at their exec until the tracer is ready for them.
//!
//! fanotify asks before the kernel runs a marked file. A small process of ours, the keeper, answers: it tells the tracer who
//! is about to start the file, waits for the tracer's word, and lets the exec go on. So a tracer that is busy or stopped
//! delays a program by [`PATIENCE_MS`] at most, and only once. If the tracer is killed the keeper ends, and if the keeper is
//! killed the kernel lets everybody go on. The parent of a held program sees nothing of it.
//!
//! Messages between the two are packets, each with its kind first:
//!
//! ```text
//! tracer -> keeper   'F' path, NUL    ask before this file is run
//! keeper -> tracer   'f' errno        0 if it will be asked
//! keeper -> tracer   'P' pid          this process waits at its exec
//! tracer -> keeper   'G' pid          let it go on
//! ```

use crate::start_gate::StartGate;
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a program waits for a tracer that does not answer. After that nobody waits until it is heard of again.
const PATIENCE_MS: i32 = 3000;
/// The keeper answers at once.
const ANSWER: Duration = Duration::from_secs(5);

const FILE: u8 = b'F';
const FILE_DONE: u8 = b'f';
const PROCESS: u8 = b'P';
const GO: u8 = b'G';

/// The tracer's end. Nobody is held any more when this is dropped.
#[derive(Debug)]
pub struct ExecGate {
    socket: OwnedFd,
    keeper: i32,
    waiting: VecDeque<u32>,
    is_gone: bool,
}

impl ExecGate {
    /// Needs CAP_SYS_ADMIN and a kernel with permission events of fanotify.
    pub fn open() -> io::Result<ExecGate> {
        // SAFETY: fanotify_init takes numbers alone.
        let fan = owned(unsafe {
            libc::fanotify_init(
                libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC,
                (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as u32,
            )
        })?;
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the array has room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were just made and belong to nobody else.
        let (socket, far) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: the child runs `keep` alone, which allocates nothing and makes only async-signal-safe calls.
        let keeper = unsafe { libc::fork() };
        match keeper {
            0 => keep(fan.as_raw_fd(), far.as_raw_fd()),
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(ExecGate { socket, keeper, waiting: VecDeque::new(), is_gone: false }),
        }
    }

    /// Whoever runs this file from now on waits for our word.
    pub fn watch(&mut self, file: &Path) -> io::Result<()> {
        let path = CString::new(file.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let mut message = vec![FILE];
        message.extend(path.as_bytes_with_nul());
        self.send(&message)?;
        let end = Instant::now() + ANSWER;
        while Instant::now() < end && !self.is_gone {
            self.wait(Duration::from_millis(100));
            match self.receive() {
                Some((FILE_DONE, 0)) => return Ok(()),
                Some((FILE_DONE, errno)) => return Err(io::Error::from_raw_os_error(errno as i32)),
                Some((_, pid)) => self.waiting.push_back(pid),
                None => {}
            }
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    /// A process that waits at its exec of a watched file. It must be let go.
    pub fn next_waiting(&mut self) -> Option<u32> {
        self.waiting.pop_front().or_else(|| match self.receive() {
            Some((PROCESS, pid)) => Some(pid),
            Some(_) | None => None,
        })
    }

    pub fn let_go(&mut self, pid: u32) {
        let mut message = [GO, 0, 0, 0, 0];
        message[1..].copy_from_slice(&pid.to_le_bytes());
        // Who has not heard of us for too long has let it go already.
        let _ = self.send(&message);
    }

    /// Whether the keeper was ended by somebody, so that nobody is held any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Waits until there is something to hear, no longer than this.
    pub fn wait(&self, at_most: Duration) {
        self.wait_with(None, at_most);
    }

    /// The same, here or at the other gate.
    pub fn wait_with(&self, other: Option<&StartGate>, at_most: Duration) {
        let own = (!self.is_gone).then(|| self.socket.as_raw_fd());
        // The kernel passes over negative numbers.
        let mut watched = [own, other.map(StartGate::descriptor)].map(|descriptor| libc::pollfd {
            fd: descriptor.unwrap_or(-1),
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: the array has as many, and lives over the call.
        unsafe {
            libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, at_most.as_millis() as i32)
        };
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match send(self.socket.as_raw_fd(), message, 0) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.is_gone = true;
                Err(error)
            }
        }
    }

    /// The kind of the next message and its number, if there is one.
    fn receive(&mut self) -> Option<(u8, u32)> {
        let mut message = [0u8; 5];
        match receive(self.socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) {
            5 => Some((message[0], number_of(&message))),
            0 => {
                self.is_gone = true;
                None
            }
            _ => None,
        }
    }
}

impl Drop for ExecGate {
    fn drop(&mut self) {
        // SAFETY: shutdown has no preconditions; the descriptor is ours.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
        // SAFETY: our own child, which ends now; nothing is written.
        while unsafe { libc::waitpid(self.keeper, std::ptr::null_mut(), 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn send(socket: i32, message: &[u8], flags: i32) -> io::Result<()> {
    // SAFETY: the buffer lives over the call.
    let sent =
        unsafe { libc::send(socket, message.as_ptr().cast(), message.len(), flags | libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn receive(socket: i32, message: &mut [u8], flags: i32) -> isize {
    // SAFETY: the buffer lives over the call and has the length that is said.
    unsafe { libc::recv(socket, message.as_mut_ptr().cast(), message.len(), flags) }
}

fn number_of(message: &[u8]) -> u32 {
    message.get(1..5).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

// The keeper. It is a copy of the tracer in which nothing but this runs: no allocation, no lock, no panic.

fn keep(fan: i32, socket: i32) -> ! {
    let (low, high) = (fan.min(socket), fan.max(socket));
    // SAFETY: the descriptors that are closed are copies; the tracer's own stay. signal takes numbers.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, low - 1, 0);
        libc::syscall(libc::SYS_close_range, low + 1, high - 1, 0);
        libc::syscall(libc::SYS_close_range, high + 1, u32::MAX, 0);
        // A signal of the terminal is meant for the tracer, which ends in its own way.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"nopal-execs".as_ptr());
    }
    let mut is_heard = true;
    loop {
        let mut polled = [fan, socket].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: two pollfds, which live over the call.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
        if polled[1].revents != 0 {
            listen(fan, socket);
            is_heard = true;
        }
        if polled[0].revents & libc::POLLIN != 0 {
            is_heard = answer_kernel(fan, socket, is_heard);
        }
    }
}

/// One message of the tracer's; gives whom it lets go.
fn listen(fan: i32, socket: i32) -> u32 {
    let mut message = [0u8; 4096 + 2];
    let length = receive(socket, &mut message, 0);
    if length <= 0 {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    if message[0] == GO {
        return number_of(&message);
    }
    // SAFETY: the path ends with a NUL, if only with that of the buffer.
    let marked = unsafe {
        libc::fanotify_mark(
            fan,
            libc::FAN_MARK_ADD,
            libc::FAN_OPEN_EXEC_PERM,
            libc::AT_FDCWD,
            message[1..].as_ptr().cast(),
        )
    };
    // SAFETY: the address of this thread's errno.
    let errno = if marked < 0 { unsafe { *libc::__errno_location() } } else { 0 };
    say(socket, FILE_DONE, errno as u32);
    0
}

fn say(socket: i32, kind: u8, number: u32) {
    let mut message = [kind, 0, 0, 0, 0];
    message[1..].copy_from_slice(&number.to_le_bytes());
    let _ = send(socket, &message, libc::MSG_DONTWAIT);
}

/// Tells the tracer of each process that waits, and lets it go on when it is told to, or when that takes too long. Gives
/// whether the tracer is heard of.
fn answer_kernel(fan: i32, socket: i32, mut is_heard: bool) -> bool {
    const EVENT: usize = size_of::<libc::fanotify_event_metadata>();
    let mut events = [0u8; EVENT * 32];
    // SAFETY: the buffer lives over the call and has the length that is said.
    let length = unsafe { libc::read(fan, events.as_mut_ptr().cast(), events.len()) };
    let mut at = 0;
    while length > 0 && at + EVENT <= length as usize {
        // SAFETY: the kernel wrote a whole event here, which is plain numbers; it need not be aligned.
        let event: libc::fanotify_event_metadata =
            unsafe { std::ptr::read_unaligned(events.as_ptr().add(at).cast()) };
        if (event.event_len as usize) < EVENT {
            break;
        }
        at += event.event_len as usize;
        if event.fd < 0 {
            continue;
        }
        say(socket, PROCESS, event.pid as u32);
        if is_heard {
            is_heard = wait_for_word(fan, socket, event.pid as u32);
        }
        let response = libc::fanotify_response { fd: event.fd, response: libc::FAN_ALLOW };
        // SAFETY: the response lives over the call; the descriptor was given to us with the event.
        unsafe {
            libc::write(fan, (&raw const response).cast(), size_of_val(&response));
            libc::close(event.fd);
        }
    }
    is_heard
}

fn wait_for_word(fan: i32, socket: i32, pid: u32) -> bool {
    let end = now_ms() + i64::from(PATIENCE_MS);
    loop {
        let left = end - now_ms();
        if left <= 0 {
            return false;
        }
        let mut polled = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, which lives over the call.
        unsafe { libc::poll(&raw mut polled, 1, left as i32) };
        if polled.revents != 0 && listen(fan, socket) == pid {
            return true;
        }
    }
}

fn now_ms() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec where the pointer leads.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn program(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("nopal-gate-{}-{name}", std::process::id()));
        // By another process: a child that another test starts meanwhile would inherit the file open for writing, and
        // whoever starts the program then is told that it is busy.
        assert!(Command::new("cp").arg("/bin/true").arg(&path).status().unwrap().success());
        path
    }

    fn start(program: &Path) -> std::thread::JoinHandle<u32> {
        let mut command = Command::new(program);
        std::thread::spawn(move || {
            let mut child = command.spawn().unwrap();
            assert!(child.wait().unwrap().success());
            child.id()
        })
    }

    fn next(gate: &mut ExecGate) -> u32 {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match gate.next_waiting() {
                Some(pid) => return pid,
                None if Instant::now() < end => gate.wait(Duration::from_millis(50)),
                None => panic!("nobody waits"),
            }
        }
    }

    #[test]
    fn a_program_waits_at_its_exec_until_it_is_let_go() {
        let file = program("waits");
        let mut gate = ExecGate::open().unwrap();
        gate.watch(&file).unwrap();
        for _ in 0..5 {
            let child = start(&file);
            let pid = next(&mut gate);
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
            assert_ne!(exe, file, "it has not begun");
            assert!(!child.is_finished());
            gate.let_go(pid);
            assert_eq!(child.join().unwrap(), pid);
        }
        assert!(gate.watch(Path::new("/no/such/file")).is_err());
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn nobody_waits_forever_for_a_tracer_that_does_not_answer() {
        let file = program("unheard");
        let mut gate = ExecGate::open().unwrap();
        gate.watch(&file).unwrap();
        start(&file).join().unwrap();
        // Now it is known that nobody answers: these wait for nothing.
        (0..10).for_each(|_| assert_ne!(start(&file).join().unwrap(), 0));
        let waited: Vec<u32> = (0..11).map(|_| next(&mut gate)).collect();
        gate.let_go(waited[10]);
        // Heard of again.
        let child = start(&file);
        let pid = next(&mut gate);
        gate.let_go(pid);
        child.join().unwrap();
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn whoever_waits_goes_on_when_the_gate_is_gone_or_its_keeper_is_killed() {
        let file = program("gone");
        let mut gate = ExecGate::open().unwrap();
        gate.watch(&file).unwrap();
        let child = start(&file);
        next(&mut gate);
        drop(gate);
        child.join().unwrap();

        let mut gate = ExecGate::open().unwrap();
        gate.watch(&file).unwrap();
        let child = start(&file);
        next(&mut gate);
        // SAFETY: kill has no preconditions; the keeper is our child.
        unsafe { libc::kill(gate.keeper, libc::SIGKILL) };
        child.join().unwrap();
        start(&file).join().unwrap();
        assert_eq!(gate.next_waiting(), None);
        assert!(gate.is_gone());
        std::fs::remove_file(&file).unwrap();
    }
}
