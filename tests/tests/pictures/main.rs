//! What is made of recordings at rest: exports, SQL, comparisons, reports. Other people's readers say whether it is right.

mod diff;
mod export;
mod fleet;
mod query;
mod recorded;
mod report;
mod serve;
mod unfinished;
