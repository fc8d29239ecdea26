//! The tools of `nopal mcp`: their names, what they take, and the command line that a call becomes.

use serde_json::{Map, Value, json};

/// One verb as a tool.
#[derive(Debug)]
pub(super) struct Tool {
    pub name: &'static str,
    description: &'static str,
    /// Its words on a command line, before everything else.
    verb: &'static [&'static str],
    own: &'static [Parameter],
    common: &'static [Parameter],
    is_writing: bool,
}

/// A member of `arguments`.
#[derive(Debug)]
struct Parameter {
    name: &'static str,
    description: &'static str,
    kind: Kind,
    is_required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Words that stand by themselves, in the order of the parameters.
    Words,
    Word,
    /// `--option=TEXT`
    Text(&'static str),
    /// `--option=A,B`
    Fields(&'static str),
    /// `--option=N`, from 1 to this.
    Number(&'static str, u64),
    /// `--duration=Ns`; a call that looks at a recording has none.
    Seconds,
}

const fn of(name: &'static str, description: &'static str, kind: Kind) -> Parameter {
    Parameter { name, description, kind, is_required: false }
}

const fn needed(name: &'static str, description: &'static str, kind: Kind) -> Parameter {
    Parameter { name, description, kind, is_required: true }
}

const MAX_SECONDS: u64 = 60;
const DEFAULT_SECONDS: u64 = 5;
const MAX_PID: u64 = u32::MAX as u64;

const PID: Parameter =
    of("pid", "process number; its descendants come with it", Kind::Number("--pid", MAX_PID));
const NAME: Parameter = of("name", "all processes of this program", Kind::Text("--name"));
const CONTAINER: Parameter =
    of("container", "all processes of this container, by name or id", Kind::Text("--container"));
const RECORDING: Parameter =
    of("recording", "folder of a recording, instead of a process", Kind::Text("--recording"));
const DURATION: Parameter = of("seconds", "how long to trace: 1 to 60, 5 without it", Kind::Seconds);
const BY: Parameter = of("by", "fields to group by", Kind::Fields("--by"));
const LIMIT: Parameter = of("limit", "rows at most", Kind::Number("--limit", 1000));

/// What is traced, and for how long; or what was recorded.
const TRACED_OR_RECORDED: &[Parameter] = &[DURATION, PID, NAME, CONTAINER, RECORDING];

const TOOLS: &[Tool] = &[
    Tool {
        name: "programs",
        description: "Running programs that can be traced, and their probes. Begin here.",
        verb: &["list", "--running", "--json"],
        own: &[of("patterns", "only probes that match: provider:name with * and ?", Kind::Words)],
        common: &[],
        is_writing: false,
    },
    Tool {
        name: "probes",
        description: "The probes of a process or a file, with the names and types of their arguments.",
        verb: &["list", "--json"],
        own: &[
            PID,
            NAME,
            CONTAINER,
            of("file", "a program or library", Kind::Word),
            of("patterns", "only probes that match: provider:name with * and ?", Kind::Words),
        ],
        common: &[],
        is_writing: false,
    },
    Tool {
        name: "spans",
        description: "The spans of a process: what `latency`, `top` and `tree` can be asked for.",
        verb: &["spans", "--json"],
        own: &[PID, NAME, CONTAINER, of("file", "a program, or the folder of a recording", Kind::Word)],
        common: &[],
        is_writing: false,
    },
    Tool {
        name: "latency",
        description: "How long spans take: count, errors, quantiles, the slowest with their arguments.",
        verb: &["latency", "--json"],
        own: &[
            needed("spans", "spans by name, or two probes", Kind::Words),
            BY,
            of("where", "a condition on fields, such as `size > 100`", Kind::Text("--where")),
            of("slowest", "how many of the slowest to show", Kind::Number("--slowest", 100)),
            LIMIT,
        ],
        common: TRACED_OR_RECORDED,
        is_writing: false,
    },
    Tool {
        name: "top",
        description: "Where the time goes: all spans, or the hits of all probes, in one table.",
        verb: &["top", "--json", "--once"],
        own: &[of("spans", "spans by name; all without it", Kind::Words), BY, LIMIT],
        common: TRACED_OR_RECORDED,
        is_writing: false,
    },
    Tool {
        name: "count",
        description: "How often probes are hit, grouped by their fields.",
        verb: &["count", "--json"],
        own: &[
            needed("probes", "provider:name with * and ?", Kind::Words),
            BY,
            of("where", "a condition on fields", Kind::Text("--where")),
            LIMIT,
        ],
        common: TRACED_OR_RECORDED,
        is_writing: false,
    },
    Tool {
        name: "hist",
        description: "The histogram of a number that a probe carries.",
        verb: &["hist", "--json"],
        own: &[
            needed("probe", "provider:name", Kind::Word),
            needed("field", "a field of it that is a number", Kind::Word),
            BY,
        ],
        common: TRACED_OR_RECORDED,
        is_writing: false,
    },
    Tool {
        name: "tree",
        description: "What the slowest span of a kind is made of.",
        verb: &["tree", "--json"],
        own: &[needed("spans", "the span that is the root, and those within", Kind::Words), LIMIT],
        common: TRACED_OR_RECORDED,
        is_writing: false,
    },
    Tool {
        name: "view",
        description: "The events of a recording.",
        verb: &["view", "--json"],
        own: &[
            needed("recording", "folder of a recording", Kind::Word),
            of("patterns", "only events that match", Kind::Words),
            of("from", "leaves out what is before: 15:30:19.5", Kind::Text("--from")),
            of("to", "leaves out what is after", Kind::Text("--to")),
            LIMIT,
        ],
        common: &[],
        is_writing: false,
    },
    Tool {
        name: "doctor",
        description: "What is in the way of tracing here, or why a probe of a process does not fire.",
        verb: &["doctor", "--json"],
        own: &[PID, NAME, of("probe", "a probe of the process, or a file", Kind::Word)],
        common: &[],
        is_writing: false,
    },
    Tool {
        name: "record",
        description: "Records events into a new folder, for the other tools to look at.",
        verb: &["record", "--json"],
        own: &[
            needed("event", "provider:name with * and ?", Kind::Text("--event")),
            needed("output", "the folder to make", Kind::Text("--output")),
            DURATION,
            PID,
            NAME,
            CONTAINER,
        ],
        common: &[],
        is_writing: true,
    },
];

pub(super) fn all(with_writing: bool) -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(move |tool| with_writing || !tool.is_writing)
}

impl Tool {
    fn parameters(&self) -> impl Iterator<Item = &'static Parameter> {
        self.own.iter().chain(self.common)
    }

    /// As `tools/list` has it.
    pub(super) fn describe(&self) -> Value {
        let schema = |parameter: &Parameter| match parameter.kind {
            Kind::Words | Kind::Fields(_) => {
                json!({ "type": "array", "items": { "type": "string" }, "description": parameter.description })
            }
            Kind::Word | Kind::Text(_) => json!({ "type": "string", "description": parameter.description }),
            Kind::Number(_, most) => {
                json!({ "type": "integer", "minimum": 1, "maximum": most, "description": parameter.description })
            }
            Kind::Seconds => {
                json!({ "type": "integer", "minimum": 1, "maximum": MAX_SECONDS, "description": parameter.description })
            }
        };
        let properties: Map<String, Value> =
            self.parameters().map(|parameter| (parameter.name.to_owned(), schema(parameter))).collect();
        let required: Vec<&str> = self.parameters().filter(|p| p.is_required).map(|p| p.name).collect();
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": { "type": "object", "properties": properties, "required": required, "additionalProperties": false },
            "annotations": { "readOnlyHint": !self.is_writing, "destructiveHint": false, "openWorldHint": false },
        })
    }

    /// The words of the command, and for how many seconds it traces; or what is wrong with the call.
    pub(super) fn command_line(&self, arguments: &Value) -> Result<(Vec<String>, u64), String> {
        let empty = Map::new();
        let given = match arguments {
            Value::Object(given) => given,
            Value::Null => &empty,
            _ => return Err("`arguments` is not an object".to_owned()),
        };
        let names: Vec<&str> = self.parameters().map(|parameter| parameter.name).collect();
        if let Some(other) = given.keys().find(|name| !names.contains(&name.as_str())) {
            return Err(format!("`{other}` is not known; {} takes {}", self.name, names.join(", ")));
        }
        let mut words: Vec<String> = self.verb.iter().map(|word| (*word).to_owned()).collect();
        let is_at_rest = given.contains_key("recording");
        let mut seconds = 0;
        for parameter in self.parameters() {
            let value = given.get(parameter.name).filter(|value| !value.is_null());
            match (value, parameter.kind) {
                (None, Kind::Seconds) if !is_at_rest => seconds = DEFAULT_SECONDS,
                (None, _) if parameter.is_required => return Err(format!("`{}` is missing", parameter.name)),
                (None, _) => {}
                (Some(value), Kind::Seconds) => seconds = number(parameter.name, value, MAX_SECONDS)?,
                (Some(value), Kind::Number(option, most)) => {
                    words.push(format!("{option}={}", number(parameter.name, value, most)?));
                }
                (Some(value), Kind::Text(option)) => {
                    words.push(format!("{option}={}", text(parameter.name, value)?))
                }
                (Some(value), Kind::Fields(option)) => {
                    words.push(format!("{option}={}", texts(parameter.name, value)?.join(",")));
                }
                (Some(value), Kind::Word) => {
                    words.push(by_itself(parameter.name, text(parameter.name, value)?)?)
                }
                (Some(value), Kind::Words) => {
                    for word in texts(parameter.name, value)? {
                        words.push(by_itself(parameter.name, word)?);
                    }
                }
            }
        }
        if seconds > 0 && !is_at_rest {
            words.push(format!("--duration={seconds}s"));
        }
        Ok((words, seconds))
    }
}

