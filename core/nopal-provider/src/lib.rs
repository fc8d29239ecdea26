//! The `.d` provider language and everything generated from it. Does no IO.
