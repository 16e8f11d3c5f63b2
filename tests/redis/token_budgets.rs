//! The budget of docs/token-budgets.md over two proxies, in Redis and synchronised.

use std::sync::atomic::Ordering::Relaxed;

use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{proxies, retry_after};
use crate::support::token_budgets::{BUDGET, CALL, call, config, model, recovered, spend};
use crate::support::{now, wait_for};

#[test]
fn two_proxies_give_one_budget() {
    for (options, fields) in [
        ("    store: redis\n", ""),
        ("    store: redis\n", "x-estimate: 1\r\n"),
        ("    store: redis\n    sync: 50ms\n", "x-estimate: 1\r\n"),
    ] {
        let redis = RedisServer::start();
        let (model, given) = model();
        let both: [Gateway; 2] = proxies(&redis, &config(&model, options));
        let addresses = [both[0].address(), both[1].address()];
        let started = now();
        let most = spend(&addresses, fields);
        let given = given.load(Relaxed);
        // Redis, or the other proxy, learns the cost a moment after the response.
        let most = most + 8 * CALL;
        assert!(
            (BUDGET..=most).contains(&given),
            "{given} of {most}: {options}"
        );
        // Each of them announces what the client owes to both.
        for gateway in &both {
            wait_for("the whole debt", || {
                let refused = call(gateway.address(), fields);
                let wait = if refused.status == 429 {
                    retry_after(&refused)
                } else {
                    0
                };
                let owed = (given - BUDGET).saturating_sub(recovered(started.elapsed()));
                (wait * BUDGET / 60 >= owed).then_some(())
            });
        }
    }
}
