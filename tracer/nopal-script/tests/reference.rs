//! docs/language.md: its examples compile or are refused as they say, and it tells of every function.

mod catalog;

use catalog::TestCatalog;
use nopal_script::{Options, compile, parse, reference};

fn path() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/language.md")
}

fn page() -> String {
    std::fs::read_to_string(path()).unwrap()
}

#[test]
fn every_example_does_what_the_page_says() {
    let page = page();
    let mut n_examples = 0;
    let mut rest = page.as_str();
    while let Some(at) = rest.find("\n```bpftrace") {
        let block = &rest[at + 4..];
        let (tag, after) = block.split_once('\n').unwrap();
        let (script, after) = after.split_once("\n```").unwrap();
        let parameters = ["one".to_string()];
        let outcome = parse(script, "example.bt", &parameters, &Options::default())
            .and_then(|script| compile(&script, &TestCatalog));
        match (tag, outcome) {
            ("bpftrace" | "bpftrace,kprobes", Ok(_)) | ("bpftrace,error", Err(_)) => {}
            ("bpftrace", Err(diagnostics)) => {
                let text: Vec<String> = diagnostics
                    .iter()
                    .map(|diagnostic| diagnostic.render(script, "example.bt", false))
                    .collect();
                panic!("{}", text.join("\n"));
            }
            (tag, _) => panic!("{tag}: {script}"),
        }
        n_examples += 1;
        rest = after;
    }
    assert!(n_examples >= 12, "{n_examples}");
}

#[test]
fn the_page_tells_of_every_function() {
    const OPEN: &str = "<!-- functions -->\n";
    const CLOSE: &str = "<!-- end of functions -->\n";
    let page = page();
    let mut table = String::from("| function | does |\n|---|---|\n");
    for (signature, doc) in reference() {
        if signature.contains('(') {
            table += &format!("| `{signature}` | {doc} |\n");
        } else {
            let name = signature.split(',').next().unwrap();
            assert!(page.contains(&format!("`{name}`")), "docs/language.md lacks `{name}`");
        }
    }
    let (before, rest) = page.split_once(OPEN).unwrap();
    let (found, after) = rest.split_once(CLOSE).unwrap();
    if std::env::var_os("NOPAL_BLESS").is_some() {
        std::fs::write(path(), format!("{before}{OPEN}{table}{CLOSE}{after}")).unwrap();
    } else {
        assert_eq!(found, table, "NOPAL_BLESS=1 writes it");
    }
}
