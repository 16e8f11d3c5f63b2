//! Checks beyond the types: names resolve, settings fit together, nothing stands twice. Every check
//! adds its findings and goes on.

use super::Findings;
use super::schema::Config;
use super::sections::{
    access, access_log, admin, clients, exception, jwt, listener, policy, redis, responses, route,
    traces, upstream,
};

/// Checks a whole configuration.
pub(super) fn validate(config: &Config, findings: &Findings<'_>) {
    listener::check(config, findings);
    admin::check(config, findings);
    access_log::check(config, findings);
    traces::check(config, findings);
    upstream::check(config, findings);
    jwt::check(config, findings);
    clients::check(config, findings);
    redis::check(config, findings);
    policy::check(config, findings);
    if let Some(rules) = &config.access {
        access::check(rules, rules.node, config, findings);
    }
    exception::check_top_level(config, findings);
    route::check_limits(config, findings);
    route::check(config, findings);
    responses::check(config, findings);
}
