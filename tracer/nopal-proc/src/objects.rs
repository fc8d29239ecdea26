//! The ELF files a process maps, each opened as the very file that is mapped: whatever namespace it is in, and
//! whether or not it still has a name.

use super::{Image, Mapping, Process, TargetError, maps};
use nopal_files::foreign::{self, ForeignError};
use nopal_sdt::Object;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file of which a process maps code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedObject {
    pub pid: u32,
    /// As the process sees it; `/memfd:NAME` for a memfd.
    pub path: PathBuf,
    pub is_deleted: bool,
    /// All its mappings, in the order of their addresses.
    pub mappings: Vec<Mapping>,
}

/// The files of which `pid` maps code, in the order of their addresses.
pub fn mapped_objects(pid: u32) -> Result<Vec<MappedObject>, TargetError> {
    let mut objects: Vec<MappedObject> = Vec::new();
    for mapping in maps(pid)?.into_iter().filter(Mapping::is_of_file) {
        let same = |object: &&mut MappedObject| {
            let known = &object.mappings[0];
            known.inode == mapping.inode
                && (known.device_major, known.device_minor) == (mapping.device_major, mapping.device_minor)
        };
        match objects.iter_mut().find(same) {
            Some(object) => object.mappings.push(mapping),
            None => objects.push(MappedObject {
                pid,
                path: mapping.path.clone(),
                is_deleted: mapping.is_deleted,
                mappings: vec![mapping],
            }),
        }
    }
    objects.retain(|object| object.mappings.iter().any(|mapping| mapping.is_executable));
    Ok(objects)
}

/// The same for whoever wants to change the code: refuses a process whose code is not executed but read and translated. A
/// breakpoint in it would be translated, too, and end the program.
pub fn changeable_objects(pid: u32) -> Result<Vec<MappedObject>, TargetError> {
    let objects = mapped_objects(pid)?;
    match objects.iter().find_map(|object| translator(&object.path)) {
        Some(by) => Err(TargetError::Translated { pid, by }),
        None => Ok(objects),
    }
}

/// Whether a process has ended, or is about to: its memory goes first.
pub fn has_ended(pid: u32) -> bool {
    !Process::is_alive(pid) || mapped_objects(pid).is_ok_and(|objects| objects.is_empty())
}

/// The tool that a mapped file is part of, if it translates code.
fn translator(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    match name {
        _ if folder == "valgrind" || name.starts_with("vgpreload_") => Some("valgrind"),
        "pinbin" => Some("Pin"),
        _ if name.starts_with("libdynamorio.so") => Some("DynamoRIO"),
        _ => None,
    }
}

/// Device and inode.
pub type FileId = (u64, u64);

impl MappedObject {
    /// Which file it is, by its first mapping.
    pub fn file(&self) -> Option<FileId> {
        let mapping = self.mappings.first()?;
        Some((u64::from(mapping.device_major) << 32 | u64::from(mapping.device_minor), mapping.inode))
    }

    /// Opens the file that is mapped, not just one of the same name.
    pub fn open(&self) -> Result<Image, TargetError> {
        self.candidates().find_map(|path| self.open_same(&path)).ok_or_else(|| self.why_not())
    }

    /// A path that leads to the mapped file from our own mount namespace, for callers that must name it.
    pub fn reachable_path(&self) -> Result<PathBuf, TargetError> {
        self.candidates().find(|path| self.open_same(path).is_some()).ok_or_else(|| self.why_not())
    }

    /// The ways to the file, best first.
    fn candidates(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let proc = PathBuf::from(format!("/proc/{}", self.pid));
        // The kernel prints the path from our root if it can and from the root of the other namespace if not.
        let named = (!self.is_deleted).then(|| {
            let path = self.path.strip_prefix("/").unwrap_or(&self.path);
            [self.path.clone(), proc.join("root").join(path)]
        });
        // The link that the kernel keeps for each mapping opens deleted files, too, but for root only.
        let map_files =
            self.mappings.iter().take(1).map(|m| format!("map_files/{:x}-{:x}", m.start, m.end)).map({
                let proc = proc.clone();
                move |link| proc.join(link)
            });
        let exe = proc.join("exe");
        // A memfd or a deleted library is often still open in the process.
        let descriptors =
            move || fs::read_dir(proc.join("fd")).into_iter().flatten().flatten().map(|e| e.path());
        let last = std::iter::once_with(descriptors).flatten();
        named.into_iter().flatten().chain(map_files).chain([exe]).chain(last)
    }

