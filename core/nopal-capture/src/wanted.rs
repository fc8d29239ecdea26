//! A site that somebody wants open.

use crate::capture::Action;
use crate::predicate::Predicate;
use nopal_sdt::probe::Site;

/// A site a session wants to open, and what it wants to know at a hit.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// `provider:name`, for reports.
    pub probe: String,
    pub site: Site,
    /// Stands in the records of this site.
    pub event: u32,
    /// All must hold, else the hit leaves nothing.
    pub predicates: Vec<Predicate>,
    pub action: Action,
}
