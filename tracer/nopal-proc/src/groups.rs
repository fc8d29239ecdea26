//! Processes by what holds them together: the name of their program, a control group, a container.
//!
//! Containers are found without asking their engine: by the control groups that bear their number, and by the command line of
//! the process that looks after them (`conmon` of podman and CRI-O, `containerd-shim` of Docker and containerd).

use super::process::{Process, processes};
use super::tree::descendants;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Why there is no such group of processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupError {
    /// No process runs a program of this name; the names there are.
    NoProgram { name: String, names: Vec<String> },
    /// There is no such control group.
    NoCgroup { path: PathBuf },
    /// It is there, and no process that can be seen from here is in it.
    EmptyCgroup { path: PathBuf },
    /// No container that runs has this name or number; those there are.
    NoContainer { name: String, known: Vec<String> },
    /// The beginning of a number that several containers have.
    Ambiguous { name: String, ids: Vec<String> },
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::NoProgram { name, .. } => write!(f, "no process runs a program called `{name}`"),
            GroupError::NoCgroup { path } => write!(f, "there is no control group {}", path.display()),
            GroupError::EmptyCgroup { path } => {
                write!(f, "no process that can be seen from here is in the control group {}", path.display())
            }
            GroupError::NoContainer { name, .. } => write!(f, "no running container is called `{name}`"),
            GroupError::Ambiguous { name, ids } => {
                let short: Vec<&str> = ids.iter().map(|id| short(id)).collect();
                write!(f, "`{name}` can be any of the containers {}", short.join(", "))
            }
        }
    }
}

impl std::error::Error for GroupError {}

/// The processes that run a program of this name, or the program file at this path.
pub fn of_program(name: &str) -> Result<Vec<u32>, GroupError> {
    let me = std::process::id();
    let path = name.contains('/').then(|| fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name)));
    let (mut found, mut names) = (Vec::new(), BTreeSet::new());
    for process in processes().into_iter().filter(|process| process.pid != me && !process.is_zombie) {
        let program = process.program().ok();
        let file = program.as_deref().and_then(Path::file_name).map(|file| file.to_string_lossy());
        let is_it = match &path {
            Some(path) => program.as_ref() == Some(path),
            None => process.name == name || file.as_deref() == Some(name),
        };
        if is_it {
            found.push(process.pid);
        }
        names.insert(process.name);
    }
    if found.is_empty() {
        return Err(GroupError::NoProgram { name: name.to_owned(), names: names.into_iter().collect() });
    }
    Ok(found)
}

/// The processes of a control group and of those below it. The path is that of its folder, or what `/proc/PID/cgroup` says.
pub fn of_cgroup(path: &Path) -> Result<Vec<u32>, GroupError> {
    let folders = cgroup_folders(path);
    if folders.is_empty() {
        return Err(GroupError::NoCgroup { path: path.to_owned() });
    }
    let mut found = BTreeSet::new();
    folders.iter().for_each(|folder| read_cgroup(folder, 0, &mut found));
    match found.is_empty() {
        true => Err(GroupError::EmptyCgroup { path: path.to_owned() }),
        false => Ok(found.into_iter().collect()),
    }
}

const CGROUPS: &str = "/sys/fs/cgroup";
/// The processes of a control group.
const MEMBERS: &str = "cgroup.procs";
/// Folders in folders; nobody has more.
const MAX_DEPTH: usize = 32;

/// Below the second version there is one tree, below the first one for each controller.
fn cgroup_folders(path: &Path) -> Vec<PathBuf> {
    if path.join(MEMBERS).is_file() {
        return vec![path.to_owned()];
    }
    let below = path.strip_prefix("/").unwrap_or(path);
    let root = Path::new(CGROUPS);
    let trees = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = std::iter::once(root.to_owned()).chain(trees.filter(|tree| tree.is_dir()));
    // The root of a tree holds everything, and is not what an empty path or a typing error means.
    let named = all.filter(|_| below.components().next().is_some()).map(|tree| tree.join(below));
    let mut folders: Vec<PathBuf> = named.filter(|folder| folder.join(MEMBERS).is_file()).collect();
    folders.dedup();
    folders
}

fn read_cgroup(folder: &Path, depth: usize, found: &mut BTreeSet<u32>) {
    let members = fs::read_to_string(folder.join(MEMBERS)).unwrap_or_default();
    // Processes that our namespace has no number for are shown as 0.
    found.extend(members.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid: &u32| *pid != 0));
    if depth < MAX_DEPTH {
        let below = fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.for_each(|entry| read_cgroup(&entry.path(), depth + 1, found));
    }
}

