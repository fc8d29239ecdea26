//! Sends a request to a collector, on a thread of its own so that nobody waits for it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
/// Of the answer only its first line is of use.
const MAX_ANSWER_BYTES: usize = 4096;

/// `http://HOST:PORT/PATH`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    host: String,
    path: String,
}

impl Place {
    pub(crate) fn parse(endpoint: &str) -> Option<Place> {
        let rest = endpoint.strip_prefix("http://")?;
        let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let is_clean = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
        let is_fine = !host.is_empty() && is_clean(host) && is_clean(path);
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        is_fine.then(|| Place { host, path: format!("/{path}") })
    }

    fn send(&self, body: &[u8]) -> io::Result<()> {
        let address = self.host.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the host has no address"))?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        let mut part = [0; 512];
        while !answer.contains(&b'\n') && answer.len() < MAX_ANSWER_BYTES {
            match stream.read(&mut part)? {
                0 => break,
                n => answer.extend_from_slice(&part[..n]),
            }
        }
        let line = String::from_utf8_lossy(&answer);
        let status = line.split_whitespace().nth(1).unwrap_or("nothing");
        match status.starts_with('2') {
            true => Ok(()),
            false => Err(io::Error::other(format!("it answered {status}"))),
        }
    }
}

/// What is under way, one at a time.
#[derive(Debug)]
pub(crate) struct Push {
    place: Place,
    under_way: Option<Receiver<io::Result<()>>>,
    pub n_sent: u64,
    pub n_failed: u64,
    pub problem: Option<String>,
}

impl Push {
    pub(crate) fn new(place: Place) -> Push {
        Push { place, under_way: None, n_sent: 0, n_failed: 0, problem: None }
    }

    /// Whether the one before is still under way; takes its end to the books.
    pub(crate) fn is_busy(&mut self) -> bool {
        let Some(under_way) = &self.under_way else { return false };
        let result = match under_way.try_recv() {
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => Err(io::Error::other("it was given up")),
            Ok(result) => result,
        };
        self.under_way = None;
        match result {
            Ok(()) => {
                self.n_sent += 1;
                self.problem = None;
            }
            Err(error) => {
                self.n_failed += 1;
                self.problem = Some(format!("{}: {error}", self.place.host));
            }
        }
        false
    }

    pub(crate) fn send(&mut self, body: Vec<u8>) {
        let (done, under_way) = channel();
        let place = self.place.clone();
        self.under_way = Some(under_way);
        // Nobody is left to hear of it when the server has ended.
        std::thread::spawn(move || _ = done.send(place.send(&body)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = |host: &str, path: &str| Some(Place { host: host.to_owned(), path: path.to_owned() });
        assert_eq!(Place::parse("http://a:4318/v1/metrics"), place("a:4318", "/v1/metrics"));
        assert_eq!(Place::parse("http://a"), place("a:80", "/"));
        for wrong in ["https://a", "a:1", "http://", "http://a b/", "http://a/\r\nX: 1"] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }
}
