//! Answers about language runtimes, next to what the runtimes say of themselves.

use nopal_tests::asking::{answered, counts, number};
use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Garbage beside a list that lives, so that every collection takes its time.
const GARBAGE: &str = "
public class Garbage {
    static volatile byte[] last;
    public static void main(String[] args) {
        java.util.LinkedList<Object[]> alive = new java.util.LinkedList<>();
        for (int i = 0; i < 300_000; i++) alive.add(new Object[4]);
        for (int i = 0; i < 3_000_000; i++) last = new byte[64];
        for (int i = 0; i < 9; i++) System.gc();
        if (alive.size() != 300_000) System.exit(1);
    }
}
";

/// A pause as the log of a Java machine has it, rounded at microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    pub is_full: bool,
    pub ns: u64,
}

/// Has a command, to which its words are added, collect garbage. Gives what the command prints and the machine's log.
pub(super) fn collect_garbage(command: &mut Command, dir: &Path) -> (String, String) {
    fs::write(dir.join("Garbage.java"), GARBAGE).expect("it can be written");
    run(Command::new("javac").arg("-d").arg(dir).arg(dir.join("Garbage.java")));
    let log = dir.join("gc.log");
    let words = ["java", "-XX:+UseSerialGC", "-Xms96m", "-Xmx96m", "-Xmn16m", "-cp"];
    let logged = format!("-Xlog:gc:file={}", log.display());
    let printed = run(command.args(words).arg(dir).arg(logged).arg("Garbage"));
    (printed, fs::read_to_string(&log).expect("it kept a log"))
}

/// The pauses of a log, in their order.
pub(super) fn pauses_in(log: &str) -> Vec<Pause> {
    let lines = log.lines().filter(|line| line.contains("Pause Young ") || line.contains("Pause Full "));
    lines
        .map(|line| {
            let ms = line.rsplit(' ').next().and_then(|word| word.strip_suffix("ms"));
            // It has three decimals.
            let us: u64 =
                ms.and_then(|ms| ms.replace('.', "").parse().ok()).expect("a duration in the last column");
            Pause { is_full: line.contains("Pause Full "), ns: us * 1000 }
        })
        .collect()
}

/// Each pause is one span. The pause that the log has lies within it, so that no sum is smaller. The span has the work
/// around the pause, too, which is little: half of them are at most 5 % and 0.1 ms longer.
#[test]
fn a_java_machines_pauses_are_those_of_its_log() {
    let dir = scratch("answers-java");
    let mut command = Command::new(nopal());
    command.args(["latency", "hotspot:gc", "--by", "isFull", "--json", "--"]);
    let (answer, text) = collect_garbage(&mut command, &dir);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["complete"], true, "{answer}");
    for is_full in [false, true] {
        let of_kind = pauses_in(&text).into_iter().filter(|pause| pause.is_full == is_full);
        let mut pauses: Vec<u64> = of_kind.map(|pause| pause.ns).collect();
        pauses.sort_unstable();
        let rows = answer["rows"].as_array().expect("rows");
        let row = rows
            .iter()
            .find(|row| row["isFull"] == if is_full { "true" } else { "false" })
            .expect("a row of this kind");
        assert_eq!(number(&row["count"]), pauses.len() as u64, "{text}");
        assert!(pauses.len() >= 9, "{text}");
        // The log's numbers are cut or rounded at microseconds.
        let (sum, slack) = (pauses.iter().sum::<u64>(), pauses.len() as u64 * 1000);
        assert!(number(&row["total_ns"]) + slack >= sum, "{row}: {sum}");
        let (median, ours) = (pauses[pauses.len().div_ceil(2) - 1], number(&row["p50_ns"]));
        assert!(
            ours.abs_diff(median) <= median / 20 + 100_000,
            "full: {is_full}: {ours} ns, by its log {median} ns: {text}"
        );
    }
}

/// Methods written in Ruby, which a TracePoint of the program itself counts in the same run.
#[test]
fn ruby_counts_the_same_methods() {
    let script = scratch("answers-ruby").join("methods.rb");
    let text = "\
class Shop
  def order(n) = n.even? ? item(n) : item(n) + item(n)
  def item(n) = n * 2
  def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)
  def fails = raise(ArgumentError)
end
calls = Hash.new(0)
TracePoint.new(:call, :return) { |t| calls[t.method_id] += 1 if t.event == :call }.enable do
  shop = Shop.new
  120.times { |n| shop.order(n) }
  shop.fib(10)
  9.times { begin; shop.fails; rescue ArgumentError; end }
end
calls.each { |name, n| warn \"#{name} #{n}\" }
";
    fs::write(&script, text).expect("it can be written");
    let output = Command::new(nopal())
        .args(["latency", "ruby:method", "--by", "methodname", "--json", "--", "ruby", "--disable-gems"])
        .arg(&script)
        .output()
        .expect("nopal can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ours = counts(&answer, "methodname");
    for (name, planned) in [("order", 120), ("item", 180), ("fib", 177), ("fails", 9)] {
        let theirs = said.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        assert_eq!(theirs.and_then(|n| n.parse().ok()), Some(planned), "{name}: {said}");
        assert_eq!(ours.get(name).copied(), Some(planned), "{name}: {answer}");
    }
}

/// What an answer of nothing advises is what helps.
#[test]
fn a_ruby_program_that_does_as_advised_is_seen() {
    let script = scratch("answers-ruby-advice").join("item.rb");
    let ask = |first_line: &str| {
        let text = format!("{first_line}\ndef item(n) = n * 2\n10.times {{ |n| item(n) }}\n");
        fs::write(&script, text).expect("it can be written");
        let words =
            ["latency", "ruby:method", "--by", "methodname", "--json", "--", "ruby", "--disable-gems"];
        answered(Command::new(nopal()).args(words).arg(&script))
    };
    let nothing = ask("");
    assert_eq!((counts(&nothing, "methodname").len(), number(&nothing["unmatched"])), (0, 0), "{nothing}");
    let notes = nothing["notes"].to_string();
    let (_, advice) = notes.split_once("TracePoint.new").expect("it says what it may be");
    let (advice, _) = advice.split_once(".enable").expect("it is a line of Ruby");
    let helped = ask(&format!("TracePoint.new{advice}.enable"));
    assert_eq!(counts(&helped, "methodname").get("item").copied(), Some(10), "{helped}");
    // Half of the advice is half of the spans, and that is told.
    let half = ask("TracePoint.new(:call) {}.enable");
    assert_eq!((counts(&half, "methodname").len(), number(&half["unmatched"])), (0, 10), "{half}");
    assert!(half["notes"].to_string().contains(":return"), "{half}");
}
