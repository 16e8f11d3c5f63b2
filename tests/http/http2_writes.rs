//! Answers over HTTP/2 that are ready together are written together. Each write of the proxy is a record
//! of TLS, which a client sees.

use std::fs;
use std::io::{Read, Write};

use crate::support::frames::{HEADERS, SETTINGS, frame, get_block, request};
use crate::support::gateway::{Gateway, with_free_ports};
use crate::support::tls::{self, Session, certify};

/// All but the first request are refused, and no request waits for anything.
const CONFIG: &str = "workers: 1
listeners:
  - address: 127.0.0.1:0
    tls: { certificates: [{ certificate: first.pem, key: first.key }] }
policies: { few: { key: constant, quota: 1/1h } }
routes: [{ upstream: echo, limits: [few] }]
";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The frames of the next record, by their kinds.
fn next_record(session: &mut Session) -> Vec<u8> {
    let mut record = vec![0; 5];
    session.sock.read_exact(&mut record).expect("a record");
    let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
    record.resize(5 + length, 0);
    session
        .sock
        .read_exact(&mut record[5..])
        .expect("a whole record");
    let taken = session.conn.read_tls(&mut &record[..]).expect("room");
    assert_eq!(taken, record.len());
    let state = session.conn.process_new_packets().expect("a valid record");
    let mut text = vec![0; state.plaintext_bytes_to_read()];
    session
        .conn
        .reader()
        .read_exact(&mut text)
        .expect("as many bytes");
    let (mut kinds, mut rest) = (Vec::new(), &text[..]);
    while let [a, b, c, kind, ..] = *rest {
        kinds.push(kind);
        rest = &rest[9 + u32::from_be_bytes([0, a, b, c]) as usize..];
    }
    kinds
}

#[test]
fn answers_to_requests_that_come_together_are_one_write() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    certify(dir.path(), "first", &["first.example"]);
    fs::write(dir.path().join("sluicegate.yaml"), with_free_ports(CONFIG)).expect("writable");
    let gateway = Gateway::start_with(dir, ["run", "--config", "sluicegate.yaml"]);
    let trusted = gateway.dir().join("first.pem");
    let mut session = tls::connect(gateway.address(), "first.example", &trusted, &["h2"]);
    let settings = frame(SETTINGS, 0, 0, &[]);
    session
        .write_all(&[PREFACE, &settings].concat())
        .expect("is taken");
    let requests = (0..8).flat_map(|place| request(2 * place + 1, &get_block()));
    session
        .write_all(&requests.collect::<Vec<_>>())
        .expect("is taken");
    let answers = |kinds: Vec<u8>| kinds.iter().filter(|kind| **kind == HEADERS).count();
    let first = std::iter::repeat_with(|| answers(next_record(&mut session)));
    let first = first.take(10).find(|answers| *answers > 0);
    assert_eq!(first, Some(8));
}
