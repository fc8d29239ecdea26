//! The edge of a function made ready: the first of its ways that has room and that nothing else leads into.

use super::prepare::Place;
use super::{Failure, Ready, Work};
use crate::distance::JUMP_BYTES;
use crate::edges::{EdgeWay, ways};
use crate::process;
use crate::tactic::{Refusal, Way};
use crate::wanted::WantedObject;
use nopal_capture::Wanted;
use nopal_sdt::probe::Edge;

impl Work<'_, '_> {
    /// Whether the program catches SIGSEGV or SIGBUS.
    fn handles_faults(&mut self) -> bool {
        let pid = self.pid();
        *self.handles_faults.get_or_insert_with(|| process::catches(pid, &[libc::SIGSEGV, libc::SIGBUS]))
    }

    pub(super) fn prepare_edge(
        &mut self,
        at: usize,
        object: &WantedObject,
        wanted: &Wanted,
        edge: &Edge,
    ) -> Result<Ready, Failure> {
        let ways = ways(edge, object.bias).map_err(Failure::Site)?;
        let address = object.bias.wrapping_add(wanted.site.address);
        let base = object.bias.wrapping_add(edge.start);
        let range = self.maps.find(base).filter(|r| r.is_executable && !r.is_shared);
        let is_inside = |end: u64| range.is_some_and(|r| end <= r.end);
        if !is_inside(base.wrapping_add(edge.line_len as u64)) {
            return Err(Refusal::NotMapped.into());
        }
        let is_readable = range.is_some_and(|r| r.is_readable);
        // Read once for all ways, unless the end of the code is near.
        let line = self.entered.memory.read_vec(base, edge.code.len()).ok();
        let place = |way: &Way| -> Result<Option<Place<'_>>, Failure> {
            let first = way.patch - way.kept_len as u64;
            let end = (way.jump + JUMP_BYTES as u64).max(way.patch + way.patch_len as u64);
            let (from, to) = ((first - base) as usize, (end - base) as usize);
            let Some(code) = edge.code.get(from..to) else { return Ok(None) };
            let now = match line.as_ref().and_then(|line| line.get(from..to)) {
                Some(now) => now.to_vec(),
                None => self.entered.memory.read_vec(first, code.len()).map_err(Failure::All)?,
            };
            Ok(Some(Place { object, wanted, address, base: first, code, now, is_readable }))
        };
        // Another session has it open; ours is one more on the same way.
        for EdgeWay { way, .. } in &ways {
            if let Some(place) = place(way)?
                && self.stands(at, &place, way)
            {
                return self.prepare_way(at, &place, way);
            }
        }
        let mut verdict = None;
        for EdgeWay { way, unled, may_fault } in &ways {
            if *may_fault && self.handles_faults() {
                let reason =
                    "the instruction there may fault, and the program has a handler that would see where";
                verdict.get_or_insert(Refusal::NoWay { reason: reason.to_owned() });
                continue;
            }
            let checked = object.fixed.get().check_line(edge.start, unled.clone());
            if let Err(reason) = checked {
                let refusal = Refusal::NoWay {
                    reason: format!("the instructions at this place cannot be told from others: {reason}"),
                };
                verdict.get_or_insert(refusal);
                continue;
            }
            let place = match place(way)? {
                Some(place) => place,
                None => continue,
            };
            match self.prepare_way(at, &place, way) {
                Err(Failure::Site(refusal)) => verdict = Some(refusal),
                done => return done,
            }
        }
        let none = Refusal::NoWay { reason: "no jump can be put there".to_owned() };
        Err(verdict.unwrap_or(none).into())
    }
}
