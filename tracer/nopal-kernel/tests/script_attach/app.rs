//! A program with probes of every kind that a test asks to pass them.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// For each line on its input that is a number n the program passes its probes n times, then answers with a line.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#define NOTE(name, args, sem) \
    ".pushsection .note.stapsdt,\"\",\"note\"\n" \
    ".balign 4\n.4byte 8, 9911f-9910f, 3\n.asciz \"stapsdt\"\n" \
    "9910:\n.8byte 990b, _.stapsdt.base, " sem "\n.asciz \"app\"\n.asciz \"" name "\"\n.asciz \"" args "\"\n" \
    "9911:\n.balign 4\n.popsection\n"
__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
        ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base:\n.space 1\n.size _.stapsdt.base, 1\n.popsection\n");

unsigned short app_sem __attribute__((section(".probes"), used));
static long counter;

__attribute__((noinline)) long twice(long a, const char *text, long c, long d, long e, long f, long g, long h) {
    __asm__ volatile("" : : "r"(text), "r"(c), "r"(d), "r"(e), "r"(f), "r"(g), "r"(h) : "memory");
    return 2 * a;
}

__attribute__((noinline)) static void hit(long n, const char *text, signed char small) {
    long doubled = 0;
    __asm__ volatile("990: nop\n" NOTE("hit", "8@%[n] 8@%[text] -1@%[small] 8@%[doubled] 8@counter(%%rip)", "app_sem")
        : : [n] "r"(n), [text] "r"(text), [small] "m"(small), [doubled] "m"(doubled) : "memory");
    doubled = twice(n, text, 3, 4, 5, 6, 7, 8);
    counter++;
    __asm__ volatile("990: nop\n" NOTE("done", "8@%[doubled] -4@$-7", "0") : : [doubled] "r"(doubled) : "memory");
}

/* A leaf with its variables below the stack pointer, and a 5-byte nop amid. */
__attribute__((noinline)) long leaf(long a) {
    __asm__ volatile("990: .byte 0x0f, 0x1f, 0x44, 0, 0\n" NOTE("leaf", "8@%[a]", "0") : : [a] "r"(a));
    return a + 1;
}

int main(int argc, char **argv) {
    char line[64];
    /* A text in a file that nobody has read yet. */
    char *cold = NULL;
    if (argc > 1) {
        int file = open(argv[1], O_RDONLY);
        cold = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, file, 0);
        madvise(cold, 8192, MADV_RANDOM);
    }
    printf("ready %p %d\n", (void *)&app_sem, app_sem);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == 'c') {
            hit(-1, cold + 4090, -3);
        } else {
            long n = atol(line);
            for (long i = 0; i < n; i++) hit(i, i % 2 ? "odd" : "even and longer", (signed char)-i);
            leaf(n);
        }
        printf("%ld %d\n", counter, app_sem);
        fflush(stdout);
    }
    return 0;
}
"#;

pub(super) struct App {
    pub(super) child: Child,
    pub(super) input: ChildStdin,
    pub(super) output: BufReader<ChildStdout>,
    pub(super) path: PathBuf,
}

pub(super) fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("nopal-script-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Every test has a file of its own: uprobes belong to files.
pub(super) fn app(args: &[&str]) -> App {
    let dir = scratch();
    let (source, path) = (dir.join("app.c"), dir.join("app"));
    std::fs::write(&source, SOURCE).unwrap();
    let built = Command::new("gcc")
        .args(["-O2", "-fno-omit-frame-pointer", "-o"])
        .arg(&path)
        .arg(&source)
        .status()
        .expect("gcc is installed");
    assert!(built.success());
    start(path, args)
}

pub(super) fn start(path: PathBuf, args: &[&str]) -> App {
    let mut child = Command::new(&path)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with("ready"), "{line}");
    App { child, input, output, path }
}

impl App {
    /// A program that another test starts at the moment of the detaching has copies of our descriptors until its exec.
    pub(super) fn wait_for_no_tracer(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.ask("0").1 != 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Counter and semaphore afterwards.
    pub(super) fn ask(&mut self, what: &str) -> (i64, i64) {
        writeln!(self.input, "{what}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut words = line.split_whitespace().map(|word| word.parse().unwrap());
        (words.next().unwrap(), words.next().unwrap())
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(dir) = self.path.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}
