//! Shared buckets: calls that take too long, and readable keys.

use std::time::Duration;

use super::AppliedPolicy;
use crate::config::sections::prelude::*;

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

/// Warns of keys in Redis whose hashes have no secret.
pub(super) fn guessable_keys(config: &Config, policies: &[AppliedPolicy<'_>]) -> Option<Finding> {
    let redis = config.store.redis.as_ref()?;
    let is_used = policies.iter().any(AppliedPolicy::is_shared);
    let message = "a reader of Redis can guess keys";
    let finding = Finding::warning(redis.node, Code::GuessableKeys, message).at_key();
    let help = "hash them under a secret, the same on all machines: `secret: ${SLUICEGATE_SECRET}`";
    (is_used && redis.secret.is_none() && !redis.readable_keys.get()).then(|| finding.help(help))
}

/// Warns of a window that is nearly over when Redis answers.
pub(super) fn short_window(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    let timeout = &applied.redis()?.timeout;
    let (window, least) = applied.window_below(timeout.get() * LEAST_RATIO)?;
    if applied.policy.sync.is_some() {
        return None;
    }
    let message = format!(
        "Redis may take up to {:?} to answer, a large part of {window:?}",
        timeout.get()
    );
    let finding = Finding::warning(applied.quota_node(), Code::ShortWindow, message);
    let finding = finding.related(timeout.node, "the longest that it may take");
    Some(finding.help(format!(
        "use a window of {least:?} or longer, lower `timeout`, or use `store: memory`"
    )))
}

/// Warns of a window of which machines admit a large part before they hear of each other. With
/// demand for the whole quota on each machine, all but one admit `interval / window` of it unheard.
pub(super) fn slow_sync(applied: &AppliedPolicy<'_>) -> Option<Finding> {
    applied.redis()?;
    let interval = applied.policy.sync.as_ref()?;
    let (window, least) = applied.window_below(interval.get() * LEAST_RATIO)?;
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

/// Warns of a credential among readable key parts.
pub(super) fn readable_credentials(
    part: &Located<KeyPart>,
    applied: &AppliedPolicy<'_>,
) -> Option<Finding> {
    let readable = &applied.redis()?.readable_keys;
    if !readable.get() || !is_credential(part) {
        return None;
    }
    let message = format!("a reader of Redis can see `{part}`");
    let finding = Finding::warning(part.node, Code::ReadableCredentials, message);
    let finding = finding.related(readable.node, "keys are written as they are");
    Some(finding.help("hash keys under a `secret` instead of `readable_keys: true`"))
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
    /// The Redis that has its buckets, if it does.
    fn redis(&self) -> Option<&RedisStore> {
        let redis = self.config.store.redis.as_deref();
        redis.filter(|_| self.is_shared())
    }

    /// Its window, and `least`, if the window is shorter.
    fn window_below(&self, least: Duration) -> Option<(Duration, Duration)> {
        let window = self.window();
        (!window.is_zero() && window < least).then_some((window, least))
    }

    /// True if Redis has the usage of its buckets.
    pub(super) fn is_shared(&self) -> bool {
        self.policy.store.value == StoreName::Redis
    }
}
