//! One site made ready: the way it can be opened, its thunk, stub and landing. The code of the process is not changed yet.

use super::{Failure, PAGE, Work};
use crate::user::libraries::{self, LIBRARY_EVENT};
use crate::user::neighbourhood::{MEMFD_NAME, Neighbourhood, stub_failed};
use crate::user::relocate::{WINDOW, pages_of};
use crate::user::room::Room;
use crate::user::session::{OpenSite, WantedObject};
use crate::user::stub::space::{ObjectIdentity, landing};
use crate::user::stub::tail::{Tail, plan_instruction, plan_relocation, plan_tail};
use crate::user::stub::{StubError, StubSpec};
use crate::user::tactic::{Refusal, Tactic, Way, ways};
use crate::user::text::{Found, Patch};
use nopal_capture::Wanted;

/// Reads the whole of each file in which instructions may have to be moved: for a Java machine that takes long, and no
/// thread is to be held meanwhile.
pub(super) fn look_at_files(objects: &[WantedObject], room: &Room) {
    let is_taken = |landing: u64| {
        landing_pages(landing).iter().any(|page| {
            let is_ours =
                room.maps.find(*page).is_some_and(|r| r.path.to_string_lossy().starts_with(MEMFD_NAME));
            !is_ours && room.check(*page, PAGE).is_err()
        })
    };
    for object in objects {
        let may_move = object.sites.iter().filter(|wanted| wanted.event != LIBRARY_EVENT).any(|wanted| {
            let address = object.bias.wrapping_add(wanted.site.address);
            let ways = ways(address, &wanted.site.code, object.next_site(wanted.site.address));
            ways.is_ok_and(|ways| match ways[..] {
                [Way { tactic: Tactic::Pun, landing: Some(landing), .. }] => is_taken(landing),
                _ => false,
            })
        });
        if may_move {
            object.fixed.get();
        }
    }
}

/// The pages a landing needs; the longest form of one is 14 bytes.
fn landing_pages(landing: u64) -> Vec<u64> {
    let first = landing & !(PAGE - 1);
    let last = landing.wrapping_add(13) & !(PAGE - 1);
    if first == last { vec![first] } else { vec![first, last] }
}

