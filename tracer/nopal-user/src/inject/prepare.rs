//! One site made ready: the way it can be opened, its thunk, stub and landings. The code of the process is not changed yet.

use super::{Failure, PAGE, Ready, Work};
use crate::behind::{Behind, ways_behind};
use crate::distance::{self, BREAKPOINT};
use crate::landings::{ATTEMPTS, Landings, Piece, pages, pieces};
use crate::libraries::{self, LIBRARY_EVENT};
use crate::neighbourhood::{MEMFD_NAME, Neighbourhood, stub_failed};
use crate::patch::{Found, Patch};
use crate::relocate::{MAX_MOVED, WINDOW, pages_of};
use crate::room::Room;
use crate::sandbox::{self, FORBIDDING_EVENT};
use crate::stub::space::ObjectIdentity;
use crate::stub::tail::plan_relocation;
use crate::stub::{StubError, StubSpec};
use crate::tactic::{Refusal, Tactic, Way, ways};
use crate::traced::OpenSite;
use crate::wanted::WantedObject;
use nopal_capture::Wanted;

/// Reads the whole of each file in which instructions may have to be moved: for a Java machine that takes long, and no
/// thread is to be held meanwhile.
pub(super) fn look_at_files(objects: &[WantedObject], room: &Room) {
    let is_taken = |page: &u64| {
        let is_ours = room.maps.find(*page).is_some_and(|r| r.path.to_string_lossy().starts_with(MEMFD_NAME));
        !is_ours && room.check(*page, PAGE).is_err()
    };
    for object in objects {
        let may_move = object.sites.iter().filter(|w| !is_own(w) && w.site.edge.is_none()).any(|wanted| {
            let address = object.bias.wrapping_add(wanted.site.address);
            match ways(address, code_of(object, wanted), object.next_site(wanted.site.address)) {
                Ok(ways) => match &ways[..] {
                    [way @ Way { tactic: Tactic::Pun, .. }] => {
                        let (main, guards) = way.landings(way.distance.candidates(0)[0]);
                        let pieces = pieces(guards.into_iter().chain([main]), address, 0);
                        pieces.is_none_or(|pieces| pages(&pieces).iter().any(is_taken))
                    }
                    _ => false,
                },
                Err(refusal) => refusal.is_about_landing(),
            }
        });
        let has_edges = object.sites.iter().any(|wanted| wanted.site.edge.is_some());
        if may_move || has_edges {
            object.fixed.get();
        }
    }
}

/// Whether it is nobody's probe, but a place that tells us something.
fn is_own(wanted: &Wanted) -> bool {
    matches!(wanted.event, LIBRARY_EVENT | FORBIDDING_EVENT)
}

/// The file's bytes from the site on. What the next site looks like is its own affair.
fn code_of<'w>(object: &WantedObject, wanted: &'w Wanted) -> &'w [u8] {
    let code = &wanted.site.code;
    let until = object.next_site(wanted.site.address).unwrap_or(u64::MAX);
    &code[..code.len().min(usize::try_from(until).unwrap_or(usize::MAX))]
}

/// What is known of a site before a way is chosen.
pub(super) struct Place<'w> {
    pub object: &'w WantedObject,
    pub wanted: &'w Wanted,
    pub address: u64,
    /// Where `code` and `now` begin: at the site, or at the instruction that stands for it.
    pub base: u64,
    /// As the file has it, and as it is now.
    pub code: &'w [u8],
    pub now: Vec<u8>,
    pub is_readable: bool,
}

impl Place<'_> {
    /// Whether the jump with this distance stands there.
    fn has(&self, way: &Way, distance: u32) -> bool {
        let from = (way.patch - self.base) as usize;
        self.now.get(from..from + way.patch_len) == Some(&way.patched(distance))
    }

    /// Whether all bytes behind those to be changed are the file's, but for breakpoints.
    fn is_unchanged_behind(&self, way: &Way) -> bool {
        let after = (way.patch - self.base) as usize + way.patch_len;
        let starts = distance::starts(self.code, 0);
        self.now.len() >= after
            && (after..self.now.len()).all(|at| {
                self.now[at] == self.code[at] || (self.now[at] == BREAKPOINT && starts.contains(&at))
            })
    }
}

