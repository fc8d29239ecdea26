//! memcached's text protocol: `get gets set add replace delete incr decr touch flush_all stats version quit`.

use crate::probes::{memcached, text};
use crate::server::{Connection, Progress};
use crate::store::{Entry, MAX_KEY_BYTES, MAX_VALUE_BYTES, Store};
use std::io::Write;

/// Longest line, its end included.
const MAX_LINE_BYTES: usize = 2048;
/// Values of one `get` together.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// An expiry time up to this many seconds, 30 days, counts from now; a larger one is a time since the epoch.
const MAX_RELATIVE_S: i64 = 30 * 24 * 60 * 60;

const ERROR: &str = "ERROR";
const BAD_LINE: &str = "CLIENT_ERROR bad command line format";
const NO_NUMBER: &str = "CLIENT_ERROR invalid numeric delta argument";

#[derive(Debug, PartialEq, Eq)]
enum Request<'a> {
    Get { keys: Vec<&'a [u8]>, has_cas: bool },
    Store { how: How, key: &'a [u8], flags: u32, exptime: i64, value: &'a [u8], is_quiet: bool },
    Delete { key: &'a [u8], is_quiet: bool },
    Count { key: &'a [u8], is_up: bool, by: u64, is_quiet: bool },
    Touch { key: &'a [u8], exptime: i64, is_quiet: bool },
    FlushAll { is_quiet: bool },
    Stats,
    Version,
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Set,
    Add,
    Replace,
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed<'a> {
    /// There is more to come.
    Partial,
    Request {
        request: Request<'a>,
        line: &'a [u8],
        n_bytes: usize,
    },
    Wrong {
        reply: &'static str,
        n_bytes: usize,
    },
    /// Wrong, and where the next request starts cannot be told.
    Lost {
        reply: &'static str,
    },
}

/// Carries out the request at the start of `input`.
pub(crate) fn serve(input: &[u8], connection: &Connection<'_>, now_ms: u64, out: &mut Vec<u8>) -> Progress {
    match parse(input) {
        Parsed::Partial => Progress::Wait,
        Parsed::Wrong { reply, n_bytes } => {
            say(out, reply);
            Progress::Done(n_bytes)
        }
        Parsed::Lost { reply } => {
            say(out, reply);
            Progress::Close
        }
        Parsed::Request { request: Request::Quit, .. } => Progress::Close,
        Parsed::Request { request, line, n_bytes } => {
            let id = connection.id;
            memcached::process__command__start::lazy(|probe| probe.fire(id, &text(line)));
            let reply_start = out.len();
            execute(request, id, &mut connection.store(), now_ms, out);
            memcached::process__command__end::lazy(|probe| probe.fire(id, &text(&out[reply_start..])));
            Progress::Done(n_bytes)
        }
    }
}

fn parse(input: &[u8]) -> Parsed<'_> {
    let searched = &input[..input.len().min(MAX_LINE_BYTES)];
    let Some(end) = searched.iter().position(|byte| *byte == b'\n') else {
        return match input.len() < MAX_LINE_BYTES {
            true => Parsed::Partial,
            false => Parsed::Lost { reply: "CLIENT_ERROR line too long" },
        };
    };
    let line = line_of(&input[..=end]);
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    let n_bytes = end + 1;
    let wrong = |reply| Parsed::Wrong { reply, n_bytes };
    let (words, is_quiet) = match &words[..] {
        [b"get" | b"gets", ..] => (&words[..], false),
        [rest @ .., b"noreply"] => (rest, true),
        all => (all, false),
    };
    let request = match words {
        [b"set", rest @ ..] => return parse_store(How::Set, rest, is_quiet, input, n_bytes),
        [b"add", rest @ ..] => return parse_store(How::Add, rest, is_quiet, input, n_bytes),
        [b"replace", rest @ ..] => return parse_store(How::Replace, rest, is_quiet, input, n_bytes),
        [word @ (b"get" | b"gets"), keys @ ..] if !keys.is_empty() => {
            if !keys.iter().all(|key| is_key(key)) {
                return wrong(BAD_LINE);
            }
            Request::Get { keys: keys.to_vec(), has_cas: *word == b"gets" }
        }
        [b"delete", key] if is_key(key) => Request::Delete { key, is_quiet },
        [word @ (b"incr" | b"decr"), key, by] if is_key(key) => match number(by) {
            Some(by) => Request::Count { key, is_up: *word == b"incr", by, is_quiet },
            None => return wrong(NO_NUMBER),
        },
        [b"touch", key, exptime] if is_key(key) => match number(exptime) {
            Some(exptime) => Request::Touch { key, exptime, is_quiet },
            None => return wrong("CLIENT_ERROR invalid exptime argument"),
        },
        [b"flush_all"] => Request::FlushAll { is_quiet },
        [b"stats"] => Request::Stats,
        [b"version"] => Request::Version,
        [b"quit"] => Request::Quit,
        [b"delete" | b"incr" | b"decr" | b"touch" | b"flush_all", ..] => return wrong(BAD_LINE),
        _ => return wrong(ERROR),
    };
    Parsed::Request { request, line, n_bytes }
}

/// `set KEY FLAGS EXPTIME SIZE`, and the value in a block of its own.
fn parse_store<'a>(
    how: How,
    words: &[&'a [u8]],
    is_quiet: bool,
    input: &'a [u8],
    head_bytes: usize,
) -> Parsed<'a> {
    // If the line is wrong, the length of the block that follows is not known.
    let lost = |reply| Parsed::Lost { reply };
    let &[key, flags, exptime, size] = words else { return lost(BAD_LINE) };
    let (Some(flags), Some(exptime), Some(size)) = (number(flags), number(exptime), number::<usize>(size))
    else {
        return lost(BAD_LINE);
    };
    if !is_key(key) {
        return lost(BAD_LINE);
    }
    if size > MAX_VALUE_BYTES {
        return lost("SERVER_ERROR object too large for cache");
    }
    let n_bytes = head_bytes + size + 2;
    let Some(block) = input.get(head_bytes..n_bytes) else { return Parsed::Partial };
    match block.strip_suffix(b"\r\n") {
        Some(value) => Parsed::Request {
            request: Request::Store { how, key, flags, exptime, value, is_quiet },
            line: line_of(&input[..head_bytes]),
            n_bytes,
        },
        None => lost("CLIENT_ERROR bad data chunk"),
    }
}

fn execute(request: Request<'_>, id: i32, store: &mut Store, now_ms: u64, out: &mut Vec<u8>) {
    let is_quiet = match request {
        Request::Store { is_quiet, .. }
        | Request::Delete { is_quiet, .. }
        | Request::Count { is_quiet, .. }
        | Request::Touch { is_quiet, .. }
        | Request::FlushAll { is_quiet } => is_quiet,
        Request::Get { .. } | Request::Stats | Request::Version | Request::Quit => false,
    };
    let reply_start = out.len();
    match request {
        Request::Get { keys, has_cas } => get(&keys, has_cas, id, store, now_ms, out),
        Request::Store { how, key, flags, exptime, value, .. } => {
            let is_wanted = match how {
                How::Set => true,
                How::Add => !store.has(key, now_ms),
                How::Replace => store.has(key, now_ms),
            };
            let stored = is_wanted.then(|| store.set(key, value, flags, expires_ms(exptime, now_ms), now_ms));
            let (size, casid) = match stored {
                Some(Ok(casid)) => (value.len() as i32, casid as i64),
                Some(Err(_)) | None => (-1, 0),
            };
            match how {
                How::Set => memcached::command__set::lazy(|p| p.fire(id, &text(key), size, casid)),
                How::Add => memcached::command__add::lazy(|p| p.fire(id, &text(key), size, casid)),
                How::Replace => memcached::command__replace::lazy(|p| p.fire(id, &text(key), size, casid)),
            }
            say(
                out,
                match stored {
                    Some(Ok(_)) => "STORED",
                    Some(Err(_)) => "SERVER_ERROR out of memory storing object",
                    None => "NOT_STORED",
                },
            );
        }
        Request::Delete { key, .. } => {
            let is_there = store.has(key, now_ms);
            if is_there {
                memcached::command__delete::lazy(|p| p.fire(id, &text(key)));
                store.remove(key, now_ms);
            }
            say(out, if is_there { "DELETED" } else { "NOT_FOUND" });
        }
        Request::Count { key, is_up, by, .. } => match count(key, is_up, by, store, now_ms) {
            Ok(value) => {
                match is_up {
                    true => memcached::command__incr::lazy(|p| p.fire(id, &text(key), value as i64)),
                    false => memcached::command__decr::lazy(|p| p.fire(id, &text(key), value as i64)),
                }
                say(out, &value.to_string());
            }
            Err(reply) => say(out, reply),
        },
        Request::Touch { key, exptime, .. } => {
            let found = store.touch(key, expires_ms(exptime, now_ms), now_ms);
            let (size, casid) = found.map_or((-1, 0), |entry| (entry.value.len() as i32, entry.casid as i64));
            memcached::command__touch::lazy(|p| p.fire(id, &text(key), size, casid));
            say(out, if size >= 0 { "TOUCHED" } else { "NOT_FOUND" });
        }
        Request::FlushAll { .. } => {
            store.clear();
            say(out, "OK");
        }
        Request::Stats => {
            let counts = store.counts;
            for (name, value) in [
                ("pid", u64::from(std::process::id())),
                ("curr_items", store.len() as u64),
                ("bytes", store.used_bytes() as u64),
                ("get_hits", counts.n_hits),
                ("get_misses", counts.n_misses),
                ("expired", counts.n_expired),
                ("evictions", counts.n_evicted),
            ] {
                say(out, &format!("STAT {name} {value}"));
            }
            say(out, "END");
        }
        Request::Version => say(out, concat!("VERSION nopal-demo ", env!("CARGO_PKG_VERSION"))),
        // Ends the conversation before anything is carried out.
        Request::Quit => (),
    }
    if is_quiet {
        out.truncate(reply_start);
    }
}

fn get(keys: &[&[u8]], has_cas: bool, id: i32, store: &mut Store, now_ms: u64, out: &mut Vec<u8>) {
    let reply_start = out.len();
    for key in keys {
        let found: Option<&Entry> = store.get(key, now_ms);
        let (size, casid) = found.map_or((-1, 0), |entry| (entry.value.len() as i32, entry.casid as i64));
        memcached::command__get::lazy(|p| p.fire(id, &text(key), size, casid));
        let Some(entry) = found else { continue };
        if out.len() - reply_start + entry.value.len() > MAX_REPLY_BYTES {
            out.truncate(reply_start);
            return say(out, "SERVER_ERROR out of memory writing get response");
        }
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(key);
        // Writing to a Vec cannot fail.
        let _ = write!(out, " {} {}", entry.flags, entry.value.len());
        if has_cas {
            let _ = write!(out, " {}", entry.casid);
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&entry.value);
        out.extend_from_slice(b"\r\n");
    }
    say(out, "END");
}

/// Up wraps at 2^64 and down stops at 0, as in memcached.
fn count(key: &[u8], is_up: bool, by: u64, store: &mut Store, now_ms: u64) -> Result<u64, &'static str> {
    let entry = store.get(key, now_ms).ok_or("NOT_FOUND")?;
    let old: u64 =
        number(&entry.value).ok_or("CLIENT_ERROR cannot increment or decrement non-numeric value")?;
    let new = if is_up { old.wrapping_add(by) } else { old.saturating_sub(by) };
    let (flags, expires_ms) = (entry.flags, entry.expires_ms);
    match store.set(key, new.to_string().as_bytes(), flags, expires_ms, now_ms) {
        Ok(_) => Ok(new),
        Err(_) => Err("SERVER_ERROR out of memory storing object"),
    }
}

