//! Answers from spans. What must come out is what the traced program planned, or what another tool counted.

use nopal_tests::asking::{Asked, counts, number};
use nopal_tests::postgres::Postgres;
use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, root, run, scratch};
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[track_caller]
fn output(arguments: &[&OsStr]) -> Output {
    Command::new(nopal()).args(arguments).output().expect("nopal can be run")
}

/// The object that `nopal ... --json` prints.
#[track_caller]
pub(super) fn answer(arguments: &[&dyn AsRef<OsStr>]) -> Value {
    told(arguments).0
}

/// The same, and what it says beside it.
#[track_caller]
pub(super) fn told(arguments: &[&dyn AsRef<OsStr>]) -> (Value, String) {
    let arguments: Vec<&OsStr> = arguments.iter().map(|argument| argument.as_ref()).collect();
    let said = output(&arguments);
    assert!(said.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
    let text = String::from_utf8_lossy(&said.stdout);
    let object = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {text}"));
    (object, String::from_utf8_lossy(&said.stderr).into_owned())
}

/// What a command that must fail says: message and hint.
#[track_caller]
fn refusal(arguments: &[&dyn AsRef<OsStr>]) -> String {
    let arguments: Vec<&OsStr> = arguments.iter().map(|argument| argument.as_ref()).collect();
    let said = output(&arguments);
    assert!(!said.status.success(), "{arguments:?} was answered");
    String::from_utf8_lossy(&said.stderr).into_owned()
}

/// What `spans.c` says must come of its run.
pub(super) struct Plan {
    pub(super) kinds: HashMap<String, [u64; 6]>,
    /// By kind: ends, begins, open.
    pub(super) unmatched: HashMap<String, [u64; 3]>,
    /// By id: at least and at most, in nanoseconds.
    pub(super) slow: HashMap<u64, (u64, u64)>,
}

impl Plan {
    pub(super) fn read(path: &Path) -> Plan {
        let text = fs::read_to_string(path).expect("the program wrote its plan");
        let mut plan = Plan { kinds: HashMap::new(), unmatched: HashMap::new(), slow: HashMap::new() };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
            match (words[0], &numbers[..]) {
                ("unmatched", more) => {
                    plan.unmatched.insert(words[1].to_owned(), more.try_into().expect("three numbers"));
                }
                ("id", [id, low, high]) => {
                    plan.slow.insert(*id, (*low, *high));
                }
                (kind, numbers) => {
                    plan.kinds.insert(kind.to_owned(), numbers.try_into().expect("six numbers"));
                }
            }
        }
        plan
    }

    /// Counts are those of the plan; times lie between the program's own readings around each probe.
    #[track_caller]
    fn check(&self, answer: &Value) {
        self.check_kinds(answer, &["outer", "inner", "rec", "job", "slow", "took", "lost"], true);
    }

    /// The same of some kinds; errors may be left out.
    #[track_caller]
    pub(super) fn check_kinds(&self, answer: &Value, kinds: &[&str], has_errors: bool) {
        assert_eq!(answer["complete"], true, "{answer}");
        assert_eq!(answer["lost"], 0);
        let rows = answer["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), kinds.iter().filter(|kind| self.kinds[**kind][0] > 0).count(), "{answer}");
        for row in rows {
            let name = row["span"].as_str().and_then(|name| name.strip_prefix("plan:")).expect("a name");
            let [count, errors, inner, outer, self_low, self_high] = self.kinds[name];
            let errors = if has_errors { errors } else { 0 };
            assert_eq!((number(&row["count"]), number(&row["errors"])), (count, errors), "{name}");
            // The two clocks may differ by this much at each probe.
            let slack = count * 500 + outer / 1000;
            let is_within = |what: &str, low: u64, high: u64| {
                let got = number(&row[what]);
                assert!(
                    low.saturating_sub(slack) <= got && got <= high + slack,
                    "{name} {what}: {got} not in {low}..{high}"
                );
            };
            is_within("total_ns", inner, outer);
            if name != "took" {
                is_within("self_ns", self_low, self_high);
            }
        }
        let why = &answer["unmatched_why"];
        let unmatched = ["begun_before", "never_ended", "not_ended"].map(|key| number(&why[key]));
        let mut planned = [0; 3];
        for kind in kinds {
            planned.iter_mut().zip(self.unmatched[*kind]).for_each(|(sum, n)| *sum += n);
        }
        assert_eq!(unmatched, planned, "{answer}");
        assert_eq!(number(&answer["unmatched"]), planned.iter().sum::<u64>());
    }

    /// The slowest are the slowest, each as long as the program says.
    #[track_caller]
    pub(super) fn check_slowest(&self, answer: &Value, n: usize) {
        let slowest = answer["slowest"].as_array().expect("a list");
        assert_eq!(slowest.len(), n);
        let durations: Vec<u64> = slowest.iter().map(|slow| number(&slow["duration_ns"])).collect();
        assert!(durations.is_sorted_by(|a, b| a >= b), "{durations:?}");
        let ids: Vec<u64> = slowest.iter().map(|slow| number(&slow["args"]["id"])).collect();
        for (id, duration) in ids.iter().zip(&durations) {
            let (low, high) = self.slow[id];
            assert!(
                low.saturating_sub(1000) <= *duration && *duration <= high + 1000,
                "{id}: {duration} not in {low}..{high}"
            );
        }
        let others = self.slow.iter().filter(|(id, _)| !ids.contains(id)).map(|(_, (low, _))| *low);
        let least = durations.last().expect("there are some");
        assert!(others.max().unwrap_or(0) <= least + 1000, "a slower one is missing");
    }
}

pub(super) struct Planned {
    pub(super) program: PathBuf,
    pub(super) dir: PathBuf,
}

impl Planned {
    pub(super) fn new(name: &str) -> Planned {
        Planned { program: build("spans", &["spans.c"], Build::Pie), dir: scratch(name) }
    }

    pub(super) fn plan_file(&self) -> PathBuf {
        self.dir.join("plan")
    }

    pub(super) fn file(name: &str) -> PathBuf {
        root().join("tests/fixtures/targets").join(name)
    }

    /// Runs the program under nopal.
    #[track_caller]
    pub(super) fn ask(&self, words: &[&str]) -> (Value, Plan) {
        let (said, _, plan) = self.ask_about(&Self::file("spans.toml"), words);
        (said, plan)
    }

    /// The same with spans of one's own, and with what nopal says beside its answer.
    #[track_caller]
    pub(super) fn ask_about(&self, spans: &Path, words: &[&str]) -> (Value, String, Plan) {
        let (provider, plan) = (Self::file("spans.d"), self.plan_file());
        let _ = fs::remove_file(&plan);
        let mut arguments: Vec<&dyn AsRef<OsStr>> =
            words.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
        let rest: [&dyn AsRef<OsStr>; 8] =
            [&"--provider", &provider, &"--spans", &spans, &"--json", &"--", &self.program, &plan];
        arguments.extend(rest);
        let (said, words) = told(&arguments);
        (said, words, Plan::read(&plan))
    }
}

const ALL: [&str; 8] = ["latency", "outer", "inner", "rec", "job", "slow", "took", "lost"];

#[test]
fn planned_spans_by_the_user_door() {
    let planned = Planned::new("answers-user");
    // Without the slowest, what pairs by its thread alone leaves no arguments.
    for more in [&[][..], &["--slowest", "0"]] {
        let (said, plan) = planned.ask(&[&ALL[..], &["--door", "user"], more].concat());
        plan.check(&said);
    }
}

#[test]
fn planned_spans_by_the_kernel_door() {
    let planned = Planned::new("answers-kernel");
    for more in [&[][..], &["--slowest", "0"]] {
        let (said, plan) = planned.ask(&[&ALL[..], &["--door", "kernel"], more].concat());
        plan.check(&said);
    }
}

#[test]
fn planned_spans_over_their_recording() {
    let planned = Planned::new("answers-recording");
    let (provider, plan) = (Planned::file("spans.d"), planned.plan_file());
    let recording = planned.dir.join("rec");
    answer(&[
        &"record",
        &"-e",
        &"plan:*",
        &"--provider",
        &provider,
        &"-o",
        &recording,
        &"--json",
        // Where a site is the kernel door's by chance, it is not known what came first.
        &"--door",
        &"user",
        &"--",
        &planned.program,
        &plan,
    ]);
    let plan = Plan::read(&plan);
    let spans = Planned::file("spans.toml");
    let ask = |words: &[&str]| {
        let mut arguments: Vec<&dyn AsRef<OsStr>> =
            words.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
        let rest: [&dyn AsRef<OsStr>; 5] = [&"--spans", &spans, &"--json", &"--recording", &recording];
        arguments.extend(rest);
        answer(&arguments)
    };
    plan.check(&ask(&ALL));
    plan.check_slowest(&ask(&["latency", "slow", "--slowest", "7"]), 7);
    // One event that tells its duration: all numbers are known, quantiles within their bound.
    let took = ask(&["latency", "took", "--by", "name"]);
    let rows = took["rows"].as_array().expect("rows");
    let squares =
        |is_write: bool| (0..100u64).filter(move |i| (i % 3 == 0) == is_write).map(|i| i * i * 1000);
    for (name, durations) in
        [("write", squares(true)), ("read", squares(false))].map(|(n, d)| (n, d.collect::<Vec<_>>()))
    {
        let row = rows.iter().find(|row| row["name"] == name).expect("a row");
        assert_eq!(number(&row["count"]), durations.len() as u64);
        assert_eq!(number(&row["total_ns"]), durations.iter().sum::<u64>());
        assert_eq!(number(&row["max_ns"]), *durations.last().unwrap());
        for (column, share) in [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p999_ns", 0.999)] {
            let exact = durations[(share * durations.len() as f64).ceil() as usize - 1];
            let got = number(&row[column]);
            assert!(got.abs_diff(exact) * 128 <= exact, "{name} {column}: {got}, exactly {exact}");
        }
    }
    // What the program planned can be asked for in other words, too.
    let by_hand = ask(&["latency", "plan:job__begin", "plan:job__end", "--key", "key"]);
    assert_eq!(number(&by_hand["rows"][0]["count"]), plan.kinds["job"][0]);
    let by_position = ask(&["latency", "job__begin", "job__end", "--key", "arg0", "--by", "arg1"]);
    assert_eq!(by_position["rows"].as_array().map(Vec::len), Some(2), "two workers");
    // As spans.c has it: every tenth has a status, unless it ends by its failure.
    let ids = || (0..3u64).flat_map(|thread| (0..200).map(move |i| thread * 1000 + i));
    let n_status = ids().filter(|id| id % 10 == 3 && id % 7 != 5).count() as u64;
    let few = ask(&["latency", "outer", "--where", "status == -1"]);
    assert_eq!(number(&few["rows"][0]["count"]), n_status);
    assert_eq!(few["rows"][0]["count"], few["rows"][0]["errors"]);
    // Between two bounds of time lies what lies between them.
    let all = ask(&["latency", "took", "--min", "100us", "--max", "2.5ms"]);
    assert_eq!(
        number(&all["rows"][0]["count"]),
        (0..100u64).filter(|i| (100..=2500).contains(&(i * i))).count() as u64
    );

    // Counts and values.
    let count = ask(&["count", "plan:took", "plan:slow__*", "--by", "name"]);
    let counts: HashMap<(String, String), u64> = count["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| ((row["probe"].to_string(), row["name"].to_string()), number(&row["count"])))
        .collect();
    let key = |probe: &str, name: &str| (format!("\"{probe}\""), name.to_owned());
    assert_eq!(counts[&key("plan:took", "\"write\"")], 34);
    assert_eq!(counts[&key("plan:took", "\"read\"")], 66);
    assert_eq!(counts[&key("plan:slow__start", "null")], 40);
    let hist = ask(&["hist", "plan:took", "us", "--linear", "0,5000,1000"]);
    let steps: Vec<u64> =
        hist["rows"].as_array().expect("rows").iter().map(|row| number(&row["count"])).collect();
    let mut planned_steps = [0u64; 6];
    (0..100u64).for_each(|i| planned_steps[(i * i / 1000).min(5) as usize] += 1);
    assert_eq!(steps, planned_steps);
    let hist = ask(&["hist", "plan:took", "us"]);
    for row in hist["rows"].as_array().expect("rows") {
        let (low, high) = (number(&row["low"]), number(&row["high"]));
        let planned = (0..100u64).filter(|i| (low..=high).contains(&(i * i))).count() as u64;
        assert_eq!(number(&row["count"]), planned, "{low}..={high}");
    }

    // Trees: each outer span has as many within it as its number says.
    let tree = ask(&["tree", "outer", "--pick", "all"]);
    let rows = tree["rows"].as_array().expect("rows");
    assert_eq!((rows[0]["span"].as_str(), number(&rows[0]["count"])), (Some("plan:outer"), 601));
    assert_eq!((rows[1]["span"].as_str(), number(&rows[1]["depth"])), (Some("plan:inner"), 1));
    assert_eq!(number(&rows[1]["count"]), ids().map(|id| id % 4).sum::<u64>());
    assert_eq!(rows.len(), 2, "{tree}");
    for pick in ["slowest", "median"] {
        let tree = ask(&["tree", "outer", "--pick", pick]);
        let rows = tree["rows"].as_array().expect("rows");
        let id: u64 = rows[0]["value"].as_str().and_then(|id| id.parse().ok()).expect("the id of the span");
        let n_within = if id == 100_000 { 0 } else { id % 4 };
        assert_eq!(rows.len() as u64, 1 + n_within, "{tree}");
    }
    let top = ask(&["top", "--once", "--sort", "count"]);
    assert_eq!(top["rows"][0]["span"], "plan:inner");
}

/// Each door has its own clock: what is nearer than they agree may have come in either order.
#[test]
fn what_comes_by_two_doors_at_once_is_not_called_complete() {
    let (program, dir) = (build("twodoors", &["twodoors.c"], Build::Pie), scratch("answers-two-doors"));
    let ask = |words: &[&str], rounds: &str, pause_us: &str| {
        let mut arguments: Vec<&dyn AsRef<OsStr>> =
            words.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
        let rest: [&dyn AsRef<OsStr>; 6] = [&"--json", &"-v", &"--", &program, &rounds, &pause_us];
        arguments.extend(rest);
        told(&arguments)
    };
    let (said, words) = ask(&["latency", "two:begin", "two:end"], "3000", "0");
    assert!(words.contains("1 user door, 1 kernel door"), "{words}");
    assert_eq!((&said["complete"], &said["lost"]), (&false.into(), &0.into()), "{said}");
    assert!(number(&said["unordered"]) > 0, "{said}");
    // The order does not matter to how many there are.
    let (said, _) = ask(&["count", "two:begin", "two:end"], "3000", "0");
    assert_eq!((&said["complete"], &said["unordered"]), (&true.into(), &0.into()), "{said}");
    let counts: Vec<u64> =
        said["rows"].as_array().expect("rows").iter().map(|row| number(&row["count"])).collect();
    assert_eq!(counts, [3000, 3000]);
    // One clock knows what came first, and so do two if there is time between.
    for (more, rounds, pause_us) in [(&["--door", "kernel"][..], 3000, "0"), (&[], 100, "2000")] {
        let (said, _) =
            ask(&[&["latency", "two:begin", "two:end"], more].concat(), &rounds.to_string(), pause_us);
        assert_eq!((&said["complete"], &said["unordered"]), (&true.into(), &0.into()), "{said}");
        assert_eq!((number(&said["rows"][0]["count"]), number(&said["unmatched"])), (rounds, 0));
    }
    // A recording has all events, and their order is not known there either.
    let recording = dir.join("rec");
    let arguments: [&dyn AsRef<OsStr>; 10] =
        [&"record", &"-e", &"two:*", &"-o", &recording, &"--json", &"--", &program, &"3000", &"0"];
    assert_eq!(answer(&arguments)["complete"], true);
    let said = answer(&[&"latency", &"two:begin", &"two:end", &"--json", &"--recording", &recording]);
    assert!(said["complete"] == false && number(&said["unordered"]) > 0, "{said}");
    let said = answer(&[&"count", &"two:*", &"--json", &"--recording", &recording]);
    assert_eq!((&said["complete"], &said["unordered"]), (&true.into(), &0.into()), "{said}");
}

#[test]
fn a_running_program_is_asked_until_it_ends() {
    let planned = Planned::new("answers-attach");
    let (provider, spans, plan) =
        (Planned::file("spans.d"), Planned::file("spans.toml"), planned.plan_file());
    let go = planned.dir.join("go");
    let ask = || {
        let _ = fs::remove_file(&go);
        let target = Running::start(Command::new(&planned.program).arg(&plan).arg(&go));
        let mut command = Command::new(nopal());
        command.args(ALL).args(["--json", "-v", "-p", &target.pid().to_string()]);
        command.arg("--provider").arg(&provider).arg("--spans").arg(&spans);
        let tracer = Asked::start(&mut command);
        fs::write(&go, "").expect("the file can be made");
        tracer.in_the_end()
    };
    // Once more where a site was the kernel door's by chance, so that it is not known what came first.
    let said = (0..5).map(|_| ask()).find(|said| said["unordered"] == 0).expect("one door in five tries");
    Plan::read(&plan).check(&said);
}

#[test]
fn a_wrong_question_is_told_what_there_is() {
    let planned = Planned::new("answers-wrong");
    let (provider, spans, plan) =
        (Planned::file("spans.d"), Planned::file("spans.toml"), planned.plan_file());
    let bad = planned.dir.join("bad.toml");
    fs::write(&bad, "[spans.'plan:x']\nevent = 'took'\nduration = 'us'\nunit = 'sec'\n").unwrap();
    let name = planned.dir.join("name.toml");
    fs::write(&name, "[spans.'plan:x']\nevent = 'took'\nduration = 'name'\n").unwrap();
    for (words, file, wanted) in [
        (&["latency", "outre"][..], &spans, &["no span is called `outre`", "did you mean `plan:outer`?"][..]),
        (
            &["latency", "lost__start", "inner__doen"],
            &spans,
            &["no probe is called `inner__doen`", "`plan:inner__done`"],
        ),
        (
            &["latency", "outer", "--key", "status"],
            &spans,
            &["cannot pair by `status`: plan:outer__start has no such field", "its fields are id"],
        ),
        // The end lacks what the begin has.
        (
            &["latency", "job", "--key", "worker"],
            &spans,
            &["cannot pair by `worker`: plan:job__end has no such field", "its fields are key, status"],
        ),
        (&["latency", "took", "--key", "name"], &spans, &["there is nothing to pair"]),
        (
            &["latency", "outer", "--by", "idd"],
            &spans,
            &["plan:outer has no field `idd`", "did you mean `id`?", "id, status"],
        ),
        (
            &["latency", "outer", "--where", "stauts == 1"],
            &spans,
            &["at column 1", "stauts", "its fields are id, status"],
        ),
        (
            &["latency", "outer", "--where", "status == \"x\""],
            &spans,
            &["at column 1: `status` is a number; compare it with a number", "its fields are id, status"],
        ),
        (
            &["latency", "took", "--where", "name > 3"],
            &spans,
            &["`name` is a string; compare it with a string"],
        ),
        (&["count", "plan:took", "--where", "name & 1"], &spans, &["`name` is a string"]),
        (&["latency", "outer", "--where", "$ctx.vpid == 1"], &spans, &["only fields can be asked for here"]),
        (
            &["latency", "outer", "--where", "id[0] == 1"],
            &spans,
            &["elements of a field cannot be asked for here"],
        ),
        (&["latency", "outer", "--min", "10x"], &spans, &["not a time with its unit: `10x`", "500us"]),
        (&["latency", "outer", "--max", "300"], &spans, &["not a time with its unit: `300`", "500us"]),
        (&["latency", "outer", "--every", "0"], &spans, &["`0` is not a duration"]),
        (&["latency", "x"], &bad, &["`sec` is not a unit of time; use ns, us, ms or s"]),
        (&["latency", "x"], &name, &["`name` of plan:took is not a number", "its numbers are us"]),
        (
            &["hist", "plan:took", "name"],
            &spans,
            &["`name` of plan:took is not a number", "its numbers are us"],
        ),
        (&["hist", "plan:took", "us", "--linear", "1,2"], &spans, &["LO,HI,STEP"]),
        (&["count", "plan:tok"], &spans, &["no probe is called `plan:tok`", "did you mean `plan:took`?"]),
        (&["count", "plan:took", "--by", "nmae"], &spans, &["has no field `nmae`", "did you mean `name`?"]),
        (&["tree", "outr"], &spans, &["did you mean `plan:outer`?"]),
    ] {
        let mut arguments: Vec<&dyn AsRef<OsStr>> =
            words.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
        let rest: [&dyn AsRef<OsStr>; 7] =
            [&"--provider", &provider, &"--spans", file, &"--", &planned.program, &plan];
        arguments.extend(rest);
        let said = refusal(&arguments);
        assert!(wanted.iter().all(|part| said.contains(part)), "{words:?}: {said}");
        assert!(!plan.exists(), "{words:?}: the program was started in vain");
    }
    let none = refusal(&[&"latency", &"x"]);
    assert!(none.contains("-p PID") && none.contains("--recording"), "{none}");
    let nobody = refusal(&[&"latency", &"x", &"-n", &"no-such-program"]);
    assert!(nobody.contains("no process runs a program called `no-such-program`"), "{nobody}");
}

/// Statements sent as text and prepared ones are counted as PostgreSQL's own statistics count them, and are as long. Theirs
/// are without the start and the end of the executor, which is some 10 us: of a statement of milliseconds nothing.
#[test]
fn postgresql_counts_the_same_calls() {
    let postgres = Postgres::start_with("answers", &["-c", "shared_preload_libraries=pg_stat_statements"]);
    run(postgres.client("pgbench").args(["-i", "-q", "postgres"]));
    postgres.query("create extension pg_stat_statements");
    let slow = postgres.folder().join("slow.sql");
    fs::write(&slow, "select count(*) from pgbench_accounts where abalance <> 12345;\n")
        .expect("it can be written");
    for mode in ["simple", "prepared"] {
        postgres.query("select pg_stat_statements_reset()");
        let words = ["latency", "postgresql:query", "--by", "query", "--fingerprint"];
        let tracer = Asked::of(postgres.pid(), &words);
        const N_TRANSACTIONS: u64 = 200;
        run(postgres.client("pgbench").args(["-n", "-M", mode, "-c", "2", "-t", "100", "postgres"]));
        let mut bench = postgres.client("pgbench");
        run(bench.args(["-n", "-M", mode, "-c", "2", "-t", "15", "-f"]).arg(&slow).arg("postgres"));
        let said = tracer.so_far();
        let ours = counts(&said, "query");
        let theirs = postgres.query(
            "select calls || ' ' || total_exec_time || ' ' || query from pg_stat_statements \
             where query like '%pgbench_%'",
        );
        let (mut n_compared, mut n_long) = (0, 0);
        let is_ours =
            |line: &&str| line.contains(" WHERE ") || line.contains(" where ") || line.contains("INSERT");
        for line in theirs.lines().filter(is_ours) {
            let [calls, total_ms, query] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let same = (1..9).fold(query.to_owned(), |text, n| text.replace(&format!("${n}"), "?"));
            // Longer texts are cut by both, each in its own way.
            if same.len() > 200 {
                continue;
            }
            assert_eq!(ours.get(&same).copied(), calls.parse().ok(), "{mode}: {same}: {ours:?}");
            n_compared += 1;
            let rows = said["rows"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["query"] == same).expect("it was counted");
            let total_ns = total_ms.parse::<f64>().expect("a number") * 1e6;
            let ratio = number(&row["total_ns"]) as f64 / total_ns;
            let mean_ns = total_ns / ours[&same] as f64;
            if mean_ns > 1e6 {
                assert!((0.95..1.05).contains(&ratio), "{mode}: {same}: {row}, by its own count {line}");
                n_long += 1;
            } else if query.starts_with("UPDATE") {
                assert!(ratio > 0.95, "{mode}: {same}: {row}, by its own count {line}");
            }
        }
        assert!(n_compared == 6 && n_long >= 1, "{theirs}");
        assert_eq!((ours["BEGIN"], ours["END"]), (N_TRANSACTIONS, N_TRANSACTIONS), "{mode}");
    }
    // The same where the backends themselves pair and add up.
    postgres.query("select pg_stat_statements_reset()");
    let tracer = Asked::of(postgres.pid(), &["latency", "postgresql:query", "--slowest", "0"]);
    run(postgres.client("pgbench").args(["-n", "-M", "simple", "-c", "2", "-t", "100", "postgres"]));
    let said = tracer.so_far();
    if said["kept_at_source"] != true {
        let why = said["streamed_because"].as_str().expect("a reason");
        assert!(why.starts_with("the user door does not open each site of postgresql:"), "{why}");
    }
    let calls = postgres
        .query("select sum(calls) from pg_stat_statements where query not like '%pg_stat_statements_reset%'");
    assert_eq!(number(&said["rows"][0]["count"]), calls.trim().parse::<u64>().expect("a number"), "{said}");
}

#[test]
fn python_and_ruby_count_the_same_calls() {
    let dir = scratch("answers-calls");
    let python = dir.join("calls.py");
    fs::write(
        &python,
        "def leaf(n):\n    return n\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\
         def fails():\n    raise ValueError\ndef main():\n    for i in range(300):\n        leaf(i)\n    fib(12)\n    \
         for i in range(7):\n        try:\n            fails()\n        except ValueError:\n            pass\n\
         import sys\nif len(sys.argv) > 1:\n    import cProfile, pstats\n    p = cProfile.Profile()\n    p.runcall(main)\n    \
         for (_, _, name), (_, n, *_) in pstats.Stats(p).stats.items():\n        print(name, n)\nelse:\n    main()\n",
    )
    .unwrap();
    let theirs = run(Command::new("/usr/bin/python3").arg(&python).arg("profile"));
    // The interpreter's own modules have functions of these names, too.
    let arguments: [&dyn AsRef<OsStr>; 9] = [
        &"latency",
        &"python:function",
        &"--by",
        &"funcname",
        &"--where=filename == \"*calls.py\"",
        &"--json",
        &"--",
        &"/usr/bin/python3",
        &python,
    ];
    let said = answer(&arguments);
    let ours = counts(&said, "funcname");
    for name in ["leaf", "fib", "fails", "main"] {
        let line =
            theirs.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).expect("it was called");
        assert_eq!(ours.get(name).copied(), line.trim().parse().ok(), "{name}: {ours:?}");
    }
    assert_eq!(said["complete"], true);

    let ruby = dir.join("calls.rb");
    fs::write(
        &ruby,
        "def main\n  250.times { |i| [3, 1, i].sort }\n  40.times { 'abc'.unpack('C*') }\nend\n\
         if ARGV[0]\n  n = Hash.new(0)\n  TracePoint.new(:c_call) { |t| n[t.method_id] += 1 }.enable { main }\n  \
         n.each { |k, v| puts \"#{k} #{v}\" }\nelse\n  main\nend\n",
    )
    .unwrap();
    let theirs = run(Command::new("ruby").arg("--disable-gems").arg(&ruby).arg("profile"));
    let arguments: [&dyn AsRef<OsStr>; 9] = [
        &"latency",
        &"ruby:cmethod",
        &"--by",
        &"methodname",
        &"--json",
        &"--",
        &"ruby",
        &"--disable-gems",
        &ruby,
    ];
    let ours = counts(&answer(&arguments), "methodname");
    for name in ["sort", "times"] {
        let line =
            theirs.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).expect("it was called");
        assert_eq!(ours.get(name).copied(), line.trim().parse().ok(), "{name}: {ours:?}");
    }
    // Nothing comes of methods written in Ruby without a TracePoint, and the answer says why.
    let nothing = answer(&[&"latency", &"ruby:method", &"--json", &"--", &"ruby", &"--disable-gems", &ruby]);
    assert_eq!(nothing["rows"].as_array().map(Vec::len), Some(0));
    assert!(nothing["notes"].to_string().contains("TracePoint"), "{nothing}");
}
