//! `access`: which requests are served at all.

use std::sync::Arc;

use http::StatusCode;

use crate::config::sections::condition::{self, ConditionCompiler};
use crate::config::sections::prelude::*;
use crate::rules;

/// The status of denied requests.
pub type DeniedStatus = Whole<400, 599, 403>;

/// The time after which a denied client may come again.
pub type DeniedRetryAfter = Duration<SECOND, { 7 * DAY }, SECOND>;

/// `access`, on top for all requests, or of a route: which requests are served. Others meet only the
/// top-level limits by address, and those that `count` their status.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("anyOf" = [{ "required": ["allow"] }, { "required": ["deny"] }]))]
pub struct Access {
    /// Only requests for which one of these conditions is true are served. A condition on a field
    /// that has different values isn't true.
    #[schemars(length(min = 1))]
    pub allow: Option<List<Condition>>,
    /// Requests for which one of these conditions is true are denied, also if `allow` has them. A
    /// condition on a field that has different values counts as true.
    #[schemars(length(min = 1))]
    pub deny: Option<List<Condition>>,
    /// The status of the answer to denied requests, 400 to 599.
    pub status: Located<DeniedStatus>,
    /// `Retry-After` of the answer, `1s` to `7d`; none unless given.
    pub retry_after: Option<Located<DeniedRetryAfter>>,
}

impl Access {
    /// All conditions.
    pub(in crate::config) fn conditions(&self) -> impl Iterator<Item = &Located<Condition>> {
        let lists = self.allow.iter().chain(&self.deny);
        lists.flat_map(|list| list.iter())
    }
}

/// Checks the rules at `node`.
pub(crate) fn check(access: &Access, node: NodeId, config: &Config, findings: &Findings<'_>) {
    if access.allow.is_none() && access.deny.is_none() {
        let finding = missing(node, "expected `allow` or `deny`");
        findings.add(finding.help("add one, as in `deny: [{ cidr: [192.0.2.0/24] }]`"));
    }
    report_empty_options(node, findings);
    for condition in access.conditions() {
        condition::check(condition, condition.node, config, findings);
    }
}

/// Compiles checked rules, which stand at `place`.
pub(crate) fn compile(
    access: &Access,
    place: String,
    conditions: ConditionCompiler<'_>,
) -> Arc<rules::Access> {
    let list = |list: &Option<List<Condition>>| {
        let list = list.as_ref();
        list.map_or_else(Vec::new, |list| conditions.list(list))
    };
    let status = StatusCode::from_u16(access.status.get() as u16);
    Arc::new(rules::Access {
        place,
        allow: list(&access.allow),
        deny: list(&access.deny),
        status: status.unwrap_or(StatusCode::FORBIDDEN),
        retry_after: access.retry_after.as_ref().map(|after| after.get()),
        challenge: None,
    })
}
