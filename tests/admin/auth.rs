//! Tokens: who may call, how they are configured and replaced.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::support::admin::{AdminClient, READER, TOKENS, WRITER, problem};
use crate::support::client::{Connection, get};
use crate::support::gateway::Gateway;
use crate::support::{now, wait_for};

const ROUTES: &str = "routes: [{ upstream: echo }]\n";

fn status(gateway: &Gateway, token: &str) -> u16 {
    AdminClient::new(gateway, token).get("/v1/status").status
}

#[test]
fn the_api_takes_a_token_and_health_and_metrics_take_none() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(gateway.admin, path).status, 200, "{path}");
    }
    let refused = get(gateway.admin, "/v1/status");
    problem(&refused, 401);
    let challenge = refused.expect_header("www-authenticate");
    assert!(challenge.starts_with("Bearer"), "{challenge}");
    problem(
        &AdminClient::new(&gateway, "reader-012345678").get("/v1/status"),
        401,
    );
    assert_eq!(status(&gateway, READER), 200);
    assert_eq!(status(&gateway, WRITER), 200);
    let counted = "sluicegate_admin_requests_refused_total{reason=\"unauthenticated\"}";
    assert_eq!(gateway.metric(counted), Some(2.0));
}

#[test]
fn without_tokens_one_is_made_in_a_file_of_its_user() {
    let mut gateway = Gateway::start(ROUTES);
    let line = gateway.wait_for_log("this file has a token");
    let (_, file) = line.split_once("file=").expect("a file in the line");
    let file = PathBuf::from(file.split_whitespace().next().expect("a path"));
    let mode = fs::metadata(&file)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = fs::read_to_string(&file).expect("it is readable");
    let token = token.trim();
    assert!(token.len() > 40, "{token}");
    assert!(!gateway.log().contains(token));
    assert_eq!(status(&gateway, token), 200);
    let other = Gateway::start(ROUTES);
    assert_eq!(status(&other, token), 401, "each process makes its own");
    gateway.signal(Signal::TERM);
    gateway.signal(Signal::TERM);
    gateway.wait();
    wait_for("the file to go", || (!file.exists()).then_some(()));
}

#[test]
fn the_file_of_a_killed_process_is_removed_by_the_next_and_that_of_a_running_one_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = || {
        let set = format!("export TMPDIR={}", directory.path().display());
        let gateway = Gateway::start_after(&set, ROUTES);
        gateway.wait_for_log("this file has a token");
        gateway
    };
    let files = || fs::read_dir(directory.path()).expect("readable").count();
    let (mut killed, running) = (start(), start());
    assert_eq!(files(), 2);
    killed.signal(Signal::KILL);
    killed.wait();
    let _next = start();
    assert_eq!(files(), 2, "one of each that runs");
    drop(running);
}

#[test]
fn guessing_tokens_is_slowed_down_logged_and_counted() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    let guess = |number: usize| status(&gateway, &format!("guess-0123456789-{number}"));
    let started = now();
    let answers: Vec<_> = (0..60).map(guess).collect();
    let passed = started.elapsed().as_secs() as usize + 1;
    let looked_at = answers.iter().filter(|status| **status == 401).count();
    assert!((10..=10 + passed).contains(&looked_at), "{answers:?}");
    assert!(
        answers.iter().all(|status| matches!(status, 401 | 429)),
        "{answers:?}"
    );
    let throttled = "sluicegate_admin_requests_refused_total{reason=\"throttled\"}";
    assert_eq!(gateway.metric(throttled), Some((60 - looked_at) as f64));
    gateway.wait_for_log("a wrong token for the admin API");
    assert_eq!(gateway.log().matches("a wrong token").count(), 1);
}

#[test]
fn wrong_tokens_do_not_lock_out_right_ones_of_the_same_address() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    let (started, mut braked) = (now(), 0);
    for number in 0..60 {
        let wrong = status(&gateway, &format!("guess-0123456789-{number}"));
        assert!(matches!(wrong, 401 | 429), "{wrong}");
        braked += usize::from(wrong == 429);
        assert_eq!(
            [READER, WRITER].map(|token| status(&gateway, token)),
            [200; 2]
        );
    }
    let passed = started.elapsed().as_secs() as usize + 1;
    assert!(braked + 10 + passed >= 60, "{braked} of 60 in {passed} s");
}

#[test]
fn tokens_follow_the_configuration_and_their_files() {
    let config = |write: &str| {
        format!("admin: {{ address: \"127.0.0.1:0\", tokens: {{ write: [{write}] }} }}\n{ROUTES}")
    };
    let gateway = Gateway::start(&config("first-token-0123456"));
    let token_file = gateway.dir().join("token");
    fs::write(&token_file, "second-token-0123456\n").expect("the directory is writable");
    gateway.reload(&config("{ file: token }"));
    assert_eq!(status(&gateway, "first-token-0123456"), 401);
    assert_eq!(status(&gateway, "second-token-0123456"), 200);
    fs::write(&token_file, "third-token-0123456\n").expect("the directory is writable");
    wait_for("the third token", || {
        (status(&gateway, "third-token-0123456") == 200).then_some(())
    });
    // Asking for the third may have used up the wrong ones that an address may try.
    assert!(matches!(
        status(&gateway, "second-token-0123456"),
        401 | 429
    ));
    assert!(
        !gateway.log().contains("token-0123456"),
        "no token is logged"
    );
}

#[test]
fn unknown_paths_and_methods_are_problems() {
    let gateway = Gateway::start(&format!("{TOKENS}{ROUTES}"));
    let client = AdminClient::writer(&gateway);
    for path in ["/v1", "/v1/", "/v1/nothing", "/v1/status/more"] {
        problem(&client.get(path), 404);
    }
    let wrong = client.send("DELETE", "/v1/status", "", None);
    problem(&wrong, 405);
    assert_eq!(wrong.expect_header("allow"), "GET,HEAD");
    let head = "HEAD /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let head = Connection::open(gateway.admin).exchange(head);
    assert_eq!(head.status, 401, "HEAD takes a token, too");
}