/// 0 is never, a negative time is past.
fn expires_ms(exptime: i64, now_ms: u64) -> Option<u64> {
    match exptime {
        0 => None,
        ..0 => Some(now_ms),
        1..=MAX_RELATIVE_S => Some(now_ms + exptime as u64 * 1000),
        _ => Some((exptime as u64).saturating_mul(1000)),
    }
}

/// Without its end.
fn line_of(bytes: &[u8]) -> &[u8] {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn is_key(key: &[u8]) -> bool {
    (1..=MAX_KEY_BYTES).contains(&key.len()) && !key.iter().any(u8::is_ascii_control)
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn say(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::offline::talk;
    use std::sync::Mutex;

    const NOW: u64 = 1_000_000;

    /// What a client of an empty server gets for what it sends, however the network cuts it.
    #[track_caller]
    fn check(input: impl AsRef<[u8]>, reply: &str, is_closed: bool) {
        let input = input.as_ref();
        for piece in [1, 7, input.len().max(1)] {
            let store = Mutex::new(Store::new(4 << 20));
            let shown = text(&input[..input.len().min(100)]);
            assert_eq!(talk(serve, &store, input, piece, NOW), (reply.to_owned(), is_closed), "{shown}");
        }
    }

    #[test]
    fn requests_and_replies() {
        for (input, reply) in [
            ("get a\r\n", "END\r\n"),
            (
                "set a 5 0 3\r\nx\ny\r\nget a b a\r\n",
                "STORED\r\nVALUE a 5 3\r\nx\ny\r\nVALUE a 5 3\r\nx\ny\r\nEND\r\n",
            ),
            ("set a 0 0 0\r\n\r\nget a\n", "STORED\r\nVALUE a 0 0\r\n\r\nEND\r\n"),
            ("set a 0 0 1 noreply\r\nx\r\ngets a\r\n", "VALUE a 0 1 1\r\nx\r\nEND\r\n"),
            ("add a 0 0 1\r\nx\r\nadd a 0 0 1\r\ny\r\n", "STORED\r\nNOT_STORED\r\n"),
            (
                "replace a 0 0 1\r\nx\r\nset a 0 0 1\r\ny\r\nreplace a 0 0 1\r\nz\r\n",
                "NOT_STORED\r\nSTORED\r\nSTORED\r\n",
            ),
            (
                "delete a\r\nset a 0 0 1\r\nx\r\ndelete a\r\nget a\r\n",
                "NOT_FOUND\r\nSTORED\r\nDELETED\r\nEND\r\n",
            ),
            (
                "incr n 1\r\nset n 0 0 1\r\n9\r\nincr n 5\r\ndecr n 100\r\n",
                "NOT_FOUND\r\nSTORED\r\n14\r\n0\r\n",
            ),
            ("set n 0 0 20\r\n18446744073709551615\r\nincr n 2\r\n", "STORED\r\n1\r\n"),
            (
                "touch a 1\r\nset a 0 0 1\r\nx\r\ntouch a -1\r\nget a\r\n",
                "NOT_FOUND\r\nSTORED\r\nTOUCHED\r\nEND\r\n",
            ),
            ("set a 0 -1 1\r\nx\r\nget a\r\n", "STORED\r\nEND\r\n"),
            ("set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\n", "STORED\r\nOK\r\nEND\r\n"),
            ("version\r\n", "VERSION nopal-demo 0.1.0\r\n"),
        ] {
            check(input, reply, false);
        }
        check("quit\r\nget a\r\n", "", true);
    }

    #[test]
    fn wrong_requests_get_an_answer() {
        let long_key = "k".repeat(MAX_KEY_BYTES + 1);
        for (input, reply) in [
            ("\r\n", "ERROR\r\n"),
            ("get\r\n", "ERROR\r\n"),
            ("fetch a\r\nget a\r\n", "ERROR\r\nEND\r\n"),
            ("delete\r\n", "CLIENT_ERROR bad command line format\r\n"),
            ("delete a b\r\n", "CLIENT_ERROR bad command line format\r\n"),
            ("get a\x01\r\n", "CLIENT_ERROR bad command line format\r\n"),
            (&format!("get {long_key}\r\n"), "CLIENT_ERROR bad command line format\r\n"),
            ("incr a x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
            ("incr a -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
            ("touch a x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
            (
                "set a 0 0 1\r\nx\r\nincr a 1\r\n",
                "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
        ] {
            check(input, reply, false);
        }
    }

    #[test]
    fn a_client_whose_next_request_cannot_be_found_is_sent_away() {
        for (input, reply) in [
            ("set a\r\n", BAD_LINE),
            ("set a 0 0 -1\r\n", BAD_LINE),
            ("set a 0 0 99999999999999999999\r\n", BAD_LINE),
            ("set a 4294967296 0 1\r\n", BAD_LINE),
            ("set a 0 0 1048577\r\n", "SERVER_ERROR object too large for cache"),
            ("set a 0 0 1\r\nxyz\r\n", "CLIENT_ERROR bad data chunk"),
            (&"x".repeat(3000), "CLIENT_ERROR line too long"),
            (&format!("{}\r\n", "x".repeat(2100)), "CLIENT_ERROR line too long"),
        ] {
            check(input, &format!("{reply}\r\n"), true);
        }
        // Not text at all.
        check(b"\x80\x01\xff\n", "ERROR\r\n", false);
        check(b"\x16\x03\x01\x02\x00", "", false);
    }

    #[test]
    fn replies_are_bounded() {
        let store = Mutex::new(Store::new(4 << 20));
        store.lock().unwrap().set(b"a", &vec![b'x'; MAX_VALUE_BYTES], 0, None, NOW).unwrap();
        let input = format!("get{}\r\n", " a".repeat(100));
        let (reply, is_closed) = talk(serve, &store, input.as_bytes(), input.len(), NOW);
        assert_eq!(reply, "SERVER_ERROR out of memory writing get response\r\n");
        assert!(!is_closed);
        // A value as large as the whole store finds no room.
        let small = Mutex::new(Store::new(1000));
        let input = format!("set a 0 0 1000\r\n{}\r\n", "x".repeat(1000));
        let (reply, _) = talk(serve, &small, input.as_bytes(), 100, NOW);
        assert_eq!(reply, "SERVER_ERROR out of memory storing object\r\n");
    }

    #[test]
    fn times_are_relative_up_to_30_days() {
        for (exptime, expected) in [
            (0, None),
            (-1, Some(NOW)),
            (1, Some(NOW + 1000)),
            (MAX_RELATIVE_S, Some(NOW + 2_592_000_000)),
            (MAX_RELATIVE_S + 1, Some(2_592_001_000)),
            (i64::MAX, Some(u64::MAX)),
            (i64::MIN, Some(NOW)),
        ] {
            assert_eq!(expires_ms(exptime, NOW), expected, "{exptime}");
        }
    }
}
