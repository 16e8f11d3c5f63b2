//! What docs/token-budgets.md promises of tokens.

use std::sync::atomic::Ordering::Relaxed;

use crate::support::gateway::Gateway;
use crate::support::now;
use crate::support::shared::retry_after;
use crate::support::token_budgets::{BUDGET, call, config, model, recovered, spend};

/// Whatever the estimate is, a client gets its budget and what was in flight when that ran out.
#[test]
fn a_budget_holds_whatever_is_estimated() {
    for fields in ["", "x-estimate: 1\r\n", "x-estimate: 20000\r\n"] {
        let (model, given) = model();
        let gateway = Gateway::start(&config(&model, ""));
        let most = spend(&[gateway.address()], fields);
        let given = given.load(Relaxed);
        assert!(
            (BUDGET..=most).contains(&given),
            "{given} of {most}: {fields}"
        );
    }
}

/// The refusal says when the debt is over, and the fields that nothing is left until then.
#[test]
fn a_client_in_debt_is_told_when_it_is_over() {
    let (model, given) = model();
    let gateway = Gateway::start(&config(&model, ""));
    let started = now();
    spend(&[gateway.address()], "");
    let refused = call(gateway.address(), "");
    let waited = recovered(started.elapsed());
    assert_eq!(refused.status, 429);
    assert_eq!(refused.expect_header("x-ratelimit-remaining-tokens"), "0");
    // Until the bucket has the 500 tokens that a call reserves.
    let missing = given.load(Relaxed) - BUDGET + 500;
    let wait = retry_after(&refused);
    let tokens = wait * BUDGET / 60;
    let second = BUDGET / 60 + 1;
    assert!(
        (missing.saturating_sub(waited)..=missing + second).contains(&tokens),
        "{wait} s for {missing} tokens"
    );
    // With the least estimate too.
    let thrifty = call(gateway.address(), "x-estimate: 1\r\n");
    assert_eq!(thrifty.status, 429);
    // Another budget forgives no debt. What was used of the old one leaves the rest of the new one.
    gateway.reload(&config(&model, "").replace("200000/1m", "210000/1m"));
    let refused = call(gateway.address(), "");
    let owed = missing.saturating_sub(recovered(started.elapsed()) + 10_000 + second);
    assert_eq!(refused.status, if owed > 0 { 429 } else { refused.status });
    let wait = retry_after(&refused);
    assert!(wait * 210_000 / 60 >= owed, "{wait} s for {owed} tokens");
}
