//! The access log: which fields a line has, whose key it names, and that `replay` reads it back with
//! the refusals that happened.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::support::admin::{AdminClient, TOKENS};
use crate::support::client::{curl, run};
use crate::support::gateway::Gateway;
use crate::support::replay::{decisions, replay};
use crate::support::slow::{ALL, Slow};
use crate::support::tls::certify;
use crate::support::wait_for;

/// The lines of the access log, once there are `count`.
#[track_caller]
fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let path = gateway.dir().join("access.log");
    let log = wait_for("the access log", || {
        let log = fs::read_to_string(&path).ok()?;
        (log.lines().count() >= count).then_some(log)
    });
    let lines = log.lines().map(serde_json::from_str);
    let lines: Result<Vec<_>, _> = lines.collect();
    let lines = lines.unwrap_or_else(|error| panic!("{error}: {log}"));
    assert_eq!(lines.len(), count, "{log}");
    lines
}

/// Sends a request with these header fields; returns the status.
#[track_caller]
fn send(gateway: &Gateway, path: &str, fields: &[&str]) -> u16 {
    let url = gateway.url(path);
    let mut options = vec!["-s", "-o", "/dev/null", "-w", "%{http_code}", &url];
    options.extend(fields.iter().flat_map(|field| ["-H", *field]));
    let output = std::process::Command::new("curl").args(options).output();
    let output = output.expect("curl is installed");
    let status = String::from_utf8_lossy(&output.stdout);
    status.trim().parse().expect("a status")
}

const LIMITED: &str = "
routes:
  - name: api
    upstream: echo
    limits: [{ name: per-key, key: header:x-api-key, algorithm: fixed_window, quota: 2/300d }]
";

