//! `nopal doctor`: why tracing does not work here, or a probe does not fire.

mod self_test;

use crate::failure::{Failure, failure_of};
use crate::needs::started_as;
use crate::processes::ProcessArgs;
use crate::reading::cannot_read;
use crate::signals;
use crate::target_args::{self, DoorArg};
use crate::words;
use clap::builder::styling::{AnsiColor, Style};
use nopal_doctor::{Finding, Level, Machine};
use nopal_live::plan::Limits;
use nopal_live::registry::Choice;
use nopal_live::{Door, Live, Options, Request};
use nopal_proc::Image;
use nopal_spans::file::{Companion, Trap};
use nopal_spans::{ProbeName, catalog};
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Says why tracing does not work here: the machine, a program, a process, one probe of it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal doctor                                      what this machine and this user allow
  nopal doctor --self-test                          the same, and traces a small program through each door
  nopal doctor /usr/lib/postgresql/15/bin/postgres  what is wrong with the probes of a program
  nopal doctor -n postgres                          what is in the way of tracing a process
  nopal doctor -p 1234 postgresql:query__start      why this probe of it does not fire

Exit status: 0 if nothing is in the way, 1 if there is a problem.")]
pub(super) struct Args {
    /// A program or library to look at; or, with -p, a probe that is waited for.
    #[arg(value_name = "FILE|PROBE")]
    what: Option<String>,
    #[command(flatten)]
    processes: ProcessArgs,
    /// How long to wait for the probe.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = words::duration)]
    wait: Duration,
    /// Traces a small program through each door and compares what came with what it did.
    #[arg(long)]
    self_test: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Of the self test: the program that is traced.
    #[arg(long, hide = true, value_name = "N")]
    fire: Option<u64>,
}

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    if let Some(n) = args.fire {
        self_test::fire(n);
        return Ok(());
    }
    args.processes.resolve(false)?;
    let mut findings = Vec::new();
    match (&args.processes.pids[..], args.what.as_deref()) {
        ([], None) => findings.extend(nopal_doctor::machine(&Machine::read(Path::new("/")))),
        ([], Some(path)) => findings.extend(look_at_file(Path::new(path))?),
        (pids, what) => {
            for &pid in pids {
                findings.extend(nopal_doctor::process(pid));
                if let Some(probe) = what {
                    findings.extend(wait_for(pid, probe, args.wait));
                }
            }
        }
    }
    if args.self_test {
        findings.extend(self_test::run());
    }
    print(&findings, args.json)?;
    match Level::of(&findings) {
        Level::Problem => {
            Err(Failure::new("problem", problems(&findings)).hint("each line above has its remedy"))
        }
        _ => Ok(()),
    }
}

fn problems(findings: &[Finding]) -> String {
    match findings.iter().filter(|finding| finding.level == Level::Problem).count() {
        1 => "1 problem".to_owned(),
        n => format!("{n} problems"),
    }
}

fn look_at_file(path: &Path) -> Result<Vec<Finding>, Failure> {
    let object = crate::reading::read_file(path)?;
    let image = Image::open(path).map_err(|error| cannot_read(&error))?;
    Ok(nopal_doctor::file(&path.display().to_string(), image.bytes(), &object))
}

/// Looks at a probe, then opens it and waits for it.
fn wait_for(pid: u32, probe: &str, wait: Duration) -> Vec<Finding> {
    let (mut findings, is_there) = nopal_doctor::probe(pid, probe);
    if !is_there {
        return findings;
    }
    findings.push(match count(pid, probe, wait) {
        Err(failure) => {
            let remedy = failure.hint.clone().unwrap_or_else(|| "`nopal doctor` says what this machine allows".into());
            Finding::problem("not-opened", failure.message, remedy)
        }
        Ok(0) if let Some(trap) = unmet(pid, probe) => Finding::problem(
            "silent",
            format!("{probe} was open for {} s and did not fire", wait.as_secs_f32()),
            trap.needs.clone(),
        ),
        Ok(0) => Finding::problem(
            "silent",
            format!("{probe} was open for {} s and did not fire: the program does not pass there", wait.as_secs_f32()),
            "make the program do what the probe marks, or wait longer: --wait 1m. Another process may do that work: `nopal list -u`",
        ),
        Ok(1) => Finding::fine("fires", format!("{probe} fired once in {} s", wait.as_secs_f32())),
        Ok(n) => Finding::fine("fires", format!("{probe} fired {n} times in {} s", wait.as_secs_f32())),
    });
    findings
}

fn trap_of(probe: &str) -> Option<&'static Trap> {
    let ProbeName { provider, name } = ProbeName::parse(probe, "");
    catalog::trap(&provider, &name)
}

/// What the probe needs that the process may be without.
fn unmet(pid: u32, probe: &str) -> Option<&'static Trap> {
    trap_of(probe).filter(|trap| trap.with.is_none() && !started_as(pid).has_what_it_needs(trap))
}

fn count(pid: u32, probe: &str, wait: Duration) -> Result<u64, Failure> {
    let companion = trap_of(probe).and_then(|trap| trap.with.as_ref());
    let companion = companion.map(|Companion { probe, never }| Choice::parse(&format!("{probe} if {never}")));
    let options = Options::new(Door::from(DoorArg::Auto), target_args::default_ring_bytes());
    let request = Request {
        spans: None,
        without_arguments: HashSet::new(),
        choices: [Choice::parse(probe)].into_iter().chain(companion).collect(),
        given: Vec::new(),
        limits: Limits::default(),
        options,
    };
    let mut live = Live::new(request).map_err(|e| failure_of(&e))?;
    let opened =
        nopal_live::attach_when_free(&mut live, pid, signals::is_stopped).map_err(|e| failure_of(&e))?;
    live.check_opened(&opened).map_err(|e| failure_of(&e))?;
    let end = Instant::now() + wait;
    let mut n_hits = 0;
    while Instant::now() < end && !signals::is_stopped() {
        n_hits += live.poll(|_, _| {}).n_hits;
        if live.is_look_due() {
            live.look_after();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    n_hits += live.poll(|_, _| {}).n_hits;
    Ok(n_hits)
}

fn print(findings: &[Finding], is_json: bool) -> Result<(), Failure> {
    if is_json {
        let text = serde_json::json!({ "findings": findings, "level": Level::of(findings) });
        show_json!(text);
        return Ok(());
    }
    for finding in findings {
        let (word, colour) = match finding.level {
            Level::Fine => ("ok", AnsiColor::Green),
            Level::Notice => ("note", AnsiColor::Yellow),
            Level::Problem => ("PROBLEM", AnsiColor::Red),
        };
        let style = Style::new().fg_color(Some(colour.into()));
        let remedy = finding.remedy.as_ref().map(|remedy| format!("\n          {remedy}"));
        let text = format!("{style}{word:>8}{style:#}  {}{}", finding.what, remedy.unwrap_or_default());
        anstream::println!("{}", nopal_trace::escape_styled(&text));
    }
    Ok(())
}
