//! Checks a history against what docs promise. Pure code.
//!
//! A request was decided at an unknown instant between its `sent` and `received`. A span of time
//! counts a request only if it was certainly decided within, so that a violation is one however the
//! instants were. Every span that begins with a request and ends with a response is checked.

use std::fmt;

use crate::history::{Event, History, Instant, Outcome, Span, micros};
use crate::support::redis::SLACK;

/// The most units that one bucket admits.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// `gcra`, `token_bucket`: `burst` at once, and `limit` in each `window`.
    Rate { burst: u64, limit: u64, window: u64 },
    /// In any span shorter than `window`.
    Rolling { most: u64, window: u64 },
    /// In each window of the clock.
    Aligned { most: u64, window: u64 },
}

impl Bound {
    /// The most that is admitted in a span.
    pub fn most(self, span: Span) -> u64 {
        let length = span.until - span.from;
        match self {
            Self::Rate {
                burst,
                limit,
                window,
            } => burst + length * limit / window,
            Self::Rolling { most, .. } | Self::Aligned { most, .. } => most * self.windows(span),
        }
    }

    /// The number of windows that a span is in. A rate has none, and forgets nothing.
    fn windows(self, span: Span) -> u64 {
        match self {
            Self::Rate { .. } => 1,
            Self::Rolling { window, .. } => (span.until - span.from) / window + 1,
            Self::Aligned { window, .. } => span.until / window - span.from / window + 1,
        }
    }

    /// The units that come back in a window.
    pub fn quota(self) -> (u64, u64) {
        match self {
            Self::Rate { limit, window, .. } => (limit, window),
            Self::Rolling { most, window } | Self::Aligned { most, window } => (most, window),
        }
    }
}

/// What a fault may admit beyond the bound of one bucket.
#[derive(Clone, Copy, Debug)]
pub enum Excess {
    /// Another bucket decides in this time: that of a machine alone.
    Bucket(Span),
    /// A bucket of another policy or algorithm also decides in this time.
    Also(Bound, Span),
    /// In this time there is a larger quota, of the same bucket.
    Larger(Bound, Span),
    /// What was admitted in this time may be forgotten, so that it's admitted again.
    Forgotten(Span),
    /// This proxy admits whatever it likes in this time.
    Unlimited(usize, Span),
    /// So much more: what machines have not heard of each other. Windows forget it at their end.
    Unheard(u64),
}

/// The documented bound of a policy in a run.
#[derive(Clone, Debug)]
pub struct Promise {
    pub policy: usize,
    pub bound: Bound,
    pub excess: Vec<Excess>,
}

/// A span in which more was admitted than promised.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    pub policy: usize,
    pub key: usize,
    pub span: Span,
    pub admitted: u64,
    pub allowed: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            policy,
            key,
            span,
            admitted,
            allowed,
        } = self;
        let ms = (span.until - span.from) / 1_000;
        write!(
            f,
            "policy {policy} admitted {admitted} units of key {key} in {ms} ms from {}, and may {allowed}",
            span.from
        )
    }
}

/// How close a history came to a bound, in hundredths of what one bucket admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The most that was admitted in a span.
    pub worst: u64,
    /// What was allowed in that span.
    pub allowed: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [worst, allowed] = [self.worst, self.allowed].map(|part| part as f64 / 100.0);
        write!(f, "{worst:.2} of {allowed:.2} Q")
    }
}

impl Seen {
    pub fn max(self, other: Self) -> Self {
        if self.worst >= other.worst {
            self
        } else {
            other
        }
    }
}

impl Promise {
    /// The worst that was seen, or a span in which too much was admitted.
    pub fn check(&self, history: &History) -> Result<Seen, Violation> {
        let keys = history.events.iter().map(|event| event.key).max();
        let mut seen = Seen::default();
        for key in 0..=keys.unwrap_or(0) {
            seen = seen.max(self.check_key(history, key)?);
        }
        Ok(seen)
    }

