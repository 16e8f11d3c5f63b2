//! Calls of the scripts: a request's charges as keys and arguments. `script/charge.lua` documents
//! each argument.

use std::time::Duration;

use super::client::ScriptWords;
use super::script::Procedure;
use crate::clock::Timestamp;
use crate::limiter::algorithms::{FixedWindow, FractionalDuration, Gcra, OldestPart, Start};
use crate::limiter::bucket::Debt;
use crate::limiter::{Algorithm, AlgorithmKind, Demand, Fingerprint};
use crate::store::Ask;

/// A charge to one bucket.
#[derive(Clone, Copy, Debug)]
pub struct BucketCharge<'a> {
    /// The bucket's algorithm.
    pub algorithm: &'a Algorithm,
    /// The bucket's name, from which its key is made. In a cluster, the keys of one call share a
    /// slot.
    pub name: &'a [u8],
    /// The key of the bucket; staggered windows start at an offset derived from it.
    pub key: Fingerprint,
    /// The units that the request needs: a cost of 0 only asks. Units are required in place of a cost,
    /// and kept in no queues, refills in steps and units in use.
    pub demand: Demand,
    /// The refusals that are charged, too.
    pub charged_refusals: ChargedRefusals,
    /// True if the cost of an admitted request is settled later.
    pub settles: bool,
    /// The start and end of the window that this charge opens, if the request decides them
    /// ([`Start::Local`]).
    pub period: Option<(Timestamp, Timestamp)>,
    /// The place in the overflow chain.
    pub tier: Tier,
}

/// The refusals that are charged to a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChargedRefusals {
    /// None.
    #[default]
    None,
    /// Its own, if all enforced limits admit the request.
    Own,
    /// All.
    All,
}

/// The place of a bucket in an overflow chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// The first bucket.
    #[default]
    First,
    /// A bucket that is tried if none before it can pay.
    Overflow,
}

/// A request, decided and charged at one instant.
#[derive(Clone, Copy, Debug)]
pub struct ChargeRequest<'a> {
    /// The charges with their overflow buckets; enforced charges come first. No bucket is in it
    /// twice.
    pub charges: &'a [BucketCharge<'a>],
    /// The number of enforced charges; the others are in shadow.
    pub enforced: usize,
    /// Whether the request is charged, or only looked at.
    pub ask: Ask,
    /// The server's time, as far as it is known: it selects the calendar period.
    pub estimated_now: Timestamp,
    /// The id of the lease for units in use, which no other request has.
    pub lease: &'a str,
    /// An id that no other request has, if other slots of the cluster may still refuse the request:
    /// the charges may be given back. Empty if not.
    pub undecided: &'a str,
    /// In a cluster, for how long other slots may refuse a request.
    pub undecided_for: Option<Duration>,
}

/// A procedure with its keys and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCall {
    /// The procedure to run.
    pub procedure: Procedure,
    /// KEYS and ARGV. The first argument is the instant.
    pub words: ScriptWords,
}

/// The lease of units in use without renewal. Units of a killed proxy stay taken that long.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(10);
/// The bound of exact integers in Lua's doubles.
pub(super) const MAX_EXACT_INTEGER: u64 = 1 << 53;

impl ChargeRequest<'_> {
    /// The call of the script.
    pub fn script_call(&self) -> ScriptCall {
        let kinds = self.charges.iter().map(BucketCharge::kind).collect();
        let mut words = ScriptWords::default();
        for charge in self.charges {
            charge.push_key(&mut words);
        }
        push_server_time(&mut words);
        match self.ask {
            Ask::Peek | Ask::Banned => words.text("peek"),
            Ask::RefusedElsewhere => words.text("refused"),
            _ => words.number(self.enforced as u64),
        }
        for charge in self.charges {
            self.push(&mut words, charge);
        }
        if let Some(duration) = self.undecided_for {
            words.text(self.undecided);
            words.number(micros(duration));
        }
        ScriptCall::new(Procedure::Charge(kinds), words)
    }

    fn push(&self, words: &mut ScriptWords, charge: &BucketCharge<'_>) {
        words.text(charge.kind().into());
        words.text(match charge.tier {
            Tier::First => "first",
            Tier::Overflow => "further",
        });
        words.number(charge.demand.needed());
        if charge.exceeds_capacity() {
            words.text("never");
        } else {
            words.number(charge.demand.kept);
        }
        words.text(match (charge.demand.required, charge.settles) {
            (1.., _) => "asks",
            (0, true) => "settles",
            (0, false) => "stays",
        });
        words.text(match charge.charged_refusals {
            ChargedRefusals::None => "free",
            ChargedRefusals::Own => "owe_own",
            ChargedRefusals::All => "owe",
        });
        charge.push_numbers(words, self.estimated_now, self.lease, Debt::Refused);
    }
}

impl<'a> BucketCharge<'a> {
    /// A charge of `cost` units to a first bucket, which stays as it is made.
    pub fn new(algorithm: &'a Algorithm, name: &'a [u8], key: Fingerprint, cost: u32) -> Self {
        Self {
            algorithm,
            name,
            key,
            demand: Demand::of(cost),
            charged_refusals: ChargedRefusals::None,
            settles: false,
            period: None,
            tier: Tier::First,
        }
    }
}

