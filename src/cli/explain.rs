//! `sluicegate explain`: what becomes of one request, and why.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use http::{HeaderName, HeaderValue, Method, Uri};

use super::{USAGE, WRONG, run};
use crate::http::message::Request;
use crate::proxy::inspect::explain::{self, AnswerKind, Explanation};

const EXAMPLES: &str = "\
Examples:
  sluicegate explain POST http://api.example.com/v1/login -H 'x-api-key: alice' \\
      --from 203.0.113.7 --config sluicegate.yaml
  sluicegate explain GET http://api.example.com/healthz --expect allowed

The buckets are new: the answer is that of the first such request. The exit code is 1 if it is
not the expected one.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    /// The method, such as GET
    method: String,
    /// The URL, such as http://api.example.com/v1/search?q=x
    url: String,
    /// A header field, as in curl
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The address of the peer that connects
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    from: IpAddr,
    /// The configuration [default: as for run]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
    /// Exit with 1 unless this becomes of the request
    #[arg(long, value_name = "ANSWER")]
    expect: Option<Expected>,
}

/// The expected answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Expected {
    /// It is forwarded, at once or after a delay
    Allowed,
    /// A limit refuses it
    Limited,
}

pub(super) fn explain(options: &ExplainArgs) -> ExitCode {
    let request = match options.request() {
        Ok(request) => request,
        Err(message) => {
            super::tell(message);
            return ExitCode::from(USAGE);
        }
    };
    let compiled = match run::find(options.config.clone(), |example| super::tell(example)).compile()
    {
        Ok(compiled) => compiled,
        Err(report) => {
            super::print_report(&report);
            return ExitCode::from(WRONG);
        }
    };
    let explanation = explain::explain(compiled.rules, request, options.from);
    let code = match options.expect.map(|expected| expected.check(&explanation)) {
        Some(Err(message)) => {
            super::tell(message);
            ExitCode::from(WRONG)
        }
        _ => ExitCode::SUCCESS,
    };
    super::finish(options.print(&explanation), code)
}

impl Expected {
    /// # Errors
    /// Says what becomes of the request instead.
    fn check(self, explanation: &Explanation) -> Result<(), String> {
        let answer = explanation.answer();
        let (is_expected, word) = match self {
            Self::Allowed => (
                matches!(answer, AnswerKind::Allowed | AnswerKind::Delayed),
                "allowed",
            ),
            Self::Limited => (answer == AnswerKind::Limited, "limited"),
        };
        match is_expected {
            true => Ok(()),
            false => Err(format!(
                "the request should be {word}, but the answer is: {}",
                explanation.answer_text()
            )),
        }
    }
}

impl ExplainArgs {
    fn print(&self, explanation: &Explanation) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.json {
            true => {
                serde_json::to_writer_pretty(&mut out, &explanation.report())?;
                out.write_all(b"\n")
            }
            false => write!(out, "{explanation}"),
        }
    }

    fn request(&self) -> Result<Request<()>, String> {
        let wrong = |what: &str, text: &str, example: &str| {
            format!("{text:?} is no {what}; write it as in {example}")
        };
        let method = Method::from_bytes(self.method.as_bytes())
            .map_err(|_| wrong("method", &self.method, "GET"))?;
        let example = "http://api.example.com/v1/search?q=x";
        let uri: Uri = self
            .url
            .parse()
            .map_err(|_| wrong("URL", &self.url, example))?;
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        for header in &self.headers {
            let wrong = || wrong("header field", header, "'x-api-key: alice'");
            let (name, value) = header.split_once(':').ok_or_else(wrong)?;
            let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
            let value = HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
            request.headers_mut().append(name, value);
        }
        Ok(request)
    }
}
