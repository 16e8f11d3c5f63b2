//! Endpoints that fail are named: in metrics, in the log when they begin to fail and when they
//! answer again, and in each line of the access log.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::client::{Connection, get, run};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, Step, ok, raw, refusing_address};
use crate::support::wait_for;
use rustix::process::Signal;

/// A configuration with one upstream, `pool`, with these endpoints, and an access log beside it.
fn config(endpoints: &[String]) -> String {
    format!(
        "workers: 1
access_log: {{ path: access.log }}
upstreams: {{ pool: {{ endpoints: {endpoints:?}, timeouts: {{ response: 300ms }} }} }}
routes: [{{ name: all, upstream: pool }}]
"
    )
}

/// The value of a series of this upstream's endpoint.
fn counted(gateway: &Gateway, name: &str, endpoint: &str, reason: &str) -> Option<f64> {
    let reason = match reason {
        "" => String::new(),
        reason => format!(",reason=\"{reason}\""),
    };
    let labels = format!("{{upstream=\"pool\",endpoint=\"{endpoint}\"{reason}}}");
    gateway.metric(&format!("sluicegate_upstream_{name}{labels}"))
}

/// The lines of the access log, once there are so many.
fn logged(gateway: &Gateway, count: usize) -> Vec<serde_json::Value> {
    let path = gateway.dir().join("access.log");
    wait_for("the access log", || {
        let text = fs::read_to_string(&path).ok()?;
        let lines = text.lines().map(serde_json::from_str);
        let lines: Vec<_> = lines.collect::<Result<_, _>>().ok()?;
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
fn a_dead_endpoint_beside_a_live_one_is_counted_and_logged() {
    let live = Origin::plain();
    let dead = refusing_address().to_string();
    let gateway = Gateway::start(&config(&[format!("http://{dead}"), live.url()]));
    for _ in 0..4 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    let live = live.address().to_string();
    // It is left out after the first failure.
    assert_eq!(counted(&gateway, "requests_total", &dead, ""), Some(1.0));
    assert_eq!(
        counted(&gateway, "failures_total", &dead, "connect"),
        Some(1.0)
    );
    assert_eq!(counted(&gateway, "requests_total", &live, ""), Some(4.0));
    assert_eq!(
        counted(&gateway, "failures_total", &live, "connect"),
        Some(0.0)
    );
    assert_eq!(counted(&gateway, "connections", &dead, ""), Some(0.0));
    let open = counted(&gateway, "connections", &live, "");
    assert!(
        open.is_some_and(|open| (1.0..=4.0).contains(&open)),
        "{open:?}"
    );

    gateway.wait_for_log("the endpoint fails");
    let log = gateway.log();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("the endpoint fails"))
        .collect();
    let [line] = lines[..] else {
        panic!("one line, not {lines:?}");
    };
    for part in [
        "WARN",
        "upstream=\"pool\"",
        &dead,
        "reason=\"connect\"",
        "refused",
        "ejected=10s",
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    for line in logged(&gateway, 4) {
        assert_eq!(
            (&line["upstream"], &line["endpoint"]),
            (&"pool".into(), &live.as_str().into())
        );
        assert_eq!(line.get("error"), None, "{line}");
    }
}

#[test]
fn each_failure_has_its_reason_and_the_recovery_is_logged() {
    let hangs = Arc::new(AtomicBool::new(true));
    let is_hanging = Arc::clone(&hangs);
    let origin = Origin::start(move |request| match request.target.as_str() {
        _ if is_hanging.load(Ordering::Relaxed) => vec![Step::Hang],
        "/invalid" => raw("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
        "/cut" => {
            let half = raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            [half, vec![Step::Close]].concat()
        }
        _ => ok("well"),
    });
    let gateway = Gateway::start(&config(&[origin.url()]));
    let endpoint = origin.address().to_string();
    assert_eq!(get(gateway.address(), "/").status, 504);
    gateway.wait_for_log("reason=\"response_timeout\"");
    hangs.store(false, Ordering::Relaxed);
    assert_eq!(get(gateway.address(), "/").status, 200);
    gateway.wait_for_log("the endpoint answers again");
    assert_eq!(get(gateway.address(), "/invalid").status, 502);
    let mut connection = Connection::open(gateway.address());
    connection.send("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
    let lines = logged(&gateway, 4);
    let errors: Vec<_> = lines.iter().map(|line| line["error"].as_str()).collect();
    let expected = ["response_timeout", "", "invalid", "body_closed"];
    let expected = expected.map(|error| (!error.is_empty()).then_some(error));
    assert_eq!(errors, expected, "{lines:?}");
    for reason in expected.into_iter().flatten() {
        wait_for(reason, || {
            (counted(&gateway, "failures_total", &endpoint, reason) == Some(1.0)).then_some(())
        });
    }
    assert!(
        lines
            .iter()
            .all(|line| line["endpoint"] == endpoint.as_str()),
        "{lines:?}"
    );
}

#[test]
fn a_request_of_a_client_that_left_names_its_endpoint() {
    let origin = Origin::start(|_| vec![Step::Hang]);
    let gateway = Gateway::start(&config(&[origin.url()]).replace("300ms", "60s"));
    let mut connection = Connection::open(gateway.address());
    connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    drop(connection);
    let lines = logged(&gateway, 1);
    assert_eq!(lines[0]["status"], 499, "{lines:?}");
    assert_eq!(
        lines[0]["endpoint"],
        origin.address().to_string(),
        "{lines:?}"
    );
}

#[test]
fn the_series_of_a_removed_endpoint_end_and_others_continue() {
    let (one, two) = (Origin::plain(), Origin::plain());
    let gateway = Gateway::start(&config(&[one.url(), two.url()]));
    for _ in 0..2 {
        get(gateway.address(), "/");
    }
    gateway.reload(&config(&[two.url()]));
    let names = [one.address().to_string(), two.address().to_string()];
    let requests = |name: &str| counted(&gateway, "requests_total", name, "");
    wait_for("the series to leave", || {
        requests(&names[0]).is_none().then_some(())
    });
    assert_eq!(requests(&names[1]), Some(1.0));
    assert_eq!(get(gateway.address(), "/").status, 200);
    assert_eq!(requests(&names[1]), Some(2.0));
    assert_eq!(two.connections(), 1, "the connection is kept");
}

#[test]
fn the_metrics_pass_promtool_and_the_log_is_replayed() {
    let live = Origin::plain();
    let dead = format!("http://{}", refusing_address());
    let mut gateway = Gateway::start(&config(&[dead, live.url()]));
    for _ in 0..2 {
        get(gateway.address(), "/");
    }
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("promtool is installed: ./scripts/test does");
    let stdin = promtool.stdin.take();
    let metrics = get(gateway.admin, "/metrics");
    let written = stdin.expect("stdin is a pipe").write_all(&metrics.body);
    written.expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaints.is_empty(),
        "{complaints}"
    );

    logged(&gateway, 2);
    gateway.signal(Signal::TERM);
    let log = gateway.dir().join("access.log");
    let (log, config) = (log.display().to_string(), gateway.config_path());
    let config = config.display().to_string();
    let binary = env!("CARGO_BIN_EXE_sluicegate");
    let replayed = run(binary, &["replay", &log, "--config", &config]);
    assert_eq!(replayed.code, Some(0), "{replayed}");
    assert!(replayed.stdout.contains("2 requests"), "{replayed}");
    gateway.wait();
}
