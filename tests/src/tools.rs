//! The other tools that read probes, each asked in its own way and brought into one form, so that their answers can be
//! compared. Holds no expectation about any program.

use crate::run;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A site as a note, gdb or tplist tells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub probe: String,
    pub address: u64,
    /// 0: none.
    pub semaphore: u64,
}

/// One stapsdt note, whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    pub site: Site,
    pub base: u64,
    pub args: String,
}

/// The stapsdt notes of `file`, in its order, as `readelf -n` shows them.
pub fn readelf(file: &Path) -> Vec<Note> {
    let text = run(Command::new("readelf").arg("-nW").arg(file).env("LC_ALL", "C"));
    let mut notes = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((_, provider)) = line.split_once("Provider: ") else { continue };
        let mut next = |key: &str| {
            let line = lines.next().unwrap_or_else(|| panic!("{}: no {key}", file.display())).trim();
            line.strip_prefix(key).unwrap_or_else(|| panic!("no {key} in {line}")).trim().to_owned()
        };
        let name = next("Name:");
        let places: Vec<u64> = next("Location:")
            .split(", ")
            .map(|place| hex(place.rsplit(' ').next().expect("rsplit gives at least one")))
            .collect();
        let args = next("Arguments:");
        let [address, base, semaphore] = places[..] else { panic!("three addresses expected: {places:?}") };
        notes.push(Note {
            site: Site { probe: format!("{provider}:{name}"), address, semaphore },
            base,
            args,
        });
    }
    notes
}

/// The sites that gdb's `info probes stap` lists.
pub fn gdb_sites(file: &Path) -> Vec<Site> {
    let text = run(Command::new("gdb").args(["-nx", "-batch", "-ex", "info probes stap"]).arg(file));
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["stap", provider, name, address, rest @ ..] = &words[..] else { return None };
            let semaphore = rest.first().filter(|word| word.starts_with("0x")).map_or(0, |word| hex(word));
            Some(Site { probe: format!("{provider}:{name}"), address: hex(address), semaphore })
        })
        .collect()
}

/// The sites and the number of arguments of each that bcc's `tplist` lists. It drops arguments that it cannot read.
pub fn tplist(file: &Path) -> Vec<(Site, usize)> {
    let text = run(Command::new("tplist-bpfcc").arg("-vv").arg("-l").arg(file));
    let mut sites: Vec<(Site, usize)> = Vec::new();
    let mut probe = (String::new(), 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            ["location", _, _, address] => {
                sites.push((Site { probe: probe.0.clone(), address: hex(address), semaphore: probe.1 }, 0));
            }
            ["argument", ..] => sites.last_mut().expect("arguments follow a location").1 += 1,
            [name, "[sema", semaphore] => probe = ((*name).to_owned(), hex(semaphore.trim_end_matches(']'))),
            _ => (),
        }
    }
    sites
}

/// The probes that bcc's `tplist` finds in a running process, of `file` only.
pub fn tplist_process(pid: u32, file: &Path) -> BTreeSet<String> {
    let text = run(Command::new("tplist-bpfcc").args(["-p", &pid.to_string()]));
    text.lines()
        .filter_map(|line| {
            // The path is seen through the root of the process: /proc/PID/root/...
            let (path, probe) = line.split_once(' ')?;
            path.ends_with(file.to_str()?).then(|| probe.to_owned())
        })
        .collect()
}

/// The probes that `bpftrace -l` lists.
pub fn bpftrace_list(file: &Path) -> BTreeSet<String> {
    let text = run(Command::new("bpftrace").arg("-l").arg(format!("usdt:{}:*", file.display())));
    let start = format!("usdt:{}:", file.display());
    text.lines().filter_map(|line| line.strip_prefix(&start)).map(str::to_owned).collect()
}

/// The probes that perf lists after it was shown the file; it keeps its notes below `folder`.
pub fn perf_list(file: &Path, folder: &Path) -> BTreeSet<String> {
    let perf = || {
        let mut command = Command::new("perf");
        command.arg("--buildid-dir").arg(folder).env("HOME", folder);
        command
    };
    run(perf().args(["buildid-cache", "--add"]).arg(file));
    let text = run(perf().args(["list", "sdt"]));
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("sdt_")?.strip_suffix("[SDT event]"))
        .map(|probe| probe.trim().to_owned())
        .collect()
}

