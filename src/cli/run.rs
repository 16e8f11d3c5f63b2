//! `sluicegate run`: finds the configuration, and serves.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::text_file::is_stdin;
use super::{USAGE, WRONG};
use crate::app::{self, StartupError};
use crate::config::{Audience, Report, Source};
use crate::net::listener::passed::PassedSockets;
use crate::telemetry::logging;

/// The configuration that runs if none is found.
const EXAMPLE: &str = include_str!("../../config.example.yaml");
const EXAMPLE_NAME: &str = "config.example.yaml";
/// Where a configuration is looked for, after `$SLUICEGATE_CONFIG`.
const PLACES: [&str; 2] = ["sluicegate.yaml", "/etc/sluicegate/sluicegate.yaml"];
/// The default address of the admin listener.
pub(super) const ADMIN: &str = "127.0.0.1:9980";
/// How long the last lines of the log may take to be written.
const LAST_LINES: Duration = Duration::from_secs(2);
/// Names the configuration.
const VARIABLE: &str = "SLUICEGATE_CONFIG";

const EXAMPLES: &str = include_str!("help/run.txt");

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct RunArgs {
    /// The configuration; `-` is stdin, read once [default: $SLUICEGATE_CONFIG, ./sluicegate.yaml,
    /// /etc/sluicegate/sluicegate.yaml, or the built-in example]
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["upstream", "limit", "key", "listen", "admin"])]
    config: Option<PathBuf>,
    /// Forward everything to this URL; no configuration is read
    #[arg(long, value_name = "URL", requires = "limit")]
    upstream: Option<String>,
    /// The limit of every key, such as 100/1m
    #[arg(long, value_name = "QUOTA", requires = "upstream")]
    limit: Option<String>,
    /// The key of the limit: client_ip, header:NAME, cookie:NAME, ...
    #[arg(
        long,
        value_name = "PART",
        default_value = "client_ip",
        requires = "upstream"
    )]
    key: String,
    /// Where clients connect
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "[::]:8080",
        requires = "upstream"
    )]
    listen: String,
    /// Where /metrics, /livez and /readyz are
    #[arg(
        long,
        value_name = "ADDR",
        default_value = ADMIN,
        requires = "upstream"
    )]
    admin: String,
}

pub(super) fn run(options: RunArgs) -> ExitCode {
    // First: until then no other file is open.
    let (passed, unusable) = PassedSockets::from_environment();
    let log = match logging::init() {
        Ok(log) => log,
        Err(error) => {
            super::tell(error);
            return ExitCode::from(USAGE);
        }
    };
    let source = match options.source() {
        Ok(source) => source,
        Err(message) => {
            super::tell(message);
            return ExitCode::from(WRONG);
        }
    };
    for error in unusable {
        tracing::warn!("ignoring a socket from the service manager: {error}");
    }
    let ended = app::run(source, &log, passed);
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartupError::Config(report)) => {
            log.push(format!("{}\n", report.render(super::colour(), Audience::Others)).as_bytes());
            ExitCode::from(WRONG)
        }
        Err(failure) => {
            tracing::error!("{failure}");
            ExitCode::from(WRONG)
        }
    };
    log.flush(LAST_LINES);
    code
}

impl RunArgs {
    /// # Errors
    /// An option that cannot be used: a report for people.
    fn source(self) -> Result<Source, String> {
        match (&self.upstream, &self.limit) {
            (Some(upstream), Some(limit)) => self.in_place(upstream, limit),
            _ => find_or_example(self.config)
                .map_err(|report| report.render(super::colour(), Audience::Others)),
        }
    }

    /// The configuration that the options amount to. JSON is YAML.
    fn in_place(&self, upstream: &str, limit: &str) -> Result<Source, String> {
        let configuration = serde_json::json!({
            "listeners": [{ "address": self.listen }],
            "admin": { "address": self.admin },
            "routes": [{
                "upstream": upstream,
                // Or else small quotas have a warning that no option could heed.
                "limits": [{ "key": self.key, "quota": limit, "on_full": "strict" }],
            }],
        });
        let source = Source::Text {
            name: "command line".to_owned(),
            text: format!("{configuration:#}"),
        };
        match source.load() {
            Ok(_) => Ok(source),
            Err(report) => Err(by_option(&report)),
        }
    }
}

