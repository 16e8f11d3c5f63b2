//! Requests that state their quota, on one bucket of two machines.

use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::proxies;

#[test]
fn machines_share_one_bucket_of_all_stated_limits() {
    let redis = RedisServer::start();
    let algorithms = [
        "fixed_window",
        "sliding_window",
        "sliding_window, precision: 60, oldest: whole",
        "sliding_log",
        "fixed_window, charge_refused: true, cost: 2",
    ];
    for (place, algorithm) in algorithms.into_iter().enumerate() {
        let gateways: [Gateway; 2] = proxies(
            &redis,
            &format!(
                "responses: {{ headers: [github] }}
policies:
  p{place}: {{ key: \"header:x-key\", algorithm: {algorithm}, store: redis, on_store_error: refuse, quota: {{ from: header:x-rate, per: 300d, default: 3, max: 10 }} }}
routes: [{{ upstream: echo, limits: [p{place}] }}]
"
            ),
        );
        let mut turn = gateways.iter().cycle();
        let mut ask = |rate: u32| {
            let address = turn.next().expect("it goes round").address();
            let told = get_with(address, "/", &format!("x-key: a\r\nx-rate: {rate}\r\n"));
            let field = |name: &str| told.expect_header(name).parse::<u32>().expect("a number");
            let fields = [field("x-ratelimit-limit"), field("x-ratelimit-remaining")];
            (told.status, fields)
        };
        if place == 4 {
            // What is refused counts up to the largest limit, and frees nothing.
            assert_eq!(ask(4), (200, [4, 2]), "{algorithm}");
            assert_eq!(ask(3), (429, [3, 0]), "{algorithm}");
            assert_eq!(ask(8), (200, [8, 2]), "{algorithm}");
            continue;
        }
        assert_eq!(ask(2), (200, [2, 1]), "{algorithm}");
        assert_eq!(ask(2), (200, [2, 0]), "{algorithm}");
        assert_eq!(ask(2), (429, [2, 0]), "{algorithm}");
        // Also where a machine remembers the refusal of a higher limit.
        assert_eq!(ask(1), (429, [1, 0]), "{algorithm}");
        assert_eq!(ask(0), (429, [0, 0]), "{algorithm}");
        assert_eq!(ask(4), (200, [4, 1]), "{algorithm}");
        assert_eq!(ask(99), (200, [10, 6]), "{algorithm}");
        assert_eq!(ask(4), (429, [4, 0]), "{algorithm}");
    }
}
