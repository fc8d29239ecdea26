//! Files of our own, in folders where others may have planted something. A folder is opened and judged once and held by
//! its descriptor, so that nobody can put another one in its place afterwards; below it no link is followed, and a new
//! file is always new.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Others may neither write nor enter.
const PRIVATE_FOLDER: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
const PUBLIC_FILE: u32 = 0o644;
const OTHERS_WRITE: u32 = 0o022;

/// A folder that we write into.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder that somebody named, and makes it if need be, for its owner alone. The path may lead through links, but
    /// for one at its end that another user made.
    pub fn make(path: &Path) -> io::Result<Folder> {
        DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)?;
        Folder::open(path)
    }

    /// Opens a folder that somebody named.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let failed = match Folder::open_at(libc::AT_FDCWD, path.as_os_str(), path, libc::O_NOFOLLOW) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)) => error,
            opened => return opened,
        };
        let Some(target) = target_of_link(path)? else { return Err(failed) };
        Folder::open_at(libc::AT_FDCWD, target.as_os_str(), path, 0)
    }

    /// Device and inode: what it is, whatever its name.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let metadata = self.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// Opens a folder that must be ours: not a link, not of another user, not writable by others.
    /// [`io::ErrorKind::PermissionDenied`] without a number of the operating system says that it is not.
    pub fn open_private(path: &Path) -> io::Result<Folder> {
        Folder::open_at(libc::AT_FDCWD, path.as_os_str(), path, libc::O_NOFOLLOW)?.check_private()
    }

    /// Makes that if need be.
    pub fn make_private(path: &Path) -> io::Result<Folder> {
        DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(path)?;
        Folder::open_private(path)
    }

    fn check_private(self) -> io::Result<Folder> {
        let metadata = self.metadata()?;
        // SAFETY: geteuid has no preconditions.
        let own = unsafe { libc::geteuid() };
        let path = self.path.display();
        if metadata.uid() != own {
            return Err(not_ours(format!("{path} belongs to another user")));
        }
        if metadata.mode() & OTHERS_WRITE != 0 {
            return Err(not_ours(format!("{path} can be written by other users")));
        }
        Ok(self)
    }

    fn metadata(&self) -> io::Result<std::fs::Metadata> {
        File::from(self.fd.try_clone()?).metadata()
    }

    fn open_at(at: RawFd, name: &OsStr, path: &Path, flags: libc::c_int) -> io::Result<Folder> {
        let fd = open_at(at, name, flags | libc::O_RDONLY | libc::O_DIRECTORY)?;
        Ok(Folder { fd, path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For callers that must name the folder to the kernel: leads here whatever happens to its name.
    pub fn path_by_descriptor(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// The folder `name` in this one; [`Folder::make_below`] makes it.
    pub fn below(&self, name: &str) -> io::Result<Folder> {
        Folder::open_at(self.fd.as_raw_fd(), OsStr::new(name), &self.path.join(name), libc::O_NOFOLLOW)
    }

    /// The same, if it is ours.
    pub fn private_below(&self, name: &str) -> io::Result<Folder> {
        self.below(name)?.check_private()
    }

    /// Makes the folder `name` in this one unless it is there.
    pub fn make_below(&self, name: &str) -> io::Result<Folder> {
        match self.make_new_below(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.below(name),
            made => made,
        }
    }

    /// Makes the folder `name` in this one, which must not be there.
    pub fn make_new_below(&self, name: &str) -> io::Result<Folder> {
        let c_name = c_string(OsStr::new(name))?;
        // SAFETY: the name ends in a NUL and the descriptor is open.
        check(unsafe { libc::mkdirat(self.fd.as_raw_fd(), c_name.as_ptr(), PRIVATE_FOLDER) })?;
        self.below(name)
    }

    /// A new file that only its owner can read; fails if anything has the name, also a link.
    pub fn create_new(&self, name: &str) -> io::Result<File> {
        self.file(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)
    }

    /// The same, always written at its end: cutting it back moves the place of the next write too.
    pub fn create_new_to_append(&self, name: &str) -> io::Result<File> {
        self.file(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_APPEND)
    }

    /// The file `name` to read and write, made if need be.
    pub fn open_or_create(&self, name: &str) -> io::Result<File> {
        self.regular_file(name, libc::O_RDWR | libc::O_CREAT)
    }

    /// The file `name` to add to, made if need be.
    pub fn append_to(&self, name: &str) -> io::Result<File> {
        self.regular_file(name, libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND)
    }

    pub fn open_file(&self, name: &str) -> io::Result<File> {
        self.regular_file(name, libc::O_RDONLY)
    }

    /// All of a file of at most `limit_bytes`, as text.
    pub fn read_text(&self, name: &str, limit_bytes: u64) -> io::Result<String> {
        let mut text = String::new();
        self.open_file(name)?.take(limit_bytes + 1).read_to_string(&mut text)?;
        if text.len() as u64 > limit_bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file is too large to be one of ours",
            ));
        }
        Ok(text)
    }

    pub fn has_file(&self, name: &str) -> bool {
        self.open_file(name).is_ok()
    }

    /// Replaces a file: readers see the old text or the new, never a part.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.replace_with(name, bytes, PRIVATE_FILE)
    }

    /// The same for a file that everybody may read.
    pub fn replace_public(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.replace_with(name, bytes, PUBLIC_FILE)
    }

    fn replace_with(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let new = temporary_name(name);
        let written = self.create_new(&new).and_then(|mut file| {
            file.write_all(bytes)?;
            file.set_permissions(Permissions::from_mode(mode))
        });
        let replaced = written.and_then(|()| self.rename(&new, name));
        replaced.inspect_err(|_| {
            let _ = self.remove_file(&new);
        })
    }

    /// Whether a file can be made here and written to.
    pub fn try_writing(&self) -> io::Result<()> {
        let name = temporary_name("nopal");
        let written = self.create_new(&name).and_then(|mut file| file.write_all(b"\n"));
        written.and_then(|()| self.remove_file(&name))
    }

    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (c_string(OsStr::new(from))?, c_string(OsStr::new(to))?);
        let fd = self.fd.as_raw_fd();
        // SAFETY: both names end in a NUL and the descriptor is open.
        check(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) })
    }

    /// Gives a file a second name, which must be free.
    pub fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (c_string(OsStr::new(from))?, c_string(OsStr::new(to))?);
        let fd = self.fd.as_raw_fd();
        // SAFETY: both names end in a NUL and the descriptor is open.
        check(unsafe { libc::linkat(fd, from.as_ptr(), fd, to.as_ptr(), 0) })
    }

    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        let name = c_string(OsStr::new(name))?;
        // SAFETY: the name ends in a NUL and the descriptor is open.
        check(unsafe { libc::unlinkat(self.fd.as_raw_fd(), name.as_ptr(), 0) })
    }

    /// Whether anything has the name, also a link that leads nowhere.
    pub fn has(&self, name: &str) -> bool {
        let Ok(name) = c_string(OsStr::new(name)) else { return false };
        let (fd, flags) = (self.fd.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
        // SAFETY: all zeros is a valid stat, which holds nothing but integers.
        let mut metadata: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the name ends in a NUL, the descriptor is open, and the kernel writes one stat.
        unsafe { libc::fstatat(fd, name.as_ptr(), &raw mut metadata, flags) == 0 }
    }

    fn file(&self, name: &str, flags: libc::c_int) -> io::Result<File> {
        open_at(self.fd.as_raw_fd(), OsStr::new(name), flags | libc::O_NOFOLLOW).map(File::from)
    }

    /// One that is there may be anything; only a regular file of one name is ours. A second name could be that of a file
    /// that matters.
    fn regular_file(&self, name: &str, flags: libc::c_int) -> io::Result<File> {
        let file = self.file(name, flags | libc::O_NONBLOCK | libc::O_NOCTTY)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.nlink() > 1 {
            let path = self.path.join(name);
            return Err(not_ours(format!("{} is not a file that nopal made", path.display())));
        }
        Ok(file)
    }
}

