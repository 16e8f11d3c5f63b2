//! `sluicegate keys`: looks at one key of a running proxy, and changes it.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::admin::{AdminClient, READER, TOKENS, WRITER};
use crate::support::client::{Output, get_with};
use crate::support::gateway::Gateway;
use crate::support::steering::UNTIL;

const CONFIG: &str = "policies:
  per-key: { key: \"header:x-key\", quota: 2/300d }
  pairs: { key: [client_ip, \"header:x-key\"], quota: 2/300d }
  all: { key: constant, quota: 100/300d }
routes: [{ upstream: echo, limits: [per-key, pairs, all] }]
";

fn keys(gateway: &Gateway, token: &str, arguments: &[&str], stdin: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    let mut process = command
        .arg("keys")
        .args(arguments)
        .args(["--admin", &gateway.admin.to_string()])
        .current_dir(gateway.dir())
        .env_remove("SLUICEGATE_CONFIG")
        .env("SLUICEGATE_ADMIN_TOKEN", token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut pipe = process.stdin.take().expect("stdin is a pipe");
    // A command that reads no key may have ended.
    _ = pipe.write_all(stdin.as_bytes());
    drop(pipe);
    let output = process.wait_with_output().expect("the command ends");
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

fn start() -> Gateway {
    Gateway::start(&format!("{TOKENS}{CONFIG}"))
}

fn ask(gateway: &Gateway) -> u16 {
    get_with(gateway.address(), "/", "x-key: alice\r\n").status
}

#[track_caller]
fn done(output: &Output) -> &str {
    assert_eq!(output.code, Some(0), "{output}");
    &output.stdout
}

#[test]
fn a_key_is_looked_at_reset_granted_banned_and_unbanned() {
    let gateway = start();
    assert_eq!([0; 3].map(|_| ask(&gateway)), [200, 200, 429]);
    let write = |arguments: &[&str]| keys(&gateway, WRITER, arguments, "");

    let looked = keys(&gateway, READER, &["lookup", "per-key", "alice"], "");
    let text = done(&looked);
    assert!(text.contains("2 of 2 requests, 0 left"), "{text}");
    assert!(text.contains("refused; allowed again in"), "{text}");
    assert!(!text.contains("alice"), "{text}");
    let json = keys(
        &gateway,
        READER,
        &["lookup", "per-key", "alice", "--json"],
        "",
    );
    let json: serde_json::Value = serde_json::from_str(done(&json)).expect("JSON");
    assert_eq!(json["used"], 2);

    let tried = write(&["reset", "per-key", "alice", "--dry-run"]);
    assert!(done(&tried).contains("0 of 2 requests, 2 left"), "{tried}");
    assert!(tried.stderr.contains("nothing is changed"), "{tried}");
    assert_eq!(ask(&gateway), 429);
    done(&write(&["reset", "per-key", "alice", "--reason", "a try"]));
    gateway.wait_for_log("reason=\"a try\"");
    done(&write(&["reset", "pairs", "127.0.0.1", "alice"]));
    assert_eq!([0; 3].map(|_| ask(&gateway)), [200, 200, 429]);

    let until = UNTIL.as_str();
    let granted = write(&[
        "grant", "per-key", "alice", "--units", "1", "--until", until,
    ]);
    assert!(done(&granted).contains("1 of 1 requests left"), "{granted}");
    done(&write(&["reset", "pairs", "127.0.0.1", "alice"]));
    assert_eq!([0; 2].map(|_| ask(&gateway)), [200, 429]);

    done(&write(&["reset", "per-key", "alice"]));
    let banned = write(&[
        "ban", "per-key", "alice", "--for", "1h", "--reason", "abuse",
    ]);
    assert!(done(&banned).contains(": abuse"), "{banned}");
    assert_eq!(ask(&gateway), 429);
    done(&write(&["unban", "per-key", "alice"]));
    assert_eq!(ask(&gateway), 200);
    assert!(!gateway.log().contains("alice"), "keys are not logged");
}

#[test]
fn a_reset_of_a_banned_key_says_that_the_ban_remains() {
    let gateway = start();
    let write = |arguments: &[&str]| keys(&gateway, WRITER, arguments, "");
    assert_eq!(ask(&gateway), 200);
    let banned = write(&["ban", "per-key", "alice", "--for", "1h"]);
    let note = "note       a restart ends it: `store.memory.snapshot` isn't set";
    assert!(done(&banned).contains(note), "{banned}");
    for change in [
        &["reset", "per-key", "alice", "--dry-run"][..],
        &["reset", "per-key", "alice"],
        &["grant", "per-key", "alice", "--units", "1", "--for", "1h"],
    ] {
        let changed = write(change);
        let mut lines = done(&changed).lines();
        let now = lines.find(|line| line.starts_with("now"));
        let states = now.map(|line| line.matches("banned; allowed again in").count());
        assert_eq!(states, Some(2), "{changed}");
        let note = lines.find(|line| line.starts_with("note"));
        let said = |note: &str| note.contains("stays banned until") && note.contains("`unban`");
        assert!(note.is_some_and(said), "{changed}");
    }
    assert_eq!(ask(&gateway), 429);
    let unbanned = write(&["unban", "per-key", "alice"]);
    assert!(!done(&unbanned).contains("note"), "{unbanned}");
    assert_eq!(ask(&gateway), 200);
}

#[test]
fn bans_and_grants_are_listed_and_ended() {
    let gateway = start();
    let write = |arguments: &[&str]| keys(&gateway, WRITER, arguments, "");
    let list = |arguments: &[&str]| keys(&gateway, READER, &[&["list"], arguments].concat(), "");
    let none = list(&[]);
    assert_eq!(done(&none), "", "{none}");
    assert!(none.stderr.contains("no ban or grant"), "{none}");
    let grant = ["grant", "per-key", "alice", "--units", "3", "--for", "1h"];
    done(&write(&grant));
    let ban = [
        "ban", "per-key", "alice", "--for", "1h", "--reason", "ticket 7",
    ];
    let banned = write(&[&ban[..], &["--all-policies"]].concat());
    assert!(
        !done(&banned).contains("also in"),
        "no other policy has such a key: {banned}"
    );
    let again = write(&ban);
    assert!(
        done(&again).contains("replaces the ban until 20"),
        "{again}"
    );
    assert!(done(&again).contains(" by write#1: ticket 7"), "{again}");

    let listed = list(&["--policy", "per-key"]);
    let lines: Vec<_> = done(&listed).lines().collect();
    assert!(lines[0].starts_with("POLICY   WHAT "), "{listed}");
    assert!(lines[1].starts_with("per-key  ban "), "{listed}");
    assert!(lines[1].ends_with("  write#1  ticket 7"), "{listed}");
    assert!(
        lines[2].starts_with("per-key  grant, 3 of 3 left  k_"),
        "{listed}"
    );
    assert_eq!(lines.len(), 3, "{listed}");
    let page = list(&["--limit", "1"]);
    assert_eq!(done(&page).lines().count(), 2, "{page}");
    let (said, next) = page.stderr.split_once("--after ").expect("the next page");
    assert!(said.contains("1 of 2"), "{page}");
    let rest = list(&["--after", next.trim()]);
    assert!(done(&rest).contains("grant, 3 of 3 left"), "{rest}");
    assert_eq!(rest.stderr, "", "{rest}");
    let json = list(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(done(&json)).expect("JSON");
    assert_eq!(json["total"], 2);

    assert_eq!(ask(&gateway), 429);
    let id = key_id(&gateway, &["per-key", "alice"]);
    let tried = write(&["revoke", "per-key", &id, "ban", "--dry-run"]);
    assert!(done(&tried).contains("ticket 7") && tried.stderr.contains("nothing is changed"));
    assert_eq!(ask(&gateway), 429);
    done(&write(&[
        "revoke",
        "per-key",
        &id,
        "ban",
        "--reason",
        "a mistake",
    ]));
    assert_eq!(ask(&gateway), 200);
    gateway.wait_for_log("a mistake");
    let over = write(&["revoke", "per-key", &id, "ban"]);
    assert_eq!(over.code, Some(1), "{over}");
    assert!(over.stderr.contains("404"), "{over}");
    let wrong = write(&["revoke", "per-key", &id, "both"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
    let reader = keys(&gateway, READER, &["revoke", "per-key", &id, "grant"], "");
    assert!(reader.stderr.contains("403"), "{reader}");
}

#[test]
fn a_client_is_found_in_every_policy_with_such_a_key() {
    let gateway = start();
    let find = |arguments: &[&str]| {
        let arguments = [&["find"], arguments].concat();
        keys(&gateway, READER, &arguments, "")
    };
    let unknown = find(&["alice"]);
    assert_eq!(done(&unknown), "", "{unknown}");
    assert!(
        unknown.stderr.contains("is it mistyped, or idle?"),
        "{unknown}"
    );
    assert_eq!([0; 3].map(|_| ask(&gateway)), [200, 200, 429]);
    let grant = ["grant", "per-key", "alice", "--units", "3", "--for", "1h"];
    done(&keys(&gateway, WRITER, &grant, ""));

    let found = find(&["alice"]);
    let lines: Vec<_> = done(&found).lines().collect();
    assert_eq!(
        lines,
        [
            "POLICY            USED             LIMITED  NOW",
            "per-key (2/300d)  2 of 2 requests        1  allowed, 3 granted",
        ]
    );
    let pair = find(&["127.0.0.1", "alice"]);
    let refused = "\npairs (2/300d)  2 of 2 requests        1  refused; allowed again in ";
    assert!(done(&pair).contains(refused), "{pair}");
    let json = find(&["alice", "--json"]);
    let json: serde_json::Value = serde_json::from_str(done(&json)).expect("JSON");
    assert_eq!(json["items"][0]["state"]["granted"]["units"], 3);
    assert_eq!(json["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["longer"], json!(["pairs (client_ip, header:x-key)"]));
    assert!(!json.to_string().contains("alice"), "{json}");

    let many = find(&["a", "b", "c"]);
    assert_eq!(many.code, Some(1), "{many}");
    assert!(many.stderr.contains("no policy has such a key"), "{many}");
    let id = find(&["k_5f0c1a2b3c4d5e6f"]);
    assert_eq!(id.code, Some(1), "{id}");
    assert!(id.stderr.contains("the key is an id"), "{id}");
    let forged = keys(&gateway, "wrong", &["find", "alice"], "");
    assert_eq!(forged.code, Some(1), "{forged}");
}

/// A store that doesn't answer hides no policy with another store.
#[test]
fn a_client_is_found_while_a_store_is_away() {
    let mut gateway = Gateway::start_unready(&format!(
        "{TOKENS}store: {{ redis: {{ url: redis://127.0.0.1:1 }} }}
policies:
  local: {{ key: \"header:x-key\", quota: 2/300d }}
  shared: {{ key: \"header:x-key\", quota: 2/300d, store: redis }}
  address: {{ key: client_ip, quota: 2/300d }}
routes: [{{ upstream: echo, limits: [local, shared, address] }}]
"
    ));
    // Without Redis it isn't ready, and listens after `startup_timeout`.
    let address = gateway.listeners(1)[0];
    assert_eq!(get_with(address, "/", "x-key: alice\r\n").status, 200);
    let found = keys(&gateway, READER, &["find", "alice"], "");
    assert_eq!(found.code, Some(1), "{found}");
    assert!(found.stdout.contains("local (2/300d)  1 of 2"), "{found}");
    assert!(found.stderr.contains("shared: the Redis store"), "{found}");
    let find = |body: serde_json::Value| AdminClient::writer(&gateway).post("/v1/keys/find", &body);
    let local = find(json!({ "key": "bob", "policies": ["local"] }));
    let local: serde_json::Value = serde_json::from_slice(&local.body).expect("JSON");
    assert_eq!(local["items"][0]["state"]["verdict"], "allowed");
    assert_eq!(local["items"][0]["state"]["stored"], false);
    let address = find(json!({ "key": "bob", "policies": ["address"] }));
    assert_eq!(address.status, 422, "{}", address.text());
    assert!(!gateway.log().contains("alice"), "keys are not logged");
}

/// Its line says its organisation and plan. Of keys with parts that it doesn't say, stores have hashes.
#[test]
fn the_name_of_a_client_finds_and_resets_its_buckets() {
    let gateway = Gateway::start(&format!(
        "admin: {{ address: 127.0.0.1:0, tokens: {{ read: [{READER}], write: [{WRITER}] }} }}
clients:
  identify_by: header:x-key
  list:
    - {{ key: k-acme, name: acme, plan: pro, org: acme-inc }}
    - {{ key: k-solo, name: solo, plan: '', org: '' }}
policies:
  alone: {{ key: client, quota: 2/300d }}
  both: {{ key: [client, 'client:plan'], quota: 2/300d }}
  by-org: {{ key: 'client:org', quota: 2/300d }}
  mixed: {{ key: [client, 'query:model'], quota: 2/300d }}
  other: {{ key: 'header:x-tenant', on_missing_key: skip, quota: 2/300d }}
routes: [{{ upstream: echo, limits: [alone, both, by-org, mixed, other] }}]
"
    ));
    let ask = || get_with(gateway.address(), "/?model=m", "x-key: k-acme\r\n").status;
    assert_eq!([0; 3].map(|_| ask()), [200, 200, 429]);
    let find = |name: &str| keys(&gateway, READER, &["find", name], "");
    let found = find("acme");
    let names = |found: &Output| -> Vec<String> {
        let rows = done(found).lines().skip(1);
        let rows = rows.map(|row| row.split(" (").next().expect("a name").to_owned());
        rows.collect()
    };
    assert_eq!(names(&found), ["alone", "both", "by-org"], "{found}");
    assert!(found.stdout.matches("refused").count() == 3, "{found}");
    assert!(
        found
            .stderr
            .contains("not looked for in mixed (client, query:model): "),
        "{found}"
    );
    let of_org = find("acme-inc");
    assert_eq!(names(&of_org), ["by-org"], "{of_org}");

    // A text that is a client's name means the client, in other policies, too.
    let any = [
        "reset",
        "alone",
        "--key-json",
        r#"{"any":"acme"}"#,
        "--all-policies",
        "--dry-run",
    ];
    let tried = keys(&gateway, WRITER, &any, "");
    assert!(
        done(&tried).contains("also in    both (dry_run)\n"),
        "{tried}"
    );

    let name = r#"{"client":"acme"}"#;
    let reset = ["reset", "alone", "--key-json", name, "--all-policies"];
    let reset = keys(&gateway, WRITER, &reset, "");
    assert!(
        done(&reset).contains("also in    both (applied)\n"),
        "{reset}"
    );
    let found = find("acme");
    assert_eq!(names(&found), ["by-org", "alone", "both"], "{found}");
    assert_eq!(found.stdout.matches("refused").count(), 1, "{found}");
    for (policy, name, why) in [
        ("alone", r#"{"client":"nobody"}"#, "no client has this name"),
        ("mixed", name, "isn't that of a client alone"),
        ("other", name, "isn't that of a client alone"),
        ("by-org", r#"{"client":"solo"}"#, "`client:org` is empty"),
    ] {
        let output = keys(
            &gateway,
            READER,
            &["lookup", policy, "--key-json", name],
            "",
        );
        assert_eq!(output.code, Some(1), "{output}");
        assert!(output.stderr.contains(why), "{output}");
    }
}

#[test]
fn a_grant_is_taken_back_without_an_end() {
    let gateway = start();
    let grant = |units: &str, end: &[&str]| {
        let arguments = [&["grant", "per-key", "alice", "--units", units], end].concat();
        keys(&gateway, WRITER, &arguments, "")
    };
    let status = || {
        let answer = AdminClient::writer(&gateway).get("/v1/status");
        answer.text()
    };
    let granted = grant("3", &["--for", "1h"]);
    assert!(done(&granted).contains("nothing was stored of this key before"));
    assert_eq!(granted.stderr, "", "it is said once");
    let note = "policy per-key: a key has a grant by an operator";
    assert!(status().contains(note), "{}", status());
    let taken = grant("0", &[]);
    assert!(done(&taken).contains("3 of 3 requests left"), "{taken}");
    assert!(!status().contains(note), "{}", status());
    let endless = grant("1", &[]);
    assert_eq!(endless.code, Some(2), "{endless}");
}

#[test]
fn a_grant_has_one_end_which_is_still_to_come() {
    let gateway = start();
    let grant = |end: &[&str]| {
        let arguments = [&["grant", "per-key", "alice", "--units", "1"], end].concat();
        keys(&gateway, WRITER, &arguments, "")
    };
    assert!(done(&grant(&["--for", "1h"])).contains("1 of 1 requests left"));
    let past = grant(&["--until", "2026-01-01T00:00:00Z"]);
    assert_eq!(past.code, Some(1), "{past}");
    let year = "`until` is in the past: it is 20";
    assert!(
        past.stderr.contains(year) && past.stderr.contains("Z now"),
        "{past}"
    );
    for (end, said) in [
        ("0s", "`for` is a duration from 1ms to 366 days"),
        ("soon", "`for` is a duration from 1ms to 366 days"),
        ("367d", "a grant lasts at most 366 days"),
    ] {
        let wrong = grant(&["--for", end]);
        assert_eq!(wrong.code, Some(1), "{wrong}");
        assert!(wrong.stderr.contains(said), "{wrong}");
    }
    let until = UNTIL.as_str();
    for end in [&[][..], &["--for", "1h", "--until", until]] {
        let wrong = grant(end);
        assert_eq!(wrong.code, Some(2), "{wrong}");
        assert!(wrong.stderr.contains("--for"), "{wrong}");
        assert!(wrong.stderr.contains("--until"), "{wrong}");
    }
    let client = AdminClient::writer(&gateway);
    let body = json!({ "policy": "per-key", "key": "alice", "units": 1 });
    let answer = client.post("/v1/keys/grant", &body);
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert!(
        answer.text().contains("either `until`"),
        "{}",
        answer.text()
    );
}

#[test]
fn a_key_comes_from_stdin_a_file_or_json_too() {
    let gateway = start();
    ask(&gateway);
    let used = |arguments: &[&str], stdin: &str| {
        let arguments = [&["lookup"], arguments, &["--json"]].concat();
        let output = keys(&gateway, READER, &arguments, stdin);
        let json: serde_json::Value = serde_json::from_str(done(&output)).expect("JSON");
        json["used"].as_u64()
    };
    assert_eq!(used(&["per-key", "--key-file", "-"], "alice\n"), Some(1));
    assert_eq!(
        used(&["pairs", "--key-file", "-"], "127.0.0.1\nalice"),
        Some(1)
    );
    fs::write(gateway.dir().join("key"), "alice\r\n").expect("the directory is writable");
    assert_eq!(used(&["per-key", "--key-file", "key"], ""), Some(1));
    let json = ["pairs", "--key-json", "[\"127.0.0.1\", \"alice\"]"];
    assert_eq!(used(&json, ""), Some(1));
    assert_eq!(used(&["all"], ""), Some(1));
}

/// The name of a key in answers.
fn key_id(gateway: &Gateway, key: &[&str]) -> String {
    let arguments = [&["lookup"], key, &["--json"]].concat();
    let output = keys(gateway, READER, &arguments, "");
    let json: serde_json::Value = serde_json::from_str(done(&output)).expect("JSON");
    json["key_id"].as_str().expect("a text").to_owned()
}

#[test]
fn a_key_of_which_nothing_is_stored_is_in_doubt() {
    let gateway = start();
    assert_eq!(ask(&gateway), 200);
    let doubt = "is it mistyped, or idle?";
    let read = |key: &[&str]| keys(&gateway, READER, &[&["lookup"], key].concat(), "");
    for known in [&["per-key", "alice"][..], &["pairs", "127.0.0.1", "alice"]] {
        let known = read(known);
        done(&known);
        assert!(!known.stderr.contains(doubt), "{known}");
    }
    for unknown in [&["per-key", "alise"][..], &["pairs", "127.0.0.2", "alice"]] {
        let unknown = read(unknown);
        done(&unknown);
        assert!(unknown.stderr.contains(doubt), "{unknown}");
    }
    let json = read(&["per-key", "alise", "--json"]);
    let state: serde_json::Value = serde_json::from_str(done(&json)).expect("JSON");
    assert_eq!(state["stored"], false, "{json}");
    assert!(json.stderr.contains(doubt), "{json}");

    let write = |arguments: &[&str]| {
        let output = keys(&gateway, WRITER, arguments, "");
        done(&output).contains(doubt)
    };
    assert!(write(&["reset", "per-key", "alise"]));
    assert!(write(&[
        "ban",
        "per-key",
        "alise",
        "--for",
        "1h",
        "--dry-run"
    ]));
    assert!(write(&["ban", "per-key", "alise", "--for", "1h"]));
    assert!(!write(&["unban", "per-key", "alise"]), "it had a ban");
    let grant = ["grant", "per-key", "bob", "--units", "1", "--for", "1h"];
    assert!(write(&grant));
    assert!(!write(&["lookup", "per-key", "bob"]), "it has a grant");
    assert!(!write(&["reset", "per-key", "alice"]));
    assert!(write(&["reset", "per-key", "alice"]), "its bucket is gone");
}

#[test]
fn an_id_is_no_key_unless_clients_have_it() {
    let gateway = start();
    ask(&gateway);
    let id = key_id(&gateway, &["per-key", "alice"]);
    for arguments in [
        &["lookup", "per-key", &id][..],
        &["reset", "per-key", &id],
        &["unban", "per-key", &id, "--dry-run"],
        &["ban", "per-key", &id, "--for", "1h"],
        // The number of parts doesn't matter more.
        &["reset", "pairs", &id],
    ] {
        let wrong = keys(&gateway, WRITER, arguments, "");
        assert_eq!(wrong.code, Some(1), "{wrong}");
        for part in ["422", "the key is an id", "access log", "--key-json"] {
            assert!(wrong.stderr.contains(part), "{wrong}");
        }
    }
    let text = format!("[{id:?}]");
    let ban = ["ban", "per-key", "--key-json", &text, "--for", "1h"];
    done(&keys(&gateway, WRITER, &ban, ""));
    let field = format!("x-key: {id}\r\n");
    assert_eq!(get_with(gateway.address(), "/", &field).status, 429);
    let unban = ["unban", "per-key", "--key-json", &text];
    done(&keys(&gateway, WRITER, &unban, ""));
    get_with(gateway.address(), "/", &format!("x-key: {id}\r\n"));
    let own = keys(&gateway, READER, &["lookup", "per-key", &id], "");
    assert!(done(&own).contains("1 of 2 requests"), "{own}");
    let longer = format!("{id}0");
    done(&keys(&gateway, READER, &["lookup", "per-key", &longer], ""));
}

#[test]
fn a_policy_that_refuses_nothing_says_what_it_would_do() {
    let modes = CONFIG.replace(
        "policies:\n",
        "policies:\n  none: { key: \"header:x-key\", quota: 1/300d, percent: 0 }\n",
    );
    let modes = modes.replace("limits: [", "limits: [none, ");
    let gateway = Gateway::start(&format!("{TOKENS}{modes}"));
    ask(&gateway);
    let looked = |policy| keys(&gateway, READER, &["lookup", policy, "alice"], "");
    let rolled_out = looked("none");
    let text = done(&rolled_out);
    assert!(text.contains("shadow: it refuses nothing"), "{text}");
    assert!(
        text.contains("would be refused; allowed again in"),
        "{text}"
    );

    assert_eq!([0; 2].map(|_| ask(&gateway)), [200, 429]);
    assert!(!done(&looked("per-key")).contains("mode"));
    let client = AdminClient::writer(&gateway);
    let shadow = json!({ "mode": "shadow" });
    client.post("/v1/policies/per-key/mode", &shadow);
    client.post("/v1/policies/pairs/mode", &shadow);
    assert_eq!(ask(&gateway), 200);
    let set = looked("per-key");
    assert!(done(&set).contains("would be refused"), "{set}");
    let json = keys(
        &gateway,
        READER,
        &["lookup", "per-key", "alice", "--json"],
        "",
    );
    let state: serde_json::Value = serde_json::from_str(done(&json)).expect("JSON");
    assert_eq!(state["mode"], "shadow");
}

#[test]
fn wrong_keys_and_callers_are_told_so() {
    let gateway = start();
    let read = |arguments: &[&str], stdin: &str| {
        let output = keys(&gateway, READER, arguments, stdin);
        assert_eq!(output.stdout, "", "{output}");
        (output.code, output.stderr)
    };
    let file = ["lookup", "per-key", "--key-file"];
    let (code, told) = read(&[&file[..], &["nothing"]].concat(), "");
    assert!(
        code == Some(2) && told.contains("cannot read the key from nothing"),
        "{told}"
    );
    let (code, told) = read(&[&file[..], &["-"]].concat(), "");
    assert!(
        code == Some(2) && told.contains("a line for each part"),
        "{told}"
    );
    let (code, told) = read(&[&file[..], &["-"]].concat(), &"x".repeat(70_000));
    assert!(code == Some(2) && told.contains("64 KiB"), "{told}");
    let (code, told) = read(&["lookup", "per-key", "--key-json", "alice"], "");
    assert!(code == Some(2) && told.contains("double quotes"), "{told}");
    let (code, told) = read(&["lookup", "per-kei", "alice"], "");
    assert!(
        code == Some(1) && told.contains("did you mean `per-key`?"),
        "{told}"
    );
    let (code, told) = read(&["lookup", "per-key", "alice", "bob"], "");
    assert!(code == Some(1) && told.contains("422"), "{told}");
    let (code, told) = read(&["reset", "per-key", "alice"], "");
    assert_eq!(code, Some(1), "{told}");
    let proxy = format!("http://{}", gateway.admin);
    for part in [&*proxy, "403", "$SLUICEGATE_ADMIN_TOKEN", "--token-file"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let (code, told) = read(&["lookup", "per-key"], "");
    assert!(code == Some(1) && told.contains("name the key"), "{told}");
    let grant = ["grant", "per-key", "alice", "--for", "1h", "--units", "ten"];
    let (code, told) = read(&grant, "");
    assert!(code == Some(2) && told.contains("a whole number"), "{told}");
    let stdin = ["lookup", "per-key", "--key-file", "-", "--token-file", "-"];
    let (code, told) = read(&stdin, "alice");
    assert!(code == Some(2) && told.contains("not both"), "{told}");
}

#[test]
fn buckets_that_only_some_requests_of_a_key_have_are_shown_beside_its_own() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}policies:
  per-key:
    key: header:x-key
    quota: 5/300d
    overrides:
      - {{ when: {{ header: {{ x-plan: \"gold ]\" }} }}, value: alice, quota: 9/300d }}
      - {{ when: {{ method: [GET] }}, quota: 1/300d }}
routes: [{{ upstream: echo, limits: [per-key] }}]
"
    ));
    assert_eq!([0; 2].map(|_| ask(&gateway)), [200, 429]);
    let gold = "x-key: alice\r\nx-plan: gold ]\r\n";
    assert_eq!(get_with(gateway.address(), "/", gold).status, 200);
    let found = keys(&gateway, READER, &["find", "alice"], "");
    let rows: Vec<_> = done(&found).lines().skip(1).collect();
    assert_eq!(rows.len(), 3, "{found}");
    let gold = r#"(9/300d, when {"header":{"x-plan":"***"}}, value ***)"#;
    assert!(rows[1].contains(gold), "{found}");
    assert!(
        rows[0].contains("(5/300d)") && rows[0].contains("0 of 5"),
        "{found}"
    );
    assert!(
        rows[2].contains(r#"(1/300d, when {"method":["GET"]})"#),
        "{found}"
    );
    assert!(
        rows[2].contains("1 of 1") && rows[2].contains("refused"),
        "{found}"
    );
    let looked = keys(&gateway, READER, &["lookup", "per-key", "alice"], "");
    let text = done(&looked);
    assert!(text.contains("1 of 1 requests; refused"), "{text}");
    done(&keys(&gateway, WRITER, &["reset", "per-key", "alice"], ""));
    assert_eq!(ask(&gateway), 200);
}
