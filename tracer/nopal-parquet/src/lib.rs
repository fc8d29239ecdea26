//! Recordings as Parquet files, which data frames, DuckDB, Spark, ClickHouse and Trino read. Times are nanoseconds since
//! the epoch in plain 64-bit integers: that is what every one of them reads alike.

mod dataset;
mod events;
mod spans;
mod table;

pub use dataset::Dataset;
pub use events::EventsParquet;
pub use spans::SpansParquet;
pub use table::{Datum, Table};