#[test]
fn a_line_says_who_was_limited_and_why() {
    let gateway = Gateway::start(&format!(
        "access_log: {{ path: access.log, headers: [x-api-key, x-plan] }}{LIMITED}"
    ));
    let trace = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let fields = ["x-api-key: alice", "x-request-id: r-7", trace];
    let statuses: Vec<_> = (0..3).map(|_| send(&gateway, "/a?b", &fields)).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(
        send(&gateway, "/", &["x-api-key: bob", "x-plan: a", "x-plan: b"]),
        200
    );

    let lines = lines(&gateway, 4);
    let of = |key: &str| {
        lines
            .iter()
            .map(|line| line[key].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("decision"), ["allowed", "allowed", "limited", "allowed"]);
    assert_eq!(of("policy"), ["per-key"; 4]);
    assert_eq!(of("route"), ["api"; 4]);
    assert_eq!(of("remaining"), [1, 0, 0, 1]);
    let retry = lines[2]["retry_after_ms"].as_f64().expect("a number");
    assert!(retry > 0.0 && retry <= 300.0 * 86_400_000.0, "{retry}");
    assert_eq!(lines[0].get("retry_after_ms"), None);
    assert_eq!(lines[0]["request_id"], "r-7");
    assert_eq!(lines[0]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(lines[0].get("tls_version"), None, "it is in clear text");
    assert_eq!(
        lines[0]["headers"],
        serde_json::json!({ "x-api-key": "alice" })
    );
    let bob = serde_json::json!({ "x-api-key": "bob", "x-plan": ["a", "b"] });
    assert_eq!(lines[3]["headers"], bob);

    // One hash for each key, and no text of it.
    let keys = of("key");
    let key = keys[0].as_str().expect("a text");
    let digits = key.strip_prefix("k_").expect("a hash");
    assert!(
        digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit()),
        "{key}"
    );
    assert_eq!(keys[1..3], [key, key]);
    assert_ne!(keys[3], key);
}

#[test]
fn keys_are_text_only_where_that_is_asked_for() {
    let gateway = Gateway::start(
        "access_log: { path: access.log, keys: readable }
policies:
  one: { key: client_ip, quota: 9/1h }
  two: { key: [header:x-api-key, path], on_missing_key: client_ip, quota: 9/1h }
  value: { key: header:x-api-key, on_missing_key: { value: free }, quota: 9/1h }
  needed: { key: header:x-api-key, on_missing_key: refuse, quota: 9/1h }
routes:
  - { match: { path: /one }, upstream: echo, limits: [one] }
  - { match: { path: /two }, upstream: echo, limits: [two] }
  - { match: { path: /value }, upstream: echo, limits: [value] }
  - { match: { path: /needed }, upstream: echo, limits: [needed] }
  - { match: { path: /none }, upstream: echo }
",
    );
    send(&gateway, "/one", &["x-api-key: alice"]);
    send(&gateway, "/two", &["x-api-key: alice"]);
    send(&gateway, "/two", &[]);
    send(&gateway, "/value", &[]);
    let long = format!("x-api-key: {}", "k".repeat(400));
    send(&gateway, "/value", &[&long]);
    assert_eq!(send(&gateway, "/needed", &[]), 400);
    send(&gateway, "/none", &[]);
    let lines = lines(&gateway, 7);
    let keys: Vec<_> = lines.iter().map(|line| line.get("key").cloned()).collect();
    let expected = [
        Some(serde_json::json!("127.0.0.1")),
        Some(serde_json::json!(["alice", "/two"])),
        Some(serde_json::json!(["127.0.0.1", "/two"])),
        Some(serde_json::json!("free")),
        Some(serde_json::json!("k".repeat(256))),
        None,
        None,
    ];
    assert_eq!(keys, expected);
    assert_eq!(lines[5]["decision"], "limited", "the key is missing");
    assert_eq!(lines[5].get("remaining"), None);
}

#[test]
fn a_line_has_the_fields_that_are_asked_for_in_their_order() {
    let gateway = Gateway::start(&format!(
        "access_log: {{ path: access.log, fields: [decision, status, policy, error, time] }}{LIMITED}"
    ));
    send(&gateway, "/", &["x-api-key: alice"]);
    let path = gateway.dir().join("access.log");
    let line = wait_for("the access log", || {
        let log = fs::read_to_string(&path).ok()?;
        log.ends_with('\n').then_some(log)
    });
    let start = "{\"decision\":\"allowed\",\"status\":200,\"policy\":\"per-key\",\"time\":\"";
    assert!(line.starts_with(start), "{line}");
    assert!(!line.contains("alice"), "{line}");
}

#[test]
fn values_of_header_fields_are_cut_and_said_to_be() {
    let gateway = Gateway::start(&format!(
        "access_log: {{ path: access.log, headers: [x-api-key] }}{LIMITED}"
    ));
    let field = |end: &str| format!("x-api-key: {}{end}", "k".repeat(1024));
    // The keys differ behind the cut.
    for end in ["a", "a", "b", "b"] {
        assert_eq!(send(&gateway, "/", &[&field(end)]), 200);
    }
    let lines = lines(&gateway, 4);
    assert_eq!(lines[0]["headers"]["x-api-key"], "k".repeat(1024));
    assert_eq!(lines[0]["truncated"], serde_json::json!(["x-api-key"]));
    let output = replay(
        &gateway.dir().join("access.log"),
        &gateway.config_path(),
        &["--json"],
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let message = report["warnings"][0]["message"]
        .as_str()
        .expect("a warning");
    assert!(
        message.contains("header:x-api-key was missing in 4 of 4 requests"),
        "{report}"
    );
}

/// A proxy with this log, key and settings of its one limit, of which 10 requests remain.
fn limited(log: &str, key: &str, settings: &str) -> Gateway {
    let root = env!("CARGO_MANIFEST_DIR");
    Gateway::start(&format!(
        "access_log: {{ path: access.log, {log} }}
jwt: {{ keys: [{{ file: {root}/tests/fixtures/jwt/secret.txt, algorithm: HS256 }}] }}
routes: [{{ upstream: echo, limits: [{{ key: [{key}], {settings} }}] }}]
"
    ))
}

/// A token of `alice`, signed with the secret of the fixtures.
fn token() -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    let secret = fs::read(format!("{root}/tests/fixtures/jwt/secret.txt"));
    let secret = EncodingKey::from_secret(secret.expect("the fixture").trim_ascii_end());
    let claims = serde_json::json!({ "sub": "alice", "exp": 4_000_000_000_u64 });
    let token = encode(&Header::new(Algorithm::HS256), &claims, &secret);
    format!("authorization: Bearer {}", token.expect("it is signed"))
}

/// The decisions on the lines, as live and in replay.
#[track_caller]
fn live_and_replayed(gateway: &Gateway, count: usize) -> [Vec<(String, Value)>; 2] {
    let told = |line: &Value| {
        let word = line["decision"].as_str().expect("a decision").to_owned();
        (word, line["remaining"].clone())
    };
    let live = lines(gateway, count);
    let path = gateway.dir().join("access.log");
    let output = replay(&path, &gateway.config_path(), &["--decisions"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "",
        "nothing is missing"
    );
    let mut replayed = decisions(&output);
    replayed.sort_by_key(|told| told["line"].as_u64());
    [
        live.iter().map(told).collect(),
        replayed.iter().map(told).collect(),
    ]
}

#[test]
fn ten_refusals_are_ten_in_replay_of_the_log() {
    let gcra = "quota: 5/300d, burst: 5";
    let algorithms = [
        gcra,
        "quota: 5/300d, algorithm: token_bucket",
        "capacity: 5, refill: 1 per 100d, algorithm: token_bucket",
        "quota: 5/300d, algorithm: fixed_window",
        "quota: 5/300d, algorithm: fixed_window, start: first_request",
        "quota: 5/300d, algorithm: sliding_window",
        "quota: 5/300d, algorithm: sliding_window, precision: 10",
        "quota: 5/300d, algorithm: sliding_log",
    ];
    let by_key = algorithms.map(|settings| ("headers: [x-api-key]", "header:x-api-key", settings));
    let keys = [
        ("keys: hashed", "client_ip", gcra),
        ("headers: [cookie]", "cookie:id", gcra),
        ("headers: [authorization]", "basic_user", gcra),
        ("keys: hashed", "'query:q', method, path", gcra),
        ("keys: hashed", "host", gcra),
    ];
    let basic = "authorization: Basic YWxpY2U6eA==".to_owned();
    let by_claim = [("headers: [authorization]", "'jwt:sub'", gcra)];
    for (log, key, settings) in keys.into_iter().chain(by_key).chain(by_claim) {
        let credentials = match key {
            "'jwt:sub'" => token(),
            _ => basic.clone(),
        };
        let fields = ["x-api-key: alice", "cookie: a=b; id=7", &credentials];
        let gateway = limited(log, key, settings);
        for _ in 0..15 {
            send(&gateway, "/a?q=x", &fields);
        }
        let [live, replayed] = live_and_replayed(&gateway, 15);
        let limited = live.iter().filter(|(word, _)| word == "limited");
        assert_eq!(limited.count(), 10, "{key} {settings}: {live:?}");
        assert_eq!(live, replayed, "{key} {settings}");
    }
}

#[test]
fn grants_and_bans_of_operators_are_known_in_replay_of_the_log() {
    let key = "key: 'header:x-api-key'";
    let gateway = Gateway::start(&format!(
        "{TOKENS}access_log: {{ path: access.log, headers: [x-api-key] }}
policies:
  helped: {{ quota: 2/300d, {key} }}
  other: {{ quota: 100/300d, {key} }}
routes: [{{ upstream: echo, limits: [helped, other] }}]
"
    ));
    let api = AdminClient::writer(&gateway);
    let steer = |action: &str, body: &Value| {
        let answer = api.post(&format!("/v1/keys/{action}"), body);
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let ask = |count: usize| -> Vec<u16> {
        let ask = |_| send(&gateway, "/", &["x-api-key: alice"]);
        (0..count).map(ask).collect()
    };
    assert_eq!(ask(3), [200, 200, 429]);
    let grant = json!({ "policy": "helped", "key": "alice", "units": 3, "for": "1h" });
    steer("grant", &grant);
    assert_eq!(ask(2), [200, 200]);
    let ban = json!({ "policy": "other", "key": "alice", "for": "1h" });
    steer("ban", &ban);
    assert_eq!(ask(1), [429]);
    steer("unban", &json!({ "policy": "other", "key": "alice" }));
    assert_eq!(ask(2), [200, 429]);

    // Workers write lines as responses end; these are in the order of their requests, as in replay.
    let mut logged = lines(&gateway, 8);
    logged.sort_by_key(|line| line["time"].to_string());
    let granted: Vec<_> = logged.iter().map(|line| line["granted"].clone()).collect();
    let helped = json!(["helped"]);
    let none = Value::Null;
    assert_eq!(
        granted.iter().collect::<Vec<_>>(),
        [&none, &none, &none, &helped, &helped, &none, &helped, &none]
    );
    let log = gateway.dir().join("access.log");
    let decided = |config: &Path| {
        let output = replay(&log, config, &["--decisions"]);
        let words: Vec<_> = decisions(&output)
            .iter()
            .map(|told| told["decision"].clone())
            .collect();
        (words, String::from_utf8(output.stderr).expect("text"))
    };
    let (words, told) = decided(&gateway.config_path());
    let live: Vec<_> = logged.iter().map(|line| line["decision"].clone()).collect();
    assert_eq!(words, live);
    let remark = "which has a ban, by policies without a penalty:\n           1  policy other\n";
    assert!(told.contains(remark), "{told}");

    // A quota with more room pays before the grant does.
    let larger = gateway.dir().join("larger.yaml");
    let text = fs::read_to_string(gateway.config_path()).expect("the configuration");
    let text = text.replace("2/300d", "3/300d");
    fs::write(&larger, text).expect("the directory is writable");
    let (words, _) = decided(&larger);
    let limited = words.iter().filter(|word| *word == "limited").count();
    assert_eq!(limited, 2, "{words:?}");
}

#[test]
fn keys_that_differ_are_told_apart_in_replay_of_the_log() {
    let gateway = limited("headers: [x-api-key]", "header:x-api-key", "quota: 3/300d");
    for number in 0..20 {
        let key = format!("x-api-key: k{}", number % 4);
        send(&gateway, "/", &[&key]);
    }
    let [live, replayed] = live_and_replayed(&gateway, 20);
    assert_eq!(live.iter().filter(|(word, _)| word == "limited").count(), 8);
    assert_eq!(live, replayed);
}

#[test]
fn requests_that_end_in_another_order_are_decided_alike_in_replay_of_the_log() {
    for settings in [
        "quota: 2/300d, burst: 2",
        "quota: 2/300d, algorithm: fixed_window",
        "quota: 2/300d, algorithm: sliding_window",
        "quota: 2/300d, algorithm: sliding_log",
    ] {
        let slow = Slow::start();
        let gateway = Gateway::start(&format!(
            "access_log: {{ path: access.log }}
upstreams: {{ slow: {{ endpoints: [{}] }} }}
routes: [{{ upstream: slow, limits: [{{ key: client_ip, {settings} }}] }}]
",
            slow.origin.url()
        ));
        thread::scope(|scope| {
            let held = [1, 2].map(|count| {
                let request = scope.spawn(|| send(&gateway, "/", &[]));
                wait_for("the request at the origin", || {
                    (slow.gate.seen().len() == count).then_some(())
                });
                request
            });
            for _ in 0..3 {
                assert_eq!(send(&gateway, "/", &[]), 429, "{settings}");
            }
            lines(&gateway, 3);
            slow.gate.let_pass(ALL);
            for request in held {
                assert_eq!(request.join().expect("a status"), 200, "{settings}");
            }
        });
        let [live, replayed] = live_and_replayed(&gateway, 5);
        let words: Vec<_> = live.iter().map(|(word, _)| word.as_str()).collect();
        let ended = ["limited", "limited", "limited", "allowed", "allowed"];
        assert_eq!(words, ended, "{settings}");
        assert_eq!(live, replayed, "{settings}");
    }
}

#[test]
fn a_part_that_the_log_lacks_is_warned_of_with_the_option_that_logs_it() {
    for (key, option) in [
        ("header:x-api-key", "access_log.headers: [x-api-key]"),
        ("cookie:id", "access_log.headers: [cookie]"),
        ("basic_user", "access_log.headers: [authorization]"),
        ("'jwt:sub'", "access_log.headers: [authorization]"),
    ] {
        let gateway = limited("keys: hashed", key, "quota: 3/300d");
        send(&gateway, "/", &["x-api-key: alice", "cookie: id=7"]);
        lines(&gateway, 1);
        let path = gateway.dir().join("access.log");
        let replayed = |option: &[&str]| replay(&path, &gateway.config_path(), option);
        let text = String::from_utf8_lossy(&replayed(&[]).stdout).into_owned();
        let said = format!(
            "was missing in 1 of 1 requests; counted by client_ip; sluicegate logs it with `{option}`\n"
        );
        assert!(text.contains(&said), "{text}");
        let report: Value = serde_json::from_slice(&replayed(&["--json"]).stdout).expect("JSON");
        assert_eq!(report["warnings"][0]["option"], *option, "{report}");
    }
}

#[test]
fn lines_of_connections_over_tls_have_its_version() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    certify(dir.path(), "a", &["localhost"]);
    let path = dir.path().display();
    let gateway = Gateway::start(&format!(
        "access_log: {{ path: access.log }}
listeners:
  - address: \"127.0.0.1:0\"
    tls: {{ certificates: [{{ certificate: {path}/a.pem, key: {path}/a.key }}] }}
routes: [{{ upstream: echo }}]
"
    ));
    let url = format!("https://{}/", gateway.address());
    for version in ["1.2", "1.3"] {
        let output = curl(&[
            "-k",
            &format!("--tlsv{version}"),
            "--tls-max",
            version,
            &url,
        ]);
        assert_eq!(output.code, Some(0), "{output}");
    }
    let versions = lines(&gateway, 2);
    let versions: Vec<_> = versions
        .iter()
        .map(|line| line["tls_version"].clone())
        .collect();
    assert_eq!(versions, ["TLSv1.2", "TLSv1.3"]);
}

/// The table of docs/access-log.md: the type of each field, in the order of lines.
fn documented() -> Vec<(String, String)> {
    let page = include_str!("../../docs/access-log.md");
    let table = page.split_once("| field | type |").expect("a table").1;
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let name = cells.next().expect("a name").trim_matches('`').to_owned();
        (name, cells.next().expect("a type").to_owned())
    })
    .collect()
}

