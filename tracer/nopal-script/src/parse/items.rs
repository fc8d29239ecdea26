//! Where the parts of a script stand in its text.

use super::{Parsed, Parser};

/// A probe, a macro, a definition: one thing at the top level. Places are bytes of the text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Item {
    pub start: usize,
    pub end: usize,
    /// Of a probe.
    pub points: Vec<(usize, usize)>,
    /// With its slashes.
    pub predicate: Option<(usize, usize)>,
    /// The brace that begins statements or settings.
    pub body: Option<usize>,
    pub is_setting: bool,
}

/// As many parameters as a script may name.
const N_PARAMETERS: usize = 1000;

/// The parts of a script that can be read.
pub(crate) fn items(text: &str) -> Parsed<Vec<Item>> {
    let mut parser = Parser::of(text);
    // What they stand for does not matter.
    parser.script.parameters = vec!["1".to_owned(); N_PARAMETERS];
    parser.script.options.is_unsafe = true;
    parser.script()?;
    Ok(parser.items)
}