/// The options by the paths of what they configure.
const OPTIONS: [(&str, &str); 5] = [
    ("admin", "--admin"),
    ("listeners", "--listen"),
    ("routes[0].limits[0].key", "--key"),
    ("routes[0].limits[0]", "--limit"),
    ("routes[0].upstream", "--upstream"),
];

/// The problems of options, with the options as their places.
fn by_option(report: &Report) -> String {
    let problems = report.problems.iter().map(|problem| {
        let option = OPTIONS
            .iter()
            .find(|(path, _)| problem.path.starts_with(path));
        let option = option.map_or("command line", |(_, option)| option);
        let help = problem.help.as_ref();
        let help = help.map_or_else(String::new, |help| format!("\n  = help: {help}"));
        format!("error: {}\n --> {option}{help}", problem.message)
    });
    problems.collect::<Vec<_>>().join("\n")
}

/// The given file, or stdin if that is `-`, else the first default path that exists, or of which that
/// can't be known.
///
/// # Errors
/// Reports that there is none, and where it was looked for, or that stdin can't be read.
pub(super) fn find(given: Option<PathBuf>) -> Result<Source, Report> {
    if given.as_deref().is_some_and(is_stdin) {
        return Source::read("stdin", io::stdin().lock());
    }
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let found = given.or(variable.map(PathBuf::from)).or_else(|| {
        let mut places = PLACES.into_iter().map(PathBuf::from);
        places.find(|place| !is_missing(place))
    });
    found.map(Source::File).ok_or_else(|| {
        let help = "name one with `--config FILE`, or set `$SLUICEGATE_CONFIG`".to_owned();
        Report::of_file(PLACES[0], absence(), Some(help))
    })
}

fn is_missing(place: &Path) -> bool {
    let found = place.symlink_metadata();
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Why no configuration was found.
pub(super) fn absence() -> String {
    format!(
        "no configuration found: `${VARIABLE}` isn't set, and neither ./{} nor {} exists",
        PLACES[0], PLACES[1]
    )
}

/// The configuration that [`find`] finds, else the built-in example, with a warning.
///
/// # Errors
/// Stdin can't be read.
fn find_or_example(given: Option<PathBuf>) -> Result<Source, Report> {
    let is_given = given.is_some();
    find(given).or_else(|report| {
        if is_given {
            return Err(report);
        }
        tracing::warn!(
            "{}: this is the built-in example (config.example.yaml), which listens on 127.0.0.1 \
             only; write your limits into {}, or name a file with --config",
            absence(),
            PLACES[0]
        );
        Ok(Source::Text {
            name: EXAMPLE_NAME.to_owned(),
            text: EXAMPLE.to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::clock::Timestamp;
    use crate::config::lint;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
    }

    /// The codes of the warnings with these options.
    fn warnings(options: &[&str]) -> Vec<&'static str> {
        let options = ["run"].iter().chain(options);
        let source = Cli::parse_from(options).run.source().expect("it is sound");
        let report = lint(source.load().expect("it is sound"), Timestamp::EPOCH);
        let problems = report.problems.iter();
        problems.map(|problem| problem.code.as_str()).collect()
    }

    #[test]
    fn options_warn_of_nothing_that_nobody_wrote() {
        for limit in [
            "1/1m", "5/1m", "19/1m", "20/1m", "100/1m", "5/1s", "5000/1h",
        ] {
            let options = ["--upstream", "http://127.0.0.1:3000", "--limit", limit];
            assert!(warnings(&options).is_empty(), "{limit}");
            let forgeable = [&options[..], &["--key", "header:x-api-key"]].concat();
            assert_eq!(warnings(&forgeable), ["forgeable-key"], "{limit}");
            let shared = [&options[..], &["--key", "constant"]].concat();
            assert!(warnings(&shared).is_empty(), "{limit}");
        }
    }

    #[test]
    fn the_examples_of_help_warn_of_nothing() {
        let examples = EXAMPLES.lines().filter(|line| line.contains("--upstream"));
        let options = examples.map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>());
        let options: Vec<_> = options.collect();
        assert!(!options.is_empty());
        for options in options {
            assert!(warnings(&options).is_empty(), "{options:?}");
        }
    }
}
