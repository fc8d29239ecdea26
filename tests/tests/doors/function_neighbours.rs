//! bpftrace, perf and gdb come and go by chance on the bytes of functions that nopal has open, on their neighbours, and on those of
//! functions that it opens and closes meanwhile. The program checks its own results all the time.

use super::functions::{attach, busy_program, end, instructions, stop};
use super::thousand_functions::code_is_back;
use nopal_tests::cycles::{Chance, rounds};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::tools::section;
use nopal_tests::{run, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// gdb has this entry for itself: it goes on when somebody comes there.
const FOR_GDB: &str = "f_down";
const N_STEPS: u32 = 40;

/// A place where an instruction of a function begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    function: String,
    offset: u64,
}

struct Visitor {
    what: &'static str,
    places: BTreeSet<Place>,
    tool: Running,
    said: PathBuf,
    /// Events of the kernel to be forgotten when it has gone.
    events: Vec<String>,
}

/// Who is there, and what they have.
struct Visit {
    program: PathBuf,
    pid: u32,
    folder: PathBuf,
    /// gdb takes the breakpoint of the kernel for the program's byte: no place is for both of them.
    for_gdb: Vec<Place>,
    for_uprobes: Vec<Place>,
    nopal: Option<Running>,
    visitors: Vec<Visitor>,
    n_come: u64,
    n_seen: u64,
}

/// Every instruction of the program's functions, but those on which the kernel's uprobes change what a function has below its
/// stack pointer: bare nops of five bytes.
fn places(program: &Path) -> Vec<Place> {
    let nm = run(Command::new("nm").args(["-S", "--defined-only"]).arg(program));
    let functions = nm.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, len, _, name] = words[..] else { return None };
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let is_whole = name.starts_with("f_") && !name.contains(".cold");
        is_whole.then(|| (number(at)..number(at) + number(len), name.to_owned()))
    });
    let functions: Vec<_> = functions.collect();
    let code = fs::read(program).unwrap();
    let (text, offset, _) = section(program, ".text").unwrap();
    let is_nop = |at: u64| code[(at - text + offset) as usize..].starts_with(&[0x0f, 0x1f, 0x44, 0, 0]);
    let place = |(at, _): &(u64, usize)| {
        let (range, name) = functions.iter().find(|(range, _)| range.contains(at))?;
        let place = Place { function: name.clone(), offset: at - range.start };
        (!is_nop(*at) && (place.function != FOR_GDB || place.offset > 0)).then_some(place)
    };
    instructions(program).iter().filter_map(place).collect()
}

fn chosen(places: &[Place], chance: &mut Chance) -> BTreeSet<Place> {
    (0..=chance.below(4)).map(|_| chance.one_of(places).clone()).collect()
}

impl Visit {
    fn of(&self, what: &str) -> usize {
        self.visitors.iter().filter(|visitor| visitor.what == what).count()
    }

    fn start(
        &mut self,
        what: &'static str,
        places: BTreeSet<Place>,
        command: &mut Command,
        events: Vec<String>,
    ) {
        let said = self.folder.join(format!("{what}-{}", self.n_come));
        let file = fs::File::create(&said).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let tool = Running::start(command);
        self.n_come += 1;
        self.visitors.push(Visitor { what, places, tool, said, events });
    }

    /// On entries: what Debian builds takes no other places.
    fn bpftrace(&mut self, chance: &mut Chance) {
        let entries: Vec<Place> =
            self.for_uprobes.iter().filter(|place| place.offset == 0).cloned().collect();
        if entries.is_empty() {
            return;
        }
        let places = chosen(&entries, chance);
        let points: Vec<String> = places
            .iter()
            .map(|place| format!("uprobe:{}:{}", self.program.display(), place.function))
            .collect();
        let script = format!(
            "{} {{ @ = count(); }} interval:ms:{} {{ exit(); }}",
            points.join(","),
            50 + chance.below(500)
        );
        let mut command = Command::new("bpftrace");
        command.args(["-p", &self.pid.to_string(), "-e", &script]);
        self.start("bpftrace", places, &mut command, Vec::new());
    }

