//! Snapshots of one flight recorder: each has what the rings hold at its time, so that later ones have much of the earlier ones
//! again. A ring holds the newest events without a hole: what it has at all of a stream it has from some time on. Of two rings
//! nothing follows, be they those of a channel that was opened anew, of a session that was started again, or of another machine.

use super::files::{StreamFiles, first_head};
use super::trace::Trace;
use std::path::{Path, PathBuf};

/// A stream of a snapshot.
struct Taken {
    /// The output of the session, and the number of the snapshot.
    output: PathBuf,
    number: u64,
    /// What names the rings, wherever and whenever they were.
    rings: String,
    class: usize,
    instance: Option<u64>,
    /// Of its first packet, in the clock of the recordings: each of them has found out anew what leads from there to the epoch.
    begin: u64,
}

/// Says of each stream from when on its events are in a later snapshot as well.
pub(super) fn find_repeated(traces: &[Trace], streams: &mut [StreamFiles]) {
    let outputs: Vec<(PathBuf, u64)> = traces.iter().filter_map(|trace| snapshot_of(&trace.dir)).collect();
    if !outputs.iter().any(|(output, number)| outputs.iter().any(|(o, n)| o == output && n != number)) {
        return;
    }
    let taken: Vec<Option<Taken>> =
        streams.iter().map(|stream| taken(&traces[stream.trace], stream)).collect();
    for (stream, one) in streams.iter_mut().zip(&taken) {
        let Some(one) = one else { continue };
        let later = taken.iter().flatten().filter(|other| {
            other.number > one.number
                && other.output == one.output
                && (&other.rings, other.class, other.instance) == (&one.rings, one.class, one.instance)
        });
        let clock = traces[stream.trace].streams[one.class].clock;
        stream.repeated_from_ns =
            clock.zip(later.map(|other| other.begin).min()).map(|(clock, begin)| clock.ns(begin));
    }
}

fn taken(trace: &Trace, stream: &StreamFiles) -> Option<Taken> {
    let (output, number) = snapshot_of(&trace.dir).filter(|_| trace.is_ours)?;
    let head = first_head(trace, stream.paths.first()?)?;
    let rings = trace.env_text("rings").filter(|rings| !rings.is_empty())?.to_owned();
    Some(Taken { output, number, rings, class: head.class, instance: head.instance, begin: head.begin? })
}

/// `OUTPUT` and 3 of `OUTPUT/snapshot-3-20261119-035444-name/channel0`.
fn snapshot_of(dir: &Path) -> Option<(PathBuf, u64)> {
    let snapshot = dir.parent()?;
    let name = snapshot.file_name()?.to_str()?.strip_prefix("snapshot-")?;
    let number = name.split('-').next()?.parse().ok()?;
    Some((snapshot.parent()?.to_owned(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_known_by_its_folder() {
        for (dir, expected) in [
            ("/out/snapshot-3-20261119-035444-trigger/channel0", Some(("/out", 3))),
            ("/out/snapshot-12-20261119-035444/channel0-2", Some(("/out", 12))),
            ("/out/chunk-1/channel0", None),
            ("/out/snapshot-x/channel0", None),
            ("channel0", None),
        ] {
            let expected = expected.map(|(output, number)| (PathBuf::from(output), number));
            assert_eq!(snapshot_of(Path::new(dir)), expected, "{dir}");
        }
    }
}
