//! Time series, as bpftrace's newest releases draw them.

use super::Names;
use super::json;
use super::value::{self, Place};
use nopal_program::MapDef;
use nopal_program::series::{Points, Series};

/// Columns between the edges of the drawing.
const WIDTH: usize = 52;

/// The text of an interval's begin, and what its parts are.
struct Clock {
    parts: &'static str,
    digits: usize,
}

/// The coarsest part that tells intervals apart; all of them where there is one interval.
fn clock(series: Series, n_rows: usize) -> Clock {
    let (parts, digits) = match series.interval_ns {
        _ if n_rows == 1 => ("hh:mm:ss.ns", 9),
        n if n % 1_000_000_000 == 0 => ("hh:mm:ss", 0),
        n if n % 1_000_000 == 0 => ("hh:mm:ss.ms", 3),
        n if n % 1_000 == 0 => ("hh:mm:ss.us", 6),
        _ => ("hh:mm:ss.ns", 9),
    };
    Clock { parts, digits }
}

impl Clock {
    /// `time` is that of its second.
    fn text(&self, time: &str, ns: u64) -> String {
        let fraction = format!("{:09}", ns % 1_000_000_000);
        match self.digits {
            0 => time.to_owned(),
            digits => format!("{time}.{}", &fraction[..digits]),
        }
    }

    fn width(&self) -> usize {
        "hh:mm:ss".len() + if self.digits > 0 { 1 + self.digits } else { 0 }
    }
}

/// The keys of one map with what is shown of each, which is nothing after `zero()`; those that have nothing in the newest
/// intervals are left out.
fn rows(
    series: Series,
    entries: &[(Vec<u8>, Points)],
) -> impl Iterator<Item = (&[u8], Vec<(u64, Option<i128>)>)> {
    let newest = entries.iter().filter_map(|(_, points)| points.newest()).max().unwrap_or(0);
    entries
        .iter()
        .map(move |(key, points)| (&key[..], points.shown(series, newest), points.newest().is_none()))
        .filter(|(_, shown, is_zeroed)| *is_zeroed || !shown.is_empty())
        .map(|(key, shown, _)| (key, shown))
}

pub(super) fn text(
    def: &MapDef,
    series: Series,
    entries: &[(Vec<u8>, Points)],
    names: &dyn Names,
    out: &mut Vec<u8>,
) {
    for (key, shown) in rows(series, entries) {
        out.extend_from_slice(def.name.as_bytes());
        if !def.key.is_empty() {
            out.push(b'[');
            value::tuple(&def.key, key, out, |member, bytes, out| {
                value::at(member, bytes, names, Place::Key, out);
            });
            out.push(b']');
        }
        if shown.is_empty() {
            out.extend_from_slice(b":\n<no data>\n");
            continue;
        }
        let clock = clock(series, shown.len());
        let lines = drawn(&clock, series.is_signed, &shown, |number| {
            let ns = number.saturating_mul(series.interval_ns);
            clock.text(&names.clock_time("%H:%M:%S", ns), ns)
        });
        out.extend_from_slice(format!(":\n{lines}\n").as_bytes());
    }
}

