//! Recordings and sessions, and the answers given from them and from live processes.

mod answers;
mod at_the_source;
mod contexts;
mod flight;
mod lttng_link;
mod otel;
mod recording;
mod recording_dead;
mod recording_foreign;
mod recording_killed;
mod recording_losses;
mod recording_lttng;
mod recording_newer;
mod recording_tampered;
mod recording_view;
mod sessions;
mod sessions_disk;
mod sessions_failures;
mod sessions_latecomers;
mod sessions_place;
mod sessions_snapshots;
mod slow_spans;
mod two_doors;
mod view_conditions;
