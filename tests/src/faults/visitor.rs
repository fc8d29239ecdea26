//! Other tools, which come to a program and leave it by themselves.

use super::harm::{Harm, Place};
use super::target::{Kind, Target};
use crate::nopal;
use std::path::Path;
use std::process::Command;

/// Its command, if the harm is a tool that comes; `n` tells it from others of the round.
pub(crate) fn command(harm: &Harm, target: &Target, dir: &Path, seed: u64, n: usize) -> Option<Command> {
    let kind = &target.kind;
    let pid = target.pid.to_string();
    let mut command = Command::new("timeout");
    command.current_dir(dir);
    match harm {
        Harm::Bpftrace { place, time } => {
            let script = format!(
                "{} {{ @ = count(); }} interval:ms:{} {{ exit(); }}",
                bpftrace_point(kind, *place),
                time.as_millis()
            );
            command.args(["-s", "INT", "100", "bpftrace", "-p", &pid, "-e", &script]);
        }
        Harm::Gdb { place } => {
            let point = gdb_point(target, *place)?;
            // It waits for a hit; told to stop, it leaves all the same.
            command.args(["-s", "INT", "20", "gdb", "-q", "-nx", "-batch", "-p", &pid]);
            for line in [
                "set debuginfod enabled off",
                "set auto-load off",
                "handle all nostop noprint pass",
                "handle SIGINT stop nopass",
                &format!("break {point}"),
                "continue",
                "delete",
                "detach",
            ] {
                command.args(["-ex", line]);
            }
        }
        Harm::Perf { place, time } => {
            // Events of the kernel belong to the machine: the name is the visitor's own.
            let event = format!("nopal{seed}/n{n}");
            let file = kind.site(*place).0.display().to_string();
            let offset = kind.offset(*place);
            let events = "/sys/kernel/tracing/uprobe_events";
            let script = format!(
                "echo 'p:{event} {file}:{offset:#x}' >>{events} && \
                 perf record -q -o perf{n}.data -e {} -p {pid} -- sleep {}; said=$?; \
                 echo '-:{event}' >>{events}; exit $said",
                event.replace('/', ":"),
                time.as_secs_f64()
            );
            command.args(["-s", "INT", "100", "sh", "-c", &script]);
        }
        Harm::Strace { time } => {
            // Now and then it does not leave a program with vfork by itself, with or without nopal.
            command.args(["-s", "INT", "-k", "3", &time.as_secs_f64().to_string()]);
            command.args(["strace", "-f", "-qq", "-o", "/dev/null", "-p", &pid]);
        }
        Harm::Detach => {
            command.args(["-s", "INT", "100"]).arg(nopal()).args(["detach", "-p", &pid]);
        }
        _ => return None,
    }
    Some(command)
}

fn bpftrace_point(kind: &Kind, place: Place) -> String {
    let (file, name) = kind.site(place);
    let file = file.display();
    match (kind, place) {
        (Kind::Go, _) => format!("uprobe:{file}:\"{name}\""),
        (_, Place::Probe) => format!("usdt:{file}:{name}"),
        (_, Place::Next | Place::Beside | Place::Call) => format!("uprobe:{file}:{name}"),
    }
}

/// None if the program is not there any more.
fn gdb_point(target: &Target, place: Place) -> Option<String> {
    let (file, name) = target.kind.site(place);
    Some(match place {
        Place::Probe => format!("-probe-stap {name}"),
        Place::Next => {
            let maps = nopal_user::maps::Maps::read(target.pid as i32).ok()?;
            let first = maps.ranges.iter().find(|range| range.path == file && range.offset == 0)?;
            format!("*{:#x}", first.start + target.kind.address(place))
        }
        Place::Beside => name.to_owned(),
        Place::Call => format!("*'{name}'"),
    })
}
