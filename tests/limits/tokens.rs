//! Limits by claims of verified tokens and by the user of basic authentication, through the binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::client::Connection;
use crate::support::gateway::Gateway;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/jwt")
        .join(name)
}

fn signing_key(algorithm: Algorithm) -> EncodingKey {
    let read = |name| fs::read(fixture(name)).expect("the fixture is there");
    match algorithm {
        Algorithm::RS256 => EncodingKey::from_rsa_pem(&read("rsa.key")).expect("a key"),
        Algorithm::ES256 => EncodingKey::from_ec_pem(&read("ec.key")).expect("a key"),
        Algorithm::EdDSA => EncodingKey::from_ed_pem(&read("ed.key")).expect("a key"),
        _ => EncodingKey::from_secret(read("secret.txt").trim_ascii_end()),
    }
}

/// The fields of a request with a token of these claims.
fn token(algorithm: Algorithm, claims: &Value) -> String {
    let token = encode(&Header::new(algorithm), claims, &signing_key(algorithm));
    format!("authorization: Bearer {}\r\n", token.expect("it is signed"))
}

/// Limits of two an hour; the one by address applies to requests without a token.
fn config(keys: &str) -> String {
    format!(
        "jwt: {{ keys: [{keys}], issuer: https://id.example.com }}
policies:
  by-subject: {{ key: jwt:sub, algorithm: fixed_window, start: first_request, quota: 2/1h }}
  gold: {{ key: jwt:sub, quota: 1/1h, when: {{ jwt: {{ plan: gold }} }} }}
  by-user: {{ key: basic_user, algorithm: fixed_window, start: first_request, quota: 2/1h }}
routes:
  - {{ upstream: echo, limits: [by-subject] }}
  - {{ match: {{ path: /gold }}, upstream: echo, limits: [gold] }}
  - {{ match: {{ path: /basic }}, upstream: echo, limits: [by-user] }}
"
    )
}

fn set() -> String {
    format!("{{ jwks_file: {} }}", fixture("jwks.json").display())
}

fn claims(sub: &str, more: Value) -> Value {
    let mut claims =
        json!({ "sub": sub, "iss": "https://id.example.com", "exp": 4_000_000_000_u64 });
    let more = more.as_object().expect("an object").clone();
    claims.as_object_mut().expect("an object").extend(more);
    claims
}

/// The statuses of `count` requests with these fields.
fn statuses(gateway: &Gateway, path: &str, fields: &str, count: usize) -> Vec<u16> {
    let mut connection = Connection::open(gateway.address());
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    (0..count)
        .map(|_| connection.exchange(&request).status)
        .collect()
}

#[test]
fn every_subject_has_one_bucket_for_all_signing_keys() {
    let gateway = Gateway::start(&config(&set()));
    for (subject, algorithm) in [
        ("hs", Algorithm::HS256),
        ("rs", Algorithm::RS256),
        ("es", Algorithm::ES256),
        ("ed", Algorithm::EdDSA),
    ] {
        let fields = token(algorithm, &claims(subject, json!({})));
        assert_eq!(
            statuses(&gateway, "/", &fields, 3),
            [200, 200, 429],
            "{algorithm:?}"
        );
        // Another token of the same subject, by another key.
        let other = token(Algorithm::HS256, &claims(subject, json!({ "jti": "2" })));
        assert_eq!(statuses(&gateway, "/", &other, 1), [429]);
    }
}

/// None of the tokens is valid: all requests are charged to the bucket of their address, which has
/// two units.
#[test]
fn a_client_without_a_valid_token_has_the_bucket_of_its_address() {
    let gateway = Gateway::start(&config(&set()));
    let good = token(Algorithm::RS256, &claims("alice", json!({})));
    let forged = good.replace("Bearer eyJ0", "Bearer eyJ1");
    let unsigned = {
        let (token, _) = good.rsplit_once('.').expect("a signature");
        format!("{token}.\r\n")
    };
    let public = fs::read(fixture("rsa.pem")).expect("the fixture is there");
    let confused = encode(
        &Header::new(Algorithm::HS256),
        &claims("eve", json!({})),
        &EncodingKey::from_secret(&public),
    );
    let confused = format!(
        "authorization: Bearer {}\r\n",
        confused.expect("it is signed")
    );
    let expired = token(
        Algorithm::RS256,
        &claims("eve", json!({ "exp": 1_600_000_000 })),
    );
    let early = token(
        Algorithm::RS256,
        &claims("eve", json!({ "nbf": 4_000_000_000_u64 })),
    );
    let other = token(
        Algorithm::RS256,
        &claims("eve", json!({ "iss": "https://other" })),
    );
    assert_eq!(statuses(&gateway, "/", "", 2), [200, 200]);
    for fields in [&*forged, &unsigned, &confused, &expired, &early, &other, ""] {
        assert_eq!(statuses(&gateway, "/", fields, 1), [429], "{fields}");
    }
    assert_eq!(statuses(&gateway, "/", &good, 1), [200]);
}

