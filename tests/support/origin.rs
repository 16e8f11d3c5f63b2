//! An HTTP/1.1 origin that a test controls, and that records requests. It uses threads and blocking
//! sockets. Its parser is stricter than any proxy's; it records malformed requests.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use super::DEADLINE;

/// A request that the origin received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    pub method: String,
    pub target: String,
    /// In order, as written.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The number of its connection, from 1.
    pub connection: usize,
}

impl Received {
    /// The value of the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A step of an origin in response to a request.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Closes in order.
    Close,
    /// Closes with a reset.
    Reset,
    /// Sends nothing more until the peer leaves.
    Hang,
}

/// A 200 with this body.
pub fn ok(body: &str) -> Vec<Step> {
    answer(200, body)
}

/// A response with a length.
pub fn answer(status: u16, body: &str) -> Vec<Step> {
    raw(&format!(
        "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// These raw bytes.
pub fn raw(bytes: &str) -> Vec<Step> {
    vec![Step::Send(bytes.as_bytes().to_vec())]
}

/// A 200 in chunks, with these trailer fields, which it announces.
pub fn chunked(chunks: &[&str], trailers: &[(&str, &str)]) -> Vec<Step> {
    let names: Vec<&str> = trailers.iter().map(|(name, _)| *name).collect();
    let mut text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n".to_owned();
    if !names.is_empty() {
        text += &format!("Trailer: {}\r\n", names.join(", "));
    }
    text += "\r\n";
    for chunk in chunks {
        text += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
    }
    text += "0\r\n";
    for (name, value) in trailers {
        text += &format!("{name}: {value}\r\n");
    }
    raw(&format!("{text}\r\n"))
}

/// The most requests that are recorded; a load test sends more.
const RECORDED: usize = 10_000;

/// The record of an origin.
#[derive(Default)]
struct Record {
    requests: Mutex<Vec<Received>>,
    malformed: Mutex<Vec<String>>,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

impl Record {
    fn keep(&self, request: &Received) {
        let mut requests = self.requests.lock().expect("no holder panics");
        if requests.len() < RECORDED {
            requests.push(request.clone());
        }
    }
}

/// A listening origin; it stops on drop.
pub struct Origin {
    address: SocketAddr,
    record: Arc<Record>,
}

impl Origin {
    /// Answers every whole request with the steps that `handler` names.
    pub fn start(handler: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::listen(move |stream, record, connection| {
            converse(stream, record, connection, &handler)
        })
    }

    /// Answers every request with 200 and `ok`.
    pub fn plain() -> Self {
        Self::start(|_| ok("ok"))
    }

    /// As [`plain`](Self::plain), at this address.
    pub fn plain_at(address: SocketAddr) -> Self {
        Self::start_at(address, |_| ok("ok"))
    }

    /// As [`start`](Self::start), at this address.
    pub fn start_at(
        address: SocketAddr,
        handler: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Self::listen_at(address, move |stream, record, connection| {
            converse(stream, record, connection, &handler)
        })
    }

    /// Hands each connection to `handler`, with no request read; only connections are recorded.
    pub fn raw(handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::listen(move |stream, _, _| {
            handler(stream);
            Ok(())
        })
    }

    fn listen(
        serve: impl Fn(TcpStream, &Record, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::listen_at(([127, 0, 0, 1], 0).into(), serve)
    }

    fn listen_at(
        address: SocketAddr,
        serve: impl Fn(TcpStream, &Record, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let record = Arc::new(Record::default());
        let accepting = Arc::clone(&record);
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let connection = 1 + accepting.connections.fetch_add(1, Ordering::Relaxed);
                let (record, serve) = (Arc::clone(&accepting), Arc::clone(&serve));
                // A connection that breaks is the test's business, not the origin's.
                thread::spawn(move || serve(stream, &record, connection).ok());
            }
        });
        Self { address, record }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every complete request, in the order of their ends; the first `RECORDED` of them.
    pub fn requests(&self) -> Vec<Received> {
        self.record
            .requests
            .lock()
            .expect("no holder panics")
            .clone()
    }

    /// The only request.
    #[track_caller]
    pub fn only_request(&self) -> Received {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.into_iter().next().expect("there is one")
    }

    /// A reason for each malformed request.
    pub fn malformed(&self) -> Vec<String> {
        self.record
            .malformed
            .lock()
            .expect("no holder panics")
            .clone()
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.record.connections.load(Ordering::Relaxed)
    }

    /// Clears the record.
    pub fn forget(&self) {
        self.record
            .requests
            .lock()
            .expect("no holder panics")
            .clear();
        self.record
            .malformed
            .lock()
            .expect("no holder panics")
            .clear();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.record.stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread; when that fails it has ended already.
        TcpStream::connect(self.address).ok();
    }
}

/// Closes a socket with a reset.
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .expect("a connected socket");
}

/// An address that refuses connections as long as this process lives: its port is bound, and
/// nothing listens.
pub fn refusing_address() -> SocketAddr {
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    bound.bind(&any.into()).expect("a free port");
    let address = bound.local_addr().expect("a bound socket");
    std::mem::forget(bound);
    address.as_socket().expect("an address of IPv4")
}

/// A free address, for a server that starts there later, or again. The kernel gives its port to
/// nobody meanwhile: it is below those that it chooses from (`net.ipv4.ip_local_port_range`). So is
/// the port 10,000 above it, on which a node of a Redis cluster speaks to the others.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let first = std::process::id() as usize * 64;
    loop {
        let port = 12_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        let address = SocketAddr::from(([127, 0, 0, 1], port as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// A listener whose queue is full: a connection to it is neither accepted nor refused.
pub struct BlackHole {
    _listener: Socket,
    _queued: Vec<TcpStream>,
    /// Its address.
    pub address: SocketAddr,
}

impl BlackHole {
    /// Binds a listener and fills its queue.
    pub fn open() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .expect("a free port");
        listener.listen(0).expect("a bound socket");
        let address = listener
            .local_addr()
            .expect("a bound socket")
            .as_socket()
            .expect("an IP socket");
        let patience = Duration::from_millis(200);
        let queued = std::iter::from_fn(|| TcpStream::connect_timeout(&address, patience).ok());
        let queued = queued.take(16).collect();
        Self {
            _listener: listener,
            _queued: queued,
            address,
        }
    }
}

/// Serves one connection.
fn converse(
    mut stream: TcpStream,
    record: &Record,
    connection: usize,
    handler: &dyn Fn(&Received) -> Vec<Step>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let request = match read_request(&mut reader) {
            Ok(Some(request)) => Received {
                connection,
                ..request
            },
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                record
                    .malformed
                    .lock()
                    .expect("no holder panics")
                    .push(error.to_string());
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        record.keep(&request);
        for step in handler(&request) {
            match step {
                Step::Send(bytes) => stream.write_all(&bytes)?,
                Step::Pause(time) => thread::sleep(time),
                Step::Close => return Ok(()),
                Step::Reset => {
                    drop(reader);
                    reset(stream);
                    return Ok(());
                }
                Step::Hang => {
                    stream.set_read_timeout(None)?;
                    io::copy(&mut reader, &mut io::sink())?;
                    return Ok(());
                }
            }
        }
    }
}

/// The next request with its body; none when the peer closed between two.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Received>> {
    let Some(line) = read_line(reader)? else {
        return Ok(None);
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else {
        return Err(malformed("request line", &line));
    };
    let mut request = Received {
        method: method.to_owned(),
        target: target.to_owned(),
        ..Received::default()
    };
    request.headers = read_fields(reader)?;

    let count = |name: &str| {
        request
            .headers
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .count()
    };
    if count("host") != 1 {
        return Err(malformed("host", &line));
    }
    if count("content-length") + count("transfer-encoding") > 1 {
        return Err(malformed("two framings", &line));
    }
    match (
        request.header("transfer-encoding"),
        request.header("content-length"),
    ) {
        (Some("chunked"), _) => {
            read_chunks(reader, &mut request.body)?;
            request.trailers = read_fields(reader)?;
        }
        (Some(coding), _) => return Err(malformed("transfer-encoding", coding)),
        (None, Some(length)) => {
            let length: usize = length
                .parse()
                .map_err(|_| malformed("content-length", length))?;
            request.body.resize(length, 0);
            reader.read_exact(&mut request.body)?;
        }
        (None, None) => {}
    }
    Ok(Some(request))
}

fn read_fields(reader: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = read_line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| malformed("field", &line))?;
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) || value.contains(['\r', '\0']) {
            return Err(malformed("field", &line));
        }
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let line = read_line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let length = usize::from_str_radix(&line, 16).map_err(|_| malformed("chunk", &line))?;
        if length == 0 {
            return Ok(());
        }
        let start = body.len();
        body.resize(start + length, 0);
        reader.read_exact(&mut body[start..])?;
        let mut end = [0; 2];
        reader.read_exact(&mut end)?;
        if end != *b"\r\n" {
            return Err(malformed("end of chunk", &line));
        }
    }
}

/// A line without its CR LF; none at the end of the stream.
fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    let line = text
        .strip_suffix("\r\n")
        .ok_or_else(|| malformed("line", &text))?;
    Ok(Some(line.to_owned()))
}

fn malformed(what: &str, text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {text:?}"))
}