/// The file that somebody named to be written anew, for its owner alone if it was not there. A link is followed if root or we
/// made it, as those of /dev are.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_NOCTTY;
    let open = |path: &Path, more| open_at(libc::AT_FDCWD, path.as_os_str(), flags | more).map(File::from);
    let failed = match open(path, libc::O_NOFOLLOW) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => error,
        opened => return opened,
    };
    let Some(target) = target_of_link(path)? else { return Err(failed) };
    open(&target, 0)
}

/// Where a link leads that root or we made; `None` of what is no link. In a folder that others can write, anybody else may have
/// planted it.
fn target_of_link(path: &Path) -> io::Result<Option<PathBuf>> {
    // Held by its descriptor, nobody can put another link in its place.
    let link = open_at(libc::AT_FDCWD, path.as_os_str(), libc::O_PATH | libc::O_NOFOLLOW).map(File::from)?;
    let metadata = link.metadata()?;
    if !metadata.is_symlink() {
        return Ok(None);
    }
    // SAFETY: geteuid has no preconditions.
    if ![0, unsafe { libc::geteuid() }].contains(&metadata.uid()) {
        return Err(not_ours(format!("{} is a link that another user made", path.display())));
    }
    Ok(Some(path.parent().unwrap_or(Path::new("")).join(read_link(&link)?)))
}

