//! `responses.error_pages`: bodies of errors and refusals, by status.

use crate::config::sections::content;
use crate::config::sections::prelude::*;
use crate::proxy::answers::error_pages;
use crate::proxy::{ResponseFormat, Template};

/// The largest body, in bytes.
const MAX_BODY: usize = 64 << 10;
/// The most pages.
const MOST_PAGES: usize = 100;

/// The bodies of a page, each a text or `{ file: PATH }` with placeholders as in `on_limit.body`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct ErrorPage {
    /// `text/html`.
    pub html: Option<Located<Content>>,
    /// `text/plain`.
    pub text: Option<Located<Content>>,
    /// `application/json`.
    pub json: Option<Located<Content>>,
    /// `application/problem+json`, instead of `json`.
    pub problem: Option<Located<Content>>,
}

impl ErrorPage {
    /// The bodies with their formats.
    fn bodies(&self) -> impl Iterator<Item = (ResponseFormat, &Located<Content>)> {
        let bodies = [
            (ResponseFormat::Html, &self.html),
            (ResponseFormat::Plain, &self.text),
            (ResponseFormat::Json, &self.json),
            (ResponseFormat::Problem, &self.problem),
        ];
        let bodies = bodies.into_iter();
        bodies.filter_map(|(format, body)| Some((format, body.as_ref()?)))
    }
}

pub(super) fn check(config: &Config, findings: &Findings<'_>) {
    let pages = &config.responses.error_pages;
    if pages.len() > MOST_PAGES {
        let message = format!("{} pages; {MOST_PAGES} are allowed", pages.len());
        let finding = invalid(pages.node, message);
        findings.add(finding.help("write one for a class of statuses, as in `5xx`"));
    }
    for page in pages.values() {
        if page.bodies().next().is_none() {
            let finding = Finding::error(page.node, Code::NoValue, "a page without a body");
            findings.add(finding.help("add one, as in `html: { file: pages/404.html }`"));
        }
        if let (Some(json), Some(problem)) = (page.json.given(), page.problem.given()) {
            let finding = conflict(problem, "`problem` beside `json`");
            let finding = finding.at_key().related(json, "the other");
            findings.add(finding.help("keep one of them"));
        }
        for (_, body) in page.bodies() {
            content::check(body, MAX_BODY, findings);
            if let Content::Text(text) = &body.value
                && let Err(error) = Template::parse(text)
            {
                findings.add(wrong_text(body.node, &error));
            }
        }
    }
}

impl Compiler<'_> {
    /// The pages for errors; those in files are read.
    pub(crate) fn error_pages(&mut self, config: &Config) -> error_pages::ErrorPages {
        let pages = config.responses.error_pages.iter();
        let pages = pages.map(|(statuses, page)| {
            let bodies = page.bodies();
            let bodies = bodies.filter_map(|(format, body)| Some((format, self.page(body)?)));
            error_pages::ErrorPage {
                bodies: bodies.collect(),
                statuses: statuses.range(),
            }
        });
        error_pages::ErrorPages::new(pages.collect())
    }

    /// A body; `None` with a finding, and without its file where nothing is served.
    fn page(&mut self, body: &Located<Content>) -> Option<Template> {
        let content = self.content(body, MAX_BODY);
        if content.is_empty() && self.key_files != KeyFiles::Needed {
            return None;
        }
        let Ok(text) = str::from_utf8(&content) else {
            let finding = invalid(body.node, "this page isn't text in UTF-8");
            self.findings.push(finding.help("save it as UTF-8"));
            return None;
        };
        let template = Template::parse(text);
        self.found(template.map_err(|error| wrong_text(body.node, &error)))
    }
}
