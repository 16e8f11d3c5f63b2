//! Checks of `store.redis`: one address, and no policies that Redis cannot hold.

use super::{SECRET, URL, unverified};
use crate::config::node_of;
use crate::config::schema::{Config, Policy, RedisStore, StoreName};
use crate::config::sections::algorithm;
use crate::config::sections::secret_value::{self, SecretValue};
use crate::config::validate::{report_empty, report_twice};
use crate::config::value::ServerAddress;
use crate::config::{Code, Finding, Findings, List, Located, NodeId};
use crate::store::redis::client::Spec;

pub(in crate::config) fn check(config: &Config, findings: &Findings<'_>) {
    let Some(redis) = &config.store.redis else {
        return;
    };
    if redis_policies(config).next().is_none() {
        let finding = Finding::warning(redis.node, Code::Unused, "no policy is in Redis").at_key();
        findings.add(finding.help("say `store: redis` of one, or remove the section"));
    }
    check_target(redis, redis.node, findings);
    if let Some(cluster) = &redis.cluster {
        check_addresses(cluster, "name a node at least: `[redis-1:6379]`", findings);
    }
    if let Some(sentinel) = &redis.sentinel {
        let help = "name a sentinel at least: `[sentinel-1:26379]`";
        check_addresses(&sentinel.addresses, help, findings);
        if sentinel.master.as_str().is_empty() {
            let message = "a master without a name";
            let finding = Finding::error(sentinel.master.node, Code::NoValue, message);
            findings.add(finding.help("say what the sentinels call it: `master: mymaster`"));
        }
    }
    if let Some(url) = &redis.url {
        check_url(url, redis, findings);
    }
    check_database(redis, findings);
    check_secret(redis, findings);
    check_refusal_cache(config, redis, findings);
}

/// The policies with `store: redis`, named and in place.
fn redis_policies(config: &Config) -> impl Iterator<Item = &Policy> {
    let all = config.all_policies();
    all.filter(|policy| policy.store.value == StoreName::Redis)
}

/// The settings that give the address of Redis.
fn targets(redis: &RedisStore) -> Vec<(&'static str, NodeId)> {
    let places = [
        ("url", node_of(&redis.url)),
        ("cluster", node_of(&redis.cluster)),
        ("sentinel", node_of(&redis.sentinel)),
    ];
    let given = places.into_iter();
    given.filter_map(|(key, node)| Some((key, node?))).collect()
}

fn check_target(redis: &RedisStore, node: NodeId, findings: &Findings<'_>) {
    match targets(redis).as_slice() {
        [] => {
            let message = "nothing says where Redis is";
            let finding = Finding::error(node, Code::MissingKey, message);
            findings.add(finding.help(
                "name one server (`url: redis://redis:6379`), nodes of a `cluster`, or a `sentinel`",
            ));
        }
        [_] => {}
        [(first, at), others @ ..] => {
            for (other, node) in others {
                let message = format!("`{other}` beside `{first}`: there is one Redis");
                let finding = Finding::error(*node, Code::Conflict, message).at_key();
                findings.add(finding.related(*at, "the other").help("keep one of them"));
            }
        }
    }
}

fn check_addresses(list: &List<ServerAddress>, help: &str, findings: &Findings<'_>) {
    report_empty(list, findings, help);
    report_twice(list, findings);
}

fn check_url(written: &Located<SecretValue>, redis: &RedisStore, findings: &Findings<'_>) {
    secret_value::check(written, &URL, findings);
    let spec = written
        .text()
        .map(|url| Spec::from_url(url, Some(unverified())));
    // What a file has is seen at the start.
    let Some(Ok(spec)) = spec else { return };
    for (key, node) in repeated_settings(&spec, redis) {
        let message = format!("`{key}` beside a URL that says it");
        let finding = Finding::error(node, Code::Conflict, message).at_key();
        let finding = finding.related(written.node, "the URL");
        findings.add(finding.help("say it in one place"));
    }
    if let Some(tls) = redis.tls.as_ref().filter(|_| spec.tls.is_none()) {
        let message = "`tls` beside a URL without TLS";
        let finding = Finding::error(tls.node, Code::NoEffect, message).at_key();
        let finding = finding.related(written.node, "the URL");
        findings.add(finding.help("write the URL with `rediss://`, or remove `tls`"));
    }
}

/// Settings that repeat a part of the URL.
fn repeated_settings(spec: &Spec, redis: &RedisStore) -> Vec<(&'static str, NodeId)> {
    let user = node_of(&redis.user).filter(|_| spec.login.user.is_some());
    let password = node_of(&redis.password).filter(|_| spec.login.password.is_some());
    let both = [("user", user), ("password", password)].into_iter();
    both.filter_map(|(key, node)| Some((key, node?))).collect()
}

fn check_database(redis: &RedisStore, findings: &Findings<'_>) {
    let Some(database) = &redis.database else {
        return;
    };
    let (message, help) = match targets(redis).as_slice() {
        [("url", _)] => (
            "a URL has the number of its database in its path",
            "write it there, as in `redis://redis:6379/2`, and remove `database`",
        ),
        [("cluster", _)] => ("a cluster has one database", "remove `database`"),
        _ => return,
    };
    let finding = Finding::error(database.node, Code::Conflict, message).at_key();
    findings.add(finding.help(help));
}

fn check_secret(redis: &RedisStore, findings: &Findings<'_>) {
    let Some(secret) = &redis.secret else { return };
    secret_value::check(secret, &SECRET, findings);
    if redis.readable_keys.get() {
        let message = "a secret is for keys that are hashed, and these are readable";
        let finding = Finding::error(secret.node, Code::Conflict, message);
        let finding = finding.related(redis.readable_keys.node, "they are written as they are");
        findings.add(finding.help("remove `secret`, or `readable_keys`"));
    }
}

pub(in crate::config) fn check_policy(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    if policy.store.value == StoreName::Redis && config.store.redis.is_none() {
        let message = "nothing says where Redis is";
        let finding = Finding::error(policy.store.node, Code::MissingKey, message);
        findings.add(finding.help("say it: `store: { redis: { url: redis://redis:6379 } }`"));
    }
    algorithm::check_store(policy, findings);
}

/// Warns of `refusal_cache` if no policy calls Redis for requests.
fn check_refusal_cache(config: &Config, redis: &RedisStore, findings: &Findings<'_>) {
    let mut policies = redis_policies(config).peekable();
    let is_called = policies.peek().is_none() || policies.any(|policy| policy.sync.is_none());
    if redis.refusal_cache.node == NodeId::ABSENT || is_called {
        return;
    }
    let message = "no policy asks Redis about requests: all are synchronised";
    let finding = Finding::warning(redis.refusal_cache.node, Code::NoEffect, message);
    findings.add(finding.help("remove `refusal_cache`"));
}
