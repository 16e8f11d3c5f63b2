//! Health checks: an endpoint whose checks fail is left out, whatever its other answers are, and
//! comes back when they pass.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::client::get;
use crate::support::gateway::Gateway;
use crate::support::http2_origin::Http2Origin;
use crate::support::origin::{Origin, Step, answer, free_address, ok, raw, refusing_address};
use crate::support::{tls, wait_for};

/// Checks every second, and no slow start.
fn config(endpoints: &[String], health: &str) -> String {
    format!(
        "upstreams: {{ pool: {{ endpoints: {endpoints:?}, slow_start: 0s, \
         health: {{ path: /healthz, every: 1s{health} }} }} }}
routes: [{{ upstream: pool }}]
"
    )
}

/// An origin that answers requests with `name`, and checks as `check` says.
fn origin(name: &'static str, check: impl Fn() -> Vec<Step> + Send + Sync + 'static) -> Origin {
    Origin::start(move |request| match request.target.as_str() {
        "/healthz" => check(),
        _ => ok(name),
    })
}

/// An origin whose checks pass while the flag is set.
fn switched(name: &'static str) -> (Origin, Arc<AtomicBool>) {
    let well = Arc::new(AtomicBool::new(true));
    let is_well = Arc::clone(&well);
    let origin = origin(name, move || {
        if is_well.load(Ordering::Relaxed) {
            ok("well")
        } else {
            answer(503, "not well")
        }
    });
    (origin, well)
}

/// How many of 20 answers come from `name`.
fn answers(gateway: &Gateway, name: &str) -> usize {
    let answers = (0..20).map(|_| get(gateway.address(), "/").text());
    answers.filter(|text| text == name).count()
}

fn checks(gateway: &Gateway, origin: &Origin, result: &str) -> f64 {
    let address = origin.address();
    let labels = format!("upstream=\"pool\",endpoint=\"{address}\",result=\"{result}\"");
    let series = format!("sluicegate_upstream_health_checks_total{{{labels}}}");
    gateway.metric(&series).unwrap_or_default()
}

fn available(gateway: &Gateway, origin: &Origin) -> Option<f64> {
    let labels = format!("upstream=\"pool\",endpoint=\"{}\"", origin.address());
    gateway.metric(&format!("sluicegate_upstream_hosts_available{{{labels}}}"))
}

fn lines(gateway: &Gateway, text: &str) -> usize {
    gateway.log().matches(text).count()
}

#[test]
fn an_endpoint_that_is_unhealthy_is_left_out_and_comes_back() {
    let ((a, is_well), (b, _)) = (switched("a"), switched("b"));
    let config = config(&[a.url(), b.url()], ", host: \"api.internal:81\"");
    let gateway = Gateway::start(&config);
    assert_eq!(answers(&gateway, "a"), 10);

    is_well.store(false, Ordering::Relaxed);
    gateway.wait_for_log("the endpoint is unhealthy");
    gateway.wait_for_log("status 503");
    assert_eq!(answers(&gateway, "a"), 0);
    assert_eq!(available(&gateway, &a), Some(0.0));
    assert_eq!(available(&gateway, &b), Some(1.0));
    assert!(checks(&gateway, &a, "unhealthy") >= 2.0);

    is_well.store(true, Ordering::Relaxed);
    gateway.wait_for_log("the endpoint is healthy again");
    wait_for("its share", || (answers(&gateway, "a") == 10).then_some(()));
    assert_eq!(available(&gateway, &a), Some(1.0));
    assert!(checks(&gateway, &a, "healthy") >= 2.0);
    assert_eq!(lines(&gateway, "the endpoint is unhealthy"), 1);

    let requests = a.requests();
    let checks: Vec<_> = requests
        .iter()
        .filter(|request| request.target == "/healthz")
        .collect();
    for check in &checks {
        assert_eq!(check.header("host"), Some("api.internal:81"));
        let same = requests
            .iter()
            .filter(|request| request.connection == check.connection);
        assert_eq!(same.count(), 1, "a connection of its own");
    }
    assert!(a.malformed().is_empty(), "{:?}", a.malformed());
}

