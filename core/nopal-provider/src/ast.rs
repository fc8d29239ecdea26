//! What a `.d` file says, after parsing: providers, their probes, and what the doc comments tell about both.

use crate::diagnostic::Diagnostic;

/// One `.d` file. May hold no provider at all (`BEGIN{}`), or several.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct File {
    pub providers: Vec<Provider>,
    /// Definitions of types in front of the providers, as written but with single blanks.
    pub declarations: Vec<Declaration>,
    pub pragmas: Vec<Pragma>,
    /// What was accepted but deserves a word, notes included; in the order of the text.
    pub warnings: Vec<Diagnostic>,
}

impl File {
    pub fn provider(&self, name: &str) -> Option<&Provider> {
        self.providers.iter().find(|p| p.name == name)
    }
}

/// `provider NAME { ... };`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Provider {
    pub name: String,
    pub doc: String,
    pub probes: Vec<Probe>,
}

impl Provider {
    pub fn probe(&self, name: &str) -> Option<&Probe> {
        self.probes.iter().find(|p| p.name == name)
    }
}

/// `probe NAME(ARGS) : (TRANSLATED);`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Probe {
    /// As declared and as it stands in the note: `query__start`.
    pub name: String,
    /// The comment in front of the probe without its tags.
    pub doc: String,
    /// What the program passes, in the order of the note's operands.
    pub args: Vec<Arg>,
    /// The second list of a probe with a translator: what a D script sees instead.
    pub translated: Option<Vec<Arg>>,
    /// The other end of an interval: from `@pair`, or from names such as `x__start` and `x__done`.
    pub pair: Option<Pair>,
}

/// One argument.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Arg {
    /// `None` if the declaration has a type only.
    pub name: Option<String>,
    /// The declared C type with single blanks: `const char *`, `unsigned long long`, `struct T **`.
    pub c_type: String,
    pub kind: Kind,
    /// Size of a number on a 64-bit machine; `None` if the type is not one this file or C defines.
    pub size_bytes: Option<u8>,
    pub doc: String,
    /// Index in [`Probe::args`] of the argument that holds this one's length in bytes (`@length`).
    pub length: Option<usize>,
    /// Names of values (`@enum`).
    pub labels: Vec<Label>,
}

/// How to show an argument's bits. The numbers are those of the nopal note, `docs/formats.md` section 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Kind {
    /// The type is a name this file does not define; width and sign come from the note's operand.
    #[default]
    Unknown = 0,
    Signed = 1,
    Unsigned = 2,
    Pointer = 3,
    Bool = 4,
    /// Ends at its NUL.
    CString = 5,
    /// Has its length in another argument.
    Str = 6,
    Bytes = 7,
    Float = 8,
    Enum = 9,
    Char = 12,
}

/// One named value of an enum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub value: i64,
    pub text: String,
}

/// The partner of a probe that opens or closes an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The role of the probe that has this pair, not of the partner.
    pub role: Role,
    pub partner: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    Start = 1,
    End = 2,
}

/// A type definition at the top of the file, or a clause of a D script (`BEGIN{}`), which declares no probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub text: String,
}

/// `#pragma D ...` without those two words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pragma {
    pub text: String,
}
