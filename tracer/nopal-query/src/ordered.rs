//! `f(p) WITHIN GROUP (ORDER BY x)`, as standard SQL and other engines write it. The grammar that SQLite is delivered with does
//! not have it, though its functions take the same two arguments: it becomes `f(x, p)`.

use std::borrow::Cow;

/// The statement as SQLite reads it.
pub(crate) fn rewrite(sql: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(sql);
    // Each round takes one away; there cannot be more than this.
    for _ in 0..sql.len() / 16 {
        let Some(changed) = rewrite_first(&text) else { break };
        text = Cow::Owned(changed);
    }
    text
}

fn rewrite_first(sql: &str) -> Option<String> {
    let tokens = tokens(sql);
    let is = |at: usize, word: &str| {
        tokens.get(at).is_some_and(|(from, to)| sql[*from..*to].eq_ignore_ascii_case(word))
    };
    // The innermost first, so that what stands within has been changed already.
    let within =
        (0..tokens.len()).rev().find(|at| is(*at, "within") && is(at + 1, "group") && is(at + 2, "("))?;
    if !(is(within + 3, "order") && is(within + 4, "by")) || within < 3 || !is(within - 1, ")") {
        return None;
    }
    let end = matching(&tokens, sql, within + 2, 1)?;
    let open = matching(&tokens, sql, within - 1, -1)?;
    let (mut last, mut is_descending) = (end - 1, false);
    if is(last, "desc") || is(last, "asc") {
        is_descending = is(last, "desc");
        last -= 1;
    }
    if open == 0 || last < within + 5 || open + 1 > within - 2 {
        return None;
    }
    let share = &sql[tokens[open + 1].0..tokens[within - 2].1];
    let share = if is_descending { format!("1.0 - ({share})") } else { share.to_owned() };
    let value = &sql[tokens[within + 5].0..tokens[last].1];
    let (before, after) = (&sql[..tokens[open].1], &sql[tokens[end].0..]);
    Some(format!("{before}{value}, {share}{after}"))
}

/// The parenthesis that belongs to the one at `at`, forwards or backwards.
fn matching(tokens: &[(usize, usize)], sql: &str, at: usize, step: isize) -> Option<usize> {
    let (mut depth, mut at) = (0i32, at);
    loop {
        let (from, to) = *tokens.get(at)?;
        depth += match &sql[from..to] {
            "(" => 1,
            ")" => -1,
            _ => 0,
        };
        if depth == 0 {
            return Some(at);
        }
        at = at.checked_add_signed(step)?;
    }
}

/// Words, numbers, quoted texts and single characters, without spaces and comments.
fn tokens(sql: &str) -> Vec<(usize, usize)> {
    let bytes = sql.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let end_of =
        |from: usize, text: &str| sql[from..].find(text).map_or(sql.len(), |at| from + at + text.len());
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let from = at;
        match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at = end_of(at, "\n");
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = end_of(at + 2, "*/");
                continue;
            }
            // A quote that is doubled is two texts to us, side by side, which changes nothing.
            quote @ (b'\'' | b'"' | b'`') => {
                let rest = bytes[at + 1..].iter().position(|byte| *byte == quote);
                at = rest.map_or(bytes.len(), |place| at + place + 2);
            }
            b'[' => at = end_of(at, "]"),
            byte if is_word(byte) => {
                while at < bytes.len() && is_word(bytes[at]) {
                    at += 1;
                }
            }
            _ => at += 1,
        }
        tokens.push((from, at));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_form_becomes_that_of_sqlite() {
        for (standard, ours) in [
            (
                "SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY dur) FROM x",
                "SELECT percentile_cont(dur, 0.99) FROM x",
            ),
            ("p(0.5)within group(order by max(a, 1) + 2)", "p(max(a, 1) + 2, 0.5)"),
            ("p(0.5) WITHIN GROUP (ORDER BY a DESC)", "p(a, 1.0 - (0.5))"),
            ("p(0.5) WITHIN GROUP (ORDER BY a ASC), q(1) WITHIN GROUP (ORDER BY b)", "p(a, 0.5), q(b, 1)"),
            (
                "SELECT ' WITHIN GROUP (ORDER BY x)' -- p(1) WITHIN GROUP (ORDER BY y)",
                "SELECT ' WITHIN GROUP (ORDER BY x)' -- p(1) WITHIN GROUP (ORDER BY y)",
            ),
            ("p('it''s', 1) WITHIN GROUP (ORDER BY \"a b\")", "p(\"a b\", 'it''s', 1)"),
            ("SELECT within FROM x", "SELECT within FROM x"),
            ("p() WITHIN GROUP (ORDER BY a)", "p() WITHIN GROUP (ORDER BY a)"),
            ("p(1) WITHIN GROUP (ORDER BY", "p(1) WITHIN GROUP (ORDER BY"),
            ("WITHIN GROUP (ORDER BY a)", "WITHIN GROUP (ORDER BY a)"),
            ("'", "'"),
            ("/* p(1) WITHIN", "/* p(1) WITHIN"),
        ] {
            assert_eq!(rewrite(standard), ours, "{standard}");
        }
    }
}
