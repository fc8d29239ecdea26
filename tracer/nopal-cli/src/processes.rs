//! Which processes are meant: by number, by the name of their program, by their container or control group. The same options
//! for every verb.

use crate::failure::Failure;
use nopal_proc::groups::{self, GroupError};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Running processes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ProcessArgs {
    /// Processes by number, with all their descendants: `-p 12`, `-p 12,34`, `-p 12 -p 34`.
    #[arg(short, long = "pid", visible_alias = "vpid", value_name = "PID", value_delimiter = ',', value_parser = crate::pids::pid)]
    pub pids: Vec<u32>,
    /// All processes that now run this program, by its name or path, with their descendants.
    #[arg(short = 'n', long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// All processes of a running container (podman, Docker, containerd, CRI-O, LXC, systemd-nspawn).
    #[arg(long = "container", value_name = "NAME|ID")]
    pub containers: Vec<String>,
    /// All processes of a control group: its folder, or what /proc/PID/cgroup says.
    #[arg(long = "cgroup", value_name = "PATH")]
    pub cgroups: Vec<PathBuf>,
}

impl ProcessArgs {
    /// Whether the command line names none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.names.is_empty() && !self.has_groups()
    }

    pub(crate) fn has_groups(&self) -> bool {
        !self.containers.is_empty() || !self.cgroups.is_empty()
    }

    /// Adds those that were named otherwise to the numbers. Of a family the eldest is enough, as the others come with it,
    /// unless nobody is to come with anybody.
    pub(crate) fn resolve(&mut self, without_children: bool) -> Result<(), Failure> {
        let mut found = BTreeSet::new();
        for name in &self.names {
            found.extend(groups::of_program(name).map_err(|e| failure_of(&e))?);
        }
        found.extend(self.members()?);
        if !without_children {
            found = eldest(&found);
        }
        found.retain(|pid| !self.pids.contains(pid));
        self.pids.extend(found);
        Ok(())
    }

    /// Takes the control groups and containers out, for those who follow them. They must exist, but may be empty.
    pub(crate) fn take_groups(&mut self) -> Result<(Vec<PathBuf>, Vec<String>), Failure> {
        for path in &mut self.cgroups {
            match groups::of_cgroup(path) {
                Ok(_) | Err(GroupError::EmptyCgroup { .. }) => {}
                Err(error) => return Err(failure_of(&error)),
            }
            // Whoever follows it is elsewhere.
            if let Some(folder) = path.is_dir().then(|| std::fs::canonicalize(&*path).ok()).flatten() {
                *path = folder;
            }
        }
        for name in &self.containers {
            groups::of_container(name).map_err(|e| failure_of(&e))?;
        }
        Ok((std::mem::take(&mut self.cgroups), std::mem::take(&mut self.containers)))
    }

    /// The processes of the containers and control groups.
    pub(crate) fn members(&self) -> Result<BTreeSet<u32>, Failure> {
        let mut found = BTreeSet::new();
        for name in &self.containers {
            found.extend(groups::of_container(name).map_err(|e| failure_of(&e))?);
        }
        for path in &self.cgroups {
            found.extend(groups::of_cgroup(path).map_err(|e| failure_of(&e))?);
        }
        Ok(found)
    }
}

/// Those that descend from no other.
fn eldest(pids: &BTreeSet<u32>) -> BTreeSet<u32> {
    let young: BTreeSet<u32> = pids.iter().flat_map(|pid| nopal_proc::descendants(*pid)).collect();
    pids.difference(&young).copied().collect()
}

fn failure_of(error: &GroupError) -> Failure {
    let (code, hint) = match error {
        GroupError::NoProgram { name, names } => (
            "no-such-process",
            match nopal_sdt::pattern::nearest(name, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`nopal list -u` shows running programs with probes".to_owned(),
            },
        ),
        GroupError::NoCgroup { .. } => (
            "no-such-cgroup",
            "/proc/PID/cgroup says in which control group a process is; name it as it is said there".to_owned(),
        ),
        GroupError::EmptyCgroup { .. } => (
            "empty-cgroup",
            "it has no processes now, or they are in a pid namespace that is not below this one".to_owned(),
        ),
        GroupError::NoContainer { known, .. } if known.is_empty() => (
            "no-such-container",
            "no containers are seen from here; run nopal on the host, or in a container that shares its processes".to_owned(),
        ),
        GroupError::NoContainer { known, .. } => {
            ("no-such-container", format!("these are running: {}", known.join(", ")))
        }
        GroupError::Ambiguous { .. } => ("ambiguous-container", "give more of its number".to_owned()),
    };
    Failure::new(code, error.to_string()).hint(hint)
}
