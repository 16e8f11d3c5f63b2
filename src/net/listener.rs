//! Listening sockets: over TCP one per worker and address, sharing the port among the workers only;
//! a Unix socket is one for all workers. They accept [`Socket`]s.

pub mod passed;
mod unix;

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Type};
use tokio::net::{TcpStream, UnixStream};

pub(crate) use self::unix::SocketFile;
use super::peer_address::PeerAddress;
use super::socket::{Socket, StreamAddress};

/// A bound socket of TCP, or a Unix socket, before it is registered with a runtime.
pub(crate) type BoundSocket = socket2::Socket;

/// The sockets of one address, at least one for each worker. Some may be handles to the same.
#[derive(Debug)]
pub(crate) struct Bound {
    /// The address, with the port that was free.
    pub(crate) address: StreamAddress,
    pub(crate) sockets: Vec<BoundSocket>,
    /// The file of a Unix socket.
    pub(crate) file: Option<SocketFile>,
}

/// Opens `count` sockets that share one address, and its port with `own` listeners of this process
/// that use it on other addresses. Of an address that this machine lacks, since it has IPv4 alone or
/// IPv6 alone, the one of the other family is meant.
///
/// # Errors
///
/// The address with the system's error, and advice for known ones.
pub(crate) fn bind(
    address: &StreamAddress,
    count: usize,
    own: &[StreamAddress],
) -> Result<Bound, BindError> {
    bind_exactly(address, count, own).or_else(|error| {
        let tcp = address.tcp();
        let Some(other) = tcp.and_then(|address| other_family(address, &error.source)) else {
            return Err(error);
        };
        match bind_exactly(&other.into(), count, own) {
            Err(second) if lacks_address(&second.source) => Err(error),
            bound => bound,
        }
    })
}

fn bind_exactly(
    address: &StreamAddress,
    count: usize,
    own: &[StreamAddress],
) -> Result<Bound, BindError> {
    let bound = match address {
        StreamAddress::Tcp(tcp) => {
            let overlaps = |own: SocketAddr| {
                own.port() == tcp.port() && (own.ip().is_unspecified() || tcp.ip().is_unspecified())
            };
            let is_shared = own.iter().filter_map(StreamAddress::tcp).any(overlaps);
            bind_tcp(*tcp, count, is_shared).map(|(address, sockets)| Bound {
                address: address.into(),
                sockets,
                file: None,
            })
        }
        StreamAddress::Unix(path) => unix::bind(path, count).map(|(sockets, file)| Bound {
            address: address.clone(),
            sockets,
            file: Some(file),
        }),
    };
    bound.map_err(|source| BindError {
        address: address.clone(),
        source,
    })
}

/// The address with the same meaning, all addresses or loopback, in the other family: for a machine
/// that has IPv6 alone or IPv4 alone, and so failed to use this one.
pub(crate) fn other_family(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let ip: IpAddr = match address.ip() {
        _ if !lacks_address(error) => return None,
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv6Addr::UNSPECIFIED.into(),
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv4Addr::LOCALHOST.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, address.port()))
}

/// Returns true if the machine has no such address, or none of its family.
fn lacks_address(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT | Errno::NETUNREACH)
    )
}

/// The kernel's queue of unaccepted connections for each socket, at most `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Opens `count` sockets over which the kernel spreads connections.
///
/// The first is bound without SO_REUSEPORT, which fails if another process listens already. With
/// it, both processes would silently share the clients. Port 0 takes a free port, the same for all
/// sockets. A port that this process has already is bound with it.
fn bind_tcp(
    address: SocketAddr,
    count: usize,
    is_shared: bool,
) -> io::Result<(SocketAddr, Vec<BoundSocket>)> {
    let first = listen(address, is_shared)?;
    let bound = first.local_addr()?.as_socket().unwrap_or(address);
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(listen(bound, true)?);
    }
    Ok((bound, sockets))
}

fn listen(address: SocketAddr, is_shared: bool) -> io::Result<BoundSocket> {
    let socket = BoundSocket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // `[::]` is every address, also of IPv4, whatever the system's default is
        // (net.ipv6.bindv6only).
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // A restart must not wait for connections of the previous process in TIME_WAIT.
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_port(is_shared)?;
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// A listening socket on a worker's runtime.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// A connection as the kernel reports it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: Socket,
    pub(crate) peer: PeerAddress,
}

impl Listener {
    /// Registers a bound socket with the current runtime.
    pub(crate) fn new(socket: BoundSocket) -> io::Result<Self> {
        if socket.domain()? == Domain::UNIX {
            tokio::net::UnixListener::from_std(socket.into()).map(Self::Unix)
        } else {
            tokio::net::TcpListener::from_std(socket.into()).map(Self::Tcp)
        }
    }

    /// Returns another handle to the socket.
    pub(crate) fn share(&self) -> io::Result<BoundSocket> {
        match self {
            Self::Tcp(listener) => SockRef::from(listener).try_clone(),
            Self::Unix(listener) => SockRef::from(listener).try_clone(),
        }
    }

    /// Waits for the next connection.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::over_tcp(stream, peer))
            }
            Self::Unix(listener) => Ok(Accepted::over_unix(listener.accept().await?.0)),
        }
    }

    /// Returns the connections that the kernel has accepted already, and closes the socket.
    pub(crate) fn into_queued(self) -> impl Iterator<Item = Accepted> {
        let socket = match self {
            Self::Tcp(listener) => listener.into_std().map(BoundSocket::from),
            Self::Unix(listener) => listener.into_std().map(BoundSocket::from),
        };
        std::iter::from_fn(move || Accepted::waiting_at(socket.as_ref().ok()?).ok())
    }
}

