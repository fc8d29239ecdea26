//! How nopal opens files. A tracer often runs as root, while the file belongs to somebody else: [`foreign`] reads such
//! files without ever waiting, growing without bound or being killed by them. [`own`] writes ours without following a
//! link that somebody planted. Knows nothing of what is in the files.

#![warn(unreachable_pub)]

pub mod foreign;
pub mod own;