#[test]
fn failures_that_are_not_in_a_row_change_nothing() {
    let count = AtomicUsize::new(0);
    let flapping = origin("a", move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        answer(if number.is_multiple_of(2) { 500 } else { 200 }, "")
    });
    let (other, _) = switched("b");
    let gateway = Gateway::start(&config(&[flapping.url(), other.url()], ""));
    wait_for("three failures", || {
        (checks(&gateway, &flapping, "unhealthy") >= 3.0).then_some(())
    });
    assert_eq!(answers(&gateway, "a"), 10);
    assert_eq!(lines(&gateway, "unhealthy"), 0);
}

/// Expects that an endpoint with this answer to checks is left out, for this reason.
#[track_caller]
fn expect_unhealthy(steps: Vec<Step>, reason: &str) {
    let bad = origin("a", move || steps.clone());
    let (good, _) = switched("b");
    let options = ", timeout: 500ms, unhealthy_after: 1";
    let gateway = Gateway::start(&config(&[bad.url(), good.url()], options));
    gateway.wait_for_log("the endpoint is unhealthy");
    gateway.wait_for_log(reason);
    assert_eq!(answers(&gateway, "a"), 0, "{reason}");
    assert_eq!(answers(&gateway, "b"), 20, "{reason}");
}

#[test]
fn a_check_that_hangs_times_out() {
    expect_unhealthy(vec![Step::Hang], "no answer within 500ms (health.timeout)");
}