fn read_link(link: &File) -> io::Result<PathBuf> {
    let mut target = vec![0; libc::PATH_MAX as usize];
    // SAFETY: the empty name stands for the link itself; the kernel writes at most as much as there is room.
    let len =
        unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    target.truncate(usize::try_from(len).map_err(|_| io::Error::last_os_error())?);
    Ok(PathBuf::from(OsString::from_vec(target)))
}

/// No two calls give the same, and names of killed processes are not in the way for long.
fn temporary_name(name: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    format!(".{name}.{}.{}.{now:x}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

fn not_ours(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn open_at(at: RawFd, name: &OsStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let name = c_string(name)?;
    // SAFETY: the name ends in a NUL; the mode is there for the flags that need it.
    let fd = unsafe { libc::openat(at, name.as_ptr(), flags | libc::O_CLOEXEC, PRIVATE_FILE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_named_file_is_private_and_no_planted_link_is_followed() {
        let dir = scratch("named");
        let victim = dir.join("victim");
        fs::write(&victim, "kept").unwrap();
        let new = dir.join("new");
        create(&new).and_then(|mut file| file.write_all(b"a")).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o600);
        // Our own link, also one that is told from its folder.
        symlink("new", dir.join("own")).unwrap();
        create(&dir.join("own")).and_then(|mut file| file.write_all(b"b")).unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "b");
        // What is there is written anew, and devices are written to.
        create(&new).and_then(|mut file| file.write_all(b"c")).unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "c");
        symlink("/dev/null", dir.join("null")).unwrap();
        create(&dir.join("null")).unwrap();
        assert_eq!(create(&dir).unwrap_err().raw_os_error(), Some(libc::EISDIR));
        let planted = dir.join("planted");
        symlink(&victim, &planted).unwrap();
        // Only root can give it to somebody else.
        if std::os::unix::fs::lchown(&planted, Some(65534), None).is_ok() {
            let error = create(&planted).unwrap_err().to_string();
            assert!(error.contains("is a link that another user made"), "{error}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("nopal-own-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn planted_links_are_not_followed() {
        let dir = scratch("links");
        fs::write(dir.join("victim"), "kept").unwrap();
        fs::create_dir(dir.join("victims")).unwrap();
        let folder = Folder::make(&dir.join("out")).unwrap();
        symlink(dir.join("victim"), dir.join("out/file")).unwrap();
        symlink(dir.join("nowhere"), dir.join("out/dangling")).unwrap();
        symlink(dir.join("victims"), dir.join("out/folder")).unwrap();
        fs::hard_link(dir.join("victim"), dir.join("out/second")).unwrap();
        for name in ["file", "dangling", "second"] {
            assert!(folder.create_new(name).is_err(), "{name}");
            assert!(folder.open_or_create(name).is_err(), "{name}");
            assert!(folder.append_to(name).is_err(), "{name}");
            assert!(folder.has(name), "{name}");
        }
        assert!(folder.make_below("folder").is_err() && folder.below("folder").is_err());
        assert!(!dir.join("nowhere").exists());
        // Replacing takes the name away from the link, not the bytes from what it led to.
        folder.replace("file", b"new").unwrap();
        assert_eq!(folder.read_text("file", 10).unwrap(), "new");
        assert_eq!(fs::read_to_string(dir.join("victim")).unwrap(), "kept");
        let mode = |path: &str| fs::metadata(dir.join(path)).unwrap().mode() & 0o777;
        assert_eq!((mode("out"), mode("out/file")), (0o700, 0o600));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_was_opened_stays_the_same_folder() {
        let dir = scratch("swap");
        let folder = Folder::make_private(&dir.join("home")).unwrap();
        fs::rename(dir.join("home"), dir.join("moved")).unwrap();
        symlink("/", dir.join("home")).unwrap();
        folder.replace("a", b"1").unwrap();
        assert!(dir.join("moved/a").exists());
        assert!(Folder::open_private(&dir.join("home")).is_err());
        fs::set_permissions(dir.join("moved"), fs::Permissions::from_mode(0o777)).unwrap();
        let error = Folder::open_private(&dir.join("moved")).unwrap_err();
        assert!(error.to_string().contains("can be written by other users"), "{error}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
