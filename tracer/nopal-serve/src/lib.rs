//! An exporter that is always on: chosen spans and probes of programs, also of those yet to be started, as metrics that
//! Prometheus scrapes (`exposition`) and OpenTelemetry collectors are sent (`otlp`). `target` traces, `server` is the loop.

mod config;
mod exposition;
mod http;
mod otlp;
mod push;
mod server;
mod target;

pub use config::{Config, ConfigError, OtlpConfig, TargetConfig};
pub use server::{Files, ServeError, Server};
