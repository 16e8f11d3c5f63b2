//! `sluicegate schema`: the JSON Schema of the configuration.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use crate::config;

const EXAMPLES: &str = include_str!("help/schema.txt");

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct SchemaArgs {}

pub(super) fn schema(_: &SchemaArgs) -> ExitCode {
    let written = io::stdout()
        .lock()
        .write_all(config::json_schema().as_bytes());
    super::finish(written, ExitCode::SUCCESS)
}
