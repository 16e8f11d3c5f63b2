//! The client of the store: the crate `redis_client`, with the connections and log lines of this program.

use std::time::Duration;

pub use redis_client::*;

use crate::net::dial::{DialError, dial_host};
use crate::telemetry::metrics::StoreMetrics;

/// The default prefix of keys.
pub const DEFAULT_PREFIX: &str = "sluicegate:";

/// The name of connections, as CLIENT LIST shows it.
pub const NAME: &str = "sluicegate";

/// The head start of an address is the least that RFC 8305 section 5 allows: four dead addresses
/// leave time for a fifth.
const HEAD_START: Duration = Duration::from_millis(100);

/// Connects to a server.
pub fn dial(server: Address, deadline: tokio::time::Instant) -> Dialling {
    Box::pin(async move {
        let stream = dial_host(&server.host, server.port, deadline, HEAD_START).await;
        stream.map_err(|error| match error {
            DialError::ResolveTimeout(error) => FaultKind::Timeout.with(error),
            DialError::Resolve(error) => FaultKind::Name.with(error),
            DialError::Connect(error) => Fault::of_connecting(&error),
        })
    })
}

impl Observer for StoreMetrics {
    fn sent(&self, op: Operation, fault: Option<FaultKind>, took: Duration) {
        self.count_sent(op, fault, took);
    }

    fn unsent(&self, op: Operation) {
        self.count_unsent(op);
    }

    fn set_up(&self, is_up: bool) {
        self.up.set(is_up.into());
    }

    fn changed(&self, store: &Target, state: &State) {
        match state {
            State::Starting => {}
            State::Up => tracing::info!(%store, "the Redis store is in use"),
            State::Down { server, fault } => {
                let server = server.as_ref().map(tracing::field::display);
                let advice = fault.kind.advice();
                tracing::warn!(%store, server, advice, "the Redis store is out of use: it {fault}");
            }
        }
    }

    fn crowded(&self, store: &Target) {
        let advice = FaultKind::Crowded.advice();
        tracing::warn!(%store, advice, "the Redis store is crowded: it {}", FaultKind::Crowded.text());
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tokio::time::timeout;

    use super::*;
    use crate::net::dial::{dial_first, silent::Silent};

    #[tokio::test]
    async fn dead_addresses_before_one_that_answers_do_not_use_up_the_deadline() {
        let dead = [(); 2].map(|()| Silent::new());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let good = listener.local_addr().expect("it listens");
        let addresses = dead.iter().map(|one| one.address).chain([good]);
        assert!(HEAD_START * 4 < CONNECT_DEADLINE);
        // A system gives up a dead address only after minutes.
        let reached = timeout(Duration::from_secs(10), dial_first(addresses, HEAD_START)).await;
        let stream = reached.expect("in time").expect("one answers");
        assert_eq!(stream.peer_addr().expect("it is connected"), good);
    }
}
