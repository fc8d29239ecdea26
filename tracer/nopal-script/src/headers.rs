//! Headers of C, as far as scripts use them: the numbers that they define. Types come from the script or the kernel. Reads no
//! file: whoever calls gives the texts.

use crate::preprocess::Defines;
use std::collections::HashSet;

/// `#include <name>` or `#include "name"` of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Include {
    pub name: String,
    /// In angle brackets.
    pub is_system: bool,
    /// How many lines of the preprocessor come before it.
    pub n_before: usize,
}

/// Headers include others; more than this is no sensible set of them.
const MAX_HEADERS: usize = 400;
/// The same of their texts together, and of headers within each other.
const MAX_BYTES: usize = 32 << 20;
const MAX_LEVELS: u32 = 50;

/// What a script's text includes, in its order.
pub fn includes(text: &str) -> Vec<Include> {
    let directives = text.lines().filter_map(|line| line.trim_start().strip_prefix('#'));
    let directives = directives.filter(|rest| !rest.starts_with('!'));
    directives.enumerate().filter_map(|(n_before, rest)| include(rest, n_before)).collect()
}

/// Behind the `#`.
fn include(directive: &str, n_before: usize) -> Option<Include> {
    let rest = directive.trim_start().strip_prefix("include")?.trim_start();
    let (close, is_system) = match rest.chars().next()? {
        '<' => ('>', true),
        '"' => ('"', false),
        _ => return None,
    };
    let name = rest[1..].split(close).next()?.to_owned();
    Some(Include { name, is_system, n_before })
}

/// The numbers that headers define, by name.
#[derive(Debug, Default)]
pub struct Headers {
    defines: Defines,
    seen: HashSet<String>,
    n_bytes: usize,
    level: u32,
}

impl Headers {
    /// Takes in the text of a header and, found by `find`, of those it includes; of one that is not found nothing.
    pub fn read(&mut self, text: &str, find: &mut dyn FnMut(&Include) -> Option<String>) {
        self.n_bytes = self.n_bytes.saturating_add(text.len());
        self.level += 1;
        self.read_lines(text, find);
        self.level -= 1;
    }

    fn read_lines(&mut self, text: &str, find: &mut dyn FnMut(&Include) -> Option<String>) {
        // Of each open `#if`: whether its branch is read, and whether one of its branches was.
        let mut open: Vec<(bool, bool)> = Vec::new();
        for line in without_comments(text).replace("\\\n", " ").lines() {
            let Some(directive) = line.trim_start().strip_prefix('#') else { continue };
            let directive = directive.trim_start();
            let length = directive.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(directive.len());
            let (word, rest) = directive.split_at(length);
            let is_read = open.iter().all(|(is_read, _)| *is_read);
            let holds = |defines: &Defines| match word {
                "ifdef" => defines.is_defined(rest),
                "ifndef" => !defines.is_defined(rest),
                _ => defines.condition(rest).unwrap_or(false),
            };
            match word {
                "if" | "ifdef" | "ifndef" => {
                    let holds = is_read && holds(&self.defines);
                    open.push((holds, holds));
                }
                "elif" | "else" => {
                    let holds = word == "else" || holds(&self.defines);
                    if let Some((is_read, was_read)) = open.last_mut() {
                        *is_read = holds && !*was_read;
                        *was_read |= *is_read;
                    }
                }
                "endif" => _ = open.pop(),
                // What takes parameters is no number.
                "define" if is_read => _ = self.defines.define(rest),
                "undef" if is_read => self.defines.undefine(rest),
                "include" if is_read => self.include(directive, find),
                _ => {}
            }
        }
    }

    fn include(&mut self, directive: &str, find: &mut dyn FnMut(&Include) -> Option<String>) {
        if self.seen.len() >= MAX_HEADERS || self.n_bytes > MAX_BYTES || self.level > MAX_LEVELS {
            return;
        }
        if let Some(include) = include(directive, 0)
            && self.seen.insert(include.name.clone())
            && let Some(text) = find(&include)
        {
            self.read(&text, find);
        }
    }

    /// Names with their numbers.
    pub fn numbers(&self) -> Vec<(String, String)> {
        self.defines.numbers().map(|(name, number)| (name.to_owned(), number.to_string())).collect()
    }
}

/// Comments become blanks, but for line ends.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        kept.push_str(&rest[..at]);
        kept.push(' ');
        let Some(length) = rest[at..].find("*/") else { return kept };
        rest = &rest[at + length + 2..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_headers_and_of_those_they_include() {
        let base = "#ifndef _BASE\n#define _BASE\n#define EPERM 1 /* Operation\n not permitted */\n#endif\n";
        let top = "#include <base.h>\n#include <base.h>\n# ifdef EPERM\n#  define ALIAS EPERM\n# else\n# define ALIAS 9\n# endif\n\
            #define FLAGS (1 << 4 | \\\n 2)\n#define stdin stdin\n#define major(x) (x)\n#define TEXT \"a\"\n\
            #if __GNUC_PREREQ(2, 3)\n#define NO 1\n#elif 1\n#define YES 0x10UL\n#else\n#define NO 2\n#endif\n#define OTHER unknown\n";
        let mut headers = Headers::default();
        headers.read(top, &mut |include| (include.name == "base.h").then(|| base.to_owned()));
        let mut numbers = headers.numbers();
        numbers.retain(|(name, _)| !name.starts_with("BPFTRACE"));
        numbers.sort();
        let want = [("ALIAS", "1"), ("EPERM", "1"), ("FLAGS", "18"), ("YES", "16")];
        assert_eq!(numbers, want.map(|(name, number)| (name.to_owned(), number.to_owned())));
    }

    #[test]
    fn headers_that_include_each_other_end() {
        let mut headers = Headers::default();
        headers.read("#include \"a.h\"\n", &mut |_| Some("#include \"a.h\"\n#define A 1\n".to_owned()));
        assert!(headers.numbers().contains(&("A".to_owned(), "1".to_owned())));
    }

    #[test]
    fn headers_without_end_are_read_so_far_only() {
        let mut n_read = 0;
        let text = |n: usize| format!("#include \"{}.h\"\n#define A{n} 1\n{}", n + 1, " ".repeat(1 << 20));
        Headers::default().read(&text(0), &mut |include| {
            n_read += 1;
            Some(text(include.name.trim_end_matches(".h").parse().unwrap()))
        });
        assert!(n_read <= MAX_BYTES >> 20, "{n_read}");
        let mut n_deep = 0;
        let text = |n: usize| format!("#include \"{}.h\"\n", n + 1);
        Headers::default().read(&text(0), &mut |include| {
            n_deep += 1;
            Some(text(include.name.trim_end_matches(".h").parse().unwrap()))
        });
        assert!(n_deep <= MAX_LEVELS, "{n_deep}");
    }

    #[test]
    fn includes_of_a_script() {
        let found =
            includes("#!/usr/bin/bpftrace\n#define A\n #include <x/y.h>\n#include \"z.h\" // z\nBEGIN {}");
        let one = |name: &str, is_system, n_before| Include { name: name.into(), is_system, n_before };
        assert_eq!(found, [one("x/y.h", true, 1), one("z.h", false, 2)]);
    }
}
