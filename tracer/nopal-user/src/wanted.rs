//! What is wanted of the files of a process: which of their sites, and what is known of the instructions around them.

use super::relocate::Fixed;
use super::stub::Heap;
use super::stub::space::ObjectIdentity;
use super::tactic::{Refusal, Tactic};
use nopal_capture::Wanted;
use nopal_proc::{Image, MappedObject};
use nopal_sdt::probe::Site;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Chooses the sites of an object. Asked for each file a process maps code of, also later, when libraries are loaded or
/// another program is started.
pub type Select = Box<dyn FnMut(&MappedObject, &nopal_sdt::Object) -> Vec<Wanted> + Send>;

/// What became of one site.
#[derive(Debug, Clone)]
pub struct SiteReport {
    pub probe: String,
    pub path: PathBuf,
    /// In the process.
    pub address: u64,
    /// The tactic, or why it was refused: then it is one for the kernel door.
    pub outcome: std::result::Result<Tactic, Refusal>,
    /// As the file has it, for whoever opens it otherwise.
    pub site: Site,
    pub event: u32,
}

impl SiteReport {
    pub(super) fn new(
        object: &WantedObject,
        wanted: &Wanted,
        outcome: std::result::Result<Tactic, Refusal>,
    ) -> SiteReport {
        SiteReport {
            probe: wanted.probe.clone(),
            path: object.path.clone(),
            address: object.bias.wrapping_add(wanted.site.address),
            outcome,
            site: wanted.site.clone(),
            event: wanted.event,
        }
    }
}

/// The wanted sites of one mapped object.
#[derive(Debug, Clone)]
pub(crate) struct WantedObject {
    pub path: PathBuf,
    pub bias: u64,
    pub identity: ObjectIdentity,
    pub sites: Vec<Wanted>,
    /// Where in the process the file is mapped around its sites without a gap.
    pub own_file: std::ops::Range<u64>,
    /// The heap of the process.
    pub heap: Option<Heap>,
    /// Link-time addresses of all sites of the object, sorted.
    pub(super) all_sites: Arc<Vec<u64>>,
    /// Which of its sites stand among instructions that can be moved; looked at when first needed.
    pub(super) fixed: Arc<LazyFixed>,
}

/// A look at a whole file, taken when it is needed.
#[derive(Debug)]
pub(super) struct LazyFixed {
    object: Option<MappedObject>,
    sites: Arc<Vec<u64>>,
    fixed: OnceLock<Fixed>,
}

impl LazyFixed {
    pub(crate) fn of(object: &MappedObject, sites: Arc<Vec<u64>>) -> LazyFixed {
        LazyFixed { object: Some(object.clone()), sites, fixed: OnceLock::new() }
    }

    /// Nothing can be moved.
    pub(crate) fn nothing() -> LazyFixed {
        LazyFixed { object: None, sites: Arc::default(), fixed: OnceLock::new() }
    }

    /// Whether it was looked at successfully, with regard to all these sites, which are sorted.
    pub(super) fn has_seen(&self, sites: &[u64]) -> bool {
        let mut known = self.sites.iter();
        self.fixed.get().is_some_and(Fixed::is_known)
            && sites.iter().all(|site| known.any(|seen| seen == site))
    }

    pub(crate) fn get(&self) -> &Fixed {
        self.fixed.get_or_init(|| {
            let image = self.object.as_ref().and_then(|object| object.open().ok());
            Fixed::of(image.as_ref().map(Image::bytes).unwrap_or_default(), &self.sites)
        })
    }
}

impl WantedObject {
    /// The lowest and highest wanted address in the process.
    pub(crate) fn text(&self) -> (u64, u64) {
        let addresses = || self.sites.iter().map(|s| self.bias.wrapping_add(s.site.address));
        (addresses().min().unwrap_or(0), addresses().max().unwrap_or(0))
    }

    /// How far the next site behind this one is.
    pub(crate) fn next_site(&self, address: u64) -> Option<u64> {
        let at = self.all_sites.partition_point(|a| *a <= address);
        self.all_sites.get(at).map(|next| next - address)
    }
}
