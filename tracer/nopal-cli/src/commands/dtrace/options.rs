//! The options of `dtrace(1)`: single letters with attached or separate values, in any order, objects in between.

use nopal_provider::generate::{Machine, ObjectOptions};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const USAGE: &str = "\
Usage: dtrace [-h | -G] [-C [-I PATH] [-D NAME[=VALUE]]] [-k] -s FILE.d [-o FILE] [OBJECT...]
       dtrace --rust -s FILE.d [-o FILE]
       dtrace --tapset [--process PATH] -s FILE.d [-o FILE]
       dtrace --wrap PREFIX [--guard MACRO] [--header NAME] -s FILE.d [-o FILE]";

const HELP: &str = "
  -h               write a C header with a macro for each probe (FILE.h)
  -G               write an object with the probes' semaphores and descriptions (FILE.o)
  -s FILE.d        the provider file
  -o FILE          the name of what is written; `-` is standard output
  -C               run the C preprocessor ($CPP, default cpp) over FILE.d first
  -I PATH, -D DEF  options for the preprocessor; -D STAP_SDT_V1 and V2 also decide on the semaphores of -G
  -k               keep intermediate files and print their names
  --rust           write Rust for the `nopal` crate, to be included in a module (FILE.rs)
  --tapset         write a SystemTap tapset that names the arguments (FILE.stp)
  --process PATH   the program or library the tapset is for; default: the provider's name
  --wrap PREFIX    write macros that test whether a probe is on before they fire it (trace.h)
  --guard MACRO    the macro that builds the probes in; default USE_USDT
  --header NAME    the generated header the wrappers include; default FILE.h

Objects on the command line, -32, -64, -fpic, -fPIC and -x OPTION are accepted and change nothing. -G writes for the
machine that $CC compiles for: x86-64 or arm64.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Header,
    Object,
    Rust,
    Tapset,
    Wrap(String),
}

#[derive(Debug)]
pub(super) struct Options {
    /// At least one; several only without `-o`.
    pub modes: Vec<Mode>,
    pub input: PathBuf,
    pub output: Option<PathBuf>,
    pub is_preprocessed: bool,
    /// `-I` and `-D` with their values, attached.
    pub preprocessor_options: Vec<OsString>,
    pub is_keeping: bool,
    pub process: Option<String>,
    pub guard: String,
    pub header: Option<String>,
}

/// The message is what is wrong, with the usage.
pub(super) fn parse(args: Vec<OsString>) -> Result<Options, String> {
    let mut modes: Vec<Mode> = Vec::new();
    let mut input = None;
    let mut output = None;
    let mut is_preprocessed = false;
    let mut preprocessor_options = Vec::new();
    let mut is_keeping = false;
    let (mut process, mut guard, mut header) = (None, None, None);
    if args.is_empty() {
        return Err(USAGE.to_owned());
    }
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        let mut next =
            |option: &str| args.next().ok_or_else(|| format!("dtrace: {option} needs a value\n{USAGE}"));
        let mut word = |option: &str, attached: Option<&str>| match attached {
            Some(attached) => Ok(attached.to_owned()),
            None => next(option).map(|v| v.to_string_lossy().into_owned()),
        };
        let mut add = |mode: Mode| {
            if !modes.contains(&mode) {
                modes.push(mode);
            }
        };
        if let Some(long) = text.strip_prefix("--") {
            let (name, attached) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            match name {
                "help" => return Err(format!("{USAGE}\n{HELP}")),
                // Which of its two parsers systemtap's program uses, and whether it lists the types it met.
                "types" | "no-pyparsing" => {}
                "rust" => add(Mode::Rust),
                "tapset" => add(Mode::Tapset),
                "wrap" => {
                    let prefix = word("--wrap", attached)?;
                    add(Mode::Wrap(if prefix.ends_with('_') { prefix } else { prefix + "_" }));
                }
                "process" => process = Some(word("--process", attached)?),
                "guard" => guard = Some(word("--guard", attached)?),
                "header" => header = Some(word("--header", attached)?),
                _ => return Err(format!("dtrace: unknown option {text}\n{USAGE}")),
            }
            continue;
        }
        let Some(short) = text.strip_prefix('-').filter(|s| !s.is_empty()) else {
            // An object of the program. It need not exist yet and is never touched.
            continue;
        };
        // The value behind a letter, in the same word or the next; paths need not be UTF-8.
        let mut value = || match arg.as_bytes().get(2..).filter(|v| !v.is_empty()) {
            Some(attached) => Ok(OsStr::from_bytes(attached).to_owned()),
            None => next(&text),
        };
        let (letter, rest) = short.split_at(short.chars().next().map_or(0, char::len_utf8));
        match (letter, rest) {
            ("h", "") => add(Mode::Header),
            ("G", "") => add(Mode::Object),
            ("C", "") => is_preprocessed = true,
            ("k", "") => is_keeping = true,
            ("s", _) => {
                let file = PathBuf::from(value()?);
                if input.replace(file).is_some() {
                    return Err(format!("dtrace: more than one -s\n{USAGE}"));
                }
            }
            ("o", _) => output = Some(PathBuf::from(value()?)),
            ("I" | "D", _) => {
                let mut option = OsString::from(format!("-{letter}"));
                option.push(value()?);
                preprocessor_options.push(option);
            }
            ("x", _) => {
                value()?;
            }
            ("6", "4") | ("3", "2") | ("f", "pic" | "PIC" | "pie" | "PIE" | "no-pic" | "no-pie") => {}
            _ => return Err(format!("dtrace: unknown option {text}\n{USAGE}")),
        }
    }
    let Some(input) = input else {
        return Err(format!("dtrace: no -s FILE.d\n{USAGE}"));
    };
    if modes.is_empty() {
        return Err(format!("dtrace: neither -h nor -G\n{USAGE}"));
    }
    if modes.len() > 1 && output.is_some() {
        return Err(format!("dtrace: -o names one file, but several are to be written\n{USAGE}"));
    }
    let names = modes.iter().filter_map(|m| match m {
        Mode::Wrap(prefix) => Some(prefix.as_str()),
        Mode::Header | Mode::Object | Mode::Rust | Mode::Tapset => None,
    });
    for name in names.chain(guard.as_deref()) {
        if !is_identifier(name) {
            return Err(format!("dtrace: `{name}` cannot be part of a macro's name\n{USAGE}"));
        }
    }
    let guard = guard.unwrap_or_else(|| "USE_USDT".to_owned());
    Ok(Options {
        modes,
        input,
        output,
        is_preprocessed,
        preprocessor_options,
        is_keeping,
        process,
        guard,
        header,
    })
}

