//! `sluicegate status`: finds a running proxy, and says how it is.

use std::process::Command;

use crate::support::admin::{READER, TOKENS};
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
    // The file names port 0, so that the address is given; the token is that of the file.
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

    gateway.replace_config("routes: [{ upstream: nowhere }]\n");
    gateway.wait_for_log("the configuration is not reloaded");
    let ill = status(&gateway, Some(READER), &["--admin", &admin]);
    assert_eq!(ill.code, Some(1), "{ill}");
    assert!(ill.stdout.contains("the last reload failed"), "{ill}");
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
