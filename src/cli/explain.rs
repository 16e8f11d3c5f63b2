//! `sluicegate explain`: what becomes of one request, and why: with new buckets, or with those of a
//! running proxy.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use http::{HeaderName, StatusCode};

use super::admin_options::{TokenArgs, find_client};
use super::{Failure, WRONG, run};
use crate::admin::actor::TokenRole;
use crate::admin::explain::ExplainRequest;
use crate::proxy::inspect::explain::{self, AnswerKind, AnswerReport, ExplanationReport};
use crate::visible::{self, trim_spaces};

const EXAMPLES: &str = include_str!("help/explain.txt");

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    /// The method, such as GET
    #[arg(value_parser = method)]
    method: String,
    #[allow(rustdoc::bare_urls, reason = "it is a help text")]
    /// The URL, such as http://api.example.com/v1/search?q=x
    url: String,
    /// A header field, as in curl
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The body, for limits that read it
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    data: String,
    /// The address of the peer that connects
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    from: IpAddr,
    /// Ask the running proxy with this admin listener, such as http://127.0.0.1:9980 [default: that
    /// of the configuration]
    #[arg(long, value_name = "URL", value_parser = admin_url)]
    admin: Option<Option<String>>,
    #[command(flatten)]
    token: TokenArgs,
    /// The configuration [default: the file that run would use]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
    /// Exit with 1 unless the request is `allowed` (forwarded, at once or after a delay), `limited`
    /// (a limit refuses it), or gets this status from the proxy, such as 401
    #[arg(long, value_name = "ANSWER", value_parser = expected)]
    expect: Option<String>,
}

/// # Errors
/// The text is no answer that can be expected.
fn expected(text: &str) -> Result<String, &'static str> {
    let is_status = text.len() == 3 && text.parse::<StatusCode>().is_ok();
    if is_status || matches!(text, "allowed" | "limited") {
        Ok(text.to_owned())
    } else {
        Err("write `allowed`, `limited`, or a status such as 401")
    }
}

/// # Errors
/// The text is a URL, or a path.
fn method(text: &str) -> Result<String, &'static str> {
    if text.contains('/') {
        Err("the method comes first, as in: explain GET http://api.example.com/v1/search")
    } else {
        Ok(text.to_owned())
    }
}

/// # Errors
/// The text is a method that follows `--admin`.
fn admin_url(text: &str) -> Result<String, &'static str> {
    let is_method = text.bytes().all(|letter| letter.is_ascii_uppercase());
    if is_method {
        Err("write --admin without a URL at the end, behind METHOD and URL")
    } else {
        Ok(text.to_owned())
    }
}

impl ExplainArgs {
    /// # Errors
    /// The options make no request, or the proxy refuses or does not answer.
    pub(super) fn run(&self) -> Result<ExitCode, Failure> {
        let request = self.request().map_err(Failure::wrong_usage)?;
        let head = request.request();
        let head = head.map_err(|problem| Failure::wrong_usage(problem.detail))?;
        if let Some(admin) = &self.admin {
            return self.explain_live(admin.as_deref(), &request);
        }
        if self.token.is_given() {
            let message = "a token is for a running proxy: --admin asks one";
            return Err(Failure::wrong_usage(message));
        }
        let compiled = run::find(self.config.clone())?.compile()?;
        let explanation = explain::explain(compiled.rules, head, self.from);
        let code = self.judge(&explanation.answer, explanation.answer_text());
        Ok(super::finish(self.print(&explanation), code))
    }

    /// The exit code for an answer; says what is not as expected.
    fn judge(&self, answer: &AnswerReport, answer_text: &str) -> ExitCode {
        let (word, is_expected) = match self.expect.as_deref() {
            None => return ExitCode::SUCCESS,
            Some("allowed") => {
                let is_allowed = [AnswerKind::Allowed, AnswerKind::Delayed];
                ("allowed", is_allowed.contains(&answer.decision))
            }
            Some("limited") => ("limited", answer.decision == AnswerKind::Limited),
            Some(status) => {
                let own = answer.status.map(|own| own.to_string());
                (status, own.as_deref() == Some(status))
            }
        };
        if is_expected {
            return ExitCode::SUCCESS;
        }
        let verb = if word.len() == 3 { "get" } else { "be" };
        super::tell(format!(
            "the request should {verb} {word}, but the answer is: {answer_text}"
        ));
        ExitCode::from(WRONG)
    }

    /// Asks the proxy at `admin`, or that of the configuration. No text that is printed has characters
    /// that would disturb a terminal.
    ///
    /// # Errors
    /// The proxy refuses or does not answer.
    fn explain_live(
        &self,
        admin: Option<&str>,
        request: &ExplainRequest,
    ) -> Result<ExitCode, Failure> {
        let config = self.config.as_ref();
        let client = find_client(admin, &self.token, config, TokenRole::Read)?;
        let answer = client.post::<ExplanationReport>("/v1/explain", request)?;
        // As the proxy sent it, since lines are more than one.
        let text = answer.json["text"].as_str().unwrap_or_default();
        let lines: Vec<_> = text.lines().map(visible::text).collect();
        let last = lines.last().map_or("", String::as_str);
        // The last line without its first word.
        let answer_text = last.strip_prefix("answer").unwrap_or(last).trim_start();
        let code = self.judge(&answer.fields.answer, answer_text);
        let printed = answer.print(self.json, |_| {
            let proxy = client.url();
            format!("buckets   of the proxy at {proxy}\n{}\n", lines.join("\n"))
        });
        Ok(super::finish(printed, code))
    }

    fn print(&self, explanation: &ExplanationReport) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, explanation)?;
            out.write_all(b"\n")
        } else {
            writeln!(out, "buckets   empty ones (--admin asks a running proxy)")?;
            out.write_all(explanation.text.as_bytes())
        }
    }

    /// The request as the admin API takes it. A path alone is one of `localhost`.
    fn request(&self) -> Result<ExplainRequest, String> {
        let field = |field: &String| {
            let is_name = |text: &str| HeaderName::try_from(trim_spaces(text)).is_ok();
            let split = field.split_once(':').filter(|(name, _)| is_name(name));
            let (name, value) = split.ok_or_else(|| {
                format!("{field:?} isn't a header field; write it as in 'x-api-key: alice'")
            })?;
            Ok([name, value].map(|text| trim_spaces(text).to_owned()))
        };
        let headers = self.headers.iter().map(field);
        let host = if self.url.starts_with('/') {
            "http://localhost"
        } else {
            ""
        };
        Ok(ExplainRequest {
            method: self.method.clone(),
            url: [host, &self.url].concat(),
            headers: headers.collect::<Result<_, String>>()?,
            from: Some(self.from.to_string()),
            client: None,
            body: self.data.clone(),
        })
    }
}
