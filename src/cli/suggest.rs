//! `sluicegate suggest`: limits for the requests of an access log.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use traffic::{DEFAULT_KEY, Suggestion, Wishes};

use super::log_input::LogArgs;
use super::replay::print_line;
use super::{Failure, run};
use crate::replay::suggest::{self, SuggestError};

const EXAMPLES: &str = include_str!("help/suggest.txt");

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct SuggestArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Propose policies for the routes of this configuration that have no limits
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Count requests by this part: client_ip, header:NAME, cookie:NAME, ...
    #[arg(long, value_name = "PART", default_value = DEFAULT_KEY)]
    key: String,
    /// Percentage of clients that should never be limited
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = percentile)]
    percentile: f64,
    /// How much room these clients get beyond their busiest minute
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = headroom)]
    headroom: f64,
    /// Print the configuration with the proposed limits, or with --config the policies to add to it,
    /// instead of the explanation
    #[arg(long, conflicts_with = "json")]
    yaml: bool,
    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
}

fn percentile(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| *number > 0.0 && *number <= 100.0);
    number.ok_or_else(|| "expected a number above 0 and up to 100, such as 99".to_owned())
}

fn headroom(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (1.0..=100.0).contains(number));
    number.ok_or_else(|| "expected a number from 1 to 100, such as 1.5".to_owned())
}

impl SuggestArgs {
    /// # Errors
    /// The options, the configuration or the log can't be used.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let (reading, log) = self.log.ready(false).map_err(Failure::wrong_usage)?;
        let config = self.config.clone();
        let config = config.map(|config| run::find(Some(config))?.load());
        let config = config.transpose()?;
        let wishes = Wishes {
            key: self.key.clone(),
            percentile: self.percentile,
            headroom: self.headroom,
        };
        let suggested = suggest::suggest(wishes, config.as_ref(), &reading, log);
        let suggestion = suggested.map_err(|error| self.failure(error))?;
        let unparsable = suggestion.unparsable_lines();
        let code = self.log.judge(suggestion.requests, unparsable);
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
        let mut out = BufWriter::new(io::stdout().lock());
        let written = self.print(&suggestion, &mut out);
        Ok(super::finish(written.and_then(|()| out.flush()), code))
    }

    fn failure(&self, error: SuggestError) -> Failure {
        match error {
            SuggestError::Key(report) => {
                let problem = report.problems.first();
                let why = problem.map_or_else(String::new, |one| one.message.clone());
                Failure::wrong_usage(format!("--key {}: {why}", self.key))
            }
            SuggestError::Config(report) => report.into(),
            SuggestError::Log(error) => self.log.failure(&error),
        }
    }

    fn print(&self, suggestion: &Suggestion, out: &mut impl Write) -> io::Result<()> {
        if self.yaml {
            return out.write_all(suggestion.yaml.as_bytes());
        }
        if self.json {
            return print_line(out, suggestion);
        }
        writeln!(
            out,
            "{suggestion}\n--yaml prints a configuration with these limits in shadow"
        )
    }
}
