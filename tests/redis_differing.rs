//! Proxies that were told different things of the same policy, as while its quota is being changed on one after the other.

mod support;

use std::thread;

use support::client::Connection;
use support::gateway::Gateway;
use support::redis::RedisServer;
use support::shared::{store, wait_up};

/// How many of 100 requests at each of two proxies are admitted, one of which has a quota of 40, and the other of 60.
fn admitted(redis: &RedisServer, name: &str, policy: &str) -> usize {
    let gateways = [40, 60].map(|quota| {
        let gateway = Gateway::start(&format!(
            "{}policies: {{ {name}: {{ store: redis, key: constant, quota: {quota}/300d, {policy} }} }}
routes: [{{ upstream: echo, limits: [{name}] }}]
",
            store(redis.address).replace("characters", "characters, refusal_cache: 0s")
        ));
        wait_up(&gateway);
        gateway
    });
    let ask = |gateway: &Gateway| {
        let mut connection = Connection::open(gateway.address());
        let answers = (0..50).map(|_| connection.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        answers.filter(|answer| answer.status == 200).count()
    };
    thread::scope(|scope| {
        let twice = gateways.iter().chain(&gateways);
        let clients: Vec<_> = twice.map(|gateway| scope.spawn(|| ask(gateway))).collect();
        let clients = clients.into_iter();
        clients.map(|client| client.join().expect("no panic")).sum()
    })
}

#[test]
fn with_different_quotas_they_admit_as_much_as_the_larger() {
    let redis = RedisServer::start();
    for algorithm in ["gcra", "fixed_window", "sliding_window", "sliding_log"] {
        let policy = format!("algorithm: {algorithm}");
        assert_eq!(admitted(&redis, algorithm, &policy), 60, "{algorithm}");
        // Who goes on asking owes, so that it may be less.
        let policy = format!("algorithm: {algorithm}, charge_refused: true");
        let admitted = admitted(&redis, &format!("owing-{algorithm}"), &policy);
        assert!((40..=60).contains(&admitted), "{algorithm}: {admitted}");
    }
}