    fn check_key(&self, history: &History, key: usize) -> Result<Seen, Violation> {
        let mut admitted = admitted(history, self.policy, key);
        admitted.retain(|event| !self.is_unlimited(event));
        admitted.sort_by_key(|event| event.received);
        let mut seen = Seen::default();
        for from in admitted.iter().map(|event| event.sent) {
            let mut units = 0;
            let mut forgotten = vec![0; self.excess.len()];
            for last in admitted.iter().filter(|event| event.sent >= from) {
                units += last.units;
                self.count_forgotten(last, &mut forgotten);
                let until = last.received;
                let span = Span { from, until };
                let most = self.bound.most(span);
                let allowed = self.allowed(span, &forgotten);
                if units > allowed {
                    return Err(Violation {
                        policy: self.policy,
                        key,
                        span,
                        admitted: units,
                        allowed,
                    });
                }
                seen = seen.max(Seen {
                    worst: units * 100 / most.max(1),
                    allowed: allowed * 100 / most.max(1),
                });
            }
        }
        Ok(seen)
    }

    fn is_unlimited(&self, event: &Event) -> bool {
        self.excess.iter().any(|excess| match excess {
            Excess::Unlimited(proxy, time) => *proxy == event.proxy && time.touches(event.span()),
            _ => false,
        })
    }

    /// Adds an admitted request to each time in which it may have been decided, and forgotten.
    fn count_forgotten(&self, event: &Event, forgotten: &mut [u64]) {
        for (excess, units) in self.excess.iter().zip(forgotten) {
            if let Excess::Forgotten(time) = excess
                && time.touches(event.span())
            {
                *units += event.units;
            }
        }
    }

    /// What may be admitted in a span: a bucket that forgets is full again once.
    fn allowed(&self, span: Span, forgotten: &[u64]) -> u64 {
        let larger = self.excess.iter().map(|excess| match excess {
            Excess::Larger(bound, time) if time.touches(span) => bound.most(span),
            _ => 0,
        });
        let most = larger.max().unwrap_or(0).max(self.bound.most(span));
        let further = self.excess.iter().map(|excess| match excess {
            Excess::Bucket(time) if time.touches(span) => most,
            Excess::Also(bound, time) if time.touches(span) => bound.most(span),
            Excess::Unheard(units) => *units * self.bound.windows(span),
            _ => 0,
        });
        let again = forgotten.iter().map(|units| *units.min(&most));
        most + further.sum::<u64>() + again.sum::<u64>()
    }
}

fn admitted(history: &History, policy: usize, key: usize) -> Vec<Event> {
    let all = history.events.iter().copied();
    all.filter(|event| (event.policy, event.key, event.outcome) == (policy, key, Outcome::Admitted))
        .collect()
}

/// The most units that one of these machines may have admitted of a key within `time`.
pub fn most_of_one(history: &History, policy: usize, time: u64) -> u64 {
    let mut most = 0;
    let keys = history.events.iter().map(|event| event.key).max();
    let proxies = history.events.iter().map(|event| event.proxy).max();
    for key in 0..=keys.unwrap_or(0) {
        let all = admitted(history, policy, key);
        for proxy in 0..=proxies.unwrap_or(0) {
            let own: Vec<_> = all.iter().filter(|event| event.proxy == proxy).collect();
            for first in &own {
                let span = Span {
                    from: first.received,
                    until: first.received + time,
                };
                let inside = own.iter().filter(|event| event.span().touches(span));
                most = most.max(inside.map(|event| event.units).sum());
            }
        }
    }
    most
}

/// What must be true of a history whatever the mode.
pub struct Liveness {
    /// The deadline of a request.
    pub deadline: u64,
    /// The time after the last fault, in which keys must be admitted at half their rate at least.
    pub calm: Span,
    /// True if a policy may answer that the store doesn't answer.
    pub may_fail: bool,
    /// The longest `Retry-After` in seconds, if each refusal must have one.
    pub longest_wait: Option<u64>,
}

