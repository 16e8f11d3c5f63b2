use std::time::Duration;

use super::*;
use crate::config::{compile, compile_rules, parse};
use crate::proxy::ruleset;
use crate::proxy::ruleset::build::tracking_room;
use crate::store::{Home, OnStoreError};

fn rules(store: &str, policy: &str) -> ruleset::RulesetSpec {
    let text = format!(
        "store: {{ redis: {store} }}\npolicies: {{ p: {policy} }}\nroutes: [{{ upstream: echo, limits: [p] }}]\n"
    );
    let loaded = parse("test.yaml", text, &|_| None).unwrap_or_else(|report| panic!("{report}"));
    compile_rules(&loaded).unwrap_or_else(|report| panic!("{report}"))
}

fn redis(store: &str) -> StoreSpec {
    let spec = rules(store, "{ quota: 100/1m, store: redis }").store;
    spec.expect("a policy is there")
}

fn hashed(spec: &StoreSpec) -> [u64; 2] {
    match &spec.naming.keys {
        KeyFormat::Hashed(secret) => secret.key(),
        KeyFormat::Readable => panic!("{spec:?}"),
    }
}

#[test]
fn machines_with_one_secret_have_the_same_fingerprints_and_others_none_in_common() {
    let of = |options: &str| redis(&format!("{{ url: redis://cache{options} }}")).key_secret;
    let shared = of(", secret: sixteen-characters");
    assert!(shared.is_some());
    assert_eq!(shared, of(", secret: sixteen-characters, prefix: 'b:'"));
    assert_ne!(shared, of(", secret: another-secret-of-ours"));
    assert_eq!(of(""), None, "a prefix isn't a secret");
    let names = redis("{ url: redis://cache, secret: sixteen-characters }");
    assert_ne!(shared.map(|secret| secret.key()), Some(hashed(&names)));
}

#[test]
fn a_url_is_enough() {
    let spec = redis("{ url: redis://bob:hunter2@cache/3 }");
    assert_eq!(
        spec.client.target,
        Target::Single(Address::new("cache", 6379))
    );
    assert_eq!(spec.client.login.user.as_deref(), Some("bob"));
    assert_eq!(spec.client.login.password, Some(Password::new("hunter2")));
    assert_eq!(
        (spec.client.database, spec.client.tls.is_some()),
        (3, false)
    );
    assert_eq!(spec.client.timeout, Duration::from_millis(100));
    assert_eq!(spec.refusal_cache, Duration::from_secs(1));
    assert_eq!(&*spec.client.prefix, "sluicegate:");
    assert_eq!(spec.client.prefix, spec.naming.prefix);
    assert!(!format!("{spec:?}").contains("hunter2"));
}

#[test]
fn keys_say_what_a_url_leaves_out() {
    let spec = redis(
        "{ url: rediss://cache, user: bob, password: hunter2, timeout: 5ms, prefix: 'a:', refusal_cache: 0s }",
    );
    assert_eq!(spec.client.login.user.as_deref(), Some("bob"));
    assert_eq!(spec.client.login.password, Some(Password::new("hunter2")));
    assert!(spec.client.tls.is_some());
    assert_eq!(spec.client.timeout, Duration::from_millis(5));
    assert_eq!(
        (&*spec.client.prefix, spec.refusal_cache),
        ("a:", Duration::ZERO)
    );
    let none = redis("{ url: redis://cache, password: '' }");
    assert_eq!(none.client.login, Login::default());
}

