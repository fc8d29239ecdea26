//! Where programs knock as they start that are built with nopal's headers for LTTng: they wait to be let in, so that whoever
//! traces them has their first hit, also without the right to hold others at their exec. The other side is
//! tracee/nopal-lttng/start.c.
//!
//! A socket of the abstract namespace, `nopal-start-USER-PLACE`, with one of a few places for each recorder of a user. A
//! program connects to each of them and waits until the connection is closed.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// As many as the other side tries.
const PLACES: u32 = 4;

/// The tracer's end. Those that wait go on when this is dropped.
#[derive(Debug)]
pub struct StartGate {
    listener: UnixListener,
}

/// A process that waits; it goes on when this is dropped.
#[derive(Debug)]
pub struct Caller {
    pub pid: u32,
    _stream: UnixStream,
}

impl StartGate {
    /// Fails if all places of the user are taken.
    pub fn open() -> io::Result<StartGate> {
        // SAFETY: geteuid has no preconditions.
        let user = unsafe { libc::geteuid() };
        let bind = |place| {
            let name = SocketAddr::from_abstract_name(format!("nopal-start-{user}-{place}"))?;
            UnixListener::bind_addr(&name)
        };
        let mut bound = bind(0);
        for place in 1..PLACES {
            match &bound {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => bound = bind(place),
                _ => break,
            }
        }
        let listener = bound?;
        listener.set_nonblocking(true)?;
        Ok(StartGate { listener })
    }

    /// Whoever knocked next: anybody can connect, and `None` is somebody who is not ours to trace.
    pub fn next_knock(&self) -> Option<Option<Caller>> {
        let (stream, _) = self.listener.accept().ok()?;
        Some(caller_of(&stream).ok().map(|pid| Caller { pid, _stream: stream }))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Waits until somebody knocks, no longer than this.
    pub fn wait(&self, at_most: Duration) {
        let mut poll = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, which lives over the call.
        unsafe { libc::poll(&raw mut poll, 1, at_most.as_millis() as i32) };
    }
}

/// Who has connected, as the kernel noted it then.
fn caller_of(stream: &UnixStream) -> io::Result<u32> {
    let mut caller = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes where the pointer leads.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut caller).cast(),
            &raw mut size,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: geteuid has no preconditions.
    let user = unsafe { libc::geteuid() };
    match u32::try_from(caller.pid) {
        // One of a pid namespace that is not below ours has no number here.
        Ok(pid) if pid > 0 && (user == 0 || caller.uid == user) => Ok(pid),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn each_recorder_has_a_place_and_whoever_knocks_is_known_by_number() {
        let gates: Vec<StartGate> = (0..2).map(|_| StartGate::open().unwrap()).collect();
        for gate in &gates {
            assert!(gate.next_knock().is_none());
            let address = gate.listener.local_addr().unwrap();
            let mut knocking = UnixStream::connect_addr(&address).unwrap();
            gate.wait(Duration::from_secs(10));
            let caller = gate.next_knock().unwrap().unwrap();
            assert_eq!(caller.pid, std::process::id());
            knocking.set_nonblocking(true).unwrap();
            assert_eq!(knocking.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            drop(caller);
            knocking.set_nonblocking(false).unwrap();
            assert_eq!(knocking.read(&mut [0]).unwrap(), 0);
        }
    }
}
