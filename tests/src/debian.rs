//! Debian source packages, downloaded once into the target folder with an apt configuration of our own.

use crate::{run, target_dir};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The unpacked source tree of `package`, pristine. Callers copy it before they build in it.
pub fn source(package: &str) -> PathBuf {
    let lab = target_dir().join("lab/sources");
    fs::create_dir_all(&lab).expect("the lab folder can be made");
    let lock = fs::File::create(lab.join(format!("{package}.lock"))).expect("the lock file can be made");
    lock.lock().expect("the lock can be taken");
    let folder = lab.join(package);
    if let Some(tree) = unpacked(&folder) {
        return tree;
    }
    fs::create_dir_all(&folder).expect("the source folder can be made");
    let (config, _lock) = updated();
    run(Command::new("apt-get")
        .arg("-c")
        .arg(&config)
        .args(["-qq", "--allow-unauthenticated", "source", package])
        .current_dir(&folder));
    unpacked(&folder).unwrap_or_else(|| panic!("apt-get source {package} left no tree"))
}

/// Our configuration with lists that are new, and the lock that keeps others from replacing them meanwhile.
fn updated() -> (PathBuf, fs::File) {
    let lock = fs::File::create(target_dir().join("lab/apt.lock")).expect("the lock file can be made");
    lock.lock().expect("the lock can be taken");
    let config = apt_config();
    run(Command::new("apt-get").arg("-c").arg(&config).args(["-qq", "update"]));
    (config, lock)
}

/// Some files of a source package: a folder with those that match `patterns`, without the rest of the tree or Debian's
/// patches. Patterns are `tar`'s, from the top of the tree (`*/src/probes.d`).
pub fn files(package: &str, patterns: &[&str]) -> PathBuf {
    crate::lab::cached(&format!("files-{package}"), &patterns, |folder| {
        let (config, _lock) = updated();
        // The newest version may have left the archive already; the suite's own has not.
        let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let codename = os.lines().find_map(|l| l.strip_prefix("VERSION_CODENAME=")).unwrap_or("bookworm");
        for name in [package.to_owned(), format!("{package}/{codename}")] {
            let _ = Command::new("apt-get")
                .arg("-c")
                .arg(&config)
                .args(["-qq", "--allow-unauthenticated", "--download-only", "source", &name])
                .current_dir(folder)
                .output();
            if let Some(archive) = original(folder) {
                let mut tar = Command::new("tar");
                tar.arg("-xf").arg(&archive).args(["--strip-components=1", "--wildcards"]).args(patterns);
                run(tar.current_dir(folder));
                fs::remove_file(&archive).expect("the archive can be removed");
                return;
            }
        }
        panic!("apt-get source {package} left no archive");
    })
}

/// The unpacked source tree of a package of another suite, such as `sid`, by the same mirror as the machine's own; `Err`
/// tells why it cannot be had.
pub fn source_from(suite: &str, package: &str) -> Result<PathBuf, String> {
    let lab = target_dir().join("lab/sources");
    fs::create_dir_all(&lab).expect("the lab folder can be made");
    let lock = fs::File::create(lab.join(format!("{package}.lock"))).expect("the lock file can be made");
    lock.lock().expect("the lock can be taken");
    let folder = lab.join(package);
    if let Some(tree) = unpacked(&folder) {
        return Ok(tree);
    }
    fs::create_dir_all(&folder).expect("the source folder can be made");
    let config = apt_config_for(suite, "deb-src")?;
    for args in [&["-qq", "update"][..], &["-qq", "--allow-unauthenticated", "source", package]] {
        let output = Command::new("apt-get").arg("-c").arg(&config).args(args).current_dir(&folder).output();
        match output {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => return Err(format!("apt-get: {error}")),
        }
    }
    unpacked(&folder).ok_or_else(|| format!("apt-get source {package} left no tree"))
}