impl BucketCharge<'_> {
    pub(super) fn push_key(&self, words: &mut ScriptWords) {
        if self.algorithm.is_concurrency() {
            push_lease_key(words, self.name)
        } else {
            words.key(self.name)
        }
    }

    /// The key of the requests that charged this bucket, and that other slots may still refuse.
    pub(super) fn undecided_key(&self) -> Vec<u8> {
        let leases: &[u8] = if self.algorithm.is_concurrency() {
            b":leases"
        } else {
            b""
        };
        [self.name, leases, b":undecided"].concat()
    }

    pub(super) fn is_owed(&self) -> bool {
        self.demand.needed() > 0 && self.charged_refusals == ChargedRefusals::All
    }

    /// True if even a full bucket holds fewer units. The scripts of windows find out by themselves if
    /// units have to stay.
    fn exceeds_capacity(&self) -> bool {
        let (capacity, kept) = (self.algorithm.capacity(), self.demand.kept);
        let needed = match self.algorithm {
            Algorithm::Gcra(_) | Algorithm::TokenBucket(_) => {
                kept.saturating_add(self.demand.needed().into())
            }
            Algorithm::FixedWindow(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::SlidingCounters(_)
            | Algorithm::SlidingLog(_)
                if kept > 0 =>
            {
                0
            }
            _ => self.demand.needed().into(),
        };
        needed > capacity || capacity == 0 && !self.algorithm.is_concurrency()
    }

    pub(super) fn kind(&self) -> AlgorithmKind {
        self.algorithm.into()
    }

    pub(super) fn push_numbers(
        &self,
        words: &mut ScriptWords,
        estimated_now: Timestamp,
        lease: &str,
        debt: Debt,
    ) {
        let limit = self.algorithm.limit();
        let window = self.algorithm.window().map_or(0, micros);
        match self.algorithm {
            Algorithm::Gcra(gcra) | Algorithm::TokenBucket(gcra) => {
                push_spans(words, gcra, self.demand.owed(), debt)
            }
            Algorithm::LeakyBucket(bucket) => {
                push_spans(words, bucket.line(), Demand::of(self.demand.cost), debt)
            }
            Algorithm::IntervalRefill(bucket) => {
                let (amount, interval) = bucket.refill();
                words.number(limit);
                words.number(amount);
                words.number(interval);
                words.number(bucket.max_debt(debt));
            }
            Algorithm::FixedWindow(fixed) => self.push_window(words, fixed, window, estimated_now),
            Algorithm::SlidingWindow(sliding) => {
                push_parts(words, limit, window, 1, sliding.oldest());
            }
            Algorithm::SlidingCounters(counters) => {
                let (parts, oldest) = counters.parts();
                push_parts(words, limit, window / u64::from(parts), parts, oldest);
                words.number(parts);
            }
            Algorithm::SlidingLog(log) => {
                let (tick, span) = log.ticks();
                words.number(limit);
                words.number(tick);
                words.number(span);
            }
            Algorithm::Concurrency(bound) => {
                words.number(bound.max);
                words.number(micros(LEASE_DURATION));
                words.text(lease);
            }
            Algorithm::Grant(_) => {}
        }
    }

    fn push_window(
        &self,
        words: &mut ScriptWords,
        fixed: &FixedWindow,
        window: u64,
        estimated_now: Timestamp,
    ) {
        let (start, one, two) = match (fixed.start(), self.period) {
            (Start::Clock { offset }, _) => ("grid", window, micros(*offset) % window),
            (Start::Staggered, _) => ("grid", window, fixed.offset_of(self.key)),
            (Start::FirstRequest, None) => ("first", window, 0),
            (Start::FirstRequest, Some((start, end))) => {
                ("span", start.as_micros(), end.as_micros())
            }
            (Start::Local(_), Some((start, end))) => ("local", start.as_micros(), end.as_micros()),
            (Start::Local(calendar), None) => {
                let (start, end) = calendar.period_at(estimated_now);
                ("local", start.as_micros(), end.as_micros())
            }
            (Start::Calendar(calendar), _) => {
                let (start, end) = calendar.period_at(estimated_now);
                ("span", start.as_micros(), end.as_micros())
            }
        };
        words.text(start);
        words.number(self.algorithm.limit());
        words.number(one);
        words.number(two.min(MAX_EXACT_INTEGER));
        words.number(window);
    }
}

impl ScriptCall {
    pub(super) const fn new(procedure: Procedure, words: ScriptWords) -> Self {
        Self { procedure, words }
    }
}

/// Adds the key of a bucket's leases. The suffix keeps them apart from values if a policy changes its
/// kind.
pub(super) fn push_lease_key(words: &mut ScriptWords, name: &[u8]) {
    words.next_word().extend_from_slice(name);
    words.key(b":leases");
}

/// Adds the instant of the call, which is the server's.
pub(super) fn push_server_time(words: &mut ScriptWords) {
    words.text("");
}

/// Adds an instant, or an empty word.
pub(super) fn push_instant(words: &mut ScriptWords, instant: Option<Timestamp>) {
    match instant {
        Some(instant) => words.number(instant.as_micros()),
        None => words.text(""),
    }
}

pub(super) fn push_spans(words: &mut ScriptWords, gcra: &Gcra, demand: Demand, debt: Debt) {
    words.number(gcra.quota().limit());
    let tau = match demand.kept {
        0 => gcra.tau(),
        kept => gcra.step(u64::from(gcra.burst()).saturating_sub(kept) as u32),
    };
    for span in [tau, gcra.step(demand.cost), gcra.max_debt(debt)] {
        push_span(words, span);
    }
}

/// Adds a span; it saturates at the largest integer that Lua represents exactly.
pub(super) fn push_span(words: &mut ScriptWords, span: FractionalDuration) {
    let FractionalDuration { micros, rest } = span;
    words.number(micros.min(MAX_EXACT_INTEGER));
    words.number(if micros < MAX_EXACT_INTEGER { rest } else { 0 });
}

fn push_parts(words: &mut ScriptWords, limit: u64, part: u64, parts: u32, oldest: OldestPart) {
    words.number(limit);
    words.number(part);
    words.number(oldest.lasting(parts.into()));
    words.text(oldest.into());
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(MAX_EXACT_INTEGER)
}
