//! Results of `sluicegate suggest`: what is said is what a replay does, and input that is no log.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::replay::{command, line, replay, stderr};

/// A log, and a place for configurations.
struct Log {
    dir: TempDir,
}

impl Log {
    fn new(lines: impl AsRef<[u8]>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join("access.log"), lines).expect("the directory is writable");
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        path.to_str().expect("a plain name").to_owned()
    }

    fn suggest(&self, options: &[&str]) -> Output {
        let log = self.path("access.log");
        let arguments = [&["suggest", &log], options].concat();
        command(arguments).output().expect("the binary starts")
    }

    #[track_caller]
    fn text(&self, options: &[&str]) -> String {
        let output = self.suggest(options);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Compares what is said with a replay of what is written, which passes a strict check.
    #[track_caller]
    fn assert_true(&self, options: &[&str]) -> Value {
        let said = self.text(&[options, &["--json"]].concat());
        let said: Value = serde_json::from_str(&said).expect("JSON");
        fs::write(
            self.path("new.yaml"),
            self.text(&[options, &["--yaml"]].concat()),
        )
        .expect("the directory is writable");
        let checked = command(["check", "--deny-warnings", &self.path("new.yaml")]).output();
        let checked = checked.expect("the binary starts");
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
        let (log, config) = (self.path("access.log"), self.path("new.yaml"));
        let done = replay(Path::new(&log), Path::new(&config), &["--json"]);
        let done: Value = serde_json::from_slice(&done.stdout).expect("a report");
        assert_eq!(done["requests"], said["requests"]);
        let routes = said["routes"].as_array().expect("a list");
        for route in routes.iter().filter(|route| !route["policy"].is_null()) {
            let replayed = done["routes"].as_array().expect("a list");
            let replayed = replayed.iter().find(|one| one["route"] == route["route"]);
            let replayed = replayed.expect("the route has requests");
            assert_eq!(replayed["requests"], route["requests"], "{route}");
            let limits = replayed["limits"].as_array().expect("a list");
            let limit = limits.iter().find(|one| one["policy"] == route["policy"]);
            let shadowed = limit.expect("the policy")["shadowed"].as_u64().unwrap_or(0);
            assert_eq!(route["limited"], shadowed, "{route}");
            let policies = done["policies"].as_array().expect("a list");
            let policy = policies.iter().find(|one| one["policy"] == route["policy"]);
            let policy = policy.expect("the policy");
            assert_eq!(route["clients"], policy["clients"], "{route}");
            assert_eq!(
                route["limited_clients"], policy["limited_clients"],
                "{route}"
            );
            let most = &policy["most_limited"][0];
            assert_eq!(route["most_limited"][0]["key"], most["key"], "{route}");
        }
        said
    }
}

/// A line of the combined format, so many seconds into a day.
fn combined(client: &str, second: u32, request: &str) -> String {
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!(
        "{client} - - [21/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"{request} HTTP/1.1\" 200 5 \"-\" \"-\"\n"
    )
}

/// Two hours of 200 clients who look at things, buy some, and sign in; one of them asks and asks.
fn busy() -> String {
    let mut lines = Vec::new();
    for client in 0..200_u32 {
        let address = match client % 4 {
            0 => format!("2001:db8:0:{client:x}::{client:x}"),
            _ => format!("192.0.2.{client}"),
        };
        for visit in 0..4 {
            let start = (client * 331 + visit * 1_777) % 7_000;
            for look in 0..3 + (client + visit) % 9 {
                let at = start + look * 2;
                lines.push((
                    at,
                    address.clone(),
                    format!("GET /api/v1/items/{}", client + look),
                ));
                if look % 3 == 2 {
                    lines.push((at, address.clone(), format!("POST /api/v1/cart/{client}")));
                }
            }
            lines.push((start, address.clone(), "GET /assets/app.3f2a.js".to_owned()));
            lines.push((start, address.clone(), "POST /login".to_owned()));
        }
    }
    for second in 0..7_200 {
        lines.push((
            second,
            "198.51.100.7".to_owned(),
            format!("GET /api/v1/items/{second}"),
        ));
        if second % 10 == 0 {
            lines.push((second, "10.0.0.1".to_owned(), "GET /healthz".to_owned()));
        }
    }
    lines.sort();
    let lines = lines
        .iter()
        .map(|(at, address, request)| combined(address, *at, request));
    lines.collect()
}

#[test]
fn the_routes_of_a_log_get_limits_that_a_replay_confirms() {
    let log = Log::new(busy());
    let said = log.assert_true(&[]);
    let routes = said["routes"].as_array().expect("a list");
    let names: Vec<_> = routes
        .iter()
        .filter_map(|route| route["route"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "api-v1-items",
            "api-v1-cart",
            "assets",
            "login",
            "healthz",
            "other"
        ]
    );
    let items = &routes[0];
    assert_eq!(items["limited_clients"], 1, "{items}");
    assert_eq!(items["most_limited"][0]["key"], "client_ip = 198.51.100.7");
    assert_eq!(items["proposal"]["quota"], "20/1m", "{items}");
    assert_eq!(routes[4]["no_limit"], "little_data", "one client");
    assert_eq!(routes[5]["no_limit"], "little_data");
}