/// A folder with what these packages of `suite` install, and nothing else: their scripts are not run.
pub fn programs(suite: &str, packages: &[&str]) -> PathBuf {
    crate::lab::cached(&format!("programs-{suite}"), &packages, |folder| {
        let config = apt_config_for(suite, "deb").unwrap_or_else(|why| panic!("{why}"));
        // What is installed here, maybe newer, must not be taken for what the suite has.
        let nothing = folder.join("status");
        fs::write(&nothing, "").expect("the folder can be written to");
        let apt = |words: &[&str]| {
            let status = format!("Dir::State::status={}", nothing.display());
            let mut command = Command::new("apt-get");
            run(command.arg("-c").arg(&config).args(["-qq", "-o", &status]).args(words).current_dir(folder));
        };
        apt(&["update"]);
        apt(&[&["download", "--allow-unauthenticated"], packages].concat());
        let archives = fs::read_dir(folder).expect("the folder is there").flatten().map(|entry| entry.path());
        for archive in archives.filter(|path| path.extension().is_some_and(|e| e == "deb")) {
            run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(folder.join("root")));
            fs::remove_file(&archive).expect("the archive can be removed");
        }
    })
    .join("root")
}

/// An apt configuration with the sources of `suite` alone, from the mirror of Debian that the machine uses.
fn apt_config_for(suite: &str, kind: &str) -> Result<PathBuf, String> {
    let apt = target_dir().join(format!("lab/apt-{kind}-{suite}"));
    for folder in ["lists/partial", "cache/archives/partial", "sources.d"] {
        fs::create_dir_all(apt.join(folder)).expect("the apt folder can be made");
    }
    // Not the mirror of security updates, which has no other suites; nor somebody else's packages.
    let texts: Vec<String> =
        sources_files().iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    let mirror = texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"))
        .ok_or("the machine's apt sources name no mirror of Debian")?;
    let stanza = format!(
        "Types: {kind}\nURIs: {mirror}\nSuites: {suite}\nComponents: main\nSigned-By: {}\n",
        "/usr/share/keyrings/debian-archive-keyring.gpg"
    );
    fs::write(apt.join("sources.d/one.sources"), stanza).expect("the sources can be written");
    fs::write(apt.join("sources.list"), "").expect("sources.list can be written");
    let config = apt.join("apt.conf");
    fs::write(&config, configuration(&apt)).expect("apt.conf can be written");
    Ok(config)
}

/// The upstream tree as an archive.
fn original(folder: &std::path::Path) -> Option<PathBuf> {
    let is_archive = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.contains(".orig.tar.") && !name.ends_with(".asc")
    };
    fs::read_dir(folder).ok()?.flatten().map(|e| e.path()).find(is_archive)
}

fn unpacked(folder: &PathBuf) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().map(|e| e.path()).find(|p| p.is_dir())
}

/// A private copy of the machine's apt sources with `deb-src` switched on; the machine's own stay as they are.
pub fn apt_config() -> PathBuf {
    let apt = target_dir().join("lab/apt");
    for folder in ["lists/partial", "cache/archives/partial", "sources.d"] {
        fs::create_dir_all(apt.join(folder)).expect("the apt folder can be made");
    }
    let mut list = String::new();
    let mut stanzas = String::new();
    for file in sources_files() {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if file.extension().is_some_and(|e| e == "sources") {
            stanzas.push_str(&text.replace("Types: deb\n", "Types: deb deb-src\n"));
            stanzas.push('\n');
        } else {
            for line in text.lines().filter(|l| l.starts_with("deb ")) {
                list.push_str(&format!("{line}\ndeb-src {}\n", &line[4..]));
            }
        }
    }
    fs::write(apt.join("sources.list"), list).expect("sources.list can be written");
    fs::write(apt.join("sources.d/all.sources"), stanzas).expect("all.sources can be written");
    let config = apt.join("apt.conf");
    fs::write(&config, configuration(&apt)).expect("apt.conf can be written");
    config
}

/// Where the machine says what its packages come from.
fn sources_files() -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(folder) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(folder.flatten().map(|e| e.path()));
    }
    files
}

/// Keeps everything apt reads and writes in one folder.
fn configuration(apt: &std::path::Path) -> String {
    format!(
        "Dir::Etc::SourceList \"{0}/sources.list\";\nDir::Etc::SourceParts \"{0}/sources.d\";\n\
         Dir::State::Lists \"{0}/lists\";\nDir::Cache \"{0}/cache\";\n",
        apt.display()
    )
}
