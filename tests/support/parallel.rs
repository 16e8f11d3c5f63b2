//! Requests in flight at the same time.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;

use super::client::get_with;
use super::origin::{Origin, answer};

/// An origin that answers once so many requests are there, each with the status that its path ends
/// in.
pub fn together(number: usize) -> Origin {
    let barrier = Barrier::new(number);
    Origin::start(move |request| {
        let status = request
            .target
            .rsplit('/')
            .next()
            .and_then(|status| status.parse().ok());
        if let Some(status) = status {
            barrier.wait();
            return answer(status, "x");
        }
        answer(200, "x")
    })
}

/// The statuses of so many requests at the same time.
pub fn statuses(address: SocketAddr, path: &str, number: usize) -> Vec<u16> {
    let ask = || get_with(address, path, "").status;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..number).map(|_| scope.spawn(ask)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|status| status.expect("a response")).collect()
    })
}
