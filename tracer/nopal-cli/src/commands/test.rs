//! `nopal test`: runs a program and fails if its probes do not do what is expected of them.

use super::answers::source::{Gathered, Source};
use super::answers::{AnswerArgs, numbers};
use crate::failure::Failure;
use crate::verdict;
use crate::words::counted;
use clap::builder::styling::{AnsiColor, Style};
use nopal_answers::Wrong;
use nopal_answers::expectations::{Expectations, Judged, Judgement, Known, Reason, Rule};
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Runs a program and fails if its probes do not come as expected: for tests and CI. Needs no root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal test --expect 'shop:sale__start -> shop:sale__done' -- ./shop --once
  nopal test --count 'shop:sale >= 3' --count 'shop:error == 0' -- ./shop
  nopal test --latency 'sale p99 < 5ms' --latency 'sale max < 1s' -- ./load-test
  nopal test --latency 'shop:begin shop:end mean < 1ms' -- ./shop        any two probes
  nopal test --expect 'shop:open -> shop:close by thread' --recording shop.rec

Rules:
  --expect 'A -> B -> C'   A comes, later B, later C; with `by thread` all on one thread. Probes may have * and ?
  --count 'A >= N'         how often A comes: >= <= == != > <
  --latency 'S p99 < 5ms'  how long span S takes: min, mean, max, p50, p90, p99, p999; `nopal spans` shows the spans

A rule on a probe that the program does not have is broken, whatever it asks for. Where events were lost or a site could
not be opened, a rule that they could decide is unproven.

Exit status: 0 if all rules hold; 1 if one is broken or the program fails; 3 if none is broken and one is unproven.")]
pub(super) struct Args {
    /// Probes that must come in this order; may be given several times.
    #[arg(long, value_name = "A -> B", value_parser = order)]
    pub expect: Vec<Rule>,
    /// How often a probe must come; may be given several times.
    #[arg(long, value_name = "A >= N", value_parser = count)]
    pub count: Vec<Rule>,
    /// How long a span may take; may be given several times.
    #[arg(long, value_name = "SPAN p99 < TIME", value_parser = latency)]
    pub latency: Vec<Rule>,
    /// The program may fail; only the rules count.
    #[arg(long)]
    pub ignore_exit: bool,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

fn order(text: &str) -> Result<Rule, String> {
    Rule::order(text).map_err(|wrong| in_words(&wrong))
}

fn count(text: &str) -> Result<Rule, String> {
    Rule::count(text).map_err(|wrong| in_words(&wrong))
}

fn latency(text: &str) -> Result<Rule, String> {
    Rule::latency(text).map_err(|wrong| in_words(&wrong))
}

fn in_words(wrong: &Wrong) -> String {
    format!("{wrong}; {}", wrong.hint())
}

/// Nothing is broken, and not everything is proven.
const UNPROVEN: u8 = 3;

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    let rules: Vec<Rule> =
        [&args.expect, &args.count, &args.latency].into_iter().flatten().cloned().collect();
    if rules.is_empty() {
        return Err(Failure::usage("no rule is given")
            .hint("add --expect, --count or --latency; --help has examples"));
    }
    let source = Source::find(&mut args.answer)?;
    let mut expectations = Expectations::new(rules, &source.available)?;
    let patterns = expectations.patterns();
    let gathered = source.gather_patterns(&args.answer, patterns, &mut expectations, |_, _| Ok(()))?;
    let all = source.available.probes.iter().map(|known| &known.name);
    let names: Vec<(String, String)> = all.map(|name| (name.provider.clone(), name.name.clone())).collect();
    let judged = expectations.judge(&Known {
        is_complete: gathered.verdict.is_complete(),
        probes: &gathered.probes,
        names: &names,
        closed: &gathered.closed,
    });
    let program = gathered.exit.filter(|_| !args.ignore_exit).and_then(failed);
    let outcome = outcome(&judged, program.as_deref(), &gathered);
    match args.answer.json {
        true => print_json(&judged, program.as_deref(), &gathered, outcome.as_ref().err())?,
        false => judged.iter().for_each(|one| show(one, &gathered)),
    }
    gathered.finish()?;
    outcome
}

fn failed(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("the program ended with exit code {code}")),
        (None, Some(signal)) => Some(format!("the program was ended by signal {signal}")),
        (None, None) => Some("the program did not end by itself".to_owned()),
    }
}

