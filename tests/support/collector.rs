//! A collector of spans: an HTTP/1.1 server, also over TLS, that decodes OTLP and keeps it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use prost::Message;
use rustls::crypto::aws_lc_rs;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::otlp::{ExportRequest, Span, Value};
use super::wait_for;

/// An export that the collector received.
#[derive(Clone, Debug)]
pub struct Export {
    /// The request line and the fields.
    pub head: String,
    pub message: ExportRequest,
    /// The number of its connection, from 1.
    pub connection: usize,
}

/// The response to an export.
pub enum Reply {
    /// A status line, with fields of its own and an end of line after each.
    Head(&'static str),
    /// 200 with this message.
    Message(Vec<u8>),
    /// 200, after which the connection is closed unannounced.
    Close,
    /// Nothing, until the peer leaves.
    Silence,
}

/// 200 without a message.
pub const OK: Reply = Reply::Head("200 OK\r\n");

/// A running collector.
pub struct Collector {
    address: SocketAddr,
    scheme: &'static str,
    exports: Arc<Mutex<Vec<Export>>>,
}

type Exports = Mutex<Vec<Export>>;

impl Collector {
    /// Starts a collector that answers 200.
    pub fn start() -> Self {
        Self::replying(|_| OK)
    }

    /// Starts a collector whose `reply` answers each export.
    pub fn replying(reply: impl Fn(&Export) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(None, reply)
    }

    /// As [`replying`](Self::replying), over TLS with the certificate NAME.pem and NAME.key.
    pub fn secure(
        dir: &Path,
        name: &str,
        reply: impl Fn(&Export) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let of = |kind: &str| dir.join(format!("{name}.{kind}"));
        let certificate = CertificateDer::from_pem_file(of("pem")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(of("key")).expect("a key");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions that the provider knows")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        Self::listen(Some(Arc::new(config.expect("a usable key"))), reply)
    }

    fn listen(
        tls: Option<Arc<ServerConfig>>,
        reply: impl Fn(&Export) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let exports = Arc::<Exports>::default();
        let (kept, reply) = (Arc::clone(&exports), Arc::new(reply));
        thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (kept, reply) = (Arc::clone(&kept), Arc::clone(&reply));
                let tls = tls.clone();
                // A connection that breaks is the test's business.
                thread::spawn(move || match tls {
                    None => serve(stream, number + 1, &kept, &*reply).ok(),
                    Some(tls) => {
                        let session = ServerConnection::new(tls).expect("a usable configuration");
                        let stream = StreamOwned::new(session, stream);
                        serve(stream, number + 1, &kept, &*reply).ok()
                    }
                });
            }
        });
        Self {
            address,
            scheme,
            exports,
        }
    }

    /// Its URL, by its address.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The exports so far.
    pub fn exports(&self) -> Vec<Export> {
        self.exports.lock().expect("no holder panics").clone()
    }

    /// The messages so far.
    pub fn requests(&self) -> Vec<ExportRequest> {
        let exports = self.exports();
        exports.into_iter().map(|one| one.message).collect()
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

/// Answers the exports of one connection.
fn serve(
    stream: impl Read + Write,
    connection: usize,
    kept: &Exports,
    reply: &dyn Fn(&Export) -> Reply,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let export = receive(&mut reader, connection)?;
        let reply = reply(&export);
        kept.lock().expect("no holder panics").push(export);
        let (head, body) = match &reply {
            Reply::Head(head) => (*head, &b""[..]),
            Reply::Message(message) => (
                "200 OK\r\nContent-Type: application/x-protobuf\r\n",
                &message[..],
            ),
            Reply::Close => ("200 OK\r\n", &b""[..]),
            Reply::Silence => {
                reader.read_to_end(&mut Vec::new())?;
                return Ok(());
            }
        };
        let head = format!("HTTP/1.1 {head}Content-Length: {}\r\n\r\n", body.len());
        let stream = reader.get_mut();
        stream.write_all(&[head.as_bytes(), body].concat())?;
        stream.flush()?;
        if matches!(reply, Reply::Close) {
            return Ok(());
        }
    }
}

fn receive(reader: &mut impl BufRead, connection: usize) -> io::Result<Export> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    assert!(head.contains("/v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf\r\n"),
        "{head}"
    );
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    reader.read_exact(&mut body)?;
    let message = ExportRequest::decode(&*body).expect("a message of OTLP");
    Ok(Export {
        head,
        message,
        connection,
    })
}
