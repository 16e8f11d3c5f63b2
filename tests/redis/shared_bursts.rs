//! Requests with a smaller burst on one bucket in Redis, also while it remembers refusals.

use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::wait_for;

#[test]
fn a_burst_alone_is_another_threshold_on_the_same_bucket() {
    let redis = RedisServer::start();
    for (place, algorithm) in ["gcra", "token_bucket"].into_iter().enumerate() {
        for cache in ["0s", "1s"] {
            let gateway = Gateway::start(&format!(
                "store: {{ redis: {{ url: \"{}\", timeout: 1s, secret: sixteen-characters, prefix: \"{place}{cache}:\", refusal_cache: {cache} }} }}
policies:
  keys:
    key: header:x-key
    algorithm: {algorithm}
    quota: 1/30d
    burst: 6
    store: redis
    on_store_error: refuse
    overrides: [{{ when: {{ path: /search }}, burst: 2 }}]
routes: [{{ upstream: echo, limits: [keys] }}]
",
                redis.url(),
            ));
            let address = gateway.address();
            let ask = |path: &str, key: &str| get_with(address, path, &format!("x-key: {key}\r\n"));
            wait_for("the store", || (ask("/", "up").status == 200).then_some(()));
            let first = ask("/search", "a");
            let told = first.expect_header("ratelimit");
            assert!(told.starts_with("\"keys\";r=1"), "{algorithm}: {told}");
            let policy = first.expect_header("ratelimit-policy");
            assert_eq!(policy, "\"keys\";q=2;w=5184000", "{algorithm}");
            let search: Vec<_> = (0..3).map(|_| ask("/search", "a").status).collect();
            assert_eq!(search, [200, 429, 429], "{algorithm} {cache}");
            let others: Vec<_> = (0..5).map(|_| ask("/", "a").status).collect();
            assert_eq!(others, [200, 200, 200, 200, 429], "{algorithm} {cache}");
            assert_eq!(ask("/search", "a").status, 429);
            assert_eq!([ask("/", "b").status, ask("/", "b").status], [200, 200]);
            assert_eq!(ask("/search", "b").status, 429, "{algorithm} {cache}");
        }
    }
}
