//! The script itself: where its text comes from, what is wrong with it, what it was compiled to.

use super::{is_colour, tools};
use crate::failure::Failure;
use nopal_script::Diagnostic;
use std::io::Read;
use std::path::Path;

/// The text of a script and what to call it.
#[derive(Debug)]
pub(crate) struct Source {
    pub name: String,
    pub text: String,
    /// What is wrong is told as bpftrace does.
    pub is_bpftrace: bool,
}

/// Larger files are not scripts.
const MAX_BYTES: u64 = 4 << 20;

/// Options of the script that it does not ask for are errors, as is `--help`.
pub(super) fn check_named(script: &nopal_script::Script, given: &[String]) -> Result<(), Failure> {
    let known = script.named_parameters();
    let name_of = |word: &String| word.split('=').next().unwrap_or(word).to_owned();
    let mut expected = String::from("expected program options:");
    for (name, doc) in &known {
        let doc = doc.as_ref().map(|doc| format!(": {doc}")).unwrap_or_default();
        expected.push_str(&format!("\n--{name}{doc}"));
    }
    if given.iter().any(|word| word == "--help") && !known.iter().any(|(name, _)| name == "help") {
        return Err(Failure::usage("this is what the script takes").hint(expected));
    }
    let is_known = |word: &String| known.iter().any(|(name, _)| word.strip_prefix("--") == Some(name));
    let unknown: Vec<String> = given.iter().map(name_of).filter(|word| !is_known(word)).collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => {
            let names: Vec<String> = known.iter().map(|(name, _)| format!("--{name}")).collect();
            let hint = format!("expected program options: {}", names.join(" "));
            let message = format!("unexpected program command line options: {}", unknown.join(", "));
            Err(Failure::usage(message).hint(hint))
        }
    }
}

impl Source {
    /// From -e, or from the file that is the first word; the words left are parameters.
    pub(crate) fn read(words: &mut Vec<String>, expressions: Vec<String>) -> Result<Source, Failure> {
        if !expressions.is_empty() {
            return Ok(Source { name: "-e".to_owned(), text: expressions.join("\n"), is_bpftrace: false });
        }
        if words.is_empty() {
            return Err(Failure::usage("no script given")
                .hint("name a file, or give the text with -e 'usdt:./app:prov:name { @ = count(); }'"));
        }
        let name = words.remove(0);
        let failed = |e: &std::io::Error| {
            let failure = Failure::new("no-script", format!("cannot read {name}: {e}"));
            match name.contains(['{', '}']) {
                true => failure.hint("give the text of a script with -e"),
                false if name.contains(':') && !name.contains('/') => failure.hint(format!(
                    "`nopal trace {name}` prints the hits of a probe; a script is given with -e"
                )),
                false => match tools::near(&name) {
                    Some(near) => failure.hint(format!("did you mean the tool `{near}`?")),
                    None => failure.hint("`nopal run --list` shows the scripts that come with nopal"),
                },
            }
        };
        // A file of this name comes first, so that a tool can be changed.
        if !Path::new(&name).exists()
            && let Some(text) = tools::find(&name)
        {
            return Ok(Source { name, text: text.to_owned(), is_bpftrace: false });
        }
        let mut bytes = Vec::new();
        if name == "-" {
            std::io::stdin().take(MAX_BYTES).read_to_end(&mut bytes).map_err(|e| failed(&e))?;
        } else {
            let file = std::fs::File::open(&name).map_err(|e| failed(&e))?;
            file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(|e| failed(&e))?;
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::new("no-script", format!("{name} is not UTF-8 text")))?;
        Ok(Source { name, text, is_bpftrace: false })
    }

    /// What it is called in messages.
    pub(crate) fn shown_name(&self) -> &str {
        match self.is_bpftrace && matches!(self.name.as_str(), "-e" | "-") {
            true => "stdin",
            false => &self.name,
        }
    }

    /// One of the things that are wrong.
    pub(crate) fn shown(&self, diagnostic: &Diagnostic) -> String {
        match self.is_bpftrace {
            true => diagnostic.render_as_bpftrace(&self.text, self.shown_name()),
            false => diagnostic.render(&self.text, &self.name, is_colour()),
        }
    }

    /// What is wrong with the script, each with its line and a caret.
    pub(crate) fn failure(&self, diagnostics: &[Diagnostic]) -> Failure {
        let mut text = Vec::new();
        for diagnostic in diagnostics {
            text.push(self.shown(diagnostic));
        }
        if self.is_bpftrace {
            let mut failure = Failure::new("script", text.join("\n"));
            failure.is_styled = true;
            return failure;
        }
        let n_errors = diagnostics.iter().filter(|d| d.is_error()).count();
        let mut failure = Failure::new("script", format!("the script cannot run\n{}", text.join("\n")));
        failure.is_styled = true;
        failure.hint = (n_errors > 1).then(|| format!("{n_errors} errors"));
        failure
    }
}

/// `BPFTRACE_MAX_STRLEN` and the like, as settings of the script.
pub(crate) fn settings_of_environment() -> Vec<(String, String)> {
    let text = |value: std::ffi::OsString| value.into_string().ok();
    std::env::vars_os()
        .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
        .filter(|(name, _)| name.starts_with("BPFTRACE_"))
        .collect()
}

/// A command line in words, as a shell takes it apart: blanks separate, quotes and backslashes keep together.
pub(crate) fn words_of(line: &str) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Failure::usage(format!("a quote in `{line}` has no end")));
    }
    words.extend(word);
    if words.is_empty() {
        return Err(Failure::usage("-c has no command"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_in_words() {
        for (line, want) in [
            ("ls -l", &["ls", "-l"][..]),
            ("  sh -c 'echo \"a b\"'  ", &["sh", "-c", "echo \"a b\""]),
            ("a\\ b \"c\\\"d\" ''", &["a b", "c\"d", ""]),
        ] {
            assert_eq!(words_of(line).unwrap(), want, "{line}");
        }
        assert!(words_of("a 'b").is_err() && words_of("  ").is_err());
    }
}
