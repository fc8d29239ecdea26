//! Connections and threads: a thread for each connection, one that accepts, one that deletes what has expired.

use crate::probes::{self, valkey_server};
use crate::store::Store;
use crate::{memcached, resp};
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// More are turned away.
const MAX_CONNECTIONS: usize = 128;
/// A client that says nothing for so long is sent away.
const IDLE: Duration = Duration::from_secs(300);
/// A client that does not take its replies for so long is sent away.
const STUCK: Duration = Duration::from_secs(10);
/// Replies go out at the latest when there are so many bytes of them.
const OUTPUT_BYTES: usize = 64 << 10;
const CYCLE: Duration = Duration::from_millis(100);
const CYCLE_ENTRIES: usize = 2000;

/// A server that listens on loopback.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    store: Arc<Mutex<Store>>,
    n_connections: Arc<AtomicUsize>,
}

impl Server {
    /// Port 0 is any that is free. The data may take up to `max_bytes` of memory.
    ///
    /// From here on every process of the same user may trace this one.
    pub fn bind(port: u16, max_bytes: usize) -> io::Result<Server> {
        nopal::allow_tracing();
        Ok(Server {
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, port))?,
            store: Arc::new(Mutex::new(Store::new(max_bytes))),
            n_connections: Arc::default(),
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process ends.
    pub fn run(self) -> io::Result<()> {
        let store = self.store.clone();
        thread::Builder::new().name("expiry".into()).spawn(move || {
            loop {
                thread::sleep(CYCLE);
                lock(&store).expire_cycle(CYCLE_ENTRIES, now_ms());
            }
        })?;
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => self.start(stream, address),
                // Out of file descriptors or the like; it passes when connections end.
                Err(_) => thread::sleep(CYCLE),
            }
        }
    }

    fn start(&self, mut stream: TcpStream, address: SocketAddr) {
        let place = Place(self.n_connections.clone());
        if place.0.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            // Both protocols show it to their user. Whoever does not listen misses it.
            let _ = stream.write_all(b"-ERR too many connections\r\n");
            return;
        }
        let store = self.store.clone();
        // Without a thread the connection is dropped, which the client sees.
        let _ = thread::Builder::new().name("connection".into()).spawn(move || {
            let _place = place;
            // A client that goes away in the middle is nobody's failure.
            let _ = Connection::new(&stream, address, &store).and_then(|c| c.converse(&mut stream));
        });
    }
}

/// One of the places for connections, free again when dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the protocols need to know of the connection a request came by.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    /// Its number, which is its file descriptor.
    pub id: i32,
    pub client: CString,
    pub server: CString,
    store: &'a Mutex<Store>,
}

/// What became of the bytes that a protocol was given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The request is not whole yet.
    Wait,
    /// So many bytes are done with.
    Done(usize),
    /// The reply is the last one.
    Close,
}

impl<'a> Connection<'a> {
    fn new(stream: &TcpStream, client: SocketAddr, store: &'a Mutex<Store>) -> io::Result<Connection<'a>> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE))?;
        stream.set_write_timeout(Some(STUCK))?;
        let server = stream.local_addr()?;
        Ok(Connection {
            id: stream.as_raw_fd(),
            client: CString::new(client.to_string())?,
            server: CString::new(server.to_string())?,
            store,
        })
    }

    pub(crate) fn store(&self) -> MutexGuard<'a, Store> {
        lock(self.store)
    }

    /// Reads requests and writes replies until the client or the protocol ends it.
    fn converse(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut input = Vec::new();
        let mut output = Vec::new();
        let mut chunk = [0; 16 << 10];
        let mut is_resp = None;
        loop {
            let n_read = match stream.read(&mut chunk) {
                // With a time-out, Linux gives this to whoever was stopped meanwhile, as by a debugger.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if n_read == 0 {
                return Ok(());
            }
            let start = valkey_server::eventloop::is_enabled().then(Instant::now);
            input.extend_from_slice(&chunk[..n_read]);
            // The first byte tells the protocol: a request in RESP is a list, no word of memcached's starts with `*`.
            let is_resp = *is_resp.get_or_insert(chunk[0] == b'*');
            let serve = if is_resp { resp::serve } else { memcached::serve };

            let mut n_done = 0;
            let is_over = loop {
                match serve(&input[n_done..], self, now_ms(), &mut output) {
                    Progress::Wait => break false,
                    Progress::Done(n) => n_done += n,
                    Progress::Close => break true,
                }
                if output.len() > OUTPUT_BYTES {
                    stream.write_all(&output)?;
                    output = Vec::new();
                }
            };
            input.drain(..n_done);
            stream.write_all(&output)?;
            output.clear();
            if let Some(start) = start {
                valkey_server::eventloop(probes::micros_since(start));
            }
            if is_over {
                return Ok(());
            }
        }
    }
}

/// A thread that panicked cannot have left the data half-changed in a way that matters to a cache.
fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_millis() as u64)
}

/// A conversation without a socket: what a client that sends `input` gets, and whether it is sent away.
#[cfg(test)]
pub(crate) mod offline {
    use super::*;

    /// Feeds the bytes in pieces of `piece`, as a network may.
    pub(crate) fn talk(
        serve: impl Fn(&[u8], &Connection<'_>, u64, &mut Vec<u8>) -> Progress,
        store: &Mutex<Store>,
        input: &[u8],
        piece: usize,
        now_ms: u64,
    ) -> (String, bool) {
        let connection = Connection { id: 7, client: c"a:1".into(), server: c"b:2".into(), store };
        let (mut unread, mut output) = (Vec::new(), Vec::new());
        for bytes in input.chunks(piece) {
            unread.extend_from_slice(bytes);
            loop {
                match serve(&unread, &connection, now_ms, &mut output) {
                    Progress::Wait => break,
                    Progress::Done(n) => drop(unread.drain(..n)),
                    Progress::Close => return (String::from_utf8_lossy(&output).into_owned(), true),
                }
            }
            assert!(unread.len() <= crate::resp::MAX_REQUEST_BYTES + piece, "unbounded input");
        }
        (String::from_utf8_lossy(&output).into_owned(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// What requests are made of, right and wrong.
    const PIECES: [&[u8]; 24] = [
        b"get ",
        b"gets ",
        b"set ",
        b"add ",
        b"incr ",
        b"delete ",
        b"touch ",
        b"noreply",
        b"a",
        b"b ",
        b"0 ",
        b"1 ",
        b"-1 ",
        b"1048577",
        b"99999999999999999999",
        b"\r\n",
        b"\n",
        b"\0",
        b"\xff",
        b"*3\r\n",
        b"*1\r\n",
        b"$3\r\n",
        b"$1\r\na\r\n",
        b"keys\r\n",
    ];

    #[test]
    fn no_mixture_of_bytes_does_harm() {
        let mut random = Random::new(42);
        let store = Mutex::new(Store::new(64 << 10));
        for _ in 0..20_000 {
            let mut input = Vec::new();
            for _ in 0..1 + random.below(20) {
                input.extend_from_slice(PIECES[random.below(PIECES.len())]);
            }
            let piece = 1 + random.below(input.len());
            offline::talk(memcached::serve, &store, &input, piece, 1_000_000);
            input.splice(..0, *b"*2\r\n$3\r\nget\r\n");
            offline::talk(resp::serve, &store, &input, piece, 1_000_000);
        }
    }
}
