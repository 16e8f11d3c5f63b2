//! `sluicegate top`: the keys of a running proxy that are limited most, ask most, or charge most. A
//! client of its admin API: on a screen, as text once a second, or as JSON.

mod report;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::{Args, ValueEnum};

use self::report::{Report, counted, take_keys};
use super::Failure;
use super::admin_client::{AdminClient, ApiAnswer};
use super::admin_options::AdminArgs;
use crate::admin::actor::TokenRole;
use crate::admin::top::Top;
use crate::proxy::activity::{Measure, Window};
use crate::telemetry::terminal::{has_colours, has_cursor};

const EXAMPLES: &str = include_str!("help/top.txt");

/// The time between two questions.
const PERIOD: Duration = Duration::from_secs(1);
/// The least time of counting before `--once` prints.
const LEAST_COUNTED: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct TopArgs {
    #[command(flatten)]
    question: Question,
    /// Print one table, and exit [default: unless stdout is a terminal]
    #[arg(long)]
    once: bool,
    /// Print a table once a second, also without a terminal
    #[arg(long, conflicts_with = "once")]
    follow: bool,
    /// Print the answer of the admin API, as JSON; with --follow one a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// A question to the proxy.
#[derive(Args, Clone, Debug)]
struct Question {
    /// The order of the keys
    #[arg(long, value_enum, default_value = "limited")]
    by: Measure,
    /// The time before now that counts
    #[arg(long, value_enum, default_value = "1m")]
    window: Window,
    /// Only keys of this policy
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// The most keys, 1 to 100
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
}

impl TopArgs {
    /// # Errors
    /// The proxy refuses or does not answer, or the terminal cannot be used.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let client = self.admin.client(TokenRole::Read)?;
        let question = &self.question;
        let out = io::stdout();
        if self.once || !(self.follow || out.is_terminal()) {
            let mut answer = question.ask(&client)?;
            let is_short = counted(&answer.fields) < LEAST_COUNTED;
            if question.by != Measure::Limited && is_short {
                sleep(LEAST_COUNTED);
                answer = question.ask(&client)?;
            }
            let text = answer.render(self.json, |top| Report::new(top).to_string());
            return Ok(print(&text).unwrap_or(ExitCode::SUCCESS));
        }
        if !self.follow && !self.json && has_cursor(&out) && has_colours(&out) {
            return Ok(screen::run(client, question.clone())?);
        }
        loop {
            let answer = question.ask(&client)?;
            let text = if self.json {
                format!("{}\n", answer.json)
            } else {
                format!("{}\n", Report::new(&answer.fields))
            };
            if let Some(code) = print(&text) {
                return Ok(code);
            }
            sleep(PERIOD);
        }
    }
}

/// Prints a text. Returns the exit code if nobody reads any more.
fn print(text: &str) -> Option<ExitCode> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let is_broken = written.is_err();
    is_broken.then(|| super::finish(written, ExitCode::SUCCESS))
}

impl Question {
    /// The answer of the proxy.
    ///
    /// # Errors
    /// A sentence for people.
    fn ask(&self, client: &AdminClient) -> Result<ApiAnswer<Top>, String> {
        let answer = client.get::<Top>(&self.path());
        let mut answer = answer.map_err(|error| error.to_string())?;
        take_keys(&mut answer.fields, &answer.json);
        Ok(answer)
    }

    fn path(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("by", self.by.into());
        query.append_pair("window", self.window.into());
        query.append_pair("limit", &self.limit.to_string());
        if let Some(policy) = &self.policy {
            query.append_pair("policy", policy);
        }
        format!("/v1/top?{}", query.finish())
    }
}

/// The next of a closed set, or the one before; the first follows the last.
fn neighbour<T: ValueEnum + PartialEq + 'static>(one: &T, step: isize) -> &'static T {
    let all = T::value_variants();
    let place = all.iter().position(|other| other == one);
    let next = place.unwrap_or_default() as isize + step;
    &all[next.rem_euclid(all.len() as isize) as usize]
}
