//! `sluicegate completions` and `sluicegate man`: what packages install beside the binary, made from
//! the command line's own definition.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Arguments;

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  sluicegate completions bash > /etc/bash_completion.d/sluicegate"
)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sluicegate man ~/.local/share/man/man1")]
pub(super) struct ManArgs {
    /// The directory, which is made if it doesn't exist
    directory: PathBuf,
}

pub(super) fn completions(options: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(options.shell, &mut command, "sluicegate", &mut script);
    super::finish(io::stdout().write_all(&script), ExitCode::SUCCESS)
}

pub(super) fn man(ManArgs { directory }: &ManArgs) -> ExitCode {
    let made = fs::create_dir_all(directory);
    let written = made.and_then(|()| clap_mangen::generate_to(Arguments::command(), directory));
    super::finish(written, ExitCode::SUCCESS)
}
