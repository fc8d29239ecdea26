//! Recordings of several hosts as one dataset, which DuckDB reads.

use crate::recorded::{check, planned, python, refusal, said, spans_file};
use nopal_tests::{nopal, root, run, scratch};
use std::fs;
use std::process::Command;

#[test]
fn recordings_of_several_hosts_add_up() {
    let folder = scratch("pictures-fleet");
    let (dataset, spans) = (folder.join("lake"), spans_file());
    let hosts = ["web-1", "web-2.example.com", "db/3"];
    for (at, host) in hosts.iter().enumerate() {
        let recording = folder.join(format!("rec{at}"));
        run(Command::new("cp").arg("-r").arg(&planned().dir).arg(&recording));
        let metadata = recording.join("metadata");
        let text = fs::read_to_string(&metadata).unwrap();
        let old = text.split("hostname = \"").nth(1).unwrap().split('"').next().unwrap();
        fs::write(
            &metadata,
            text.replace(&format!("hostname = \"{old}\""), &format!("hostname = \"{host}\"")),
        )
        .unwrap();
        said(&[
            &"export",
            &recording,
            &"--to",
            &"parquet",
            &"--dataset",
            &dataset,
            &"--spans",
            &spans,
            &"--json",
        ]);
    }
    let plan = &planned().plan;
    check("fleet.py", &[&dataset, &root().join("fleet"), plan, plan, plan]);
    // The same text asks the recordings themselves.
    let recordings: Vec<_> = (0..hosts.len()).map(|at| folder.join(format!("rec{at}"))).collect();
    let mut arguments: Vec<std::path::PathBuf> = vec![dataset.clone()];
    for file in ["quantiles.sql", "events.sql"] {
        let (sql, rows) = (root().join("fleet").join(file), folder.join(format!("{file}.json")));
        let mut query = Command::new(nopal());
        query.arg("query").args(&recordings).arg("--spans").arg(&spans).arg("--json");
        fs::write(&rows, run(query.stdin(fs::File::open(&sql).unwrap()))).unwrap();
        arguments.extend([sql, rows]);
    }
    check(
        "same_sql.py",
        &arguments.iter().map(|path| path as &dyn AsRef<std::ffi::OsStr>).collect::<Vec<_>>(),
    );
    let again = folder.join("rec0");
    let (words, _) =
        refusal(&[&"export", &again, &"--to", &"parquet", &"--dataset", &dataset, &"--spans", &spans]);
    assert!(words.contains("exists"), "{words}");
    let (words, code) = refusal(&[&"export", &again, &"--to", &"csv", &"--dataset", &dataset]);
    assert!(words.contains("--dataset is for parquet") && code == 2, "{words}");
}

#[test]
fn a_thousand_hosts_have_the_planned_answers() {
    let mut test = Command::new(python());
    test.arg(root().join("fleet/test.py")).arg("--nopal").arg(nopal()).arg("--duckdb-only");
    let text = run(&mut test);
    for line in ["DuckDB: 3 rows as planned, 180000 spans", "DuckDB: 1000 counts of events as planned"] {
        assert!(text.contains(line), "{text}");
    }
}
