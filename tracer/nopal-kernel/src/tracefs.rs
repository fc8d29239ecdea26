//! The kernel's file system of tracing events, as far as named uprobe events need it. Mounted for this process alone if it
//! must be: nobody else sees that mount. Knows nothing of probes or programs.

use super::leftovers;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// The events of one process are in the group of its pid, so that what a killed one left can be told and removed.
const GROUP: &str = leftovers::GROUPS[1];

/// The root folder of the file system.
#[derive(Debug)]
pub(crate) struct Tracefs {
    root: OwnedFd,
}

/// One place of a named event, in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub file_offset: u64,
    /// The semaphore's offset in the file, 0 for none.
    pub ref_ctr_offset: u64,
}

/// A uprobe event that has a name, and an id that `perf_event_open` takes. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct NamedEvent {
    tracefs: Arc<Tracefs>,
    name: String,
    pub id: u64,
}

impl Tracefs {
    pub(crate) fn open() -> io::Result<Tracefs> {
        let root = mount_for_us().or_else(|error| {
            ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
                .iter()
                .find(|path| Path::new(path).join("uprobe_events").exists())
                .map_or(Err(error), |path| File::open(path).map(OwnedFd::from))
        })?;
        let tracefs = Tracefs { root };
        // Whoever may not write there need not go on.
        tracefs.open_file(c"uprobe_events", libc::O_WRONLY | libc::O_APPEND)?;
        tracefs.sweep();
        Ok(tracefs)
    }

    /// Defines one event at all `places` of `file`; one of returns occurs when a function that begins there returns.
    pub(crate) fn define(
        self: &Arc<Self>,
        file: &File,
        places: &[Place],
        is_return: bool,
    ) -> io::Result<NamedEvent> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{GROUP}{}/s{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        for (i, place) in places.iter().enumerate() {
            // By descriptor: the kernel's parser cannot take every name a file may have.
            let kind = if is_return { 'r' } else { 'p' };
            let mut line =
                format!("{kind}:{name} /proc/self/fd/{}:{:#x}", file.as_raw_fd(), place.file_offset);
            if place.ref_ctr_offset != 0 {
                line += &format!("({:#x})", place.ref_ctr_offset);
            }
            if let Err(error) = self.command(&line) {
                if i > 0 {
                    let _ = self.command(&format!("-:{name}"));
                }
                return Err(error);
            }
        }
        let mut event = NamedEvent { tracefs: Arc::clone(self), name, id: 0 };
        event.id = self
            .read(&format!("events/{}/id", event.name))?
            .trim()
            .parse()
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(event)
    }

    fn command(&self, line: &str) -> io::Result<()> {
        let mut file = self.open_file(c"uprobe_events", libc::O_WRONLY | libc::O_APPEND)?;
        file.write_all(format!("{line}\n").as_bytes())
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let path = std::ffi::CString::new(path).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut text = String::new();
        self.open_file(&path, libc::O_RDONLY)?.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Removes what killed processes of ours have left: names only, as nothing is armed without its process.
    fn sweep(&self) {
        let Ok(text) = self.read("uprobe_events") else { return };
        for name in leftovers::stale_events(&text, nopal_proc::Process::is_alive) {
            // Fails if it is somebody's after all.
            let _ = self.command(&format!("-:{name}"));
        }
    }

    fn open_file(&self, path: &CStr, flags: libc::c_int) -> io::Result<File> {
        // SAFETY: the path ends in a NUL and the folder is open as long as `self` lives.
        let fd = unsafe { libc::openat(self.root.as_raw_fd(), path.as_ptr(), flags | libc::O_CLOEXEC) };
        owned(fd.into()).map(File::from)
    }
}

impl Drop for NamedEvent {
    fn drop(&mut self) {
        for _ in 0..20 {
            match self.tracefs.command(&format!("-:{}", self.name)) {
                // What used it has been closed and is on its way.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

/// A mount in no place of the file system tree.
fn mount_for_us() -> io::Result<OwnedFd> {
    // SAFETY: the name ends in a NUL; the call has no other memory argument.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC) })?;
    let null = std::ptr::null::<u8>();
    // SAFETY: this command takes no key and no value.
    let created =
        unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0) };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no memory argument.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor to us and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
