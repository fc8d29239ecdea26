//! Which records a script's own have as members, before it is parsed: their sizes must be known then.

/// Names such as `struct task_struct` of what is followed by a name, as a member is: neither a pointer nor a definition.
pub fn embedded_records(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("struct ").into_iter().chain(rest.find("union ")).min() {
        let is_whole = !rest[..at].ends_with(is_word);
        let length = rest[at..].find(' ').unwrap_or_default();
        let (kind, behind) = rest[at..].split_at(length);
        rest = behind.trim_start();
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let name = format!("{kind} {}", &rest[..end]);
        let is_member = rest[end..].trim_start().starts_with(is_word);
        if is_whole && end > 0 && is_member && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::embedded_records;

    #[test]
    fn members_alone_are_found() {
        let text = "struct foo { struct task_struct t; union  u v; struct list_head *next; mystruct x; } \
                    BEGIN { $x = (struct task_struct *)curtask; print(sizeof(struct foo)); }";
        assert_eq!(embedded_records(text), ["struct task_struct", "union u"]);
        assert!(embedded_records("BEGIN { exit(); }").is_empty() && embedded_records("struct ").is_empty());
    }
}
