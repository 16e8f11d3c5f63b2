//! A quota that is lowered, and raised again: what was used of it stays used, on the machine itself
//! and on those that still have the higher quota.

use crate::support::client::get;
use crate::support::costs::left;
use crate::support::gateway::Gateway;
use crate::support::redis::RedisServer;
use crate::support::shared::{store, wait_up};

fn policies(limit: u32) -> String {
    let policy = |(place, algorithm): (usize, &str)| {
        let path = format!("match: {{ path: /{place} }}");
        (
            format!("  p{place}: {{ STORE key: constant, {algorithm} }}\n"),
            format!("  - {{ {path}, upstream: echo, limits: [p{place}] }}\n"),
        )
    };
    let algorithms = [
        format!("quota: {limit}/300d"),
        format!("algorithm: token_bucket, capacity: {limit}, refill: 1 per 10d"),
        format!("algorithm: fixed_window, start: first_request, quota: {limit}/300d"),
        format!("algorithm: sliding_window, oldest: whole, quota: {limit}/300d"),
        format!("algorithm: sliding_window, precision: 10, quota: {limit}/300d"),
        format!("algorithm: sliding_log, quota: {limit}/300d"),
    ];
    let all = algorithms
        .iter()
        .map(String::as_str)
        .enumerate()
        .map(policy);
    let (policies, routes): (String, String) = all.unzip();
    format!("policies:\n{policies}routes:\n{routes}")
}

/// The same requests and reloads give the same numbers in memory and in Redis.
#[test]
fn memory_and_redis_agree_after_any_quotas() {
    let redis = RedisServer::start();
    let here = |limit| policies(limit).replace("STORE", "");
    let there = |limit| {
        let store = store(redis.address).replace("characters", "characters, refusal_cache: 0s");
        format!(
            "{store}{}",
            policies(limit).replace("STORE", "store: redis,")
        )
    };
    let memory = Gateway::start(&here(10));
    let shared = Gateway::start(&there(10));
    wait_up(&shared);
    let mut requests = 8;
    // Any numbers, the same in each run.
    let any = (1_u32..20).map(|place| 1 + place.wrapping_mul(2_654_435_761) % 41);
    for limit in [10, 30, 20, 40, 5, 40].into_iter().chain(any) {
        memory.reload(&here(limit));
        shared.reload(&there(limit));
        for _ in 0..requests {
            for place in 0..6 {
                let path = format!("/{place}");
                let answers = [&memory, &shared].map(|gateway| get(gateway.address(), &path));
                let [ours, theirs] = answers.map(|answer| (answer.status, left(&answer)));
                assert_eq!(ours, theirs, "{path} at {limit}");
            }
        }
        requests = requests * 2 % 13;
    }
    assert_eq!(
        left(&get(memory.address(), "/2")),
        left(&get(shared.address(), "/2"))
    );
}

/// As in a rolling deploy: the first machine has the lower quota already, and refuses.
#[test]
fn a_rolling_deploy_of_a_lower_quota_admits_no_more_than_the_higher() {
    let redis = RedisServer::start();
    let config = |limit: u32| {
        let store = store(redis.address).replace("characters", "characters, refusal_cache: 0s");
        let kinds = [
            "gcra",
            "fixed_window, start: first_request",
            "sliding_log",
            "sliding_window",
            "sliding_window, precision: 24",
        ];
        let kinds = kinds.iter().enumerate();
        let (policies, routes): (String, String) = kinds
            .map(|(place, kind)| {
                (
                    format!("  p{place}: {{ store: redis, key: constant, algorithm: {kind}, quota: {limit}/24h }}\n"),
                    format!("  - {{ match: {{ path: /{place} }}, upstream: echo, limits: [p{place}] }}\n"),
                )
            })
            .unzip();
        format!("{store}policies:\n{policies}routes:\n{routes}")
    };
    let both = [(); 2].map(|()| Gateway::start(&config(40)));
    both.iter().for_each(wait_up);
    let [first, second] = &both;
    let admits = |gateway: &Gateway, place: usize, count: usize| {
        let answers = (0..count).map(|_| get(gateway.address(), &format!("/{place}")));
        answers.filter(|answer| answer.status == 200).count()
    };
    for place in 0..5 {
        assert_eq!(admits(second, place, 45), 40, "{place}");
    }
    first.reload(&config(30));
    for _ in 0..4 {
        for place in 0..5 {
            assert_eq!(admits(first, place, 2), 0, "{place}");
        }
    }
    for place in 0..5 {
        assert_eq!(admits(second, place, 15), 0, "{place}");
    }
}
