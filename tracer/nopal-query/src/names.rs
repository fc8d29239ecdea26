//! Names of tables: `provider:name` as an identifier that needs no quotes.

/// Letters, digits and underscores; what is taken gets a number behind it.
pub(crate) fn table_name(full_name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let plain: String = full_name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    let plain = if plain.starts_with(|c: char| c.is_ascii_digit()) || plain.is_empty() {
        format!("_{plain}")
    } else {
        plain
    };
    let mut name = plain.clone();
    let mut n = 1;
    while is_taken(&name) {
        n += 1;
        name = format!("{plain}_{n}");
    }
    name
}

/// An identifier within quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_no_quotes() {
        let taken = ["events", "a_b"];
        let name = |text: &str| table_name(text, |name| taken.contains(&name));
        assert_eq!(name("postgresql:query__start"), "postgresql_query__start");
        assert_eq!(name("events"), "events_2");
        assert_eq!(name("A:b"), "a_b_2");
        assert_eq!(name("7:x"), "_7_x");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
