//! Where the debug information of a file is: inside it, in a file with the same build id, or in one that it names.

use gimli::{EndianArcSlice, LittleEndian, SectionId};
use nopal_proc::Image;
use object::{Object as _, ObjectSection as _};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) type Reader = EndianArcSlice<LittleEndian>;

/// Where distributions put the debug files of what they have stripped.
const DEBUG_FOLDER: &str = "/usr/lib/debug";
/// More is not unpacked from one file: the largest programs have some hundred megabytes.
const MAX_SECTION_BYTES: u64 = 1 << 30;

/// The debug information of a file, found and loaded, if there is any.
pub(crate) fn load(path: &Path, image: &Image) -> Option<gimli::Dwarf<Reader>> {
    if let Some(dwarf) = load_from(path, image) {
        return Some(dwarf);
    }
    let (build_id, link) = names(image)?;
    candidates(path, build_id.as_deref(), link.as_deref()).into_iter().find_map(|candidate| {
        let image = Image::open(&candidate).ok()?;
        // Without a build id nothing says that the two belong together.
        let (other, _) = names(&image)?;
        (build_id.is_some() && other == build_id).then(|| load_from(&candidate, &image)).flatten()
    })
}

/// Build id and the name of a debug file.
#[expect(clippy::type_complexity, reason = "two names of one file, in this module only")]
fn names(image: &Image) -> Option<(Option<Vec<u8>>, Option<Vec<u8>>)> {
    let file = object::File::parse(image.bytes()).ok()?;
    let build_id = file.build_id().ok().flatten().filter(|id| id.len() > 1).map(<[u8]>::to_vec);
    let link = file.gnu_debuglink().ok().flatten().map(|(name, _)| name.to_vec());
    Some((build_id, link))
}

/// The usual places, in the order in which debuggers look.
fn candidates(path: &Path, build_id: Option<&[u8]>, link: Option<&[u8]>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some([first, rest @ ..]) = build_id {
        let hex: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        found.push(Path::new(DEBUG_FOLDER).join(format!(".build-id/{first:02x}/{hex}.debug")));
    }
    // A name, not a path: what the file says must not lead elsewhere.
    let link = link.filter(|name| !name.is_empty() && !name.contains(&b'/')).map(OsStr::from_bytes);
    if let (Some(folder), Some(name)) = (path.parent(), link) {
        found.push(folder.join(name));
        found.push(folder.join(".debug").join(name));
        let below = folder.strip_prefix("/").unwrap_or(folder);
        found.push(Path::new(DEBUG_FOLDER).join(below).join(name));
    }
    found
}

fn load_from(path: &Path, image: &Image) -> Option<gimli::Dwarf<Reader>> {
    let mut dwarf = sections(image)?;
    if let Some(other) = common_part(path, image) {
        dwarf.set_sup(other);
    }
    Some(dwarf)
}

/// What several debug files share (`dwz -m`), by build id.
fn common_part(path: &Path, image: &Image) -> Option<gimli::Dwarf<Reader>> {
    let file = object::File::parse(image.bytes()).ok()?;
    let (name, build_id) = file.gnu_debugaltlink().ok()??;
    let other = Image::open(&path.parent()?.join(OsStr::from_bytes(name))).ok()?;
    (names(&other)?.0.as_deref() == Some(build_id)).then(|| sections(&other)).flatten()
}

fn sections(image: &Image) -> Option<gimli::Dwarf<Reader>> {
    let file = object::File::parse(image.bytes()).ok()?;
    file.section_by_name(".debug_info").filter(|section| section.size() > 0)?;
    let load = |id: SectionId| -> Result<Reader, ()> {
        Ok(bytes(&file, id.name()).unwrap_or_default().into_reader())
    };
    gimli::Dwarf::load(load).ok()
}

fn bytes<'a>(file: &object::File<'a, nopal_proc::Bytes<'a>>, name: &str) -> Option<Arc<[u8]>> {
    let section = file.section_by_name(name)?;
    let packed = section.compressed_data().ok()?;
    (packed.uncompressed_size <= MAX_SECTION_BYTES)
        .then(|| packed.decompress().ok())
        .flatten()
        .map(|data| Arc::from(&*data))
}

trait IntoReader {
    fn into_reader(self) -> Reader;
}

impl IntoReader for Arc<[u8]> {
    fn into_reader(self) -> Reader {
        Reader::new(self, LittleEndian)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_files_are_looked_for_where_debuggers_look() {
        let text = |paths: Vec<PathBuf>| paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        let found = candidates(Path::new("/usr/bin/app"), Some(&[0xab, 0x01, 0xff]), Some(b"app.debug"));
        assert_eq!(
            text(found),
            [
                "/usr/lib/debug/.build-id/ab/01ff.debug",
                "/usr/bin/app.debug",
                "/usr/bin/.debug/app.debug",
                "/usr/lib/debug/usr/bin/app.debug",
            ]
        );
        // A name that leads elsewhere, and none at all.
        assert!(candidates(Path::new("/usr/bin/app"), None, Some(b"../../etc/x")).is_empty());
        assert!(candidates(Path::new("/usr/bin/app"), None, None).is_empty());
    }
}