#[test]
fn two_tokens_are_refused_and_a_condition_looks_at_claims() {
    let gateway = Gateway::start(&config(&set()));
    let [alice, bob] = ["alice", "bob"]
        .map(|sub| token(Algorithm::EdDSA, &claims(sub, json!({ "plan": "gold" }))));
    assert_eq!(statuses(&gateway, "/", &format!("{alice}{bob}"), 1), [400]);
    assert_eq!(statuses(&gateway, "/gold", &alice, 2), [200, 429]);
    let silver = token(
        Algorithm::EdDSA,
        &claims("alice", json!({ "plan": "silver" })),
    );
    assert_eq!(statuses(&gateway, "/gold", &silver, 3), [200; 3]);
    assert_eq!(statuses(&gateway, "/gold", "", 3), [200; 3]);
}

#[test]
fn keys_are_read_from_files_and_replaced_by_a_reload() {
    let key = |algorithm: &str, name: &str| {
        format!(
            "{{ algorithm: {algorithm}, file: {} }}",
            fixture(name).display()
        )
    };
    let all = [
        key("RS256", "rsa.pem"),
        key("ES256", "ec.pem"),
        key("EdDSA", "ed.pem"),
        key("HS256", "secret.txt"),
    ];
    let gateway = Gateway::start(&config(&all.join(", ")));
    for (number, algorithm) in [
        Algorithm::RS256,
        Algorithm::ES256,
        Algorithm::EdDSA,
        Algorithm::HS256,
    ]
    .into_iter()
    .enumerate()
    {
        let fields = token(algorithm, &claims(&format!("user-{number}"), json!({})));
        assert_eq!(
            statuses(&gateway, "/", &fields, 2),
            [200, 200],
            "{algorithm:?}"
        );
    }
    // Buckets are of subjects, not of keys.
    gateway.reload(&config(&key("RS256", "rsa.pem")));
    let fields = token(Algorithm::RS256, &claims("user-0", json!({})));
    assert_eq!(statuses(&gateway, "/", &fields, 1), [429]);
    let gone = token(Algorithm::ES256, &claims("new", json!({})));
    assert_eq!(statuses(&gateway, "/", &gone, 3), [200, 200, 429]);
    assert_eq!(
        statuses(&gateway, "/", "", 1),
        [429],
        "that was the bucket of the address"
    );
}

#[test]
fn a_changed_key_file_is_read_again() {
    let gateway = Gateway::start("routes: [{ upstream: echo }]\n");
    let file = gateway.dir().join("keys.json");
    fs::copy(fixture("jwks.json"), &file).expect("the directory is writable");
    gateway.reload(&config("{ jwks_file: keys.json }"));
    let fields = token(Algorithm::ES256, &claims("alice", json!({})));
    assert_eq!(statuses(&gateway, "/", &fields, 3), [200, 200, 429]);
    let before = gateway.reloads("success");
    let text = fs::read_to_string(&file)
        .expect("it is there")
        .replace("\"P-256\"", "\"P-384\"");
    fs::write(&file, text).expect("the directory is writable");
    crate::support::wait_for("the reload", || {
        (gateway.reloads("success") > before).then_some(())
    });
    assert_eq!(
        statuses(&gateway, "/", &fields, 3),
        [200, 200, 429],
        "the bucket of the address"
    );
    fs::write(&file, "{}").expect("the directory is writable");
    gateway.wait_for_log("keys.json: it isn't a JSON Web Key Set");
}

#[test]
fn users_of_basic_authentication_have_buckets_whatever_their_password() {
    let gateway = Gateway::start(&config(&set()));
    // alice:secret, alice:other, bob:
    for (fields, expected) in [
        ("authorization: Basic YWxpY2U6c2VjcmV0\r\n", [200, 200, 429]),
        ("authorization: basic YWxpY2U6b3RoZXI\r\n", [429, 429, 429]),
        ("authorization: Basic Ym9iOg==\r\n", [200, 200, 429]),
        ("authorization: Basic nonsense\r\n", [200, 200, 429]),
        ("", [429, 429, 429]),
    ] {
        assert_eq!(
            statuses(&gateway, "/basic", fields, 3),
            expected,
            "{fields}"
        );
    }
}

