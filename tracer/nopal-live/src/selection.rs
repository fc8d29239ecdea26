//! Which sites are wanted: chosen file by file as processes map them, with one number per site for the whole session, so
//! that records of any process and either door can be read.

use nopal_capture::{Hit, Wanted};
use nopal_proc::{FileId, MappedObject};
use nopal_sdt::Object;
use std::collections::HashMap;
use std::path::PathBuf;

/// Says which sites are wanted, and which of their hits.
pub trait Selection: std::fmt::Debug + Send + 'static {
    /// The wanted sites of a mapped file that was not asked for before, numbered from [`Places::next_event`] on.
    fn choose(&mut self, mapped: &MappedObject, object: &Object) -> Vec<Chosen>;

    /// Every site chosen so far.
    fn places(&self) -> &Places;

    fn places_mut(&mut self) -> &mut Places;

    /// The wanted sites of a mapped file; the same numbers every time it is asked for the same file.
    fn select(&mut self, mapped: &MappedObject, object: &Object) -> Vec<Wanted> {
        let Some(file) = mapped.file() else { return Vec::new() };
        if let Some(known) = self.places().by_file.get(&file) {
            return known.clone();
        }
        let chosen = self.choose(mapped, object);
        self.places_mut().add(mapped, file, chosen)
    }

    /// Something that spans kept at the source need and no file has yet, or that stubs cannot tell.
    fn absent(&self) -> Option<Absent> {
        None
    }

    /// Whether a hit is wanted, as far as nobody could decide before.
    fn holds(&self, hit: &Hit<'_>) -> bool;

    /// Looks at a process for what its hits will need; called again when it may have changed.
    fn look(&mut self, pid: u32);

    /// The same for a program that is held and has not begun yet, which may have ended when it is looked at the next time.
    fn follow(&mut self, pid: u32);
}

/// What keeps spans from being kept at the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    Probe(String),
    /// To what is asked of this field of this probe.
    Answer((String, String)),
}

/// One site that was chosen.
#[derive(Debug, Clone)]
pub struct Place {
    /// As the kernel door opens it.
    pub by_kernel: Wanted,
    pub path: PathBuf,
    /// Tells apart files of one path: memfds of one name, a library and the one it replaced.
    pub file: FileId,
}

/// A site as each door opens it.
#[derive(Debug, Clone)]
pub struct Chosen {
    pub by_user: Wanted,
    pub by_kernel: Wanted,
}

/// The sites that were chosen. Only ever grows.
#[derive(Debug, Default)]
pub struct Places {
    by_file: HashMap<FileId, Vec<Wanted>>,
    /// By event.
    places: Vec<Place>,
}

impl Places {
    /// What was chosen of a file that was asked for before.
    pub fn known(&self, mapped: &MappedObject) -> Option<Vec<Wanted>> {
        self.by_file.get(&mapped.file()?).cloned()
    }

    /// The number of the next site.
    pub fn next_event(&self) -> u32 {
        self.places.len() as u32
    }

    pub fn get(&self, event: u32) -> Option<&Place> {
        self.places.get(event as usize)
    }

    fn add(&mut self, mapped: &MappedObject, file: FileId, chosen: Vec<Chosen>) -> Vec<Wanted> {
        let mut wanted = Vec::with_capacity(chosen.len());
        for Chosen { by_user, by_kernel } in chosen {
            self.places.push(Place { by_kernel, path: mapped.path.clone(), file });
            wanted.push(by_user);
        }
        self.by_file.insert(file, wanted.clone());
        wanted
    }
}