#[test]
fn other_margins_and_keys_are_as_true() {
    let log = Log::new(busy());
    for options in [
        &["--percentile", "50", "--headroom", "1"][..],
        &["--key", "client_ip/48"],
        &["--key", "header:user-agent"],
        &["--percentile", "90"],
    ] {
        log.assert_true(options);
    }
    let text = log.text(&["--key", "header:x-api-key"]);
    assert!(text.contains("header:x-api-key was missing in"), "{text}");
}

#[test]
fn keys_in_recorded_headers_are_counted() {
    let lines = (0..400).map(|number| {
        let key = format!(
            ",\"headers\":{{\"x-api-key\":\"k{}\",\"x-request-id\":\"{number}\"}}",
            number % 20
        );
        line(&(number * 1_000).to_string(), "/a", &key)
    });
    let log = Log::new(lines.collect::<String>());
    let text = log.text(&[]);
    assert!(
        text.contains("Different addresses in the log: 1."),
        "{text}"
    );
    let said = log.assert_true(&["--key", "header:x-api-key"]);
    assert_eq!(said["routes"][0]["clients"], 20);
}

/// With a configuration, its routes are counted, and the policies are written that it lacks.
#[test]
fn the_routes_of_a_configuration_get_policies() {
    let routes = |api: &str, rest: &str| {
        format!(
            "routes:
  - {{ upstream: echo, match: {{ path: \"/api/**\" }}{api} }}
  - {{ name: sign-in, match: {{ path: /login }}, upstream: echo, limits: [{{ quota: 1/1h, on_full: strict }}] }}
  - {{ name: rest, upstream: echo{rest} }}
"
        )
    };
    let log = Log::new(busy());
    let path = log.path("old.yaml");
    fs::write(&path, routes("", "")).expect("the directory is writable");
    let said = log.text(&["--config", &path, "--json"]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(said["routes"][1]["no_limit"], "limited");
    let policies = log.text(&["--config", &path, "--yaml"]);
    let limits = |place: usize| {
        let policy = said["routes"][place]["policy"].as_str().expect("a policy");
        assert!(
            policies.contains(&format!(": limits: [{policy}]")),
            "{policies}"
        );
        format!(", limits: [{policy}]")
    };
    let whole = policies.clone() + &routes(&limits(0), &limits(2));
    fs::write(log.path("new.yaml"), whole).expect("the directory is writable");
    let (access_log, config) = (log.path("access.log"), log.path("new.yaml"));
    let done = replay(Path::new(&access_log), Path::new(&config), &["--json"]);
    let done: Value = serde_json::from_slice(&done.stdout).expect("a report");
    for place in [0, 2] {
        let limits = done["routes"].as_array().expect("a list").iter();
        let mut limits = limits.flat_map(|route| route["limits"].as_array().expect("a list"));
        let route = &said["routes"][place];
        let limit = limits.find(|limit| limit["policy"] == route["policy"]);
        let shadowed = limit.expect("the policy")["shadowed"].as_u64().unwrap_or(0);
        assert_eq!(route["limited"], shadowed, "{route}");
    }
}

#[test]
fn wrong_input_is_told_as_in_a_replay() {
    let log = Log::new("nothing\n".repeat(3));
    let output = log.suggest(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("none of its 3 lines could be read"),
        "{output:?}"
    );
    let mixed = Log::new(format!("nothing\n{}", busy()));
    let text = mixed.text(&["--format", "combined"]);
    let told = "unparsable lines: 1\n  line 1: \"nothing\" isn't an address of a client";
    assert!(text.contains(told), "{text}");
    let few = Log::new(combined("192.0.2.7", 0, "GET /"));
    let said = few.assert_true(&[]);
    assert_eq!(said["routes"][0]["no_limit"], "little_data");
    let empty = Log::new("").suggest(&[]);
    assert_eq!(empty.status.code(), Some(0));
    assert!(stderr(&empty).contains("no request in"), "{empty:?}");
    let compressed = Log::new(b"\x1f\x8b\x08\x00").suggest(&[]);
    assert_eq!(compressed.status.code(), Some(2));
    assert!(stderr(&compressed).contains("zcat"), "{compressed:?}");
    for (options, said) in [
        (&["--key", "foo:bar"][..], "--key foo:bar: "),
        (&["--key", "route"], "depends on the route"),
        (&["--percentile", "0"], "above 0 and up to 100"),
        (&["--percentile", "nan"], "above 0 and up to 100"),
        (&["--headroom", "0.5"], "from 1 to 100"),
    ] {
        let output = log.suggest(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(stderr(&output).contains(said), "{options:?}: {output:?}");
    }
    let output = log.suggest(&["--config", "nowhere.yaml"]);
    assert_eq!(output.status.code(), Some(1));
}
