//! Decoys take as long as real answers, and take requests as the upstream does.

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::client::{Connection, Response, curl};
use crate::support::gateway::Gateway;
use crate::support::now;
use crate::support::origin::{Origin, Step, raw};

const SLOW: Duration = Duration::from_millis(300);

/// More than is discarded for the sake of a connection.
const LARGE: usize = 600 * 1024;

fn ok() -> Vec<Step> {
    raw("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
}

/// A proxy that admits some requests by the field `x-key`, and gives the others decoys.
fn gateway(origin: &Origin, quota: u32) -> Gateway {
    Gateway::start(&format!(
        "policies: {{ hidden: {{ key: \"header:x-key\", quota: {quota}/300d, on_limit: {{ action: decoy, body: ok, headers: {{ content-type: text/plain }} }} }} }}
routes: [{{ name: a, upstream: '{}', limits: [hidden], request: {{ max_body: 1MiB }} }}]
",
        origin.url()
    ))
}

fn post(connection: &mut Connection, length: usize) -> Response {
    connection.exchange(&format!(
        "POST / HTTP/1.1\r\nHost: a\r\nx-key: a\r\nContent-Length: {length}\r\n\r\n{}",
        "s".repeat(length)
    ))
}

fn names(response: &Response) -> Vec<String> {
    let names = response.headers.iter().map(|(name, _)| name.to_lowercase());
    names.collect()
}

#[test]
fn a_decoy_takes_as_long_as_real_answers() {
    let origin = Origin::start(|_| [vec![Step::Pause(SLOW)], ok()].concat());
    let gateway = gateway(&origin, 2);
    let held = "sluicegate_limit_held{policy=\"hidden\"}";
    let mut connection = Connection::open(gateway.address());
    for place in 0..5 {
        let began = now();
        assert_eq!(post(&mut connection, 4).status, 200);
        // Real answers may take longer on a busy machine, and decoys after them, never less.
        assert!(began.elapsed() >= SLOW, "{place}: {:?}", began.elapsed());
    }
    assert_eq!(origin.requests().len(), 2, "three were decoys");
    assert_eq!(gateway.metric(held), Some(0.0), "none waits any more");
}

#[test]
fn a_decoy_reads_the_body_and_keeps_the_connection() {
    let origin = Origin::start(|_| ok());
    let gateway = gateway(&origin, 2);
    let mut connection = Connection::open(gateway.address());
    let real = post(&mut connection, LARGE);
    let again = post(&mut connection, LARGE);
    assert_eq!(names(&real), names(&again));
    for _ in 0..3 {
        let decoy = post(&mut connection, LARGE);
        assert_eq!(decoy.status, real.status);
        assert_eq!(decoy.text(), real.text());
        assert_eq!(names(&decoy), names(&real), "no `connection: close`");
    }
    assert_eq!(origin.requests().len(), 2);
    // What the upstream would not get, no decoy answers.
    let large = "POST / HTTP/1.1\r\nHost: a\r\nx-key: KEY\r\nContent-Length: 2000000\r\n\r\n";
    let refused = ["a", "other"].map(|key| {
        let head = large.replace("KEY", key);
        let refused = Connection::open(gateway.address()).exchange(&head);
        (refused.status, refused.text(), names(&refused))
    });
    assert_eq!(refused[0].0, 413);
    assert_eq!(refused[0].1, refused[1].1);
}

#[test]
fn a_client_that_expects_to_continue_is_invited() {
    let origin = Origin::start(|_| ok());
    let gateway = gateway(&origin, 1);
    for _ in 0..2 {
        let mut client = std::net::TcpStream::connect(gateway.address()).expect("a connection");
        let timeout = Some(Duration::from_secs(20));
        client.set_read_timeout(timeout).expect("a timeout");
        let head = "POST / HTTP/1.1\r\nHost: a\r\nx-key: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        client.write_all(head.as_bytes()).expect("it is sent");
        let mut interim = [0; 25];
        client.read_exact(&mut interim).expect("an invitation");
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(b"spam").expect("it is sent");
        let mut head = [0; 15];
        client.read_exact(&mut head).expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_decoy_over_http2_reads_the_body_too() {
    let origin = Origin::start(|_| ok());
    let gateway = gateway(&origin, 1);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "s".repeat(LARGE)).expect("it is written");
    let data = format!("@{}", file.path().display());
    let url = gateway.url("/");
    let answers = [(); 3].map(|()| {
        let options = ["--http2-prior-knowledge", "-i", "-H", "x-key: a"];
        let answer = curl(&[&options[..], &["--data-binary", &data, &url]].concat());
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let lines = answer
            .stdout
            .lines()
            .filter(|line| !line.starts_with("date:"));
        lines.collect::<Vec<_>>().join("\n")
    });
    assert_eq!(origin.requests().len(), 1);
    assert!(answers[0].starts_with("HTTP/2 200"), "{answers:?}");
    assert_eq!([&answers[1], &answers[2]], [&answers[0]; 2]);
}
