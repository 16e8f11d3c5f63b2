//! The process's own log when its reader stalls, closes or resumes: the proxy serves, reloads and
//! ends.

use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::wait_for;
use rustix::process::Signal;

const CONFIG: &str = "shutdown: { delay: 0s }\nroutes: [{ upstream: echo }]\n";

/// A configuration with 60 problems, whose report is larger than a pipe's buffer.
fn wrong() -> String {
    let name = "x".repeat(1_000);
    let routes = (0..60).map(|number| format!("  - {{ upstream: echo, {name}{number}: 1 }}\n"));
    format!("routes:\n{}", routes.collect::<String>())
}

/// Reloads an invalid configuration until the log has lost lines.
fn fill(gateway: &Gateway) {
    gateway.replace_config(&wrong());
    for round in 1..=400 {
        gateway.signal(Signal::HUP);
        wait_for("the failed reload", || {
            (gateway.reloads("failure") >= round).then_some(())
        });
        if lost(gateway) > 0.0 {
            return;
        }
    }
    panic!("a log that nobody reads loses no line");
}

fn lost(gateway: &Gateway) -> f64 {
    gateway
        .metric("sluicegate_log_dropped_lines_total")
        .unwrap_or_default()
}

#[test]
fn a_stalled_log_reader_stops_nothing() {
    let mut gateway = Gateway::start(CONFIG);
    let log = gateway.log_reader();
    let stalled = log.lock().expect("no holder panics");
    fill(&gateway);
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert_eq!(get(gateway.admin, "/readyz").status, 200);
    gateway
        .reload("shutdown: { delay: 0s }\nroutes: [{ match: { path: /new }, upstream: echo }]\n");
    assert_eq!(get(gateway.address(), "/new").status, 200);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    drop(stalled);
}

#[test]
fn a_log_reader_that_resumes_gets_the_number_of_lost_lines() {
    let mut gateway = Gateway::start(CONFIG);
    let log = gateway.log_reader();
    let stalled = log.lock().expect("no holder panics");
    fill(&gateway);
    let lines = lost(&gateway);
    drop(stalled);
    gateway.wait_for_log(&format!("{lines} lines of this log were dropped"));
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    gateway.wait_for_log("draining");
}

#[test]
fn a_log_reader_that_closes_loses_only_its_lines() {
    let mut gateway = Gateway::start_with_closed_log(CONFIG);
    assert_eq!(get(gateway.address(), "/").status, 200);
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
}