impl Work<'_, '_> {
    /// Everything for one site but the change of its code: verified, thunk, stub and landings written.
    pub(super) fn prepare(
        &mut self,
        at: usize,
        object: &WantedObject,
        wanted: &Wanted,
    ) -> std::result::Result<Ready, Failure> {
        let address = object.bias.wrapping_add(wanted.site.address);
        if let Some(edge) = &wanted.site.edge {
            return self.prepare_edge(at, object, wanted, edge);
        }
        let code = code_of(object, wanted);
        let range = self.maps.find(address).filter(|r| r.is_executable && !r.is_shared);
        let Some(range) = range.filter(|_| !code.is_empty()) else {
            return Err(Refusal::NotMapped.into());
        };
        if wanted.site.until_restartable.is_some_and(|bytes| bytes < MAX_MOVED) {
            return Err(Refusal::Restartable.into());
        }
        let is_readable = range.is_readable;
        let now = self.entered.memory.read_vec(address, code.len()).map_err(Failure::All)?;
        let place = Place { object, wanted, address, base: address, code, now, is_readable };
        let is_own = is_own(wanted);
        let direct = match wanted.event {
            LIBRARY_EVENT => libraries::ways(address, code),
            FORBIDDING_EVENT => sandbox::ways(address, code),
            _ => ways(address, code, object.next_site(wanted.site.address)),
        };
        let behind = match (is_own, &direct) {
            (false, Err(refusal)) if !refusal.is_about_landing() => Vec::new(),
            (false, _) if code.first() == Some(&0x90) => ways_behind(address, code, &wanted.site.args),
            _ => Vec::new(),
        };
        let relocation = match is_own || code.first() != Some(&0x90) {
            true => None,
            false => plan_relocation(&code[1..], address + 1, WINDOW as usize - 1)
                .map(|tail| Way::relocation(address, tail)),
        };
        // Another session has it open; ours is one more on the same way.
        let all = direct.iter().flatten().chain(behind.iter().map(|b| &b.way)).chain(&relocation);
        let open: Vec<&Way> = all.filter(|way| self.stands(at, &place, way)).collect();
        if let Some(way) = open.iter().max_by_key(|way| way.patch_len) {
            return self.prepare_way(at, &place, way);
        }
        let mut refusal = Refusal::NotANop { bytes: code.iter().take(5).copied().collect() };
        match &direct {
            Ok(ways) => {
                for way in ways {
                    match self.prepare_way(at, &place, way) {
                        Err(Failure::Site(reason)) => refusal = reason,
                        done => return done,
                    }
                }
            }
            Err(reason) => refusal = reason.clone(),
        }
        if is_own || !refusal.is_about_landing() {
            return Err(refusal.into());
        }
        let mut verdict = refusal.clone();
        for Behind { way, window } in &behind {
            match object.fixed.get().check(wanted.site.address, *window) {
                Ok(()) => match self.prepare_way(at, &place, way) {
                    Err(Failure::Site(_)) => {}
                    done => return done,
                },
                Err(reason) => verdict = not_movable(&refusal, reason),
            }
        }
        // For want of another way nearer to the heap than it should be.
        let pun = direct.iter().flatten().find(|way| way.tactic == Tactic::Pun);
        if let Some(way) = pun {
            match self.prepare_way(at, &place, &Way { is_narrow: true, ..way.clone() }) {
                Err(Failure::Site(_)) => {}
                done => return done,
            }
        }
        if !self.core.can_relocate {
            return Err(verdict.into());
        }
        match self.check_relocation(at, &place, relocation.is_some()) {
            Ok(()) => {}
            Err(reason) => return Err(not_movable(&refusal, reason).into()),
        }
        match &relocation {
            Some(way) => self.prepare_way(at, &place, way),
            None => Err(verdict.into()),
        }
    }

