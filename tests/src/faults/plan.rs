//! What is done in a round: drawn of its seed.

use super::harm::{Harm, Place};
use super::target::Kind;
use super::tracer::{Door, Subject, Way};
use crate::cycles::Chance;
use std::fmt;
use std::time::Duration;

/// One program, stretch by stretch.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub seed: u64,
    pub kind: Kind,
    /// Started by the first tracer, or there before it.
    pub is_launched: bool,
    /// The program lives within the limits of a control group.
    pub has_group: bool,
    pub stretches: Vec<Stretch>,
}

/// The program works for a while and rests then. Counts are exact while it rests.
#[derive(Debug, Clone)]
pub(crate) struct Stretch {
    /// The tracer that comes before it, if there is none.
    pub way: Way,
    /// The work begins before that tracer is ready.
    pub is_hasty: bool,
    pub harms: Vec<Planned>,
    /// All tracers are asked to end while the program rests, and what they leave is looked at.
    pub is_left: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned {
    /// Since the program was told to go.
    pub at: Duration,
    pub harm: Harm,
}

impl Plan {
    pub(crate) fn drawn(seed: u64) -> Plan {
        let mut chance = Chance::of(seed);
        let kind = Kind::drawn(&mut chance);
        let is_launched = kind.can_be_launched() && chance.below(4) == 0;
        let has_group = chance.below(3) == 0;
        let n_stretches = kind.n_stretches(&mut chance);
        let mut stretches: Vec<Stretch> = (0..n_stretches)
            .map(|n| Stretch::drawn(&mut chance, &kind, has_group, n + 1 == n_stretches))
            .collect();
        part(&mut stretches);
        Plan { seed, kind, is_launched, has_group, stretches }
    }
}

impl Stretch {
    fn drawn(chance: &mut Chance, kind: &Kind, has_group: bool, is_last: bool) -> Stretch {
        let way = Way::drawn(chance, kind);
        let n_harms = 2 + chance.below(4);
        let mut harms: Vec<Planned> = (0..n_harms)
            .map(|_| Planned {
                at: Duration::from_millis(chance.below(350)),
                harm: Harm::drawn(chance, kind, has_group, is_last),
            })
            .collect();
        harms.sort_by_key(|planned| planned.at);
        Stretch { way, is_hasty: chance.below(4) == 0, harms, is_left: chance.below(3) == 0 }
    }
}

/// A uprobe and gdb never come to the same byte. If the uprobe comes between gdb's look at the byte and gdb's breakpoint, or
/// leaves before gdb does, gdb puts back a byte that is not the program's: it dies, without nopal as well.
fn part(stretches: &mut [Stretch]) {
    let of_gdb = |harm: Harm| if let Harm::Gdb { place } = harm { Some(place) } else { None };
    let all = stretches.iter().flat_map(|stretch| &stretch.harms);
    let places: Vec<Place> = all.filter_map(|planned| of_gdb(planned.harm)).collect();
    let by_user = |way: &mut Way| {
        let place = if way.subject == Subject::Calls { Place::Call } else { Place::Probe };
        if places.contains(&place) {
            way.door = Door::User;
        }
    };
    for stretch in stretches {
        by_user(&mut stretch.way);
        for planned in &mut stretch.harms {
            if let Harm::SecondNopal { way, .. } = &mut planned.harm {
                by_user(way);
            }
        }
        stretch.harms.retain(|planned| !planned.harm.uprobe().is_some_and(|place| places.contains(&place)));
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        for (is_so, what) in
            [(self.is_launched, "started by its tracer"), (self.has_group, "in a control group")]
        {
            if is_so {
                write!(f, ", {what}")?;
            }
        }
        for stretch in &self.stretches {
            write!(f, " | {}{}", stretch.way, if stretch.is_hasty { ", in haste" } else { "" })?;
            for Planned { at, harm } in &stretch.harms {
                write!(f, "; {} ms: {harm}", at.as_millis())?;
            }
            if stretch.is_left {
                write!(f, "; all leave")?;
            }
        }
        Ok(())
    }
}
