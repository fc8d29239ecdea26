//! Hands a file of ours to the target: through a socket pair made inside it, which works whatever pid, mount or user
//! namespace it is in, and for any user that may trace it.

use super::error::{Error, Result};
use super::hijack::{Call, check};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Makes calls in the target.
pub(crate) trait Caller {
    /// Makes them in order, whatever comes of each. Every round costs the target's thread a turn on a CPU.
    fn calls(&mut self, calls: &[Call]) -> Result<Vec<i64>>;
    /// Memory of the target for arguments, writable through [`Caller::write`]; at least 512 bytes.
    fn scratch(&mut self) -> Result<u64>;
    fn write(&self, address: u64, bytes: &[u8]) -> Result<()>;
    fn read(&self, address: u64, len: usize) -> Result<Vec<u8>>;
    fn pid(&self) -> i32;

    /// One call that must succeed.
    fn call(&mut self, call: Call) -> Result<u64> {
        let result = self.calls(&[call])?.first().copied().ok_or(Error::Gone { pid: self.pid() })?;
        check(self.pid(), call.name, result)
    }
}

/// How many descriptors can be passed at once.
pub(crate) const MAX_FILES: usize = 3;
/// Scratch bytes for receiving one.
pub(crate) const RECEIVE_BYTES: u64 = 160;
/// Where in them its number is told.
pub(crate) const CONTROL_OFFSET: u64 = 128;
/// Where in the scratch memory the socket pair stands: two numbers, told by the kernel as it makes them, then their two
/// inodes, which we write before the first is closed. If we are killed, it can thus be told what is still open.
pub(crate) const PAIR_OFFSET: u64 = RECEIVE_BYTES * MAX_FILES as u64;
pub(crate) const NO_PAIR: [u8; 24] =
    [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The target's numbers for `files`, which stay open there until closed by a call.
pub(crate) fn pass_fds(caller: &mut impl Caller, files: &[BorrowedFd<'_>]) -> Result<Vec<i32>> {
    assert!(files.len() <= MAX_FILES, "the scratch memory has room for three");
    let pid = caller.pid();
    let scratch = caller.scratch()?;
    let pair_at = scratch + PAIR_OFFSET;
    caller.write(pair_at, &NO_PAIR)?;
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    caller.call(Call::new(
        "make a socket pair",
        libc::SYS_socketpair,
        [libc::AF_UNIX as u64, kind as u64, 0, pair_at, 0, 0],
    ))?;
    let pair = caller.read(pair_at, 8)?;
    let number = |at: usize| i32::from_le_bytes(pair[at..at + 4].try_into().expect("four bytes of eight"));
    let (theirs, ours) = (number(0), number(4));
    let inodes = [theirs, ours].map(|fd| socket_inode(pid, fd).unwrap_or(u64::MAX).to_le_bytes());
    caller.write(pair_at + 8, &inodes.concat())?;
    let sent =
        take_socket(pid, ours).and_then(|socket| files.iter().try_for_each(|file| send(&socket, *file)));
    let scratch = caller.scratch()?;
    let mut calls: Vec<Call> = Vec::new();
    if sent.is_ok() {
        for i in 0..files.len() as u64 {
            calls.push(receive(caller, theirs, scratch + i * RECEIVE_BYTES)?);
        }
    }
    for fd in [theirs, ours] {
        calls.push(Call::new("close a socket", libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]));
    }
    let results = caller.calls(&calls)?;
    caller.write(pair_at, &NO_PAIR)?;
    sent.map_err(Error::on(pid, "hand a descriptor to the process"))?;
    let mut received = Vec::with_capacity(files.len());
    for (i, result) in (0u64..).zip(results.into_iter().take(files.len())) {
        check(pid, "receive a descriptor", result)?;
        let control = caller.read(scratch + i * RECEIVE_BYTES + CONTROL_OFFSET, CONTROL_BYTES)?;
        match received_fd(&control) {
            Some(fd) => received.push(fd),
            None => return Err(Error::CallFailed { pid, call: "receive a descriptor", errno: libc::EMFILE }),
        }
    }
    Ok(received)
}

/// The number in a control message that was received.
pub(crate) fn received_fd(control: &[u8]) -> Option<i32> {
    let fd = i32::from_le_bytes(control.get(16..20)?.try_into().ok()?);
    (control[..16] == control_message(0)[..16] && fd >= 0).then_some(fd)
}

/// The inode of a socket of the process; `None` if the number is not that of a socket.
pub(crate) fn socket_inode(pid: i32, fd: i32) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// A descriptor of the target that is a local stream socket. The number is what the target's memory says, where another of
/// its threads may have put any other: nothing is sent through what can be no socket of a pair.
fn take_socket(pid: i32, number: i32) -> io::Result<OwnedFd> {
    let fd = take_fd(pid, number)?;
    let option = |name: i32| {
        let mut value = 0i32;
        let mut len = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `value`.
        let result = unsafe {
            let to = (&raw mut value).cast();
            libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, to, &raw mut len)
        };
        if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
    };
    let is_of_pair = option(libc::SO_DOMAIN)? == libc::AF_UNIX && option(libc::SO_TYPE)? == libc::SOCK_STREAM;
    if is_of_pair { Ok(fd) } else { Err(io::Error::from_raw_os_error(libc::ENOTSOCK)) }
}

