//! What to serve: a file that people write.
//!
//! ```toml
//! listen = "127.0.0.1:9464"
//!
//! [[target]]
//! program = "postgres"
//! spans = ["postgresql:query"]
//! by = ["query"]
//! ```

use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where metrics and the health page are served.
    #[serde(default = "loopback")]
    pub listen: SocketAddr,
    #[serde(default, rename = "target")]
    pub targets: Vec<TargetConfig>,
    pub otlp: Option<OtlpConfig>,
}

/// A program, whose processes are found by its name, also after it was started again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// The name of the program, or with a slash its path.
    pub program: String,
    /// What the label `target` says; the name of the program unless said otherwise.
    pub name: Option<String>,
    /// Spans that are measured.
    #[serde(default)]
    pub spans: Vec<String>,
    /// Probes whose hits are counted: `provider:name`.
    #[serde(default)]
    pub probes: Vec<String>,
    /// Fields whose values become labels.
    #[serde(default)]
    pub by: Vec<String>,
    /// Sets of labels that are told apart, of spans and of probes each; the rest is one.
    #[serde(default = "max_series")]
    pub max_series: usize,
    /// A file that declares spans.
    pub spans_file: Option<PathBuf>,
    /// `.d` files that name the arguments of probes.
    #[serde(default)]
    pub providers: Vec<PathBuf>,
    /// Whether trace and span id are read where the program publishes OpenTelemetry's thread context.
    #[serde(default)]
    pub otel: bool,
    /// Of the ring of each CPU.
    #[serde(default = "ring_kib")]
    pub buffer_kib: u64,
}

/// Where metrics are sent by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtlpConfig {
    /// `http://HOST:PORT/v1/metrics`
    pub endpoint: String,
    #[serde(default = "every_s")]
    pub every_s: u64,
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9464))
}

fn max_series() -> usize {
    500
}

fn ring_kib() -> u64 {
    1024
}

fn every_s() -> u64 {
    15
}

/// As many series as one target may ever have: each has a histogram.
const MOST_SERIES: usize = 10_000;

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    Toml(String),
    NoTarget,
    /// It asks for neither spans nor probes.
    Nothing {
        program: String,
    },
    /// Two targets have one name.
    Twice {
        name: String,
    },
    Series {
        name: String,
        most: usize,
    },
    Endpoint {
        endpoint: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Toml(error) => f.write_str(error.trim_end()),
            ConfigError::NoTarget => f.write_str("it has no [[target]]"),
            ConfigError::Nothing { program } => {
                write!(f, "the target `{program}` has neither spans nor probes")
            }
            ConfigError::Twice { name } => write!(f, "two targets are called `{name}`"),
            ConfigError::Series { name, most } => {
                write!(f, "max_series of the target `{name}` must be from 1 to {most}")
            }
            ConfigError::Endpoint { endpoint } => {
                write!(f, "not an endpoint: `{endpoint}`; write http://HOST:PORT/v1/metrics")
            }
        }
    }
}

impl TargetConfig {
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.program)
    }
}

impl Config {
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| ConfigError::Toml(error.to_string()))?;
        if config.targets.is_empty() {
            return Err(ConfigError::NoTarget);
        }
        for (at, target) in config.targets.iter().enumerate() {
            let name = target.label().to_owned();
            if target.spans.is_empty() && target.probes.is_empty() {
                return Err(ConfigError::Nothing { program: target.program.clone() });
            }
            if config.targets[..at].iter().any(|other| other.label() == name) {
                return Err(ConfigError::Twice { name });
            }
            if target.max_series == 0 || target.max_series > MOST_SERIES {
                return Err(ConfigError::Series { name, most: MOST_SERIES });
            }
        }
        if let Some(otlp) = &config.otlp
            && crate::push::Place::parse(&otlp.endpoint).is_none()
        {
            return Err(ConfigError::Endpoint { endpoint: otlp.endpoint.clone() });
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        let target = "[[target]]\nprogram = \"a\"\nspans = [\"b\"]\n";
        let fine = Config::parse(target).unwrap();
        assert_eq!((fine.listen.port(), fine.targets[0].label()), (9464, "a"));
        for (text, said) in [
            ("", "it has no [[target]]"),
            ("[[target]]\nprogram = \"a\"\n", "has neither spans nor probes"),
            (&format!("{target}{target}"), "two targets are called `a`"),
            (&format!("{target}max_series = 0\n"), "must be from 1 to"),
            (&format!("{target}[otlp]\nendpoint = \"https://x\"\n"), "not an endpoint"),
            (&format!("{target}colour = 3\n"), "unknown field `colour`"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
