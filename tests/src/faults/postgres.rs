//! PostgreSQL at work: pgbench moves money, and its tables must agree afterwards.

use super::process::{LIMIT, Process};
use super::target::Counts;
use crate::postgres::Postgres;
use std::fs;
use std::path::{Path, PathBuf};

/// Of one run of pgbench.
const N_CLIENTS: u64 = 2;
const N_TRANSACTIONS: u64 = 40;
const TRANSACTION: [&str; 6] = [
    "begin",
    "update pgbench_accounts set abalance = abalance + :delta where aid = :aid",
    "update pgbench_branches set bbalance = bbalance + :delta where bid = 1",
    "select abalance from pgbench_accounts where aid = :aid",
    "insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, :aid, :delta, now())",
    "end",
];
/// Each statement is a query of its own.
const N_QUERIES: u64 = N_CLIENTS * N_TRANSACTIONS * TRANSACTION.len() as u64;

#[derive(Debug)]
pub(crate) struct Server {
    /// Not there when it has ended.
    postgres: Option<Postgres>,
    pid: u32,
    dir: PathBuf,
    script: PathBuf,
    runs: Vec<Process>,
    counts: Counts,
    n_runs: u64,
    wrong: Vec<String>,
}

impl Server {
    pub(crate) fn start(dir: &Path) -> Result<Server, String> {
        let name = dir.file_name().expect("a round has a folder").to_string_lossy().into_owned();
        let options = ["-c", "autovacuum=off", "-c", "shared_buffers=16MB", "-c", "jit=off"];
        let postgres = Postgres::start_with(&name, &options);
        let made = postgres.client("pgbench").args(["-i", "-q", "-I", "dtgvp", "postgres"]).output();
        match made {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Err(format!("pgbench: {}", String::from_utf8_lossy(&output.stderr))),
            Err(error) => return Err(format!("pgbench: {error}")),
        }
        // Where the user of the server can read it.
        let script = postgres.folder().join("script.sql");
        let numbers = "\\set aid random(1, 100000)\n\\set delta random(-5000, 5000)\n";
        fs::write(&script, format!("{numbers}{};\n", TRANSACTION.join(";\n")))
            .map_err(|e| format!("{}: {e}", script.display()))?;
        let (counts, runs, wrong) = (Counts::default(), Vec::new(), Vec::new());
        let (pid, postgres) = (postgres.pid(), Some(postgres));
        Ok(Server { postgres, pid, dir: dir.to_owned(), script, runs, counts, n_runs: 0, wrong })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Queries of which it is not known whether they were done count as begun only.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn go(&mut self) -> Result<(), String> {
        let Some(postgres) = &self.postgres else { return Err("the server has ended".to_owned()) };
        let mut command = postgres.client("pgbench");
        command.args(["-n", "-M", "simple", "-c", &N_CLIENTS.to_string(), "-f"]).arg(&self.script);
        command.args(["-t", &N_TRANSACTIONS.to_string(), "postgres"]);
        self.n_runs += 1;
        let run = Process::start(&mut command, &self.dir, &format!("pgbench{}", self.n_runs))?;
        self.counts.begun += N_QUERIES;
        self.runs.push(run);
        Ok(())
    }

    /// One more run beside those under way.
    pub(crate) fn burst(&mut self) -> bool {
        self.go().is_ok()
    }

    pub(crate) fn rest(&mut self) -> Result<(), String> {
        for mut run in self.runs.drain(..) {
            match run.wait(LIMIT) {
                None => return Err("pgbench does not end".to_owned()),
                Some(status) if status.success() => self.counts.done += N_QUERIES,
                Some(status) => self.wrong.push(format!("pgbench: {status}: {}", run.stderr())),
            }
        }
        Ok(())
    }

    pub(crate) fn end(&mut self) {
        if let Err(error) = self.rest() {
            self.wrong.push(error);
        }
    }

    /// Compares what its tables say with what was asked for, and ends the server.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let Some(postgres) = self.postgres.take() else { return Vec::new() };
        let text =
            "select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches),
                    (select coalesce(sum(delta), 0) from pgbench_history), (select count(*) from pgbench_history)";
        // A tracer that is still there sees this query as well.
        self.counts.begun += 1;
        let sums = match postgres.client("psql").args(["-AtqXc", text, "postgres"]).output() {
            Ok(output) => {
                self.counts.done += u64::from(output.status.success());
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
            Err(error) => error.to_string(),
        };
        let want = self.n_runs * N_CLIENTS * N_TRANSACTIONS;
        let fields: Vec<&str> = sums.trim().split('|').collect();
        let agree = matches!(fields[..], [a, b, c, n] if a == b && b == c && n == want.to_string());
        if !agree {
            self.wrong.push(format!("the tables say {sums}; {want} transactions were done"));
        }
        std::mem::take(&mut self.wrong)
    }
}
