//! The scripts of `tools/`, which are part of the command: `nopal run mctop`.

use crate::words::wrapped;
use std::fmt::Write;

macro_rules! tools {
    ($($name:literal),* $(,)?) => {
        /// By name, in their order.
        const TOOLS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../../tools/", $name, ".bt")))),*];
    };
}

tools!(
    "cpp-exceptions",
    "java-gc",
    "mcsnoop",
    "mctop",
    "postgres-latency",
    "postgres-slow",
    "python-flow",
    "redis-latency",
    "ruby-methods",
    "ruby-objects",
    "top",
    "valkey-slow",
);

/// The text of a tool.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix(".bt").unwrap_or(name);
    TOOLS.iter().find(|(tool, _)| *tool == name).map(|(_, text)| *text)
}

/// The tool that was probably meant.
pub(super) fn near(name: &str) -> Option<&'static str> {
    let near = nopal_sdt::pattern::nearest(name, TOOLS.iter().map(|(tool, _)| *tool))?;
    TOOLS.iter().map(|(tool, _)| *tool).find(|tool| *tool == near)
}

/// What each does: `(name, sentence, how it is called)`.
pub(super) fn all() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    TOOLS.iter().map(|(name, text)| {
        let comments = || text.lines().skip(1).map_while(|line| line.strip_prefix("//")).map(str::trim);
        let about: Vec<&str> = comments().take_while(|line| !line.is_empty()).collect();
        let about = about.join(" ");
        let about = about.split_once(": ").map_or(about.clone(), |(_, about)| about.to_owned());
        (*name, about, comments().find(|line| line.starts_with("nopal run ")).unwrap_or_default())
    })
}

/// The list for people, and how to go on.
pub(super) fn list(width: usize) -> String {
    let mut text = String::new();
    for (name, about, call) in all() {
        let about = wrapped(&about, 18, width);
        let _ = writeln!(text, "{name:<17} {about}\n{:<17}   {call}", "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_of_the_folder_is_here_and_says_what_it_does() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder is there")
            .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
            .filter_map(|name| name.strip_suffix(".bt").map(str::to_owned))
            .collect();
        files.sort();
        let names: Vec<&str> = all().map(|(name, ..)| name).collect();
        assert_eq!(names, files);
        for (name, about, call) in all() {
            assert!(
                about.len() > 20 && call.starts_with(&format!("nopal run {name} ")),
                "{name}: {about}: {call}"
            );
            assert_eq!(find(name), find(&format!("{name}.bt")));
        }
        assert_eq!((find("mctopp"), near("mctopp")), (None, Some("mctop")));
    }
}
