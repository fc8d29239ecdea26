//! The probes of the demo server. Names and arguments are those of memcached, Redis and Valkey, so that whatever traces
//! these servers traces this one.
//!
//! A probe nobody traces costs a compare and a branch that is not taken. What takes work to find out, such as a
//! duration or a key as text, is found out in the `lazy` form or behind `is_enabled`, only while somebody traces.

use std::borrow::Cow;
use std::ffi::CStr;
use std::time::Instant;

use crate::resp::Command;

/// How a client reached the server. Valkey has more ways.
#[derive(Debug, Clone, Copy)]
pub enum Transport {
    Socket = 0,
}

impl nopal::Arg for Transport {
    type As = i32;
    const TYPE: &'static str = "Transport";
    const LABELS: &'static [(i64, &'static str)] = &[(0, "SOCKET"), (1, "UNIX"), (2, "TLS"), (3, "RDMA")];
    fn to_primitive(self) -> i32 {
        self as i32
    }
}

nopal::provider! {
    /// Commands that came in RESP, as Redis tells them.
    pub mod redis {
        /// A command is about to be called.
        #[ended_by(call__end)]
        probe call__start(
            /// Which command; the same at start and end.
            id: Command,
        );

        /// A command was called.
        #[started_by(call__start)]
        probe call__end(
            /// Which command; the same at start and end.
            id: Command,
        );
    }
}

nopal::provider! {
    /// Commands that came in RESP, as Valkey tells them.
    pub mod valkey_commands {
        /// A command was carried out.
        probe command_call(
            /// Transport of the connection.
            prot: Transport,
            /// Address of the client.
            addr: &CStr,
            /// Address of the server the client reached.
            laddr: &CStr,
            /// Name of the command.
            name: &CStr,
            /// How long it took, in us.
            duration: u64,
        );
    }
}

nopal::provider! {
    /// The loop of each connection.
    pub mod valkey_server {
        /// One turn: the requests that one read brought, from there to the last reply.
        probe eventloop(
            /// How long it took, in us; waiting for other connections is part of it.
            duration: u64,
        );
    }
}

nopal::provider! {
    /// Keys that the server deletes of itself.
    pub mod valkey_db {
        /// Deletion of a key that expired.
        probe expire_del(
            /// How long it took, in us.
            duration: u64,
        );

        /// Deletion of a key to make room.
        probe eviction_del(
            /// How long it took, in us.
            duration: u64,
        );
    }
}

nopal::provider! {
    /// Requests that came in memcached's text protocol.
    pub mod memcached {
        /// A request was read and is about to be carried out.
        #[ended_by(process__command__end)]
        probe process__command__start(
            /// Connection number, which is its file descriptor.
            connid: i32,
            /// The request, without its data.
            request: &str,
        );

        /// A request was carried out.
        #[started_by(process__command__start)]
        probe process__command__end(
            /// Connection number, which is its file descriptor.
            connid: i32,
            /// The response that goes out; empty if the client wants none.
            response: &str,
        );

        /// A key was read.
        probe command__get(
            connid: i32,
            key: &str,
            /// Size of the value in bytes; -1 if there is none.
            size: i32,
            /// Compare-and-swap number of the item.
            casid: i64,
        );

        /// A value was stored.
        probe command__set(
            connid: i32,
            key: &str,
            /// Size of the value in bytes; -1 if it was not stored.
            size: i32,
            casid: i64,
        );

        /// A value was stored because the key was not there yet.
        probe command__add(
            connid: i32,
            key: &str,
            /// Size of the value in bytes; -1 if it was not stored.
            size: i32,
            casid: i64,
        );

        /// A value was stored in place of one that was there.
        probe command__replace(
            connid: i32,
            key: &str,
            /// Size of the value in bytes; -1 if it was not stored.
            size: i32,
            casid: i64,
        );

        /// The expiry time of a key was changed.
        probe command__touch(
            connid: i32,
            key: &str,
            /// Size of the value in bytes; -1 if there is none.
            size: i32,
            casid: i64,
        );

        /// A number was increased.
        probe command__incr(
            connid: i32,
            key: &str,
            /// Value after the change.
            val: i64,
        );

        /// A number was decreased.
        probe command__decr(
            connid: i32,
            key: &str,
            /// Value after the change.
            val: i64,
        );

        /// A key is to be deleted.
        probe command__delete(connid: i32, key: &str);
    }
}

nopal::provider! {
    /// What `nopal doctor --self-test` traces.
    pub mod nopal_self_test {
        /// Fired with numbers from 0 on.
        probe fired(number: u64, text: &CStr);
    }
}

/// Bytes of a client as text. Copies only what is no UTF-8.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The time since `start` in the unit of Valkey's durations.
pub fn micros_since(start: Instant) -> u64 {
    start.elapsed().as_micros() as u64
}
