//! Control groups by their numbers: where in /sys/fs/cgroup the folder with that number is, looked for when it is shown.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders that are looked at in one hierarchy; a machine with more has a path that is not found.
const MAX_FOLDERS: usize = 100_000;

/// `unified:/a,memory:/b`: the folder in each hierarchy that has this number, the second version's first, the others by name.
pub(crate) fn paths(id: u64, filter: &str) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found = hierarchies(&mounts)
        .into_iter()
        .filter(|(name, _)| matches(filter.as_bytes(), name.as_bytes()))
        .filter_map(|(name, root)| Some(format!("{name}:{}", find(&root, id)?)));
    found.collect::<Vec<_>>().join(",")
}

/// Names and roots of what is mounted below /sys/fs/cgroup.
fn hierarchies(mounts: &str) -> Vec<(String, PathBuf)> {
    let mut all: Vec<(bool, String, PathBuf)> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (root, kind) = (words.next()?, words.next()?);
            let is_first_version = kind == "cgroup";
            let name = match kind {
                "cgroup2" => "unified",
                "cgroup" => root.rsplit('/').next()?,
                _ => return None,
            };
            root.starts_with("/sys/fs/cgroup")
                .then(|| (is_first_version, name.to_owned(), PathBuf::from(root)))
        })
        .collect();
    all.sort();
    all.into_iter().map(|(_, name, root)| (name, root)).collect()
}

/// The path of a folder below its root, by its number.
fn find(root: &Path, id: u64) -> Option<String> {
    let mut folders = vec![root.to_owned()];
    let mut n_seen = 0;
    while let Some(folder) = folders.pop() {
        n_seen += 1;
        if fs::metadata(&folder).is_ok_and(|stat| stat.ino() == id) {
            let below = folder.strip_prefix(root).ok()?;
            return Some(format!("/{}", below.display()));
        }
        if n_seen > MAX_FOLDERS {
            return None;
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    None
}

/// `*` stands for any text.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
        Some((first, rest)) => text.split_first().is_some_and(|(t, more)| t == first && matches(rest, more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_version_comes_first_then_names() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            none /mnt/other cgroup2 rw 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let names: Vec<String> = hierarchies(mounts).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["unified", "cpu", "pids"]);
        let whole = hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        assert_eq!(whole, [("unified".to_owned(), PathBuf::from("/sys/fs/cgroup"))]);
    }

    #[test]
    fn folders_are_found_by_their_numbers() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let number = |path: &Path| fs::metadata(path).unwrap().ino();
        for (below, want) in
            [("", Some("/")), ("src", Some("/src")), ("src/recording", Some("/src/recording"))]
        {
            assert_eq!(find(root, number(&root.join(below))).as_deref(), want);
        }
        assert_eq!(find(&root.join("src"), number(root)), None);
    }

    #[test]
    fn wildcards() {
        for (pattern, text, want) in
            [("*", "unified", true), ("u*d", "unified", true), ("cpu", "cpuset", false), ("", "x", false)]
        {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), want, "{pattern} {text}");
        }
    }
}
