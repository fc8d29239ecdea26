//! Scripts in one form: a probe's points, its predicate and its brace on lines of their own, two blanks for each level, one statement
//! a line. Only blanks and line ends change; a script that cannot be read is not touched.

use crate::diagnostic::Diagnostic;
use crate::parse::items::{Item, items};

/// The script in that form; what is wrong with it if it cannot be read.
pub fn format(text: &str) -> Result<String, Vec<Diagnostic>> {
    let items = items(text).map_err(|error| vec![error])?;
    let mut page = Page::default();
    let mut at = 0;
    for item in &items {
        page.between(&text[at..item.start]);
        page.item(text, item);
        at = item.end;
    }
    page.between(&text[at..]);
    let out = page.finish();
    // Nothing but blanks may have changed.
    Ok(if words(text) == words(&out) { out } else { text.to_owned() })
}

/// What stands in a script besides blanks.
fn words(text: &str) -> Vec<&str> {
    scan(text).into_iter().filter(|bit| bit.kind != Kind::Blank).map(|bit| bit.text).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    LineComment,
    BlockComment,
    Directive,
    /// An empty line.
    Blank,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bit<'a> {
    kind: Kind,
    text: &'a str,
    is_on_new_line: bool,
}

const SIGNS: [&str; 23] = [
    "<<=", ">>=", "...", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "++", "--", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "..",
];

