//! Days, months and years in the zone that a token names: the binary live and in `replay`.

use std::fs;
use std::path::Path;

use jiff::tz::TimeZone;
use jsonwebtoken::{Algorithm as Signature, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::support::client::Connection;
use crate::support::gateway::Gateway;
use crate::support::replay::{Replay, command};
use crate::support::wall_clock;

fn jwt(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    path.join("tests/fixtures/jwt")
        .join(file)
        .display()
        .to_string()
}

/// The `authorization` field with a token of this user, with this zone if there is one.
fn bearer(user: &str, zone: &str) -> String {
    let mut claims = json!({ "sub": user });
    if !zone.is_empty() {
        claims["zoneinfo"] = zone.into();
    }
    let secret = fs::read(jwt("secret.txt")).expect("the fixture is there");
    let key = EncodingKey::from_secret(secret.trim_ascii_end());
    let token = encode(&Header::new(Signature::HS256), &claims, &key);
    format!("Bearer {}", token.expect("it is signed"))
}

/// Two units in each of the user's days.
fn config(limit: u32) -> String {
    format!(
        "jwt: {{ keys: [{{ algorithm: HS256, file: {} }}] }}
responses: {{ headers: [github] }}
policies:
  daily: {{ key: jwt:sub, algorithm: fixed_window, quota: {limit}/1d, time_zone: {{ from: \"jwt:zoneinfo\", default: Asia/Tokyo }} }}
routes: [{{ upstream: echo, limits: [daily] }}]
",
        jwt("secret.txt")
    )
}

/// The end of the user's window, in seconds since the epoch.
fn reset(gateway: &Gateway, authorization: &str) -> (u16, u64) {
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nauthorization: {authorization}\r\n\r\n");
    let answer = Connection::open(gateway.address()).exchange(&request);
    let reset = answer.header("x-ratelimit-reset").expect("the field");
    (answer.status, reset.parse().expect("seconds"))
}

#[test]
fn a_user_that_changes_zone_keeps_the_window_also_through_a_reload() {
    let gateway = Gateway::start(&config(2));
    let midnight = || {
        let zone = TimeZone::get("Pacific/Kiritimati").expect("a zone");
        let now = jiff::Timestamp::try_from(wall_clock()).expect("it is within range");
        let tomorrow = now.to_zoned(zone).date().tomorrow().expect("a day");
        let midnight = tomorrow.in_tz("Pacific/Kiritimati").expect("a zone");
        midnight.timestamp().as_second() as u64
    };
    let before = midnight();
    let (status, first) = reset(&gateway, &bearer("alice", "pacific/kiritimati"));
    assert_eq!(status, 200);
    assert!((before..=midnight()).contains(&first), "{before} {first}");
    let elsewhere = bearer("alice", "Pacific/Pago_Pago");
    assert_eq!(reset(&gateway, &elsewhere), (200, first));
    assert_eq!(reset(&gateway, &elsewhere), (429, first));
    gateway.reload(&config(3));
    assert_eq!(reset(&gateway, &elsewhere), (200, first));
    assert_eq!(reset(&gateway, &elsewhere), (429, first));
}

#[test]
fn explain_names_the_zone_or_why_it_is_the_default() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("c.yaml");
    fs::write(&path, config(2)).expect("the directory is writable");
    for (zone, expected) in [
        ("europe/berlin", "zone    Europe/Berlin, from jwt:zoneinfo"),
        (
            "Mars/Olympus",
            "zone    the default: jwt:zoneinfo names none",
        ),
        ("", "zone    the default: jwt:zoneinfo names none"),
    ] {
        let field = format!("authorization: {}", bearer("alice", zone));
        let path = path.to_str().expect("a path");
        let explain = [
            "explain",
            "GET",
            "http://a/",
            "-H",
            &field,
            "--config",
            path,
        ];
        let output = command(explain).output().expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected), "{text}");
    }
}

/// On the 1st of July 2026 midnight is at 22:00 UTC in Berlin, at 15:00 in Tokyo, and at 11:00 in Pago Pago.
#[test]
fn replay_counts_by_the_days_of_each_user() {
    const MIDNIGHT: u64 = 1_782_864_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let berlin = bearer("alice", "Europe/Berlin");
    let steps = [
        (&berlin, 20 * 60, "allowed"),
        (&berlin, 21 * 60, "allowed"),
        (&berlin, 21 * 60 + 59, "limited"),
        (&berlin, 22 * 60, "allowed"),
        // In other zones a day begins meanwhile, but not hers.
        (
            &bearer("alice", "Pacific/Kiritimati"),
            34 * 60 + 1,
            "allowed",
        ),
        (
            &bearer("alice", "Pacific/Pago_Pago"),
            35 * 60 + 1,
            "limited",
        ),
        (&bearer("alice", ""), 39 * 60 + 1, "limited"),
        (&berlin, 46 * 60, "allowed"),
        // What is no zone is the default.
        (&bearer("bob", "Mars/Olympus"), 62 * 60, "allowed"),
        (&bearer("bob", "../../etc/passwd"), 62 * 60 + 59, "allowed"),
        (&bearer("bob", ""), 62 * 60 + 59, "limited"),
        (&bearer("bob", ""), 63 * 60, "allowed"),
    ];
    let line = |&(token, minutes, _): &(&String, u64, &str)| {
        let headers = json!({ "authorization": token });
        json!({ "time": (MIDNIGHT + minutes * 60) * 1_000, "client_ip": "192.0.2.1", "method": "GET", "path": "/", "headers": headers }).to_string()
    };
    let log: Vec<_> = steps.iter().map(line).collect();
    fs::write(dir.path().join("log"), log.join("\n")).expect("the directory is writable");
    fs::write(dir.path().join("c.yaml"), config(2)).expect("the directory is writable");
    let output = command(["replay", "log", "--config", "c.yaml", "--decisions"])
        .current_dir(dir.path())
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        line["decision"].as_str().expect("a decision").to_owned()
    });
    let found: Vec<_> = found.collect();
    assert_eq!(found, steps.map(|(_, _, expected)| expected), "{text}");
}

