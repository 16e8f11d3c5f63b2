//! What the script is asked: a request's charges as keys and arguments. `script/charge.lua` says what each of them is.

use std::ops::Range;
use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};

use super::config_drift::ConfigDrift;
use super::reply::RetryInputs;
use super::script::{AlgorithmKind, Procedure};
use super::value;
use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Fingerprint, FixedWindow, Gcra, Oldest, Span, Start};
use crate::store::Refusals;

/// Units asked of one bucket.
#[derive(Clone, Copy, Debug)]
pub struct BucketCharge<'a> {
    /// How it is decided.
    pub algorithm: &'a Algorithm,
    /// The bucket's name, of which its key is made. Keys of one call share a slot, where there are slots.
    pub name: &'a [u8],
    /// Whose bucket it is: windows may start at an instant of the key's own.
    pub key: Fingerprint,
    /// How many units; 0 asks and charges nothing.
    pub cost: u32,
    /// Which refusals it is charged for.
    pub owes: ChargedRefusals,
    /// Whether it is settled later what it costs, if the request is admitted.
    pub settles: bool,
    /// The period that a window is which this opens, from its start to its end, where requests say that
    /// ([`Start::Local`]).
    pub period: Option<(Timestamp, Timestamp)>,
    /// Whether it begins a charge.
    pub tier: Tier,
}

/// Which refusals are charged to a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChargedRefusals {
    /// None.
    #[default]
    None,
    /// Its own, where all that may refuse the request admit it.
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

/// The place of a bucket among those of a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// It is tried first.
    #[default]
    First,
    /// It is tried where none of those before it can pay.
    Further,
}

/// How long units in use stay taken if nobody renews them, and under what name.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    /// No two requests have the same.
    pub id: &'a str,
    /// From the instant of the charge on.
    pub lasts: Duration,
}

/// A request, to be decided and charged at one instant.
#[derive(Clone, Copy, Debug)]
pub struct ChargeRequest<'a> {
    /// Its charges, with their further buckets: those that may refuse come first. No bucket is among them twice.
    pub charges: &'a [BucketCharge<'a>],
    /// How many of the charges may refuse; the others watch.
    pub binding: usize,
    /// Whether a refusal is the last word: else it charges nobody.
    pub refusals: Refusals,
    /// The instant; the server's time if there is none.
    pub now: Option<Timestamp>,
    /// What is known of values under other recipes.
    pub leftovers: Option<&'a ConfigDrift>,
    /// The server's time as far as is known: whose period of a calendar is asked for first.
    pub around: Timestamp,
    /// For units in use.
    pub lease: Lease<'a>,
}

/// A script, and what it is called with, which is written one after the other: KEYS, then ARGV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCall {
    procedure: Procedure,
    words: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    /// How many are keys.
    keys: usize,
}

/// ARGV of what is asked.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(&'a ScriptCall);

/// Up to where Lua's numbers are exact.
pub(super) const EXACT: u64 = 1 << 53;

impl ChargeRequest<'_> {
    /// What to ask; after an answer that was none, of that.
    pub fn ask(&self, again: &RetryInputs) -> ScriptCall {
        let kinds = self.charges.iter().map(BucketCharge::kind).collect();
        let mut ask = ScriptCall::new(Procedure::Charge(kinds));
        for charge in self.charges {
            charge.push_key(&mut ask);
        }
        ask.instant(self.now);
        ask.number(self.binding as u64);
        again.push(&mut ask);
        for charge in self.charges {
            self.push(&mut ask, charge, again);
        }
        ask
    }

    fn push(&self, ask: &mut ScriptCall, charge: &BucketCharge<'_>, again: &RetryInputs) {
        ask.text(charge.kind().name());
        ask.text(match charge.tier {
            Tier::First => "first",
            Tier::Further => "further",
        });
        ask.number(charge.cost);
        ask.text(if charge.is_hopeless() { "never" } else { "may" });
        ask.text(if charge.settles { "settles" } else { "stays" });
        ask.text(match (self.refusals, charge.owes) {
            (Refusals::Free, _) | (_, ChargedRefusals::None) => "free",
            (Refusals::Charged, ChargedRefusals::Own) => "owe_own",
            (Refusals::Charged, ChargedRefusals::All) => "owe",
        });
        ask.recipe(charge.algorithm);
        charge.push_numbers(ask, again.at().unwrap_or(self.around), self.lease);
    }
}

