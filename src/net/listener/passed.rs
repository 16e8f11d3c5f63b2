//! Listening sockets that another process has opened for this one: systemd (`LISTEN_FDS`), or a process
//! that this one takes over from. The kernel's queue stays with a socket, so no client is refused.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, absolute};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use listenfd::ListenFd;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Type};

use super::unix::SocketFile;
use super::{Bound, BoundSocket};
use crate::net::socket::StreamAddress;

/// Sockets that wait for the listeners of the configuration.
#[derive(Debug, Default)]
pub struct PassedSockets {
    waiting: Vec<PassedListener>,
    /// Listeners of the process before whose sockets were taken.
    taken: Vec<ListenerName>,
}

/// The sockets of one listener.
#[derive(Debug)]
struct PassedListener {
    /// The listener in the process before; none for sockets of systemd.
    before: Option<ListenerName>,
    bound: Bound,
}

/// A listener as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerName {
    /// The server that it belongs to.
    pub server: String,
    /// The configured address, whose port may be 0.
    pub address: StreamAddress,
}

impl PassedSockets {
    /// The sockets that systemd passes, and what is wrong with each that can't be listened on. To be called
    /// before this process opens a file itself.
    pub fn from_environment() -> (Self, Vec<io::Error>) {
        let (mut passed, mut unusable) = (Self::default(), Vec::new());
        let mut sockets = ListenFd::from_env();
        for index in 0..sockets.len() {
            let socket = match sockets.take_tcp_listener(index) {
                Ok(tcp) => Ok(tcp.map(OwnedFd::from)),
                Err(_) => sockets
                    .take_unix_listener(index)
                    .map(|unix| unix.map(OwnedFd::from)),
            };
            match socket.and_then(|socket| socket.map(adopt).transpose()) {
                Ok(Some((address, socket))) => drop(passed.add(None, address, socket)),
                Ok(None) => {}
                Err(error) => unusable.push(error),
            }
        }
        (passed, unusable)
    }

    /// Adds sockets of a listener of the process before. If that has a file, it is removed at the end
    /// once `is_own` is true.
    ///
    /// # Errors
    ///
    /// What is wrong with one of them.
    pub fn add_listener(
        &mut self,
        name: &ListenerName,
        sockets: Vec<OwnedFd>,
        is_own: Option<&Arc<AtomicBool>>,
    ) -> io::Result<()> {
        for socket in sockets {
            let (address, socket) = adopt(socket)?;
            if is_own.is_some() && is_gone(&address) {
                // No client finds this socket any more. The listener binds a new one.
                continue;
            }
            let bound = self.add(Some(name.clone()), address, socket);
            if let (Some(is_own), None, StreamAddress::Unix(path)) =
                (is_own, &bound.file, &bound.address)
            {
                bound.file = Some(SocketFile::open(path, Arc::clone(is_own))?);
            }
        }
        Ok(())
    }

    /// Adds a socket that listens at `address`, beside others of the same listener.
    fn add(
        &mut self,
        before: Option<ListenerName>,
        address: StreamAddress,
        socket: BoundSocket,
    ) -> &mut Bound {
        let mut all = self.waiting.iter();
        let same = all.position(|one| one.before == before && one.bound.address == address);
        let place = same.unwrap_or_else(|| {
            let bound = Bound {
                address,
                sockets: Vec::new(),
                file: None,
            };
            self.waiting.push(PassedListener { before, bound });
            self.waiting.len() - 1
        });
        let bound = &mut self.waiting[place].bound;
        bound.sockets.push(socket);
        bound
    }

    /// Returns the sockets of this listener, at least `count`: those that it had in the process before,
    /// or else those that listen on its address. Two workers may share one.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(crate) fn take(&mut self, name: &ListenerName, count: usize) -> io::Result<Option<Bound>> {
        let had = |one: &PassedListener| one.before.as_ref() == Some(name);
        let listens = |one: &PassedListener| covers(&one.bound.address, &name.address);
        let place = self.waiting.iter().position(had);
        let Some(place) = place.or_else(|| self.waiting.iter().position(listens)) else {
            return Ok(None);
        };
        let PassedListener { before, mut bound } = self.waiting.remove(place);
        self.taken.extend(before);
        for index in bound.sockets.len()..count {
            let again = bound.sockets[index % bound.sockets.len()].try_clone()?;
            bound.sockets.push(again);
        }
        Ok(Some(bound))
    }

    /// The addresses of the sockets that no listener has taken.
    pub fn addresses(&self) -> impl Iterator<Item = &StreamAddress> {
        self.waiting.iter().map(|one| &one.bound.address)
    }

    /// Closes the sockets that no listener has taken. Returns the listeners of the process before
    /// whose sockets were taken.
    pub fn into_taken(self) -> Vec<ListenerName> {
        self.taken
    }
}