impl Liveness {
    /// All that is wrong, in words.
    pub fn check(&self, history: &History, promises: &[Promise]) -> Vec<String> {
        let slow = history
            .events
            .iter()
            .filter_map(|event| self.slow(history, event));
        let failed = history
            .events
            .iter()
            .filter_map(|event| self.failed(history, event));
        let starved = promises
            .iter()
            .flat_map(|promise| self.starved(history, promise));
        let all = slow.chain(failed).chain(starved);
        all.chain(self.unavailable(history)).collect()
    }

    fn slow(&self, history: &History, event: &Event) -> Option<String> {
        let pauses = history
            .faults
            .iter()
            .filter(|fault| fault.paused == Some(event.proxy) && fault.span.touches(event.span()));
        let paused: u64 = pauses.map(|fault| fault.span.until - fault.span.from).sum();
        let took = event.received - event.sent;
        (took > self.deadline + micros(SLACK) + 4 * history.stall + paused)
            .then(|| format!("it took {} ms: {event:?}", took / 1_000))
    }

    fn failed(&self, history: &History, event: &Event) -> Option<String> {
        let is_during_fault = || {
            let mut faults = history.faults.iter();
            faults.any(|fault| fault.span.touches(event.span()))
        };
        let may = match event.outcome {
            Outcome::Admitted => true,
            Outcome::Limited(wait) => self.may_wait(wait),
            Outcome::StoreError => self.may_fail,
            Outcome::Lost => is_during_fault(),
            Outcome::Unexpected(_) => false,
        };
        (!may).then(|| format!("no such answer: {event:?}"))
    }

    fn may_wait(&self, wait: Option<u64>) -> bool {
        let longest = self.longest_wait;
        longest.is_none_or(|longest| wait.is_some_and(|wait| wait <= longest))
    }

    /// Says if more than one request in twenty failed after the faults. Single ones miss the deadline
    /// of the store on a busy machine.
    fn unavailable(&self, history: &History) -> Option<String> {
        let calm = history
            .events
            .iter()
            .filter(|event| event.sent > self.calm.from);
        let failed = calm
            .clone()
            .filter(|event| event.outcome == Outcome::StoreError);
        let (failed, all) = (failed.count(), calm.count());
        (failed * 20 > all && 2 * history.stall < self.deadline)
            .then(|| format!("{failed} of {all} requests after the faults had no decision"))
    }

    /// The keys that were asked for all the time, and admitted too seldom.
    fn starved(&self, history: &History, promise: &Promise) -> Vec<String> {
        let (limit, window) = promise.bound.quota();
        let time = self.calm.until - self.calm.from;
        let least = time.saturating_sub(4 * history.stall) * limit / window / 2;
        let keys = history.events.iter().map(|event| event.key).max();
        let of_key = |key| {
            let of = move |event: &&Event| {
                event.policy == promise.policy
                    && event.key == key
                    && event.span().touches(self.calm)
            };
            let asked: u64 = history
                .events
                .iter()
                .filter(of)
                .map(|event| event.units)
                .sum();
            let admitted = history.events.iter().filter(of);
            let admitted = admitted.filter(|event| event.outcome == Outcome::Admitted);
            let admitted: u64 = admitted.map(|event| event.units).sum();
            let policy = promise.policy;
            (admitted < least.min(asked)).then(|| {
                format!(
                    "policy {policy} admitted {admitted} of {asked} units of key {key} after the \
                     faults, and promises {least}"
                )
            })
        };
        (0..=keys.unwrap_or(0)).filter_map(of_key).collect()
    }
}

/// The requests to these proxies that were decided within a time in another way than they may be.
pub fn decided_otherwise(
    history: &History,
    proxies: &[usize],
    time: Span,
    may: impl Fn(Outcome) -> bool,
) -> Vec<String> {
    let within = history.events.iter().filter(|event| {
        let is_within = event.sent > time.from && event.received < time.until;
        is_within && proxies.contains(&event.proxy)
    });
    let wrong = within.filter(|event| !may(event.outcome));
    wrong
        .map(|event| format!("Redis was silent: {event:?}"))
        .collect()
}

/// A permit that was certainly in use, of a proxy.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    pub span: Span,
    pub proxy: usize,
    pub key: usize,
}

