//! A word that names no span or no probe, and what there is instead.

use std::fmt;

/// A word that names no span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSpan {
    /// With the nearest name there is.
    Unknown {
        word: String,
        nearest: Option<String>,
        there_are: Vec<String>,
    },
    /// Several spans have this short name.
    Several {
        word: String,
        names: Vec<String>,
    },
    /// It is a probe, and no span begins or ends there.
    IsProbe {
        word: String,
    },
    /// These probes of the span are not there; with one there is that is called nearly the same.
    Absent {
        word: String,
        probes: Vec<String>,
        nearest: Option<String>,
    },
    NoProbe {
        word: String,
        nearest: Option<String>,
        there_are: Vec<String>,
    },
    SeveralProbes {
        word: String,
        names: Vec<String>,
    },
}

impl fmt::Display for NoSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSpan::Unknown { word, .. } => write!(f, "no span is called `{word}`"),
            NoSpan::Several { word, .. } => write!(f, "several spans are called `{word}`"),
            NoSpan::IsProbe { word } => {
                write!(f, "`{word}` is a probe, and no known span begins or ends there")
            }
            NoSpan::Absent { word, .. } => write!(f, "the probes of `{word}` are not in what is traced"),
            NoSpan::NoProbe { word, .. } => write!(f, "no probe is called `{word}`"),
            NoSpan::SeveralProbes { word, .. } => write!(f, "several probes are called `{word}`"),
        }
    }
}

impl NoSpan {
    /// The next step.
    pub fn hint(&self) -> String {
        match self {
            NoSpan::Unknown { word, .. } | NoSpan::NoProbe { word, .. } if word.contains(" if ") => {
                let (word, condition) = word.split_once(" if ").unwrap_or((word, ""));
                format!(
                    "a condition has an option of its own: `{}` `--where '{}'`",
                    word.trim(),
                    condition.trim()
                )
            }
            NoSpan::Unknown { nearest: Some(near), .. } | NoSpan::NoProbe { nearest: Some(near), .. } => {
                format!("did you mean `{near}`?")
            }
            NoSpan::Unknown { there_are, .. } if there_are.is_empty() => {
                "there are none here; name two probes, BEGIN and END, or declare spans in a nopal.toml"
                    .to_owned()
            }
            NoSpan::Unknown { there_are, .. } => format!("there are {}", listed(there_are)),
            NoSpan::Several { names, .. } | NoSpan::SeveralProbes { names, .. } => {
                format!("name one of {}", listed(names))
            }
            NoSpan::IsProbe { word } => format!(
                "`nopal latency {word} END` pairs it with another probe; `nopal count {word}` counts it"
            ),
            NoSpan::Absent { probes, nearest: None, .. } => format!("it needs {}", listed(probes)),
            NoSpan::Absent { probes, nearest: Some(near), .. } => {
                format!("it needs {}; did you mean `{near}`?", listed(probes))
            }
            NoSpan::NoProbe { there_are, .. } if !there_are.is_empty() => {
                format!("there are {}", listed(there_are))
            }
            NoSpan::NoProbe { .. } => {
                "`nopal list -p PID` shows the probes of a process, `nopal list FILE` of a program".to_owned()
            }
        }
    }
}

/// The first few, for a message.
fn listed(names: &[String]) -> String {
    const N_SHOWN: usize = 8;
    let shown = names[..names.len().min(N_SHOWN)].join(", ");
    match names.len().checked_sub(N_SHOWN) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}