/// Returns true if a socket at `local` is what a listener on `wanted` would bind: also `[::]`, which has
/// the clients of `0.0.0.0`, for that.
fn covers(local: &StreamAddress, wanted: &StreamAddress) -> bool {
    match (local, wanted) {
        (StreamAddress::Tcp(local), StreamAddress::Tcp(wanted)) => {
            let is_any = local.ip().is_unspecified() && wanted.ip().is_unspecified();
            local == wanted || is_any && local.is_ipv6() && local.port() == wanted.port()
        }
        (StreamAddress::Unix(local), StreamAddress::Unix(wanted)) => {
            let paths = (absolute(local), absolute(wanted));
            matches!(paths, (Ok(local), Ok(wanted)) if local == wanted)
        }
        _ => false,
    }
}

/// Returns true for a Unix socket whose file somebody has removed.
fn is_gone(address: &StreamAddress) -> bool {
    let StreamAddress::Unix(path) = address else {
        return false;
    };
    // Without its directory, it can't be bound anew.
    let found = path.symlink_metadata();
    path.parent().is_some_and(Path::is_dir)
        && found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A listening socket as this process uses it, and its address.
fn adopt(socket: OwnedFd) -> io::Result<(StreamAddress, BoundSocket)> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what);
    let socket = BoundSocket::from(socket);
    if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
        return Err(wrong("a socket that was passed doesn't listen"));
    }
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    if socket.domain()? == Domain::UNIX {
        let path = address.as_pathname();
        let path = path.ok_or_else(|| wrong("a Unix socket that was passed has no path"))?;
        return Ok((StreamAddress::Unix(path.into()), socket));
    }
    let address = address.as_socket();
    let address = address.ok_or_else(|| wrong("a socket that was passed has no IP address"))?;
    // Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    Ok((address.into(), socket))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn name(server: &str, address: &str) -> ListenerName {
        ListenerName {
            server: server.to_owned(),
            address: StreamAddress::Tcp(address.parse().expect("an address")),
        }
    }

    fn socket(address: &str) -> (StreamAddress, OwnedFd) {
        let socket = TcpListener::bind(address).expect("a free port");
        let local = socket.local_addr().expect("bound");
        (local.into(), socket.into())
    }

    #[test]
    fn a_listener_takes_what_it_had_before_what_fits_its_address() {
        let mut passed = PassedSockets::default();
        let (admin, worker) = (name("admin", "127.0.0.1:0"), name("worker", "127.0.0.1:0"));
        let (first, one) = socket("127.0.0.1:0");
        let (second, two) = socket("127.0.0.1:0");
        passed
            .add_listener(&worker, vec![one], None)
            .expect("listens");
        passed
            .add_listener(&admin, vec![two], None)
            .expect("listens");
        let taken = passed
            .take(&admin, 1)
            .expect("taken")
            .expect("one is there");
        assert_eq!(taken.address, second);
        assert!(
            passed
                .take(&name("worker", "127.0.0.2:0"), 1)
                .expect("nothing")
                .is_none()
        );
        let by_address = ListenerName {
            server: "worker".to_owned(),
            address: first.clone(),
        };
        let taken = passed
            .take(&by_address, 1)
            .expect("taken")
            .expect("one is there");
        assert_eq!(taken.address, first);
        assert_eq!(passed.addresses().count(), 0);
    }

    #[test]
    fn more_workers_share_sockets_and_fewer_take_all() {
        for (given, workers, expected) in [(1, 4, 4), (4, 2, 4), (3, 3, 3), (2, 5, 5)] {
            let (local, first) = socket("127.0.0.1:0");
            let more = (1..given).map(|_| first.try_clone().expect("a file"));
            let mut sockets: Vec<_> = more.collect();
            sockets.push(first);
            let mut passed = PassedSockets::default();
            let own = name("worker", "127.0.0.1:0");
            passed
                .add_listener(&own, sockets, None)
                .expect("they listen");
            let bound = passed
                .take(&own, workers)
                .expect("taken")
                .expect("one is there");
            assert_eq!(bound.sockets.len(), expected);
            let client = TcpStream::connect(local.tcp().expect("an address")).expect("listening");
            let accepts = |one: &BoundSocket| one.accept().is_ok();
            assert!(bound.sockets.iter().any(accepts));
            drop(client);
        }
    }

    #[test]
    fn a_socket_of_all_addresses_has_those_of_ipv4_too() {
        let covers = |local: &str, wanted: &str| {
            let [local, wanted] =
                [local, wanted].map(|text| StreamAddress::Tcp(text.parse().expect("an address")));
            covers(&local, &wanted)
        };
        assert!(covers("[::]:80", "0.0.0.0:80"));
        assert!(!covers("0.0.0.0:80", "[::]:80"));
        assert!(!covers("[::]:80", "0.0.0.0:81"));
        assert!(!covers("[::]:80", "127.0.0.1:80"));
        assert!(!covers("127.0.0.1:80", "127.0.0.1:0"));
    }

    #[test]
    fn a_socket_that_does_not_listen_is_refused() {
        let mut passed = PassedSockets::default();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let own = name("worker", "127.0.0.1:0");
        passed
            .add_listener(&own, vec![udp.into()], None)
            .expect_err("no stream");
        let (local, _listening) = socket("127.0.0.1:0");
        let client = TcpStream::connect(local.tcp().expect("an address")).expect("listening");
        passed
            .add_listener(&own, vec![client.into()], None)
            .expect_err("no listener");
    }
}
