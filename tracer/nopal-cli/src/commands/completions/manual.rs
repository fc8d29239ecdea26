//! A manual page whose examples stand line by line, as in the help, under a heading of their own.

use clap_mangen::Man;
use std::io;

pub(super) fn page(man: Man) -> io::Result<String> {
    let mut text = Vec::new();
    man.render(&mut text)?;
    Ok(with_sections(&String::from_utf8_lossy(&text)))
}

/// What clap has for text behind the options, which would be filled like any other.
const BEHIND: &str = "\n.SH EXTRA\n";

fn with_sections(page: &str) -> String {
    let Some((before, rest)) = page.split_once(BEHIND) else { return page.to_owned() };
    let (behind, after) = match rest.find("\n.SH ") {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let mut out = format!("{before}\n");
    let mut is_note = false;
    for paragraph in behind.split("\n\n").map(|text| text.trim_matches('\n')).filter(|text| !text.is_empty())
    {
        match paragraph.split_once(":\n") {
            Some((heading, lines))
                if !heading.contains('\n') && lines.lines().all(|l| l.starts_with("  ")) =>
            {
                is_note = false;
                out += &format!(".SH \"{}\"\n.nf\n{lines}\n.fi\n", heading.to_uppercase());
            }
            _ => {
                out += if is_note { ".PP\n" } else { ".SH NOTES\n" };
                is_note = true;
                out += &format!("{paragraph}\n");
            }
        }
    }
    out.truncate(out.trim_end().len());
    out + if after.is_empty() { "\n" } else { after }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines() {
        let page = ".SH OPTIONS\nx\n.SH EXTRA\nExamples:\n  a   b\n  c\n\nMore words\nhere.\n\nAnd more.\n\nPatterns:\n  d\n";
        let expected = ".SH OPTIONS\nx\n.SH \"EXAMPLES\"\n.nf\n  a   b\n  c\n.fi\n.SH NOTES\nMore words\nhere.\n.PP\nAnd more.\n\
                        .SH \"PATTERNS\"\n.nf\n  d\n.fi\n";
        assert_eq!(with_sections(page), expected);
        assert_eq!(with_sections(&format!("{page}.SH AUTHOR\nz\n")), format!("{expected}.SH AUTHOR\nz\n"));
        assert_eq!(with_sections(".SH OPTIONS\nx\n"), ".SH OPTIONS\nx\n");
    }
}