fn is_identifier(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Options {
    /// The machine and the kind of semaphores, from `-D`, `$CC` and `$CFLAGS`.
    pub(super) fn object_options(&self) -> Result<ObjectOptions, String> {
        let flags = std::env::var("CFLAGS").unwrap_or_default();
        let compiler = std::env::var("CC").unwrap_or_default();
        let is_defined = |name: &str| {
            let option = format!("-D{name}");
            let is_it = |o: &str| o == option || o.strip_prefix(&option).is_some_and(|r| r.starts_with('='));
            self.preprocessor_options.iter().any(|o| is_it(&o.to_string_lossy()))
                || flags.split_ascii_whitespace().any(is_it)
        };
        Ok(ObjectOptions {
            machine: machine(&compiler, &flags)?,
            is_exported: is_defined("STAP_SDT_V2"),
            is_v1: is_defined("STAP_SDT_V1"),
        })
    }
}

/// The machine a compiler makes code for, as far as its name and flags tell: `aarch64-linux-gnu-gcc`, `clang
/// --target=aarch64-linux-gnu`. Without a word about it, the machine this program runs on.
pub(super) fn machine(compiler: &str, flags: &str) -> Result<Machine, String> {
    let words: Vec<&str> = compiler.split_ascii_whitespace().chain(flags.split_ascii_whitespace()).collect();
    let mut machine = host()?;
    for (i, word) in words.iter().enumerate() {
        let triple = match *word {
            "-m32" | "-mx32" => return Err(unsupported(word)),
            "-target" | "--target" => words.get(i + 1).copied().unwrap_or_default(),
            _ => match word.strip_prefix("--target=") {
                Some(triple) => triple,
                None if !word.starts_with('-') => word.rsplit('/').next().unwrap_or_default(),
                None => continue,
            },
        };
        match triple.split('-').next().unwrap_or_default() {
            "x86_64" | "amd64" if triple.contains('-') => machine = Machine::X86_64,
            "aarch64" | "arm64" if triple.contains('-') => machine = Machine::Arm64,
            "i386" | "i486" | "i586" | "i686" | "arm" | "armv7" | "armv7a" | "armv7l" | "armeb"
            | "aarch64_be" | "powerpc" | "powerpc64" | "powerpc64le" | "ppc64le" | "s390x" | "riscv64"
            | "mips" | "mipsel" | "mips64" | "mips64el" | "loongarch64" | "sparc64" | "alpha" | "hppa"
            | "ia64" | "m68k" | "sh4"
                if triple.contains('-') =>
            {
                return Err(unsupported(triple));
            }
            _ => {}
        }
    }
    Ok(machine)
}

fn unsupported(what: &str) -> String {
    format!("dtrace: cannot write an object for `{what}`; only for x86-64 and arm64")
}

fn host() -> Result<Machine, String> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(Machine::X86_64),
        "aarch64" => Ok(Machine::Arm64),
        other => Err(unsupported(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_the_compilers() {
        let table = [
            ("", "", Some(host().unwrap())),
            ("gcc", "-O2 -g", Some(host().unwrap())),
            ("musl-gcc", "", Some(host().unwrap())),
            ("ccache gcc-12", "-march=native", Some(host().unwrap())),
            ("/usr/bin/aarch64-linux-gnu-gcc", "", Some(Machine::Arm64)),
            ("ccache aarch64-linux-gnu-gcc -O2", "", Some(Machine::Arm64)),
            ("clang", "--target=aarch64-linux-musl", Some(Machine::Arm64)),
            ("clang -target x86_64-linux-gnu", "", Some(Machine::X86_64)),
            ("x86_64-linux-gnu-gcc", "", Some(Machine::X86_64)),
            ("arm-linux-gnueabihf-gcc", "", None),
            ("gcc -m32", "", None),
            ("gcc", "-m32", None),
        ];
        for (compiler, flags, expected) in table {
            assert_eq!(machine(compiler, flags).ok(), expected, "{compiler} {flags}");
        }
    }
}
