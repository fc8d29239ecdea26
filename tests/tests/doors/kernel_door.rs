//! The kernel door on a program that says what its probes must have said.

use nopal_capture::Capture;
use nopal_capture::record::{RecordKind, RecordLayout, Value};
use nopal_kernel::uprobes::Uprobes;
use nopal_kernel::{KernelDoor, KernelSite};
use nopal_proc::mapped_objects;
use nopal_sdt::operand::Operand;
use nopal_sdt::probe::Site;
use nopal_tests::{root, run, scratch};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn build(folder: &str) -> PathBuf {
    let program = scratch(folder).join("spoken");
    run(Command::new("gcc")
        .args(["-O2", "-I"])
        .arg(root().join("include"))
        .arg(root().join("tests/fixtures/targets/spoken.c"))
        .arg("-o")
        .arg(&program));
    program
}

struct Target {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Target {
    fn start(program: &PathBuf, rounds: u32) -> Target {
        let mut child = Command::new(program)
            .arg(rounds.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut target = Target { child, lines };
        assert_eq!(target.lines.next().unwrap().unwrap(), "ready");
        target
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(self.lines.next().unwrap().unwrap(), "done");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn operand(site: &Site, index: usize) -> Operand {
    site.args[index].operand.clone().unwrap()
}

/// Device and inode.
fn identity(path: &Path) -> (u64, u64) {
    let metadata = std::fs::metadata(path).unwrap();
    (metadata.dev(), metadata.ino())
}

#[test]
fn records_say_what_the_program_said() {
    const ROUNDS: u32 = 200;
    let program = build("kernel_door_values");
    let mut target = Target::start(&program, ROUNDS);
    let pid = target.child.id();
    let object = nopal_sdt::read(&std::fs::read(&program).unwrap()[..]).unwrap();
    let mut door = KernelDoor::open(1 << 20).unwrap();
    let mut sites = Vec::new();
    let mut layouts = Vec::new();
    for (event, name) in ["values", "texts", "places"].into_iter().enumerate() {
        let site = object.probe("spoken", name).unwrap().sites[0].clone();
        let captures: Vec<Capture> = if name == "texts" {
            vec![
                Capture::CString { pointer: operand(&site, 0), max_bytes: 7, is_trusted: false },
                Capture::Bytes {
                    pointer: operand(&site, 1),
                    length: operand(&site, 2),
                    unit_bytes: 1,
                    max_bytes: 8,
                    is_trusted: false,
                },
                Capture::Value { operand: operand(&site, 2) },
            ]
        } else {
            (0..4).map(|i| Capture::Value { operand: operand(&site, i) }).collect()
        };
        layouts.push(RecordLayout::new(&captures, true, true));
        sites.push(KernelSite { event: event as u32, site, captures });
    }
    let mapped = mapped_objects(pid).unwrap().into_iter().find(|o| o.path == program).unwrap();
    let path = mapped.reachable_path().unwrap();
    let (mut sets, refused) = door.prepare(&path, identity(&path), &sites);
    assert!(refused.is_empty(), "{refused:?}");
    let mut uprobes = Uprobes::default();
    for set in &mut sets {
        assert!(door.attach(&mut uprobes, set, &path, pid).unwrap());
    }
    target.go();
    let mut rounds = [0i64; 3];
    let mut last_time = 0;
    door.poll(usize::MAX, |_, record| {
        let RecordKind::Event(event) = record.kind else { panic!("{record:?}") };
        assert_eq!(record.task.unwrap().pid, pid);
        assert!(record.time.unwrap() >= last_time);
        last_time = record.time.unwrap();
        let i = rounds[event as usize];
        rounds[event as usize] += 1;
        let values: Vec<Value> = layouts[event as usize].values(record.payload).map(Result::unwrap).collect();
        match event {
            0 => assert_eq!(
                values,
                [
                    Value::Signed(i64::from(-i as i8)),
                    Value::Unsigned(i as u64 * 3),
                    Value::Signed(-i * 1000),
                    Value::Unsigned((i as u64) << 40)
                ]
            ),
            1 => {
                let (Value::Text(name), Value::Text(key)) = (values[0], values[1]) else {
                    panic!("{values:?}")
                };
                assert_eq!(name.is_null, i % 5 == 4);
                let whole = format!("name-{i}");
                if !name.is_null {
                    assert_eq!(name.bytes, &whole.as_bytes()[..whole.len().min(7)]);
                    assert_eq!(name.is_truncated, whole.len() > 7, "{whole}");
                }
                let length = (i % 11) as usize;
                assert_eq!(key.bytes, &b"0123456789"[..length.min(8)]);
                assert_eq!(key.is_truncated, length > 8);
                assert_eq!(values[2], Value::Signed(length as i64));
            }
            _ => assert_eq!(
                values,
                [
                    Value::Signed([11, 22, 33, 44][(i & 3) as usize]),
                    Value::Signed(77),
                    Value::Signed(5),
                    Value::Signed(-6)
                ]
            ),
        }
    });
    assert_eq!(rounds, [i64::from(ROUNDS); 3]);
    assert_eq!(door.loss().unwrap().iter().map(|l| l.n_lost).sum::<u64>(), 0);
    uprobes.close();
}

#[test]
fn what_finds_no_room_is_counted() {
    const ROUNDS: u32 = 2_000;
    let program = build("kernel_door_loss");
    let mut target = Target::start(&program, ROUNDS);
    let object = nopal_sdt::read(&std::fs::read(&program).unwrap()[..]).unwrap();
    let site = object.probe("spoken", "places").unwrap().sites[0].clone();
    let captures = vec![Capture::Value { operand: operand(&site, 0) }];
    let mut door = KernelDoor::open(4096).unwrap();
    let site = KernelSite { event: 9, site, captures };
    let _link = door.link(&program, identity(&program), &site, target.child.id()).unwrap();
    target.go();
    let received = door.poll(usize::MAX, |_, _| ()) as u64;
    let loss = door.loss().unwrap();
    assert!(received > 0);
    assert_eq!(received + loss.iter().map(|l| l.n_lost).sum::<u64>(), u64::from(ROUNDS));
    for gap in loss.iter().filter(|l| l.n_lost > 0) {
        assert!(gap.first_ns > 0 && gap.first_ns <= gap.last_ns, "{gap:?}");
    }
}
