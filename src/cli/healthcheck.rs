//! `sluicegate healthcheck`: if a running proxy takes traffic, as an exit code.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::Failure;
use super::admin_client::AdminClient;
use super::admin_options::find_listener;

#[derive(Args, Debug)]
#[command(after_help = "Needs no token. Exits with 1 unless the proxy answers 200 within 10 s.")]
pub(super) struct HealthcheckArgs {
    /// Ask /livez, which is 200 while the process runs, instead of /readyz, which is 503 while it
    /// starts, drains, or needs a store that doesn't answer
    #[arg(long)]
    live: bool,
    /// The admin listener of the proxy [default: that of the configuration, or
    /// http://127.0.0.1:9980 if none can be read]
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// Trust the certificates in this PEM file, if the proxy has admin.tls [default: the proxy's own
    /// without --admin, or those that the system trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The configuration of the proxy [default: the file that run would use]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl HealthcheckArgs {
    /// # Errors
    /// The proxy doesn't answer, or not with 200.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let (admin, ca) = (self.admin.as_deref(), self.ca.as_deref());
        let client = AdminClient::without_token(find_listener(admin, ca, self.config.as_ref())?);
        let line = client.probe(if self.live { "/livez" } else { "/readyz" })?;
        let written = writeln!(io::stdout(), "{line}");
        Ok(super::finish(written, ExitCode::SUCCESS))
    }
}
