//! Compiles `on_limit`, of a policy and in `responses`, and the styles of rate-limit fields.

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderName, StatusCode};

use crate::config::schema::{Action, BodyFormat, Cors, HeaderFields, OnLimit, Responses};
use crate::proxy::answers::limit_headers::{Exposure, HeaderStyles, StyleFields};
use crate::proxy::ruleset::Preflight;
use crate::proxy::{
    ActionSpec, DecoyContentType, DecoySpec, RejectSpec, ResponseFormat, ResponseFormats,
    TarpitSpec, Template,
};

const TAG_HEADER: HeaderName = HeaderName::from_static("x-over-limit");
const TARPIT_DELAY: Duration = Duration::from_secs(10);
const TARPIT_MAX_HELD: u32 = 1_000;

/// The action of a policy's `own` settings over the `general` ones.
pub(in crate::config) fn action(own: &OnLimit, general: &OnLimit) -> ActionSpec {
    let delay = own.delay.as_ref().or(general.delay.as_ref());
    let max_held = own.max_held.as_ref().or(general.max_held.as_ref());
    match own.action_over(general) {
        Action::Reject => ActionSpec::Reject,
        Action::Decoy => ActionSpec::Decoy,
        Action::Tarpit => ActionSpec::Tarpit(TarpitSpec {
            delay: delay.map_or(TARPIT_DELAY, |delay| delay.get()),
            max_held: max_held.map_or(TARPIT_MAX_HELD, |held| held.get()),
        }),
        Action::Drop => ActionSpec::Drop,
        Action::Tag => {
            let name = own.tag_header.as_ref().or(general.tag_header.as_ref());
            ActionSpec::Tag(name.map_or(TAG_HEADER, |name| name.get().clone()))
        }
    }
}

/// The refusal of a policy's `own` settings over the `general` ones.
pub(in crate::config) fn reject(own: &OnLimit, general: &OnLimit) -> RejectSpec {
    let action = own.action_over(general);
    let nothing = OnLimit::default();
    let general = match own.inherits(general) {
        true => general,
        false => &nothing,
    };
    let format = own.format.as_ref().or(general.format.as_ref());
    let headers = general.headers.iter().chain(own.headers.iter());
    let headers: HashMap<_, _> = headers
        .map(|(name, value)| (name.get().clone(), value.get().clone()))
        .collect();
    let status = own
        .status
        .as_ref()
        .or(general.status.as_ref())
        .map(|status| status.get() as u16);
    RejectSpec {
        status: status
            .and_then(|status| StatusCode::from_u16(status).ok())
            .unwrap_or(match action {
                Action::Decoy => StatusCode::OK,
                _ => StatusCode::TOO_MANY_REQUESTS,
            }),
        formats: match format.map_or(BodyFormat::Auto, |format| format.value) {
            // A decoy has one format for all clients.
            BodyFormat::Auto if action == Action::Decoy => {
                ResponseFormats::Always(ResponseFormat::Plain)
            }
            BodyFormat::Auto => ResponseFormats::Accept,
            BodyFormat::Problem => ResponseFormats::Always(ResponseFormat::Problem),
            BodyFormat::Json => ResponseFormats::Always(ResponseFormat::Json),
            BodyFormat::Text => ResponseFormats::Always(ResponseFormat::Plain),
            BodyFormat::Html => ResponseFormats::Always(ResponseFormat::Html),
        },
        decoy: (action == Action::Decoy).then(|| DecoySpec {
            status: status.and_then(|status| StatusCode::from_u16(status).ok()),
            content_type: match format {
                Some(_) => DecoyContentType::Configured,
                None => DecoyContentType::Learned,
            },
        }),
        body: own
            .body
            .as_ref()
            .or(general.body.as_ref())
            .map(|body| body.as_str())
            .or((action == Action::Decoy).then_some(""))
            .and_then(|body| Template::parse(body).ok()),
        headers: headers.into_iter().collect(),
        docs_url: own
            .docs_url
            .as_ref()
            .or(general.docs_url.as_ref())
            .map(|url| url.as_str().to_owned()),
    }
}

/// The rate-limit fields of responses.
pub(in crate::config) fn styles(responses: &Responses) -> HeaderStyles {
    let all = responses.headers.iter().map(|item| fields(item)).collect();
    let exposure = match responses.cors.expose_headers.get() {
        true => Exposure::Exposed,
        false => Exposure::Unchanged,
    };
    HeaderStyles::new(all, exposure)
}

/// The fields of one style.
pub(in crate::config) fn fields(item: &HeaderFields) -> StyleFields {
    let prefix = item.prefix.as_ref().map(|prefix| prefix.get());
    StyleFields::new(item.style.value, prefix)
}

/// The handling of preflight requests.
pub(in crate::config) fn preflight(cors: &Cors) -> Preflight {
    match cors.limit_preflight.get() {
        true => Preflight::Limited,
        false => Preflight::Exempt,
    }
}
