//! Shared buckets: calls that take too long, and readable keys.

use super::{AppliedPolicy, Config, Finding, RouteLimits, policies};
use crate::config::diagnostic::Code;
use crate::config::schema::{RedisStore, StoreName};
use crate::config::value::KeyPart;

/// The least ratio of a window to the deadline of a call, or to the synchronisation interval.
const LEAST_RATIO: u32 = 10;

/// Words in the names of fields and parameters that hold credentials.
const CREDENTIALS: [&str; 10] = [
    "apikey",
    "auth",
    "authorization",
    "cookie",
    "key",
    "password",
    "secret",
    "session",
    "sid",
    "token",
];

/// All lints about Redis; none without `store.redis`.
pub(super) fn shared_buckets(config: &Config, places: &[RouteLimits<'_>]) -> Vec<Finding> {
    let Some(redis) = &config.store.redis else {
        return Vec::new();
    };
    let all = policies(places);
    let shared: Vec<_> = all.into_iter().filter(AppliedPolicy::is_shared).collect();
    let guessable = guessable_keys(redis) && !shared.is_empty();
    let guessable = guessable.then(|| {
        let message = "a reader of Redis can guess keys";
        Finding::warning(redis.node, Code::GuessableKeys, message)
            .at_key()
            .help("hash them under a secret, the same on all machines: `secret: ${SLUICEGATE_SECRET}`")
    });
    let mut findings = Vec::from_iter(guessable);
    for applied in &shared {
        findings.extend(short_window(applied, redis));
        findings.extend(slow_sync(applied));
        findings.extend(credentials(applied, redis));
    }
    findings
}

fn guessable_keys(redis: &RedisStore) -> bool {
    redis.secret.is_none() && !redis.readable_keys.get()
}

/// Warns of a window that is nearly over when Redis answers.
fn short_window(applied: &AppliedPolicy<'_>, redis: &RedisStore) -> Option<Finding> {
    let least = redis.timeout.get() * LEAST_RATIO;
    let window = Some(applied.window()).filter(|window| !window.is_zero() && *window < least)?;
    if applied.policy.sync.is_some() {
        return None;
    }
    let message = format!(
        "Redis may take up to {:?} to answer, a large part of {window:?}",
        redis.timeout.get()
    );
    let finding = Finding::warning(applied.quota_node(), Code::ShortWindow, message);
    let finding = finding.related(redis.timeout.node, "the longest that it may take");
    Some(finding.help(format!(
        "use a window of {least:?} or longer, lower `timeout`, or use `store: memory`"
    )))
}

/// Warns of a window of which machines admit a large part before they hear of each other. With
/// demand for the whole quota on each machine, all but one admit `interval / window` of it unheard.
fn slow_sync(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let interval = applied.policy.sync.as_ref()?;
    let least = interval.get() * LEAST_RATIO;
    let window = Some(applied.window()).filter(|window| !window.is_zero() && *window < least)?;
    let message = format!(
        "machines hear of each other every {:?} only, a large part of {window:?}",
        interval.get()
    );
    let finding = Finding::warning(interval.node, Code::SlowSync, message);
    let finding = finding.related(applied.quota_node(), "the window");
    Some(finding.help(format!(
        "synchronise more often, use a window of {least:?} or longer, or remove `sync`"
    )))
}

/// Warns of credentials among readable key parts.
fn credentials<'a>(
    applied: &'a AppliedPolicy<'_>,
    redis: &'a RedisStore,
) -> impl Iterator<Item = Finding> + use<'a> {
    let parts = applied.policy.key.0.iter();
    let secret = parts.filter(|part| redis.readable_keys.get() && is_credential(part));
    secret.map(|part| {
        let message = format!("a reader of Redis can see `{}`", part.value);
        Finding::warning(part.node, Code::ReadableCredentials, message)
            .related(redis.readable_keys.node, "keys are written as they are")
            .help("hash keys under a `secret` instead of `readable_keys: true`")
    })
}

fn is_credential(part: &KeyPart) -> bool {
    let sounds_so = |name: &str| {
        let name = name.to_ascii_lowercase();
        let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| CREDENTIALS.contains(&word))
    };
    match part {
        KeyPart::Cookie(_) => true,
        KeyPart::Header(name) => sounds_so(name.get().as_str()),
        KeyPart::Query(name) => sounds_so(name),
        _ => false,
    }
}

impl AppliedPolicy<'_> {
    /// True if Redis has the usage of its buckets.
    pub(super) fn is_shared(&self) -> bool {
        self.policy.store.value == StoreName::Redis
    }

    /// True if its buckets are in memory, which may be full.
    pub(super) fn is_in_memory(&self) -> bool {
        !self.is_shared() || self.policy.sync.is_some()
    }
}