impl BucketCharge<'_> {
    pub(super) fn push_key(&self, ask: &mut ScriptCall) {
        match self.algorithm.is_permits() {
            true => ask.key_of_leases(self.name),
            false => ask.key(self.name),
        }
    }

    /// Whether it is charged also if the request is refused.
    pub(super) fn is_owed(&self) -> bool {
        self.cost > 0 && self.owes == ChargedRefusals::All
    }

    /// Whether no bucket ever holds as much.
    fn is_hopeless(&self) -> bool {
        let capacity = self.algorithm.capacity();
        self.cost > capacity || capacity == 0 && !self.algorithm.is_permits()
    }

    /// Which of the script's algorithms it is.
    pub(super) const fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::of(self.algorithm)
    }

    pub(super) fn push_numbers(&self, ask: &mut ScriptCall, around: Timestamp, lease: Lease<'_>) {
        let limit = self.algorithm.limit();
        let window = self.algorithm.window().map_or(0, micros);
        match self.algorithm {
            Algorithm::Gcra(gcra) | Algorithm::TokenBucket(gcra) => ask.spans(gcra, self.cost),
            Algorithm::LeakyBucket(bucket) => ask.spans(bucket.line(), self.cost),
            Algorithm::IntervalRefill(bucket) => {
                let (amount, interval) = bucket.refill();
                ask.number(limit);
                ask.number(amount);
                ask.number(interval);
                ask.number(window);
            }
            Algorithm::FixedWindow(fixed) => self.push_window(ask, fixed, window, around),
            Algorithm::SlidingWindow(sliding) => {
                ask.parts(limit, window, 1, sliding.oldest());
            }
            Algorithm::SlidingCounters(counters) => {
                let (parts, oldest) = counters.parts();
                ask.parts(limit, window / u64::from(parts), parts, oldest);
                ask.number(parts);
            }
            Algorithm::SlidingLog(log) => {
                let (tick, span) = log.ticks();
                ask.number(limit);
                ask.number(tick);
                ask.number(span);
            }
            Algorithm::Concurrency(bound) => {
                ask.number(bound.max());
                ask.number(micros(lease.lasts));
                ask.text(lease.id);
            }
        }
    }

    fn push_window(
        &self,
        ask: &mut ScriptCall,
        fixed: &FixedWindow,
        window: u64,
        around: Timestamp,
    ) {
        let (start, one, two) = match (fixed.start(), self.period) {
            (Start::Clock { offset }, _) => ("grid", window, micros(*offset) % window),
            (Start::Staggered, _) => ("grid", window, fixed.offset_of(self.key)),
            (Start::FirstRequest, _) => ("first", window, 0),
            (Start::Local(_), Some((start, end))) => ("local", start.as_micros(), end.as_micros()),
            (Start::Local(calendar), None) => {
                let (start, end) = calendar.period_at(around);
                ("local", start.as_micros(), end.as_micros())
            }
            (Start::Calendar(calendar), _) => {
                let (start, end) = calendar.period_at(around);
                ("span", start.as_micros(), end.as_micros())
            }
        };
        ask.text(start);
        ask.number(self.algorithm.limit());
        ask.number(one);
        ask.number(two.min(EXACT));
        ask.number(window);
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

    /// Which script.
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

    /// A key: these come before all arguments.
    pub(super) fn key(&mut self, name: &[u8]) {
        debug_assert_eq!(self.keys, self.ends.len(), "an argument came before");
        self.bytes(name);
        self.keys = self.ends.len();
    }

    /// The key of the leases of a bucket. They never meet values in a key, also if a policy becomes one of the other kind.
    pub(super) fn key_of_leases(&mut self, name: &[u8]) {
        self.words.extend_from_slice(name);
        self.key(b":leases");
    }

    /// An instant that may be missing.
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

    /// The recipe as values begin with it.
    pub(super) fn recipe(&mut self, algorithm: &Algorithm) {
        value::write_recipe(&mut self.words, algorithm);
        self.ends.push(self.words.len());
    }

    pub(super) fn number(&mut self, number: impl Into<u64>) {
        self.text(itoa::Buffer::new().format(number.into()));
    }

    pub(super) fn spans(&mut self, gcra: &Gcra, cost: u32) {
        self.number(gcra.quota().limit());
        self.span(gcra.tau());
        self.span(gcra.step(cost));
        self.span(gcra.most());
    }

    /// What is beyond all that a bucket can owe is as much as that.
    pub(super) fn span(&mut self, span: Span) {
        let Span { micros, rest } = span;
        self.number(micros.min(EXACT));
        self.number(if micros < EXACT { rest } else { 0 });
    }

    fn parts(&mut self, limit: u32, part: u64, parts: u32, oldest: Oldest) {
        self.number(limit);
        self.number(part);
        self.number(oldest.lasting(parts.into()));
        self.text(match oldest {
            Oldest::Weighted => "weighted",
            Oldest::Whole => "whole",
            Oldest::Ignored => "ignored",
        });
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(EXACT)
}

impl ToRedisArgs for Arguments<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let Self(ask) = self;
        for word in ask.words(ask.keys..ask.ends.len()) {
            out.write_arg(word);
        }
    }
}
