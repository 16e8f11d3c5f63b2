//! Exports of spans to collectors that ask for more: TLS, credentials, patience.

use std::fs;
use std::path::Path;

use prost::Message;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::admin::{AdminClient, READER, TOKENS};
use crate::support::client::get;
use crate::support::collector::{Collector, Export, OK, Reply};
use crate::support::gateway::{Gateway, with_free_ports};
use crate::support::otlp::{ExportResponse, PartialSuccess};
use crate::support::tls::certify;
use crate::support::wait_for;

const SECRET: &str = "hunter2-0123456789";
const REFUSED: Reply = Reply::Head("401 Unauthorized\r\n");

fn config(endpoint: &str, more: &str) -> String {
    format!(
        "{TOKENS}shutdown: {{ delay: 0s, deadline: 1s }}
tracing:
  endpoint: \"{endpoint}\"
{more}routes: [{{ upstream: echo }}]
"
    )
}

fn start(dir: TempDir, config: &str) -> Gateway {
    fs::write(dir.path().join("sluicegate.yaml"), with_free_ports(config))
        .expect("the directory is writable");
    Gateway::start_with(dir, ["run", "--config", "sluicegate.yaml"])
}

/// A directory with certificates for `localhost` and for another name, and a secret.
fn directory() -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    certify(dir.path(), "collector", &["localhost"]);
    certify(dir.path(), "other", &["other.internal"]);
    write_secret(dir.path(), SECRET);
    dir
}

/// Replaces the file with the secret, as an operator does.
fn write_secret(dir: &Path, secret: &str) {
    let new = dir.join("secret.new");
    fs::write(&new, format!("Bearer {secret}\n")).expect("the directory is writable");
    fs::rename(new, dir.join("secret")).expect("the directory is writable");
}

fn has(export: &Export, field: &str) -> bool {
    export.head.lines().any(|line| line == field)
}

fn success(partial: PartialSuccess) -> Vec<u8> {
    let partial_success = Some(partial);
    ExportResponse { partial_success }.encode_to_vec()
}

