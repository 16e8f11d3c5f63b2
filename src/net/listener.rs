//! Listening sockets: one per worker and address, sharing the port among the workers only. They
//! accept [`Socket`]s.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Type};
use tokio::net::TcpStream;

use super::peer_address::PeerAddress;
use super::socket::Socket;

/// The kernel's queue of unaccepted connections for each socket, at most `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Opens `count` sockets that share one address. The kernel spreads connections over them.
///
/// The first is bound without SO_REUSEPORT, which fails if another process listens already. With
/// it, both processes would silently share the clients. Port 0 takes a free port, the same for all
/// sockets.
///
/// # Errors
///
/// The address with the system's error, and advice for known ones.
pub(crate) fn bind(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, BindError> {
    let failed = |source| BindError { address, source };
    let first = open(address).map_err(failed)?;
    first.bind(&address.into()).map_err(failed)?;
    first.set_reuse_port(true).map_err(failed)?;
    let first = listen(first).map_err(failed)?;
    let bound = first.local_addr().map_err(failed)?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(share(bound).map_err(failed)?);
    }
    Ok(sockets)
}

fn share(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    listen(socket)
}

fn open(address: SocketAddr) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(
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
    Ok(socket)
}

fn listen(socket: socket2::Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A listening socket on a worker's runtime.
#[derive(Debug)]
pub(crate) struct Listener(tokio::net::TcpListener);

/// A connection as the kernel reports it.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: Socket,
    pub(crate) peer: PeerAddress,
}

impl Listener {
    /// Registers a bound socket with the current runtime.
    pub(crate) fn new(socket: TcpListener) -> io::Result<Self> {
        tokio::net::TcpListener::from_std(socket).map(Self)
    }

    /// Waits for the next connection.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        let (stream, peer) = self.0.accept().await?;
        Ok(Accepted::new(stream, peer))
    }

    /// Returns the connections that the kernel has accepted already, and closes the socket.
    pub(crate) fn into_queued(self) -> impl Iterator<Item = Accepted> {
        let listener = self.0.into_std().ok();
        let accept = move || listener.as_ref()?.accept().ok();
        std::iter::from_fn(accept).filter_map(|(stream, peer)| {
            stream.set_nonblocking(true).ok()?;
            Some(Accepted::new(TcpStream::from_std(stream).ok()?, peer))
        })
    }
}

impl Accepted {
    fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            socket: Socket(stream),
            peer: peer.into(),
        }
    }
}

/// An address that cannot be listened on.
#[derive(Debug)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, source } = self;
        let port = address.port();
        match source.kind() {
            ErrorKind::AddrInUse => write!(
                f,
                "address in use: something listens on {address} already; stop it (`ss -ltnp 'sport = :{port}'` \
                 names it), or choose another address"
            ),
            ErrorKind::PermissionDenied => write!(
                f,
                "not permitted to listen on {address}: ports below 1024 need CAP_NET_BIND_SERVICE; choose \
                 another port, or grant it"
            ),
            ErrorKind::AddrNotAvailable => {
                write!(
                    f,
                    "cannot listen on {address}: this machine has no such address"
                )
            }
            _ => write!(f, "cannot listen on {address}: {source}"),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
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
        let sockets = bind(any(), 3).expect("a free port");
        let address = sockets[0].local_addr().expect("bound");
        assert!(
            sockets
                .iter()
                .all(|s| s.local_addr().is_ok_and(|a| a == address))
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
        let sockets = bind(any(), 2).expect("a free port");
        let address = sockets[0].local_addr().expect("bound");
        let error = bind(address, 2).expect_err("taken");
        assert!(
            error
                .to_string()
                .starts_with(&format!("address in use: something listens on {address}"))
        );
        drop(sockets);
        bind(address, 2).expect("free again");
    }

    #[test]
    fn accepted_sockets_send_at_once() {
        let sockets = bind(any(), 1).expect("a free port");
        let client = TcpStream::connect(sockets[0].local_addr().expect("bound"));
        let (accepted, _) = sockets[0].accept().expect("connected");
        assert!(accepted.nodelay().expect("a socket option"));
        drop(client);
    }

    #[test]
    fn errors_say_what_to_do() {
        let say = |kind| BindError {
            address: ([1, 2, 3, 4], 80).into(),
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