#[test]
fn a_check_with_garbage_or_an_endless_head_fails() {
    let garbage = [raw("SSH-2.0-OpenSSH_9.2\r\n"), vec![Step::Close]].concat();
    expect_unhealthy(garbage, "the response cannot be passed on");
    let line = format!("X: {}\r\n", "x".repeat(1000));
    let endless = raw(&format!("HTTP/1.1 200 OK\r\n{}", line.repeat(100)));
    expect_unhealthy([endless, vec![Step::Hang]].concat(), "unhealthy");
    let early = raw(&"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10_000));
    expect_unhealthy([early, vec![Step::Hang]].concat(), "unhealthy");
}

#[test]
fn only_the_status_of_an_answer_counts() {
    let endless = raw("HTTP/1.1 204 Well\r\n\r\n");
    let stuck = raw("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nwell");
    let a = origin("a", move || [stuck.clone(), vec![Step::Hang]].concat());
    let b = origin("b", move || endless.clone());
    let gateway = Gateway::start(&config(&[a.url(), b.url()], ", status: [200, 204-299]"));
    wait_for("checks", || {
        let healthy = [&a, &b].map(|one| checks(&gateway, one, "healthy"));
        healthy.iter().all(|&count| count >= 2.0).then_some(())
    });
    assert_eq!(checks(&gateway, &a, "unhealthy"), 0.0);
    assert_eq!(answers(&gateway, "a"), 10);
}

#[test]
fn all_are_used_while_all_are_unhealthy() {
    let ((a, a_is_well), (b, b_is_well)) = (switched("a"), switched("b"));
    let refusing = format!("http://{}", refusing_address());
    let gateway = Gateway::start(&config(&[a.url(), refusing, b.url()], ""));
    a_is_well.store(false, Ordering::Relaxed);
    b_is_well.store(false, Ordering::Relaxed);
    wait_for("all to be unhealthy", || {
        (lines(&gateway, "the endpoint is unhealthy") == 3).then_some(())
    });
    let texts: Vec<_> = (0..60)
        .map(|_| get(gateway.address(), "/").text())
        .collect();
    for name in ["a", "b"] {
        let count = texts.iter().filter(|text| *text == name).count();
        assert!(count >= 10, "{texts:?}");
    }
    assert!(texts.iter().all(|text| text.len() == 1), "{texts:?}");

    b_is_well.store(true, Ordering::Relaxed);
    gateway.wait_for_log("the endpoint is healthy again");
    assert_eq!(answers(&gateway, "b"), 20);
}

#[test]
fn the_state_outlives_a_reload_and_ends_with_the_option() {
    let ((a, is_well), (b, _)) = (switched("a"), switched("b"));
    let endpoints = [a.url(), b.url()];
    let gateway = Gateway::start(&config(&endpoints, ""));
    is_well.store(false, Ordering::Relaxed);
    gateway.wait_for_log("the endpoint is unhealthy");
    gateway.reload(&config(&endpoints, ", healthy_after: 100"));
    assert_eq!(answers(&gateway, "a"), 0);
    is_well.store(true, Ordering::Relaxed);
    wait_for("checks to pass", || {
        (checks(&gateway, &a, "healthy") >= 1.0).then_some(())
    });
    assert_eq!(answers(&gateway, "a"), 0);

    let without = format!(
        "upstreams: {{ pool: {{ endpoints: {endpoints:?}, slow_start: 0s }} }}
routes: [{{ upstream: pool }}]
"
    );
    gateway.reload(&without);
    wait_for("its share", || (answers(&gateway, "a") == 10).then_some(()));
    assert_eq!(available(&gateway, &a), Some(1.0));
}

#[test]
fn a_check_that_passes_ends_an_ejection_for_a_failure_to_connect() {
    let address = free_address();
    let (other, _) = switched("b");
    let endpoints = [format!("http://{address}"), other.url()];
    let options = ", unhealthy_after: 100";
    let config = config(&endpoints, options).replace(
        "slow_start: 0s",
        "slow_start: 0s, ejection: { for: 1h, max_for: 1h }",
    );
    let gateway = Gateway::start(&config);
    wait_for("the ejection", || {
        answers(&gateway, "b");
        (lines(&gateway, "the endpoint fails") > 0).then_some(())
    });
    let back = Origin::plain_at(address);
    wait_for("its share", || {
        (answers(&gateway, "ok") == 10).then_some(())
    });
    drop(back);
}

#[test]
fn a_check_has_a_local_proxy_header() {
    let headers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&headers);
    let origin = Origin::raw(move |mut stream| {
        let mut bytes = [0; 2048];
        let read = stream.read(&mut bytes).unwrap_or(0);
        seen.lock()
            .expect("no holder panics")
            .push(bytes[..read].to_vec());
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .ok();
    });
    let (other, _) = switched("b");
    let config = config(&[origin.url(), other.url()], "").replace(
        "slow_start: 0s",
        "slow_start: 0s, send_proxy_protocol: true",
    );
    let gateway = Gateway::start(&config);
    wait_for("a check", || {
        (checks(&gateway, &origin, "healthy") >= 1.0).then_some(())
    });
    let header = headers.lock().expect("no holder panics")[0].clone();
    assert_eq!(header[12], 0x20, "version 2, LOCAL: {header:?}");
}

#[test]
fn an_endpoint_of_http2_is_checked_over_http2() {
    let origins = [Http2Origin::plain(), Http2Origin::plain()];
    let config = config(
        &origins.each_ref().map(Http2Origin::url),
        ", host: api.internal",
    );
    let config = config.replace("slow_start: 0s", "slow_start: 0s, protocol: h2");
    let gateway = Gateway::start(&config);
    for origin in &origins {
        let address = origin.address();
        let labels = format!("upstream=\"pool\",endpoint=\"{address}\",result=\"healthy\"");
        let series = format!("sluicegate_upstream_health_checks_total{{{labels}}}");
        wait_for("a check", || {
            gateway.metric(&series).filter(|checks| *checks >= 1.0)
        });
        let check = &origin.requests()[0].head;
        assert_eq!(check.uri().path(), "/healthz");
        let authority = check.uri().authority().map(|host| host.as_str());
        assert_eq!(authority, Some("api.internal"));
    }
    assert_eq!(lines(&gateway, "unhealthy"), 0);
}