    /// Opens `path` if it is the mapped file.
    fn open_same(&self, path: &Path) -> Option<Image> {
        // Looked at before it is opened: opening a device may have effects.
        let metadata = fs::metadata(path).ok()?;
        if !metadata.is_file() || metadata.ino() != self.mappings[0].inode {
            return None;
        }
        // The device is compared only where `maps` and `stat` speak of the same one: btrfs and overlayfs give a
        // file another device number in `stat`. There the inode number and the path in its own namespace must do.
        let mapping = &self.mappings[0];
        let is_same_device = metadata.dev()
            == libc::makedev(mapping.device_major as libc::c_uint, mapping.device_minor as libc::c_uint);
        let is_by_name =
            path.starts_with("/proc") && path.ends_with(self.path.strip_prefix("/").unwrap_or(&self.path));
        let is_by_kernel = path.components().any(|part| part.as_os_str() == "map_files");
        if !is_same_device && !is_by_name && !is_by_kernel {
            return None;
        }
        Image::open(path).ok().filter(|image| image.inode == mapping.inode)
    }

    /// All ways failed: the process has gone, or the file has, or reading it is not allowed.
    fn why_not(&self) -> TargetError {
        let by_name = PathBuf::from(format!("/proc/{}/root", self.pid))
            .join(self.path.strip_prefix("/").unwrap_or(&self.path));
        if let Err(error) = maps(self.pid) {
            return error;
        }
        // What is missing may be our own descriptors or memory.
        let is_ours = |error: &std::io::Error| {
            matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
        };
        match foreign::open(&by_name) {
            Err(ForeignError::Io(error))
                if is_ours(&error)
                    || !self.is_deleted && error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                TargetError::of_file(&self.path, &error)
            }
            _ => TargetError::Deleted { pid: self.pid, path: self.path.clone() },
        }
    }

    /// What must be added to a link-time address of `object` to get the address in the process, for each time the
    /// file is loaded (`dlmopen` can load it more than once).
    pub fn load_biases(&self, object: &Object) -> Vec<u64> {
        let mut biases = Vec::new();
        for mapping in self.mappings.iter().filter(|mapping| mapping.is_executable) {
            // A mapping begins at a page; the segment it belongs to may begin later in that page.
            let segment = object.segments.iter().filter(|segment| segment.is_executable).find(|segment| {
                let last = segment.file_offset.saturating_add(segment.size_in_file);
                mapping.offset < last && segment.file_offset < mapping.offset + (mapping.end - mapping.start)
            });
            let Some(segment) = segment else { continue };
            let bias = mapping
                .start
                .wrapping_sub(mapping.offset)
                .wrapping_add(segment.file_offset)
                .wrapping_sub(segment.address);
            if !biases.contains(&bias) {
                biases.push(bias);
            }
        }
        biases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    #[test]
    fn programs_that_translate() {
        for (path, expected) in [
            ("/usr/libexec/valgrind/memcheck-amd64-linux", Some("valgrind")),
            ("/opt/lib/valgrind/vgpreload_core-amd64-linux.so", Some("valgrind")),
            ("/opt/pin/intel64/bin/pinbin", Some("Pin")),
            ("/opt/dr/lib64/release/libdynamorio.so.10.0", Some("DynamoRIO")),
            ("/usr/bin/valgrind", None),
            ("/home/valgrind/work/server", None),
            ("/lib/libc.so.6", None),
            ("/", None),
        ] {
            assert_eq!(translator(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn this_program_is_found_read_and_placed() {
        let program = std::env::current_exe().expect("the test has a path");
        let objects = mapped_objects(process::id()).expect("a process may read itself");
        let own = objects.iter().find(|object| object.path == program).expect("the program is mapped");
        let image = own.open().expect("the program can be opened");
        let object = nopal_sdt::read(image.bytes()).expect("the program is ELF");
        // A function's address at run time, less the bias, must be where the file has code.
        let here = this_program_is_found_read_and_placed as fn() as usize as u64;
        let biases = own.load_biases(&object);
        assert_eq!(biases.len(), 1, "{biases:x?}");
        let link_time = here.wrapping_sub(biases[0]);
        let segment =
            object.segments.iter().find(|s| s.is_executable && s.file_offset_of(link_time).is_some());
        let offset =
            segment.and_then(|s| s.file_offset_of(link_time)).expect("the function is in the file") as usize;
        // SAFETY: eight bytes of this function's own code, which is mapped readable.
        let code: [u8; 8] = unsafe { (here as *const [u8; 8]).read_unaligned() };
        assert_eq!(image.bytes().get(offset..offset + 8), Some(&code[..]));
    }
}
