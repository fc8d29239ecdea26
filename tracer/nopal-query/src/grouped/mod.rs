//! Statements that add up the rows of one table by groups: counts, sums, averages, least and largest values, percentiles. They
//! are worked out while the recording is read, on all cores, and SQLite gets the groups instead of the rows, as the table of a
//! statement that says what else was asked. Whatever is not recognised (`statement.rs`), or turns out to need a rule of SQLite's that is
//! not known here (`Odd`), goes through SQLite row by row, with the same answer. Whole numbers and texts of events are taken as they lie
//! in the recording (`raw.rs`); any other value is decoded first.

mod evaluate;
mod expression;
mod lately;
mod raw;
mod read;
mod rows;
mod statement;
mod sums;
mod term;
mod words;

pub(crate) use read::{Failure, read};
pub(crate) use rows::{Given, create, drop_table, load};
pub(crate) use statement::{Statement, recognise};

#[cfg(test)]
mod tests;