fn take_fd(pid: i32, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers; the result is checked.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if process < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pidfd_open returned a new descriptor that nothing else owns.
    let process = unsafe { OwnedFd::from_raw_fd(process as i32) };
    // SAFETY: plain numbers; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pidfd_getfd returned a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// SCM_RIGHTS with one descriptor.
fn send(socket: &OwnedFd, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = 1u8;
    let mut iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = control_message(file.as_raw_fd());
    // SAFETY: zero is a value of every field.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.len();
    // Never waits: a fresh pair has room, and a socket that has none is not the one we made.
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: all pointers lead to live buffers of the stated lengths.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) const CONTROL_BYTES: usize = 24;

/// A cmsghdr (u64 length, level, type) with one descriptor, padded to eight bytes.
fn control_message(fd: i32) -> [u8; CONTROL_BYTES] {
    let mut bytes = [0u8; CONTROL_BYTES];
    bytes[..8].copy_from_slice(&20u64.to_le_bytes());
    bytes[8..12].copy_from_slice(&libc::SOL_SOCKET.to_le_bytes());
    bytes[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_le_bytes());
    bytes[16..20].copy_from_slice(&fd.to_le_bytes());
    bytes
}

/// recvmsg in the target; its structures lie at `at`: msghdr at 0, iovec at 64, the byte at 96, control at 128.
fn receive(caller: &impl Caller, theirs: i32, at: u64) -> Result<Call> {
    let mut bytes = [0u8; RECEIVE_BYTES as usize];
    let mut put = |offset: usize, value: u64| bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    put(16, at + 64);
    put(24, 1);
    put(32, at + CONTROL_OFFSET);
    put(40, CONTROL_BYTES as u64);
    put(64, at + 96);
    put(72, 1);
    caller.write(at, &bytes)?;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    Ok(Call::new("receive a descriptor", libc::SYS_recvmsg, [theirs as u64, at, flags as u64, 0, 0, 0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use std::io::{Read as _, Write as _};
    use std::os::fd::{AsFd, IntoRawFd};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    /// Makes the calls in this process, which says of the socket pair whatever `lie` is.
    struct Liar {
        memory: Memory,
        scratch: Box<[u64; 128]>,
        lie: Option<i32>,
        pair: Option<u64>,
    }

    impl Caller for Liar {
        fn calls(&mut self, calls: &[Call]) -> Result<Vec<i64>> {
            let one = |call: &Call| {
                let [a, b, c, d, e, f] = call.args;
                // SAFETY: what pass_fds asks for: sockets, and messages in the scratch memory.
                let result = unsafe { libc::syscall(call.number, a, b, c, d, e, f) };
                if result < 0 {
                    -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(1))
                } else {
                    result
                }
            };
            if let Some(call) = calls.iter().find(|call| call.number == libc::SYS_socketpair) {
                self.pair = Some(call.args[3]);
            }
            Ok(calls.iter().map(one).collect())
        }

        fn scratch(&mut self) -> Result<u64> {
            Ok(self.scratch.as_mut_ptr() as u64)
        }

        fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
            self.memory.write(address, bytes)
        }

        fn read(&self, address: u64, len: usize) -> Result<Vec<u8>> {
            let mut bytes = self.memory.read_vec(address, len)?;
            if let (Some(lie), true) = (self.lie, Some(address) == self.pair) {
                bytes[4..8].copy_from_slice(&lie.to_le_bytes());
            }
            Ok(bytes)
        }

        fn pid(&self) -> i32 {
            self.memory.pid()
        }
    }

    fn pass(lie: Option<i32>) -> Result<Vec<i32>> {
        let memory = Memory::open(std::process::id() as i32).unwrap();
        let mut liar = Liar { memory, scratch: Box::new([0; 128]), lie, pair: None };
        let file = std::fs::File::open("/dev/null").unwrap();
        pass_fds(&mut liar, &[file.as_fd(), file.as_fd()])
    }

    #[test]
    fn a_socket_that_the_target_names_instead_of_ours_does_not_hold_us_up() {
        let numbers = pass(None).unwrap();
        for fd in numbers {
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            assert_eq!(link.to_str(), Some("/dev/null"));
            // SAFETY: received just now, owned by nobody else.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        // A socket that is full, on which a sender waits.
        let (full, _other) = UnixStream::pair().unwrap();
        full.set_nonblocking(true).unwrap();
        while (&full).write_all(&[0; 4096]).is_ok() {}
        full.set_nonblocking(false).unwrap();
        // The number that is told is closed in the end, as it would be in the target.
        assert!(pass(Some(full.into_raw_fd())).is_err());
        // Things that are no such socket.
        let (datagram, _other) = UnixDatagram::pair().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for fd in [datagram.into_raw_fd(), stream.try_clone().unwrap().into_raw_fd(), null.into_raw_fd(), -1]
        {
            assert!(pass(Some(fd)).is_err(), "{fd}");
        }
        let (mut accepted, _) = listener.accept().unwrap();
        drop(stream);
        let mut sent = Vec::new();
        accepted.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, [], "nothing was sent to a stranger");
    }
}
