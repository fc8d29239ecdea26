//! Sessions in LTTng's words, without a daemon. A session is a folder that only its owner can read: `session.toml` says
//! what is wanted, and while it is started one recorder process holds the folder's lock and listens on its socket. Every
//! command finds the recorder again through the folder.

mod budget;
mod channel;
pub mod clear;
pub mod config;
pub mod control;
pub mod ctf_recorder;
mod error;
mod flight_buffer;
mod groups;
pub mod home;
pub mod killed;
mod output;
pub mod programs;
pub mod recorder_process;
mod recording_dir;
mod reload;
mod totals;
mod turn;
pub mod watch;

pub use config::{Channel, Rotation, Rule, SessionConfig, Tracked};
pub use error::SessionError;
pub use home::{Home, Session};
pub use totals::Totals;
pub use turn::Turn;
