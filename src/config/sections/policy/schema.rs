//! Policies, and items of `limits`.

use std::time;

use crate::config::sections::prelude::*;
use crate::proxy::answers::limit_headers::QuotaUnit;
use crate::rules::OnSeveralValues;
use crate::store::{self, OnStoreError};

/// A policy under its name in `policies`, or an inline limit.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("anyOf" = [{ "required": ["quota"] }, { "required": ["capacity", "refill"] }, { "required": ["max"] }]))]
pub struct Policy {
    /// The name of an inline limit, in header fields, metrics and logs; with the key, what its
    /// buckets are found again by. Policies are named by their key in `policies` instead.
    pub name: Option<Located<Name>>,
    /// The part of the request, or the list of parts, that has a bucket for each value. `client_ip`
    /// unless given.
    pub key: Located<Key>,
    /// Handling of requests without one of the parts: another part stands in for it (`client_ip`
    /// where that is missing too), the policy does not apply (`skip`), the request is refused
    /// (`refuse`), all such requests share one bucket (`shared`), or the part has a constant value,
    /// as if the request had sent it (`{ value: free }`).
    pub on_missing_key: Located<OnMissingKey>,
    /// Handling of requests with different values in a header field, cookie or query parameter of
    /// the key: the request is refused (`refuse`), the first value counts (`first`), or all values
    /// together are the key (`all`).
    pub on_several_values: Located<OnSeveralValues>,
    /// Conditions on the requests to which the policy applies; all of them unless given.
    pub when: Option<Located<Condition>>,
    /// Clients to which the policy does not apply.
    pub exempt: List<Selection>,
    /// Clients with another quota.
    pub overrides: List<Override>,
    /// Other answers to requests before the quota is used up, up to 8 in ascending order. Not for
    /// `leaky_bucket` and `concurrency`.
    #[schemars(length(max = 8))]
    pub soft_limits: List<SoftLimit>,
    /// How units are counted.
    pub algorithm: Located<AlgorithmName>,
    /// The amounts of its buckets.
    #[serde(rename = "$amounts")]
    #[schemars(flatten)]
    pub amounts: Amounts,
    /// A second bucket, for requests that the first cannot pay: they are admitted at a lower
    /// priority. For `gcra` and `token_bucket` only.
    pub overflow: Option<Located<Box<Overflow>>>,
    /// The number of requests of a key that may wait for their turn, 0 to 1000000; 0 unless given.
    /// Further ones are refused. For `leaky_bucket` and `concurrency` only.
    pub queue: Located<Places>,
    /// The longest wait for a request's turn, `0s` to `1h`; unless given 30s, plus the time in
    /// which requests within `delay_after` do not wait. A request whose turn is further away is
    /// refused at once; with `concurrency`, which cannot know turns, once it has waited for so
    /// long. For `leaky_bucket` and `concurrency` only.
    pub max_wait: Option<Located<Delay>>,
    /// The number of waiting requests that go on at once, 0 to 1000000; 0 unless given. The others
    /// wait for so many turns less. For `leaky_bucket` only.
    pub delay_after: Located<Places>,
    /// The `Retry-After` of requests that `concurrency` refuses, `1ms` to `1d`: the end of a
    /// request is not known. `1s` unless given.
    pub retry_after: Located<RetryAfter>,
    /// The most that is added to `Retry-After`, `0s` to `1h`, another part of it for each refused
    /// client: so that not all come back at once. Nothing unless given.
    pub retry_after_jitter: Located<Delay>,
    /// The start of a window: with the clock (`clock`, the default), with the clock but at another
    /// time for each key (`staggered`), or with the first request after the last window
    /// (`first_request`). For `fixed_window` only.
    pub start: Located<WindowStart>,
    /// The zone in which days, weeks, months and years begin: the IANA name of a time zone, or the
    /// claim that has it; `UTC` unless given. For a `fixed_window` of `1d`, `1w`, `1mo` or `1y`
    /// that starts with the clock.
    pub time_zone: Option<Located<Zone>>,
    /// The day on which months begin, 1 to 31 (the last one of shorter months); 1 unless given.
    /// For a `fixed_window` of `1mo` that starts with the clock.
    pub anchor: Located<DayOfMonth>,
    /// The number of equal parts of a sliding window, each with a counter: 1 to 3600, 1 unless
    /// given. For `sliding_window` only.
    pub precision: Located<Precision>,
    /// The weight of the oldest part, which a sliding window covers only partly; for
    /// `sliding_window` only.
    pub oldest: Located<OldestWindow>,
    /// The unit of the quota in header fields.
    pub unit: Located<QuotaUnit>,
    /// Units that a request takes, 1 to 4294967295; or where the request or its response says so,
    /// and the most that counts.
    pub cost: Located<Cost>,
    /// `true` also charges requests that this policy or another refuses: clients that keep asking
    /// are not admitted again. Not for `leaky_bucket` or `concurrency`, nor with an `overflow`.
    pub charge_refused: Located<Flag>,
    /// Statuses, classes or ranges of them, whose requests are charged: `[401, 5xx]`. A request is
    /// charged when it is admitted, and given that back with any other status. All of them unless
    /// given.
    pub count: List<Statuses<100>>,
    /// `true` applies `count` to responses of the proxy itself too: its 502 and 504, for instance.
    /// Denials by `access` always count.
    pub count_own: Located<Flag>,
    /// `false` charges requests of `count` only by their responses: a request needs its units in the
    /// bucket, and doesn't take them.
    pub count_reserve: Located<Flag<true>>,
    /// The policy refuses (`enforce`), decides and counts without refusing (`shadow`), or applies
    /// to no request (`disabled`).
    pub mode: Located<Mode>,
    /// The percentage of its keys for which the policy refuses, 0 to 100; for the others it is in
    /// shadow. A key that is in stays in as the number grows. All of them unless given.
    pub percent: Option<Located<Percent>>,
    /// Another quota, which is tried out in shadow beside the policy's own.
    pub candidate: Option<Located<Candidate>>,
    /// Bans for keys that keep asking though they are refused.
    pub penalty: Option<Located<Penalty>>,
    /// The place of its buckets: the memory of each process (`memory`, the default), or Redis
    /// (`redis`), where all machines share them.
    pub store: Located<StoreName>,
    /// The interval at which its buckets, which then are in the memory of each process, are
    /// synchronised through Redis with those of other machines, `10ms` to `1s`: no request waits
    /// for Redis, and charges of other machines are not known meanwhile. With `store: redis` only;
    /// not for `sliding_log`, `leaky_bucket`, `concurrency` and `start: first_request`.
    pub sync: Option<Located<SyncInterval>>,
    /// Handling of requests while Redis does not answer: each process decides by buckets of its own
    /// (`local`, unless given), or the policy admits (`admit`) or refuses them (`refuse`). With
    /// `store: redis` only, and without `sync`.
    pub on_store_error: Located<OnStoreError>,
    /// Buckets that memory is kept for, 1024 to 1073741824; an equal share of
    /// `store.memory.max_size` unless given.
    pub max_keys: Option<Located<MaxKeys>>,
    /// Handling of new keys when memory for buckets is full: the least used bucket is forgotten
    /// (`forget`), or new keys inherit what it had used (`strict`: no key ever exceeds its limit).
    pub on_full: Located<OnFull>,
    /// `false` keeps the policy's name, quota and remaining units out of all responses; refused
    /// clients still get `Retry-After`.
    pub announce: Located<Flag<true>>,
    /// Responses to refused clients; `responses.on_limit` fills in.
    pub on_limit: Located<OnLimit>,
}