/// The probes that `stap -L` lists, with the number of arguments.
///
/// stap insists on the build tree of a kernel, even to list what a file has. `folder` becomes one, as far as it looks.
pub fn stap_list(file: &Path, folder: &Path) -> BTreeMap<String, usize> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
    fs::create_dir_all(folder.join("include/config")).expect("the folder can be made");
    for (name, text) in [
        ("Makefile", ""),
        ("Module.symvers", ""),
        ("include/config/kernel.release", release.as_str()),
        (".config", "CONFIG_UPROBES=y\nCONFIG_ARCH_SUPPORTS_UPROBES=y\nCONFIG_TRACEPOINTS=y\n"),
    ] {
        fs::write(folder.join(name), text).expect("a file of the build tree can be written");
    }
    let marks = format!("process(\"{}\").provider(\"*\").mark(\"*\")", file.display());
    let text = run(Command::new("stap").arg("-r").arg(folder).args(["-L", &marks]));
    text.lines()
        .filter_map(|line| {
            let provider = between(line, ".provider(\"", "\")")?;
            let name = between(line, ".mark(\"", "\")")?;
            Some((format!("{provider}:{name}"), line.matches(" $arg").count()))
        })
        .collect()
}

/// The sites that `nopal list --json` gives, with the operands of each in the notes' own words.
pub fn nopal_list(nopal: &Path, file: &Path) -> Vec<(Site, String)> {
    let text = run(Command::new(nopal).args(["list", "--json"]).arg(file));
    let probes: Value = serde_json::from_str(&text).expect("nopal list --json prints JSON");
    let mut sites = Vec::new();
    for probe in probes.as_array().expect("a list of probes") {
        let name = format!("{}:{}", text_of(&probe["provider"]), text_of(&probe["name"]));
        for site in probe["sites"].as_array().expect("a list of sites") {
            let args = site["args"].as_array().expect("a list of arguments");
            let operands: Vec<&str> = args.iter().map(|arg| text_of(&arg["operand"])).collect();
            let address = site["address"].as_u64().expect("an address");
            let semaphore = site["semaphore"].as_u64().unwrap_or(0);
            sites.push((Site { probe: name.clone(), address, semaphore }, operands.join(" ")));
        }
    }
    sites
}

/// The address, file offset and size of a section.
pub fn section(file: &Path, name: &str) -> Option<(u64, u64, u64)> {
    let text = run(Command::new("readelf").arg("-SW").arg(file));
    text.lines().find_map(|line| {
        let words: Vec<&str> = line.split(']').nth(1)?.split_whitespace().collect();
        let [found, _, address, offset, size, ..] = words[..] else { return None };
        (found == name).then(|| (hex(address), hex(offset), hex(size)))
    })
}

/// `n` bytes of the program text at a link-time address.
pub fn code_at(file: &Path, address: u64, n: usize) -> Vec<u8> {
    let text = run(Command::new("readelf").arg("-lW").arg(file));
    let (start, offset) = text
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["LOAD", offset, start, _, size, ..] = words[..] else { return None };
            let range = hex(start)..hex(start) + hex(size);
            range.contains(&address).then(|| (hex(start), hex(offset)))
        })
        .next()
        .unwrap_or_else(|| panic!("{}: no segment has {address:#x}", file.display()));
    let mut bytes = vec![0; n];
    let image = fs::File::open(file).expect("the file can be read");
    image.read_exact_at(&mut bytes, address - start + offset).expect("the segment is in the file");
    bytes
}

/// The number in a semaphore of a running, position-independent program.
pub fn semaphore_value(pid: u32, file: &Path, address: u64) -> u16 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process lives");
    let first = maps
        .lines()
        .find(|line| line.ends_with(file.to_str().expect("a plain path")))
        .expect("it maps the file");
    let base = u64::from_str_radix(first.split('-').next().expect("split gives at least one"), 16)
        .expect("an address");
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("its memory may be read");
    let mut bytes = [0; 2];
    memory.read_exact_at(&mut bytes, base + address).expect("the semaphore is mapped");
    u16::from_le_bytes(bytes)
}

/// Compiles with warnings as errors and returns the program.
#[track_caller]
pub fn compile(compiler: &[&str], flags: &[&str], sources: &[PathBuf], into: PathBuf) -> PathBuf {
    run(Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(crate::root().join("include"))
        .args(flags)
        .args(sources)
        .arg("-o")
        .arg(&into));
    into
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("text expected: {value}"))
}

fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    line.split_once(before)?.1.split_once(after).map(|(inside, _)| inside)
}

fn hex(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).unwrap_or_else(|e| panic!("{text}: {e}"))
}
