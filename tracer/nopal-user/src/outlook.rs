//! What a function can be traced by, judged from its file alone: whether a jump finds room to land is known in a process
//! only.

use super::edges::ways;
use super::relocate::Fixed;
use super::tactic::{Refusal, Tactic};
use nopal_proc::Bytes;
use nopal_proc::file_functions::{Edges, FileFunctions, Unfit};
use nopal_proc::symbols::Function;
use nopal_sdt::probe::Site;
use std::fmt;

/// Why an edge is one for the kernel door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    Unfit(Unfit),
    Refused(Refusal),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Unfit(unfit) => write!(f, "{unfit}"),
            Why::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

/// What one function can be traced by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    pub entry: Result<Tactic, Why>,
    /// Of each exit; or why exits are not known.
    pub exits: Result<Vec<Result<Tactic, Why>>, Why>,
}

impl Outlook {
    pub fn is_all_by_user(&self) -> bool {
        self.entry.is_ok() && self.exits.as_ref().is_ok_and(|exits| exits.iter().all(Result::is_ok))
    }
}

/// The outlook of functions of a file, in their order.
pub fn outlooks(file: &FileFunctions, functions: &[Function<'_>]) -> Vec<Outlook> {
    let edges: Vec<Result<Edges, Unfit>> = functions.iter().map(|function| file.edges(function)).collect();
    let sites =
        || edges.iter().flatten().flat_map(|e| std::iter::once(&e.entry).chain(e.exits.iter().flatten()));
    let mut lines: Vec<u64> = sites().filter_map(|site| site.edge.as_ref()).map(|edge| edge.start).collect();
    lines.sort_unstable();
    lines.dedup();
    let bytes: Bytes<'_> = file.bytes();
    let fixed = Fixed::of(bytes, &lines);
    edges
        .iter()
        .map(|edges| match edges {
            Err(unfit) => {
                Outlook { entry: Err(Why::Unfit(unfit.clone())), exits: Err(Why::Unfit(unfit.clone())) }
            }
            Ok(edges) => Outlook {
                entry: tactic(&edges.entry, &fixed),
                exits: match &edges.exits {
                    Ok(exits) => Ok(exits.iter().map(|site| tactic(site, &fixed)).collect()),
                    Err(unfit) => Err(Why::Unfit(unfit.clone())),
                },
            },
        })
        .collect()
}

fn tactic(site: &Site, fixed: &Fixed) -> Result<Tactic, Why> {
    let Some(edge) = &site.edge else { return Err(Why::Unfit(Unfit::NotCode)) };
    let ways = ways(edge, 0).map_err(Why::Refused)?;
    let mut reason = None;
    for way in ways {
        match fixed.check_line(edge.start, way.unled) {
            Ok(()) => return Ok(way.way.tactic),
            Err(why) => reason = Some(why),
        }
    }
    let reason = format!("no instruction there can have a jump put on it: {}", reason.unwrap_or_default());
    Err(Why::Refused(Refusal::NoWay { reason }))
}
