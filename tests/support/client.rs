//! Clients: raw HTTP/1.1 over a socket, where a test controls every byte, and installed programs.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;

use socket2::{Domain, Socket, Type};

use super::DEADLINE;

/// Connects from another address of the loopback network. Reads wait for `DEADLINE` at most.
pub fn connect_from(last: u8, address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let source = SocketAddr::from(([127, 0, 0, last], 0));
    socket.bind(&source.into()).expect("a free port");
    socket.connect(&address.into()).expect("it listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
    stream
}

/// A response, its body without the chunk framing.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub status: u16,
    /// In order, as written.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The 1xx statuses that came before it.
    pub informational: Vec<u16>,
}

impl Response {
    /// The value of the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The value of a required header.
    #[track_caller]
    pub fn expect_header(&self, name: &str) -> &str {
        self.header(name)
            .unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// The values of all headers of that name.
    pub fn headers_of(&self, name: &str) -> Vec<&str> {
        let named = self
            .headers
            .iter()
            .filter(|(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The trailer field of that name.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        find(&self.trailers, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn find<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = fields
        .iter()
        .find(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// One connection to a server.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// A thread that writes at the same time.
    pub fn writer(&self) -> TcpStream {
        self.stream.get_ref().try_clone().expect("a socket")
    }

    /// Connects; no read or write waits longer than `DEADLINE`.
    pub fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    /// A connection over this socket; no read or write waits longer than `DEADLINE`.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a connected socket");
        stream
            .set_read_timeout(Some(DEADLINE))
            .expect("a connected socket");
        stream
            .set_write_timeout(Some(DEADLINE))
            .expect("a connected socket");
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Writes these bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the connection takes bytes");
    }

    /// Writes these bytes to a peer that may have closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Closes the sending half.
    pub fn finish_sending(&self) {
        self.stream
            .get_ref()
            .shutdown(Shutdown::Write)
            .expect("a connected socket");
    }

    /// Closes with a reset.
    pub fn reset(self) {
        let linger = Some(std::time::Duration::ZERO);
        socket2::SockRef::from(self.stream.get_ref())
            .set_linger(linger)
            .expect("a connected socket");
    }

    /// Sends a request and receives its response.
    #[track_caller]
    pub fn exchange(&mut self, request: &str) -> Response {
        self.send(request);
        let body = if request.starts_with("HEAD ") {
            Body::None
        } else {
            Body::AsFramed
        };
        self.receive_with(body)
            .expect("a response")
            .expect("a response before the end")
    }

    /// Receives the response to a request that is not HEAD.
    #[track_caller]
    pub fn receive(&mut self) -> Response {
        self.try_receive()
            .expect("a response")
            .expect("a response before the end")
    }

    /// The next response; none when the peer closed instead.
    ///
    /// # Errors
    /// When the peer reset, sent nothing for `DEADLINE`, or sent no valid response.
    pub fn try_receive(&mut self) -> io::Result<Option<Response>> {
        self.receive_with(Body::AsFramed)
    }

    /// The next response to a HEAD request; none when the peer closed instead.
    ///
    /// # Errors
    /// As [`Connection::try_receive`].
    pub fn try_receive_head(&mut self) -> io::Result<Option<Response>> {
        self.receive_with(Body::None)
    }

    /// Reads the head of a response and no body: status and headers.
    #[track_caller]
    pub fn receive_head(&mut self) -> Response {
        self.receive_with(Body::None)
            .expect("a head")
            .expect("a head before the end")
    }

    /// Reads this many bytes.
    #[track_caller]
    pub fn read_exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("bytes");
        bytes
    }

    /// Waits until the peer closes or resets; fails if it sends bytes.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(
                rest.is_empty(),
                "more came: {:?}",
                String::from_utf8_lossy(&rest)
            ),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("not closed: {error}"),
        }
    }

    fn receive_with(&mut self, body: Body) -> io::Result<Option<Response>> {
        let mut response = Response::default();
        loop {
            let Some(line) = self.line()? else {
                return Ok(None);
            };
            response.status = status_of(&line).ok_or_else(|| malformed(&line))?;
            response.headers = self.fields()?;
            if response.status >= 200 {
                break;
            }
            response.informational.push(response.status);
        }
        if body == Body::None || [204, 304].contains(&response.status) {
            return Ok(Some(response));
        }
        if response
            .header("transfer-encoding")
            .is_some_and(|coding| coding.ends_with("chunked"))
        {
            self.chunks(&mut response.body)?;
            response.trailers = self.fields()?;
        } else if let Some(length) = response.header("content-length") {
            let length: usize = length.parse().map_err(|_| malformed(length))?;
            response.body.resize(length, 0);
            self.stream.read_exact(&mut response.body)?;
        } else {
            self.stream.read_to_end(&mut response.body)?;
        }
        Ok(Some(response))
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let length = line.split(';').next().unwrap_or_default();
            let length = usize::from_str_radix(length, 16).map_err(|_| malformed(&line))?;
            if length == 0 {
                return Ok(());
            }
            let start = body.len();
            body.resize(start + length, 0);
            self.stream.read_exact(&mut body[start..])?;
            let end = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if !end.is_empty() {
                return Err(malformed(&end));
            }
        }
    }

    fn fields(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line.is_empty() {
                return Ok(fields);
            }
            let (name, value) = line.split_once(':').ok_or_else(|| malformed(&line))?;
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// A line without its end; none at the end of the stream.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        let line = line
            .strip_suffix(b"\r\n")
            .ok_or_else(|| malformed(&String::from_utf8_lossy(&line)))?;
        Ok(Some(String::from_utf8_lossy(line).into_owned()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    AsFramed,
    None,
}

fn status_of(line: &str) -> Option<u16> {
    let rest = line
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| line.strip_prefix("HTTP/1.0 "))?;
    rest.get(..3)?.parse().ok()
}

fn malformed(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no HTTP: {text:?}"))
}

/// One GET over a connection of its own.
#[track_caller]
pub fn get(address: SocketAddr, path: &str) -> Response {
    get_with(address, path, "")
}

/// One GET with more header lines, each ended by CR LF.
#[track_caller]
pub fn get_with(address: SocketAddr, path: &str, headers: &str) -> Response {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n");
    Connection::open(address).exchange(&request)
}

/// The output of a program.
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }
}

/// Runs an installed program to its end; its own options bound its time.
///
/// # Panics
/// When it is not installed: `scripts/test` installs what is needed.
#[track_caller]
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let started = Command::new(program).args(arguments).output();
    let output =
        started.unwrap_or_else(|error| panic!("{program}: {error}; ./scripts/test installs it"));
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        code: output.status.code(),
    }
}

/// Runs curl, silent but for errors, for at most 20 s.
#[track_caller]
pub fn curl(arguments: &[&str]) -> Output {
    run("curl", &[&["-sS", "--max-time", "20"], arguments].concat())
}

/// Returns true if an upstream has a failure whose reason begins like this.
pub fn counts_failures(metrics: &str, reason: &str) -> bool {
    let label = format!(",reason=\"{reason}");
    let counted = |line: &str| {
        let is_failure = line.starts_with("sluicegate_upstream_failures_total{");
        is_failure && line.contains(&label) && !line.ends_with(" 0")
    };
    metrics.lines().any(counted)
}
