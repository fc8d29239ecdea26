//! Lists the files of `catalog/` with the providers each declares, so that a lookup at run time parses one file at
//! most. Uses the crate's own lexer: the words `provider NAME {` in a comment do not count.
#![allow(dead_code, unreachable_pub)]

#[path = "src/diagnostic.rs"]
mod diagnostic;
#[path = "src/lex.rs"]
mod lex;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let folder = Path::new(&root).join("catalog");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .map(|entries| entries.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    files.retain(|f| f.extension().is_some_and(|e| e == "d"));
    files.sort();
    let mut list = format!("static CATALOG: [Entry; {}] = [\n", files.len());
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let name = file.file_name().and_then(|n| n.to_str()).expect("catalog files have plain names");
        writeln!(
            list,
            "    Entry::new({name:?}, &{:?}, include_str!({:?})),",
            providers(&text),
            file.display().to_string()
        )
        .expect("a string takes any text");
    }
    list.push_str("];\n");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("catalog.rs"), list).expect("OUT_DIR can be written");
}

fn providers(text: &str) -> Vec<&str> {
    let mut lexer = lex::Lexer::new("catalog", text);
    let mut names = Vec::new();
    let (mut before, mut last) = ("", "");
    loop {
        let token = lexer.next();
        match token.kind {
            lex::TokenKind::End => return names,
            lex::TokenKind::Punct('{') if before == "provider" => names.push(last),
            _ => {}
        }
        (before, last) = (last, &text[token.start..token.end]);
    }
}
