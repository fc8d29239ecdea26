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
/// More is not taken from one file: the largest programs have some hundred megabytes.
const MAX_BYTES: u64 = 1 << 30;
/// Debug information is packed to a third or a tenth; what unpacks to more than this many times its size was made to hurt.
const MAX_UNPACKED: u64 = 32;
/// Small sections may be anything.
const SMALL_BYTES: u64 = 1 << 20;

/// The debug information of a file, found and loaded, if there is any, and the file it is in.
pub(crate) fn load(
    path: &Path,
    image: &Image,
    folders: &[PathBuf],
) -> Option<(PathBuf, gimli::Dwarf<Reader>)> {
    if let Some(dwarf) = load_from(path, image) {
        return Some((path.to_owned(), dwarf));
    }
    let (build_id, link) = names(image)?;
    candidates(path, build_id.as_deref(), link.as_deref(), folders).into_iter().find_map(|candidate| {
        let image = Image::open(&candidate).ok()?;
        // Without a build id nothing says that the two belong together.
        let (other, _) = names(&image)?;
        let dwarf =
            (build_id.is_some() && other == build_id).then(|| load_from(&candidate, &image)).flatten();
        dwarf.map(|dwarf| (candidate, dwarf))
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

/// The folders that were named, then the usual places in the order in which debuggers look.
fn candidates(
    path: &Path,
    build_id: Option<&[u8]>,
    link: Option<&[u8]>,
    folders: &[PathBuf],
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let by_build_id = match build_id {
        Some([first, rest @ ..]) => {
            let hex: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
            Some(format!(".build-id/{first:02x}/{hex}.debug"))
        }
        _ => None,
    };
    // A name, not a path: what the file says must not lead elsewhere.
    let link = link.filter(|name| !name.is_empty() && !name.contains(&b'/')).map(OsStr::from_bytes);
    for folder in folders {
        let folder = path.parent().map_or_else(|| folder.clone(), |own| own.join(folder));
        found.extend(by_build_id.as_ref().map(|name| folder.join(name)));
        found.extend(link.map(|name| folder.join(name)));
        found.extend(path.file_name().map(|name| folder.join(format!("{}.debug", name.display()))));
    }
    found.extend(by_build_id.map(|name| Path::new(DEBUG_FOLDER).join(name)));
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
    let mut n_bytes = 0;
    gimli::Dwarf::load(|id: SectionId| {
        Ok::<_, TooLarge>(Reader::new(bytes(&file, id.name(), &mut n_bytes)?, LittleEndian))
    })
    .ok()
}

/// Nothing of such a file is read.
pub(crate) struct TooLarge;

/// A section, unpacked; nothing, if there is none.
pub(crate) fn bytes<'a>(
    file: &object::File<'a, nopal_proc::Bytes<'a>>,
    name: &str,
    n_bytes: &mut u64,
) -> Result<Arc<[u8]>, TooLarge> {
    let Some(packed) = file.section_by_name(name).and_then(|section| section.compressed_data().ok()) else {
        return Ok(Arc::default());
    };
    let most = (packed.data.len() as u64).saturating_mul(MAX_UNPACKED).max(SMALL_BYTES);
    *n_bytes = n_bytes.saturating_add(packed.uncompressed_size);
    if packed.uncompressed_size > most || *n_bytes > MAX_BYTES {
        return Err(TooLarge);
    }
    Ok(packed.decompress().map_or_else(|_| Arc::default(), |data| Arc::from(&*data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_files_are_looked_for_where_debuggers_look() {
        let text = |paths: Vec<PathBuf>| paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        let found = candidates(Path::new("/usr/bin/app"), Some(&[0xab, 0x01, 0xff]), Some(b"app.debug"), &[]);
        assert_eq!(
            text(found),
            [
                "/usr/lib/debug/.build-id/ab/01ff.debug",
                "/usr/bin/app.debug",
                "/usr/bin/.debug/app.debug",
                "/usr/lib/debug/usr/bin/app.debug",
            ]
        );
        let named = [PathBuf::from("aside"), PathBuf::from("/d")];
        let found = candidates(Path::new("/usr/bin/app"), Some(&[0xab, 0x01]), None, &named);
        assert_eq!(
            text(found)[..4],
            [
                "/usr/bin/aside/.build-id/ab/01.debug",
                "/usr/bin/aside/app.debug",
                "/d/.build-id/ab/01.debug",
                "/d/app.debug",
            ]
        );
        // A name that leads elsewhere, and none at all.
        assert!(candidates(Path::new("/usr/bin/app"), None, Some(b"../../etc/x"), &[]).is_empty());
        assert!(candidates(Path::new("/usr/bin/app"), None, None, &[]).is_empty());
    }
}
