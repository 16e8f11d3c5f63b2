//! Spans of requests, as a collector gets them.

use std::fs;

use rustix::process::Signal;

use crate::support::client::{get, get_with};
use crate::support::collector::{Collector, Reply, attributes};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, refusing_address};
use crate::support::otlp::Span;
use crate::support::wait_for;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn config(collector: &str, more: &str, upstream: &str) -> String {
    format!(
        "access_log: {{ path: access.log }}
tracing: {{ endpoint: \"{collector}\"{more} }}
policies: {{ per-key: {{ key: \"header:x-key\", quota: 2/300d }} }}
routes: [{{ name: items, upstream: \"{upstream}\", limits: [per-key] }}]
"
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_kind(spans: &[Span], kind: i32) -> Vec<&Span> {
    let mut spans: Vec<_> = spans.iter().filter(|span| span.kind == kind).collect();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    spans
}

#[test]
fn a_request_has_a_span_and_its_forwarding_another() {
    let (collector, origin) = (Collector::start(), Origin::plain());
    let gateway = Gateway::start(&config(
        &collector.url(),
        ", service_name: edge",
        &origin.url(),
    ));
    for _ in 0..3 {
        get_with(gateway.address(), "/items/7?secret=1", "x-key: a\r\n");
    }
    let spans = collector.wait_for_spans(5);
    let (server, client) = (of_kind(&spans, 2), of_kind(&spans, 3));
    assert_eq!((server.len(), client.len()), (3, 2), "{spans:?}");
    let first = attributes(server[0]);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", "items"),
        ("url.path", "/items/7"),
        ("http.response.status_code", "200"),
        ("sluicegate.policy", "per-key"),
        ("sluicegate.decision", "allowed"),
        ("client.address", "127.0.0.1"),
    ] {
        assert_eq!(first.get(key).map(String::as_str), Some(value), "{first:?}");
    }
    assert_eq!(server[0].name, "GET items");
    assert_eq!(client[0].parent_span_id, server[0].span_id);
    assert_eq!(client[0].trace_id, server[0].trace_id);
    assert_eq!(
        attributes(client[0])["server.address"],
        origin.address().to_string()
    );
    let nested = server[0].start_time_unix_nano <= client[0].start_time_unix_nano
        && client[0].start_time_unix_nano <= client[0].end_time_unix_nano
        && client[0].end_time_unix_nano <= server[0].end_time_unix_nano;
    assert!(nested, "{spans:?}");
    let limited = attributes(server[2]);
    assert_eq!(limited["http.response.status_code"], "429");
    assert_eq!(limited["sluicegate.decision"], "limited");
    let resource = &collector.requests()[0].resource_spans[0];
    let service = &resource.resource.as_ref().expect("a resource").attributes[0];
    assert_eq!(service.key, "service.name");
    assert!(format!("{service:?}").contains("edge"), "{service:?}");
    wait_for("the export to be counted", || {
        (gateway.metric("sluicegate_trace_spans_exported_total") == Some(5.0)).then_some(())
    });
}

#[test]
fn a_span_names_the_client_if_it_is_known() {
    let collector = Collector::start();
    let clients = "clients:
  identify_by: header:x-key
  unknown: anonymous
  list: [{ key: k-acme, name: acme }]
";
    let limited = config(&collector.url(), "", "echo").replace("header:x-key", "client");
    let gateway = Gateway::start(&format!("{clients}{limited}"));
    for key in ["k-acme", "k-acme", "k-acme", "k-other"] {
        get_with(gateway.address(), "/", &format!("x-key: {key}\r\n"));
    }
    let spans = collector.wait_for_spans(4);
    let names: Vec<_> = of_kind(&spans, 2)
        .into_iter()
        .map(|span| attributes(span).get("sluicegate.client").cloned())
        .collect();
    let acme = Some("acme".to_owned());
    assert_eq!(names, [acme.clone(), acme.clone(), acme, None]);
}

/// The echo answers with the request that it was sent.
#[test]
fn a_trace_goes_on_and_the_upstream_is_told_of_it() {
    let collector = Collector::start();
    let gateway = Gateway::start(&config(&collector.url(), "", "echo"));
    let fields = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: a=1\r\n");
    let echoed = get_with(gateway.address(), "/", &fields).text();
    let sent = echoed
        .lines()
        .find_map(|line| line.strip_prefix("traceparent: "));
    let sent = sent.unwrap_or_else(|| panic!("{echoed}")).trim();
    assert!(
        sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-01"),
        "{sent}"
    );
    assert!(
        !sent.contains(PARENT),
        "a span of the proxy is the parent: {sent}"
    );
    assert!(echoed.contains("tracestate: a=1"), "{echoed}");
    let spans = collector.wait_for_spans(1);
    assert_eq!(hex(&spans[0].trace_id), TRACE);
    assert_eq!(hex(&spans[0].parent_span_id), PARENT);

    // A state without a trace is dropped, and the log has the new trace.
    let echoed = get_with(gateway.address(), "/", "tracestate: a=1\r\n").text();
    assert!(
        echoed.contains("traceparent: 00-") && !echoed.contains("tracestate"),
        "{echoed}"
    );
    let spans = collector.wait_for_spans(2);
    let new = hex(&spans[1].trace_id);
    assert!(spans[1].parent_span_id.is_empty(), "{spans:?}");
    wait_for("the access log", || {
        let log = fs::read_to_string(gateway.dir().join("access.log")).ok()?;
        (log.contains(TRACE) && log.contains(&new)).then_some(())
    });
}

#[test]
fn chance_decides_for_clients_and_trusted_peers_for_themselves() {
    let collector = Collector::start();
    let never = config(&collector.url(), ", sample_ratio: 0%", "echo");
    let sampled = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let gateway = Gateway::start(&never);
    let echoed = get_with(gateway.address(), "/", &sampled).text();
    assert!(
        echoed.contains(&format!("traceparent: 00-{TRACE}-")),
        "{echoed}"
    );
    let field = echoed
        .lines()
        .find(|line| line.starts_with("traceparent: "));
    assert!(
        field.is_some_and(|field| field.trim().ends_with("-00")),
        "{echoed}"
    );

    gateway.reload(&format!(
        "client_ip: {{ trusted_proxies: [127.0.0.1/32] }}\n{never}"
    ));
    get_with(gateway.address(), "/", &sampled);
    let spans = collector.wait_for_spans(1);
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert_eq!(hex(&spans[0].trace_id), TRACE);
}

#[test]
fn the_last_spans_are_exported_at_the_end() {
    let collector = Collector::start();
    let mut gateway = Gateway::start(&format!(
        "shutdown: {{ delay: 0s, deadline: 1s }}\n{}",
        config(&collector.url(), "", "echo")
    ));
    for _ in 0..20 {
        get(gateway.address(), "/");
    }
    gateway.signal(Signal::TERM);
    gateway.wait();
    assert_eq!(collector.spans().len(), 20);
}

#[test]
fn requests_are_served_without_a_collector_and_lost_spans_are_counted() {
    let dropped = |gateway: &Gateway, reason: &str| {
        let series = format!("sluicegate_trace_spans_dropped_total{{reason=\"{reason}\"}}");
        wait_for(reason, || {
            gateway.metric(&series).filter(|count| *count == 2.0)
        });
    };
    let nowhere = format!("http://{}", refusing_address());
    let gateway = Gateway::start(&config(&nowhere, ", timeout: 200ms", "echo"));
    for _ in 0..2 {
        assert_eq!(get(gateway.address(), "/").status, 200);
    }
    dropped(&gateway, "unreachable");
    gateway.wait_for_log("spans are not exported");

    let collector = Collector::replying(|_| Reply::Head("400 Bad Request\r\n"));
    gateway.reload(&config(&collector.url(), "", "echo"));
    for _ in 0..2 {
        get_with(gateway.address(), "/", "x-key: another\r\n");
    }
    dropped(&gateway, "refused");
    assert_eq!(collector.spans().len(), 2, "it is not asked again");
}

/// Without `tracing`, the fields pass as they came.
#[test]
fn traces_pass_unchanged_while_no_spans_are_exported() {
    let gateway = Gateway::start("routes: [{ upstream: echo }]\n");
    let field = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    let echoed = get_with(gateway.address(), "/", &format!("{field}\r\n")).text();
    assert!(echoed.contains(&field), "{echoed}");
    let metrics = get(gateway.admin, "/metrics").text();
    assert!(!metrics.contains("sluicegate_trace_spans"), "{metrics}");
}
