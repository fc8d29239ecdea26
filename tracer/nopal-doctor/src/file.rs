//! A program or library on disk: what about its probes is in a tracer's way.

use crate::Finding;
use nopal_sdt::Object;
use nopal_sdt::operand::Arch;
use nopal_user::tactic;
use object::read::elf::FileHeader;
use object::{Endianness, ReadRef, elf};
use std::collections::BTreeSet;

const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// What is in the way of tracing the probes of a file.
pub fn file<'data, R: ReadRef<'data>>(name: &str, bytes: R, object: &Object) -> Vec<Finding> {
    if object.probes.is_empty() {
        return vec![Finding::notice(
            "no-probes",
            format!("{name} has no probes"),
            "many projects switch them on when they are built: --enable-dtrace, -Ddtrace=true, --with-dtrace",
        )];
    }
    if object.is_debug_copy {
        return vec![Finding::problem(
            "debug-file",
            format!("{name} is a separate debug file: it has the notes of the probes and none of the code"),
            "name the program itself",
        )];
    }
    let n_sites = object.n_sites();
    let probes = match object.probes.len() {
        1 => "1 probe".to_owned(),
        n => format!("{n} probes"),
    };
    let mut findings = vec![Finding::fine("probes", format!("{name} has {probes} at {n_sites} places"))];
    findings.extend(notes(name, bytes, object));
    findings.extend(machine(name, object));
    findings.extend(semaphores(name, object));
    findings.extend(sites(name, object));
    findings.extend(arguments(name, object));
    findings
}

/// Notes that were lost or are of no use.
fn notes<'data, R: ReadRef<'data>>(name: &str, bytes: R, object: &Object) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !has_base(bytes) {
        findings.push(Finding::notice(
            "no-base",
            format!(
                "{name} has no section .stapsdt.base: if it is prelinked or moved, its addresses are wrong"
            ),
            "link it without a script that drops .stapsdt.base, or with nopal's <sys/sdt.h>",
        ));
    }
    if object.n_ghosts > 0 {
        findings.push(Finding::notice(
            "ghosts",
            format!(
                "{} of {name} outlived their code: the linker threw the function away",
                plural(object.n_ghosts, "note")
            ),
            "nothing is lost; --gc-sections leaves none behind with nopal's <sys/sdt.h>",
        ));
    }
    for warning in &object.warnings {
        findings.push(Finding::problem(
            "bad-note",
            format!("{name}: {warning}"),
            "`readelf -n` shows the notes; build it again, or report it to who built it",
        ));
    }
    findings
}

fn has_base<'data, R: ReadRef<'data>>(bytes: R) -> bool {
    fn look<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(bytes: R) -> Option<bool> {
        let header = Elf::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, bytes).ok()?;
        let is_base =
            |section| sections.section_name(endian, section).is_ok_and(|name| name == b".stapsdt.base");
        Some(sections.iter().any(is_base))
    }
    let found = look::<elf::FileHeader64<Endianness>, R>(bytes);
    // Where the table of sections is gone nobody can tell.
    found.or_else(|| look::<elf::FileHeader32<Endianness>, R>(bytes)).unwrap_or(true)
}

fn machine(name: &str, object: &Object) -> Option<Finding> {
    if object.arch == Some(Arch::X86_64) {
        return None;
    }
    let what = match object.arch {
        Some(_) => format!("{name} is for arm64"),
        None if !object.is_64_bit => format!("{name} is a 32-bit file"),
        None => format!("{name} is for another machine"),
    };
    Some(Finding::problem("machine", what, "its probes can be listed; tracing needs a 64-bit x86 program"))
}

/// A probe whose places have a semaphore each: a tracer that raises the first sees the others closed.
fn semaphores(name: &str, object: &Object) -> Option<Finding> {
    let is_split = |probe: &&nopal_sdt::probe::Probe| {
        let semaphores: BTreeSet<_> =
            probe.sites.iter().map(|site| site.semaphore.map(|semaphore| semaphore.address)).collect();
        semaphores.len() > 1
    };
    let first = object.probes.iter().find(is_split)?;
    let n = object.probes.iter().filter(is_split).count();
    Some(Finding::notice(
        "semaphores",
        format!(
            "{} of {name}, such as {}:{}, {} not one semaphore for all places; nopal raises each, other tracers may \
             raise one",
            plural(n, "probe"),
            first.provider,
            first.name,
            if n == 1 { "has" } else { "have" }
        ),
        "build all its objects with one `dtrace -G` result, or with nopal's <sys/sdt.h>",
    ))
}

/// Which places each door leaves to the other.
fn sites(name: &str, object: &Object) -> Vec<Finding> {
    let mut findings = Vec::new();
    if object.arch != Some(Arch::X86_64) {
        return findings;
    }
    let sites = || object.probes.iter().flat_map(|probe| probe.sites.iter().map(move |site| (probe, site)));
    let addresses: BTreeSet<u64> = sites().map(|(_, site)| site.address).collect();
    let next = |address: u64| addresses.range(address + 1..).next().copied();
    let closed: Vec<_> = sites()
        .filter(|(_, site)| tactic::ways(site.address, &site.code, next(site.address)).is_err())
        .collect();
    if let Some((probe, _)) = closed.first() {
        findings.push(Finding::notice(
            "user-door",
            format!(
                "{} of {name}, such as {}:{}, cannot be opened by the user door, whatever is around {}",
                plural(closed.len(), "place"),
                probe.provider,
                probe.name,
                if closed.len() == 1 { "it" } else { "them" }
            ),
            "the kernel door opens them, as root; `nopal trace -v` says why",
        ));
    }
    let wide: Vec<_> = sites().filter(|(_, site)| site.code.starts_with(&NOP5)).collect();
    if let Some((probe, _)) = wide.first() {
        findings.push(Finding::notice(
            "nop5",
            format!(
                "{} of {name}, such as {}:{}, {} 5-byte nops: kernels from 6.18 on put a call there, which destroys \
                 variables of a function that calls no other function",
                plural(wide.len(), "place"),
                probe.provider,
                probe.name,
                if wide.len() == 1 { "is a" } else { "are" }
            ),
            "nopal's kernel door leaves such functions alone; other tracers do not",
        ));
    }
    findings
}

fn arguments(name: &str, object: &Object) -> Option<Finding> {
    let unreadable = object
        .probes
        .iter()
        .flat_map(|probe| probe.sites.iter().flat_map(|site| &site.args).map(move |arg| (probe, arg)))
        .filter(|(_, arg)| arg.operand.is_err());
    let all: Vec<_> = unreadable.collect();
    let (probe, arg) = all.first()?;
    let why = arg.operand.as_ref().err().map(ToString::to_string).unwrap_or_default();
    Some(Finding::notice(
        "arguments",
        format!(
            "{} of {name} cannot be read, such as `{}` of {}:{}: {why}",
            plural(all.len(), "argument"),
            arg.text,
            probe.provider,
            probe.name
        ),
        "the other arguments are there; build with -O2 -g, or pass the value in a variable",
    ))
}

fn plural(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}