fn drawn(
    clock: &Clock,
    is_signed: bool,
    shown: &[(u64, Option<i128>)],
    time: impl Fn(u64) -> String,
) -> String {
    let values = || shown.iter().filter_map(|(_, value)| *value);
    let (mut low, mut high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    if low == high {
        (low, high) = match low {
            // Numbers without a sign have none below.
            0 if !is_signed => (0, 1),
            // The greatest number has no greater one.
            low if low == i128::from(u64::MAX) => (low - 1, low),
            low => (low - 1, low + 1),
        };
    }
    let column = |value: i128| ((value - low) * WIDTH as i128 / (high - low)) as usize;
    let width = clock.width();
    let blank = " ".repeat(width + 1);
    let scale =
        format!("{blank}{low}{high:>rest$}\n", rest = (WIDTH + 1).saturating_sub(low.to_string().len()));
    let line = "_".repeat(WIDTH - 1);
    let mut text = format!("{scale}{:<width$} |{line}|\n", clock.parts);
    for (number, value) in shown {
        let mut cells = vec![' '; WIDTH + 1];
        (cells[0], cells[WIDTH]) = ('|', '|');
        if low < 0 && high > 0 {
            cells[column(0)] = '.';
        }
        if let Some(value) = value {
            cells[column(*value)] = '*';
        }
        let cells: String = cells.into_iter().collect();
        let value = value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        text.push_str(&format!("{:<width$} {cells} {value}\n", time(*number)));
    }
    text.push_str(&format!("{blank}v{line}v\n{scale}"));
    text
}

/// bpftrace's line for it.
pub(super) fn json(
    def: &MapDef,
    series: Series,
    entries: &[(Vec<u8>, Points)],
    names: &dyn Names,
    out: &mut Vec<u8>,
) {
    let mut members = Vec::new();
    for (key, shown) in rows(series, entries) {
        if !members.is_empty() {
            members.extend_from_slice(b", ");
        }
        if !def.key.is_empty() {
            json::key(&def.key, key, names, &mut members);
            members.extend_from_slice(b": ");
        }
        array(series, &shown, names, &mut members);
    }
    if members.is_empty() {
        return;
    }
    out.extend_from_slice(b"{\"type\": \"tseries\", \"data\": {");
    json::string(def.name.as_bytes(), out);
    out.extend_from_slice(b": ");
    match def.key.is_empty() {
        true => out.extend_from_slice(&members),
        false => {
            out.push(b'{');
            out.extend_from_slice(&members);
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"}}\n");
}

/// Intervals without a value are left out.
fn array(series: Series, shown: &[(u64, Option<i128>)], names: &dyn Names, out: &mut Vec<u8>) {
    let one = |(number, value): &(u64, Option<i128>)| {
        let ns = number.saturating_mul(series.interval_ns);
        let start = Clock { parts: "", digits: 9 }.text(&names.clock_time("%Y-%m-%d %H:%M:%S", ns), ns);
        value.map(|value| format!("{{\"interval_start\":\"{start}\",\"value\":{value}}}"))
    };
    let values: Vec<String> = shown.iter().filter_map(one).collect();
    out.extend_from_slice(format!("[{}]", values.join(",")).as_bytes());
}

/// The rows of an answer, separated by commas.
pub fn json_rows(
    def: &MapDef,
    series: Series,
    entries: &[(Vec<u8>, Points)],
    names: &dyn Names,
    out: &mut Vec<u8>,
) {
    for (index, (key, shown)) in rows(series, entries).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::row_head(def, key, names, out);
        array(series, &shown, names, out);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drawn by bpftrace 0.27.
    #[test]
    fn drawn_as_bpftrace_draws_it() {
        let clock = Clock { parts: "hh:mm:ss", digits: 0 };
        let shown = [(2, Some(7)), (3, Some(-2)), (4, Some(4)), (5, None)];
        let want = [
            "         -2                                                  7\n",
            "hh:mm:ss |___________________________________________________|\n",
            "00:16:42 |          .                                        * 7\n",
            "00:16:43 *          .                                        | -2\n",
            "00:16:44 |          .                      *                 | 4\n",
            "00:16:45 |          .                                        | -\n",
            "         v___________________________________________________v\n",
            "         -2                                                  7\n",
        ]
        .concat();
        assert_eq!(drawn(&clock, true, &shown, |number| format!("00:16:{:02}", 40 + number)), want);
    }

    #[test]
    fn one_value_stands_in_the_middle_unless_it_is_the_greatest() {
        let clock = Clock { parts: "hh:mm:ss.ms", digits: 3 };
        let middle = drawn(&clock, true, &[(1, Some(9))], |_| "00:00:00.500".to_owned());
        assert!(middle.contains("hh:mm:ss.ms  |_"), "{middle}");
        assert!(middle.contains("|                         *                         | 9\n"), "{middle}");
        let greatest = drawn(&clock, false, &[(1, Some(i128::from(u64::MAX)))], |_| String::new());
        assert!(greatest.contains("18446744073709551614             18446744073709551615\n"), "{greatest}");
        assert!(greatest.contains(" * 18446744073709551615\n"), "{greatest}");
        let zero = drawn(&clock, false, &[(1, Some(0))], |_| String::new());
        assert!(zero.contains(" *                                                   | 0\n"), "{zero}");
    }
}
