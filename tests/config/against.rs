//! `check NEW --against OLD` predicts the fate of buckets as a reload decides it.

use std::fs;
use std::process::{Command, Output};

use crate::support::client::get;
use crate::support::gateway::{Gateway, with_free_ports};

/// Units used before the reload.
const USED: usize = 3;

/// Every kind of bucket, in several forms, with room for L units.
const FORMS: [&str; 11] = [
    "quota: L/300d",
    "quota: 1/200d, burst: L",
    "quota: L/300d, algorithm: token_bucket",
    "capacity: L, refill: 5 per 100d, algorithm: token_bucket",
    "quota: L/300d, algorithm: fixed_window",
    "quota: L/300d, algorithm: fixed_window, start: first_request",
    "quota: L/300d, algorithm: sliding_window",
    "quota: L/300d, algorithm: sliding_window, precision: 10",
    "quota: L/300d, algorithm: sliding_window, precision: 10, oldest: whole",
    "quota: L/300d, algorithm: sliding_log",
    "quota: 0/300d",
];

/// A configuration with a policy and a route of one limit for each name and settings.
fn config(policies: &[(String, String)]) -> String {
    let policy = |(name, says): &(String, String)| format!("  {name}: {{ {says} }}\n");
    let route = |(name, _): &(String, String)| {
        format!(
            "  - {{ name: r-{name}, match: {{ path: /{name} }}, upstream: echo, limits: [{name}] }}\n"
        )
    };
    let policies_text: String = policies.iter().map(policy).collect();
    let routes: String = policies.iter().map(route).collect();
    format!("policies:\n{policies_text}routes:\n{routes}")
}

fn check(gateway: &Gateway, new: &str) -> Output {
    let file = gateway.dir().join("next.yaml");
    fs::write(&file, with_free_ports(new)).expect("the directory is writable");
    let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["check", "next.yaml", "--against", "sluicegate.yaml"])
        .current_dir(gateway.dir())
        .output();
    output.expect("the binary starts")
}

/// The verdict on each policy, in the order of the names.
fn verdicts(output: &Output, names: &[String]) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = |name: &String| {
        let of = |line: &&str| line.split_whitespace().nth(1) == Some(name);
        let line = text
            .lines()
            .find(of)
            .unwrap_or_else(|| panic!("{name}: {text}"));
        line.split_whitespace().next().expect("a word").to_owned()
    };
    names.iter().map(verdict).collect()
}

/// The number of admitted requests before the next refusal.
fn admitted(gateway: &Gateway, path: &str) -> usize {
    let statuses = (0..20).map(|_| get(gateway.address(), path).status);
    statuses.take_while(|status| *status == 200).count()
}

/// Tries each form against each other form, with the same quota and with another.
#[test]
fn the_prediction_is_what_a_reload_does() {
    let form = |form: &str, limit: usize| {
        format!("key: constant, {}", form.replace('L', &limit.to_string()))
    };
    let (mut old, mut new, mut limits) = (Vec::new(), Vec::new(), Vec::new());
    for (i, from) in FORMS.iter().enumerate() {
        for (j, to) in FORMS.iter().enumerate() {
            for limit in [5, 9] {
                let name = format!("p-{i}-{j}-{limit}");
                old.push((name.clone(), form(from, 5)));
                new.push((name, form(to, limit)));
                limits.push(if to.starts_with("quota: 0") { 0 } else { limit });
            }
        }
    }
    let names: Vec<_> = old.iter().map(|(name, _)| name.clone()).collect();
    let gateway = Gateway::start(&config(&old));
    let mut used = Vec::new();
    for name in &names {
        let statuses = (0..USED).map(|_| get(gateway.address(), &format!("/{name}")).status);
        used.push(statuses.filter(|status| *status == 200).count());
    }
    let said = verdicts(&check(&gateway, &config(&new)), &names);
    gateway.reload(&config(&new));
    let mut words = std::collections::BTreeSet::new();
    for (((name, said), limit), used) in names.iter().zip(&said).zip(limits).zip(used) {
        let expected = match said.as_str() {
            "survives" | "rescaled" => limit - used,
            "reset" => limit,
            _ => panic!("{name} {said}"),
        };
        assert_eq!(
            admitted(&gateway, &format!("/{name}")),
            expected,
            "{name} {said}"
        );
        words.insert(said.clone());
    }
    assert_eq!(words.len(), 3, "{words:?}");
}