/// Handling of new keys when memory for buckets is full.
// Full: all possible entries of a new key are live. An entry that would refuse is never dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// The least used bucket is forgotten.
    #[default]
    Forget,
    /// The newcomer inherits the used share of the bucket it replaces.
    Strict,
}

impl From<OnFull> for store::OnFull {
    fn from(on_full: OnFull) -> Self {
        match on_full {
            OnFull::Forget => Self::Forget,
            OnFull::Strict => Self::Strict,
        }
    }
}

/// A number of keys, 2^10 to 2^30.
pub type MaxKeys = Whole<1024, 1_073_741_824>;

/// Parts of a sliding window.
pub type Precision = Whole<1, 3600>;

/// Places in a queue.
pub type Places = Whole<0, 1_000_000>;

/// A percentage.
pub type Percent = Whole<0, 100>;

/// A day of the month.
pub type DayOfMonth = Whole<1, 31>;

/// The parts of a key, in order: each combination of values has a bucket.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Key(#[schemars(length(min = 1))] pub Vec<Located<KeyPart>>);

impl Default for Key {
    fn default() -> Self {
        Self(vec![KeyPart::ClientIp.into()])
    }
}

impl Policy {
    /// The policy that overrides start from. Cloned once: a clone with all overrides for each of
    /// them would take quadratic time.
    pub fn without_exceptions(&self) -> Self {
        let mut policy = self.clone();
        policy.exempt = Vec::new().into();
        policy.overrides = Vec::new().into();
        policy.candidate = None;
        policy.soft_limits = Vec::new().into();
        policy
    }