#[test]
fn an_override_has_a_zone_of_its_own_without_a_token() {
    let config = "policies:
  daily:
    key: header:x-key
    algorithm: fixed_window
    quota: 1/1d
    overrides:
      - { value: tokyo, time_zone: Asia/Tokyo }
      - { value: berlin, time_zone: Europe/Berlin, quota: 2/1d }
routes: [{ upstream: echo, limits: [daily] }]
";
    let line = |time: &str, key: &str| {
        format!(
            r#"{{"time":"2026-11-21T{time}Z","client_ip":"192.0.2.7","method":"GET","path":"/","headers":{{"x-key":"{key}"}}}}"#
        ) + "\n"
    };
    let log: String = [
        ("14:59:59", "tokyo"),
        ("14:59:59", "utc"),
        ("15:00:00", "tokyo"),
        ("15:00:00", "utc"),
        ("22:30:00", "berlin"),
        ("22:30:00", "berlin"),
        ("22:59:59", "berlin"),
        ("23:00:00", "berlin"),
    ]
    .map(|(time, key)| line(time, key))
    .concat();
    let decided = Replay::new(config, log).decisions(&[]);
    let told: Vec<_> = decided
        .iter()
        .map(|one| (one["decision"].as_str(), one["retry_after_ms"].as_u64()))
        .collect();
    let admitted = (Some("allowed"), None);
    let refused = |seconds: u64| (Some("limited"), Some(seconds * 1_000));
    assert_eq!(
        told,
        [
            admitted,
            admitted,
            admitted,
            refused(9 * 3_600),
            admitted,
            admitted,
            refused(1),
            admitted,
        ]
    );
}

/// In the last second of each hour of two days a client claims the zone whose day ends with that
/// hour. It may send one request a day.
#[test]
fn replay_gives_a_client_that_follows_midnight_two_windows_a_day() {
    const MIDNIGHT: u64 = 1_782_864_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let line = |hour: u64| {
        let zone = match (hour + 1) % 24 {
            0 => "Etc/UTC".to_owned(),
            ahead @ 13..24 => format!("Etc/GMT-{}", 24 - ahead),
            behind => format!("Etc/GMT+{behind}"),
        };
        let headers = json!({ "authorization": bearer("alice", &zone) });
        json!({ "time": (MIDNIGHT + hour * 3_600 + 3_599) * 1_000, "client_ip": "192.0.2.1", "method": "GET", "path": "/", "headers": headers }).to_string()
    };
    let log: Vec<_> = (0..48).map(line).collect();
    fs::write(dir.path().join("log"), log.join("\n")).expect("the directory is writable");
    fs::write(dir.path().join("c.yaml"), config(1)).expect("the directory is writable");
    let output = command(["replay", "log", "--config", "c.yaml", "--decisions"])
        .current_dir(dir.path())
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let admitted = text.lines().enumerate().filter(|(_, line)| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        line["decision"] == "allowed"
    });
    let hours: Vec<_> = admitted.map(|(hour, _)| hour).collect();
    assert_eq!(text.lines().count(), 48);
    assert_eq!(hours, [0, 1, 24, 25], "two within a day");
}