impl Accepted {
    /// Accepts a connection that waits already.
    fn waiting_at(listener: &BoundSocket) -> io::Result<Self> {
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(true)?;
        match peer.as_socket() {
            Some(peer) => Ok(Self::over_tcp(TcpStream::from_std(stream.into())?, peer)),
            None => Ok(Self::over_unix(UnixStream::from_std(stream.into())?)),
        }
    }

    fn over_tcp(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            socket: Socket::Tcp(stream),
            peer: peer.into(),
        }
    }

    fn over_unix(stream: UnixStream) -> Self {
        Self {
            socket: Socket::Unix(stream),
            peer: PeerAddress::Unix,
        }
    }
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub struct BindError {
    /// The address.
    pub address: StreamAddress,
    /// Why.
    pub source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, source } = self;
        let reason = match (source.kind(), address) {
            (ErrorKind::AddrInUse, address) => {
                let (filter, other) = match address {
                    StreamAddress::Tcp(tcp) => {
                        (format!("-ltnp 'sport = :{}'", tcp.port()), "address")
                    }
                    StreamAddress::Unix(path) => {
                        (format!("-lxp 'src = {}'", path.display()), "path")
                    }
                };
                return write!(
                    f,
                    "address in use: something listens on {address} already; stop it (`ss {filter}` names it), or \
                     choose another {other}"
                );
            }
            (ErrorKind::PermissionDenied, StreamAddress::Tcp(_)) => {
                "ports below 1024 need CAP_NET_BIND_SERVICE; choose another port, or grant it"
            }
            (ErrorKind::PermissionDenied, StreamAddress::Unix(_)) => {
                "the process needs write permission for the directory"
            }
            (ErrorKind::AddrNotAvailable, StreamAddress::Tcp(_)) => {
                "this machine has no such address"
            }
            (ErrorKind::AlreadyExists, StreamAddress::Unix(_)) => {
                "the file is there, and isn't a socket; remove it, or choose another path"
            }
            (ErrorKind::NotFound, StreamAddress::Unix(_)) => {
                "its directory is missing; create it, or choose another path"
            }
            _ => return write!(f, "cannot listen on {address}: {source}"),
        };
        let refused = match source.kind() {
            ErrorKind::PermissionDenied => "not permitted to",
            _ => "cannot",
        };
        write!(f, "{refused} listen on {address}: {reason}")
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn any() -> SocketAddr {
        ([127, 0, 0, 1], 0).into()
    }

    #[test]
    fn workers_share_one_port() {
        let (address, sockets) = bind_tcp(any(), 3, false).expect("a free port");
        assert!(
            sockets
                .iter()
                .all(|s| s.local_addr().is_ok_and(|a| a.as_socket() == Some(address)))
        );
        let clients: Vec<_> = (0..60).map(|_| TcpStream::connect(address)).collect();
        assert!(clients.iter().all(Result::is_ok));
        let accepted: Vec<_> = sockets
            .iter()
            .map(|s| std::iter::from_fn(|| s.accept().ok()).count())
            .collect();
        assert_eq!(accepted.iter().sum::<usize>(), 60, "{accepted:?}");
        assert!(accepted.iter().all(|&n| n > 0), "{accepted:?}");
    }

    #[test]
    fn a_second_instance_cannot_share_the_port() {
        let first = bind(&any().into(), 2, &[]).expect("a free port");
        let address = first.address.clone();
        let error = bind(&address, 2, &[]).expect_err("taken");
        assert!(
            error
                .to_string()
                .starts_with(&format!("address in use: something listens on {address}"))
        );
        drop(first);
        bind(&address, 2, &[]).expect("free again");
    }

    #[test]
    fn an_address_that_the_machine_lacks_is_that_of_the_other_family() {
        let other = |address: &str, errno: Errno| {
            let address = address.parse().expect("an address");
            other_family(address, &errno.into()).map(|other| other.to_string())
        };
        for (one, two) in [("0.0.0.0:80", "[::]:80"), ("127.0.0.1:80", "[::1]:80")] {
            assert_eq!(other(one, Errno::ADDRNOTAVAIL).as_deref(), Some(two));
            assert_eq!(other(two, Errno::AFNOSUPPORT).as_deref(), Some(one));
            assert_eq!(other(one, Errno::ADDRINUSE), None);
        }
        assert_eq!(other("127.0.0.2:80", Errno::ADDRNOTAVAIL), None);
    }

    #[test]
    fn accepted_sockets_send_at_once() {
        let (address, sockets) = bind_tcp(any(), 1, false).expect("a free port");
        let client = TcpStream::connect(address);
        let (accepted, _) = sockets[0].accept().expect("connected");
        assert!(accepted.tcp_nodelay().expect("a socket option"));
        drop(client);
    }

    #[test]
    fn errors_say_what_to_do() {
        let say = |kind| BindError {
            address: SocketAddr::from(([1, 2, 3, 4], 80)).into(),
            source: io::Error::from(kind),
        };
        assert!(
            say(ErrorKind::PermissionDenied)
                .to_string()
                .contains("CAP_NET_BIND_SERVICE")
        );
        assert!(
            say(ErrorKind::AddrNotAvailable)
                .to_string()
                .contains("no such address")
        );
    }
}
