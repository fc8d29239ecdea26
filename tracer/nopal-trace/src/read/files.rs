//! Which files of a trace's folder are one stream: with a limit on their size a stream has several, `channel0_1_0`,
//! `channel0_1_1` and so on, of which the oldest may be gone.

use super::decode::Scratch;
use super::packet::{Head, read_head};
use super::trace::Trace;
use nopal_files::foreign;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of a stream, the older first: one at least.
#[derive(Debug)]
pub(crate) struct StreamFiles {
    pub paths: Vec<PathBuf>,
    pub trace: usize,
    /// Their size is limited, so that the first packet that is there need not be the stream's first.
    pub is_limited: bool,
    /// Events from this time on are in a later snapshot, too.
    pub repeated_from_ns: Option<i64>,
}

impl StreamFiles {
    fn new(paths: Vec<PathBuf>, trace: usize, is_limited: bool) -> StreamFiles {
        StreamFiles { paths, trace, is_limited, repeated_from_ns: None }
    }

    /// How many packets it had, as its last one tells; those that went with the oldest files are among them.
    pub(super) fn n_packets(&self, trace: &Trace) -> u64 {
        let Some(file) = self.paths.last().and_then(|path| foreign::open(path).ok()) else { return 0 };
        let n_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let (mut scratch, mut offset, mut n_packets) = (Scratch::default(), 0, 0);
        while offset < n_bytes
            && let Ok(head) = read_head(trace, &file, offset, n_bytes, &mut scratch)
            && let (Some(number), Some(bits @ 8..)) = (head.seq_num, head.packet_bits)
        {
            n_packets = number.saturating_add(1);
            offset += bits / 8;
        }
        n_packets
    }
}

/// The name without the number of the file, class and instance.
type StreamKey = (String, usize, Option<u64>);

/// The streams that the files of a trace are.
pub(super) fn streams_of(trace: &Trace, index: usize, paths: Vec<PathBuf>) -> Vec<StreamFiles> {
    let mut streams = Vec::new();
    // By what stands before the number of the file, and by what its packets say.
    let mut numbered: BTreeMap<StreamKey, Vec<(Option<u64>, PathBuf)>> = BTreeMap::new();
    for path in paths {
        let head = |file| Some((file, first_head(trace, &path)?));
        match numbered_file(&path).and_then(head) {
            Some(((stem, cpu), head)) if head.cpu.is_none_or(|of_head| of_head == cpu) => {
                let order = head.seq_num.or(head.begin);
                numbered.entry((stem, head.class, head.instance)).or_default().push((order, path));
            }
            _ => streams.push(StreamFiles::new(vec![path], index, false)),
        }
    }
    for mut files in numbered.into_values() {
        files.sort();
        let paths = files.into_iter().map(|(_, path)| path).collect();
        streams.push(StreamFiles::new(paths, index, true));
    }
    streams.sort_by(|a, b| a.paths.cmp(&b.paths));
    streams
}

/// `channel0_3` and 3 of `channel0_3_12`: the stream of a CPU, of which it is one file.
fn numbered_file(path: &Path) -> Option<(String, u64)> {
    let (stem, _) = split_number(path.file_name()?.to_str()?)?;
    let (_, cpu) = split_number(stem)?;
    Some((stem.to_owned(), cpu))
}

fn split_number(name: &str) -> Option<(&str, u64)> {
    let (stem, number) = name.rsplit_once('_')?;
    number.parse().ok().map(|number| (stem, number))
}

pub(super) fn first_head(trace: &Trace, path: &Path) -> Option<Head> {
    let file = foreign::open(path).ok()?;
    let n_bytes = file.metadata().ok()?.len();
    read_head(trace, &file, 0, n_bytes, &mut Scratch::default()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_two_numbers_are_one_of_many_files() {
        for (name, expected) in [
            ("channel0_3_12", Some(("channel0_3", 3))),
            ("my_0_1", Some(("my_0", 0))),
            ("channel0_3", None),
            ("channel0", None),
            ("a_b_1", None),
            ("channel0_3_x", None),
        ] {
            let found = numbered_file(Path::new(name));
            assert_eq!(found, expected.map(|(stem, cpu)| (stem.to_owned(), cpu)), "{name}");
        }
    }
}
