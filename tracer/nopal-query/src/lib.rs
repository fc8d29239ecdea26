//! SQL over recordings: SQLite with a virtual table for each kind of rows. Recordings are read while the query runs; nothing
//! is loaded whole. What a query does not need is not decoded: times, processes, threads, event types and fields.
//! Prints nothing.

#![warn(unreachable_pub)]

mod batch;
mod database;
mod grouped;
mod names;
mod ordered;
mod plan;
mod scan;
mod shared;
mod tables;
mod vtab;

pub use database::{Answer, Database, QueryError};
pub use rusqlite::types::ValueRef;
pub use tables::{ColumnInfo, TableInfo};