fn scan(text: &str) -> Vec<Bit<'_>> {
    let mut bits = Vec::new();
    let (mut rest, mut is_on_new_line) = (text, true);
    loop {
        let blank = &rest[..rest.len() - rest.trim_start().len()];
        let n_lines = blank.matches('\n').count();
        is_on_new_line |= n_lines > 0;
        if n_lines > 1 {
            bits.push(Bit { kind: Kind::Blank, text: "", is_on_new_line });
        }
        rest = &rest[blank.len()..];
        let Some(first) = rest.chars().next() else { return bits };
        let line = rest.find('\n').unwrap_or(rest.len());
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@' | '$');
        let (kind, length) = if rest.starts_with("//") {
            (Kind::LineComment, line)
        } else if rest.starts_with("/*") {
            (Kind::BlockComment, rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else if first == '#' && is_on_new_line {
            (Kind::Directive, line)
        } else if first == '"' {
            (Kind::Text, string_length(rest))
        } else if rest.starts_with("$#") {
            (Kind::Text, 2)
        } else if is_word(first) {
            (Kind::Text, rest.find(|c| !is_word(c)).unwrap_or(rest.len()))
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            (Kind::Text, sign.map_or(first.len_utf8(), |sign| sign.len()))
        };
        bits.push(Bit { kind, text: rest[..length].trim_end(), is_on_new_line });
        rest = &rest[length..];
        is_on_new_line = false;
    }
}

fn string_length(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The text while it is made.
#[derive(Debug, Default)]
struct Page {
    out: String,
    level: usize,
    /// A line ends here, unless what follows belongs to it.
    is_line_done: bool,
    wants_blank: bool,
}

impl Page {
    fn finish(mut self) -> String {
        self.out.truncate(self.out.trim_end().len());
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out
    }

    fn end_line(&mut self) {
        self.is_line_done = true;
    }

    /// Before something is written: begins a line if one has ended.
    fn open_line(&mut self) {
        if self.is_line_done {
            self.out.truncate(self.out.trim_end().len());
            if !self.out.is_empty() {
                self.out.push('\n');
                if self.wants_blank {
                    self.out.push('\n');
                }
            }
            self.is_line_done = false;
        }
        self.wants_blank = false;
        if self.out.is_empty() || self.out.ends_with('\n') {
            self.out.push_str(&"  ".repeat(self.level));
        }
    }

    fn blank(&mut self) {
        self.wants_blank |= self.is_line_done && !self.out.is_empty() && !self.out.trim_end().ends_with('{');
    }

    fn comment(&mut self, bit: Bit<'_>) {
        if bit.is_on_new_line || self.out.is_empty() {
            if !self.out.is_empty() && !self.is_line_done {
                self.end_line();
            }
            self.open_line();
        } else {
            // Behind what stands on this line.
            self.out.truncate(self.out.trim_end().len());
            self.out.push(' ');
        }
        self.out.push_str(bit.text);
        match bit.kind {
            Kind::LineComment => self.end_line(),
            _ if bit.is_on_new_line => self.end_line(),
            _ => {}
        }
    }

    fn directive(&mut self, bit: Bit<'_>) {
        self.end_line();
        let level = std::mem::take(&mut self.level);
        self.open_line();
        self.out.push_str(bit.text);
        self.level = level;
        self.end_line();
    }

    /// Comments and lines of the preprocessor outside of probes.
    fn between(&mut self, text: &str) {
        for bit in scan(text) {
            match bit.kind {
                Kind::Blank => self.blank(),
                Kind::LineComment | Kind::BlockComment => self.comment(bit),
                Kind::Directive => self.directive(bit),
                Kind::Text => {
                    self.out.truncate(self.out.trim_end().len());
                    self.out.push_str(bit.text);
                    self.end_line();
                }
            }
        }
    }

    fn item(&mut self, text: &str, item: &Item) {
        self.end_line();
        let Some(body) = item.body else {
            self.open_line();
            self.out.push_str(text[item.start..item.end].trim());
            return self.end_line();
        };
        match &item.points[..] {
            [] => {
                self.open_line();
                self.code(&text[item.start..body]);
                match item.is_setting {
                    true => self.out.push(' '),
                    false => self.end_line(),
                }
            }
            points => {
                // What stands between them, if it is more than a comma, stays as it is.
                let (first, last) = (points[0], points[points.len() - 1]);
                let whole = &text[first.0..last.1];
                let shown: Vec<&str> = points.iter().map(|(start, end)| &text[*start..*end]).collect();
                self.open_line();
                let is_plain = words(whole) == words(&shown.join(",\n"));
                self.out.push_str(if is_plain { "" } else { whole });
                if is_plain {
                    self.out.push_str(&shown.join(",\n"));
                }
                self.end_line();
                let from = match item.predicate {
                    Some((start, end)) => {
                        self.between(&text[last.1..start]);
                        self.open_line();
                        self.out.push('/');
                        self.code(&text[start + 1..end - 1]);
                        self.out.push('/');
                        self.end_line();
                        end
                    }
                    None => last.1,
                };
                self.between(&text[from..body]);
            }
        }
        self.code(&text[body..item.end]);
        self.end_line();
    }

    /// Statements.
    fn code(&mut self, text: &str) {
        let bits = scan(text);
        let next_text = |index: usize| {
            bits[index + 1..].iter().find(|bit| bit.kind == Kind::Text).map_or("", |bit| bit.text)
        };
        let mut before = Before::default();
        let mut n_parens = 0usize;
        for (index, bit) in bits.iter().enumerate() {
            match bit.kind {
                Kind::Blank => {
                    self.blank();
                    continue;
                }
                Kind::LineComment | Kind::BlockComment => {
                    self.comment(*bit);
                    if !self.is_line_done {
                        self.out.push(' ');
                    }
                    continue;
                }
                Kind::Directive => {
                    self.directive(*bit);
                    continue;
                }
                Kind::Text => {}
            }
            let word = bit.text;
            if word == "}" {
                self.level = self.level.saturating_sub(1);
                self.end_line();
                self.wants_blank = false;
            }
            let has_space = !self.is_line_done && before.wants_space(word);
            self.open_line();
            if has_space && !self.out.ends_with(' ') && !self.out.ends_with('\n') {
                self.out.push(' ');
            }
            self.out.push_str(word);
            before.take(word);
            match word {
                "(" | "[" => n_parens += 1,
                ")" | "]" => n_parens = n_parens.saturating_sub(1),
                "{" => {
                    self.level += 1;
                    self.end_line();
                }
                ";" if n_parens == 0 || next_text(index) == "}" => self.end_line(),
                ";" => self.end_line(),
                "}" if !matches!(next_text(index), "else" | ")" | "," | ";" | "]") => self.end_line(),
                _ => {}
            }
        }
    }
}

/// What was written last, as far as blanks depend on it.
#[derive(Debug, Default)]
struct Before {
    word: String,
    is_unary: bool,
}

const KEYWORDS: [&str; 8] = ["if", "else", "while", "for", "unroll", "return", "let", "macro"];

impl Before {
    /// Whether a value has just ended.
    fn is_value(&self) -> bool {
        let word = self.word.as_str();
        let is_name = word.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '@' | '$' | '"'));
        (is_name && !KEYWORDS.contains(&word)) || matches!(word, ")" | "]" | "}") || self.is_step_behind()
    }

    fn is_step_behind(&self) -> bool {
        matches!(self.word.as_str(), "++" | "--") && !self.is_unary
    }

    fn take(&mut self, word: &str) {
        let is_sign = matches!(word, "-" | "+" | "!" | "~" | "*" | "&" | "++" | "--");
        self.is_unary = is_sign && (!self.is_value() || word == "!" || word == "~");
        self.word = word.to_owned();
    }

    fn wants_space(&self, word: &str) -> bool {
        let before = self.word.as_str();
        match (before, word) {
            ("", _) => false,
            (_, "{") => !matches!(before, "(" | "["),
            (_, ")" | "]" | "," | ";" | "." | "->" | "..") => false,
            ("(" | "[" | "." | "->" | "..", _) => false,
            ("?", ":") => false,
            // `- -x` is another thing than `--x`.
            (_, _) if self.is_unary => before.ends_with(['-', '+', '&']) && word.starts_with(&before[..1]),
            (_, "++" | "--") => !self.is_value(),
            (_, "(") => !self.is_value() || before == "}",
            (_, "[") => !self.is_value(),
            // A cast.
            (")", _) => {
                !word.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '@' | '$' | '"'))
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_for_all() {
        let written = "// comment\nconfig={max_strlen=64;missing_probes=warn}\nmacro add(x,@m){ @m+=x; x+1 }\nBEGIN,   interval:s:1
/ pid==1||$1 /
{ $x=1;$y = -$x+2 *3; // trailing
  if ($x==1){print(\"a;b\");}else if($x>2){ print(1) } else {print(2);}


  /* block */ @a[$x,\"b\"]=count();
  for ($i : 0..10) { printf(\"%d\\n\",$i); }
  $z = $x?1:2; $p=(uint64*)arg0; while($x<5){$x++;}
  $q = - -$x; $r=!$x&&~$y; print({ 1 }); print($p[0],args.x,@a[1,2]);
}
END{clear(@a)}
";
        let expected = "// comment
config = {
  max_strlen = 64;
  missing_probes = warn
}
macro add(x, @m)
{
  @m += x;
  x + 1
}
BEGIN,
interval:s:1
/pid == 1 || $1/
{
  $x = 1;
  $y = -$x + 2 * 3; // trailing
  if ($x == 1) {
    print(\"a;b\");
  } else if ($x > 2) {
    print(1)
  } else {
    print(2);
  }

  /* block */
  @a[$x, \"b\"] = count();
  for ($i : 0..10) {
    printf(\"%d\\n\", $i);
  }
  $z = $x ? 1 : 2;
  $p = (uint64 *)arg0;
  while ($x < 5) {
    $x++;
  }
  $q = - -$x;
  $r = !$x && ~$y;
  print({
    1
  });
  print($p[0], args.x, @a[1, 2]);
}
END
{
  clear(@a)
}
";
        let once = format(written).unwrap();
        assert_eq!(once, expected);
        assert_eq!(format(&once).unwrap(), once);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        for text in ["BEGIN {", "BEGIN { $x = ; }", "", "// only\n"] {
            assert!(format(text).is_err(), "{text}");
        }
    }
}