fn outcome(judged: &[Judged], program: Option<&str>, gathered: &Gathered) -> Result<(), Failure> {
    let n = |wanted: Judgement| judged.iter().filter(|one| one.judgement == wanted).count();
    let (n_broken, n_unproven) = (n(Judgement::Broken), n(Judgement::Unproven));
    let of = |n: usize| format!("{n} of {}", counted(judged.len() as u64, "rule"));
    if n_broken > 0 || program.is_some() {
        let broken = (n_broken > 0).then(|| format!("{} broken", of(n_broken)));
        let parts: Vec<String> = broken.into_iter().chain(program.map(str::to_owned)).collect();
        return Err(Failure::new("broken", parts.join("; ")));
    }
    if n_unproven > 0 {
        let why = missing(gathered);
        let failure = Failure::new("unproven", format!("{} unproven: {why}", of(n_unproven)));
        return Err(Failure {
            exit: UNPROVEN,
            ..failure.hint("a larger --buffer-size loses less; -v says why a site was not opened")
        });
    }
    match judged.len() {
        1 => tell!("the rule holds"),
        n => tell!("all {n} rules hold"),
    }
    Ok(())
}

/// What was not seen.
fn missing(gathered: &Gathered) -> String {
    let mut parts = Vec::new();
    if !gathered.verdict.is_complete() {
        parts.push(verdict::text(&gathered.verdict, gathered.manner()));
    }
    if !gathered.closed.is_empty() {
        let names: Vec<String> =
            gathered.closed.iter().map(|(provider, name)| format!("{provider}:{name}")).collect();
        parts.push(format!("not every site of {} could be opened", names.join(", ")));
    }
    parts.join("; ")
}

fn show(one: &Judged, gathered: &Gathered) {
    let colour = match one.judgement {
        Judgement::Holds => AnsiColor::Green,
        Judgement::Broken => AnsiColor::Red,
        Judgement::Unproven => AnsiColor::Yellow,
    };
    let style = Style::new().fg_color(Some(colour.into()));
    let why = reason(one, gathered);
    let text = nopal_trace::escape_lines(&format!("--{} '{}': {why}", one.option, one.text)).into_owned();
    anstream::println!("{style}{:<8}{style:#}  {text}", one.judgement.name());
}

fn reason(one: &Judged, gathered: &Gathered) -> String {
    let seen = match &one.reason {
        Reason::NoProbe { pattern, near } => {
            let near = near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            format!("the program has no probe `{pattern}`{near}")
        }
        Reason::Came { n_first } => format!("came, the first {}", counted(*n_first, "time")),
        Reason::Stopped { missing, n_missing, after, .. } => match (after, n_missing) {
            (None, _) => format!("`{missing}` never came"),
            (Some(after), 0) => format!("`{missing}` never came; `{after}` did"),
            (Some(after), n) => {
                format!("`{missing}` came {}, but not in this order after `{after}`", counted(*n, "time"))
            }
        },
        Reason::Counted { n } => format!("it came {}", counted(*n, "time")),
        Reason::NoSpan { span } => format!("no `{span}` began and ended"),
        Reason::Took { ns, n_spans } => {
            format!("{} of {}", numbers::duration(*ns), counted(*n_spans, "span"))
        }
    };
    match one.judgement {
        Judgement::Unproven => format!("{seen}, as far as can be seen; {}", missing(gathered)),
        Judgement::Holds | Judgement::Broken => seen,
    }
}

fn print_json(
    judged: &[Judged],
    program: Option<&str>,
    gathered: &Gathered,
    failure: Option<&Failure>,
) -> Result<(), Failure> {
    let rules: Vec<Value> = judged
        .iter()
        .map(|one| {
            let mut rule = json!({
                "option": one.option, "rule": one.text, "result": one.judgement.name(), "reason": reason(one, gathered),
            });
            match &one.reason {
                Reason::Counted { n } => rule["count"] = (*n).into(),
                Reason::Took { ns, n_spans } => {
                    rule["ns"] = (*ns).into();
                    rule["spans"] = (*n_spans).into();
                }
                Reason::NoProbe { .. } | Reason::Came { .. } | Reason::Stopped { .. } | Reason::NoSpan { .. } => {}
            }
            rule
        })
        .collect();
    let object = verdict::json_with(
        &gathered.verdict,
        json!({
            "passed": failure.is_none(), "rules": rules, "events": gathered.n_events, "program": program,
            "closed": gathered.closed.iter().map(|(p, n)| format!("{p}:{n}")).collect::<Vec<_>>(),
        }),
    );
    super::answers::print_json(&format!("{object}\n"))
}
