//! Policies whose keys operators steer, one on each path.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::admin::{AdminClient, READER, TOKENS, json as answer};
use super::client::{Response, get_with};
use super::gateway::Gateway;
use super::wall_clock;

/// An end of grants that tests do not reach, and the API takes.
pub static UNTIL: LazyLock<String> = LazyLock::new(|| {
    let end = jiff::Timestamp::try_from(wall_clock() + DAY * 90).expect("it is within range");
    let end = jiff::Timestamp::from_second(end.as_second()).expect("it is within range");
    end.to_string()
});

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A gateway with policies `p0` and so on, each on its path `/0`, by the field `x-key`.
pub fn config(policies: &[impl AsRef<str>]) -> String {
    let all = || policies.iter().map(AsRef::as_ref).enumerate();
    let written =
        all().map(|(place, policy)| format!("  p{place}: {{ key: \"header:x-key\", {policy} }}\n"));
    let routes = all().map(|(place, _)| {
        format!("  - {{ name: r{place}, match: {{ path: /{place} }}, upstream: echo, limits: [p{place}] }}\n")
    });
    format!(
        "{TOKENS}policies:\n{}routes:\n{}",
        written.collect::<String>(),
        routes.collect::<String>()
    )
}

/// The same with buckets in Redis.
pub fn shared_config(policies: &[&str]) -> String {
    let shared = policies
        .iter()
        .map(|policy| format!("store: redis, {policy}"));
    config(&shared.collect::<Vec<_>>())
}

pub fn ask(gateway: &Gateway, path: &str, key: &str) -> Response {
    get_with(gateway.address(), path, &format!("x-key: {key}\r\n"))
}

/// The number of requests, at most 50, that are allowed before one is refused.
pub fn admitted(gateway: &Gateway, path: &str, key: &str) -> usize {
    let statuses = (0..50).map(|_| ask(gateway, path, key).status);
    statuses.take_while(|status| *status == 200).count()
}

#[track_caller]
pub fn lookup(gateway: &Gateway, policy: &str, key: &str) -> Value {
    let api = AdminClient::new(gateway, READER);
    answer(&api.post("/v1/keys/lookup", &json!({ "policy": policy, "key": key })))
}

/// Does this to the key `a`, and returns the state afterwards.
#[track_caller]
pub fn steer(gateway: &Gateway, action: &str, policy: &str, more: Value) -> Value {
    let mut body = json!({ "policy": policy, "key": "a" });
    body.as_object_mut()
        .expect("a map")
        .extend(more.as_object().expect("a map").clone());
    let api = AdminClient::writer(gateway);
    answer(&api.post(&format!("/v1/keys/{action}"), &body))["after"].take()
}

/// Grants units to the key `a`, and returns the state afterwards.
#[track_caller]
pub fn grant(gateway: &Gateway, policy: &str, units: usize) -> Value {
    steer(
        gateway,
        "grant",
        policy,
        json!({ "units": units, "until": *UNTIL }),
    )
}
