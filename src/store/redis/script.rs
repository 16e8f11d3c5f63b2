//! The scripts, and the pieces of text that each is made of: those that its algorithms need. A
//! server runs the whole text at each call, also definitions that the call does not use.

use std::sync::OnceLock;

use super::client::Script;
use crate::limiter::AlgorithmKind;

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

/// The number of kinds.
const KINDS: usize = AlgorithmKind::Grant as usize + 1;

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlgorithmKinds(u16);

impl AlgorithmKinds {
    /// The bit of a kind: one for GCRA and the token bucket that is GCRA.
    const fn bit(kind: AlgorithmKind) -> u16 {
        1 << (kind as u8).saturating_sub(1)
    }

    const fn has(self, kind: AlgorithmKind) -> bool {
        self.0 & Self::bit(kind) != 0
    }

    /// Every set of at least one of these kinds.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        let sets = (1..=self.0).filter(move |set| set & !self.0 == 0);
        sets.map(Self)
    }
}

impl FromIterator<AlgorithmKind> for AlgorithmKinds {
    fn from_iter<I: IntoIterator<Item = AlgorithmKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |set, kind| set | Self::bit(kind)))
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
    const CHARGES: usize = 1 << (KINDS - 1);
    const FURTHER: usize = Self::CHARGES + KINDS;

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
