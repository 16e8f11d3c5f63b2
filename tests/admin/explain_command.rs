//! `sluicegate explain --admin`: a running proxy explains a request by its buckets.

use std::process::Command;

use crate::support::admin::{READER, TOKENS};
use crate::support::client::{Output, get_with};
use crate::support::gateway::Gateway;

const CONFIG: &str = "policies:
  per-key: { key: \"header:x-key\", quota: 1/300d }
routes: [{ upstream: echo, limits: [per-key] }]
";

fn explain(gateway: &Gateway, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    let command = command
        .args(["explain", "GET", "http://a/", "-H", "x-key: alice"])
        .args(arguments)
        .current_dir(gateway.dir())
        .env_remove("SLUICEGATE_CONFIG")
        .env("SLUICEGATE_ADMIN_TOKEN", READER);
    let output = command.output().expect("the binary starts");
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

#[test]
fn a_running_proxy_answers_by_its_buckets_and_a_file_by_new_ones() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    get_with(gateway.address(), "/", "x-key: alice\r\n");
    let admin = gateway.admin.to_string();
    let live = explain(&gateway, &["--admin", &admin, "--expect", "limited"]);
    assert_eq!(live.code, Some(0), "{live}");
    let first = format!("buckets   of the proxy at http://{admin}\nrequest   GET");
    assert!(live.stdout.starts_with(&first), "{live}");
    assert!(live.stdout.contains("has used 1 of 1\n"), "{live}");
    assert!(!live.stdout.contains("alice"), "{live}");
    let unexpected = explain(&gateway, &["--admin", &admin, "--expect", "allowed"]);
    assert_eq!(unexpected.code, Some(1), "{unexpected}");
    let told = "should be allowed, but the answer is: limited by per-key: 429";
    assert!(unexpected.stderr.contains(told), "{unexpected}");

    let json = explain(&gateway, &["--admin", &admin, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(json["answer"]["decision"], "limited");
    assert_eq!(json["limits"][0]["state"]["used"], 1);

    let config = gateway.config_path();
    let config = config.to_str().expect("a path of ours");
    let file = explain(&gateway, &["--config", config, "--expect", "allowed"]);
    assert_eq!(file.code, Some(0), "{file}");
    let first = "buckets   empty ones (--admin asks a running proxy)\nrequest   GET";
    assert!(file.stdout.starts_with(first), "{file}");
}

#[test]
fn wrong_questions_and_a_missing_proxy_are_told() {
    let gateway = Gateway::start(&format!("{TOKENS}{CONFIG}"));
    let admin = gateway.admin.to_string();
    for (arguments, code, told) in [
        // Nothing listens on port 0, which the file names.
        (&["--admin"][..], 1, "is the proxy running?"),
        (
            &["--admin", &admin, "--token", "wrong"],
            1,
            "that of --token",
        ),
        (&["--admin", &admin, "-H", "a"], 2, "isn't a header field"),
        (
            &["--admin", &admin, "-H", "a b: c"],
            2,
            "isn't a header field",
        ),
        (&["--token", "wrong"], 2, "--admin asks one"),
        (&["--admin", "GET"], 2, "at the end"),
    ] {
        let output = explain(&gateway, arguments);
        assert_eq!(output.code, Some(code), "{arguments:?}: {output}");
        assert!(output.stderr.contains(told), "{told}: {output}");
        assert_eq!(output.stdout, "", "{output}");
    }
}