#[test]
fn names_keys_overrides_and_places_tell_buckets_apart() {
    let old = "policies:
  kept: { key: header:x-key, quota: 5/300d }
  other-key: { key: header:x-key, quota: 5/300d }
  other-fallback: { key: header:x-key, quota: 5/300d }
  renamed: { key: constant, quota: 5/300d }
  special: { key: header:x-key, quota: 5/300d, overrides: [{ value: a, quota: 9/300d }, { value: b, quota: 9/300d }] }
limits: [kept, other-key, other-fallback, renamed, special]
routes:
  - { name: r, upstream: echo, limits: [{ key: constant, quota: 5/300d }, { key: constant, quota: 7/300d }] }
";
    let new = "policies:
  kept: { key: header:x-key, quota: 5/300d, mode: shadow, on_limit: { status: 503 } }
  other-key: { key: header:x-other, quota: 5/300d }
  other-fallback: { key: header:x-key, on_missing_key: shared, quota: 5/300d }
  new-name: { key: constant, quota: 5/300d }
  special: { key: header:x-key, quota: 5/300d, overrides: [{ value: a, quota: 7/300d }] }
limits: [kept, other-key, other-fallback, new-name, special]
routes:
  - { name: r, upstream: echo, limits: [{ key: constant, quota: 7/300d }] }
";
    let gateway = Gateway::start(old);
    let output = check(&gateway, new);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().skip(2).map(str::trim).collect();
    let expected = [
        "survives  kept (header:x-key or client_ip)",
        "new       new-name (constant or client_ip)",
        "new       other-fallback (header:x-key or shared)",
        "new       other-key (header:x-other or client_ip)",
        "survives  special (header:x-key or client_ip)",
        "rescaled  special (header:x-key or client_ip where value ***)  9/300d becomes 7/300d",
        "rescaled  r#0 (constant or client_ip)  5/300d becomes 7/300d",
        "reset     other-fallback (header:x-key or client_ip)  the key becomes header:x-key or shared",
        "reset     other-key (header:x-key or client_ip)  the key becomes header:x-other or client_ip",
        "ends      renamed (constant or client_ip)",
        "ends      special (header:x-key or client_ip where value ***)",
        "ends      r#1 (constant or client_ip)",
    ];
    assert_eq!(lines, expected, "{text}");
}

#[test]
fn a_smaller_table_is_reported() {
    let with_size = |size: &str| {
        format!(
            "store: {{ memory: {{ max_size: {size} }} }}\npolicies: {{ all: {{ quota: 500/1s }} }}\nroutes: [{{ upstream: echo, limits: [all] }}]\n"
        )
    };
    let gateway = Gateway::start(&with_size("64MiB"));
    let text = String::from_utf8_lossy(&check(&gateway, &with_size("1MiB")).stdout).into_owned();
    let line = "  survives  all (client_ip)  room for 16384 keys instead of 1048576\n";
    assert!(text.ends_with(line), "{text}");
}

#[test]
fn an_error_in_either_file_is_reported() {
    let gateway = Gateway::start("routes: [{ upstream: echo }]\n");
    let output = check(&gateway, "routes: [{ upstream: nowhere }]\n");
    assert_eq!(output.status.code(), Some(1));
    fs::write(gateway.config_path(), "routes: 5").expect("the directory is writable");
    let output = check(&gateway, "routes: [{ upstream: echo }]\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("sluicegate.yaml"));
    let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["check", "a", "b", "--against", "c"])
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(2));
}

