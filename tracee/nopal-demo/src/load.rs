//! Clients that keep the server busy. Some of what they do is there to be found with a tracer: `keys` over all keys
//! now and then, keys that expire, and more data than the server keeps.

use crate::random::Random;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// Clients of each protocol.
const N_CLIENTS: u64 = 2;
/// Keys that are read often.
const N_USERS: usize = 40_000;
/// Keys that are stored often and read seldom: more than the server keeps.
const N_PAGES: usize = 100_000;
/// So many of them, with the users, fill the server.
const N_FIRST_PAGES: usize = 20_000;
const USER: &str = "{ \"name\": \"Ada\", \"city\": \"London\" }";
const PAGE: &str = "<p>";
const PAGE_REPEATS: usize = 200;
/// A client rests after so many requests, so that a small machine can be used meanwhile.
const REST_EVERY: usize = 10;
const REST: Duration = Duration::from_millis(2);
/// Every so many requests of a client in RESP is a slow one.
const SLOW_EVERY: usize = 500;

/// Fills the server, says that it is full, and sends requests until the server is gone.
pub fn run_load(server: SocketAddr, on_full: impl FnOnce()) -> io::Result<()> {
    let mut client = Client::connect(server)?;
    // What was used last stays: the users.
    client.fill("page", N_FIRST_PAGES, &PAGE.repeat(PAGE_REPEATS))?;
    client.fill("user", N_USERS, USER)?;
    on_full();
    let clients: Vec<_> = (0..2 * N_CLIENTS)
        .map(|i| {
            let random = Random::new(i.wrapping_mul(0x2545_f491_4f6c_dd1d));
            thread::spawn(move || match i % 2 {
                0 => speak_resp(server, random),
                _ => speak_memcached(server, random),
            })
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| io::Error::other("a client of the load panicked"))??;
    }
    Ok(())
}

fn speak_resp(server: SocketAddr, mut random: Random) -> io::Result<()> {
    let mut client = Client::connect(server)?;
    for i in 1.. {
        let user = format!("user:{}", random.below(N_USERS));
        let page = format!("page:{}", random.below(N_PAGES));
        let request = match random.below(20) {
            _ if i % SLOW_EVERY == 0 => resp(&["keys", "user:*"]),
            0..12 => resp(&["get", &user]),
            12..14 => resp(&["mget", &user, &page, "session:1"]),
            14 => resp(&["set", &user, USER]),
            15 => resp(&["incr", "visits"]),
            16..18 => resp(&["set", &format!("session:{}", random.below(5000)), "cart=3", "px", "300"]),
            18 => resp(&["set", &page, &PAGE.repeat(PAGE_REPEATS)]),
            _ => resp(&["del", &page]),
        };
        client.stream.get_mut().write_all(request.as_bytes())?;
        client.read_resp()?;
        rest(i);
    }
    Ok(())
}

fn speak_memcached(server: SocketAddr, mut random: Random) -> io::Result<()> {
    let mut client = Client::connect(server)?;
    for i in 1.. {
        let user = random.below(N_USERS);
        let page = random.below(N_PAGES);
        let request = match random.below(20) {
            0..12 => format!("get user:{user}\r\n"),
            12..14 => format!("get user:{user} visits\r\n"),
            14..16 => "incr visits 1\r\n".to_owned(),
            16..18 => format!(
                "set page:{page} 0 0 {}\r\n{}\r\n",
                PAGE.len() * PAGE_REPEATS,
                PAGE.repeat(PAGE_REPEATS)
            ),
            18 => format!("set token:{} 0 1 6\r\nsecret\r\n", random.below(5000)),
            _ => format!("delete page:{page}\r\n"),
        };
        client.stream.get_mut().write_all(request.as_bytes())?;
        client.read_memcached()?;
        rest(i);
    }
    Ok(())
}

fn rest(i: usize) {
    if i.is_multiple_of(REST_EVERY) {
        thread::sleep(REST);
    }
}

/// A request in RESP.
fn resp(words: &[&str]) -> String {
    let blocks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{blocks}", words.len())
}

/// A connection that reads whole replies and forgets them.
struct Client {
    stream: BufReader<TcpStream>,
    line: String,
    value: Vec<u8>,
}

impl Client {
    fn connect(server: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream), line: String::new(), value: Vec::new() })
    }

    /// Stores `n` keys, a thousand requests at a time.
    fn fill(&mut self, kind: &str, n: usize, value: &str) -> io::Result<()> {
        for first in (0..n).step_by(1000) {
            let keys = first..first + 1000;
            let requests: String =
                keys.clone().map(|key| resp(&["set", &format!("{kind}:{key}"), value])).collect();
            self.stream.get_mut().write_all(requests.as_bytes())?;
            for _ in keys {
                self.read_resp()?;
            }
        }
        Ok(())
    }

    fn read_resp(&mut self) -> io::Result<()> {
        let mut n_left = 1;
        while n_left > 0 {
            n_left -= 1;
            self.read_line()?;
            let count: Option<usize> = self.line.get(1..).and_then(|digits| digits.parse().ok());
            match (self.line.as_bytes().first(), count) {
                (Some(b'$'), Some(n_bytes)) => self.skip_value(n_bytes)?,
                (Some(b'*'), Some(n_elements)) => n_left += n_elements,
                // A number, a word, an error, or no value.
                _ => (),
            }
        }
        Ok(())
    }

    fn read_memcached(&mut self) -> io::Result<()> {
        loop {
            self.read_line()?;
            // VALUE KEY FLAGS SIZE, then the value, then more of these or END.
            let Some(value) = self.line.strip_prefix("VALUE ") else { return Ok(()) };
            let n_bytes = value.split(' ').nth(2).and_then(|digits| digits.parse().ok());
            self.skip_value(n_bytes.ok_or_else(|| io::Error::other("a value without a size"))?)?;
        }
    }

    /// The next line, without its end.
    fn read_line(&mut self) -> io::Result<()> {
        self.line.clear();
        if self.stream.read_line(&mut self.line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.line.truncate(self.line.trim_end().len());
        Ok(())
    }

    fn skip_value(&mut self, n_bytes: usize) -> io::Result<()> {
        self.value.resize(n_bytes + 2, 0);
        self.stream.read_exact(&mut self.value)
    }
}
