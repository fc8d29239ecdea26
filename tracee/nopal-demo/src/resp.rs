//! RESP, the protocol of Redis and Valkey:
//! `ping get set mget del exists incr decr expire pexpire ttl keys dbsize flushall info command quit`.

use crate::probes::{self, Transport, redis, valkey_commands};
use crate::server::{Connection, Progress};
use crate::store::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Store};
use std::ffi::CStr;
use std::io::Write;
use std::time::Instant;

/// Words of one request, the command included.
const MAX_WORDS: usize = 1024;
/// Everything of one request together.
pub(crate) const MAX_REQUEST_BYTES: usize = 2 << 20;
/// Values or keys of one reply together.
const MAX_REPLY_BYTES: usize = 8 << 20;

/// A command, by the number that the probes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Ping,
    Get,
    Set,
    Mget,
    Del,
    Exists,
    Incr,
    Decr,
    Expire,
    Pexpire,
    Ttl,
    Keys,
    Dbsize,
    Flushall,
    Info,
    Commands,
    Quit,
}

/// Each command in the order of its numbers: its name, and how many words may follow.
const COMMANDS: [(Command, &CStr, usize, usize); 17] = [
    (Command::Ping, c"ping", 0, 0),
    (Command::Get, c"get", 1, 1),
    (Command::Set, c"set", 2, 4),
    (Command::Mget, c"mget", 1, MAX_WORDS),
    (Command::Del, c"del", 1, MAX_WORDS),
    (Command::Exists, c"exists", 1, MAX_WORDS),
    (Command::Incr, c"incr", 1, 1),
    (Command::Decr, c"decr", 1, 1),
    (Command::Expire, c"expire", 2, 2),
    (Command::Pexpire, c"pexpire", 2, 2),
    (Command::Ttl, c"ttl", 1, 1),
    (Command::Keys, c"keys", 1, 1),
    (Command::Dbsize, c"dbsize", 0, 0),
    (Command::Flushall, c"flushall", 0, 1),
    (Command::Info, c"info", 0, MAX_WORDS),
    (Command::Commands, c"command", 0, MAX_WORDS),
    (Command::Quit, c"quit", 0, 0),
];

/// A tracer shows the name instead of the number.
const LABELS: [(i64, &str); COMMANDS.len()] = {
    let mut labels = [(0, ""); COMMANDS.len()];
    let mut i = 0;
    while i < labels.len() {
        let (command, name, ..) = COMMANDS[i];
        assert!(command as usize == i, "the table is in the order of the numbers");
        labels[i] = match name.to_str() {
            Ok(name) => (i as i64, name),
            Err(_) => panic!("names are ASCII"),
        };
        i += 1;
    }
    labels
};

