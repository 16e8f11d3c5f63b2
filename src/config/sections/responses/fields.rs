//! Fields of responses, on top and of routes, and the origins that may read responses.

use std::sync::Arc;

use http::HeaderName;
use http::header::{DATE, HeaderValue, RETRY_AFTER};

use super::style_fields;
use crate::config::checks::check_removed;
use crate::config::sections::prelude::*;
use crate::proxy::answers::cors::{self, OriginPattern};
use crate::proxy::answers::response_changes::{FieldChanges, FieldText, ResponseChanges};
use crate::proxy::ruleset::Preflight;

/// `response` of a route: changes to its responses, after the top-level ones.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct ResponseRules {
    /// Fields to set, in place of those of the upstream, with `{{client_ip}}`, `{{host}}`,
    /// `{{method}}`, `{{path}}`, `{{request_id}}` and `{{route}}`.
    pub set_headers: Table<FieldName, FieldValue>,
    /// Fields to add.
    pub add_headers: Table<FieldName, FieldValue>,
    /// Fields to remove.
    pub remove_headers: List<FieldName>,
    /// CORS, instead of `responses.cors`.
    pub cors: Option<Located<Cors>>,
}

/// The changes in one place.
struct Written<'a> {
    set: &'a Table<FieldName, FieldValue>,
    added: &'a Table<FieldName, FieldValue>,
    removed: &'a List<FieldName>,
}

/// The changes in `responses`, or in `response` of a route.
macro_rules! written {
    ($section:expr) => {
        Written {
            set: &$section.set_headers,
            added: &$section.add_headers,
            removed: &$section.remove_headers,
        }
    };
}

pub(super) fn check(config: &Config, findings: &Findings<'_>) {
    let styles = config.responses.headers.iter();
    let mut own: Vec<_> = styles.flat_map(|item| style_fields(item).names()).collect();
    own.extend([RETRY_AFTER, DATE]);
    let debug = config.responses.debug.as_ref();
    own.extend(debug.map(|debug| debug.header.get().clone()));
    check_fields(&written!(config.responses), &own, findings);
    check_cors(&config.responses.cors, findings);
    for route in config.routes.iter() {
        check_fields(&written!(route.response), &own, findings);
        let Some(cors) = &route.response.cors else {
            continue;
        };
        check_cors(cors, findings);
        let message = "`expose_headers` is the same for all routes";
        let node = cors.expose_headers.node;
        let finding = no_effect(node, message).at_key();
        findings.add(finding.help("move it to `responses: { cors: .. }`"));
    }
}

fn check_fields(written: &Written<'_>, own: &[HeaderName], findings: &Findings<'_>) {
    for (name, value) in written.set.iter().chain(written.added.iter()) {
        report_reserved(name, value.node, own, "remove it", findings);
        if let Err(error) = FieldText::parse(value.get()) {
            findings.add(wrong_text(value.node, &error));
        }
    }
    check_removed(written.removed, written.set, own, "upstream", findings);
}

fn check_cors(cors: &Located<Cors>, findings: &Findings<'_>) {
    let Some(origins) = &cors.origins else {
        for (_, node) in given(options!(cors, credentials, answer_preflight, max_age)) {
            let finding = no_effect(node, "no origin is allowed").at_key();
            findings.add(finding.help("name them: `origins: [https://app.example.com]`"));
        }
        return;
    };
    report_empty(origins, findings, "name an origin, or `*`, or remove it");
    report_twice(origins, findings);
    let mut all = origins.iter();
    let any = all.find(|origin| origin.value == OriginPattern::Any);
    if let Some(any) = any {
        if cors.credentials.get() {
            let message = "browsers take no `*` for requests with credentials";
            let finding = conflict(any.node, message);
            let finding = finding.related(cors.credentials.node, "the credentials");
            findings.add(finding.help("name the origins, or remove `credentials`"));
        }
        if origins.len() > 1 {
            let finding = conflict(any.node, "`*` beside other origins");
            findings.add(finding.help("remove `*`, or the others"));
        }
    }
    if !cors.answer_preflight.get() {
        let message = "`max_age` is for answers to preflight requests";
        let finding = no_effect(cors.max_age.node, message).at_key();
        findings.add(finding.help("set `answer_preflight: true`, or remove it"));
    }
}

/// Compiles the changes to responses.
pub(crate) struct ResponseCompiler<'a> {
    responses: &'a Responses,
    fields: Option<Arc<FieldChanges>>,
    cors: Option<Arc<cors::Cors>>,
}

impl<'a> ResponseCompiler<'a> {
    pub(crate) fn new(responses: &'a Responses) -> Self {
        Self {
            responses,
            fields: changes(&written!(responses)),
            cors: cors(&responses.cors),
        }
    }

    /// The changes to responses of a checked route, or of none.
    pub(crate) fn changes(&self, route: Option<&Route>) -> ResponseChanges {
        let own = route.and_then(|route| changes(&written!(route.response)));
        let own_cors = route.and_then(|route| route.response.cors.as_ref());
        ResponseChanges {
            fields: self.fields.iter().cloned().chain(own).collect(),
            cors: match own_cors {
                Some(own) => cors(own),
                None => self.cors.clone(),
            },
        }
    }

    /// The handling of preflight requests on a route, or on none.
    pub(crate) fn preflight(&self, route: Option<&Route>) -> Preflight {
        let own = route.and_then(|route| route.response.cors.as_ref());
        let limited = &own.unwrap_or(&self.responses.cors).limit_preflight;
        limited.choose(Preflight::Limited, Preflight::Exempt)
    }
}

/// `None` if there are none.
fn changes(written: &Written<'_>) -> Option<Arc<FieldChanges>> {
    let fields = |table: &Table<FieldName, FieldValue>| {
        let fields = table.iter();
        let text = |value: &FieldValue| FieldText::parse(value.get()).ok();
        let fields = fields.filter_map(|(name, value)| Some((name.get().clone(), text(value)?)));
        fields.collect()
    };
    let removed = written.removed.iter();
    let changes = FieldChanges {
        removed: removed.map(|name| name.get().clone()).collect(),
        set: fields(written.set),
        added: fields(written.added),
    };
    (changes != FieldChanges::default()).then(|| Arc::new(changes))
}

/// `None` if no origin may read responses.
fn cors(cors: &Cors) -> Option<Arc<cors::Cors>> {
    let origins = cors.origins.as_ref()?;
    Some(Arc::new(cors::Cors {
        origins: origins.values(),
        credentials: cors.credentials.get(),
        preflight: cors
            .answer_preflight
            .get()
            .then(|| HeaderValue::from(cors.max_age.get().as_secs())),
    }))
}
