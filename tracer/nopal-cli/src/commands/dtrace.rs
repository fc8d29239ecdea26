//! `nopal dtrace`, and the same program called as `dtrace`: what systemtap's `dtrace(1)` does for builds, with its
//! options and exit codes. Reads the command line and the file; what is written comes from `nopal-provider`.

mod options;
mod output;
mod preprocess;

use crate::reading::text_file;
use nopal_provider::generate::{self, WrapOptions};
use nopal_provider::{File, Severity};
use options::{Mode, Options};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes a header (-h) or an object (-G) from a `.d` file; also Rust, a tapset, or wrapper macros.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Args {
    /// As for dtrace(1); `nopal dtrace --help` explains them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub args: Vec<OsString>,
}

/// Builds test for zero or not; every failure is 1, as in systemtap's program.
pub(super) fn run(args: Args) -> ExitCode {
    match options::parse(args.args).and_then(|options| generate(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            tell!("{message}");
            ExitCode::from(1)
        }
    }
}

fn generate(options: &Options) -> Result<(), String> {
    let text = match options.is_preprocessed {
        true => preprocess::run(options)?,
        false => text_file(&options.input)
            .map_err(|e| format!("dtrace: cannot read {}: {e}", options.input.display()))?,
    };
    let name = options.input.display().to_string();
    let file = nopal_provider::parse(&name, &text).map_err(|e| e.to_string())?;
    for warning in file.warnings.iter().filter(|w| w.severity > Severity::Note) {
        tell!("{warning}");
    }
    if options.is_preprocessed && options.is_keeping {
        output::keep("cpp", options, "d", text.as_bytes())?;
    }
    // All or nothing: what can fail comes before the first file is written.
    let contents: Vec<Vec<u8>> =
        options.modes.iter().map(|mode| contents(mode, &file, options)).collect::<Result<_, _>>()?;
    for (mode, bytes) in options.modes.iter().zip(contents) {
        output::write(&target(mode, options), &bytes)?;
    }
    Ok(())
}

fn contents(mode: &Mode, file: &File, options: &Options) -> Result<Vec<u8>, String> {
    Ok(match mode {
        Mode::Header => generate::c_header(file).into_bytes(),
        Mode::Object => {
            let object = options.object_options()?;
            if options.is_keeping {
                output::keep("header", options, "h", generate::c_header(file).as_bytes())?;
                output::keep("source", options, "c", generate::c_source(file).as_bytes())?;
            }
            generate::elf_object(file, object)
        }
        Mode::Rust => generate::rust_module(file).into_bytes(),
        Mode::Tapset => generate::tapset(file, options.process.as_deref()).into_bytes(),
        Mode::Wrap(prefix) => {
            let header = options.header.clone().unwrap_or_else(|| file_name(&options.input, "h"));
            generate::wrappers(file, WrapOptions { prefix, guard: &options.guard, header: &header })
                .into_bytes()
        }
    })
}

/// What `-o` says, or the input's name with another ending in the current folder.
fn target(mode: &Mode, options: &Options) -> PathBuf {
    if let Some(output) = &options.output {
        return output.clone();
    }
    PathBuf::from(match mode {
        Mode::Header => file_name(&options.input, "h"),
        Mode::Object => file_name(&options.input, "o"),
        Mode::Rust => file_name(&options.input, "rs"),
        Mode::Tapset => file_name(&options.input, "stp"),
        Mode::Wrap(_) => "trace.h".to_owned(),
    })
}

fn file_name(input: &Path, extension: &str) -> String {
    let name = input.with_extension(extension);
    name.file_name().map_or_else(|| format!("dtrace.{extension}"), |n| n.to_string_lossy().into_owned())
}
