//! A collector of spans: an HTTP server that decodes OTLP and keeps it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use prost::Message;
use sluicegate::telemetry::spans::encoding::{ExportRequest, Span, Value};

use super::wait_for;

/// A running collector.
pub struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ExportRequest>>>,
}

impl Collector {
    /// Starts a collector that answers 200.
    pub fn start() -> Self {
        Self::answering("200 OK")
    }

    /// Starts a collector that answers this status.
    pub fn answering(status: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let request = receive(&stream, status);
                kept.lock().expect("no holder panics").push(request);
            }
        });
        Self { address, requests }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<ExportRequest> {
        self.requests.lock().expect("no holder panics").clone()
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.requests();
        let resources = requests.iter().flat_map(|one| &one.resource_spans);
        let scopes = resources.flat_map(|one| &one.scope_spans);
        scopes.flat_map(|one| &one.spans).cloned().collect()
    }

    /// All spans, once there are so many.
    pub fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        wait_for("spans", || {
            let spans = self.spans();
            (spans.len() >= count).then_some(spans)
        })
    }
}

/// The texts and numbers of a span's attributes.
pub fn attributes(span: &Span) -> BTreeMap<String, String> {
    let pairs = span.attributes.iter().map(|one| {
        let value = one.value.as_ref().and_then(|value| value.value.as_ref());
        let value = match value.expect("a value") {
            Value::Text(text) => text.clone(),
            Value::Number(number) => number.to_string(),
        };
        (one.key.clone(), value)
    });
    pairs.collect()
}

/// Reads one export, and answers it.
fn receive(mut stream: &TcpStream, status: &str) -> ExportRequest {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a line") > 0, "{head}");
    }
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf\r\n"),
        "{head}"
    );
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    reader.read_exact(&mut body).expect("a body");
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).expect("it is read");
    ExportRequest::decode(&*body).expect("a message of OTLP")
}