/// The processes of a container: by its name, its number, or the beginning of its number.
pub fn of_container(name: &str) -> Result<Vec<u32>, GroupError> {
    let all = processes();
    let guards: Vec<Guard> = all.iter().filter_map(guard).collect();
    let cgroups: Vec<(u32, Vec<String>)> = all.iter().map(|p| (p.pid, cgroup_parts(p.pid))).collect();
    let mut ids = BTreeSet::new();
    ids.extend(guards.iter().map(|guard| guard.id.clone()));
    ids.extend(cgroups.iter().flat_map(|(_, parts)| parts).filter_map(|part| id_of(part)).map(str::to_owned));
    let named: BTreeSet<String> = guards
        .iter()
        .filter(|guard| guard.name.as_deref() == Some(name))
        .map(|guard| guard.id.clone())
        .chain(written_down(name))
        .collect();
    let chosen: Vec<String> = match named.is_empty() {
        true if is_start_of_id(name) => ids.iter().filter(|id| id.starts_with(name)).cloned().collect(),
        true => Vec::new(),
        false => named.into_iter().collect(),
    };
    if let [_, _, ..] = &chosen[..] {
        return Err(GroupError::Ambiguous { name: name.to_owned(), ids: chosen });
    }
    let mut found = BTreeSet::new();
    match chosen.first() {
        Some(id) => {
            found.extend(
                cgroups
                    .iter()
                    .filter(|(_, parts)| parts.iter().any(|p| id_of(p) == Some(id)))
                    .map(|(pid, _)| *pid),
            );
            let guarded =
                guards.iter().filter(|guard| guard.id == *id && (guard.has_one || found.is_empty()));
            let guarded: Vec<u32> = guarded.flat_map(|guard| descendants(guard.pid)).collect();
            found.extend(guarded);
            // The guard may be in the group of its container.
            found.retain(|pid| !guards.iter().any(|guard| guard.pid == *pid));
        }
        // systemd-nspawn and LXC give the name itself to the group.
        None => found.extend(
            cgroups
                .iter()
                .filter(|(_, parts)| parts.iter().any(|p| is_machine(p, name)))
                .map(|(pid, _)| *pid),
        ),
    }
    if found.is_empty() {
        let with_name = |guard: &Guard| guard.name.clone();
        let mut known: Vec<String> = guards.iter().filter_map(with_name).collect();
        let without = ids.iter().filter(|id| !guards.iter().any(|g| g.id == **id && g.name.is_some()));
        known.extend(without.map(|id| short(id).to_owned()));
        known.sort();
        known.dedup();
        return Err(GroupError::NoContainer { name: name.to_owned(), known });
    }
    Ok(found.into_iter().collect())
}

/// The process that looks after a container.
#[derive(Debug, PartialEq, Eq)]
struct Guard {
    pid: u32,
    id: String,
    name: Option<String>,
    /// Everything below it belongs to this container; a shim of containerd may have those of a whole pod.
    has_one: bool,
}

fn guard(process: &Process) -> Option<Guard> {
    let is_guard = process.name == "conmon" || process.name.starts_with("containerd-shim");
    let line = is_guard.then(|| fs::read(format!("/proc/{}/cmdline", process.pid)).ok())??;
    let words: Vec<String> =
        line.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    guard_of(process.pid, &process.name, &words)
}

/// `conmon ... -c ID -n NAME ...`, `containerd-shim-runc-v2 -namespace moby -id ID ...`
fn guard_of(pid: u32, program: &str, words: &[String]) -> Option<Guard> {
    let value = |options: &[&str]| {
        let at = words.iter().position(|word| options.contains(&word.as_str()))?;
        words.get(at + 1).cloned()
    };
    let has_one = program == "conmon";
    let id = if has_one { value(&["-c", "--cid"]) } else { value(&["-id", "--id"]) };
    let name = if has_one { value(&["-n", "--name"]) } else { None };
    id.filter(|id| is_id(id)).map(|id| Guard { pid, id, name, has_one })
}

/// Names that only files have: Docker's own notes, and the logs of a kubelet.
fn written_down(name: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for entry in fs::read_dir("/var/lib/docker/containers").into_iter().flatten().flatten() {
        let text = fs::read(entry.path().join("config.v2.json")).unwrap_or_default();
        let wanted = format!("\"Name\":\"/{name}\"");
        let id = entry.file_name().to_string_lossy().into_owned();
        if is_id(&id) && memchr::memmem::find(&text, wanted.as_bytes()).is_some() {
            ids.push(id);
        }
    }
    for entry in fs::read_dir("/var/log/containers").into_iter().flatten().flatten() {
        ids.extend(pod_log(&entry.file_name().to_string_lossy(), name));
    }
    ids
}

