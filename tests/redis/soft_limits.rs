//! Soft limits on buckets in Redis, exact and synchronised.

use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::wait_for;

#[test]
fn requests_beyond_a_soft_limit_are_charged_once_in_redis() {
    let redis = RedisServer::start();
    let algorithms = ["gcra", "fixed_window", "sliding_window", "sliding_log"];
    for (place, algorithm) in algorithms.into_iter().enumerate() {
        for sync in ["", "sync: 50ms, "] {
            if algorithm == "sliding_log" && !sync.is_empty() {
                continue;
            }
            let gateway = Gateway::start(&format!(
                "store: {{ redis: {{ url: \"{}\", timeout: 1s, secret: sixteen-characters, prefix: \"{place}{}:\" }} }}
policies:
  keys: {{ key: header:x-key, algorithm: {algorithm}, quota: 5/30d, store: redis, {sync}soft_limits: [
    {{ above: 1, on_limit: {{ action: tag }} }}, {{ above: 2, on_limit: {{ status: 420 }} }} ] }}
routes: [{{ upstream: echo, limits: [keys] }}]
",
                redis.url(),
                sync.len(),
            ));
            let ask = |key: &str| get_with(gateway.address(), "/", &format!("x-key: {key}\r\n"));
            wait_for("the store", || (ask("up").status == 200).then_some(()));
            let responses: Vec<_> = (0..6).map(|_| ask("a")).collect();
            let statuses: Vec<_> = responses.iter().map(|one| one.status).collect();
            assert_eq!(
                statuses,
                [200, 200, 420, 420, 420, 429],
                "{algorithm} {sync}"
            );
            assert!(
                responses[2].header("retry-after").is_some(),
                "{algorithm} {sync}"
            );
            let tagged: Vec<_> = responses
                .iter()
                .map(|one| one.text().contains("x-over-limit: keys/1"))
                .collect();
            assert_eq!(
                tagged,
                [false, true, false, false, false, false],
                "{algorithm} {sync}"
            );
        }
    }
}

#[test]
fn the_wait_ends_when_the_soft_limit_lets_pass_again() {
    let redis = RedisServer::start();
    for (algorithm, wait) in [("gcra", "2"), ("token_bucket", "2")] {
        let gateway = Gateway::start(&format!(
            "store: {{ redis: {{ url: \"{}\", timeout: 1s, secret: sixteen-characters, prefix: \"{algorithm}:\" }} }}
policies:
  p: {{ key: header:x-key, algorithm: {algorithm}, quota: 100/100s, store: redis, soft_limits: [{{ above: 3, on_limit: {{ status: 420 }} }}] }}
routes: [{{ upstream: echo, limits: [p] }}]
",
            redis.url()
        ));
        let ask = |key: &str| get_with(gateway.address(), "/", &format!("x-key: {key}\r\n"));
        wait_for("the store", || (ask("up").status == 200).then_some(()));
        let responses = [ask("a"), ask("a"), ask("a"), ask("a")];
        let last = &responses[3];
        assert_eq!(last.status, 420);
        assert_eq!(last.expect_header("retry-after"), wait, "{algorithm}");
    }
}
