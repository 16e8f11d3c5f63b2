//! Connections to an address, or to a host and port: name, addresses, TCP ("happy eyeballs", RFC
//! 8305).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::resolve;
use super::socket::{Socket, StreamAddress};

/// A code point of Differentiated Services (RFC 2474), by which networks tell the classes of
/// packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// The code point of this number, 0 to 63.
    pub const fn new(number: u8) -> Self {
        Dscp(number & 63)
    }

    /// Connects with the code point in every packet, the first included.
    async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        // The two bits below are those of congestion notification.
        let class = u32::from(self.0) << 2;
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        match address {
            SocketAddr::V4(_) => SockRef::from(&socket).set_tos_v4(class)?,
            SocketAddr::V6(_) => SockRef::from(&socket).set_tclass_v6(class)?,
        }
        socket.connect(address).await
    }
}

/// The name by which the server at `host` is asked for (SNI) and verified: without the dot that ends an
/// absolute name (RFC 6066 section 3).
pub(crate) fn name_in_certificates(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Connects to one address. Packets over TCP have this code point, if any.
///
/// # Errors
/// The system's.
pub(crate) async fn dial(address: &StreamAddress, dscp: Option<Dscp>) -> io::Result<Socket> {
    match address {
        StreamAddress::Tcp(address) => connect(*address, dscp).await.map(Socket::Tcp),
        StreamAddress::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
    }
}

/// Reasons why no address of a host took the connection.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The name has no address, or cannot be resolved.
    Resolve(io::Error),
    /// The name was not resolved by the deadline.
    ResolveTimeout(io::Error),
    /// The failure of the last address.
    Connect(io::Error),
}

/// Connects to a name or an address, which is resolved until `deadline`; the caller bounds the rest.
/// Each address has a `head_start` before the next is tried beside it (RFC 8305 section 5).
///
/// # Errors
/// The resolver's errors, and the failure of the last address.
pub(crate) async fn dial_host(
    host: &str,
    port: u16,
    deadline: Instant,
    head_start: Duration,
) -> Result<TcpStream, DialError> {
    let resolved = resolve::SYSTEM.resolve(host, port, deadline).await;
    let addresses = resolved.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => DialError::ResolveTimeout(error),
        _ => DialError::Resolve(error),
    })?;
    dial_first(addresses, head_start).await
}

/// Connects to the first address that answers. The next address is tried once one has failed,
/// or has not answered during its head start.
///
/// # Errors
/// The last failure, when all have failed; [`DialError::Resolve`] without an address.
pub(crate) async fn dial_first(
    addresses: impl IntoIterator<Item = SocketAddr>,
    head_start: Duration,
) -> Result<TcpStream, DialError> {
    let mut addresses = addresses.into_iter();
    let mut next = addresses.next();
    let mut attempts = JoinSet::new();
    let mut failure = DialError::Resolve(io::Error::other("no address"));
    loop {
        if let Some(address) = next.take() {
            attempts.spawn(connect(address, None));
            next = addresses.next();
        }
        tokio::select! {
            attempt = attempts.join_next() => match attempt {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => failure = DialError::Connect(error),
                Some(Err(lost)) => failure = DialError::Connect(lost.into()),
                None => return Err(failure),
            },
            () = sleep(head_start), if next.is_some() => {}
        }
    }
}

/// Connects with this code point, if any. The stream sends small writes at once.
async fn connect(address: SocketAddr, dscp: Option<Dscp>) -> io::Result<TcpStream> {
    let stream = match dscp {
        None => TcpStream::connect(address).await?,
        Some(dscp) => dscp.connect(address).await?,
    };
    // Only latency depends on it: a system that refuses it still works.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

#[cfg(test)]
pub(crate) mod silent {
    use std::net::SocketAddr;
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};

    /// An address that never answers: its queue of unaccepted connections is full.
    pub(crate) struct Silent {
        pub(crate) address: SocketAddr,
        _queue: (Socket, Vec<Socket>),
    }

    impl Silent {
        pub(crate) fn new() -> Self {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let stream = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            let listener = stream();
            listener.bind(&any.into()).expect("a port");
            listener.listen(0).expect("it listens");
            let address = listener.local_addr().expect("it has one").as_socket();
            let address = address.expect("of IPv4");
            let wait = Duration::from_millis(50);
            let connected = || {
                let socket = stream();
                let connected = socket.connect_timeout(&address.into(), wait);
                connected.is_ok().then_some(socket)
            };
            let queue = std::iter::from_fn(connected).take(64).collect();
            Silent {
                address,
                _queue: (listener, queue),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::time::timeout;

    use super::silent::Silent;
    use super::*;

    fn refusing() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("it listens")
    }

    async fn reached(addresses: &[SocketAddr]) -> Result<SocketAddr, DialError> {
        let dialled = dial_first(addresses.iter().copied(), Duration::from_millis(50));
        let dialled = timeout(Duration::from_secs(10), dialled).await;
        let stream = dialled.expect("in time")?;
        Ok(stream.peer_addr().expect("it is connected"))
    }

    #[tokio::test]
    async fn the_first_address_that_answers_is_used() {
        let (silent, other) = (Silent::new(), Silent::new());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let good = listener.local_addr().expect("it listens");
        for before in [
            &[][..],
            &[refusing()],
            &[silent.address],
            &[silent.address, refusing(), other.address],
        ] {
            let reached = reached(&[before, &[good]].concat()).await;
            assert_eq!(reached.expect("one answers"), good);
        }
        let reached = reached(&[good, silent.address]).await;
        assert_eq!(reached.expect("one answers"), good);
    }

    #[tokio::test]
    async fn the_failure_is_returned_when_no_address_answers() {
        let refused = reached(&[refusing(), refusing()]).await;
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        assert!(matches!(refused, Err(DialError::Connect(error)) if is_refused(&error)));
        assert!(matches!(reached(&[]).await, Err(DialError::Resolve(_))));
    }
}