#[test]
fn explain_shows_the_claim_and_check_names_a_file_without_keys() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let run = |config: &str, arguments: &[&str]| {
        fs::write(dir.path().join("c.yaml"), config).expect("the directory is writable");
        let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(arguments)
            .current_dir(dir.path())
            .output()
            .expect("the binary starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&output.stdout) + &text(&output.stderr)
    };
    let field = token(Algorithm::RS256, &claims("alice", json!({})));
    let explain = [
        "explain",
        "GET",
        "http://a/",
        "-H",
        field.trim_end(),
        "--config",
        "c.yaml",
    ];
    let text = run(&config(&set()), &explain);
    assert!(text.contains("jwt:sub = alice"), "{text}");
    let text = run(
        &config(&set()),
        &["explain", "GET", "http://a/", "--config", "c.yaml"],
    );
    assert!(text.contains("jwt:sub is missing"), "{text}");

    let private = format!(
        "{{ algorithm: RS256, file: {} }}",
        fixture("rsa.key").display()
    );
    for (keys, message) in [
        (
            "{ jwks_file: nowhere.json }",
            "nowhere.json cannot be read: there is no such file",
        ),
        (
            "{ jwks_file: c.yaml }",
            "c.yaml: it isn't a JSON Web Key Set",
        ),
        (&*private, "it has a private key"),
    ] {
        let text = run(&config(keys), &["check", "c.yaml"]);
        assert!(text.contains(message), "{text}");
        assert!(!text.contains("BEGIN"), "no key is shown: {text}");
    }
}

fn metric(gateway: &Gateway, series: &str) -> u64 {
    gateway.metric(series).unwrap_or(0.0) as u64
}

/// A token with an invalid signature, different for each number.
fn forged(number: usize) -> String {
    let good = token(
        Algorithm::HS256,
        &claims(&format!("eve-{number}"), json!({})),
    );
    let (unsigned, _) = good.rsplit_once('.').expect("a signature");
    format!("{unsigned}.AAAA\r\n")
}

#[test]
fn limits_without_claims_are_checked_before_signatures_and_rejected_tokens_are_cached() {
    let keys = set();
    let gateway = Gateway::start(&format!(
        "jwt: {{ keys: [{keys}] }}
policies:
  by-address: {{ algorithm: fixed_window, start: first_request, quota: 5/1h }}
  by-subject: {{ key: jwt:sub, quota: 100/1h }}
  posts: {{ key: jwt:sub, quota: 100/1h, when: {{ method: [POST] }} }}
routes:
  - {{ match: {{ path: /both }}, upstream: echo, limits: [by-subject, by-address] }}
  - {{ match: {{ path: /subject }}, upstream: echo, limits: [by-subject] }}
  - {{ match: {{ path: /posts }}, upstream: echo, limits: [posts] }}
"
    ));
    let signatures = || metric(&gateway, "sluicegate_jwt_signatures_total");
    let result = |result| {
        metric(
            &gateway,
            &format!("sluicegate_jwt_total{{result=\"{result}\"}}"),
        )
    };
    let good = token(Algorithm::RS256, &claims("alice", json!({})));
    assert_eq!(statuses(&gateway, "/posts", &good, 1), [200]);
    assert_eq!(signatures(), 0, "no limit asks for a claim");

    for number in 0..20 {
        let status = statuses(&gateway, "/both", &forged(number), 1);
        assert_eq!(status, [if number < 5 { 200 } else { 429 }]);
    }
    assert_eq!(signatures(), 5, "who is refused by address is not verified");
    assert_eq!(result("bad_signature"), 5);
    gateway.wait_for_log("a token was rejected");
    gateway.wait_for_log("bad signature");

    assert_eq!(statuses(&gateway, "/subject", &forged(77), 9), [200; 9]);
    assert_eq!(signatures(), 6, "it is remembered");
    assert_eq!(result("bad_signature"), 14);
    assert_eq!(statuses(&gateway, "/subject", &good, 3), [200; 3]);
    assert_eq!((signatures(), result("verified")), (7, 3));

    // Known tokens meet all limits, and Retry-After is that of all.
    let answer = Connection::open(gateway.address())
        .exchange(&format!("GET /both HTTP/1.1\r\nHost: a\r\n{good}\r\n"));
    assert_eq!(answer.status, 429);
    let told = answer.expect_header("ratelimit");
    assert!(
        told.contains("by-subject") && told.contains("by-address"),
        "{told}"
    );
    assert_eq!(signatures(), 7);
}

