//! An origin that answers as many requests as it is let to, and knows how many it had at once.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::origin::Origin;

/// More than a test asks for.
pub const ALL: usize = 10_000;

pub struct Slow {
    pub origin: Origin,
    pub gate: Arc<Gate>,
}

/// What requests wait at.
#[derive(Default)]
pub struct Gate {
    /// How many may pass in all, in the order in which they came.
    passes: Mutex<usize>,
    changed: Condvar,
    inside: AtomicUsize,
    most: AtomicUsize,
    /// The targets in the order in which they came.
    seen: Mutex<Vec<String>>,
}

impl Slow {
    /// One that sends nothing before a request has passed.
    pub fn start() -> Self {
        Self::sending("", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab")
    }

    /// One that sends the head of each response and half of its body at once, and the rest when the request has passed.
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

    /// Lets so many more requests pass.
    pub fn let_pass(&self, more: usize) {
        *self.passes.lock().expect("no holder panics") += more;
        self.changed.notify_all();
    }

    /// The targets of all requests, in the order in which they came.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no holder panics").clone()
    }

    /// How many requests there were at most at once.
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
