//! Scripts with mistakes in them: tokens of good scripts left out, doubled, exchanged, and mixed. None may make the compiler
//! fail otherwise than by saying what is wrong, and what it takes must be a program that names only what it has.
//! `NOPAL_MUTATIONS=N` tries N of them; `fuzz/` goes further.

mod catalog;

use catalog::TestCatalog;
use nopal_program::interpret::Interpreter;
use nopal_script::{Options, compile_with_warnings, parse};
use std::path::Path;
use std::sync::Arc;

/// The scripts that are compared with bpftrace.
fn scripts() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/scripts/differential.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut scripts: Vec<String> = Vec::new();
    for line in text.lines().skip_while(|line| !line.starts_with("== ")) {
        match (line.starts_with("== "), scripts.last_mut()) {
            (true, _) => scripts.push(String::new()),
            (false, Some(script)) => *script += &format!("{line}\n"),
            (false, None) => {}
        }
    }
    scripts
}

/// Words, numbers, and other characters one by one, blanks with what stands before them.
fn tokens(script: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = script;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len()).max(first.len_utf8());
        let blank = rest[word..].find(|c: char| !c.is_whitespace()).unwrap_or(rest.len() - word);
        let (token, behind) = rest.split_at(word + blank);
        tokens.push(token);
        rest = behind;
    }
    tokens
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }
}

#[test]
fn a_mistake_is_told_of_and_nothing_else_happens() {
    let scripts = scripts();
    let parts: Vec<Vec<&str>> = scripts.iter().map(|script| tokens(script)).collect();
    let n = std::env::var("NOPAL_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut n_taken, mut n_refused) = (0, 0);
    for round in 0..n {
        let mut words = parts[random.below(parts.len())].clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(words.len());
            let other = &parts[random.below(parts.len())];
            let from = random.below(other.len());
            let some = &other[from..other.len().min(from + 1 + random.below(4))];
            match random.below(5) {
                0 if words.len() > 1 => drop(words.remove(at)),
                1 => words.insert(at, words[at]),
                2 => {
                    let with = random.below(words.len());
                    words.swap(at, with);
                }
                3 => drop(words.splice(at..at, some.iter().copied())),
                _ => drop(words.splice(at..=at, some.iter().copied())),
            }
        }
        let script = words.concat();
        let tried = std::panic::catch_unwind(|| {
            let parameters = ["one".to_string(), "-2".to_string()];
            let outcome =
                parse(&script, "a.bt", &parameters, &Options { is_unsafe: true, ..Options::default() })
                    .and_then(|parsed| compile_with_warnings(&parsed, &TestCatalog));
            match outcome {
                Ok((program, warnings)) => {
                    warnings.iter().for_each(|warning| drop(warning.render(&script, "a.bt", false)));
                    drop(program.to_string());
                    Interpreter::new(Arc::new(program), 0).unwrap();
                    true
                }
                Err(diagnostics) => {
                    assert!(diagnostics.iter().any(|diagnostic| diagnostic.is_error()));
                    let shown = diagnostics[0].render(&script, "a.bt", false);
                    assert!(shown.contains(" --> a.bt:") && shown.contains('^'), "{shown}");
                    false
                }
            }
        });
        match tried {
            Ok(true) => n_taken += 1,
            Ok(false) => n_refused += 1,
            Err(_) => panic!("round {round}:\n{script}"),
        }
    }
    assert!(n_taken > 0 && n_refused > 0, "{n_taken} taken, {n_refused} refused");
}
