//! `sluicegate playground`: a page that shows how the algorithms decide about the same requests.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;

use super::{USAGE, WRONG};
use crate::app;
use crate::telemetry::logging;

const EXAMPLES: &str = "\
Examples:
  sluicegate playground
  sluicegate playground --listen 127.0.0.1:0

No configuration is needed or read, and nothing is forwarded. The server has no secrets and asks
for no token. Ctrl-C ends it.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct PlaygroundArgs {
    /// Where the page is; port 0 is a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9981")]
    listen: SocketAddr,
}

pub(super) fn playground(options: &PlaygroundArgs) -> ExitCode {
    if let Err(error) = logging::init() {
        super::tell(error);
        return ExitCode::from(USAGE);
    }
    let mut told = Ok(());
    let ended = app::playground(options.listen, |address| {
        told = writeln!(io::stdout(), "http://{address}/");
    });
    if let Err(failure) = ended {
        super::tell(failure);
        return ExitCode::from(WRONG);
    }
    super::finish(told, ExitCode::SUCCESS)
}
