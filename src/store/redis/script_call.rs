//! Calls of the scripts: a request's charges as keys and arguments. `script/charge.lua` documents
//! each argument.

use std::ops::Range;
use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};

use super::config_drift::ConfigDrift;
use super::reply::RetryInputs;
use super::script::{AlgorithmKind, Procedure};
use super::value;
use crate::clock::Timestamp;
use crate::limiter::{
    Algorithm, Debt, Fingerprint, FixedWindow, FractionalDuration, Gcra, OldestPart, Start,
};
use crate::store::Refusals;

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
    /// The units to charge; 0 only asks.
    pub cost: u32,
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

impl From<Refusals> for ChargedRefusals {
    fn from(refusals: Refusals) -> Self {
        match refusals {
            Refusals::Free => Self::None,
            Refusals::Charged => Self::All,
        }
    }
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

/// The lease of units in use: its name, and its time to live without renewal.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    /// An id that no other request has.
    pub id: &'a str,
    /// The time to live from the charge on.
    pub duration: Duration,
}

/// The part of the cluster's other slots in a request.
#[derive(Clone, Copy, Debug)]
pub struct OtherSlots<'a> {
    /// An id that no other request has, if they may still refuse the request: the charges may be
    /// given back. Empty if not.
    pub id: &'a str,
    /// How long they may.
    pub duration: Duration,
}

/// A request, decided and charged at one instant.
#[derive(Clone, Copy, Debug)]
pub struct ChargeRequest<'a> {
    /// The charges with their overflow buckets; enforced charges come first. No bucket is in it
    /// twice.
    pub charges: &'a [BucketCharge<'a>],
    /// The number of enforced charges; the others are in shadow.
    pub enforced: usize,
    /// Nothing is charged.
    pub is_peek: bool,
    /// [`Refusals::Charged`] if a refusal is final; otherwise a refusal charges nothing.
    pub refusals: Refusals,
    /// The instant of the decision; `None` is the server's time.
    pub now: Option<Timestamp>,
    /// Values under other recipes, as observed so far.
    pub drift: Option<&'a ConfigDrift>,
    /// The server's estimated time, which selects the calendar period of the first try.
    pub estimated_now: Timestamp,
    /// The lease for units in use.
    pub lease: Lease<'a>,
    /// The other slots, in a cluster.
    pub others: Option<OtherSlots<'a>>,
}

/// A script with KEYS and ARGV, stored one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCall {
    procedure: Procedure,
    words: Vec<u8>,
    /// The end of each word.
    ends: Vec<usize>,
    /// The number of keys.
    keys: usize,
}

/// ARGV of a call.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(&'a ScriptCall);

/// The bound of exact integers in Lua's doubles.
pub(super) const MAX_EXACT_INTEGER: u64 = 1 << 53;

impl ChargeRequest<'_> {
    /// The call of the script, with what an earlier reply asked for.
    pub fn script_call(&self, retry: &RetryInputs) -> ScriptCall {
        let kinds = self.charges.iter().map(BucketCharge::kind).collect();
        let mut call = ScriptCall::new(Procedure::Charge(kinds));
        for charge in self.charges {
            charge.push_key(&mut call);
        }
        call.instant(self.now);
        if self.is_peek {
            call.text("peek")
        } else {
            call.number(self.enforced as u64)
        }
        retry.push(&mut call);
        for charge in self.charges {
            self.push(&mut call, charge, retry);
        }
        if let Some(OtherSlots { id, duration }) = self.others {
            call.text(id);
            call.number(micros(duration));
        }
        call
    }

    fn push(&self, call: &mut ScriptCall, charge: &BucketCharge<'_>, retry: &RetryInputs) {
        call.text(charge.kind().into_str());
        call.text(match charge.tier {
            Tier::First => "first",
            Tier::Overflow => "further",
        });
        call.number(charge.cost);
        call.text(if charge.exceeds_capacity() {
            "never"
        } else {
            "may"
        });
        call.text(if charge.settles { "settles" } else { "stays" });
        call.text(match (self.refusals, charge.charged_refusals) {
            (Refusals::Free, _) | (_, ChargedRefusals::None) => "free",
            (Refusals::Charged, ChargedRefusals::Own) => "owe_own",
            (Refusals::Charged, ChargedRefusals::All) => "owe",
        });
        call.recipe(charge.algorithm);
        let estimated_now = retry.at().unwrap_or(self.estimated_now);
        charge.push_numbers(call, estimated_now, self.lease, Debt::Refused);
    }
}