/// The verdict on policy `p` when `new` replaces `old`; each is a policy and a `store.redis`.
fn predict(old: [&str; 2], new: [&str; 2]) -> String {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let file = |name: &str, [redis, policy]: [&str; 2]| {
        let path = directory.path().join(name);
        let quota = if policy.contains("quota:") {
            ""
        } else {
            "quota: 5/1s,"
        };
        let text = format!(
            "store: {{ redis: {{ url: redis://a, {redis} }} }}\npolicies: {{ p: {{ {quota} {policy} }} }}\n\
             routes: [{{ upstream: echo, limits: [p] }}]\n"
        );
        fs::write(&path, text).expect("the directory is writable");
        path
    };
    let (old, new) = (file("old.yaml", old), file("new.yaml", new));
    let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .arg("check")
        .arg(new)
        .arg("--against")
        .arg(old)
        .output();
    let output = output.expect("the binary starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().last().expect("a line");
    let (word, why) = line.trim().split_once(" p (client_ip)").expect("p");
    format!("{} {}", word.trim(), why.trim()).trim().to_owned()
}

/// In Redis, the window is part of a bucket's name.
#[test]
fn buckets_of_another_window_start_anew_in_redis() {
    let secret = "secret: sixteen characters";
    let precise = "algorithm: sliding_window, precision:";
    for (home, old, new, verdict) in [
        (
            "redis",
            "quota: 5/1s",
            "quota: 9/1s",
            "rescaled 5/1s becomes 9/1s",
        ),
        (
            "redis",
            "burst: 5",
            "burst: 7",
            "rescaled 5/1s, with other settings",
        ),
        (
            "redis",
            "quota: 5/1s",
            "quota: 5/2s",
            "reset 5/1s becomes 5/2s",
        ),
        (
            "memory",
            "quota: 5/1s",
            "quota: 5/2s",
            "rescaled 5/1s becomes 5/2s",
        ),
        (
            "redis, sync: 10ms",
            "quota: 5/1s",
            "quota: 5/2s",
            "rescaled 5/1s becomes 5/2s",
        ),
        (
            "redis",
            &format!("{precise} 4"),
            &format!("{precise} 8"),
            "reset 5/1s, with other settings",
        ),
    ] {
        let [old, new] = [old, new].map(|policy| format!("store: {home}, {policy}"));
        assert_eq!(predict([secret, &old], [secret, &new]), verdict, "{home}");
    }
}

#[test]
fn buckets_in_another_store_start_anew() {
    let secret = "secret: sixteen characters";
    let (memory, redis) = ("store: memory", "store: redis");
    let synchronised = "store: redis, sync: 10ms";
    let staggered = "store: redis, sync: 10ms, algorithm: fixed_window, start: staggered";
    for (old, new, verdict) in [
        (
            [secret, memory],
            [secret, redis],
            "reset memory becomes redis",
        ),
        (
            [secret, redis],
            [secret, memory],
            "reset redis becomes memory",
        ),
        ([secret, redis], [secret, redis], "survives"),
        ([secret, memory], ["prefix: x", memory], "survives"),
        (
            [secret, redis],
            ["prefix: x", redis],
            "reset redis becomes redis with other names",
        ),
        (
            [secret, redis],
            ["readable_keys: true", redis],
            "reset redis becomes redis with other names",
        ),
        ([secret, memory], [secret, synchronised], "survives"),
        (
            [secret, synchronised],
            [secret, "store: redis, sync: 1s"],
            "survives",
        ),
        (
            [secret, synchronised],
            ["prefix: x", synchronised],
            "survives",
        ),
        (
            [secret, redis],
            [secret, synchronised],
            "reset redis becomes synchronised memory",
        ),
        (
            [secret, "algorithm: fixed_window, start: staggered"],
            [secret, staggered],
            "reset memory becomes synchronised memory",
        ),
        ([secret, staggered], [secret, staggered], "survives"),
        (
            [secret, staggered],
            ["prefix: x", staggered],
            "reset synchronised memory becomes the same with other names",
        ),
    ] {
        assert_eq!(predict(old, new), verdict);
    }
}
