//! What is said of a proposal, compared with a replay of it over the same log.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::Value;
use traffic::LogFormat;

use super::*;
use crate::config::{compile_rules, parse};
use crate::replay::replay;

const OPTIONS: Options = Options {
    format: None,
    host: None,
};

const PATHS: [&str; 15] = [
    "/null/1",
    "/",
    "/api/v1/users/7",
    "/api/v1/orders/",
    "/api/v1/orders/17/items?x=1",
    "/api",
    "/login",
    "/healthz",
    "/assets/app.js",
    "/favicon.ico",
    "/a%2fb",
    "/caf%c3%a9/x",
    "/api//v1/../v1/users",
    "/Login",
    "*",
];

#[derive(Clone, Debug)]
struct Asked {
    after_millis: u64,
    client: u32,
    method: &'static str,
    path: &'static str,
    key: Option<u32>,
    second_key: bool,
}

fn any_request() -> impl Strategy<Value = Asked> {
    let gap = prop_oneof![3 => Just(0), 3 => 1..900_u64, 1 => 1_000..90_000_u64];
    let client = prop_oneof![3 => 0..3_u32, 5 => 0..40_u32];
    let method = prop::sample::select(&["GET", "GET", "POST", "DELETE", "OPTIONS"][..]);
    let path = prop::sample::select(&PATHS[..]);
    let key = prop::option::of(0..15_u32);
    (gap, client, method, path, key, prop::bool::weighted(0.02)).prop_map(
        |(after_millis, client, method, path, key, second_key)| Asked {
            after_millis,
            client,
            method,
            path,
            key,
            second_key,
        },
    )
}

/// A log with these requests; each tenth line comes too early.
fn log(asked: &[Asked]) -> String {
    let mut lines = String::new();
    let mut now = 1_700_000_000_000_u64;
    for (number, one) in asked.iter().enumerate() {
        now += one.after_millis;
        let time = if number % 10 == 9 { now - 700 } else { now };
        let Asked {
            client,
            method,
            path,
            ..
        } = one;
        let address = match client % 3 {
            0 => format!("2001:db8:0:{client}::{number:x}"),
            _ => format!("192.0.2.{client}"),
        };
        let keys = match one.key {
            Some(key) if one.second_key => format!("[\"k{key}\",\"other\"]"),
            Some(key) => format!("\"k{key}\""),
            None => "null".to_owned(),
        };
        _ = writeln!(
            lines,
            "{{\"time\":{time},\"client_ip\":\"{address}\",\"method\":\"{method}\",\"path\":\"{path}\",\
             \"headers\":{{\"x-key\":{keys}}}}}"
        );
    }
    lines
}

/// Compares what is said of each route with a replay of the configuration that is written.
fn assert_true(asked: &[Asked], wishes: &Wishes) -> usize {
    let log = log(asked);
    let suggested = suggest(wishes.clone(), None, &OPTIONS, log.as_bytes());
    let suggestion = suggested.unwrap_or_else(|why| panic!("{why:?}"));
    let loaded = parse("suggestion", suggestion.yaml.clone(), &|_| None);
    let loaded = loaded.unwrap_or_else(|why| panic!("{why}"));
    let rules = compile_rules(&loaded).unwrap_or_else(|why| panic!("{why}"));
    let report = replay(rules, &OPTIONS, log.as_bytes(), |_| Ok(()));
    let report = report.unwrap_or_else(|why| panic!("{why:?}"));
    let said = serde_json::to_value(&suggestion).expect("JSON");
    let found = serde_json::to_value(&report).expect("JSON");
    let mut compared = 0;
    for route in list(&said["routes"]).filter(|route| route["policy"].is_string()) {
        let policy = &route["policy"];
        let of_policy = |one: &&Value| one["policy"] == *policy;
        let limits = list(&found["routes"]).flat_map(|route| list(&route["limits"]));
        let shadowed = limits
            .filter(of_policy)
            .map(|limit| count(&limit["shadowed"]));
        let clients = list(&found["policies"]).filter(of_policy);
        let clients = clients.map(|one| count(&one["limited_clients"]));
        assert_eq!(
            (count(&route["limited"]), count(&route["limited_clients"])),
            (shadowed.sum(), clients.sum()),
            "{policy}\n{}",
            suggestion.yaml
        );
        compared += 1;
    }
    assert_eq!(suggestion.requests, report.requests);
    compared
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().expect("a list").iter()
}

/// A count, which is left out where it is 0.
fn count(json: &Value) -> u64 {
    json.as_u64().unwrap_or_default()
}

fn wishes(key: &str, percentile: f64, headroom: f64) -> Wishes {
    Wishes {
        key: key.to_owned(),
        percentile,
        headroom,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_replay_refuses_what_was_said(
        asked in prop::collection::vec(any_request(), 200..900),
        percentile in 20.0..100.0_f64,
        key in prop::sample::select(&["client_ip", "client_ip/48", "header:x-key"][..]),
    ) {
        assert_true(&asked, &wishes(key, percentile, 1.0));
    }
}

/// So many requests of each client, a second apart.
fn steady(clients: &[u32]) -> Vec<Asked> {
    let longest = clients.iter().copied().max().unwrap_or_default();
    let rounds = (0..longest).flat_map(|round| {
        let asking = (0..)
            .zip(clients)
            .filter(move |(_, number)| round < **number);
        asking.enumerate().map(|(place, (client, _))| Asked {
            after_millis: if place == 0 { 1_000 } else { 0 },
            client,
            method: "GET",
            path: "/",
            key: None,
            second_key: false,
        })
    });
    rounds.collect()
}

#[test]
fn the_comparisons_have_something_to_compare() {
    let asked = steady(&[40; 30]);
    assert_eq!(assert_true(&asked, &wishes("client_ip", 99.0, 1.5)), 1);
}

fn text(asked: &[Asked]) -> String {
    let suggested = suggest(
        wishes("client_ip", 99.0, 1.5),
        None,
        &OPTIONS,
        log(asked).as_bytes(),
    );
    suggested
        .unwrap_or_else(|why| panic!("{why:?}"))
        .to_string()
}

#[test]
fn little_data_is_said() {
    let few = text(&steady(&[40; 4]));
    assert!(
        few.contains("160 requests, 4 clients\n  no limit proposed: not enough data: it takes 100 requests by 10 clients"),
        "{few}"
    );
    assert!(few.contains("less than an hour"), "{few}");
}

#[test]
fn combined_logs_have_whole_seconds_and_it_is_said() {
    let mut lines = String::new();
    for number in 0..600 {
        let (client, second) = (number % 20, number / 20);
        _ = writeln!(
            lines,
            "192.0.2.{client} - - [21/Nov/2026:04:41:{second:02} +0000] \"GET / HTTP/1.1\" 200 5"
        );
    }
    let options = Options {
        format: Some(LogFormat::Combined),
        host: None,
    };
    let suggested = suggest(
        wishes("client_ip", 99.0, 1.5),
        None,
        &options,
        lines.as_bytes(),
    );
    let text = suggested
        .unwrap_or_else(|why| panic!("{why:?}"))
        .to_string();
    assert!(text.contains("whole seconds"), "{text}");
    assert!(text.contains("proposed: quota: 50/1m, burst: 9"), "{text}");
}
