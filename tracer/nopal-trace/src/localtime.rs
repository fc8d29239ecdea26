//! Times as people write them: of day, with the date, or seconds since the epoch; in the zone of this machine or UTC.

use crate::digits;

const NS: i64 = 1_000_000_000;

/// How a time is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockText {
    /// `15:30:19.334467738`
    #[default]
    Time,
    /// `2026-11-15 15:30:19.334467738`
    Date,
    /// `1794710565.288971038`
    Seconds,
}

/// The text of the current second, made anew when it changes.
#[derive(Debug)]
pub struct Second {
    form: ClockText,
    is_utc: bool,
    second: i64,
    text: Vec<u8>,
}

impl Second {
    pub fn new(form: ClockText, is_utc: bool) -> Self {
        Second { form, is_utc, second: i64::MIN, text: Vec::new() }
    }

    #[inline]
    pub fn print(&mut self, ns: i64, out: &mut Vec<u8>) {
        let second = ns.div_euclid(NS);
        if second != self.second {
            self.change(second);
        }
        out.extend_from_slice(&self.text);
        digits::nine(out, ns.rem_euclid(NS) as u32);
    }

    fn change(&mut self, second: i64) {
        self.second = second;
        let text = match self.form {
            ClockText::Seconds => format!("{second}."),
            ClockText::Time | ClockText::Date => {
                let t = broken_down(second, self.is_utc);
                let time = format!("{:02}:{:02}:{:02}.", t.tm_hour, t.tm_min, t.tm_sec);
                if self.form == ClockText::Time {
                    time
                } else {
                    format!("{:04}-{:02}-{:02} {time}", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday)
                }
            }
        };
        self.text = text.into_bytes();
    }
}

/// One moment as text.
pub fn text_of(ns: i64, form: ClockText, is_utc: bool) -> String {
    let mut out = Vec::new();
    Second::new(form, is_utc).print(ns, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn broken_down(second: i64, is_utc: bool) -> libc::tm {
    // SAFETY: all-zero bytes are a valid tm.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of this frame; the functions write only the tm.
    unsafe {
        if is_utc {
            libc::gmtime_r(&second, &mut tm);
        } else {
            libc::localtime_r(&second, &mut tm);
        }
    }
    tm
}

/// Reads `15:30:19[.5]` (on the day of `day_of_ns`), `2026-11-15 15:30:19[.5]` (also with a `T`), or seconds since the
/// epoch. `None` if it is none of these.
pub fn parse(text: &str, day_of_ns: i64, is_utc: bool) -> Option<i64> {
    let text = text.trim();
    let (main, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let fraction_ns: i64 = format!("{fraction:0<9}").parse().ok()?;
    if let Ok(second) = main.parse::<i64>() {
        return second.checked_mul(NS)?.checked_add(fraction_ns);
    }
    let mut tm = broken_down(day_of_ns.div_euclid(NS), is_utc);
    let time = match main.split_once([' ', 'T']) {
        Some((date, time)) => {
            let mut parts = date.split('-');
            tm.tm_year = parts.next()?.parse::<i32>().ok()?.checked_sub(1900)?;
            tm.tm_mon = in_range(parts.next()?, 1, 12)? - 1;
            tm.tm_mday = in_range(parts.next()?, 1, 31)?;
            if parts.next().is_some() {
                return None;
            }
            time
        }
        None => main,
    };
    let mut parts = time.split(':');
    tm.tm_hour = in_range(parts.next()?, 0, 23)?;
    tm.tm_min = in_range(parts.next()?, 0, 59)?;
    tm.tm_sec = parts.next().map_or(Some(0), |s| in_range(s, 0, 60))?;
    if parts.next().is_some() {
        return None;
    }
    // Whether summer time applies is for the library to find out.
    tm.tm_isdst = -1;
    // SAFETY: tm is a live value of this frame with every field in the range C asks for.
    let second = unsafe { if is_utc { libc::timegm(&mut tm) } else { libc::mktime(&mut tm) } };
    second.checked_mul(NS)?.checked_add(fraction_ns)
}

fn in_range(text: &str, first: i32, last: i32) -> Option<i32> {
    text.parse().ok().filter(|n| (first..=last).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_and_read_back() {
        let ns = 1_794_710_565_288_971_038;
        for (form, text) in [
            (ClockText::Time, "02:42:45.288971038"),
            (ClockText::Date, "2026-11-15 02:42:45.288971038"),
            (ClockText::Seconds, "1794710565.288971038"),
        ] {
            assert_eq!(text_of(ns, form, true), text);
            assert_eq!(parse(text, ns, true), Some(ns), "{text}");
        }
        assert_eq!(parse("02:42", ns, true), Some(1_794_710_520_000_000_000));
        assert_eq!(parse("2026-11-15T02:42:45.5", 0, true), Some(1_794_710_565_500_000_000));
        for wrong in ["", "x", "25:00:00", "1:2:3:4", "2026-13-01 00:00:00", "1.1234567890"] {
            assert_eq!(parse(wrong, ns, true), None, "{wrong}");
        }
    }
}
