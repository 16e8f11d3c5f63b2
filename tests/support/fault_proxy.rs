//! A TCP proxy with network faults, which a test changes while it runs.
//!
//! Withheld bytes are delivered later, in order, as in TCP; only garbage is invented.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::origin::free_address;
use super::{now, wait_for};

/// The fault of all connections, old and new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Everything passes.
    Fair,
    /// New connections are refused; existing ones go on.
    Refuse,
    /// Connections are accepted, and nothing passes in either direction.
    Silent,
    /// Requests pass; responses do not.
    Deaf,
    /// Everything takes this much longer, in each direction.
    Slow(Duration),
    /// Every answer becomes something else of the same length.
    Garbage,
    /// A connection ends after this many bytes of responses.
    Cut(u64),
}

/// A running proxy; its connections end with it.
pub struct FaultProxy {
    /// Its address.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: SocketAddr,
    weather: Mutex<Weather>,
    is_listening: AtomicBool,
    is_ending: AtomicBool,
    /// Connections of an earlier generation end.
    generation: AtomicU64,
    /// Connections accepted so far.
    taken: AtomicU64,
    /// This many of the first connections are half-open: nothing passes, and neither side is told.
    forgotten: AtomicU64,
}

/// The interval at which threads read the fault.
const TICK: Duration = Duration::from_millis(2);

impl FaultProxy {
    /// A proxy without a fault.
    pub fn before(upstream: SocketAddr) -> Self {
        // No other socket takes the port while nothing listens there.
        let address = free_address();
        let listener = TcpListener::bind(address).expect("a free port");
        let shared = Arc::new(Shared {
            upstream,
            weather: Mutex::new(Weather::Fair),
            is_listening: AtomicBool::new(true),
            is_ending: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        });
        let thread = Some(thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&shared, address, listener)
        }));
        Self {
            address,
            shared,
            thread,
        }
    }

    /// Changes the fault, and waits until connections are refused if it says so.
    pub fn set(&self, weather: Weather) {
        *self.shared.weather.lock().expect("no holder panics") = weather;
        wait_for("the proxy to listen, or not to", || {
            let is_listening = self.shared.is_listening.load(SeqCst);
            (is_listening == (weather != Weather::Refuse)).then_some(())
        });
    }

    /// Ends all connections.
    pub fn drop_connections(&self) {
        self.shared.generation.fetch_add(1, SeqCst);
    }

    /// Makes all connections half-open: bytes are lost, and neither side is told.
    pub fn forget_connections(&self) {
        self.shared.forgotten.store(self.taken(), SeqCst);
    }

    /// The number of connections accepted so far.
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, SeqCst);
        self.drop_connections();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn weather(&self) -> Weather {
        *self.weather.lock().expect("no holder panics")
    }
}

fn accept(shared: &Arc<Shared>, address: SocketAddr, listener: TcpListener) {
    let mut listener = Some(listener);
    while !shared.is_ending.load(SeqCst) {
        match shared.weather() {
            Weather::Refuse => listener = None,
            // The port may still be taken for a moment.
            _ if listener.is_none() => listener = TcpListener::bind(address).ok(),
            _ => {}
        }
        shared.is_listening.store(listener.is_some(), SeqCst);
        if let Some(listener) = &listener {
            listener.set_nonblocking(true).expect("a socket");
            while let Ok((client, _)) = listener.accept() {
                let number = shared.taken.fetch_add(1, SeqCst);
                join(shared, client, number);
            }
        }
        thread::sleep(TICK);
    }
}

/// Connects a client with the upstream, or closes the client's connection if the upstream refuses.
fn join(shared: &Arc<Shared>, client: TcpStream, number: u64) {
    let Ok(server) = TcpStream::connect(shared.upstream) else {
        return;
    };
    for stream in [&client, &server] {
        stream.set_nonblocking(false).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(TICK)).expect("a socket");
    }
    let generation = shared.generation.load(SeqCst);
    let twin = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    for (from, to, is_answers) in [
        (twin(&client), twin(&server), false),
        (server, client, true),
    ] {
        let pump = Pump {
            shared: Arc::clone(shared),
            from,
            to,
            is_answers,
            number,
            generation,
            held: VecDeque::new(),
            passed: 0,
        };
        thread::spawn(move || pump.run());
    }
}

/// One direction of a connection.
struct Pump {
    shared: Arc<Shared>,
    from: TcpStream,
    to: TcpStream,
    is_answers: bool,
    /// The number of the connection, from 0.
    number: u64,
    generation: u64,
    /// The bytes read, and when to deliver them.
    held: VecDeque<(Instant, Vec<u8>)>,
    passed: u64,
}

impl Pump {
    fn run(mut self) {
        while self.shared.generation.load(SeqCst) == self.generation && self.step().is_some() {}
        let _ = self.from.shutdown(Shutdown::Both);
        let _ = self.to.shutdown(Shutdown::Both);
    }

    /// `None` ends the connection.
    fn step(&mut self) -> Option<()> {
        if self.is_withheld() {
            thread::sleep(TICK);
            return Some(());
        }
        self.read()?;
        // The fault may have changed while there was nothing to read.
        while !self.is_withheld() && self.held.front().is_some_and(|(due, _)| *due <= now()) {
            let (_, bytes) = self.held.pop_front()?;
            self.to.write_all(&bytes).ok()?;
        }
        Some(())
    }

    fn is_withheld(&self) -> bool {
        match self.shared.weather() {
            Weather::Silent => true,
            Weather::Deaf => self.is_answers,
            _ => self.number < self.shared.forgotten.load(SeqCst),
        }
    }

    fn read(&mut self) -> Option<()> {
        let mut buffer = [0; 4_096];
        let length = match self.from.read(&mut buffer) {
            Ok(0) => return None,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Some(());
            }
            Err(_) => return None,
        };
        let mut bytes = buffer[..length].to_vec();
        let mut due = now();
        match self.shared.weather() {
            Weather::Slow(by) => due += by,
            Weather::Garbage if self.is_answers => bytes.fill(b'\x07'),
            Weather::Cut(after) if self.is_answers => {
                let left = usize::try_from(after.saturating_sub(self.passed)).unwrap_or(usize::MAX);
                self.passed += length as u64;
                if left < length {
                    let _ = self.to.write_all(&bytes[..left]);
                    return None;
                }
            }
            _ => {}
        }
        self.held.push_back((due, bytes));
        Some(())
    }
}
