//! `nopal list`, the catalog and the demo, and whole servers from first probe to answer.

mod abi;
mod answers_postgres;
mod answers_runtimes;
mod answers_servers;
mod book;
mod catalog;
mod completions;
mod demo;
mod doctor;
mod incidents;
mod list_errors;
mod list_live;
mod list_real;
mod mcp;
mod prompt;
mod redis_example;
mod screens;
mod serve_postgres;
mod targets_by_name;
mod test_rules;
mod traps;
mod valkey;
mod views;
