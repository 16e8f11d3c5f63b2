//! The scripts, and the pieces of text that each is made of: those that its algorithms need. A
//! server runs the whole text at each call, also definitions that the call does not use.

use std::sync::OnceLock;

use super::client::Script;
use crate::limiter::Algorithm;

/// The text of a script, or of a piece.
macro_rules! lua {
    ($file:literal) => {
        include_str!(concat!("script/", $file, ".lua"))
    };
}

/// The script that exchanges the charges of a node with those of the others.
pub const SYNC: &str = lua!("sync");

/// The script that records the algorithms of a node's policies, and replies those of other nodes.
pub(super) const ALGORITHMS: &str = lua!("algorithms");

/// A kind of algorithm, in the scripts' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "snake_case")]
pub enum AlgorithmKind {
    /// [`Gcra`](crate::limiter::Gcra), and a token bucket that refills continuously.
    Gcra,
    /// [`LeakyBucket`](crate::limiter::LeakyBucket).
    LeakyBucket,
    /// [`IntervalRefill`](crate::limiter::IntervalRefill).
    IntervalRefill,
    /// [`FixedWindow`](crate::limiter::FixedWindow).
    FixedWindow,
    /// [`SlidingWindow`](crate::limiter::SlidingWindow).
    SlidingWindow,
    /// [`SlidingCounters`](crate::limiter::SlidingCounters).
    SlidingCounters,
    /// [`SlidingLog`](crate::limiter::SlidingLog).
    SlidingLog,
    /// [`Concurrency`](crate::limiter::Concurrency).
    Concurrency,
    /// [`Grant`](crate::limiter::Grant).
    Grant,
}

impl AlgorithmKind {
    const COUNT: usize = Self::Grant as usize + 1;

    /// The kind of this algorithm.
    pub const fn of(algorithm: &Algorithm) -> Self {
        match algorithm {
            Algorithm::Gcra(_) | Algorithm::TokenBucket(_) => Self::Gcra,
            Algorithm::IntervalRefill(_) => Self::IntervalRefill,
            Algorithm::LeakyBucket(_) => Self::LeakyBucket,
            Algorithm::FixedWindow(_) => Self::FixedWindow,
            Algorithm::SlidingWindow(_) => Self::SlidingWindow,
            Algorithm::SlidingCounters(_) => Self::SlidingCounters,
            Algorithm::SlidingLog(_) => Self::SlidingLog,
            Algorithm::Concurrency(_) => Self::Concurrency,
            Algorithm::Grant(_) => Self::Grant,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlgorithmKinds(u16);

impl AlgorithmKinds {
    const fn has(self, kind: AlgorithmKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Every set of at least one of these kinds.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        let sets = (1..=self.0).filter(move |set| set & !self.0 == 0);
        sets.map(Self)
    }
}

impl FromIterator<AlgorithmKind> for AlgorithmKinds {
    fn from_iter<I: IntoIterator<Item = AlgorithmKind>>(kinds: I) -> Self {
        let set = kinds.into_iter().fold(0, |set, kind| set | 1 << kind as u8);
        Self(set)
    }
}

use AlgorithmKind::{
    Concurrency, FixedWindow, Gcra, Grant, IntervalRefill, LeakyBucket, SlidingCounters,
    SlidingLog, SlidingWindow,
};

/// The beginning of each script.
const HEAD: [&str; 2] = [lua!("numbers"), lua!("buckets")];
/// The further pieces, each with the kinds that need it. A piece may use those before it.
const PIECES: [(&str, &[AlgorithmKind]); 13] = [
    (lua!("words"), &[SlidingCounters, SlidingLog]),
    (lua!("room"), &[SlidingWindow, SlidingCounters]),
    (
        lua!("cells"),
        &[
            Gcra,
            LeakyBucket,
            IntervalRefill,
            FixedWindow,
            SlidingWindow,
            Grant,
        ],
    ),
    (lua!("rates"), &[Gcra, LeakyBucket]),
    (lua!("gcra"), &[Gcra]),
    (lua!("leaky_bucket"), &[LeakyBucket]),
    (lua!("refill"), &[IntervalRefill]),
    (lua!("window"), &[FixedWindow]),
    (lua!("sliding"), &[SlidingWindow]),
    (lua!("counters"), &[SlidingCounters]),
    (lua!("log"), &[SlidingLog]),
    (lua!("leases"), &[Concurrency]),
    (lua!("grant"), &[Grant]),
];

/// The job of a script, and the kinds of algorithms in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Procedure {
    /// Decides and charges a request to buckets of these kinds.
    Charge(AlgorithmKinds),
    /// Settles a charge.
    Settle(AlgorithmKind),
    /// Renews leases, or returns them.
    Lease,
    /// Leaves a queue.
    Leave,
    /// Counts strikes, and announces bans.
    Ban,
    /// Lifts a ban.
    Lift,
    /// Replaces values for an operator.
    Replace,
    /// Announces an action of an operator.
    Announce,
}

impl Procedure {
    /// The number of all possible scripts, and so the most that servers ever load.
    pub const COUNT: usize = Self::FURTHER + 6;
    const CHARGES: usize = 1 << AlgorithmKind::COUNT;
    const FURTHER: usize = Self::CHARGES + AlgorithmKind::COUNT;

    /// The text of its script.
    pub fn text(self) -> String {
        let none = AlgorithmKinds::default();
        let only = |kind| AlgorithmKinds::from_iter([kind]);
        let (kinds, main) = match self {
            Self::Charge(kinds) => (kinds, lua!("charge")),
            Self::Settle(kind) => (only(kind), lua!("settle")),
            Self::Lease => (only(Concurrency), lua!("lease")),
            Self::Leave => (only(LeakyBucket), lua!("leave")),
            Self::Ban => (none, lua!("bans")),
            Self::Lift => (none, lua!("lift")),
            Self::Replace => (none, lua!("replace")),
            Self::Announce => (none, lua!("announce")),
        };
        let is_needed = |of: &[AlgorithmKind]| of.iter().any(|kind| kinds.has(*kind));
        let needed = PIECES.iter().filter(|(_, of)| is_needed(of));
        let pieces = needed.map(|(piece, _)| *piece);
        HEAD.into_iter().chain(pieces).chain([main]).collect()
    }

    /// A number below [`Procedure::COUNT`], different for each procedure.
    const fn index(self) -> usize {
        match self {
            Self::Charge(AlgorithmKinds(set)) => set as usize,
            Self::Settle(kind) => Self::CHARGES + kind as usize,
            Self::Lease => Self::FURTHER,
            Self::Leave => Self::FURTHER + 1,
            Self::Ban => Self::FURTHER + 2,
            Self::Lift => Self::FURTHER + 3,
            Self::Replace => Self::FURTHER + 4,
            Self::Announce => Self::FURTHER + 5,
        }
    }
}

/// The scripts of a store, each made at its first use.
#[derive(Debug)]
pub(super) struct Scripts(Box<[OnceLock<Script>]>);

impl Scripts {
    pub(super) fn get(&self, procedure: Procedure) -> &Script {
        let script = &self.0[procedure.index()];
        script.get_or_init(|| Script::new(&procedure.text()))
    }
}

impl Default for Scripts {
    fn default() -> Self {
        Self((0..Procedure::COUNT).map(|_| OnceLock::new()).collect())
    }
}