    /// Whether the site is open by this way already.
    pub(super) fn stands(&self, at: usize, place: &Place<'_>, way: &Way) -> bool {
        let n = &self.core.neighbourhoods[at];
        let known = n.space.distances(way.patch, way.patch_len, way.form());
        known.into_iter().any(|distance| place.has(way, distance))
    }

    /// Why instructions at the site may not be moved.
    fn check_relocation(
        &self,
        at: usize,
        place: &Place<'_>,
        is_planned: bool,
    ) -> std::result::Result<(), &'static str> {
        place.object.fixed.get().check(place.wanted.site.address, WINDOW)?;
        if !is_planned {
            return Err("one of them works only where it is");
        }
        let n = &self.core.neighbourhoods[at];
        for page in pages_of(place.address) {
            let is_writable = self.maps.find(page).is_none_or(|r| r.is_writable);
            if is_writable && !n.space.relocations().into_iter().any(|other| pages_of(other).contains(&page))
            {
                return Err("the program can write to them");
            }
        }
        Ok(())
    }

    pub(super) fn prepare_way(
        &mut self,
        at: usize,
        place: &Place<'_>,
        way: &Way,
    ) -> std::result::Result<Ready, Failure> {
        if way.may_be_torn() {
            return Err(Refusal::TwoPages.into());
        }
        let Place { object, wanted, address, base, code, .. } = *place;
        // Probes keep off each other by the bytes of the file; the jumps of functions may meet them.
        self.check_claims(at, address, way)?;
        let n = &self.core.neighbourhoods[at];
        let changed = || Failure::Site(Refusal::BytesChanged { found: place.now.clone() });
        let from = (way.patch - base) as usize;
        let after = from + way.patch_len;
        if after > code.len() || !place.is_unchanged_behind(way) {
            return Err(changed());
        }
        let tail = if place.is_readable { way.tail.clone() } else { way.tail.clone().without_copies() };
        // The way on behind a site is one for all its sessions.
        if n.space.site(address).is_some() && !n.space.goes_on(address, &tail) {
            return Err(Refusal::OpenedOtherwise.into());
        }
        let (distance, pieces) = self.choose(n, way, place)?;
        let n_behind = if way.patch == way.jump { Way::n_behind(way.patch_len) } else { 0 };
        let patch = Patch {
            address: way.patch,
            kept: code[from - way.kept_len..from].to_vec(),
            original: code[from..after].to_vec(),
            patched: way.patched(distance),
            behind: code.get(after..after + n_behind).unwrap_or_default().to_vec(),
        };
        match patch.found(self.entered.memory).map_err(Failure::All)? {
            Found::Original | Found::Ours | Found::FirstByteBack => {}
            Found::Breakpoint => return Err(Refusal::Breakpoint.into()),
            Found::Other(_) => return Err(changed()),
        }
        let identity = ObjectIdentity { link_address: wanted.site.address, ..object.identity };
        let site = n.space.add_site(address, &tail, identity).map_err(stub_refused)?;
        Landings::of(n).write(&pieces).map_err(Failure::All)?;
        let known = self.core.stubs.get(&(n.inode, address));
        if known.is_none() {
            let session = self.core.sessions.get(&n.inode).ok_or(Failure::Site(Refusal::OutOfReach))?;
            let spec = StubSpec {
                event: wanted.event,
                predicates: wanted.predicates.clone(),
                action: wanted.action.clone(),
                load_bias: object.bias,
                own_file: object.own_file.clone(),
                above: way.above,
                heap: object.heap,
            };
            let chained = n.space.chained_stub(&site, session, &spec).map_err(stub_refused)?;
            let (stub, is_linked) = match chained {
                Some(stub) => (stub, true),
                None => (n.space.add_stub(&site, session, &spec).map_err(stub_refused)?, false),
            };
            self.core.layouts.entry(wanted.event).or_insert_with(|| stub.layout.clone());
            self.core.stubs.insert((n.inode, address), (stub, is_linked));
        }
        self.claims.add(address, way);
        let n = &self.core.neighbourhoods[at];
        let semaphore = wanted.site.semaphore.map(|s| object.bias.wrapping_add(s.address));
        let open = OpenSite {
            probe: wanted.probe.clone(),
            address,
            tactic: way.tactic,
            patch,
            semaphore,
            space: n.address(),
        };
        Ok(Ready {
            site: open,
            form: way.form(),
            distance,
            entry_semaphore: None,
            landing_pages: pages(&pieces),
            neighbourhood: at,
            report: 0,
        })
    }

    /// How far the jump goes, and what must be where it lands: right at the thunk if it can go there, else at the first
    /// place where it and its guards all have room.
    fn choose(
        &self,
        n: &Neighbourhood,
        way: &Way,
        place: &Place<'_>,
    ) -> std::result::Result<(u32, Vec<Piece>), Failure> {
        let thunk = n.space.thunk(place.address);
        if way.distance.is_free() {
            let distance = way.distance_to(thunk).ok_or(Failure::Site(Refusal::OutOfReach))?;
            return Ok((distance, Vec::new()));
        }
        let landings = Landings::of(n);
        // What stands there, then what has been there, then just below the stub space, where nothing grows.
        let mut candidates = n.space.distances(way.patch, way.patch_len, way.form());
        candidates.retain(|distance| way.distance.allows(*distance));
        candidates.sort_by_key(|distance| !place.has(way, *distance));
        let wanted = n.address().wrapping_sub(PAGE).wrapping_sub(way.jump) as i64;
        candidates.extend(way.distance.candidates(wanted));
        let (mut refusal, mut met) = (None, None);
        for distance in candidates {
            let (main, guards) = way.landings(distance);
            met = met.or(Some(main));
            for attempt in 0..ATTEMPTS {
                let all = guards.iter().copied().chain([main]);
                let Some(pieces) = pieces(all, thunk, attempt) else { continue };
                match self.can_land(n, &landings, main, &pieces, way.is_narrow) {
                    Ok(true) => return Ok((distance, pieces)),
                    Ok(false) => {}
                    Err(reason) => {
                        refusal = refusal.or(Some(reason));
                        break;
                    }
                }
            }
        }
        let meets = |address| {
            let by = "another probe's landing".to_owned();
            Refusal::LandingTaken { address, by }
        };
        Err(refusal.or(met.map(meets)).unwrap_or(Refusal::OutOfReach).into())
    }

    /// Whether the pieces meet no other site's, in pages that are all ours in this process, or free.
    fn can_land(
        &self,
        n: &Neighbourhood,
        landings: &Landings<'_>,
        main: u64,
        pieces: &[Piece],
        is_narrow: bool,
    ) -> std::result::Result<bool, Refusal> {
        let refused = |page: u64, by: String| {
            let is_main = page == main & !(PAGE - 1);
            let guard = pieces.iter().map(|p| p.address).find(|a| a & !(PAGE - 1) == page);
            match guard {
                Some(address) if !is_main => Refusal::GuardTaken { address, by },
                _ => Refusal::LandingTaken { address: main, by },
            }
        };
        for page in pages(pieces) {
            let is_ours = self.maps.find(page).is_some_and(|r| r.inode == n.inode);
            if is_ours && landings.has(page) {
                continue;
            }
            let verdict =
                if is_narrow { self.room.check_narrowly(page, PAGE) } else { self.room.check(page, PAGE) };
            verdict.map_err(|by| refused(page, by))?;
        }
        Ok(landings.fit(pieces))
    }
}

fn not_movable(landing: &Refusal, reason: &str) -> Refusal {
    Refusal::NotMovable { landing: Box::new(landing.clone()), reason: reason.to_owned() }
}

fn stub_refused(error: StubError) -> Failure {
    match error {
        StubError::SpaceFull { .. } | StubError::JournalFull => Failure::All(stub_failed(error)),
        other => Failure::Site(Refusal::Stub(other.to_string())),
    }
}