impl nopal::Arg for Command {
    type As = i32;
    const TYPE: &'static str = "Command";
    const LABELS: &'static [(i64, &'static str)] = &LABELS;
    fn to_primitive(self) -> i32 {
        self as i32
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed<'a> {
    /// There is more to come.
    Partial,
    Words(Vec<&'a [u8]>, usize),
    /// What comes next cannot be told.
    Wrong(&'static str),
}

/// Carries out the request at the start of `input`.
pub(crate) fn serve(input: &[u8], connection: &Connection<'_>, now_ms: u64, out: &mut Vec<u8>) -> Progress {
    let (words, n_bytes) = match parse(input) {
        Parsed::Partial => return Progress::Wait,
        Parsed::Wrong(why) => {
            error(out, &format!("ERR Protocol error: {why}"));
            return Progress::Close;
        }
        Parsed::Words(words, n_bytes) => (words, n_bytes),
    };
    let Some((name, args)) = words.split_first() else { return Progress::Done(n_bytes) };
    let known = COMMANDS.iter().find(|known| known.1.to_bytes().eq_ignore_ascii_case(name));
    let Some(&(command, name, min_args, max_args)) = known else {
        let shown = name.get(..64).unwrap_or(name).escape_ascii();
        error(out, &format!("ERR unknown command '{shown}'"));
        return Progress::Done(n_bytes);
    };
    if !(min_args..=max_args).contains(&args.len()) {
        error(out, &format!("ERR wrong number of arguments for '{}' command", name.to_string_lossy()));
        return Progress::Done(n_bytes);
    }

    // Waiting for others is not part of a command's time; `valkey_server:eventloop` tells it.
    let mut store = connection.store();
    let start = valkey_commands::command_call::is_enabled().then(Instant::now);
    redis::call__start(command);
    execute(command, args, &mut store, now_ms, out);
    redis::call__end(command);
    drop(store);
    if let Some(start) = start {
        let duration = probes::micros_since(start);
        let (client, server) = (&connection.client, &connection.server);
        valkey_commands::command_call(Transport::Socket, client, server, name, duration);
    }
    if command == Command::Quit { Progress::Close } else { Progress::Done(n_bytes) }
}

/// A request is a list of strings: `*2\r\n$3\r\nGET\r\n$1\r\na\r\n`.
fn parse(input: &[u8]) -> Parsed<'_> {
    let (n_words, mut at) = match parse_count(input, b'*') {
        Ok(Some(found)) => found,
        Ok(None) => return Parsed::Partial,
        Err(why) => return Parsed::Wrong(why),
    };
    if n_words > MAX_WORDS {
        return Parsed::Wrong("invalid multibulk length");
    }
    let mut words = Vec::with_capacity(n_words);
    for _ in 0..n_words {
        let (n_bytes, head_bytes) = match parse_count(&input[at..], b'$') {
            Ok(Some(found)) => found,
            Ok(None) => return Parsed::Partial,
            Err(why) => return Parsed::Wrong(why),
        };
        if n_bytes > MAX_VALUE_BYTES || at + n_bytes > MAX_REQUEST_BYTES {
            return Parsed::Wrong("invalid bulk length");
        }
        at += head_bytes;
        let Some(block) = input.get(at..at + n_bytes + 2) else { return Parsed::Partial };
        let Some(word) = block.strip_suffix(b"\r\n") else {
            return Parsed::Wrong("expected the end of a bulk string");
        };
        words.push(word);
        at += block.len();
    }
    Parsed::Words(words, at)
}

/// A sign and a number on a line of their own: the number, and the bytes they take. `None`: there is more to come.
fn parse_count(input: &[u8], sign: u8) -> Result<Option<(usize, usize)>, &'static str> {
    const MAX_DIGITS: usize = 10;
    let Some((first, rest)) = input.split_first() else { return Ok(None) };
    if *first != sign {
        return Err(if sign == b'*' { "expected '*'" } else { "expected '$'" });
    }
    let searched = &rest[..rest.len().min(MAX_DIGITS + 2)];
    let Some(end) = searched.iter().position(|byte| *byte == b'\n') else {
        return if searched.len() == MAX_DIGITS + 2 { Err("invalid length") } else { Ok(None) };
    };
    let digits = searched[..end].strip_suffix(b"\r").ok_or("invalid length")?;
    let count = integer(digits).filter(|_| digits.iter().all(u8::is_ascii_digit)).ok_or("invalid length")?;
    Ok(Some((count as usize, 1 + end + 1)))
}

