//! `health` of an upstream: addresses are checked, and those that fail are left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::schema::{HOUR, SECOND, Upstream};
use crate::config::validate::{report_empty, report_twice};
use crate::config::value::{Duration, HostField, OriginForm, StatusRange, Whole};
use crate::config::{Findings, List, Located};
use crate::upstream::HealthSpec;

/// `health` of an upstream.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// The path of the request, with a query if wanted.
    pub path: Located<OriginForm>,
    /// The time between two checks of an address, give or take 10 %, `1s` to `1h`.
    #[serde(default)]
    pub every: Located<Duration<SECOND, HOUR, { 5 * SECOND }>>,
    /// For a whole check, from the connection to the status, `1ms` to `1h`.
    #[serde(default)]
    pub timeout: Located<Duration<1, HOUR, { 2 * SECOND }>>,
    /// Failures in a row after which an address is left out, 1 to 100.
    #[serde(default)]
    pub unhealthy_after: Located<Whole<1, 100, 2>>,
    /// Successes in a row after which it is back, 1 to 100.
    #[serde(default)]
    pub healthy_after: Located<Whole<1, 100, 2>>,
    /// The statuses of an address that is well.
    #[serde(default = "successes")]
    #[schemars(length(min = 1))]
    pub status: List<StatusRange>,
    /// The `Host` of the request; that of the endpoint's URL by default.
    #[serde(default)]
    pub host: Option<Located<HostField>>,
}

fn successes() -> List<StatusRange> {
    vec![Located::from(StatusRange::new(200..=399))].into()
}

pub(super) fn check(upstream: &Upstream, findings: &Findings<'_>) {
    if let Some(health) = &upstream.health {
        let help = "name the statuses of an address that is well: `status: [200-399]`";
        report_empty(&health.status, findings, help);
        report_twice(&health.status, findings);
    }
}

pub(super) fn compile(health: &Health) -> HealthSpec {
    HealthSpec {
        path: health.path.get().clone(),
        host: health.host.as_ref().map(|host| host.get().clone()),
        every: health.every.get(),
        timeout: health.timeout.get(),
        unhealthy_after: health.unhealthy_after.get(),
        healthy_after: health.healthy_after.get(),
        statuses: health.status.iter().map(|one| one.range()).collect(),
    }
}
