//! Compiles `on_limit`, of a policy and in `responses`, and the styles of rate-limit fields.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use crate::config::sections::prelude::*;
use crate::config::sections::route::body_changes;
use crate::proxy::answers::error_pages::ErrorPages;
use crate::proxy::answers::limit_headers::{Exposure, HeaderStyles, Style, StyleFields};
use crate::proxy::{
    ActionSpec, DecoySpec, RejectSpec, ReroutingSpec, ResponseFormat, ResponseFormats, TarpitSpec,
    Template, WaitSpec,
};

const TAG_HEADER: HeaderName = HeaderName::from_static("x-over-limit");
const TARPIT_DELAY: Duration = Duration::from_secs(10);
const TARPIT_MAX_HELD: u32 = 1_000;
const MAX_WAIT: Duration = Duration::from_secs(30);
const QUEUE: u32 = 100;

/// The action of a policy's `own` settings over the `general` ones.
pub(crate) fn action(own: &OnLimit, general: &OnLimit) -> ActionSpec {
    let all = own.over(general);
    match own.action_over(general) {
        Action::Reject => ActionSpec::Reject,
        Action::Decoy => ActionSpec::Decoy,
        Action::Tarpit => ActionSpec::Tarpit(TarpitSpec {
            delay: all.delay.map_or(TARPIT_DELAY, |delay| delay.get()),
            max_held: all.max_held.map_or(TARPIT_MAX_HELD, |held| held.get()),
        }),
        Action::Drop => ActionSpec::Drop,
        Action::Tag => {
            let name = all.tag_header;
            ActionSpec::Tag(name.map_or(TAG_HEADER, |name| name.get().clone()))
        }
        Action::Wait => ActionSpec::Wait(WaitSpec {
            max_wait: all.max_wait.map_or(MAX_WAIT, |wait| wait.get()),
            queue: all.queue.map_or(QUEUE, |queue| queue.get()),
        }),
        Action::Route => ActionSpec::Route(ReroutingSpec {
            // A check has reported a missing one.
            upstream: all
                .upstream
                .map_or_else(String::new, |one| one.value.to_string()),
            changes: body_changes(&RequestChanges {
                set_body: all.set_body,
                ..RequestChanges::default()
            }),
        }),
    }
}

/// The refusal of a policy's `own` settings over the general ones.
pub(crate) fn reject(own: &OnLimit, responses: &Responses, pages: &Arc<ErrorPages>) -> RejectSpec {
    let general = &responses.on_limit;
    let is_decoy = own.action_over(general) == Action::Decoy;
    let all = own.merged(general);
    let mut styles = responses.headers.iter();
    let of_style = styles.find_map(|item| match item.style.value {
        Style::OpenAi => Some(ResponseFormat::OpenAi),
        Style::Anthropic => Some(ResponseFormat::Anthropic),
        _ => None,
    });
    let status = all.status.map(|status| status.get() as u16);
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    let shown = status.or(is_decoy.then_some(StatusCode::OK));
    let format = all.format.as_ref().map(|format| format.value);
    let body = all.body.as_ref().map(|body| body.as_str());
    let written = body.or(is_decoy.then_some(""));
    RejectSpec {
        status: shown.unwrap_or(StatusCode::TOO_MANY_REQUESTS),
        keyless_status: shown.unwrap_or(StatusCode::BAD_REQUEST),
        formats: match format.unwrap_or_default() {
            // A decoy has one format for all clients.
            BodyFormat::Auto if is_decoy => ResponseFormats::Always(ResponseFormat::Plain),
            BodyFormat::Auto => match of_style.filter(|_| body.is_none()) {
                Some(format) => ResponseFormats::Always(format),
                None => ResponseFormats::Accept,
            },
            BodyFormat::OpenAi => ResponseFormats::Always(ResponseFormat::OpenAi),
            BodyFormat::Anthropic => ResponseFormats::Always(ResponseFormat::Anthropic),
            BodyFormat::Problem => ResponseFormats::Always(ResponseFormat::Problem),
            BodyFormat::Json => ResponseFormats::Always(ResponseFormat::Json),
            BodyFormat::Text => ResponseFormats::Always(ResponseFormat::Plain),
            BodyFormat::Html => ResponseFormats::Always(ResponseFormat::Html),
        },
        decoy: is_decoy.then_some(DecoySpec {
            status,
            has_content_type: format.is_some(),
        }),
        body: written.and_then(|body| Template::parse(body).ok()),
        pages: Arc::clone(pages),
        headers: fields(&all.headers).collect(),
        docs_url: all.docs_url.map(|url| url.as_str().to_owned()),
    }
}

/// The rate-limit fields of responses.
pub(crate) fn styles(responses: &Responses) -> HeaderStyles {
    let all = responses.headers.iter().map(|item| style_fields(item));
    let is_exposed = &responses.cors.expose_headers;
    let exposure = is_exposed.choose(Exposure::Exposed, Exposure::Unchanged);
    HeaderStyles::new(all.collect(), exposure)
}

/// The fields of one style.
pub(crate) fn style_fields(item: &HeaderFields) -> StyleFields {
    let prefix = item.prefix.as_ref().map(|prefix| prefix.get());
    StyleFields::new(item.style.value, prefix)
}
