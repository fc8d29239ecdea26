//! What a round has of the machine for itself: a disk, a control group for its program, a clock for its tracers.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A small file system in memory, mounted in the folder of the round.
#[derive(Debug)]
pub(crate) struct Disk {
    at: PathBuf,
}

impl Disk {
    pub(crate) fn mount(at: PathBuf) -> Result<Disk, String> {
        let mounted = fs::create_dir(&at).and_then(|()| {
            let path = c_string(&at);
            // SAFETY: the strings end with a zero and live as long as the call.
            let done = unsafe {
                libc::mount(
                    c"nopal-faults".as_ptr(),
                    path.as_ptr(),
                    c"tmpfs".as_ptr(),
                    0,
                    c"size=24m".as_ptr().cast(),
                )
            };
            if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
        mounted.map_err(|e| format!("{}: {e}", at.display())).map(|()| Disk { at })
    }

    /// Whether nothing more can be written there now.
    pub(crate) fn fill(&self) -> bool {
        let Ok(file) = fs::File::create(self.at.join("ballast")) else { return false };
        let mut len = 0;
        for step in [1 << 20, 1 << 12] {
            // SAFETY: a descriptor of ours and plain numbers.
            while unsafe { libc::fallocate(file.as_raw_fd(), 0, len, step) } == 0 {
                len += step;
            }
        }
        true
    }

    pub(crate) fn free(&self) {
        // It may never have been filled.
        let _ = fs::remove_file(self.at.join("ballast"));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path = c_string(&self.at);
        // SAFETY: the string ends with a zero and lives as long as the call.
        if unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } != 0 {
            println!("umount {}: {}", self.at.display(), std::io::Error::last_os_error());
        }
    }
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("paths of tests have no zero in them")
}

/// The clock of the day for tracers that are told of it: so many seconds ahead.
#[derive(Debug)]
pub(crate) struct Clock {
    file: fs::File,
    pub path: PathBuf,
}

impl Clock {
    pub(crate) fn new(path: PathBuf) -> Result<Clock, String> {
        let made = fs::write(&path, [0; 4096])
            .and_then(|()| fs::File::options().write(true).open(&path))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Clock { file: made, path })
    }

    pub(crate) fn step(&self, seconds: i64) -> bool {
        self.file.write_all_at(&seconds.to_ne_bytes(), 0).is_ok()
    }
}

/// The control group of a program: little memory, few processes' worth of CPU, and it can be frozen. Of the first kind, with
/// a folder for each resource, or of the second.
#[derive(Debug)]
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    is_unified: bool,
}

const PERIOD_US: u64 = 20_000;

impl Group {
    pub(crate) fn new(seed: u64) -> Result<Group, String> {
        let name = format!("nopal-faults-{}-{seed}", std::process::id());
        let first: Vec<PathBuf> =
            ["cpu", "memory", "freezer"].map(|kind| Path::new("/sys/fs/cgroup").join(kind)).into();
        let is_unified = !first[0].join("tasks").exists();
        let roots = if is_unified { vec![PathBuf::from("/sys/fs/cgroup")] } else { first };
        let mut group = Group { folders: Vec::new(), is_unified };
        for root in roots {
            let folder = root.join(&name);
            fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            group.folders.push(folder);
        }
        Ok(group)
    }

    /// The program and its limits: half a CPU, and memory that it never needs.
    pub(crate) fn take(&self, pid: u32) -> Result<(), String> {
        let (memory, bytes) = (self.file("memory.limit_in_bytes", "memory.max"), 256 << 20);
        self.write(&memory, &bytes.to_string())?;
        self.give_cpu(PERIOD_US / 2)?;
        self.folders.iter().try_for_each(|folder| self.write(&folder.join("cgroup.procs"), &pid.to_string()))
    }

    pub(crate) fn freeze(&self, is_frozen: bool) -> bool {
        let (first, second) = if is_frozen { ("FROZEN", "1") } else { ("THAWED", "0") };
        let word = if self.is_unified { second } else { first };
        self.write(&self.file("freezer.state", "cgroup.freeze"), word).is_ok()
    }

    /// Hardly any CPU, or half of one again.
    pub(crate) fn squeeze(&self, is_squeezed: bool) -> bool {
        self.give_cpu(if is_squeezed { 1000 } else { PERIOD_US / 2 }).is_ok()
    }

    fn give_cpu(&self, quota_us: u64) -> Result<(), String> {
        if self.is_unified {
            return self.write(&self.folders[0].join("cpu.max"), &format!("{quota_us} {PERIOD_US}"));
        }
        self.write(&self.folders[0].join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
        self.write(&self.folders[0].join("cpu.cfs_quota_us"), &quota_us.to_string())
    }

    fn file(&self, first: &str, second: &str) -> PathBuf {
        if self.is_unified {
            return self.folders[0].join(second);
        }
        let kind = first.split('.').next().expect("a name has a first part");
        let folder = self.folders.iter().find(|f| f.parent().is_some_and(|f| f.ends_with(kind)));
        folder.expect("there is one of each kind").join(first)
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.freeze(false);
        for folder in &self.folders {
            // Processes that were ended a moment ago are still counted.
            if !super::process::wait_for(Duration::from_secs(5), || fs::remove_dir(folder).is_ok()) {
                println!("{} stays", folder.display());
            }
        }
    }
}
