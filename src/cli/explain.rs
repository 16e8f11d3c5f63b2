//! `sluicegate explain`: what becomes of one request, and why.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Uri};

use super::{USAGE, WRONG, run};
use crate::http::message::Request;
use crate::proxy::inspect::explain::{self, Explanation};

const EXAMPLES: &str = "\
Example:
  sluicegate explain POST http://api.example.com/v1/login -H 'x-api-key: alice' \\
      --from 203.0.113.7 --config sluicegate.yaml

The buckets are new: the answer is that of the first such request.";

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
    super::finish(print(&explanation), ExitCode::SUCCESS)
}

impl ExplainArgs {
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

fn print(explanation: &Explanation) -> io::Result<()> {
    write!(io::stdout().lock(), "{explanation}")
}
