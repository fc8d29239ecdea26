//! `-C`: runs the C preprocessor over the file.

use super::options::Options;
use std::process::{Command, Stdio};

/// The preprocessed text, comments and line markers kept: the comments document probes, and through the markers
/// errors name the lines people wrote.
pub(super) fn run(options: &Options) -> Result<String, String> {
    let cpp = std::env::var("CPP").ok().filter(|c| !c.trim().is_empty()).unwrap_or_else(|| "cpp".to_owned());
    let mut words = split_words(&cpp).into_iter();
    let program = words.next().unwrap_or_else(|| "cpp".to_owned());
    if let Err(e) = std::fs::File::open(&options.input) {
        return Err(format!("dtrace: cannot read {}: {e}", options.input.display()));
    }
    let mut command = Command::new(&program);
    command.args(words).arg("-C").args(&options.preprocessor_options);
    // A compiler driver (`gcc -E`) would not know what to do with a file named `.d`.
    if !program.ends_with("cpp") {
        command.args(["-x", "c"]);
    }
    command.arg(&options.input).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|e| {
        format!(
            "dtrace: cannot run the preprocessor `{program}`: {e}\n  install cpp, or name another with CPP=, or leave -C out"
        )
    })?;
    if !output.status.success() {
        return Err(format!("dtrace: `{cpp}` failed on {}: {}", options.input.display(), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Splits like a shell does: blanks, both kinds of quotes, backslashes.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_like_in_a_shell() {
        let table: [(&str, &[&str]); 5] = [
            ("cpp", &["cpp"]),
            (" gcc  -E ", &["gcc", "-E"]),
            ("'/my tools/cpp' -D\"a b\"", &["/my tools/cpp", "-Da b"]),
            ("/my\\ tools/cpp ''", &["/my tools/cpp", ""]),
            ("", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(split_words(text), expected, "{text}");
        }
    }
}
