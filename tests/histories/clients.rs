//! Clients that ask proxies all the time, and note what they see.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::dice::Dice;
use crate::history::{Event, Outcome, now};
use crate::policies::Policy;
use crate::support::client::{Connection, Response};

/// The time in which all clients prefer the same key, so that it meets all proxies at once.
const TOGETHER: u64 = 300_000;
/// The time after which a key that moves reaches another proxy.
const MOVES: u64 = 1_300_000;

/// What clients ask for.
#[derive(Clone, Copy)]
pub struct Demand {
    /// The policies, each with a path of its own.
    pub policies: &'static [Policy],
    pub keys: usize,
    /// The number of clients of each proxy, so that it has several requests at once.
    pub clients: usize,
    /// The longest pause of a client between two requests, in milliseconds.
    pub pause: u64,
    /// The longest time that the upstream takes for a response, in milliseconds.
    pub hold: u64,
    pub spread: Spread,
}

/// How requests for a key are spread over time and proxies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Evenly.
    Even,
    /// Half of all clients ask for the same key at a time.
    Crowded,
    /// The key reaches one proxy at a time, and then the next.
    Moving,
}

impl Demand {
    /// Two clients of each proxy, which ask for these policies.
    pub fn of(policies: &'static [Policy], keys: usize) -> Self {
        Self {
            policies,
            keys,
            clients: 2,
            pause: 25,
            hold: 0,
            spread: Spread::Crowded,
        }
    }
}

/// Running clients.
pub struct Clients {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Event>>>,
}

impl Clients {
    /// Starts some for each proxy.
    pub fn start(proxies: &[SocketAddr], demand: Demand, seed: u64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..proxies.len() * demand.clients).map(|place| {
            let proxy = place / demand.clients;
            let client = Client {
                proxy,
                address: proxies[proxy],
                demand,
                dice: Dice::new(seed, 1 + place as u64),
                connection: None,
            };
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || client.run(&is_over))
        });
        Self {
            threads: threads.collect(),
            is_over,
        }
    }

    /// Ends them, and returns what they saw, in the order of sending.
    pub fn finish(mut self) -> Vec<Event> {
        self.is_over.store(true, Relaxed);
        let threads = std::mem::take(&mut self.threads).into_iter();
        let mut events: Vec<_> = threads
            .flat_map(|client| client.join().expect("no client panics"))
            .collect();
        events.sort_by_key(|event| event.sent);
        events
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

struct Client {
    proxy: usize,
    address: SocketAddr,
    demand: Demand,
    dice: Dice,
    connection: Option<Connection>,
}

impl Client {
    fn run(mut self, is_over: &AtomicBool) -> Vec<Event> {
        let mut events = Vec::new();
        while !is_over.load(Relaxed) {
            events.push(self.step());
            thread::sleep(self.dice.millis(0, self.demand.pause));
        }
        events
    }

    fn step(&mut self) -> Event {
        let Demand { policies, .. } = self.demand;
        let (policy, key) = self.next_bucket();
        let units = 1 + self.dice.below(policies[policy].units) as u64;
        let sent = now();
        let outcome = self.ask(policy, key, units);
        Event {
            sent,
            received: now(),
            proxy: self.proxy,
            policy,
            key,
            units,
            outcome,
        }
    }

    /// The policy and the key of the next request.
    fn next_bucket(&mut self) -> (usize, usize) {
        let Demand { policies, keys, .. } = self.demand;
        if self.demand.spread == Spread::Moving {
            let moment = (now() / MOVES) as usize;
            let key = (self.proxy + moment) % keys;
            return (self.dice.below(policies.len()), key);
        }
        let buckets = policies.len() * keys;
        // All clients agree about the bucket of the moment.
        let together = (now() / TOGETHER).wrapping_mul(2_654_435_761) as usize % buckets;
        let any = self.dice.below(buckets);
        let bucket = match self.demand.spread {
            Spread::Crowded => *self.dice.one_of(&[together, any]),
            _ => any,
        };
        (bucket % policies.len(), bucket / policies.len())
    }

    fn ask(&mut self, policy: usize, key: usize, units: u64) -> Outcome {
        let (proxy, hold) = (
            self.proxy,
            self.dice.millis(0, self.demand.hold).as_millis(),
        );
        let request = format!(
            "GET /{policy} HTTP/1.1\r\nHost: a\r\nx-key: k{key}\r\nx-cost: {units}\r\n\
             x-proxy: {proxy}\r\nx-hold: {hold}\r\n\r\n"
        );
        let Some(response) = self.exchange(&request) else {
            self.connection = None;
            return Outcome::Lost;
        };
        if response
            .header("connection")
            .is_some_and(|value| value.contains("close"))
        {
            self.connection = None;
        }
        match response.status {
            200 => Outcome::Admitted,
            429 => {
                let seconds = response.header("retry-after");
                Outcome::Limited(seconds.and_then(|seconds| seconds.parse().ok()))
            }
            503 => Outcome::StoreError,
            other => Outcome::Unexpected(other),
        }
    }

    fn exchange(&mut self, request: &str) -> Option<Response> {
        if self.connection.is_none() {
            let stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(2)).ok()?;
            self.connection = Some(Connection::over(stream));
        }
        let connection = self.connection.as_mut()?;
        connection.try_send(request).ok()?;
        connection.try_receive().ok()?
    }
}