    fn perf(&mut self, chance: &mut Chance) {
        let places = chosen(&self.for_uprobes, chance);
        let mut events = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let name = format!("n{}_{index}", self.n_come);
            let point = format!("{name}={}+{}", place.function, place.offset);
            let mut command = Command::new("perf");
            let defined = command.args(["probe", "-q", "-x"]).arg(&self.program).arg(point).output().unwrap();
            assert!(defined.status.success(), "{place:?}: {}", String::from_utf8_lossy(&defined.stderr));
            events.push(format!("probe_functions:{name}"));
        }
        let time = format!("{:.2}", 0.05 + chance.below(50) as f64 / 100.0);
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", &events.join(","), "-p", &self.pid.to_string()]);
        command.args(["--", "sleep", &time]);
        self.start("perf", places, &mut command, events);
    }

    fn gdb(&mut self, chance: &mut Chance) {
        let places = chosen(&self.for_gdb, chance);
        let mut command = Command::new("gdb");
        command.args(["-q", "-batch", "-p", &self.pid.to_string(), "-ex", &format!("break *{FOR_GDB}")]);
        for Place { function, offset } in &places {
            command.args(["-ex", &format!("break *({function}+{offset})")]);
        }
        for _ in 0..=chance.below(4) {
            command.args(["-ex", "continue"]);
        }
        command.args(["-ex", "delete", "-ex", "detach"]);
        self.start("gdb", places, &mut command, Vec::new());
    }

    /// Those who have gone must have ended well.
    fn reap(&mut self) {
        let (mut gone, mut stay) = (Vec::new(), Vec::new());
        for mut visitor in self.visitors.drain(..) {
            match visitor.tool.0.try_wait().unwrap() {
                Some(status) => gone.push((visitor, status)),
                None => stay.push(visitor),
            }
        }
        self.visitors = stay;
        for (visitor, status) in gone {
            let said = fs::read_to_string(&visitor.said).unwrap();
            assert!(status.success(), "{} on {:?}: {said}", visitor.what, visitor.places);
            let n_seen: u64 = match visitor.what {
                "gdb" => said.matches("hit Breakpoint").count() as u64,
                "perf" => said.lines().filter_map(|line| line.split(',').next()?.parse::<u64>().ok()).sum(),
                _ => said.lines().find_map(|line| line.strip_prefix("@: ")?.parse().ok()).unwrap_or_default(),
            };
            self.n_seen += u64::from(n_seen > 0);
            for event in &visitor.events {
                run(Command::new("perf").args(["probe", "-q", "-d", event]));
            }
        }
    }

    fn nopal_comes(&mut self, chance: &mut Chance) {
        let pattern = *chance.one_of(&["f_*", "f_[c-h]*", "f_s*", "f_m*", "f_length"]);
        let file = self.program.display();
        let script = match chance.below(3) {
            0 => format!("uprobe:{file}:{pattern} {{ @in = count(); }}"),
            1 => format!("uretprobe:{file}:{pattern} {{ @out = count(); }}"),
            _ => format!(
                "uprobe:{file}:{pattern} {{ @in = count(); }} uretprobe:{file}:{pattern} {{ @out = count(); }}"
            ),
        };
        self.nopal = Some(attach(self.pid, &script, &self.folder.join("nopal")));
    }

    fn step(&mut self, chance: &mut Chance) {
        self.reap();
        match chance.below(8) {
            // Where gdb is, nobody else can come in, or leave; and the kernel door's breakpoints may be where gdb's are.
            0 | 1 if self.nopal.is_none() && self.of("gdb") == 0 => self.nopal_comes(chance),
            2 if self.nopal.is_some() && self.of("gdb") == 0 => stop(self.nopal.take().unwrap()),
            3 | 4 if self.of("bpftrace") < 2 => self.bpftrace(chance),
            5 if self.of("perf") < 2 => self.perf(chance),
            6 if self.of("gdb") == 0 => self.gdb(chance),
            _ => std::thread::sleep(Duration::from_millis(chance.below(150))),
        }
    }
}

#[test]
fn bpftrace_perf_and_gdb_come_and_go_by_chance() {
    for round in 0..rounds(2) {
        let (target, program) = busy_program(&format!("function_neighbours_{round}"), &[]);
        let mut chance = Chance::new("neighbours");
        let all = places(&program);
        assert!(all.len() > 60, "{all:?}");
        let (for_gdb, for_uprobes) = all.into_iter().partition(|_| chance.below(3) == 0);
        let mut visit = Visit {
            pid: target.pid(),
            folder: scratch("function_neighbours_said"),
            for_gdb,
            for_uprobes,
            program,
            nopal: None,
            visitors: Vec::new(),
            n_come: 0,
            n_seen: 0,
        };
        for _ in 0..N_STEPS {
            visit.step(&mut chance);
        }
        wait_until("all visitors have gone", 120, || {
            visit.reap();
            visit.visitors.is_empty()
        });
        visit.nopal.take().into_iter().for_each(stop);
        println!("{} came, {} of them saw somebody", visit.n_come, visit.n_seen);
        assert!(visit.n_seen > visit.n_come / 4, "{} of {} saw somebody", visit.n_seen, visit.n_come);
        code_is_back(target.pid(), "many visitors");
        end(target);
    }
}
