//! What lines of events look like: short ones for people at a terminal, babeltrace2's for programs.

use nopal_trace::Look;
use std::io::IsTerminal;

/// As it is asked for with `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LineArg {
    /// Time, process, probe, arguments.
    Short,
    /// As babeltrace2 prints them.
    Babeltrace,
}

/// Short lines on a terminal, babeltrace2's in files and pipes, unless something is asked for.
pub(crate) fn look(asked: Option<LineArg>) -> Look {
    let is_terminal = std::io::stdout().is_terminal();
    let has_colour =
        is_terminal && anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
    match asked {
        Some(LineArg::Short) => Look::Short { has_colour },
        None if is_terminal => Look::Short { has_colour },
        Some(LineArg::Babeltrace) | None => Look::Babeltrace,
    }
}
