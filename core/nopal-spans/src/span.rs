//! What a span is: where it begins and ends, what tells two of them apart, and what is worth knowing of one.

use std::fmt;

/// The field of a function's probes that has the stack pointer.
pub const STACK: &str = "sp";
/// Of a function of Go: which goroutine is in it, and where the goroutine's stack begins, at its highest address.
pub const GOROUTINE: &str = "goroutine";
pub const STACK_END: &str = "stack_end";

/// A kind of span, such as `postgresql:query`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// May be empty for spans of several providers.
    pub provider: String,
    pub name: String,
    pub doc: String,
    pub shape: Shape,
    pub mode: Mode,
    /// Probes that end it as failed: what an exception or an error runs into instead of the end.
    pub fails: Vec<ProbeName>,
    /// A condition on its fields that makes it an error.
    pub error: Option<String>,
    /// Fields worth showing, the most telling first.
    pub fields: Vec<String>,
    /// Fields taken from the latest event of another probe on the same thread.
    pub carries: Vec<Carry>,
    /// The span it is a part of: what is still open of it when that one ends will never end.
    pub parent: Option<String>,
    /// Only the outermost of several on one thread counts.
    pub is_outermost: bool,
    /// Not among all spans, as it costs more than the others together: measured only if its name is asked for.
    pub is_by_name: bool,
    /// Calls of a function. Their field [`STACK`] is the stack pointer, which tells them apart: two that are under way never have
    /// the same.
    pub is_call: bool,
    pub source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Begins at any of the first probes, ends at any of the second.
    Pair { begins: Vec<ProbeName>, ends: Vec<ProbeName> },
    /// One event at its end that says how long it took.
    Whole { probe: ProbeName, duration: String, unit: Unit },
}

/// How an end finds its begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The innermost open one of the same thread; with fields, the innermost whose fields are those of the end.
    Thread { matching: Vec<KeyField> },
    /// The one of the same process whose fields are those of the end, on whatever thread.
    Key(Vec<KeyField>),
}

/// A field that begin and end have in common, maybe under two names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    pub begin: String,
    pub end: String,
    /// A field of both whose value is taken off.
    pub less: Option<String>,
}

/// A field of another probe that a span takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carry {
    /// What the span calls it.
    pub name: String,
    pub probe: ProbeName,
    pub field: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeName {
    pub provider: String,
    pub name: String,
}

/// Of a duration that an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Ns,
    Us,
    Ms,
    S,
}

/// Where a definition comes from; of two with one name the earlier source wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    CommandLine,
    File(String),
    /// The nopal note of the binary: `@pair`.
    Note,
    Catalog,
    /// A `.d` file: `@pair`.
    Declared,
    Convention,
}

impl Span {
    /// A span between two probes of one thread.
    pub fn pair(name: &str, begin: ProbeName, end: ProbeName, source: Source) -> Span {
        Span {
            provider: begin.provider.clone(),
            name: name.to_owned(),
            doc: String::new(),
            shape: Shape::Pair { begins: vec![begin], ends: vec![end] },
            mode: Mode::Thread { matching: Vec::new() },
            fails: Vec::new(),
            error: None,
            fields: Vec::new(),
            carries: Vec::new(),
            parent: None,
            is_outermost: false,
            is_by_name: false,
            is_call: false,
            source,
        }
    }

    /// Calls of a function, from the probe where it is entered to the one where it is left.
    pub fn call(name: &str, begin: ProbeName, end: ProbeName, source: Source) -> Span {
        let matching = vec![KeyField::parse(STACK)];
        Span { mode: Mode::Thread { matching }, is_call: true, ..Span::pair(name, begin, end, source) }
    }

    /// Calls of a function of Go. A goroutine goes from thread to thread, and its stack may move while it is in a call: what
    /// stays is how far below the end of its stack the call began.
    pub fn goroutine_call(name: &str, begin: ProbeName, end: ProbeName, source: Source) -> Span {
        let depth = KeyField { less: Some(STACK.to_owned()), ..KeyField::parse(STACK_END) };
        let mode = Mode::Key(vec![KeyField::parse(GOROUTINE), depth]);
        Span { mode, is_call: true, ..Span::pair(name, begin, end, source) }
    }

    /// `provider:name`, or the name alone.
    pub fn full_name(&self) -> String {
        if self.provider.is_empty() { self.name.clone() } else { format!("{}:{}", self.provider, self.name) }
    }

    pub fn begins(&self) -> &[ProbeName] {
        match &self.shape {
            Shape::Pair { begins, .. } => begins,
            Shape::Whole { probe, .. } => std::slice::from_ref(probe),
        }
    }

    pub fn ends(&self) -> &[ProbeName] {
        match &self.shape {
            Shape::Pair { ends, .. } => ends,
            Shape::Whole { .. } => &[],
        }
    }

    /// Every probe that must be traced for it.
    pub fn probes(&self) -> impl Iterator<Item = &ProbeName> {
        let carried = self.carries.iter().map(|carry| &carry.probe);
        self.begins().iter().chain(self.ends()).chain(&self.fails).chain(carried)
    }

    pub fn key(&self) -> &[KeyField] {
        match &self.mode {
            Mode::Thread { matching } => matching,
            Mode::Key(fields) => fields,
        }
    }
}

impl ProbeName {
    pub fn new(provider: &str, name: &str) -> ProbeName {
        ProbeName { provider: provider.to_owned(), name: name.to_owned() }
    }

    /// `provider:name`, or a name of the provider given.
    pub fn parse(text: &str, provider: &str) -> ProbeName {
        match text.split_once(':') {
            Some((provider, name)) => ProbeName::new(provider, name),
            None => ProbeName::new(provider, text),
        }
    }

    pub fn is(&self, provider: &str, name: &str) -> bool {
        self.provider == provider && self.name == name
    }
}

impl fmt::Display for ProbeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.provider.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{}:{}", self.provider, self.name),
        }
    }
}

impl KeyField {
    /// `id`, or `id=request_id` where the end calls it otherwise.
    pub fn parse(text: &str) -> KeyField {
        let (begin, end) = text.split_once('=').unwrap_or((text, text));
        KeyField { begin: begin.trim().to_owned(), end: end.trim().to_owned(), less: None }
    }
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.begin == self.end {
            true => f.write_str(&self.begin)?,
            false => write!(f, "{}={}", self.begin, self.end)?,
        }
        self.less.iter().try_for_each(|less| write!(f, "-{less}"))
    }
}

impl Unit {
    pub const ALL: [(&'static str, Unit); 4] =
        [("ns", Unit::Ns), ("us", Unit::Us), ("ms", Unit::Ms), ("s", Unit::S)];

    pub fn parse(text: &str) -> Option<Unit> {
        Unit::ALL.iter().find(|(name, _)| *name == text).map(|(_, unit)| *unit)
    }

    pub fn ns(self) -> u64 {
        match self {
            Unit::Ns => 1,
            Unit::Us => 1_000,
            Unit::Ms => 1_000_000,
            Unit::S => 1_000_000_000,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::CommandLine => f.write_str("command line"),
            Source::File(path) => f.write_str(path),
            Source::Note => f.write_str("the binary's note"),
            Source::Catalog => f.write_str("catalog"),
            Source::Declared => f.write_str(".d file"),
            Source::Convention => f.write_str("names"),
        }
    }
}