impl BucketCharge<'_> {
    pub(super) fn push_key(&self, call: &mut ScriptCall) {
        if self.algorithm.is_concurrency() {
            call.lease_key(self.name)
        } else {
            call.key(self.name)
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
        self.cost > 0 && self.charged_refusals == ChargedRefusals::All
    }

    /// True if even a full bucket holds fewer units.
    fn exceeds_capacity(&self) -> bool {
        let capacity = self.algorithm.capacity();
        self.cost > capacity || capacity == 0 && !self.algorithm.is_concurrency()
    }

    pub(super) const fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::of(self.algorithm)
    }

    pub(super) fn push_numbers(
        &self,
        call: &mut ScriptCall,
        estimated_now: Timestamp,
        lease: Lease<'_>,
        debt: Debt,
    ) {
        let limit = self.algorithm.limit();
        let window = self.algorithm.window().map_or(0, micros);
        match self.algorithm {
            Algorithm::Gcra(gcra) | Algorithm::TokenBucket(gcra) => {
                call.spans(gcra, self.cost, debt)
            }
            Algorithm::LeakyBucket(bucket) => call.spans(bucket.line(), self.cost, debt),
            Algorithm::IntervalRefill(bucket) => {
                let (amount, interval) = bucket.refill();
                call.number(limit);
                call.number(amount);
                call.number(interval);
                call.number(bucket.max_debt(debt));
            }
            Algorithm::FixedWindow(fixed) => self.push_window(call, fixed, window, estimated_now),
            Algorithm::SlidingWindow(sliding) => {
                call.parts(limit, window, 1, sliding.oldest());
            }
            Algorithm::SlidingCounters(counters) => {
                let (parts, oldest) = counters.parts();
                call.parts(limit, window / u64::from(parts), parts, oldest);
                call.number(parts);
            }
            Algorithm::SlidingLog(log) => {
                let (tick, span) = log.ticks();
                call.number(limit);
                call.number(tick);
                call.number(span);
            }
            Algorithm::Concurrency(bound) => {
                call.number(bound.max());
                call.number(micros(lease.duration));
                call.text(lease.id);
            }
            Algorithm::Grant(_) => {}
        }
    }

    fn push_window(
        &self,
        call: &mut ScriptCall,
        fixed: &FixedWindow,
        window: u64,
        estimated_now: Timestamp,
    ) {
        let (start, one, two) = match (fixed.start(), self.period) {
            (Start::Clock { offset }, _) => ("grid", window, micros(*offset) % window),
            (Start::Staggered, _) => ("grid", window, fixed.offset_of(self.key)),
            (Start::FirstRequest, _) => ("first", window, 0),
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
        call.text(start);
        call.number(self.algorithm.limit());
        call.number(one);
        call.number(two.min(MAX_EXACT_INTEGER));
        call.number(window);
    }
}

impl ScriptCall {
    pub(super) fn new(procedure: Procedure) -> Self {
        Self {
            procedure,
            words: Vec::with_capacity(256),
            ends: Vec::with_capacity(32),
            keys: 0,
        }
    }

    /// The procedure to run.
    pub fn procedure(&self) -> Procedure {
        self.procedure
    }

    /// KEYS.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.words(0..self.keys)
    }

    /// ARGV.
    pub fn args(&self) -> Arguments<'_> {
        Arguments(self)
    }

    fn words(&self, places: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let mut start = match places.start {
            0 => 0,
            first => self.ends[first - 1],
        };
        self.ends[places].iter().map(move |&end| {
            let from = std::mem::replace(&mut start, end);
            &self.words[from..end]
        })
    }

    /// Adds a key. Keys come before all arguments.
    pub(super) fn key(&mut self, name: &[u8]) {
        debug_assert_eq!(self.keys, self.ends.len(), "an argument came before");
        self.bytes(name);
        self.keys = self.ends.len();
    }

    /// Adds the key of a bucket's leases. The suffix keeps them apart from values if a policy
    /// changes its kind.
    pub(super) fn lease_key(&mut self, name: &[u8]) {
        self.words.extend_from_slice(name);
        self.key(b":leases");
    }

    /// Adds an instant, or an empty word.
    pub(super) fn instant(&mut self, instant: Option<Timestamp>) {
        match instant {
            Some(instant) => self.number(instant.as_micros()),
            None => self.text(""),
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.words.extend_from_slice(bytes);
        self.ends.push(self.words.len());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds the recipe in the form that begins a stored value.
    pub(super) fn recipe(&mut self, algorithm: &Algorithm) {
        value::write_recipe(&mut self.words, algorithm);
        self.ends.push(self.words.len());
    }

    pub(super) fn number(&mut self, number: impl Into<u64>) {
        self.text(itoa::Buffer::new().format(number.into()));
    }

    pub(super) fn spans(&mut self, gcra: &Gcra, cost: u32, debt: Debt) {
        self.number(gcra.quota().limit());
        self.span(gcra.tau());
        self.span(gcra.step(cost));
        self.span(gcra.max_debt(debt));
    }

    /// Adds a span; it saturates at the largest integer that Lua represents exactly.
    pub(super) fn span(&mut self, span: FractionalDuration) {
        let FractionalDuration { micros, rest } = span;
        self.number(micros.min(MAX_EXACT_INTEGER));
        self.number(if micros < MAX_EXACT_INTEGER { rest } else { 0 });
    }

    fn parts(&mut self, limit: u32, part: u64, parts: u32, oldest: OldestPart) {
        self.number(limit);
        self.number(part);
        self.number(oldest.lasting(parts.into()));
        self.text(oldest.into());
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(MAX_EXACT_INTEGER)
}

impl ToRedisArgs for Arguments<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let Self(call) = self;
        for word in call.words(call.keys..call.ends.len()) {
            out.write_arg(word);
        }
    }
}
