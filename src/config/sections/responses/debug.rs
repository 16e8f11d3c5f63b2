//! `responses.debug`: a field that adds the decisions of limits to responses.

use http::HeaderName;
use http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, RETRY_AFTER, SET_COOKIE};

use super::style_fields;
use crate::config::checks::is_framing;
use crate::config::sections::prelude::*;
use crate::config::sections::secret_value::{self, TOKEN};
use crate::proxy::DebugSpec;

/// `responses.debug`: requests that have the token in this field get the decisions of their limits
/// back in it. The field never reaches an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct DebugHeader {
    /// The field of requests that has the token, and of responses that has the decisions.
    #[serde(default = "header")]
    pub header: Located<FieldName>,
    /// The token that requests must have: 16 to 512 letters, digits and `-._~+/`, with `=` at the
    /// end only.
    pub token: Located<SecretValue>,
}

fn header() -> Located<FieldName> {
    FieldName::from(HeaderName::from_static("x-sluicegate-debug")).into()
}

/// Fields that requests or responses need.
const NEEDED: [HeaderName; 5] = [
    AUTHORIZATION,
    COOKIE,
    SET_COOKIE,
    CACHE_CONTROL,
    RETRY_AFTER,
];

/// Checks that the field has no other job: the proxy removes it from all requests.
pub(super) fn check(config: &Config, findings: &Findings<'_>) {
    let Some(debug) = &config.responses.debug else {
        return;
    };
    secret_value::check(&debug.token, &TOKEN, findings);
    let name = debug.header.get();
    let styles = config.responses.headers.iter();
    let mut written = styles.flat_map(|item| style_fields(item).names());
    let jwt = config.jwt.as_ref();
    let is_of_tokens = jwt.is_some_and(|jwt| jwt.header.get() == name);
    let is_needed = is_framing(name) || NEEDED.contains(name) || is_of_tokens;
    if is_needed || written.any(|field| field == *name) {
        let message = format!("`{name}` has another job, and would be removed from all requests");
        let finding = conflict(debug.header.node, message);
        findings.add(finding.help("choose a name of your own, as in `x-sluicegate-debug`"));
    }
}

impl Compiler<'_> {
    /// The debug header; `None` if it is not configured or, with a finding, has no usable token.
    pub(crate) fn debug_header(&mut self, config: &Config) -> Option<DebugSpec> {
        // Without files, nothing responds to clients.
        let is_used = self.key_files == KeyFiles::Needed;
        let debug = config.responses.debug.as_ref().filter(|_| is_used)?;
        Some(DebugSpec {
            header: debug.header.get().clone(),
            token: self.secret(&debug.token, &TOKEN)?,
        })
    }
}