fn execute(command: Command, args: &[&[u8]], store: &mut Store, now_ms: u64, out: &mut Vec<u8>) {
    match command {
        Command::Ping => simple(out, "PONG"),
        Command::Get => bulk(out, store.get(args[0], now_ms).map(|entry| &entry.value[..])),
        Command::Set => set(args, store, now_ms, out),
        Command::Mget => {
            let reply_start = out.len();
            array(out, args.len());
            for key in args {
                bulk(out, store.get(key, now_ms).map(|entry| &entry.value[..]));
                if out.len() - reply_start > MAX_REPLY_BYTES {
                    out.truncate(reply_start);
                    return error(out, "ERR the reply is too large");
                }
            }
        }
        Command::Del => number(out, args.iter().filter(|key| store.remove(key, now_ms)).count() as i64),
        Command::Exists => number(out, args.iter().filter(|key| store.has(key, now_ms)).count() as i64),
        Command::Incr => count(args[0], 1, store, now_ms, out),
        Command::Decr => count(args[0], -1, store, now_ms, out),
        Command::Expire => expire(args, 1000, store, now_ms, out),
        Command::Pexpire => expire(args, 1, store, now_ms, out),
        Command::Ttl => {
            let left_s = match store.get(args[0], now_ms).map(|entry| entry.expires_ms) {
                None => -2,
                Some(None) => -1,
                Some(Some(end_ms)) => (end_ms - now_ms).div_ceil(1000) as i64,
            };
            number(out, left_s);
        }
        Command::Keys => {
            let keys: Vec<&[u8]> = store.keys(args[0], now_ms).collect();
            if keys.iter().map(|key| key.len() + 16).sum::<usize>() > MAX_REPLY_BYTES {
                return error(out, "ERR the reply is too large");
            }
            array(out, keys.len());
            for key in keys {
                bulk(out, Some(key));
            }
        }
        Command::Dbsize => number(out, store.len() as i64),
        Command::Flushall => {
            store.clear();
            simple(out, "OK");
        }
        Command::Info => {
            let counts = store.counts;
            let text = format!(
                "# Server\r\nnopal_demo_version:{}\r\nprocess_id:{}\r\n\
                 # Memory\r\nused_memory:{}\r\n\
                 # Stats\r\nkeyspace_hits:{}\r\nkeyspace_misses:{}\r\nexpired_keys:{}\r\nevicted_keys:{}\r\n\
                 # Keyspace\r\ndb0:keys={}\r\n",
                env!("CARGO_PKG_VERSION"),
                std::process::id(),
                store.used_bytes(),
                counts.n_hits,
                counts.n_misses,
                counts.n_expired,
                counts.n_evicted,
                store.len()
            );
            bulk(out, Some(text.as_bytes()));
        }
        // Clients ask for the list of commands to complete what is typed; an empty one will do.
        Command::Commands => array(out, 0),
        Command::Quit => simple(out, "OK"),
    }
}

/// `SET KEY VALUE [EX SECONDS | PX MILLISECONDS]`.
fn set(args: &[&[u8]], store: &mut Store, now_ms: u64, out: &mut Vec<u8>) {
    let (key, value) = (args[0], args[1]);
    let expires_ms = match args.get(2).map(|word| word.to_ascii_lowercase()).as_deref() {
        None => None,
        Some(unit @ (b"ex" | b"px")) => {
            let unit_ms = if unit == b"ex" { 1000 } else { 1 };
            match args.get(3).and_then(|digits| integer(digits)) {
                Some(time @ 1..) => Some(now_ms.saturating_add((time as u64).saturating_mul(unit_ms))),
                Some(_) => return error(out, "ERR invalid expire time in 'set' command"),
                None => return error(out, "ERR value is not an integer or out of range"),
            }
        }
        Some(_) => return error(out, "ERR syntax error"),
    };
    if key.len() > MAX_KEY_BYTES {
        return error(out, "ERR the key is longer than 250 bytes");
    }
    match store.set(key, value, 0, expires_ms, now_ms) {
        Ok(_) => simple(out, "OK"),
        Err(_) => error(out, "OOM the value is larger than all of the memory for data"),
    }
}

