use std::net::Ipv4Addr;

use prost::Message;

use super::encoding::{ExportRequest, encode};
use super::*;

fn spans() -> RequestSpans {
    RequestSpans {
        trace: TraceId(1),
        parent: Some(SpanId(2)),
        server: SpanId(3),
        client: SpanId(4),
        started: Timestamp::from_micros(1_000_000),
        ended: Timestamp::from_micros(1_500_000),
        method: "GET",
        path: "/items/7".into(),
        route: "items".into(),
        version: Version::HTTP_11,
        client_ip: Ipv4Addr::LOCALHOST.into(),
        client_name: None,
        status: StatusCode::BAD_GATEWAY,
        decision: Some(("per-key".into(), "allowed")),
        error: Some("connect"),
        forwarded: Some(Forwarded {
            started: Timestamp::from_micros(1_100_000),
            ended: Timestamp::from_micros(1_500_000),
            upstream: "api".into(),
            endpoint: "10.0.0.7:80".into(),
            attempts: 2,
            has_response: false,
        }),
    }
}

#[test]
fn a_request_that_is_forwarded_has_two_spans() {
    let bytes = encode(&[spans()], "edge");
    let request = ExportRequest::decode(&*bytes).expect("a message");
    let resource = &request.resource_spans[0];
    let attributes = &resource.resource.as_ref().expect("a resource").attributes;
    assert_eq!(attributes[0].key, "service.name");
    let [server, client] = &resource.scope_spans[0].spans[..] else {
        panic!("{request:?}");
    };
    assert_eq!(server.name, "GET items");
    assert_eq!(server.parent_span_id, [0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(client.parent_span_id, server.span_id);
    assert_eq!(server.trace_id, client.trace_id);
    assert_eq!(server.start_time_unix_nano, 1_000_000_000);
    assert_eq!(client.end_time_unix_nano, 1_500_000_000);
    for span in [server, client] {
        assert_eq!(span.status.as_ref().map(|status| status.code), Some(2));
        let has_error = span.attributes.iter().any(|one| one.key == "error.type");
        assert!(has_error, "{span:?}");
    }
}

#[test]
fn the_queue_is_bounded_and_counts_what_it_drops() {
    let registry = Registry::default();
    let (queue, receiver) = SpanQueue::new(100, &registry);
    for _ in 0..CAPACITY + 3 {
        queue.push(spans());
    }
    let text = registry.render();
    let dropped = "sluicegate_trace_spans_dropped_total{reason=\"queue_full\"} 6\n";
    assert!(text.contains(dropped), "{text}");
    assert_eq!(receiver.next_batch().map(|batch| batch.len()), Some(BATCH));
    drop(queue);
    let left = std::iter::from_fn(|| receiver.next_batch());
    assert_eq!(
        left.map(|batch| batch.len()).sum::<usize>(),
        CAPACITY - BATCH
    );
}

#[test]
fn a_close_waits_for_the_exporter_and_not_forever() {
    let (queue, receiver) = SpanQueue::new(100, &Registry::default());
    queue.push(spans());
    queue.close(Duration::from_millis(1));
    let exporter = std::thread::spawn(move || {
        let batch = receiver.next_batch().map(|batch| batch.len());
        (batch, receiver.next_batch().is_none())
    });
    queue.close(Duration::from_secs(60));
    assert_eq!(exporter.join().expect("it ends"), (Some(1), true));
}

#[test]
fn a_queue_is_open_while_one_configuration_fills_it() {
    let (before, receiver) = SpanQueue::new(100, &Registry::default());
    let after = before.with_percent(10);
    before.push(spans());
    drop(before);
    assert!(!receiver.closes_within(Duration::ZERO));
    after.push(spans());
    drop(after);
    assert!(receiver.closes_within(Duration::from_secs(60)));
    assert_eq!(receiver.next_batch().map(|batch| batch.len()), Some(2));
}