/// A time in which Redis forgot permits that are still in use: those of a proxy, or all.
#[derive(Clone, Copy, Debug)]
pub struct Lapse {
    pub span: Span,
    /// When Redis knew them again.
    pub known_again: Instant,
    pub proxy: Option<usize>,
}

impl Lapse {
    fn exempts(&self, one: &Use, at: Instant) -> bool {
        let is_of = self.proxy.is_none_or(|proxy| proxy == one.proxy);
        let is_forgotten = self.span.from <= at && at <= self.known_again;
        is_of && is_forgotten && one.span.from <= self.span.until
    }
}

/// The most permits of a key that were certainly in use when one more was, within a time, besides
/// those that Redis had forgotten.
pub fn most_in_use(uses: &[Use], lapses: &[Lapse], time: Span) -> usize {
    let counts = |one: &Use, key: usize, at: Instant| {
        let is_in_use = one.key == key && one.span.from <= at && at < one.span.until;
        is_in_use && !lapses.iter().any(|lapse| lapse.exempts(one, at))
    };
    let starts = uses
        .iter()
        .map(|one| (one.key, one.span.from.max(time.from)));
    let starts = starts.filter(|(_, at)| *at <= time.until);
    let most = starts.map(|(key, at)| uses.iter().filter(|one| counts(one, key, at)).count());
    most.max().unwrap_or(0)
}

/// The share of a time, in hundredths, in which permits of a key were certainly in use, of so many.
pub fn share_in_use(uses: &[Use], key: usize, max: usize, time: Span) -> u64 {
    let of = uses.iter().filter(|one| one.key == key);
    let within = of.map(|one| {
        let until = one.span.until.min(time.until);
        until.saturating_sub(one.span.from.max(time.from))
    });
    within.sum::<u64>() * 100 / (max as u64 * (time.until - time.from))
}

/// A ban that a response of a proxy announced: from then to the earliest end that it may mean.
#[derive(Clone, Copy, Debug)]
pub struct Ban {
    pub proxy: usize,
    pub key: usize,
    pub span: Span,
    /// The latest end that it may mean.
    pub latest: Instant,
}

/// The bans of a policy whose `Retry-After` is at least `least` seconds for bans alone.
pub fn bans(history: &History, policy: usize, least: u64) -> Vec<Ban> {
    let of = history.events.iter().filter(|event| event.policy == policy);
    of.filter_map(|event| match event.outcome {
        // Seconds are rounded up.
        Outcome::Limited(Some(seconds)) if seconds >= least => Some(Ban {
            proxy: event.proxy,
            key: event.key,
            span: Span {
                from: event.received,
                until: event.sent + (seconds - 1) * 1_000_000,
            },
            latest: event.received + seconds * 1_000_000,
        }),
        _ => None,
    })
    .collect()
}

/// The requests that were certainly admitted during a ban, each with the time since the ban's
/// first response. A machine that had banned the key by itself before keeps the end of that ban.
pub fn admitted_in_bans<'a>(
    history: &'a History,
    policy: usize,
    bans: &[Ban],
) -> Vec<(u64, &'a Event)> {
    let since = |event: &Event| {
        let within = bans.iter().filter(|ban| {
            let is_within = event.sent > ban.span.from && event.received < ban.span.until;
            ban.key == event.key && is_within
        });
        let own_ends = |ban: &Ban| {
            bans.iter().any(|own| {
                let is_own = (own.proxy, own.key) == (event.proxy, event.key);
                is_own && own.latest >= ban.span.from && own.span.until <= event.received
            })
        };
        let of = within.filter(|ban| ban.proxy == event.proxy || !own_ends(ban));
        of.map(|ban| event.sent - ban.span.from).max()
    };
    let of = history.events.iter().filter(|event| event.policy == policy);
    let admitted = of.filter(|event| event.outcome == Outcome::Admitted);
    admitted
        .filter_map(|event| Some((since(event)?, event)))
        .collect()
}

#[cfg(test)]
mod tests;