#[test]
fn no_signature_is_checked_for_a_request_without_another_key() {
    let keys = set();
    let gateway = Gateway::start(&format!(
        "jwt: {{ keys: [{keys}] }}
policies:
  by-account: {{ key: \"header:x-account\", on_missing_key: refuse, quota: 5/1h }}
  by-subject: {{ key: jwt:sub, quota: 100/1h }}
routes: [{{ upstream: echo, limits: [by-subject, by-account] }}]
"
    ));
    let signatures = || metric(&gateway, "sluicegate_jwt_signatures_total");
    let token = forged(1);
    assert_eq!(statuses(&gateway, "/", &token, 1), [400]);
    assert_eq!(signatures(), 0);
    let token = format!("x-account: a\r\n{token}");
    assert_eq!(statuses(&gateway, "/", &token, 1), [200]);
    assert_eq!(signatures(), 1);
}

#[test]
fn explain_says_why_a_token_is_rejected() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("c.yaml"), config(&set())).expect("the directory is writable");
    let explained = |field: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args([
                "explain",
                "GET",
                "http://a/",
                "-H",
                field.trim_end(),
                "--config",
                "c.yaml",
            ])
            .current_dir(dir.path())
            .output()
            .expect("the binary starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let by = |more| token(Algorithm::RS256, &claims("alice", more));
    for (field, why) in [
        (by(json!({ "exp": 1_600_000_000 })), "expired since"),
        (by(json!({ "nbf": 4_000_000_000_u64 })), "not yet valid"),
        (by(json!({ "iss": "https://other" })), "wrong issuer"),
        (forged(1), "bad signature"),
        ("authorization: Bearer garbage\r\n".to_owned(), "malformed"),
    ] {
        let text = explained(&field);
        let line = text.lines().find(|line| line.starts_with("token"));
        assert!(line.is_some_and(|line| line.contains(why)), "{why}: {text}");
    }
    let text = explained(&by(json!({})));
    assert!(!text.contains("rejected"), "{text}");
}

/// The replay verifies at the instants of the log, at which the token was valid.
#[test]
fn replay_verifies_the_tokens_of_a_log() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("c.yaml"), config(&set())).expect("the directory is writable");
    let expiring = |sub: &str| claims(sub, json!({ "exp": 1_600_000_100 }));
    let field = |sub| {
        let field = token(Algorithm::EdDSA, &expiring(sub));
        field
            .trim_end()
            .split_once(": ")
            .expect("a field")
            .1
            .to_owned()
    };
    let (alice, bob) = (field("alice"), field("bob"));
    let lines = [
        (&alice, 0),
        (&alice, 1),
        (&bob, 2),
        (&alice, 3),
        (&bob, 4),
        (&bob, 500),
        (&bob, 501),
        (&bob, 502),
    ];
    let line = |(field, seconds): (&String, u64)| {
        let time = (1_600_000_000 + seconds) * 1_000;
        let headers = json!({ "authorization": field });
        json!({ "time": time, "client_ip": "192.0.2.1", "method": "GET", "path": "/", "headers": headers }).to_string()
    };
    let log: Vec<_> = lines.into_iter().map(line).collect();
    fs::write(dir.path().join("log"), log.join("\n")).expect("the directory is writable");
    let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["replay", "log", "--config", "c.yaml", "--decisions"])
        .current_dir(dir.path())
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let decisions: Vec<_> = text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).expect("a line of JSON");
            line["decision"].as_str().expect("a decision").to_owned()
        })
        .collect();
    let [allowed, limited] = ["allowed", "limited"];
    // The last three have expired, and share the bucket of the address.
    assert_eq!(
        decisions,
        [
            allowed, allowed, allowed, limited, allowed, allowed, allowed, limited
        ],
        "{text}"
    );
}

/// The block of YAML after a heading of docs/configuration.md.
fn documented(heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let docs = fs::read_to_string(path).expect("the documentation is there");
    let (_, section) = docs.split_once(heading).expect("the heading is there");
    let (_, block) = section.split_once("```yaml\n").expect("a block follows");
    let (block, _) = block.split_once("```\n").expect("it ends");
    block.to_owned()
}

#[test]
fn the_documented_plans_have_their_quotas() {
    let secret = fixture("secret.txt").display().to_string();
    let gateway = Gateway::start(&documented("#### Plans\n").replace("keys/secret", &secret));
    let admitted = |user: &str, plan: &str| {
        let fields = token(Algorithm::HS256, &claims(user, json!({ "plan": plan })));
        let told = statuses(&gateway, "/", &fields, 8);
        let admitted = told.iter().filter(|status| **status == 200).count();
        assert!(
            told[admitted..].iter().all(|status| *status == 429),
            "{told:?}"
        );
        admitted
    };
    assert_eq!(admitted("alice", "free"), 2);
    assert_eq!(admitted("bob", "free"), 2, "each user has a bucket");
    assert_eq!(admitted("carol", "pro"), 4);
    assert_eq!(admitted("dave", "team-9"), 6);
    assert_eq!(admitted("suspended", "gold"), 0);
    assert_eq!(
        admitted("alice", "pro"),
        4,
        "another plan is another bucket"
    );
    assert_eq!(admitted("alice", "free"), 0, "and the old one is as it was");
    assert_eq!(statuses(&gateway, "/", "", 1), [400], "without a token");
}
