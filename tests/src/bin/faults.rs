//! `./x faults [SECONDS] [--seed N] [--once] [--rounds N] [--lanes N]`: faults at random instants; exit 1 if one of them did harm.

use nopal_tests::faults::{self, Options};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

const USAGE: &str = "usage: faults [SECONDS] [--seed N] [--once] [--rounds N] [--lanes N] [-v]
  SECONDS   how long to go on [60]
  --seed N  the seed of the first round, as it was printed for one that failed
  --once    one round only
  --rounds N  so many rounds, whose seeds follow each other, however long they take
  --lanes N rounds side by side [8]
  -v        what each round does";

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Err(error) = own_mounts() {
        eprintln!("faults: needs root, for disks that are full: {error}");
        return ExitCode::from(2);
    }
    // Tracers are ended by it; a shell has those it starts in the background ignore it, and so would they.
    // SAFETY: plain numbers, and no other thread as yet.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    println!("faults: the first seed is {}", options.seed);
    let figures = faults::run(&options);
    println!("{figures}");
    if figures.n_failures > 0 {
        println!("what failed is in {}", faults::failures().display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn options() -> Option<Options> {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_secs());
    let mut options = Options {
        time: Duration::from_secs(60),
        seed: now * 1000,
        n_rounds: None,
        n_lanes: 8,
        is_verbose: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => options.seed = words.next()?.parse().ok()?,
            "--lanes" => options.n_lanes = words.next()?.parse().ok()?,
            "--once" => options.n_rounds = Some(1),
            "--rounds" => options.n_rounds = Some(words.next()?.parse().ok()?),
            "-v" => options.is_verbose = true,
            seconds => options.time = Duration::from_secs(seconds.parse().ok()?),
        }
    }
    Some(options)
}

/// What is mounted from here on is seen by this process and its children alone, and goes with them.
fn own_mounts() -> std::io::Result<()> {
    // SAFETY: plain numbers; this process has one thread as yet.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let (none, root) = (c"none", c"/");
    // SAFETY: the strings live as long as the call; the others may be null for this kind of mount.
    let done = unsafe {
        libc::mount(
            none.as_ptr(),
            root.as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        )
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
