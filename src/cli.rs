//! The command line: which command, with which options. Results go to stdout and everything else to
//! stderr; exit codes are 0, 1 (found wrong) and 2 (wrong usage).

mod admin_client;
mod admin_options;
mod admin_tls;
mod check;
mod client;
mod clap_files;
mod explain;
mod healthcheck;
mod keys;
mod log_input;
mod playground;
mod progress;
mod replay;
mod run;
mod schema;
mod status;
mod suggest;
mod table;
mod text_file;
mod top;

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use self::admin_client::CallError;
use crate::config::{Audience, Colour, Report};
use crate::telemetry::terminal::has_colours;

/// A rate-limiting reverse proxy.
#[derive(Debug, Parser)]
#[command(version, about, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve (the default command)
    Run(run::RunArgs),
    /// Find what is wrong with configuration files
    Check(check::CheckArgs),
    /// Say which route a request takes, which keys its limits derive, and what would be answered
    Explain(explain::ExplainArgs),
    /// Run an access log through the limits, on its own time: which requests would have been
    /// limited, and by what
    Replay(replay::ReplayArgs),
    /// Propose limits for the requests of an access log: a quota and a burst for each route, and
    /// whom they would have limited
    Suggest(suggest::SuggestArgs),
    /// Open a page that shows how the algorithms decide about the same requests
    Playground(playground::PlaygroundArgs),
    /// Ask a running proxy how it is
    Status(status::StatusArgs),
    /// Look at one key of a policy of a running proxy, reset it, grant it units, or ban it
    Keys(keys::KeysArgs),
    /// Make keys of clients, and digests of keys
    Client(client::ClientArgs),
    /// Show which keys of a running proxy are limited most, ask most, or charge most
    Top(top::TopArgs),
    /// Ask a running proxy if it takes traffic, as container engines and scripts do
    Healthcheck(healthcheck::HealthcheckArgs),
    /// Print the JSON Schema of the configuration
    Schema(schema::SchemaArgs),
    /// Print a script that completes commands and options in a shell
    Completions(clap_files::CompletionsArgs),
    /// Write the manual pages of all commands
    Man(clap_files::ManArgs),
}

const EXAMPLES: &str = include_str!("cli/help/sluicegate.txt");

/// Reads the command line, and does what it says.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => advised(error).exit(),
    };
    match arguments.command.unwrap_or(Command::Run(arguments.run)) {
        Command::Run(options) => run::run(options),
        Command::Check(options) => check::check(&options),
        Command::Explain(options) => conclude(options.run()),
        Command::Replay(options) => conclude(options.run()),
        Command::Suggest(options) => conclude(options.run()),
        Command::Playground(options) => playground::playground(&options),
        Command::Status(options) => conclude(options.run()),
        Command::Keys(options) => conclude(options.run()),
        Command::Client(options) => conclude(options.run()),
        Command::Top(options) => conclude(options.run()),
        Command::Healthcheck(options) => conclude(options.run()),
        Command::Schema(options) => schema::schema(&options),
        Command::Completions(options) => clap_files::completions(&options),
        Command::Man(options) => clap_files::man(&options),
    }
}

/// An error of the command line, with advice if a configuration is given without its option.
fn advised(mut error: clap::Error) -> clap::Error {
    let unexpected = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let unexpected = unexpected.into_iter().find_map(|kind| error.get(kind));
    let Some(ContextValue::String(text)) = unexpected else {
        return error;
    };
    let extension = Path::new(text).extension().and_then(OsStr::to_str);
    let run = format!("to run a configuration, write: sluicegate run --config {text}");
    let advice = match &**text {
        "reload" => "to reload the configuration, write: kill -HUP $(pidof sluicegate)",
        "start" | "serve" | "server" | "up" => "to start, write: sluicegate run --config FILE",
        "stop" | "quit" | "shutdown" => "to stop, write: kill $(pidof sluicegate)",
        "validate" | "test" | "lint" | "configtest" => "write: sluicegate check FILE",
        _ if matches!(extension, Some("yaml" | "yml")) => &run,
        _ => return error,
    };
    let advice = ContextValue::StyledStrs(vec![advice.to_owned().into()]);
    error.insert(ContextKind::Suggested, advice);
    error
}

/// Something was found wrong: it has been said on stderr.
const WRONG: u8 = 1;
/// The command line asks for something impossible.
const USAGE: u8 = 2;

/// The exit code of a command that failed, and a sentence for people.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn wrong_usage(message: impl Into<String>) -> Self {
        Self {
            code: USAGE,
            message: message.into(),
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self {
            code: WRONG,
            message,
        }
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        shown(&report).into()
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        error.to_string().into()
    }
}

/// Returns the exit code of a command, and says why it failed.
fn conclude(ended: Result<ExitCode, Failure>) -> ExitCode {
    ended.unwrap_or_else(|Failure { code, message }| {
        tell(message);
        ExitCode::from(code)
    })
}

/// Prints a report to stderr, in colours on a terminal. Lines of the file show values that are no
/// secrets: they are the caller's own.
fn print_report(report: &Report) {
    tell(shown(report));
}

fn shown(report: &Report) -> String {
    report.render(colour(), Audience::Owner)
}

/// Colours for a terminal on stderr that takes them, none for anything else.
fn colour() -> Colour {
    if has_colours(&io::stderr()) {
        Colour::Ansi
    } else {
        Colour::Plain
    }
}

/// Says something on stderr. Unlike `eprintln!` it is no panic when whoever reads that has gone
/// away.
fn tell(what: impl Display) {
    _ = writeln!(io::stderr(), "{what}");
}

/// The end of a command that wrote its result: a reader that has gone away is no mistake.
fn finish(written: io::Result<()>, code: ExitCode) -> ExitCode {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            tell(format_args!("cannot write: {error}"));
            ExitCode::from(WRONG)
        }
        _ => code,
    }
}