#[test]
fn every_field_is_documented_with_its_type() {
    let documented = documented();
    let names: Vec<_> = documented.iter().map(|(name, _)| name.as_str()).collect();
    let schema = run(env!("CARGO_BIN_EXE_sluicegate"), &["schema"]).stdout;
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let fields = schema["definitions"]["LogField"]["oneOf"].as_array();
    let fields = fields.expect("a list").iter();
    let mut known: Vec<_> = fields
        .map(|field| field["const"].as_str().expect("a word"))
        .collect();
    known.push("truncated");
    assert_eq!(names, known);

    let gateway = Gateway::start(&format!(
        "access_log: {{ path: access.log, headers: [x-api-key] }}{LIMITED}"
    ));
    let long = format!("x-api-key: {}", "k".repeat(2_000));
    let fields = [&*long, "referer: r", "user-agent: u", "x-request-id: i"];
    (0..3).for_each(|_| _ = send(&gateway, "/", &fields));
    let types: BTreeMap<_, _> = documented.into_iter().collect();
    for line in lines(&gateway, 3) {
        let line = line.as_object().expect("an object");
        for (name, value) in line {
            let is_right = match types[name].as_str() {
                "text" => value.is_string(),
                "integer" => value.is_u64(),
                "number" => value.is_number(),
                "text or list" => value.is_string() || value.is_array(),
                "object" => value.is_object(),
                "list" => value.is_array(),
                other => panic!("{name}: {other}"),
            };
            assert!(is_right, "{name}: {value} is no {}", types[name]);
        }
        let order: Vec<_> = line.keys().map(String::as_str).collect();
        let expected = known
            .iter()
            .copied()
            .filter(|name| line.contains_key(*name));
        assert_eq!(order, expected.collect::<Vec<_>>());
    }
}
