//! What tracer and tracee agree on byte for byte: records, the ring, the control page. Does no IO.
#![no_std]