#[test]
fn an_endpoint_with_tls_is_checked_as_requests_reach_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tls::certify(dir.path(), "own", &["localhost"]);
    let [certificate, key] = ["own.pem", "own.key"].map(|name| dir.path().join(name));
    let (certificate, key) = (certificate.display(), key.display());
    let origin = Gateway::start(&format!(
        "listeners: [{{ address: 127.0.0.1:0, tls: {{ certificates: [{{ certificate: {certificate}, key: {key} }}] }} }}]
routes: [{{ upstream: echo }}]
"
    ));
    let upstream = |name: &str, options: &str| {
        format!(
            "  {name}: {{ endpoints: [\"https://{}\"], {options}, health: {{ path: /, every: 1s, unhealthy_after: 1 }} }}\n",
            origin.address()
        )
    };
    let trusted = format!("tls: {{ ca: {certificate}, server_name: localhost }}");
    let gateway = Gateway::start(&format!(
        "upstreams:\n{}{}{}routes:
  - {{ match: {{ path: /a }}, upstream: http1 }}
  - {{ match: {{ path: /b }}, upstream: auto }}
  - {{ match: {{ path: /c }}, upstream: other }}
",
        upstream("http1", &trusted),
        upstream("auto", &format!("{trusted}, protocol: auto")),
        upstream("other", &trusted.replace("localhost", "elsewhere.example")),
    ));
    let checks = |name: &str, result: &str| {
        let address = origin.address();
        let labels = format!("upstream=\"{name}\",endpoint=\"{address}\",result=\"{result}\"");
        let series = format!("sluicegate_upstream_health_checks_total{{{labels}}}");
        gateway.metric(&series).unwrap_or_default()
    };
    for name in ["http1", "auto"] {
        wait_for(name, || (checks(name, "healthy") >= 2.0).then_some(()));
        assert_eq!(checks(name, "unhealthy"), 0.0, "{name}");
    }
    gateway.wait_for_log("the endpoint is unhealthy upstream=\"other\"");
    gateway.wait_for_log("no TLS connection");
    assert_eq!(checks("other", "healthy"), 0.0);
}

/// Answers every connection at `path` with 200, until the next one after the flag is set.
fn serve_unix(path: &Path, is_over: &Arc<AtomicBool>) {
    let listener = UnixListener::bind(path).expect("a free path");
    let is_over = Arc::clone(is_over);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let mut bytes = [0; 2048];
            let _request = stream.read(&mut bytes).unwrap_or(0);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).ok();
        }
    });
}

#[test]
fn an_endpoint_on_a_unix_socket_is_checked() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("app.sock");
    let is_over = Arc::new(AtomicBool::new(false));
    serve_unix(&path, &is_over);
    let endpoint = format!("unix:{}", path.display());
    let (other, _) = switched("b");
    let gateway = Gateway::start(&config(&[endpoint.clone(), other.url()], ""));
    let labels = format!("upstream=\"pool\",endpoint=\"{endpoint}\",result=\"healthy\"");
    let series = format!("sluicegate_upstream_health_checks_total{{{labels}}}");
    wait_for("a check", || {
        gateway.metric(&series).filter(|&checks| checks >= 1.0)
    });

    is_over.store(true, Ordering::Relaxed);
    gateway.wait_for_log("the endpoint is unhealthy");
    gateway.wait_for_log("no connection");
    assert_eq!(answers(&gateway, "b"), 20);
    std::fs::remove_file(&path).expect("it is there");
    serve_unix(&path, &Arc::default());
    gateway.wait_for_log("the endpoint is healthy again");
    wait_for("its share", || (answers(&gateway, "b") == 10).then_some(()));
}
