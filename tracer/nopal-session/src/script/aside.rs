//! Sites that the user door leaves: the kernel door opens them, where it may be used. Their records have the form of the
//! user door's, and mean the same to the clauses.

use crate::live::by_kernel::{ByKernel, How, Kernel, ensure};
use crate::live::{Door, Hit, LiveError, Loss, Opened, Way};
use nopal_capture::Wanted;
use nopal_engine::kernel::KernelError;
use nopal_engine::kernel::uprobes::Link;
use nopal_engine::target::mapped_objects;
use nopal_engine::user::process::status;
use std::collections::HashMap;
use std::path::PathBuf;

/// The kernel door beside the user door; opened when there is something for it.
#[derive(Debug)]
pub struct Aside {
    /// `None` if the user door is to be alone.
    how: Option<How>,
    kernel: Option<Kernel>,
    /// Sites that another tool has taken over, by process and event.
    shared: HashMap<(u32, u32), Link>,
}

/// A site that the user door has not, as it wanted it, with its file and the reason.
#[derive(Debug, Clone)]
pub struct Left {
    pub wanted: Wanted,
    pub path: PathBuf,
    pub reason: String,
}

impl Aside {
    pub fn new(is_allowed: bool, ring_bytes: u64, is_only: bool) -> Aside {
        let how = is_allowed.then_some(How { door: Door::Auto, ring_bytes, is_only });
        Aside { how, kernel: None, shared: HashMap::new() }
    }

    /// Opens the kernel door now, to know whether it can be.
    pub fn try_open(&mut self) -> Result<(), LiveError> {
        let how = self.how.ok_or(LiveError::Kernel(KernelError::NotPermitted { what: "the kernel door" }))?;
        ensure(&mut self.kernel, how).map_err(LiveError::Kernel)
    }

    /// Whether any site is the kernel's.
    pub fn is_open(&self) -> bool {
        self.kernel.is_some()
    }

    /// Opens what can be opened; what became of each.
    pub fn open(&mut self, pid: u32, left: Vec<Left>) -> Vec<Opened> {
        let mut by_file: HashMap<PathBuf, Vec<(Wanted, String)>> = HashMap::new();
        for Left { wanted, path, reason } in left {
            by_file.entry(path).or_default().push((wanted, reason));
        }
        let mut opened = Vec::new();
        for (path, sites) in by_file {
            let mut done = ByKernel::default();
            let result = self.arm(pid, &path, sites.clone(), &mut done);
            opened.append(&mut done.opened);
            if let Err(why) = result {
                opened.extend(sites.into_iter().map(|(wanted, reason)| Opened {
                    pid,
                    probe: wanted.probe,
                    path: path.clone(),
                    address: wanted.site.address,
                    way: Way::Closed(if why.is_empty() { reason } else { format!("{reason}; {why}") }),
                }));
            }
        }
        opened
    }

    fn arm(
        &mut self,
        pid: u32,
        path: &PathBuf,
        sites: Vec<(Wanted, String)>,
        done: &mut ByKernel,
    ) -> Result<(), String> {
        let how = self.how.ok_or_else(String::new)?;
        ensure(&mut self.kernel, how).map_err(|error| error.to_string())?;
        let kernel = self.kernel.as_mut().ok_or_else(String::new)?;
        let objects = mapped_objects(pid).map_err(|error| error.to_string())?;
        let mapped = objects.iter().find(|object| object.path == *path).ok_or("its file is gone")?;
        kernel.arm(pid, mapped, sites, done).map_err(in_words)
    }

    /// Takes part in a site that another tool has taken over, and keeps it from then on.
    pub fn share(&mut self, pid: u32, left: &Left) -> Result<(), String> {
        let how = self.how.ok_or("the kernel door is not to be used")?;
        // A debugger's breakpoint would be taken for ours, and the debugger would wait for it in vain.
        if status(pid as i32).is_ok_and(|status| status.tracer_pid != 0) {
            return Err("it is a debugger".to_owned());
        }
        ensure(&mut self.kernel, how).map_err(|error| error.to_string())?;
        let kernel = self.kernel.as_ref().ok_or("the kernel door is closed")?;
        let objects = mapped_objects(pid).map_err(|error| error.to_string())?;
        let mapped = objects.iter().find(|object| object.path == left.path).ok_or("its file is gone")?;
        let link = kernel.share(pid, mapped, &left.wanted).map_err(in_words)?;
        self.shared.insert((pid, left.wanted.event), link);
        Ok(())
    }

    /// Hands out the hits that have come, and what was lost.
    pub fn poll(&mut self, mut each: impl FnMut(Hit<'_>)) -> Vec<Loss> {
        let mut lost = Vec::new();
        if let Some(kernel) = &mut self.kernel {
            kernel.poll_hits(&mut lost, &mut each);
        }
        lost
    }

    /// Closes every site; what has come can still be taken.
    pub fn close(&mut self) {
        self.shared.clear();
        if let Some(kernel) = &mut self.kernel {
            kernel.close();
        }
    }
}

fn in_words(error: LiveError) -> String {
    match error {
        LiveError::Kernel(error) => error.to_string(),
        LiveError::Target(error) => error.to_string(),
        other => format!("{other:?}"),
    }
}
