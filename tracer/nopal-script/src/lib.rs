//! The bpftrace language: script text becomes a [`nopal_program::Program`], and what a program gathers becomes text again.
//! Knows no eBPF and no process.

pub mod catalog;
