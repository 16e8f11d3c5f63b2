//! The buckets of one Redis store, as all workers charge them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use super::asked::{Charge, Lease, Request};
use super::client::{self, Client, Fault, FaultKind, Script, State};
use super::naming::Naming;
use super::script::CHARGE;
use super::told::{Again, Nonsense, Reply, Told};
use crate::clock::{Clock, Timestamp};
use crate::store::Refusals;

/// How often the script may ask to be asked again: for buckets under other parameters, and for the period of a calendar that
/// has ended meanwhile.
const ROUNDS: usize = 3;

/// The buckets of one store.
#[derive(Debug)]
pub struct Store {
    client: Client,
    naming: Naming,
    charge: Script,
    clock: Arc<Clock>,
    /// By how many microseconds its clock was ahead of this one at the last answer.
    ahead: AtomicI64,
}

/// Why nothing is known of a request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unanswered {
    /// The store does not answer.
    #[error("the Redis store {0}")]
    Fault(Fault),
    /// It answers what nobody understands.
    #[error("the Redis store: {0}")]
    Nonsense(Nonsense),
    /// The bucket is changed by others again and again, who have other parameters for it.
    #[error("other machines have other parameters for the same buckets")]
    Contended,
}

impl Store {
    /// A store that is reached by this client.
    pub fn new(client: Client, naming: Naming, clock: Arc<Clock>) -> Self {
        Self {
            client,
            naming,
            charge: Script::new(CHARGE),
            clock,
            ahead: AtomicI64::new(0),
        }
    }

    /// Begins to connect for a worker, on whose thread this is called.
    pub fn start(&self, worker: usize) {
        self.client.start(worker);
    }

    /// Whether it is reached like this, and its buckets are called so.
    pub fn is_like(&self, client: &client::Spec, naming: &Naming) -> bool {
        self.client.spec().is_like(client) && self.naming == *naming
    }

    /// The longest that a call takes.
    pub fn timeout(&self) -> Duration {
        self.client.spec().timeout
    }

    /// What its buckets are called.
    pub fn naming(&self) -> &Naming {
        &self.naming
    }

    /// How the store is.
    pub fn state(&self) -> State {
        self.client.state()
    }

    /// What its clock says when this one says `now`, as far as is known.
    pub fn time_at(&self, now: Timestamp) -> Timestamp {
        match self.ahead.load(Relaxed) {
            ahead @ 0.. => now.saturating_add_micros(ahead.unsigned_abs()),
            behind => now.saturating_sub_micros(behind.unsigned_abs()),
        }
    }

    /// Decides a request by all these charges, of which the first `binding` may refuse, and makes all of them or none. What
    /// instants there are in the verdict are told as if it had been decided at `now` on this machine's clock.
    ///
    /// # Errors
    /// When the store does not say what it decided within its deadline. It may have charged all the same.
    ///
    /// # Panics
    /// Outside a runtime, or if there is no such worker.
    pub async fn charge(
        &self,
        worker: usize,
        charges: &[Charge<'_>],
        binding: usize,
        now: Timestamp,
    ) -> Result<Told, Unanswered> {
        let request = Request {
            charges,
            binding,
            refusals: Refusals::Charged,
            now: None,
            around: self.time_at(now),
            lease: Lease {
                id: "",
                lasts: Duration::ZERO,
            },
        };
        let mut again = Again::default();
        for _ in 0..ROUNDS {
            let ask = request.ask(&again);
            let reply = self.client.call(worker, &self.charge, &ask.keys, &ask.args);
            let reply = reply.await.map_err(Unanswered::Fault)?;
            match request.read(&reply, now).map_err(Unanswered::Nonsense)? {
                Reply::Told(told) => {
                    self.note_time(told.at);
                    return Ok(told);
                }
                Reply::Again(more) => again = more,
            }
        }
        Err(Unanswered::Contended)
    }

    fn note_time(&self, at: Timestamp) {
        let now = self.clock.now();
        let [at, now] =
            [at, now].map(|instant| i64::try_from(instant.as_micros()).unwrap_or(i64::MAX));
        self.ahead.store(at.saturating_sub(now), Relaxed);
    }
}

impl Unanswered {
    /// Whether it is the server that is out of use, or the way to it, which is told in the log once and not for each request.
    pub fn is_of_the_server(&self) -> bool {
        use FaultKind::{CrossSlot, Script};
        match self {
            Self::Fault(fault) => !matches!(fault.kind, CrossSlot | Script),
            Self::Nonsense(_) | Self::Contended => false,
        }
    }

    /// Whether the store has only just been begun with, and nobody knows yet how it is.
    pub fn is_early(&self) -> bool {
        matches!(self, Self::Fault(fault) if fault.kind == FaultKind::Connecting)
    }
}