/// `POD_NAMESPACE_CONTAINER-ID.log` names the container.
fn pod_log(file: &str, name: &str) -> Option<String> {
    let (rest, id) = file.strip_suffix(".log")?.rsplit_once('-')?;
    let container = rest.rsplit('_').next()?;
    let pod = rest.split('_').next()?;
    (is_id(id) && (name == container || name == pod || name == format!("{pod}/{container}")))
        .then(|| id.to_owned())
}

fn cgroup_parts(pid: u32) -> Vec<String> {
    let text = super::read_text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut parts: Vec<String> = paths.flat_map(|path| path.split('/')).map(str::to_owned).collect();
    parts.sort();
    parts.dedup();
    parts
}

/// The number in `libpod-ID.scope`, `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID`, or by itself.
fn id_of(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit(['-', ':']).next()?;
    // The guard of a container has a group of its own.
    (is_id(id) && !part.contains("conmon")).then_some(id)
}

const ID_LENGTH: usize = 64;

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && is_hex(text)
}

/// Engines print twelve characters of a number; fewer are taken if they are enough.
fn is_start_of_id(text: &str) -> bool {
    (4..=ID_LENGTH).contains(&text.len()) && is_hex(text)
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn is_machine(part: &str, name: &str) -> bool {
    let part = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".service")).unwrap_or(part);
    ["machine-", "systemd-nspawn@", "lxc.payload.", "lxc.payload/"]
        .iter()
        .any(|start| part.strip_prefix(start) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3b1c0ff1ce00000000000000000000000000000000000000000000000000beef";

    #[test]
    fn numbers_of_containers_in_control_groups() {
        for (part, expected) in [
            (format!("libpod-{ID}.scope"), Some(ID)),
            (format!("docker-{ID}.scope"), Some(ID)),
            (format!("cri-containerd-{ID}.scope"), Some(ID)),
            (format!("crio-{ID}"), Some(ID)),
            (format!("kubepods-burstable:cri-containerd:{ID}"), Some(ID)),
            (ID.to_owned(), Some(ID)),
            (format!("libpod-conmon-{ID}.scope"), None),
            (format!("crio-conmon-{ID}.scope"), None),
            ("system.slice".to_owned(), None),
            (ID[1..].to_owned(), None),
            (ID.to_uppercase(), None),
            (String::new(), None),
        ] {
            assert_eq!(id_of(&part), expected, "{part}");
        }
    }

    #[test]
    fn guards_say_whom_they_guard() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let conmon = format!("/usr/bin/conmon --api-version 1 -c {ID} -u {ID} -r /usr/bin/crun -n web -s");
        let guard = guard_of(7, "conmon", &words(&conmon)).expect("it guards");
        assert_eq!((guard.id.as_str(), guard.name.as_deref(), guard.has_one), (ID, Some("web"), true));
        let shim = format!("/usr/bin/containerd-shim-runc-v2 -namespace moby -id {ID} -address /run/x.sock");
        let guard = guard_of(7, "containerd-shim", &words(&shim)).expect("it guards");
        assert_eq!((guard.id.as_str(), guard.name, guard.has_one), (ID, None, false));
        for line in ["conmon", "conmon -c", "conmon -c web", "conmon -n web"] {
            assert_eq!(guard_of(7, "conmon", &words(line)), None, "{line}");
        }
    }

    #[test]
    fn logs_of_pods_have_three_names() {
        let file = format!("web-7c9_prod_nginx-{ID}.log");
        for (name, is_it) in
            [("nginx", true), ("web-7c9", true), ("web-7c9/nginx", true), ("prod", false), ("ngin", false)]
        {
            assert_eq!(pod_log(&file, name).is_some(), is_it, "{name}");
        }
        assert_eq!(pod_log("nginx.log", "nginx"), None);
    }

    #[test]
    fn machines_have_their_name_in_the_group() {
        for part in ["machine-db.scope", "systemd-nspawn@db.service", "lxc.payload.db"] {
            assert!(is_machine(part, "db") && !is_machine(part, "d"), "{part}");
        }
    }

    #[test]
    fn what_is_not_there_is_said() {
        assert!(
            matches!(of_program("no-such-program-here"), Err(GroupError::NoProgram { names, .. }) if !names.is_empty())
        );
        for path in ["", "/", "/no/such/group", "../../proc"] {
            assert!(matches!(of_cgroup(Path::new(path)), Err(GroupError::NoCgroup { .. })), "{path}");
        }
        for name in ["", "no-such-container", "feedface0000"] {
            assert!(matches!(of_container(name), Err(GroupError::NoContainer { .. })), "{name}");
        }
    }
}
