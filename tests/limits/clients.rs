//! Clients by the keys of a file, through the binary: plans, organisations, unknown keys, revocation
//! and rotation, and what nobody may see.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::admin::{self, AdminClient};
use crate::support::client::{Connection, Response, get, get_with, run};
use crate::support::gateway::{BINARY, Gateway, directory_of};
use crate::support::wait_for;

/// Digests of `k-acme`, `k-acme-2`, `k-beta` and `k-solo` are made by the command.
fn digest(key: &str) -> String {
    let command = format!("printf %s '{key}' | '{BINARY}' client hash");
    let output = run("sh", &["-c", &command]);
    output.stdout.trim().to_owned()
}

fn write(directory: &Path, file: &str, text: &str) {
    let new = directory.join("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, directory.join(file)).expect("renamed");
}

/// Waits for a reload that `change` leads to.
fn reloaded(gateway: &Gateway, result: &str, change: impl FnOnce()) {
    let before = gateway.reloads(result);
    change();
    wait_for("the reload", || {
        (gateway.reloads(result) > before).then_some(())
    });
}

fn start(config: &str, csv: &str) -> Gateway {
    let dir: TempDir = directory_of(config);
    write(dir.path(), "clients.csv", csv);
    Gateway::start_program(Path::new(BINARY), dir)
}

fn csv() -> String {
    format!(
        "\u{feff}# customers\r\nkey,name,plan,org\r\n{},acme,pro,acme-inc\r\n{},\"acme, labs\",free,acme-inc\r\nk-beta,beta,free,\r\n",
        digest("k-acme"),
        digest("k-labs"),
    )
}

fn config(unknown: &str) -> String {
    format!(
        "clients: {{ identify_by: header:x-api-key, files: [clients.csv], unknown: {unknown}, metric_label: plan }}
access_log: {{ path: access.log, client_columns: [org] }}
limits:
  - {{ name: guesses, key: client_ip, quota: 10/1h, count: [401] }}
policies:
  plans:
    key: client
    quota: 2/1h
    overrides: [{{ when: {{ client: {{ plan: [pro, team] }} }}, quota: 4/1h }}]
  orgs: {{ key: \"client:org\", on_missing_key: skip, quota: 5/1h }}
routes:
  - {{ match: {{ path: /org }}, upstream: echo, limits: [orgs] }}
  - {{ match: {{ path: /pro }}, upstream: echo, access: {{ allow: [{{ client: {{ plan: pro }} }}] }} }}
  - {{ upstream: echo, limits: [plans] }}
"
    )
}

fn with_key(gateway: &Gateway, path: &str, key: &str) -> Response {
    get_with(gateway.address(), path, &format!("x-api-key: {key}\r\n"))
}

fn statuses(gateway: &Gateway, path: &str, key: &str, count: usize) -> Vec<u16> {
    (0..count)
        .map(|_| with_key(gateway, path, key).status)
        .collect()
}

#[test]
fn a_plan_and_an_organisation_have_their_limits() {
    let gateway = start(&config("refuse"), &csv());
    assert_eq!(statuses(&gateway, "/", "k-beta", 3), [200, 200, 429]);
    assert_eq!(
        statuses(&gateway, "/", "k-acme", 5),
        [200, 200, 200, 200, 429]
    );
    assert_eq!(statuses(&gateway, "/", "k-labs", 3), [200, 200, 429]);
    // Two clients of one organisation share a bucket; a client without one has none.
    assert_eq!(statuses(&gateway, "/org", "k-acme", 3), [200; 3]);
    assert_eq!(statuses(&gateway, "/org", "k-labs", 3), [200, 200, 429]);
    assert_eq!(statuses(&gateway, "/org", "k-beta", 6), [200; 6]);
    assert_eq!(with_key(&gateway, "/pro", "k-acme").status, 200);
    assert_eq!(with_key(&gateway, "/pro", "k-beta").status, 403);
    assert_eq!(gateway.metric("sluicegate_clients"), Some(3.0));
    for (plan, decision, count) in [("pro", "limited", 1.0), ("free", "allowed", 4.0)] {
        let series = format!(
            "sluicegate_limit_client_decisions_total{{policy=\"plans\",client=\"{plan}\",decision=\"{decision}\"}}"
        );
        assert_eq!(gateway.metric(&series), Some(count), "{series}");
    }
    let log = wait_for("the log", || {
        let log = fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        (log.lines().count() == 25).then_some(log)
    });
    let line: Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
    assert_eq!(line["client"], "beta");
    assert!(line.get("client:org").is_none());
    assert!(
        log.contains("\"client\":\"acme, labs\",\"client:org\":\"acme-inc\""),
        "{log}"
    );
}

#[test]
fn unknown_keys_are_refused_and_guesses_are_limited() {
    let gateway = start(&config("refuse"), &csv());
    let response = with_key(&gateway, "/", "k-guess-0");
    assert_eq!(response.status, 401);
    assert_eq!(
        response.expect_header("www-authenticate"),
        "ApiKey in=\"header:x-api-key\""
    );
    assert_eq!(
        response.expect_header("content-type"),
        "application/problem+json"
    );
    assert!(
        response.text().contains("A known key is needed."),
        "{}",
        response.text()
    );
    // No key, a digest, and two different keys are no better. The limit of guesses is for all.
    assert_eq!(get(gateway.address(), "/").status, 401);
    assert_eq!(with_key(&gateway, "/", &digest("k-acme")).status, 401);
    let both = "x-api-key: k-acme\r\nx-api-key: k-beta\r\n";
    assert_eq!(get_with(gateway.address(), "/", both).status, 401);
    let guesses = (1..7).map(|number| with_key(&gateway, "/none", &format!("k-guess-{number}")));
    assert!(
        guesses
            .map(|response| response.status)
            .all(|status| status == 401)
    );
    assert_eq!(with_key(&gateway, "/", "k-guess-7").status, 429);
    // A customer behind the same address is limited too, which is what the operator asked for.
    assert_eq!(with_key(&gateway, "/", "k-acme").status, 429);
    let lookups = |result: &str| {
        gateway.metric(&format!(
            "sluicegate_client_lookups_total{{result=\"{result}\"}}"
        ))
    };
    assert_eq!(lookups("unknown"), Some(9.0));
    assert_eq!(lookups("no_key"), Some(1.0));
    assert_eq!(lookups("several"), Some(1.0));
}

#[test]
fn anonymous_callers_have_the_bucket_of_their_address() {
    let gateway = start(&config("anonymous"), &csv());
    let mut connection = Connection::open(gateway.address());
    let mut ask = |key: &str| {
        let field = if key.is_empty() {
            String::new()
        } else {
            format!("x-api-key: {key}\r\n")
        };
        connection
            .exchange(&format!("GET / HTTP/1.1\r\nhost: a\r\n{field}\r\n"))
            .status
    };
    // Another made-up key is no way out.
    assert_eq!(["", "x", "y", ""].map(&mut ask), [200, 200, 429, 429]);
    assert_eq!(ask("k-beta"), 200);
    assert_eq!(get(gateway.address(), "/pro").status, 403);
}

#[test]
fn a_changed_file_revokes_and_rotates_keys_and_a_broken_one_changes_nothing() {
    let mut gateway = start(&config("refuse"), &csv());
    assert_eq!(statuses(&gateway, "/", "k-beta", 2), [200, 200]);
    // A second key of the same client has its bucket.
    let rotated = format!("{}{},beta,free,\n", csv(), digest("k-beta-2"));
    reloaded(&gateway, "success", || {
        write(gateway.dir(), "clients.csv", &rotated)
    });
    assert_eq!(with_key(&gateway, "/", "k-beta-2").status, 429);
    let revoked = rotated.replace("k-beta,beta,free,\r\n", "");
    reloaded(&gateway, "success", || {
        write(gateway.dir(), "clients.csv", &revoked)
    });
    assert_eq!(with_key(&gateway, "/", "k-beta").status, 401);
    assert_eq!(with_key(&gateway, "/", "k-beta-2").status, 429);
    for (broken, expected) in [
        (
            format!("{revoked}# more\n\nk-secret,acme,free,acme-inc\n"),
            "line 8, column `plan`: the same client has another value in",
        ),
        (
            format!("{revoked}k-secret,new\n"),
            "line 6: expected 4 fields",
        ),
        (
            format!("{revoked}k-secret,new,free,\nk-secret,other,free,\n"),
            "line 7: the key stands in",
        ),
        (
            revoked.replace("key,name", "name,label"),
            "there is no column `key`",
        ),
        (
            format!("{revoked}sha256:12,new,free,\n"),
            "line 6, column `key`: expected 64 hexadecimal digits",
        ),
        (
            format!("{revoked}k-secret,,free,\n"),
            "line 6, column `name`: the name is empty",
        ),
        (
            revoked.replace(",plan,", ",tier,"),
            "the clients have no column `plan`",
        ),
    ] {
        reloaded(&gateway, "failure", || {
            write(gateway.dir(), "clients.csv", &broken)
        });
        let log = gateway.wait_for_log(expected);
        assert!(!log.contains("k-secret"), "{log}");
        assert_eq!(with_key(&gateway, "/", "k-beta-2").status, 429);
    }
    reloaded(&gateway, "success", || {
        write(gateway.dir(), "clients.csv", &rotated)
    });
    gateway.upgrade();
    assert_eq!(with_key(&gateway, "/", "k-beta").status, 429);
    assert_eq!(with_key(&gateway, "/", "k-acme").status, 200);
}

#[test]
fn people_read_the_name_and_nobody_the_key() {
    let text = format!(
        "{}admin: {{ address: 127.0.0.1:0, tokens: {{ write: [a-token-of-the-test] }} }}\n",
        config("refuse")
    );
    let gateway = start(&text, &csv());
    assert_eq!(statuses(&gateway, "/", "k-beta", 3), [200, 200, 429]);
    assert_eq!(with_key(&gateway, "/", "k-unknown-1").status, 401);
    let admin = AdminClient::new(&gateway, "a-token-of-the-test");
    let policy = admin.read("/v1/top");
    assert!(policy.to_string().contains("beta"), "{policy}");
    // Operators name the client, and change the bucket of its plan.
    assert_eq!(statuses(&gateway, "/", "k-acme", 5)[3..], [200, 429]);
    let key = json!({ "policy": "plans", "key": "acme" });
    let state = admin::json(&admin.post("/v1/keys/lookup", &key));
    assert_eq!(state["quota"], "4/1h", "{state}");
    let reset = admin.post("/v1/keys/reset", &key);
    assert_eq!(reset.status, 200, "{}", reset.text());
    assert_eq!(with_key(&gateway, "/", "k-acme").status, 200);
    let explained = run(
        BINARY,
        &[
            "explain",
            "--config",
            gateway.config_path().to_str().expect("UTF-8"),
            "GET",
            "/",
            "-H",
            "x-api-key: k-beta",
        ],
    );
    assert!(
        explained.stdout.contains("beta"),
        "{}{}",
        explained.stdout,
        explained.stderr
    );
    let places = [
        "/v1/config",
        "/v1/policies",
        "/v1/top",
        "/v1/routes",
        "/metrics",
    ];
    let answers = places.map(|place| admin.get(place).text());
    let log = gateway.log();
    for text in answers.iter().chain([&log, &explained.stdout]) {
        for secret in ["k-beta", "k-acme", "k-unknown-1"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

/// Clients in place, by a bearer token, with a calendar in the zone of each.
#[test]
fn a_month_ends_in_the_zone_of_the_client() {
    let gateway = Gateway::start(
        "clients:
  identify_by: [bearer, \"query:key\"]
  list:
    - { key: k-east, name: east, zone: Pacific/Kiritimati }
    - { key: k-west, name: west, zone: Pacific/Niue }
responses: { headers: [github] }
routes:
  - upstream: echo
    limits: [{ key: client, algorithm: fixed_window, quota: 1000/1d, time_zone: { from: \"client:zone\" } }]
",
    );
    let reset = |response: &Response| {
        let reset = response.expect_header("x-ratelimit-reset");
        reset.parse::<u64>().expect("a number")
    };
    let bearer = |key: &str| {
        get_with(
            gateway.address(),
            "/",
            &format!("authorization: bearer  {key} x\r\n"),
        )
    };
    let [east, west] = ["k-east", "k-west"].map(|key| reset(&bearer(key)));
    // Their clocks differ by 25 hours.
    assert_eq!(east.abs_diff(west) % (24 * 3600), 3600, "{east} {west}");
    assert_eq!(reset(&get(gateway.address(), "/?key=k%2Dwest")), west);
    assert_eq!(bearer("k-south").status, 401);
    assert_eq!(
        bearer("k-south").expect_header("www-authenticate"),
        "Bearer, ApiKey in=\"query:key\""
    );
}