    /// Its quota, and those of its overrides and its candidate.
    pub(in crate::config) fn quotas(&self) -> impl Iterator<Item = &Located<Quota>> {
        let others = self.overrides.iter().map(|one| &one.amounts);
        let others = others.chain(self.candidate.iter().map(|one| &one.amounts));
        let all = std::iter::once(&self.amounts).chain(others);
        all.filter_map(|amounts| amounts.quota.as_ref())
    }

    /// The requests of its exceptions.
    pub fn selections(&self) -> impl Iterator<Item = &Selection> {
        let exempt = self.exempt.iter().map(|one| &one.value);
        exempt.chain(self.overrides.iter().map(|one| &one.selection))
    }

    /// The parts of the key, and the part that stands in for a missing one.
    pub fn parts(&self) -> impl Iterator<Item = (&KeyPart, NodeId)> {
        let stand_in = self.on_missing_key.part();
        let stand_in = stand_in.map(|part| (part, self.on_missing_key.node));
        let parts = self.key.0.iter().map(|part| (&part.value, part.node));
        parts.chain(stand_in)
    }

    /// True if its buckets are in Redis alone, and in no memory beside it.
    pub(in crate::config) fn is_only_in_redis(&self) -> bool {
        self.store.value == StoreName::Redis && self.sync.is_none()
    }

    /// True for a sliding window that is cut in parts, each with a counter.
    pub(in crate::config) fn has_counters(&self) -> bool {
        self.algorithm.value == AlgorithmName::SlidingWindow && self.precision.get() > 1
    }

    /// The longest wait: `max_wait`, or the time in which requests beyond `delay_after` wait at
    /// most 30 s.
    pub fn longest_wait(&self) -> time::Duration {
        if let Some(given) = &self.max_wait {
            return given.get();
        }
        let turns = self.amounts.quota.as_ref();
        let turns = turns.map_or(time::Duration::ZERO, |quota| {
            let limit = u32::try_from(quota.largest().limit()).unwrap_or(u32::MAX);
            quota.largest().window() * self.delay_after.get() / limit.max(1)
        });
        time::Duration::from_secs(30) + turns
    }
}

/// How units are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlgorithmName {
    /// Evenly spaced, with a burst (generic cell rate algorithm).
    #[default]
    Gcra,
    /// Tokens that come back one by one, or so many at regular intervals.
    TokenBucket,
    /// So many in each window; all come back at once.
    FixedWindow,
    /// The running window and, in proportion, the one before; or the parts of a window, and the one
    /// before in proportion.
    SlidingWindow,
    /// The instant of each unit: never more than the quota in any window, in memory that grows with
    /// it.
    SlidingLog,
    /// A queue that moves at the quota's rate: requests wait their turn.
    LeakyBucket,
    /// Requests in flight: what each takes comes back when its response has ended, however it ends.
    Concurrency,
}

/// When a fixed window starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowStart {
    /// With the clock, the same for all keys.
    #[default]
    Clock,
    /// With the clock, but at another time for each key.
    Staggered,
    /// With the first request of a key after its last window.
    FirstRequest,
}

/// How the oldest part of a sliding window counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldestWindow {
    /// In proportion to what the window still covers of it.
    #[default]
    Weighted,
    /// As a whole: never more than the limit in any window.
    Whole,
    /// Not at all.
    Ignored,
}

/// The mode of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It refuses and delays requests.
    #[default]
    Enforce,
    /// It decides and counts, and refuses nobody.
    Shadow,
    /// No request meets it.
    Disabled,
}

by_form! {
    /// An item of `limits`.
    pub enum Limit("Limit", "the name of a policy, or an inline limit: `{ key: client_ip, quota: 100/1m }`") {
        /// A policy of this place alone.
        InPlace(Box<Policy>) = "mapping",
        /// One of `policies`.
        Named(Name) = "scalar",
    }
}

impl Limit {
    /// The name, if it is one of `policies`.
    pub fn name(&self) -> Option<&Name> {
        let Self::Named(name) = self else { return None };
        Some(name)
    }

    /// The policy of an inline limit.
    pub fn in_place(&self) -> Option<&Policy> {
        match self {
            Self::Named(_) => None,
            Self::InPlace(policy) => Some(policy),
        }
    }
}
