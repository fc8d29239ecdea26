//! The functions that a script names in one file, as sites: where each is entered, and every place where it is left.

use super::Note;
use nopal_proc::file_functions::{Edges, FileFunctions, Unfit};
use nopal_proc::symbols::Function;
use nopal_program::Place;
use nopal_sdt::probe::Site;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A point of a script that is a function of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FunctionPoint<'p> {
    /// Clause and point.
    pub at: (u32, u32),
    pub name: &'p str,
    pub place: &'p Place,
    pub is_return: bool,
    /// Whether its clause asks what the function returns.
    pub needs_value: bool,
}

/// One place of a function, and what runs there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FunctionSite {
    pub name: String,
    pub site: Site,
    pub runs: Vec<(u32, u32)>,
}

/// The points of one function, whatever it is called.
#[derive(Debug, Default)]
struct Wished<'p> {
    size_bytes: u64,
    symbol: String,
    entry: Vec<FunctionPoint<'p>>,
    exits: Vec<FunctionPoint<'p>>,
    /// Not at the beginning of a function.
    is_inside: bool,
}

/// Where a file has static probes.
#[derive(Debug, Default)]
pub(super) struct StaticSites {
    /// Left to the kernel door where a function begins there.
    pub all: HashSet<u64>,
    /// Those that the script opens itself: nothing can be opened besides.
    pub opened: HashSet<u64>,
}

/// The sites of these points, and what there is to be told of those without.
pub(super) fn function_sites(
    file: &FileFunctions,
    points: &[FunctionPoint<'_>],
    taken: &StaticSites,
) -> (Vec<FunctionSite>, Vec<Note>) {
    let (wished, mut notes) = by_address(file, points);
    let mut sites: Vec<FunctionSite> = Vec::new();
    let mut known: HashSet<u64> = taken.all.clone();
    for (address, wish) in &wished {
        let name = wish.entry.iter().chain(&wish.exits).map(|point| point.name).next().unwrap_or_default();
        if taken.opened.contains(address) {
            notes.push(Note::Gap(format!("{name}: not open, a static probe is at its entry; trace that")));
            continue;
        }
        if wish.is_inside {
            match file.place(*address) {
                Some(site) if wish.exits.is_empty() => sites.push(of(&wish.entry, site)),
                Some(_) => notes.push(Note::Gap(format!("{name}: not open, only whole functions return"))),
                None => notes.push(Note::Gap(format!("{name}: not open, {}", Unfit::NotCode))),
            }
            continue;
        }
        let function =
            Function { address: *address, size_bytes: wish.size_bytes, name: wish.symbol.as_str() };
        let edges = match file.edges(&function) {
            Ok(edges) => edges,
            Err(unfit) => {
                notes.push(Note::Gap(format!("{name}: not open, {unfit}")));
                continue;
            }
        };
        let mut asked = wish.exits.as_slice();
        if let Err(unfit @ Unfit::Unreturning { .. }) = &edges.exits
            && let Some(point) = asked.first()
        {
            notes.push(Note::Gap(format!("{}: not open, {unfit}", point.name)));
            asked = &[];
        }
        let exits = exits_of(&edges, asked, &known);
        if !wish.entry.is_empty() {
            known.insert(*address);
            let mut entry = edges.entry.clone();
            let why = if exits.is_err() {
                // The kernel's breakpoint would stand in the place of ours.
                Some("the kernel sees its returns, and has a breakpoint on its entry")
            } else {
                taken.all.contains(address).then_some("a static probe is at its entry")
            };
            if let (Some(why), Some(edge)) = (why, &mut entry.edge) {
                edge.unfit = Some(why.to_owned());
            }
            sites.push(of(&wish.entry, entry));
        }
        match exits {
            Ok(exits) if exits.is_empty() && !asked.is_empty() => {
                notes.push(Note::Detail(format!("{name}: it never returns")));
            }
            Ok(exits) => {
                known.extend(exits.iter().map(|site| site.address));
                sites.extend(exits.into_iter().map(|site| of(&wish.exits, site)));
            }
            Err(reason) => sites.push(of(&wish.exits, edges.any_return(reason))),
        }
    }
    (sites, notes)
}

fn of(points: &[FunctionPoint<'_>], site: Site) -> FunctionSite {
    let name = points.first().map(|point| point.name.to_owned()).unwrap_or_default();
    FunctionSite { name, site, runs: points.iter().map(|point| point.at).collect() }
}

/// Where a function is left; or why only the kernel can tell when it is, on its own way.
fn exits_of(edges: &Edges, points: &[FunctionPoint<'_>], known: &HashSet<u64>) -> Result<Vec<Site>, String> {
    if points.is_empty() {
        return Ok(Vec::new());
    }
    let exits = edges.exits.as_ref().map_err(Unfit::to_string)?;
    if edges.has_tails() && points.iter().any(|point| point.needs_value) {
        return Err(
            "it goes on to another function at its end, where there is no return value yet".to_owned()
        );
    }
    if exits.iter().any(|site| known.contains(&site.address)) {
        return Err("something else is traced where it is left".to_owned());
    }
    Ok(exits.clone())
}

/// The points by the address of their function; and why some have none.
fn by_address<'p>(
    file: &FileFunctions,
    points: &[FunctionPoint<'p>],
) -> (BTreeMap<u64, Wished<'p>>, Vec<Note>) {
    let mut wished: BTreeMap<u64, Wished<'p>> = BTreeMap::new();
    let mut missing = Vec::new();
    let by_name: HashMap<&str, Vec<Function<'_>>> = file.symbols().by_name();
    for point in points {
        let functions: Vec<(u64, u64, String)> = match point.place {
            Place::Address(address) => {
                let function = file.symbols().at(*address).filter(|function| function.address == *address);
                let (size, name) = function.map_or((0, ""), |function| (function.size_bytes, function.name));
                vec![(*address, size, name.to_owned())]
            }
            Place::Symbol { name, offset } => {
                let named = by_name.get(name.as_str()).cloned().unwrap_or_else(|| file.symbols().named(name));
                let place =
                    |f: Function<'_>| (f.address.wrapping_add(*offset), f.size_bytes, f.name.to_owned());
                let is_in = |f: &Function<'_>| f.size_bytes == 0 || *offset < f.size_bytes;
                named.into_iter().filter(is_in).map(place).collect()
            }
        };
        if functions.is_empty() {
            missing.push(Note::Gap(format!("{}: the file has no such function", point.name)));
        }
        for (address, size_bytes, symbol) in functions {
            let is_inside = match point.place {
                Place::Address(_) => !file.is_start(address),
                Place::Symbol { offset, .. } => *offset != 0,
            };
            let wish = wished.entry(address).or_default();
            if wish.symbol.is_empty() {
                (wish.size_bytes, wish.symbol, wish.is_inside) = (size_bytes, symbol, is_inside);
            }
            // Two names of one function in one script are still one function.
            let same = if point.is_return { &mut wish.exits } else { &mut wish.entry };
            same.push(*point);
        }
    }
    (wished, missing)
}
