//! Descriptors that a killed tracer left open in a process: found by what it had noted there, and closed.
//!
//! A number is believed only if what it stands for is ours: a memfd by its name, a socket by its inode. The program may have
//! closed everything it does not know, and used the number again.

use super::error::Result;
use super::hijack::Call;
use super::memory::Memory;
use super::pass_fd::{
    CONTROL_BYTES, CONTROL_OFFSET, MAX_FILES, PAIR_OFFSET, RECEIVE_BYTES, received_fd, socket_inode,
};
use super::process_page::{NOTES_BYTES, NOTES_OFFSET, SCRATCH_BYTES};
use std::fs;

const MEMFD_NAMES: &str = "/memfd:nopal-";

/// The notes about these descriptors. More than sixteen are not open at a time.
pub(crate) fn notes(descriptors: impl Iterator<Item = i32>) -> [u8; NOTES_BYTES] {
    let mut bytes = [0; NOTES_BYTES];
    for (word, fd) in bytes.chunks_exact_mut(4).zip(descriptors) {
        word.copy_from_slice(&(fd + 1).to_le_bytes());
    }
    bytes
}

/// Leaves no note in a process page.
pub(crate) fn forget(memory: &Memory, process_page: u64) -> Result<()> {
    memory.write(process_page + NOTES_OFFSET, &[0; NOTES_BYTES + SCRATCH_BYTES])
}

/// What is still open of what was noted in a process page.
pub(crate) fn left_in(memory: &Memory, process_page: u64) -> Vec<i32> {
    let pid = memory.pid();
    let Ok(bytes) = memory.read_vec(process_page + NOTES_OFFSET, NOTES_BYTES + SCRATCH_BYTES) else {
        return Vec::new();
    };
    let mut left: Vec<i32> = noted(&bytes)
        .into_iter()
        .filter(|fd| is_memfd_of_ours(pid, *fd))
        .chain(left_pair(pid, &bytes))
        .collect();
    left.sort_unstable();
    left.dedup();
    left
}

/// The calls that close them.
pub(crate) fn closing(descriptors: &[i32]) -> Vec<Call> {
    descriptors
        .iter()
        .map(|fd| Call::new("close a descriptor", libc::SYS_close, [*fd as u64, 0, 0, 0, 0, 0]))
        .collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes of many"))
}

/// The numbers in the notes, and those told by the kernel that had not been noted yet.
fn noted(bytes: &[u8]) -> Vec<i32> {
    let (notes, scratch) = bytes.split_at(NOTES_BYTES);
    let in_notes =
        (0..NOTES_BYTES / 4).map(|i| (word(notes, 4 * i) as i32).wrapping_sub(1)).filter(|fd| *fd >= 0);
    let told = (0..MAX_FILES).filter_map(|i| {
        let at = i * RECEIVE_BYTES as usize + CONTROL_OFFSET as usize;
        received_fd(&scratch[at..at + CONTROL_BYTES])
    });
    in_notes.chain(told).collect()
}

fn is_memfd_of_ours(pid: i32, fd: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/fd/{fd}"))
        .is_ok_and(|link| link.to_string_lossy().starts_with(MEMFD_NAMES))
}

/// The socket pair. Killed before it wrote their inodes, the tracer has closed neither, and both are sockets of a pair.
fn left_pair(pid: i32, bytes: &[u8]) -> Vec<i32> {
    let at = NOTES_BYTES + PAIR_OFFSET as usize;
    let numbers = [word(bytes, at) as i32, word(bytes, at + 4) as i32];
    // Zeros are what is there before the first pair.
    if numbers == [0, 0] || numbers.iter().any(|fd| *fd < 0) {
        return Vec::new();
    }
    let inode =
        |i: usize| u64::from_le_bytes(bytes[at + 8 * i..at + 8 * i + 8].try_into().expect("eight bytes"));
    let (noted, now) = ([inode(1), inode(2)], numbers.map(|fd| socket_inode(pid, fd)));
    match (noted, now) {
        ([0, 0], [Some(one), Some(other)]) if are_of_pairs(pid, [one, other]) => numbers.to_vec(),
        _ => (0..2).filter(|i| now[*i] == Some(noted[*i])).map(|i| numbers[i]).collect(),
    }
}

/// Whether these are local sockets that are connected and have no name, as those of a pair.
fn are_of_pairs(pid: i32, inodes: [u64; 2]) -> bool {
    const CONNECTED: &str = "03";
    let Ok(sockets) = nopal_proc::read_text(format!("/proc/{pid}/net/unix")) else { return false };
    let is_of_pair = |inode: u64| {
        sockets.lines().any(|line| {
            // Num RefCount Protocol Flags Type St Inode Path
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            words.len() == 7 && words[5] == CONNECTED && words[6].parse() == Ok(inode)
        })
    };
    inodes[0] != inodes[1] && inodes.into_iter().all(is_of_pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_noted_is_found() {
        let mut bytes = [0; NOTES_BYTES + SCRATCH_BYTES];
        assert!(noted(&bytes).is_empty() && left_pair(1, &bytes).is_empty(), "a fresh page");
        bytes[..NOTES_BYTES].copy_from_slice(&notes([0, 7, 300].into_iter()));
        assert_eq!(noted(&bytes), [0, 7, 300]);
        // A message that was received, with number 9.
        let control = NOTES_BYTES + RECEIVE_BYTES as usize + CONTROL_OFFSET as usize;
        bytes[control..control + 20]
            .copy_from_slice(&[20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(noted(&bytes), [0, 7, 300, 9]);
    }

    #[test]
    fn a_socket_pair_is_known_by_its_inodes() {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let fds = [&one, &other].map(std::os::fd::AsRawFd::as_raw_fd);
        let pid = std::process::id() as i32;
        let inodes = fds.map(|fd| socket_inode(pid, fd).expect("a socket has an inode"));
        let page = |inodes: [u64; 2]| {
            let mut bytes = [0; NOTES_BYTES + SCRATCH_BYTES];
            let at = NOTES_BYTES + PAIR_OFFSET as usize;
            for i in 0..2 {
                bytes[at + 4 * i..at + 4 * i + 4].copy_from_slice(&fds[i].to_le_bytes());
                bytes[at + 8 + 8 * i..at + 16 + 8 * i].copy_from_slice(&inodes[i].to_le_bytes());
            }
            bytes
        };
        assert_eq!(left_pair(pid, &page(inodes)), fds);
        assert_eq!(left_pair(pid, &page([0, 0])), fds, "not told of yet");
        assert_eq!(
            left_pair(pid, &page([inodes[0], 1])),
            [fds[0]],
            "the other number stands for something else now"
        );
        drop((one, other));
        assert!(left_pair(pid, &page(inodes)).is_empty(), "closed");
        let others = [0; 2].map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a socket"));
        let inodes = others.each_ref().map(|other| {
            socket_inode(pid, std::os::fd::AsRawFd::as_raw_fd(other)).expect("a socket has an inode")
        });
        assert!(!are_of_pairs(pid, inodes), "of the program");
    }
}
