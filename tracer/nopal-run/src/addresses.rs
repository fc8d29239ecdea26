//! Numbers a script asks for by name: addresses of symbols, cgroups.

use nopal_proc::Image;
use nopal_program::{Place, Point, PointKind};
use nopal_script::catalog::UserSymbol;
use object::{Object as _, ObjectKind, ObjectSymbol as _, ReadRef};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// PROC_PID_INIT_INO of the kernel.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// Of the kernel; root alone sees them.
pub(crate) fn of_kernel(symbol: &str) -> Option<u64> {
    in_kallsyms(&String::from_utf8_lossy(&std::fs::read("/proc/kallsyms").ok()?), symbol)
}

fn in_kallsyms(text: &str, symbol: &str) -> Option<u64> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
        (words.nth(1) == Some(symbol)).then_some(address)
    };
    text.lines().find_map(line)
}

/// Of the file of a point, or why there is none.
pub(crate) fn of_program(point: &Point, symbol: &str) -> Result<UserSymbol, String> {
    let (PointKind::Usdt { path, .. } | PointKind::Uprobe { path, .. } | PointKind::Uretprobe { path, .. }) =
        &point.kind
    else {
        return Err(format!("`{}` is in no file", point.name));
    };
    let image = Image::open(Path::new(path)).map_err(|e| format!("{path}: {e}"))?;
    let file = object::File::parse(image.bytes()).map_err(|e| format!("{path}: {e}"))?;
    let found = file
        .symbols()
        .chain(file.dynamic_symbols())
        .find(|found| found.name() == Ok(symbol) && !found.is_undefined() && found.address() != 0);
    let Some(found) = found else { return Err(format!("{path} has no symbol `{symbol}`")) };
    let (address, size_bytes) = (found.address(), found.size());
    if file.kind() == ObjectKind::Executable {
        return Ok(UserSymbol { is_relative: false, address, size_bytes });
    }
    match address_of(&point.kind, &file, image.bytes()) {
        Some(own) => Ok(UserSymbol { is_relative: true, address: address.wrapping_sub(own), size_bytes }),
        None => Err(format!("{path} is position independent, its `{symbol}` is elsewhere in each process")),
    }
}

/// The link-time address of the instruction that a point is at, if it is one.
fn address_of<'d, R: ReadRef<'d>>(kind: &PointKind, file: &object::File<'d, R>, bytes: R) -> Option<u64> {
    match kind {
        PointKind::Uprobe { place: Place::Address(address), .. } => Some(*address),
        PointKind::Uprobe { place: Place::Symbol { name, offset }, .. } => {
            let mut symbols = file.symbols().chain(file.dynamic_symbols());
            let found = symbols.find(|found| found.name() == Ok(name) && !found.is_undefined())?;
            found.address().checked_add(*offset)
        }
        PointKind::Usdt { provider, name, .. } => {
            let probes = nopal_sdt::read(bytes).ok()?.probes;
            let probe = probes.iter().find(|probe| probe.provider == *provider && probe.name == *name)?;
            match &probe.sites[..] {
                [site] => Some(site.address),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Of a folder of the second version's hierarchy: the number the kernel has for it.
pub(crate) fn of_cgroup(path: &str) -> Option<u64> {
    let name = std::ffi::CString::new(path).ok()?;
    // SAFETY: a zeroed statfs is a valid value of a struct of numbers; the name ends in a NUL and lives through the call.
    let kind = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        (libc::statfs(name.as_ptr(), &mut stat) == 0).then_some(stat.f_type)
    };
    (kind? == CGROUP2_MAGIC).then(|| std::fs::metadata(path).ok().map(|stat| stat.ino()))?
}

/// Whether this process sees the numbers that the whole machine has for processes. The initial namespace has a number of its own.
pub(crate) fn has_initial_pids() -> bool {
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|stat| stat.ino() == INITIAL_PID_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_the_kernel() {
        let text =
            "0000000000000000 T hidden\nffffffff81000000 T _text\nffffffff81000100 t helper\t[module]\n";
        for (symbol, want) in [
            ("_text", Some(0xffff_ffff_8100_0000)),
            ("helper", Some(0xffff_ffff_8100_0100)),
            ("hidden", None),
        ] {
            assert_eq!(in_kallsyms(text, symbol), want, "{symbol}");
        }
    }

    #[test]
    fn a_folder_that_is_no_cgroup_has_no_number() {
        assert_eq!((of_cgroup("/tmp"), of_cgroup("/nothing")), (None, None));
    }

    #[test]
    fn what_has_no_address_says_why() {
        let own = std::env::current_exe().expect("this test").to_string_lossy().into_owned();
        let place = nopal_program::Place::Address(0);
        let point = |kind| Point { name: "it".into(), kind };
        let behind = point(PointKind::Uretprobe { path: own.clone(), place: place.clone() });
        let own = point(PointKind::Uprobe { path: own, place });
        for (point, symbol, want) in [
            (point(PointKind::Begin), "main", "in no file"),
            (own, "no_such_symbol", "has no symbol `no_such_symbol`"),
            (behind, "main", "position independent"),
        ] {
            let found = of_program(&point, symbol);
            assert!(found.as_ref().is_err_and(|why| why.contains(want)), "{found:?}");
        }
    }
}
