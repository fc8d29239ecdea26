//! Static probes that cost a `nop` until somebody traces them.
#![no_std]