fn count(key: &[u8], by: i64, store: &mut Store, now_ms: u64, out: &mut Vec<u8>) {
    let (old, flags, expires_ms) = match store.get(key, now_ms) {
        Some(entry) => (integer(&entry.value), entry.flags, entry.expires_ms),
        None if key.len() > MAX_KEY_BYTES => return error(out, "ERR the key is longer than 250 bytes"),
        None => (Some(0), 0, None),
    };
    let Some(old) = old else { return error(out, "ERR value is not an integer or out of range") };
    let Some(new) = old.checked_add(by) else {
        return error(out, "ERR increment or decrement would overflow");
    };
    match store.set(key, new.to_string().as_bytes(), flags, expires_ms, now_ms) {
        Ok(_) => number(out, new),
        Err(_) => error(out, "OOM the value is larger than all of the memory for data"),
    }
}

/// `EXPIRE KEY TIME`. A time that is not in the future deletes the key.
fn expire(args: &[&[u8]], unit_ms: u64, store: &mut Store, now_ms: u64, out: &mut Vec<u8>) {
    let Some(time) = integer(args[1]) else {
        return error(out, "ERR value is not an integer or out of range");
    };
    let is_there = if time > 0 {
        let end_ms = now_ms.saturating_add((time as u64).saturating_mul(unit_ms));
        store.touch(args[0], Some(end_ms), now_ms).is_some()
    } else {
        store.remove(args[0], now_ms)
    };
    number(out, i64::from(is_there));
}