fn number(name: &str, value: &Value, most: u64) -> Result<u64, String> {
    let number = value.as_u64().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| format!("`{name}` must be a number from 1 to {most}"))
}

fn text<'v>(name: &str, value: &'v Value) -> Result<&'v str, String> {
    let text = value.as_str().filter(|text| !text.is_empty() && !text.contains('\0'));
    text.ok_or_else(|| format!("`{name}` must be a string that is not empty"))
}

/// One text is a list of one.
fn texts<'v>(name: &str, value: &'v Value) -> Result<Vec<&'v str>, String> {
    match value {
        Value::Array(values) => values.iter().map(|value| text(name, value)).collect(),
        value => text(name, value).map(|text| vec![text]),
    }
}

/// A word that the command line must not take for an option.
fn by_itself(name: &str, word: &str) -> Result<String, String> {
    match word.starts_with('-') {
        true => Err(format!("`{name}` must not begin with `-`")),
        false => Ok(word.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, arguments: Value) -> Result<String, String> {
        let tool = all(true).find(|tool| tool.name == name).expect("it is there");
        tool.command_line(&arguments).map(|(words, _)| words.join(" "))
    }

    #[test]
    fn calls_become_command_lines() {
        for (name, arguments, expected) in [
            ("programs", json!({}), "list --running --json"),
            ("programs", Value::Null, "list --running --json"),
            (
                "probes",
                json!({ "name": "postgres", "patterns": ["query__*"] }),
                "list --json --name=postgres query__*",
            ),
            (
                "latency",
                json!({ "spans": ["query"], "pid": 7 }),
                "latency --json query --pid=7 --duration=5s",
            ),
            (
                "latency",
                json!({ "spans": "query", "by": ["a", "b"], "recording": "r" }),
                "latency --json query --by=a,b --recording=r",
            ),
            ("top", json!({ "seconds": 9, "name": "-x" }), "top --json --once --name=-x --duration=9s"),
            (
                "hist",
                json!({ "probe": "a:b", "field": "n", "pid": 1 }),
                "hist --json a:b n --pid=1 --duration=5s",
            ),
        ] {
            assert_eq!(line(name, arguments.clone()).as_deref(), Ok(expected), "{name} {arguments}");
        }
    }

    #[test]
    fn no_word_becomes_an_option() {
        for (name, arguments) in [
            ("view", json!({ "recording": "--live" })),
            ("latency", json!({ "spans": ["query", "--", "rm"] })),
            ("latency", json!({ "spans": ["-n"] })),
            ("count", json!({ "probes": ["a:b"], "command": ["rm"] })),
            ("latency", json!({})),
            ("latency", json!({ "spans": [7] })),
            ("latency", json!({ "spans": ["query"], "seconds": 61 })),
            ("latency", json!({ "spans": ["query"], "pid": -1 })),
            ("latency", json!({ "spans": ["query"], "pid": "7" })),
            ("latency", json!([])),
        ] {
            assert!(line(name, arguments.clone()).is_err(), "{name} {arguments}");
        }
        assert!(all(false).all(|tool| !tool.is_writing) && all(true).count() == all(false).count() + 1);
    }
}