#[test]
fn nodes_and_sentinels_have_their_ports() {
    let spec = redis("{ cluster: [a, 'b:7'], tls: {} }");
    let nodes = vec![Address::new("a", 6379), Address::new("b", 7)];
    assert_eq!(spec.client.target, Target::Cluster(nodes));
    assert!(spec.client.tls.is_some());

    let spec = redis(
        "{ sentinel: { addresses: [a, 'b:7'], master: m, password: x }, password: y, database: 2 }",
    );
    let login = |password: &str| Login {
        user: None,
        password: Some(Password::new(password)),
    };
    assert_eq!(
        spec.client.target,
        Target::Sentinel {
            sentinels: vec![Address::new("a", 26379), Address::new("b", 7)],
            master: "m".into(),
            login: login("x"),
        }
    );
    assert_eq!((spec.client.login, spec.client.database), (login("y"), 2));
    assert!(spec.client.tls.is_none());
}

/// Machines with another version share the buckets.
#[test]
fn derived_secrets_never_change() {
    let of_text = hashed(&redis("{ url: redis://a, secret: 0123456789abcdef }"));
    let of_prefix = hashed(&redis("{ url: redis://b }"));
    assert_eq!(of_text, [0xd283_18df_30a9_3d75, 0xbb8e_a9aa_73f7_8c0e]);
    assert_eq!(of_prefix, [0x176d_2fc5_9d1f_58e5, 0x6e07_7757_1cc8_7344]);
    let others = [
        "{ url: redis://a, secret: 0123456789abcdeg }",
        "{ url: redis://a, prefix: 0123456789abcdef }",
        "{ url: redis://a, prefix: other }",
    ];
    for other in others {
        assert!(
            ![of_text, of_prefix].contains(&hashed(&redis(other))),
            "{other}"
        );
    }
    let readable = redis("{ url: redis://a, readable_keys: true }");
    assert_eq!(readable.naming.keys, KeyFormat::Readable);
}

#[test]
fn overrides_and_candidates_share_the_store_of_their_policy() {
    let policy = "{ key: header:x, quota: 100/1m, store: redis, on_store_error: refuse, \
                  overrides: [{ value: a, quota: 200/1m }], candidate: { quota: 300/1m } }";
    let rules = rules("{ url: redis://a }", policy);
    let refuse = Home::Redis(OnStoreError::Refuse);
    let policies = rules.policies.iter();
    let homes = policies.map(|policy| (policy.spec.home, policy.quotas().count()));
    assert_eq!(homes.collect::<Vec<_>>(), [(refuse, 2), (refuse, 1)]);
}

#[test]
fn overrides_of_one_value_take_no_room_from_their_policy() {
    let overrides: Vec<_> = (0..64)
        .map(|value| format!("{{ value: v{value}, quota: 9/1m }}"))
        .collect();
    for store in ["store: redis", "store: redis, sync: 100ms"] {
        let room = |overrides: &str| {
            let policy =
                format!("{{ key: header:x, quota: 100/1m, {store}, overrides: [{overrides}] }}");
            let rules = rules("{ url: redis://a }", &policy);
            tracking_room(&rules.policies, rules.max_size).bytes(65_536)
        };
        assert_eq!(room(&overrides.join(", ")), room(""), "{store}");
    }
}

#[test]
fn redis_that_no_policy_uses_is_not_connected() {
    let rules = rules("{ url: redis://a }", "{ quota: 100/1m }");
    assert!(rules.store.is_none());
    assert!(
        rules
            .policies
            .iter()
            .all(|policy| policy.spec.home == Home::Memory)
    );
}

#[test]
fn missing_authority_files_are_errors() {
    let text = "store: { redis: { url: rediss://a, tls: { ca: no-such.pem } } }\n\
                limits: [{ quota: 100/1m, store: redis }]\nroutes: [{ upstream: echo }]\n";
    let loaded = parse("test.yaml", text.to_owned(), &|_| None);
    let loaded = loaded.unwrap_or_else(|report| panic!("{report}"));
    let report = compile(&loaded).expect_err("there is no such file");
    let shown = report.to_string();
    assert!(
        shown.contains("no-such.pem cannot be read: there is no such file"),
        "{shown}"
    );
    assert!(shown.contains("store.redis.tls.ca"), "{shown}");
    assert!(compile_rules(&loaded).is_ok());
}
