//! Files by the names that scripts have for them: paths, patterns, commands, libraries.

use nopal_proc::Image;
use nopal_sdt::pattern::glob;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files that a pattern such as `./bin/app*` stands for, in order. A `*` does not go beyond its folder, and does not stand
/// for names that begin with a dot.
pub(crate) fn expand(pattern: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for (index, part) in pattern.split('/').enumerate() {
        let between = if index == 0 { "" } else { "/" };
        let mut next = Vec::new();
        for base in &found {
            if !part.contains(['*', '?', '[']) {
                next.push(format!("{base}{between}{part}"));
                continue;
            }
            let folder = if index == 0 { "./".to_owned() } else { format!("{base}/") };
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let is_wanted =
                |name: &String| glob(part, name) && (part.starts_with('.') || !name.starts_with('.'));
            next.extend(names.filter(is_wanted).map(|name| format!("{base}{between}{name}")));
        }
        found = next;
    }
    found.retain(|path| Path::new(path).is_file());
    found.sort();
    found
}

/// The path of a file without links. One that leads through another mount namespace, as `/proc/PID/root` does, stays as it is:
/// without the link it would be another file here, or none.
pub(crate) fn own_path(path: &Path) -> Option<PathBuf> {
    let is = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let named = is(fs::metadata(path).ok()?);
    let plain = fs::canonicalize(path).ok();
    let is_same = |plain: &PathBuf| fs::metadata(plain).is_ok_and(|metadata| is(metadata) == named);
    plain.filter(is_same).or_else(|| std::path::absolute(path).ok())
}

pub(crate) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// A command as the shell would find it.
pub(crate) fn in_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Where distributions keep libraries.
const LIBRARY_FOLDERS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// `libc.so.6`, or `libc` and `c` for the same.
pub(crate) fn find_library(name: &str) -> Option<PathBuf> {
    let folders = || LIBRARY_FOLDERS.iter().map(Path::new);
    if name.contains(".so") {
        return folders().map(|folder| folder.join(name)).find(|path| path.is_file());
    }
    let prefixes = [format!("{name}.so"), format!("lib{name}.so")];
    for folder in folders() {
        let mut found: Vec<PathBuf> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| prefixes.iter().any(|prefix| file_name(path).starts_with(prefix.as_str())))
            // `libc.so` is often a script for the linker.
            .filter(|path| Image::open(path).is_ok_and(|image| image.bytes().starts_with(b"\x7fELF")))
            .collect();
        found.sort();
        if let Some(first) = found.into_iter().next() {
            return Some(first);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_files_of_their_folder() {
        let root = std::env::temp_dir().join(format!("nopal-expand-{}", std::process::id()));
        for folder in ["one", "two", ".hidden"] {
            fs::create_dir_all(root.join(folder)).unwrap();
            for file in ["app", "app-b", "other", ".app"] {
                fs::write(root.join(folder).join(file), "").unwrap();
            }
        }
        let root_text = root.to_str().unwrap();
        for (pattern, want) in [
            ("one/app*", &["one/app", "one/app-b"][..]),
            ("*/app", &["one/app", "two/app"]),
            ("t?o/[ao]*r", &["two/other"]),
            ("one/.a*", &["one/.app"]),
            ("on*", &[]),
            ("none/*", &[]),
        ] {
            let want: Vec<String> = want.iter().map(|path| format!("{root_text}/{path}")).collect();
            assert_eq!(expand(&format!("{root_text}/{pattern}")), want, "{pattern}");
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