fn serve(gateway: &Gateway, requests: usize) {
    for _ in 0..requests {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
}

fn dropped(gateway: &Gateway, reason: &str) -> f64 {
    let series = format!("sluicegate_trace_spans_dropped_total{{reason=\"{reason}\"}}");
    gateway.metric(&series).expect("it exists from the start")
}

fn wait_for_loss(gateway: &Gateway, reason: &str, count: f64) {
    wait_for(reason, || (dropped(gateway, reason) == count).then_some(()));
}

#[test]
fn exports_go_over_tls_with_secret_fields_on_a_kept_connection() {
    let dir = directory();
    let collector = Collector::secure(dir.path(), "collector", |export| {
        if has(export, &format!("authorization: Bearer {SECRET}")) {
            // Many collectors send an empty partial success.
            Reply::Message(success(PartialSuccess::default()))
        } else {
            REFUSED
        }
    });
    let endpoint = format!("https://localhost:{}/otlp/", collector.port());
    let more = "  tls: { ca: collector.pem }
  headers: { Authorization: { file: secret }, x-tenant: tenant-0123456789 }
";
    let mut gateway = start(dir, &config(&endpoint, more));
    serve(&gateway, 1);
    collector.wait_for_spans(1);
    serve(&gateway, 1);
    collector.wait_for_spans(2);
    let shown = AdminClient::new(&gateway, READER)
        .read("/v1/config")
        .to_string();
    assert!(!shown.contains("0123456789"), "{shown}");
    serve(&gateway, 20);
    gateway.signal(Signal::TERM);
    gateway.wait();
    assert_eq!(collector.spans().len(), 22, "the last ones are exported");
    for export in collector.exports() {
        assert!(export.head.starts_with("POST /otlp/v1/traces HTTP/1.1\r\n"));
        assert!(has(
            &export,
            &format!("host: localhost:{}", collector.port())
        ));
        assert!(has(&export, "x-tenant: tenant-0123456789"), "{export:?}");
        assert_eq!(export.connection, 1, "it is kept");
    }
    let log = gateway.log();
    assert!(!log.contains("0123456789"), "{log}");
    assert!(
        !log.contains("not exported") && !log.contains("warns"),
        "{log}"
    );
}

#[test]
fn a_certificate_that_is_not_trusted_is_named_in_the_log() {
    for (tls, expected) in [
        ("{ ca: other.pem }", "its certificate is refused"),
        (
            "{ ca: collector.pem, server_name: other.internal }",
            "not valid for name",
        ),
    ] {
        let dir = directory();
        let collector = Collector::secure(dir.path(), "collector", |_| OK);
        let endpoint = format!("https://localhost:{}", collector.port());
        let gateway = start(dir, &config(&endpoint, &format!("  tls: {tls}\n")));
        serve(&gateway, 1);
        wait_for_loss(&gateway, "unreachable", 1.0);
        gateway.wait_for_log(expected);
        gateway.wait_for_log("name its authority in tracing.tls.ca");
        gateway.wait_for_log(&format!("collector=\"{endpoint}/v1/traces\""));
        assert!(collector.exports().is_empty());
    }
}

#[test]
fn a_collector_that_refuses_is_not_asked_again_and_the_log_has_advice() {
    let elsewhere = Collector::start();
    let location = format!(
        "307 Temporary Redirect\r\nLocation: {}/v1/traces\r\n",
        elsewhere.url()
    );
    let location: &'static str = location.leak();
    let collector = Collector::replying(move |export| match () {
        () if has(export, "x-key: right") => OK,
        () if has(export, "x-key: old") => Reply::Head(location),
        () => REFUSED,
    });
    let gateway = Gateway::start(&config(&collector.url(), ""));
    serve(&gateway, 1);
    wait_for_loss(&gateway, "refused", 1.0);
    gateway.wait_for_log("401 Unauthorized; look at the credentials in tracing.headers");
    gateway.reload(&config(&collector.url(), "  headers: { x-key: old }\n"));
    serve(&gateway, 1);
    wait_for_loss(&gateway, "refused", 2.0);
    gateway.reload(&config(&collector.url(), "  headers: { x-key: right }\n"));
    serve(&gateway, 1);
    wait_for("the export", || {
        (gateway.metric("sluicegate_trace_spans_exported_total") == Some(1.0)).then_some(())
    });
    assert_eq!(collector.exports().len(), 3);
    assert!(elsewhere.exports().is_empty());
}

/// The collector takes the new secret alone, and asks for a pause before that.
#[test]
fn a_reload_that_changes_a_secret_keeps_the_spans_that_wait() {
    let dir = directory();
    let collector = Collector::replying(|export| {
        if has(export, "authorization: Bearer new") {
            OK
        } else {
            Reply::Head("503 Service Unavailable\r\nRetry-After: 3\r\n")
        }
    });
    let more = "  headers: { authorization: { file: secret } }\n";
    let gateway = start(dir, &config(&collector.url(), more));
    serve(&gateway, 1);
    wait_for("a refusal", || {
        (!collector.exports().is_empty()).then_some(())
    });
    serve(&gateway, 2);
    let reloads = gateway.reloads("success");
    write_secret(gateway.dir(), "new");
    wait_for("the reload", || {
        (gateway.reloads("success") > reloads).then_some(())
    });
    wait_for("the exports", || {
        (gateway.metric("sluicegate_trace_spans_exported_total") == Some(3.0)).then_some(())
    });
    for reason in ["queue_full", "unreachable", "refused"] {
        assert_eq!(dropped(&gateway, reason), 0.0, "{reason}");
    }
}

#[test]
fn a_collector_that_hangs_delays_neither_requests_nor_the_end() {
    let collector = Collector::replying(|_| Reply::Silence);
    let mut gateway = Gateway::start(&config(&collector.url(), "  timeout: 1s\n"));
    serve(&gateway, 1);
    wait_for_loss(&gateway, "unreachable", 1.0);
    gateway.wait_for_log("no answer within 1s (tracing.timeout)");
    assert_eq!(collector.exports().len(), 4, "one for each attempt");
    serve(&gateway, 1);
    gateway.signal(Signal::TERM);
    gateway.wait();
}

#[test]
fn rejected_spans_are_counted_and_not_sent_again() {
    let partial = PartialSuccess {
        rejected_spans: 1,
        error_message: "too\nold".to_owned(),
    };
    let response = success(partial);
    let collector = Collector::replying(move |_| Reply::Message(response.clone()));
    let gateway = Gateway::start(&config(&collector.url(), ""));
    serve(&gateway, 1);
    wait_for_loss(&gateway, "refused", 1.0);
    gateway.wait_for_log("the collector warns of spans");
    assert!(gateway.log().contains("too\\"), "{}", gateway.log());
    assert_eq!(collector.exports().len(), 1);
}

#[test]
fn a_kept_connection_that_has_ended_loses_no_spans() {
    let collector = Collector::replying(|_| Reply::Close);
    let gateway = Gateway::start(&config(&collector.url(), ""));
    for count in 1..=3 {
        serve(&gateway, 1);
        collector.wait_for_spans(count);
    }
    let connections: Vec<_> = collector
        .exports()
        .iter()
        .map(|one| one.connection)
        .collect();
    assert_eq!(connections, [1, 2, 3]);
    assert_eq!(dropped(&gateway, "unreachable"), 0.0);
}
