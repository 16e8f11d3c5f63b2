//! The header of the PROXY protocol that names clients to an upstream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use crate::support::DEADLINE;
use crate::support::client::Connection;
use crate::support::gateway::Gateway;
use crate::support::origin::Origin;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// An origin that expects a header on each connection, answers one request after another, and tells
/// the header and how many requests followed it.
fn origin() -> (Origin, Receiver<(Vec<u8>, usize)>) {
    let (told, headers) = channel();
    let origin = Origin::raw(move |mut stream: TcpStream| {
        let mut header = vec![0; 16];
        if stream.read_exact(&mut header).is_err() {
            return;
        }
        let length = usize::from(u16::from_be_bytes([header[14], header[15]]));
        header.resize(16 + length, 0);
        stream.read_exact(&mut header[16..]).expect("addresses");
        let mut writer = stream.try_clone().expect("a descriptor");
        let mut requests = 0;
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if line.is_empty() {
                requests += 1;
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                writer.write_all(response).expect("the proxy reads");
            }
        }
        // The test may have ended.
        let _ = told.send((header, requests));
    });
    (origin, headers)
}

fn config(origin: &Origin, listener: &str) -> String {
    format!(
        "listeners: [{{ address: \"{listener}\" }}]
workers: 1
upstreams: {{ app: {{ endpoints: [\"{}\"], send_proxy_protocol: true }} }}
routes: [{{ upstream: app }}]
",
        origin.url()
    )
}

/// The header from `source` to `destination` over IPv4.
fn expected(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend_from_slice(&[127, 0, 0, 1, 127, 0, 0, 1]);
    header.extend_from_slice(&source.port().to_be_bytes());
    header.extend_from_slice(&destination.port().to_be_bytes());
    header
}

#[test]
fn each_request_has_a_connection_that_names_its_client() {
    let (origin, headers) = origin();
    // The listener's own address is no destination: the one at which the client was accepted is.
    for listener in ["127.0.0.1:0", "0.0.0.0:0"] {
        let gateway = Gateway::start(&config(&origin, listener));
        let port = gateway.address().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut clients = [Connection::open(address), Connection::open(address)];
        for client in [0, 1, 0] {
            let client = &mut clients[client];
            assert_eq!(client.exchange(REQUEST).status, 200);
            let source = client.writer().local_addr().expect("it is connected");
            let (header, requests) = headers.recv_timeout(DEADLINE).expect("it is closed");
            assert_eq!((header, requests), (expected(source, address), 1));
        }
    }
}
