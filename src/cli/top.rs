//! `sluicegate top`: what became of a running proxy's requests, its problems, the keys that are limited most,
//! ask most, or charge most, policies and upstreams. A client of its admin API: on a screen, as text again
//! and again, or the keys as JSON.

mod report;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use self::report::{OUTCOMES, Report};
use super::Failure;
use super::admin_client::{AdminClient, ApiAnswer, CallError};
use super::admin_options::AdminArgs;
use crate::admin::actor::TokenRole;
use crate::admin::history::HistoryAnswer;
use crate::admin::policies::PolicyList;
use crate::admin::top::Top;
use crate::admin::totals::sum;
use crate::admin::upstreams::UpstreamList;
use crate::proxy::activity::{Measure, Window};
use crate::telemetry::terminal::has_cursor;

const EXAMPLES: &str = include_str!("help/top.txt");

/// The time between two questions.
const PERIOD: Duration = Duration::from_secs(2);
/// The least seconds of counting before `--once` prints.
const LEAST_COUNTED: f64 = 2.0;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct TopArgs {
    #[command(flatten)]
    question: Question,
    /// Print once, and exit [default: unless stdout is a terminal]
    #[arg(long)]
    once: bool,
    /// Print every two seconds, also without a terminal
    #[arg(long, conflicts_with = "once")]
    follow: bool,
    /// Print the keys as the admin API answers them, in JSON; with --follow one answer a line
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
        let (client, question) = (self.admin.client(TokenRole::Read)?, &self.question);
        let out = io::stdout();
        let is_once = self.once || !(self.follow || out.is_terminal());
        if !is_once && !self.follow && !self.json && has_cursor(&out) {
            return Ok(screen::run(client, question.clone())?);
        }
        if is_once && question.by != Measure::Limited {
            let uncounted = LEAST_COUNTED - question.ask(&client)?.fields.counted_s;
            sleep(Duration::from_secs_f64(uncounted.clamp(0.0, LEAST_COUNTED)));
        }
        let text = || match (self.json, is_once) {
            (true, true) => Ok(format!("{:#}\n", question.ask(&client)?.json)),
            (true, false) => Ok(format!("{}\n", question.ask(&client)?.json)),
            (false, _) => question.report(&client).map(|report| report.to_string()),
        };
        let mut next = text()?;
        loop {
            let written = write!(out.lock(), "{next}").and_then(|()| out.lock().flush());
            if is_once || written.is_err() {
                return Ok(super::finish(written, ExitCode::SUCCESS));
            }
            sleep(PERIOD);
            next = text().unwrap_or_else(|problem: CallError| {
                super::tell(format_args!("no answer, asking again: {problem}"));
                String::new()
            });
        }
    }
}

impl Question {
    /// The keys, as the proxy sent them: they are escaped as they are shown.
    ///
    /// # Errors
    /// As [`AdminClient::get`].
    fn ask(&self, client: &AdminClient) -> Result<ApiAnswer<Top>, CallError> {
        let mut answer = client.get::<Top>(&self.path())?;
        let fields = Top::deserialize(&answer.json);
        answer.fields = fields.map_err(|error| error.to_string())?;
        Ok(answer)
    }

    /// All answers of the proxy.
    ///
    /// # Errors
    /// As [`AdminClient::get`].
    fn report(&self, client: &AdminClient) -> Result<Report, CallError> {
        let path = format!("/v1/history?seconds={}", self.window.length().as_secs());
        let steps = client.get::<HistoryAnswer>(&path)?.fields.steps;
        let requests = steps.iter().map(|step| step.counts.requests.0);
        let upstreams = client.get::<UpstreamList>("/v1/upstreams")?.fields;
        Ok(Report {
            top: self.ask(client)?.fields,
            status: client.get("/v1/status")?.fields,
            outcomes: requests.fold([0; OUTCOMES], sum),
            policies: client.get::<PolicyList>("/v1/policies")?.fields.policies,
            upstreams: upstreams.upstreams,
        })
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

/// The value `places` later in a closed set, where the first follows the last.
fn later<T: ValueEnum + PartialEq + 'static>(one: &T, places: usize) -> &'static T {
    let all = T::value_variants();
    let place = all.iter().position(|other| other == one);
    &all[(place.unwrap_or_default() + places) % all.len()]
}
