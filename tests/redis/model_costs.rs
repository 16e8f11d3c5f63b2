//! A budget of dollars that proxies share in Redis.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::support::client::Response;
use crate::support::costs::left;
use crate::support::gateway::Gateway;
use crate::support::model_server::{COST, PRICES, call, model_server, write_prices};
use crate::support::redis::RedisServer;
use crate::support::shared::{proxies, store};
use crate::support::steering::{ask, lookup, shared_config};
use crate::support::wait_for;

/// The largest price of a stream, a hundredth of a dollar, is reserved. Then its cost counts. While they
/// run, one proxy is reloaded, and another upgraded.
#[test]
fn forty_parallel_streams_over_three_proxies_share_a_budget_for_ten() {
    let redis = RedisServer::start();
    let server = model_server(Duration::from_millis(1500));
    let directory = tempfile::tempdir().expect("a directory");
    write_prices(directory.path(), PRICES);
    let prices = directory.path().join("prices.csv");
    let config = format!(
        "policies: {{ p: {{ unit: usd, quota: $0.10/1d, algorithm: fixed_window, store: redis, \
         cost: {{ settle: anthropic, prices: '{}', model: header:x-model, reserve: {{ from: [header:x-max], default: 5 }} }} }} }}\n\
         routes: [{{ name: a, upstream: '{}', limits: [p] }}]\n",
        prices.display(),
        server.url()
    );
    let mut all: [Gateway; 3] = proxies(&redis, &config);
    let stream = |address: SocketAddr, most: u32| -> Response {
        let fields = format!("x-model: small\r\nx-max: {most}\r\n");
        let body = r#"{"model":"small","stream":true}"#;
        call(address, "/v1/messages", &fields, body)
    };
    let statuses: Vec<u16> = thread::scope(|scope| {
        let addresses = all.iter().map(Gateway::address).cycle().take(40);
        let streams: Vec<_> = addresses
            .map(|address| scope.spawn(move || stream(address, 1_000).status))
            .collect();
        wait_for("ten streams", || {
            (server.requests().len() == 10).then_some(())
        });
        all[0].reload(&format!("{}# Again.\n{config}", store(redis.address)));
        all[1].upgrade();
        let joined = streams.into_iter().map(|stream| stream.join());
        joined.map(|status| status.expect("a response")).collect()
    });
    let served = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!((served, refused), (10, 30));
    // Redis gets what was not used a moment after the streams.
    let used = 10 * COST;
    wait_for("the settlements", || {
        let whole = stream(all[2].address(), 9_999);
        assert_eq!(whole.status, 429, "nine hundredths more than there is");
        (left(&whole) == (100_000 - used) as usize).then_some(())
    });
    for gateway in &all {
        assert_eq!(stream(gateway.address(), 1_000).status, 200);
    }
}

/// 12,000,500,000 millionths of a dollar: more than 32 bits have.
#[test]
fn machines_share_more_units_than_32_bits_have() {
    let redis = RedisServer::start();
    let policy =
        "unit: usd, quota: $12000.50/300d, algorithm: fixed_window, start: staggered, cost: $1000";
    let config = shared_config(&[policy, &format!("sync: 50ms, {policy}")]);
    let both: [Gateway; 2] = proxies(&redis, &config);
    for path in ["/0", "/1"] {
        for spent in 1..=11 {
            let response = ask(&both[0], path, "a");
            let unspent = 12_000_500_000 - spent * 1_000_000_000;
            assert_eq!((response.status, left(&response)), (200, unspent), "{path}");
        }
        assert_eq!(ask(&both[1], path, "a").status, 200);
        for gateway in &both {
            wait_for("what the other spent", || {
                let state = lookup(gateway, &path.replace('/', "p"), "a");
                (state["remaining"] == 500_000).then_some(())
            });
            let refused = ask(gateway, path, "a");
            assert_eq!((refused.status, left(&refused)), (429, 500_000), "{path}");
        }
    }
}