fn integer(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

// The forms of replies. Writing to a Vec cannot fail.

fn simple(out: &mut Vec<u8>, word: &str) {
    let _ = write!(out, "+{word}\r\n");
}

fn error(out: &mut Vec<u8>, what: &str) {
    let _ = write!(out, "-{what}\r\n");
}

fn number(out: &mut Vec<u8>, value: i64) {
    let _ = write!(out, ":{value}\r\n");
}

fn array(out: &mut Vec<u8>, n_elements: usize) {
    let _ = write!(out, "*{n_elements}\r\n");
}

/// A string, or that there is none.
fn bulk(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let Some(bytes) = bytes else { return out.extend_from_slice(b"$-1\r\n") };
    let _ = write!(out, "${}\r\n", bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::offline::talk;
    use std::sync::Mutex;

    const NOW: u64 = 1_000_000;

    /// `GET a` in RESP; words are separated by blanks.
    fn request(line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let blocks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{blocks}", words.len())
    }

    /// What a client of an empty server gets for what it sends, however the network cuts it.
    #[track_caller]
    fn check(input: &[u8], reply: &str, is_closed: bool) {
        for piece in [1, 5, input.len()] {
            let store = Mutex::new(Store::new(4 << 20));
            let shown = probes::text(&input[..input.len().min(100)]);
            assert_eq!(talk(serve, &store, input, piece, NOW), (reply.to_owned(), is_closed), "{shown}");
        }
    }

    #[test]
    fn requests_and_replies() {
        for (lines, reply) in [
            ("PING", "+PONG\r\n"),
            ("get a", "$-1\r\n"),
            ("SET a hello|GET a", "+OK\r\n$5\r\nhello\r\n"),
            ("SET a |GET a", "+OK\r\n$0\r\n\r\n"),
            ("SET a 1|SET b 2|MGET a x b", "+OK\r\n+OK\r\n*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"),
            ("SET a 1|EXISTS a a b|DEL a b|EXISTS a", "+OK\r\n:2\r\n:1\r\n:0\r\n"),
            ("INCR n|INCR n|DECR n", ":1\r\n:2\r\n:1\r\n"),
            ("SET n -5|DECR n", "+OK\r\n:-6\r\n"),
            (
                "TTL a|SET a 1|TTL a|EXPIRE a 10|TTL a|INCR a|TTL a",
                ":-2\r\n+OK\r\n:-1\r\n:1\r\n:10\r\n:2\r\n:10\r\n",
            ),
            ("SET a 1 PX 1500|TTL a", "+OK\r\n:2\r\n"),
            ("SET a 1 ex 7|PEXPIRE a 0|GET a|EXPIRE a 1", "+OK\r\n:1\r\n$-1\r\n:0\r\n"),
            ("SET user:7 1|KEYS user:*|KEYS x*|DBSIZE", "+OK\r\n*1\r\n$6\r\nuser:7\r\n*0\r\n:1\r\n"),
            ("SET a 1|FLUSHALL|DBSIZE", "+OK\r\n+OK\r\n:0\r\n"),
            ("COMMAND DOCS", "*0\r\n"),
        ] {
            let input: String = lines.split('|').map(request).collect();
            check(input.as_bytes(), reply, false);
        }
        check(request("QUIT").as_bytes(), "+OK\r\n", true);
        check(b"*0\r\n*1\r\n$4\r\nping\r\n", "+PONG\r\n", false);
    }

    #[test]
    fn wrong_requests_get_an_answer() {
        for (lines, reply) in [
            ("FETCH a|PING", "-ERR unknown command 'FETCH'\r\n+PONG\r\n"),
            ("F\r\nX", "-ERR unknown command 'F\\r\\nX'\r\n"),
            ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
            ("GET a b", "-ERR wrong number of arguments for 'get' command\r\n"),
            ("SET a 1 KEEP", "-ERR syntax error\r\n"),
            ("SET a 1 EX", "-ERR value is not an integer or out of range\r\n"),
            ("SET a 1 EX 0", "-ERR invalid expire time in 'set' command\r\n"),
            ("EXPIRE a x", "-ERR value is not an integer or out of range\r\n"),
            ("SET a x|INCR a", "+OK\r\n-ERR value is not an integer or out of range\r\n"),
            ("SET a 9223372036854775807|INCR a", "+OK\r\n-ERR increment or decrement would overflow\r\n"),
            ("SET a 1 EX 9223372036854775807|GET a", "+OK\r\n$1\r\n1\r\n"),
        ] {
            let input: String = lines.split('|').map(request).collect();
            check(input.as_bytes(), reply, false);
        }
        let long = "k".repeat(MAX_KEY_BYTES + 1);
        for line in [format!("SET {long} 1"), format!("INCR {long}")] {
            check(request(&line).as_bytes(), "-ERR the key is longer than 250 bytes\r\n", false);
        }
    }

    #[test]
    fn a_client_whose_next_request_cannot_be_found_is_sent_away() {
        for (input, why) in [
            ("PING\r\n", "expected '*'"),
            ("*1\r\nPING\r\n", "expected '$'"),
            ("*-1\r\n", "invalid length"),
            ("*+1\r\n", "invalid length"),
            ("*x\r\n", "invalid length"),
            ("*\r\n", "invalid length"),
            ("*1\n", "invalid length"),
            ("*99999999999999\r\n", "invalid length"),
            ("*1025\r\n", "invalid multibulk length"),
            ("*1\r\n$1048577\r\n", "invalid bulk length"),
            ("*1\r\n$-1\r\n", "invalid length"),
            ("*1\r\n$1\r\nPING\r\n", "expected the end of a bulk string"),
        ] {
            check(input.as_bytes(), &format!("-ERR Protocol error: {why}\r\n"), true);
        }
    }

    #[test]
    fn requests_and_replies_are_bounded() {
        let store = Mutex::new(Store::new(4 << 20));
        let block = format!("$1000000\r\n{}\r\n", "x".repeat(1_000_000));
        let input = format!("*4\r\n$4\r\nmget\r\n{block}{block}{block}");
        let (reply, is_closed) = talk(serve, &store, input.as_bytes(), 1 << 16, NOW);
        assert_eq!((reply.as_str(), is_closed), ("-ERR Protocol error: invalid bulk length\r\n", true));

        store.lock().unwrap().set(b"a", &vec![b'x'; MAX_VALUE_BYTES], 0, None, NOW).unwrap();
        let input = request(&format!("MGET{}", " a".repeat(100)));
        let (reply, is_closed) = talk(serve, &store, input.as_bytes(), input.len(), NOW);
        assert_eq!((reply.as_str(), is_closed), ("-ERR the reply is too large\r\n", false));
    }
}
