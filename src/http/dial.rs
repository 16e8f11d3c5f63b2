//! The first of several addresses that takes a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// A code point of Differentiated Services (RFC 2474), by which networks tell the classes of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// The code point of this number, 0 to 63.
    pub const fn new(number: u8) -> Self {
        Dscp(number & 63)
    }

    /// A connection whose every packet has it, the first included.
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

/// Connects to the addresses in their order, the next as soon as one has failed or has not answered for `head_start`, until
/// one has taken the connection ("happy eyeballs", RFC 8305 section 5). With this code point if any.
///
/// # Errors
/// The last failure, when all have failed; `None` without an address.
pub(crate) async fn dial(
    addresses: impl IntoIterator<Item = SocketAddr>,
    head_start: Duration,
    dscp: Option<Dscp>,
) -> Result<TcpStream, Option<io::Error>> {
    let mut addresses = addresses.into_iter();
    let mut next = addresses.next();
    let mut attempts = JoinSet::new();
    let mut failure = None;
    loop {
        if let Some(address) = next.take() {
            attempts.spawn(connect(address, dscp));
            next = addresses.next();
        }
        tokio::select! {
            attempt = attempts.join_next() => match attempt {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => failure = Some(error),
                Some(Err(lost)) => failure = Some(lost.into()),
                None => return Err(failure),
            },
            () = sleep(head_start), if next.is_some() => {}
        }
    }
}

async fn connect(address: SocketAddr, dscp: Option<Dscp>) -> io::Result<TcpStream> {
    match dscp {
        None => TcpStream::connect(address).await,
        Some(dscp) => dscp.connect(address).await,
    }
}

#[cfg(test)]
pub(crate) mod silent {
    use std::net::SocketAddr;
    use std::time::Duration;

    use socket2::{Domain, Socket, Type};

    /// An address that answers nothing: its queue of connections that nobody takes is full.
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

    const HEAD_START: Duration = Duration::from_millis(50);

    fn refusing() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("it listens")
    }

    async fn reached(addresses: &[SocketAddr]) -> Result<SocketAddr, Option<io::ErrorKind>> {
        let dialled = dial(addresses.iter().copied(), HEAD_START, None);
        let dialled = timeout(Duration::from_secs(10), dialled).await;
        let stream = dialled.expect("in time");
        let stream = stream.map_err(|error| error.map(|error| error.kind()))?;
        Ok(stream.peer_addr().expect("it is connected"))
    }

    #[tokio::test]
    async fn the_first_address_that_answers_is_taken() {
        let (silent, other) = (Silent::new(), Silent::new());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let good = listener.local_addr().expect("it listens");
        for before in [
            &[][..],
            &[refusing()],
            &[silent.address],
            &[silent.address, refusing(), other.address],
        ] {
            assert_eq!(reached(&[before, &[good]].concat()).await, Ok(good));
        }
        assert_eq!(reached(&[good, silent.address]).await, Ok(good));
    }

    #[tokio::test]
    async fn where_none_answers_the_failure_is_told() {
        let refused = Err(Some(io::ErrorKind::ConnectionRefused));
        assert_eq!(reached(&[refusing(), refusing()]).await, refused);
        assert_eq!(reached(&[]).await, Err(None));
    }
}
