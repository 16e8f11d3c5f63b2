//! Lookups of an endpoint's name: the instant of the next, and the failures of the last.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::resolved::ResolvedAddresses;
use crate::net::resolve::Resolver;
use crate::telemetry::log_throttle::LogThrottle;
use crate::upstream::UpstreamErrorKind;

/// The longest wait for an answer.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The pause after a lookup that failed, doubled after each further one.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The times between two lines about a name that does not resolve.
const LOG_PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// The lookups of one name, one at a time.
#[derive(Debug)]
pub(in crate::upstream) struct Lookups {
    resolver: &'static Resolver,
    name: Box<str>,
    port: u16,
    state: Mutex<LookupState>,
    log: LogThrottle,
}

#[derive(Debug, Default)]
struct LookupState {
    is_running: bool,
    /// The end of the last lookup.
    ended: Option<Instant>,
    /// Lookups in a row that failed, and the last reason.
    failures: u32,
    failure: Option<Arc<io::Error>>,
    /// A line said that the name does not resolve, and none since that it does.
    is_announced: bool,
}

impl Lookups {
    pub(super) fn new(resolver: &'static Resolver, name: &str, port: u16) -> Self {
        Lookups {
            resolver,
            name: name.into(),
            port,
            state: Mutex::default(),
            log: LogThrottle::with_backoff(LOG_PAUSES.0, LOG_PAUSES.1),
        }
    }

    /// Begins a lookup if none runs and the next is due: `every` after the last, or earlier if that
    /// failed. The caller must then run it, and [`end`](Self::end) it.
    pub(in crate::upstream) fn begin(&self, every: Duration) -> bool {
        let mut state = self.state.lock();
        let pause = match state.failures {
            0 => every,
            failures => every.min(MIN_PAUSE * (1 << (failures - 1).min(16))),
        };
        let is_due = state.ended.is_none_or(|ended| ended.elapsed() >= pause);
        let begins = is_due && !state.is_running;
        state.is_running |= begins;
        begins
    }

    /// Notes that the lookup has ended, and that its hosts are in use.
    pub(in crate::upstream) fn end(&self) {
        let mut state = self.state.lock();
        state.is_running = false;
        state.ended = Some(Instant::now());
    }

    /// Returns true between the begin and the end of a lookup.
    pub(in crate::upstream) fn is_running(&self) -> bool {
        self.state.lock().is_running
    }

    /// Asks the resolver.
    ///
    /// # Errors
    /// When it fails, does not answer in time, or knows no usable address.
    pub(super) async fn run(&self) -> io::Result<ResolvedAddresses> {
        let deadline = Instant::now() + MAX_WAIT;
        let found = self.resolver.resolve(&self.name, self.port, deadline);
        let answer = ResolvedAddresses::of(&found.await?);
        match (answer.usable.is_empty(), answer.unusable.is_empty()) {
            (false, _) => Ok(answer),
            (true, true) => Err(io::Error::other("the name has no address")),
            (true, false) => {
                let message = format!("the name has no usable address: {:?}", answer.unusable);
                Err(io::Error::other(message))
            }
        }
    }

    /// Notes an answer. Returns how many lookups failed before it if the caller must log that.
    pub(super) fn record_answer(&self) -> Option<u32> {
        let mut state = self.state.lock();
        state.failure = None;
        let failures = std::mem::take(&mut state.failures);
        std::mem::take(&mut state.is_announced).then_some(failures)
    }

    /// Notes a failure. Returns it if the caller must log it.
    pub(super) fn record_failure(&self, error: io::Error) -> Option<Arc<io::Error>> {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        let error = Arc::clone(state.failure.insert(Arc::new(error)));
        let is_logged = self.log.admit_now().is_some();
        state.is_announced |= is_logged;
        is_logged.then_some(error)
    }

    /// The reason why the name does not resolve; `None` if the last lookup has found its addresses.
    pub(in crate::upstream) fn last_failure(&self) -> Option<Arc<io::Error>> {
        self.state.lock().failure.clone()
    }

    /// The reason why a request that waited for `limit` found no host.
    pub(super) fn failure(&self, limit: Duration) -> UpstreamErrorKind {
        let state = self.state.lock();
        match &state.failure {
            Some(error) if !state.is_running => {
                UpstreamErrorKind::Resolve(io::Error::new(error.kind(), Arc::clone(error)))
            }
            _ => {
                let delay = self.resolver.delay(&self.name);
                UpstreamErrorKind::ConnectTimeout {
                    after: limit,
                    source: Some(io::Error::new(io::ErrorKind::TimedOut, delay)),
                }
            }
        }
    }
}
