//! A wall clock that is set and corrected again, seen by the whole process: libfaketime answers its
//! questions for the time.

use std::fs;
use std::process::Command;
use std::time::UNIX_EPOCH;

use crate::support::admin::AdminClient;
use crate::support::client::get_with;
use crate::support::gateway::Gateway;
use crate::support::{wait_for, wall_clock};
use jsonwebtoken::{EncodingKey, Header, encode};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Has libfaketime add to the wall clock what the file `clock` says.
const FAKED: &str = "echo +0 > clock
printf a-secret-of-thirty-two-characters > secret
for library in /usr/lib/*/faketime/libfaketimeMT.so.1; do export LD_PRELOAD=$library; done
export FAKETIME_TIMESTAMP_FILE=clock FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1";

const CONFIG: &str = "shutdown: { delay: 0s }
admin: { address: 127.0.0.1:0, tokens: { read: [reader-0123456789] } }
store: { memory: { snapshot: { path: buckets, every: 1d } } }
access_log: { path: access.log, format: json }
jwt: { keys: [{ algorithm: HS256, file: secret }] }
policies:
  by-subject: { key: jwt:sub, algorithm: fixed_window, quota: 2/1d }
  by-key: { key: header:x-key, quota: 2/300d }
routes:
  - { match: { path: /token }, upstream: echo, limits: [by-subject] }
  - { upstream: echo, limits: [by-key] }
";

/// The fields of a request with a token that is valid for twelve hours.
fn token() -> String {
    let since_epoch = wall_clock().duration_since(UNIX_EPOCH);
    let expiry = since_epoch.expect("it is later").as_secs() + 12 * 3600;
    let claims = json!({ "sub": "alice", "exp": expiry });
    let key = EncodingKey::from_secret(b"a-secret-of-thirty-two-characters");
    let token = encode(&Header::default(), &claims, &key).expect("it is signed");
    format!("authorization: Bearer {token}\r\n")
}

/// The time in an hour, as logs write it.
fn in_an_hour() -> String {
    let date = Command::new("date")
        .args(["-u", "-d", "+1 hour", "+%FT%T"])
        .output();
    String::from_utf8(date.expect("a program of every system").stdout).expect("text")
}

#[test]
fn a_step_that_is_corrected_leaves_no_trace() {
    let mut gateway = Gateway::start_after(FAKED, CONFIG);
    let fields = token();
    let ask = |gateway: &Gateway| {
        let by_subject = get_with(gateway.address(), "/token", &fields).status;
        [
            by_subject,
            get_with(gateway.address(), "/", "x-key: a\r\n").status,
        ]
    };
    assert_eq!(ask(&gateway), [200, 200]);
    let steps = |direction: &str| {
        let series = format!("sluicegate_clock_steps_total{{direction=\"{direction}\"}}");
        gateway.metric(&series).unwrap_or_default()
    };
    let set = |offset: &str| fs::write(gateway.dir().join("clock"), offset).expect("it is ours");
    set("+25h");
    wait_for("the step", || (steps("forward") == 1.0).then_some(()));
    let line = gateway.wait_for_log("the wall clock was set forward");
    assert!(
        line.contains("by=90000") || line.contains("by=89999"),
        "{line}"
    );
    let lead = |gateway: &Gateway| gateway.metric("sluicegate_clock_lead_seconds");
    wait_for("the gauge", || {
        (lead(&gateway) >= Some(89_999.0)).then_some(())
    });
    let problems = |gateway: &Gateway| {
        let status = AdminClient::new(gateway, "reader-0123456789").read("/v1/status");
        status["problems"].to_string()
    };
    let found = problems(&gateway);
    assert!(
        found.contains("the wall clock was set 1d 1h forward"),
        "{found}"
    );
    set("+0");
    let line = gateway.wait_for_log("the wall clock and that of limits agree again");
    assert!(line < in_an_hour(), "{line}");
    assert_eq!(
        ask(&gateway),
        [200, 200],
        "the token is valid, and a unit is left"
    );
    assert_eq!(ask(&gateway), [429, 429], "no window has ended");
    assert_eq!((steps("forward"), steps("back")), (1.0, 0.0));
    wait_for("the gauge", || (lead(&gateway) == Some(0.0)).then_some(()));
    assert_eq!(problems(&gateway), "[]");
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    let log = fs::read_to_string(gateway.dir().join("access.log")).expect("a log");
    let last: Value = serde_json::from_str(log.lines().last().expect("lines")).expect("JSON");
    assert!(
        last["time"].as_str() < Some(in_an_hour().as_str()),
        "{last}"
    );
    let gateway = gateway.start_again();
    assert_eq!(ask(&gateway), [429, 429], "the snapshot is not set aside");
}
