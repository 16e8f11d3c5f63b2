//! An origin that answers as many requests as the test admits, and counts concurrent ones.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::origin::Origin;

/// More than any test sends.
pub const ALL: usize = 10_000;

pub struct Slow {
    pub origin: Origin,
    pub gate: Arc<Gate>,
}

/// The gate at which requests wait.
#[derive(Default)]
pub struct Gate {
    /// The number of requests that may pass, in the order of arrival.
    passes: Mutex<usize>,
    changed: Condvar,
    inside: AtomicUsize,
    most: AtomicUsize,
    /// The targets in the order of arrival.
    seen: Mutex<Vec<String>>,
}

impl Slow {
    /// An origin that sends nothing before a request has passed.
    pub fn start() -> Self {
        Self::sending("", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab")
    }

    /// An origin that sends the head and half of the body of each response at once, and the rest
    /// when the request has passed.
    pub fn halfway() -> Self {
        Self::sending("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", "b")
    }

    fn sending(at_once: &'static str, rest: &'static str) -> Self {
        let gate = Arc::new(Gate::default());
        let held = Arc::clone(&gate);
        let origin = Origin::raw(move |stream| {
            let mut requests = BufReader::new(&stream);
            let send = |part: &str| (&stream).write_all(part.as_bytes()).is_ok();
            while let Some(target) = read_head(&mut requests) {
                if !send(at_once) {
                    return;
                }
                held.serve(target);
                if !send(rest) {
                    return;
                }
            }
        });
        Self { origin, gate }
    }
}

impl Gate {
    fn serve(&self, target: String) {
        let mut seen = self.seen.lock().expect("no holder panics");
        let number = seen.len();
        seen.push(target);
        drop(seen);
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        let passes = self.passes.lock().expect("no holder panics");
        let waits = |passes: &mut usize| *passes <= number;
        let passes = self.changed.wait_while(passes, waits);
        drop(passes.expect("no holder panics"));
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Lets this many further requests pass.
    pub fn let_pass(&self, more: usize) {
        *self.passes.lock().expect("no holder panics") += more;
        self.changed.notify_all();
    }

    /// The targets of all requests, in the order of arrival.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no holder panics").clone()
    }

    /// The largest number of concurrent requests.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// The target of a request without a body.
pub fn read_head(requests: &mut BufReader<&TcpStream>) -> Option<String> {
    let mut target = None;
    loop {
        let mut line = String::new();
        match requests.read_line(&mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) if line == "\r\n" => return target,
            Ok(_) => target = target.or(line.split(' ').nth(1).map(str::to_owned)),
        }
    }
}
