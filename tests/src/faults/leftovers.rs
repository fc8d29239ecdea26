//! What tracers may have left in a program and its children.

use crate::cycles::Footprint;
use nopal_user::maps::Maps;
use nopal_user::memory::Memory;
use std::fs;
use std::os::unix::fs::FileExt;

/// Stub spaces and rings stay mapped, for whoever comes next; more of them than this would mean that they are not used again.
const MOST_MAPPINGS: usize = 64;
/// So many processes are looked at, the first of them always.
const MOST_PROCESSES: usize = 12;

/// Of a program that nobody traces now; it had so many sockets of its own before.
pub(crate) fn leftovers(pid: u32, n_own: usize) -> Vec<String> {
    let mut found = Vec::new();
    for pid in descendants(pid).into_iter().take(MOST_PROCESSES) {
        // What has ended meanwhile has nothing left.
        for place in changed_code(pid).unwrap_or_default() {
            found.push(format!("left in process {pid}: {place}"));
        }
    }
    let footprint = Footprint::of(pid);
    if footprint.n_descriptors > n_own || footprint.n_mappings > MOST_MAPPINGS {
        found.push(format!("left in process {pid}: {footprint:?}"));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if let Some(line) = status.lines().find(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
        found.push(format!("process {pid} is still held: {line}"));
    }
    found
}

/// A process and what it has brought forth.
fn descendants(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        next += 1;
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children: Vec<u32> = tasks
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|text| text.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
            .collect();
        all.extend(children);
    }
    all
}

/// Code in memory that is not what its file has.
fn changed_code(pid: u32) -> Option<Vec<String>> {
    const PAGE: usize = 4096;
    let maps = Maps::read(pid as i32).ok()?;
    let memory = Memory::open(pid as i32).ok()?;
    let mut found = Vec::new();
    for range in maps.ranges.iter().filter(|r| r.is_executable && r.inode != 0 && !r.is_shared) {
        let Ok(file) = fs::File::open(&range.path) else { continue };
        let len = (range.end - range.start) as usize;
        let mut there = vec![0; len];
        let n = file.read_at(&mut there, range.offset).ok()?;
        let here = memory.read_vec(range.start, len).ok()?;
        // Behind the end of the file the last page is zeroes.
        let pages = here[..n].chunks(PAGE).zip(there[..n].chunks(PAGE)).enumerate();
        let differs = pages
            .filter(|(_, (here, there))| here != there)
            .flat_map(|(page, (here, _))| page * PAGE..page * PAGE + here.len())
            .filter(|&i| here[i] != there[i]);
        let path = range.path.display();
        found.extend(differs.take(6).map(|i| {
            format!("{path}+{:#x} is {:02x}, not {:02x}", range.offset + i as u64, here[i], there[i])
        }));
    }
    Some(found)
}
