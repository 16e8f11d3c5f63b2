//! Switching to other protocols than WebSocket, and routes that switch to none.

use std::fs;
use std::io::{Read, Write};

use crate::support::client::{Connection, run};
use crate::support::gateway::Gateway;
use crate::support::origin::{Origin, raw};

/// An upstream that switches to `protocol`, says how it was asked, and echoes one word.
fn switching(protocol: &'static str) -> Origin {
    Origin::raw(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let asked = head.lines().find(|line| line.starts_with("upgrade:"));
        let asked = asked.unwrap_or("nothing");
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n{asked};"
        );
        let mut word = [0; 4];
        let _ = stream.write_all(answer.as_bytes());
        let _ = stream.read_exact(&mut word);
        let _ = stream.write_all(&word);
    })
}

fn before(origin: &Origin, upgrades: &str) -> Gateway {
    Gateway::start(&format!(
        "routes: [{{ upstream: \"{}\", upgrades: {upgrades} }}]",
        origin.url()
    ))
}

fn request(method: &str, protocols: &str) -> String {
    format!(
        "{method} /attach HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocols}\r\n\r\n"
    )
}

#[test]
fn bytes_of_a_listed_protocol_pass_both_ways() {
    for (upgrades, protocols, asked, switched) in [
        ("[tcp]", "tcp", "upgrade: tcp;", "tcp"),
        (
            "[websocket, spdy/3.1]",
            "h2c, SPDY/3.1",
            "upgrade: spdy/3.1;",
            "SPDY/3.1",
        ),
        ("any", "h2c, x/1", "upgrade: x/1;", "x/1"),
    ] {
        let origin = switching(switched);
        let gateway = before(&origin, upgrades);
        let mut connection = Connection::open(gateway.address());
        connection.send(request("POST", protocols));
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(connection.read_exactly(1));
        }
        let head = String::from_utf8(head).expect("a text");
        assert!(head.starts_with("HTTP/1.1 101 "), "{upgrades}: {head}");
        assert!(head.contains("connection: upgrade\r\n"), "{head}");
        let protocol = protocols.split(", ").last().unwrap_or_default();
        assert!(head.contains(&format!("upgrade: {protocol}\r\n")), "{head}");
        assert_eq!(connection.read_exactly(asked.len()), asked.as_bytes());
        connection.send("word");
        assert_eq!(connection.read_exactly(4), b"word");
        connection.expect_closed();
    }
}

#[test]
fn other_protocols_are_ignored_and_not_followed() {
    let origin = Origin::plain();
    for (upgrades, protocols) in [
        ("[tcp]", "websocket"),
        ("none", "websocket"),
        ("[]", "websocket"),
        ("any", "h2c"),
        ("websocket", "tcp"),
    ] {
        let gateway = before(&origin, upgrades);
        let mut connection = Connection::open(gateway.address());
        for _ in 0..2 {
            let response = connection.exchange(&request("GET", protocols));
            assert_eq!(response.status, 200, "{upgrades} {protocols}");
        }
        for received in origin.requests() {
            assert_eq!(received.header("upgrade"), None, "{upgrades}");
            assert_eq!(received.header("connection"), None, "{upgrades}");
        }
        origin.forget();
    }
    let other = Origin::start(|_| {
        raw("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    });
    let gateway = before(&other, "[tcp, websocket]");
    let mut connection = Connection::open(gateway.address());
    assert_eq!(connection.exchange(&request("GET", "tcp")).status, 502);
}

#[test]
fn check_refuses_protocols_that_would_hide_requests() {
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let path = directory.path().join("sluicegate.yaml");
    for (upgrades, expected) in [
        ("[h2c]", "requests would pass limits unseen over `h2c`"),
        ("[HTTP/2.0]", "requests would pass limits unseen"),
        ("[a b]", "`a b` isn't a protocol"),
        ("[tcp, tcp]", "`tcp` twice"),
        ("[tcp]", "can't switch to `tcp` over HTTP/2"),
        ("some", "`some`"),
    ] {
        let config = format!(
            "upstreams: {{ a: {{ endpoints: [\"http://127.0.0.1:9\"], protocol: h2 }} }}
routes: [{{ upstream: a, upgrades: {upgrades} }}]"
        );
        fs::write(&path, config).expect("there is room for a file");
        let binary = env!("CARGO_BIN_EXE_sluicegate");
        let output = run(binary, &["check", path.to_str().expect("a text")]);
        assert_eq!(output.code, Some(1), "{upgrades}");
        assert!(output.stderr.contains(expected), "{upgrades}: {output}");
    }
}
