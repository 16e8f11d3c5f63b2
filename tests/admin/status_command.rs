//! `sluicegate status`: finds a running proxy, and says how it is.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::support::admin::{AdminClient, READER, TOKENS, json as body};
use crate::support::client::Output;
use crate::support::gateway::Gateway;

const ROUTES: &str = "routes: [{ upstream: echo }]\n";

fn status(gateway: &Gateway, token: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command
        .arg("status")
        .args(arguments)
        .current_dir(gateway.dir())
        .env_remove("SLUICEGATE_CONFIG")
        .env_remove("SLUICEGATE_ADMIN_TOKEN")
        .envs(token.map(|token| ("SLUICEGATE_ADMIN_TOKEN", token)));
    let output = command.output().expect("the binary starts");
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

#[test]
fn status_says_how_the_proxy_is_and_exits_with_1_if_it_has_a_problem() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    // The file names port 0, which is any, so that the token of the file is sent there.
    let admin = format!("http://{}", gateway.admin);
    let well = status(&gateway, None, &["--admin", &admin]);
    assert_eq!(well.code, Some(0), "{well}");
    assert!(
        well.stdout.contains("ready") && well.stdout.contains("problems"),
        "{well}"
    );
    assert!(!well.stdout.contains("0123456789"), "{well}");
    let json = status(&gateway, Some(READER), &["--admin", &admin, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(json["phase"], "ready");

    assert!(!well.stdout.contains("(unknown)"), "{well}");

    gateway.replace_config("routes: [{ upstream: nowhere }]\n");
    gateway.wait_for_log("the configuration is not reloaded");
    let ill = status(&gateway, Some(READER), &["--admin", &admin]);
    assert_eq!(ill.code, Some(1), "{ill}");
    assert!(ill.stdout.contains("the last reload failed"), "{ill}");
}

#[test]
fn a_mode_that_an_operator_set_is_a_note_until_it_is_undone() {
    let policies = "policies: { per-key: { quota: 5/1h }, trial: { quota: 5/1h, mode: shadow } }
routes: [{ upstream: echo, limits: [per-key, trial] }]\n";
    let gateway = Gateway::start(&format!("{TOKENS}{policies}"));
    let admin = gateway.admin.to_string();
    let notes = || {
        let told = status(&gateway, Some(READER), &["--admin", &admin]);
        assert_eq!(told.code, Some(0), "{told}");
        let lines = told.stdout.lines();
        let notes = lines.filter(|line| line.starts_with("note"));
        notes.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(notes(), [""; 0]);
    let client = AdminClient::writer(&gateway);
    let set = |policy: &str, body| client.post(&format!("/v1/policies/{policy}/mode"), &body);
    set(
        "per-key",
        json!({ "mode": "shadow", "reason": "ticket 42" }),
    );
    let noted = notes();
    let [note] = &noted[..] else {
        panic!("{noted:?}");
    };
    for part in [
        "policy per-key is in mode shadow",
        "it refuses nothing",
        "The configuration has enforce",
        "Reason: ticket 42",
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
    let answer = client.get("/v1/policies/per-key");
    assert_eq!(body(&answer)["mode"]["reason"], "ticket 42");
    assert!(body(&answer)["mode"]["set_at"].is_string());
    set("trial", json!({ "mode": "enforce" }));
    assert_eq!(notes().len(), 2);
    set("per-key", json!({ "mode": "configured" }));
    set("trial", json!({ "mode": "configured" }));
    assert_eq!(notes(), [""; 0]);
}

#[test]
fn a_drained_endpoint_is_a_note_until_it_serves_again() {
    let gateway = Gateway::start(&format!(
        "{TOKENS}upstreams: {{ api: {{ endpoints: ['http://127.0.0.1:9'] }} }}\nroutes: [{{ upstream: api }}]\n"
    ));
    let client = AdminClient::writer(&gateway);
    let drain = |drain: bool| {
        let path = "/v1/upstreams/api/endpoints/127.0.0.1:9/drain";
        let answer = client.post(path, &json!({ "drain": drain }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        body(&client.get("/v1/status"))["notes"].clone()
    };
    let note = "upstream api: 127.0.0.1:9 is drained by an operator and gets no new requests";
    assert_eq!(drain(true), json!([note]));
    assert_eq!(drain(false), json!([]));
}

#[test]
fn a_token_of_the_file_is_sent_to_the_address_of_the_file_alone() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    let file = TOKENS.replace("127.0.0.1:0", "127.0.0.1:9");
    let own = gateway.dir().join("own.yaml");
    fs::write(&own, format!("{file}{ROUTES}")).expect("the directory is writable");
    let other = gateway.admin.to_string();
    let arguments = ["--config", "own.yaml", "--admin", &other];
    let refused = status(&gateway, None, &arguments);
    assert_eq!(refused.code, Some(1), "{refused}");
    for part in [&*other, "own.yaml", "which is 127.0.0.1:9:", "--token-file"] {
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    fs::write(gateway.dir().join("token"), format!("{READER}\n")).expect("a file");
    let with_file = [&arguments[..], &["--token-file", "token"]].concat();
    let answered = status(&gateway, None, &with_file);
    assert_eq!(answered.code, Some(0), "{answered}");
    assert_eq!(status(&gateway, Some(READER), &arguments).code, Some(0));

    fs::write(gateway.dir().join("token"), " \n").expect("a file");
    let empty = status(&gateway, Some(READER), &with_file);
    assert!(empty.stderr.contains("token has no token"), "{empty}");
    fs::write(gateway.dir().join("token"), "another-token-of-another").expect("a file");
    let wrong = status(&gateway, None, &with_file);
    for part in [&*format!("http://{other}"), "401", "--token-file token"] {
        assert!(wrong.stderr.contains(part), "{part}: {wrong}");
    }
    assert!(!wrong.stderr.contains("another-token"), "{wrong}");
}

#[test]
fn a_broken_file_keeps_no_token_from_the_proxy() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broken = dir.path().join("sluicegate.yaml");
    fs::write(broken, "routes: [{ upstream: nowhere }]\n").expect("the directory is writable");
    let told = |arguments: &[&str], token: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        let command = command.args(arguments).current_dir(dir.path());
        let command = command.env_remove("SLUICEGATE_CONFIG");
        let command = command.env_remove("SLUICEGATE_ADMIN_TOKEN");
        let command = command.envs(token.map(|token| ("SLUICEGATE_ADMIN_TOKEN", token)));
        let output = command.output().expect("the binary starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("`nowhere`"), "the error of the file: {told}");
        told
    };
    for arguments in [
        &["status"][..],
        &["keys", "find", "alice"],
        &["top", "--once"],
    ] {
        let told = told(arguments, Some(READER));
        assert!(told.contains("http://127.0.0.1:9980"), "it asks: {told}");
    }
    // A change could reach another proxy than the one that is meant.
    let change = told(&["keys", "reset", "per-key", "alice"], Some(READER));
    assert!(
        !change.contains("http://") && change.contains("--admin"),
        "{change}"
    );
}

#[test]
fn a_proxy_that_refused_its_file_is_found_by_what_that_still_states() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    let admin = gateway.admin;
    let config = gateway.dir().join("sluicegate.yaml");
    let broken = format!(
        "admin: {{ address: \"{admin}\", tokens: {{ read: [{READER}] }} }}\nroutes: [{{ upstream: nowhere }}]\n"
    );
    fs::write(&config, &broken).expect("the directory is writable");
    gateway.wait_for_log("nowhere");
    let found = status(&gateway, None, &[]);
    assert!(found.stderr.contains("`nowhere`"), "{found}");
    assert!(found.stdout.contains("the last reload failed"), "{found}");
    // Without what it states, the default is asked with a token, and nobody without one.
    fs::write(&config, "routes: [").expect("the directory is writable");
    let given = status(&gateway, Some(READER), &[]);
    let asking = "\nasking the proxy at 127.0.0.1:9980, because the file can't be read";
    assert!(given.stderr.contains(asking), "{given}");
    let none = status(&gateway, None, &[]);
    assert!(
        !none.stderr.contains(asking) && none.stderr.contains("--token-file"),
        "{none}"
    );
}

#[test]
fn status_says_what_to_do_without_an_answer_or_a_token() {
    let gateway = Gateway::start(ROUTES);
    let admin = gateway.admin.to_string();
    let without = status(&gateway, None, &["--admin", &admin]);
    assert_eq!(without.code, Some(1), "{without}");
    assert!(
        without.stderr.contains("SLUICEGATE_ADMIN_TOKEN"),
        "{without}"
    );
    let wrong = status(&gateway, Some("wrong"), &["--admin", &admin]);
    assert!(
        wrong.stderr.contains("401") && wrong.stderr.contains("admin.tokens"),
        "{wrong}"
    );
    let place = "that of $SLUICEGATE_ADMIN_TOKEN";
    assert!(wrong.stderr.contains(place), "{wrong}");
    // Nothing listens on port 0, which the file names.
    let nobody = status(&gateway, Some("wrong"), &[]);
    assert_eq!(nobody.code, Some(1), "{nobody}");
    assert!(nobody.stderr.contains("is the proxy running?"), "{nobody}");
}

#[test]
fn without_a_configuration_it_says_where_it_looked_and_what_to_do() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for arguments in [
        &["status"][..],
        &["top", "--once"],
        &["keys", "lookup", "per-key", "alice"],
        &["status", "--admin", "127.0.0.1:9980"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        let command = command.args(arguments).current_dir(dir.path());
        let command = command.env_remove("SLUICEGATE_CONFIG");
        let output = command.env_remove("SLUICEGATE_ADMIN_TOKEN").output();
        let output = output.expect("the binary starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        for part in [
            "./sluicegate.yaml",
            "--config",
            "--admin",
            "$SLUICEGATE_ADMIN_TOKEN",
        ] {
            assert!(told.contains(part), "{arguments:?} says no {part}: {told}");
        }
        assert!(!told.contains("config.example.yaml"), "{told}");
    }
}