impl Work<'_, '_> {
    /// Everything for one site but the change of its code: verified, thunk, stub and landing written.
    pub(super) fn prepare(
        &mut self,
        at: usize,
        object: &WantedObject,
        wanted: &Wanted,
    ) -> std::result::Result<(OpenSite, Vec<u64>), Failure> {
        let address = object.bias.wrapping_add(wanted.site.address);
        let code = &wanted.site.code;
        let range = self.maps.find(address).filter(|r| r.is_executable && !r.is_shared);
        if range.is_none() || code.is_empty() {
            return Err(Refusal::NotMapped.into());
        }
        // What the next site looks like is its own affair.
        let until = object.next_site(wanted.site.address).unwrap_or(u64::MAX).min(16) as usize;
        let now = self.entered.memory.read_vec(address, code.len().min(until)).map_err(Failure::All)?;
        let mut refusal = Refusal::NotANop { bytes: code.iter().take(5).copied().collect() };
        let mut pun = None;
        let ways = if wanted.event == LIBRARY_EVENT {
            libraries::ways(address, code)
        } else {
            ways(address, code, object.next_site(wanted.site.address))
        };
        for way in ways? {
            match self.prepare_way(at, object, wanted, address, &now, &way) {
                Ok(done) => return Ok(done),
                Err(Failure::Site(reason)) => refusal = reason,
                Err(all) => return Err(all),
            }
            pun = (way.tactic == Tactic::Pun).then_some(Way { is_narrow: true, ..way });
        }
        match self.way_by_moving(at, object, wanted, &now, refusal, pun.as_ref()) {
            Ok(way) => self.prepare_way(at, object, wanted, address, &now, &way),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Whether the instructions of a site that could not be opened otherwise may be moved; else why it stays closed.
    fn way_by_moving(
        &self,
        at: usize,
        object: &WantedObject,
        wanted: &Wanted,
        now: &[u8],
        refusal: Refusal,
        narrow_pun: Option<&Way>,
    ) -> std::result::Result<Way, Refusal> {
        if wanted.event == LIBRARY_EVENT || wanted.site.code.first() != Some(&0x90) {
            return Err(refusal);
        }
        let n = &self.core.neighbourhoods[at];
        let address = object.bias.wrapping_add(wanted.site.address);
        let known = n.space.site(address);
        let (behind, relocation) = (Way::behind(address), Way::relocation(address));
        // Another session has moved them; ours is one more on the same way.
        for way in [behind, relocation] {
            let from = (way.patch - address) as usize;
            let patched = known.as_ref().and_then(|site| way.patched(site.thunk));
            if patched.is_some_and(|patched| now.get(from..).is_some_and(|now| now.starts_with(&patched))) {
                return Ok(way);
            }
        }
        if !matches!(refusal, Refusal::LandingTaken { .. }) {
            return Err(refusal);
        }
        let why_not = |reason: &str| {
            Err(Refusal::NotMovable { landing: Box::new(refusal.clone()), reason: reason.to_owned() })
        };
        // The way on behind a site is one for all its sessions.
        let is_other_way = |tail: &Tail| known.is_some() && !n.space.goes_on(address, tail);
        let code = &wanted.site.code[1..];
        let is_clear = object.next_site(wanted.site.address).is_none_or(|distance| distance > WINDOW);
        let mut verdict = Err(refusal.clone());
        if is_clear
            && let Some(tail) = plan_instruction(code, address + 1)
            && !is_other_way(&tail)
        {
            match object.fixed.get().check_behind(wanted.site.address) {
                Ok(()) => return Ok(behind),
                Err(reason) => verdict = why_not(reason),
            }
        }
        if let Some(pun) = narrow_pun
            && pun.landing.is_some_and(|landing| self.landing_pages(n, landing, true).is_ok())
        {
            return Ok(*pun);
        }
        if !self.core.can_relocate {
            return verdict;
        }
        if let Err(reason) = object.fixed.get().check(wanted.site.address) {
            return why_not(reason);
        }
        let Some(tail) = plan_relocation(code, address + 1, WINDOW as usize - 1) else {
            return why_not("one of them works only where it is");
        };
        if is_other_way(&tail) {
            return why_not("an earlier session opened it otherwise");
        }
        for page in pages_of(address) {
            let is_writable = self.maps.find(page).is_none_or(|r| r.is_writable);
            if is_writable && !n.space.relocations().into_iter().any(|other| pages_of(other).contains(&page))
            {
                return why_not("the program can write to them");
            }
        }
        Ok(relocation)
    }

    fn prepare_way(
        &mut self,
        at: usize,
        object: &WantedObject,
        wanted: &Wanted,
        address: u64,
        now: &[u8],
        way: &Way,
    ) -> std::result::Result<(OpenSite, Vec<u64>), Failure> {
        let n = &self.core.neighbourhoods[at];
        let code = &wanted.site.code[..now.len()];
        let from = (way.patch - address) as usize;
        let after = from + way.patch_len();
        // All but the bytes to be changed must be the file's; before them somebody else may have a breakpoint.
        if now[after..] != code[after..] {
            return Err(Refusal::BytesChanged { found: now.to_vec() }.into());
        }
        let landing_pages = match way.landing {
            Some(landing) => self.landing_pages(n, landing, way.is_narrow)?,
            None => Vec::new(),
        };
        let identity = ObjectIdentity { link_address: wanted.site.address, ..object.identity };
        let tail = match way.tactic {
            _ if wanted.event == LIBRARY_EVENT => Tail::ret(),
            Tactic::Relocate => plan_relocation(&wanted.site.code[1..], way.resume, WINDOW as usize - 1)
                .ok_or(Failure::Site(Refusal::OutOfReach))?,
            Tactic::Behind => plan_instruction(&wanted.site.code[1..], way.resume)
                .ok_or(Failure::Site(Refusal::OutOfReach))?,
            // After a session that moved the instruction behind the nop: its way on is right for the nop, too.
            Tactic::Pun => plan_instruction(&wanted.site.code[1..], way.resume)
                .filter(|tail| n.space.goes_on(address, tail))
                .unwrap_or_else(|| plan_tail(&code[1..], way.resume)),
            _ if way.is_tail_copied => plan_tail(&code[1..], way.resume),
            _ => Tail::to(way.resume),
        };
        let site = n.space.add_site(address, &tail, identity).map_err(stub_refused)?;
        let patched = way.patched(site.thunk).ok_or(Failure::Site(Refusal::OutOfReach))?;
        let patch = Patch { address: way.patch, original: code[from..after].to_vec(), patched };
        match patch.found(self.entered.memory).map_err(Failure::All)? {
            Found::Original | Found::Ours => {}
            Found::Breakpoint => return Err(Refusal::Breakpoint.into()),
            Found::Other(_) => return Err(Refusal::BytesChanged { found: now.to_vec() }.into()),
        }
        if let Some(to) = way.landing
            && !n.write_landing(to, &landing(to, site.thunk)).map_err(Failure::All)?
        {
            return Err(Refusal::LandingTaken { address: to, by: "another probe's landing".into() }.into());
        }
        let known = self.core.stubs.get(&(n.inode, address));
        if known.is_none() {
            let session = self.core.sessions.get(&n.inode).ok_or(Failure::Site(Refusal::OutOfReach))?;
            let spec = StubSpec {
                event: wanted.event,
                predicates: wanted.predicates.clone(),
                action: wanted.action.clone(),
                load_bias: object.bias,
                own_file: object.own_file.clone(),
            };
            let chained = n.space.chained_stub(&site, session, &spec).map_err(stub_refused)?;
            let (stub, is_linked) = match chained {
                Some(stub) => (stub, true),
                None => (n.space.add_stub(&site, session, &spec).map_err(stub_refused)?, false),
            };
            self.core.layouts.entry(wanted.event).or_insert_with(|| stub.layout.clone());
            self.core.stubs.insert((n.inode, address), (stub, is_linked));
        }
        let semaphore = wanted.site.semaphore.map(|s| object.bias.wrapping_add(s.address));
        let open = OpenSite {
            probe: wanted.probe.clone(),
            address,
            tactic: way.tactic,
            patch,
            semaphore,
            space: n.address(),
        };
        Ok((open, landing_pages))
    }

    /// The pages a landing needs: each already ours in this process, or free.
    fn landing_pages(
        &self,
        n: &Neighbourhood,
        landing: u64,
        is_narrow: bool,
    ) -> std::result::Result<Vec<u64>, Failure> {
        let pages = landing_pages(landing);
        for page in &pages {
            let is_ours = self.maps.find(*page).is_some_and(|r| r.inode == n.inode);
            if is_ours && n.space.landing_at(*page).is_some() {
                continue;
            }
            let verdict =
                if is_narrow { self.room.check_narrowly(*page, PAGE) } else { self.room.check(*page, PAGE) };
            if let Err(by) = verdict {
                return Err(Refusal::LandingTaken { address: landing, by }.into());
            }
        }
        Ok(pages)
    }
}

fn stub_refused(error: StubError) -> Failure {
    match error {
        StubError::SpaceFull { .. } | StubError::JournalFull => Failure::All(stub_failed(error)),
        other => Failure::Site(Refusal::Stub(other.to_string())),
    }
}
