//! As much of HTTP as scrapes need: one request a connection, without a body. Anybody who reaches the port may connect, and say
//! and read what he likes as slowly as he likes: everything has a bound in size and time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

/// What curl and Prometheus send has some hundred bytes.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// Connections at a time; beyond, the next ones are closed at once.
const MAX_CONNECTIONS: usize = 32;
/// For a whole request to come, and for a whole answer to go.
const MOST_SENDING: Duration = Duration::from_secs(5);
const MOST_READING: Duration = Duration::from_secs(30);
/// The loop may be busy with a process for a while.
const MOST_THINKING: Duration = Duration::from_secs(60);

/// Who connects, and what for.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    requests: Receiver<Request>,
    is_over: Arc<AtomicBool>,
}

/// Somebody who waits for an answer.
#[derive(Debug)]
pub(crate) struct Request {
    pub method: String,
    /// Without what is behind a `?`.
    pub path: String,
    /// Of the formats that metrics have, he wants that of OpenMetrics.
    pub wants_open_metrics: bool,
    answer: Sender<Vec<u8>>,
}

impl Listener {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (send, requests) = sync_channel(MAX_CONNECTIONS);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        std::thread::Builder::new().name("http".to_owned()).spawn(move || accept(&listener, &send, &over))?;
        Ok(Listener { address, requests, is_over })
    }

    /// Where it listens; a port of 0 has become one that was free.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request, if one comes within this time.
    pub(crate) fn next(&self, wait: Duration) -> Option<Request> {
        self.requests.recv_timeout(wait).ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // It waits for somebody to connect.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
    }
}

impl Request {
    pub(crate) fn answer(self, status: u16, content_type: &str, body: &str) {
        let body_sent = if self.method == "HEAD" { "" } else { body };
        let head = head(status, content_type, body.len());
        // Whoever has gone wants no answer.
        let _ = self.answer.send([head.as_bytes(), body_sent.as_bytes()].concat());
    }
}

fn head(status: u16, content_type: &str, body_bytes: usize) -> String {
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Bad Request",
    };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {body_bytes}\r\n\
         Connection: close\r\n\r\n"
    )
}

fn accept(listener: &TcpListener, send: &SyncSender<Request>, is_over: &AtomicBool) {
    let n_connections = Arc::new(AtomicUsize::new(0));
    while !is_over.load(Ordering::Acquire) {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, most likely: others are closed meanwhile.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if n_connections.load(Ordering::Acquire) >= MAX_CONNECTIONS {
            continue;
        }
        n_connections.fetch_add(1, Ordering::AcqRel);
        let (send, n) = (send.clone(), n_connections.clone());
        let spawned = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            // What goes wrong with one connection is its own affair.
            let _ = serve(stream, &send);
            n.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            n_connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// One connection, from its request to the end of its answer.
fn serve(mut stream: TcpStream, send: &SyncSender<Request>) -> io::Result<()> {
    let told = read_head(&mut stream, Instant::now() + MOST_SENDING)?;
    let (answer, answered) = channel();
    let request = match told.as_deref().map(|head| parse(head, answer)) {
        Some(Some(request)) => request,
        Some(None) => return write(&mut stream, head(400, "text/plain", 0).as_bytes()),
        None => return write(&mut stream, head(431, "text/plain", 0).as_bytes()),
    };
    if send.send(request).is_err() {
        return Ok(());
    }
    match answered.recv_timeout(MOST_THINKING) {
        Ok(bytes) => write(&mut stream, &bytes),
        Err(_) => Ok(()),
    }
}

/// All up to the empty line; nothing if that is too long.
fn read_head(stream: &mut TcpStream, end: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => head.extend_from_slice(&piece[..n]),
        }
    }
    Ok(Some(head))
}

fn write(stream: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let end = Instant::now() + MOST_READING;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        let n = stream.write(bytes)?;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// How long is left; an error if it is over.
fn left(end: Instant) -> io::Result<Duration> {
    match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// `GET /metrics?x HTTP/1.1`, and below it the kinds of answers that are welcome.
fn parse(head: &[u8], answer: Sender<Vec<u8>>) -> Option<Request> {
    let text = std::str::from_utf8(head).ok()?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, url, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/1.") || words.next().is_some() || method.is_empty() {
        return None;
    }
    let wants_open_metrics = lines
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| name.eq_ignore_ascii_case("accept") && value.contains("openmetrics"));
    let path = url.split('?').next().unwrap_or_default().to_owned();
    Some(Request { method: method.to_owned(), path, wants_open_metrics, answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> Listener {
        Listener::open(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port")
    }

    /// Asks and is answered, beside whatever else is going on there.
    #[track_caller]
    fn check(listener: &Listener) {
        let mut client = TcpStream::connect(listener.address()).unwrap();
        client
            .write_all(
                b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nACCEPT: application/openmetrics-text\r\n\r\n",
            )
            .unwrap();
        let request = loop {
            let request = listener.next(Duration::from_secs(60)).expect("a request");
            if request.path == "/metrics" {
                break request;
            }
        };
        assert!(request.method == "GET" && request.wants_open_metrics);
        request.answer(200, "text/plain", "a 1\n");
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na 1\n"), "{answer}");
        assert!(answer.contains("Content-Length: 4\r\n"), "{answer}");
    }

    #[test]
    fn requests_that_can_and_cannot_be_read() {
        let read = |text: &str| {
            let request = parse(text.as_bytes(), channel().0)?;
            Some((request.method, request.path, request.wants_open_metrics))
        };
        let told = |method: &str, path: &str| Some((method.to_owned(), path.to_owned(), false));
        assert_eq!(read("GET / HTTP/1.1\r\n\r\n"), told("GET", "/"));
        assert_eq!(read("HEAD /x?y HTTP/1.0\r\naccept: text/plain\r\n\r\n"), told("HEAD", "/x"));
        for wrong in
            ["", "GET", "GET /", "GET / HTTP/2", " / HTTP/1.1", "GET / x HTTP/1.1", "GET  / HTTP/1.1"]
        {
            assert_eq!(read(&format!("{wrong}\r\n\r\n")), None, "{wrong}");
        }
        check(&listener());
    }

    #[test]
    fn a_head_without_end_is_not_taken_in() {
        let listener = listener();
        let mut client = TcpStream::connect(listener.address()).unwrap();
        let piece = [b'a'; 64 << 10];
        // What the sockets themselves hold is some megabytes.
        let n_taken = (0..4096).take_while(|_| client.write_all(&piece).is_ok()).count();
        assert!(n_taken < 4096, "256 MiB of one header were taken");
        check(&listener);
    }

    #[test]
    fn who_says_nothing_or_reads_nothing_is_in_nobodys_way() {
        let listener = listener();
        let silent: Vec<TcpStream> =
            (0..MAX_CONNECTIONS / 2).map(|_| TcpStream::connect(listener.address()).unwrap()).collect();
        let long = "x".repeat(16 << 20);
        let mut deaf = Vec::new();
        for _ in 0..MAX_CONNECTIONS / 4 {
            let mut client = TcpStream::connect(listener.address()).unwrap();
            client.write_all(b"GET /long HTTP/1.1\r\n\r\n").unwrap();
            listener.next(Duration::from_secs(60)).expect("a request").answer(200, "text/plain", &long);
            deaf.push(client);
        }
        check(&listener);
        drop((silent, deaf));
    }
}
