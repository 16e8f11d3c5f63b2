//! One key of one policy, as an operator names it: its state, and what an operator may do to it.
//!
//! The admin API and its clients come here, and explanations of requests. The key leads to the
//! buckets that requests with this key charge, by the same steps.

use std::sync::Arc;
use std::time::Duration;

use super::key_state::{KeyFacts, KeyState, rfc_3339};
use crate::clock::Timestamp;
use crate::limiter::bucket::BucketFacts;
use crate::limiter::{Algorithm, Cell, Decision, Fingerprint, KeyParts, Outcome, Secret};
use crate::proxy::admission::mode::Mode;
use crate::proxy::ruleset::{Limit, Policy, Quota, Ruleset};
use crate::rules::{ClientTable, Exception, Head, KeyTextError, PartText};
use crate::store::{Attribution, ChargeId, KeyChange, KeyRule, Probe, SteeringError, SteeringKey};

/// The longest time for which an operator bans a key or grants it units.
pub const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A key of a policy.
#[derive(Clone, Debug)]
pub struct PolicyKey<'r> {
    /// A limit of the policy: all read a key alike.
    limit: &'r Limit,
    parts: HashedParts,
    /// The override of the key.
    place: Option<u32>,
    /// Overrides that its requests may also have: by a condition, or by an address that isn't in it.
    others: Vec<u32>,
    /// True if the policy limits no request with this key.
    pub(super) is_exempt: bool,
    /// True if requests with the key have all its parts.
    is_whole: bool,
}

/// The parts of a key in the spelling in which they are hashed. Its `Debug` output leaves them out:
/// they are secrets.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("HashedParts(..)")]
struct HashedParts(Vec<(u8, Box<[u8]>)>);

/// The reason why a policy has no such key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No route uses the policy, so that it limits no key.
    #[error("no route uses the policy `{0}`, so that it has no keys")]
    UnusedPolicy(Arc<str>),
    /// No client has the name.
    #[error("no client has this name")]
    UnknownClient,
    /// The key has other parts than the name and columns of a client.
    #[error("the key isn't that of a client alone: give all its parts")]
    NotOfClient,
    /// The texts are no key of the policy.
    #[error(transparent)]
    Text(#[from] KeyTextError),
}

/// A key before and after a change.
#[derive(Clone, Debug)]
pub struct ChangedKey {
    /// The state before.
    pub before: KeyState,
    /// The state after.
    pub after: KeyState,
    /// The ban or the grant that the change replaces, in words.
    pub replaced: Option<String>,
}

/// The treatment of a change, named as in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Execution {
    /// The change is made.
    #[strum(serialize = "applied")]
    Apply,
    /// Only its result is worked out.
    DryRun,
}

impl Execution {
    /// The treatment of a change that is a dry run, or not.
    pub fn of(dry_run: bool) -> Self {
        if dry_run { Self::DryRun } else { Self::Apply }
    }
}

/// The reason why a key was not read or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeyChangeError {
    /// The change makes no sense for this key.
    #[error("{0}")]
    Impossible(String),
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] SteeringError),
}

impl Ruleset {
    /// Finds a key of a policy: a text for each part of the policy's key, in its order.
    ///
    /// Exceptions by networks are found if the key has the client's address.
    ///
    /// # Errors
    /// No route uses the policy, or the texts are no key of it.
    pub fn policy_key(
        &self,
        policy: &Policy,
        texts: &[PartText],
    ) -> Result<PolicyKey<'_>, KeyError> {
        let limit = self.limit_of(policy)?;
        let mut text = limit.spec.descriptor.read_key(texts)?;
        if let Some(known) = &self.clients {
            text.look_up_client(&known.clients.table);
        }
        let exceptions = limit.spec.exceptions.as_ref();
        let exception = exceptions.and_then(|exceptions| exceptions.find_by_key(&text));
        let others = exceptions.map(|exceptions| exceptions.other_overrides(&text));
        let mut parts = HashedParts::default();
        text.feed(&mut parts);
        Ok(PolicyKey {
            limit,
            parts,
            place: match exception {
                Some(Exception::Override(place)) => Some(place),
                Some(Exception::Exempt) | None => None,
            },
            others: others.into_iter().flatten().collect(),
            is_exempt: exception == Some(Exception::Exempt),
            is_whole: (texts.iter()).all(|text| matches!(text, PartText::Value(_))),
        })
    }

    /// Finds the key of the client with this name, whose name and columns are its parts.
    ///
    /// # Errors
    /// No route uses the policy, no client has the name, or the key has other parts.
    pub fn client_key(&self, policy: &Policy, name: &str) -> Result<PolicyKey<'_>, KeyError> {
        let (table, client) = self.client_named(name)?;
        let descriptor = &self.limit_of(policy)?.spec.descriptor;
        let texts = descriptor.write_client(|part| table.value(client, part));
        let texts = texts.filter(|texts| !texts.is_empty());
        self.policy_key(policy, &texts.ok_or(KeyError::NotOfClient)?)
    }

    /// Finds a client, and the table that has it.
    ///
    /// # Errors
    /// No client has the name.
    pub fn client_named(&self, name: &str) -> Result<(&ClientTable, u32), KeyError> {
        let table = self.clients.as_ref().map(|known| &known.clients.table);
        let client = table.and_then(|table| Some((table, table.by_name(name)?)));
        client.ok_or(KeyError::UnknownClient)
    }

    fn limit_of(&self, policy: &Policy) -> Result<&Limit, KeyError> {
        let mut limits = self.all_routes().flat_map(|route| &route.limits);
        let limit = limits.find(|limit| limit.policy.name == policy.name);
        limit.ok_or_else(|| KeyError::UnusedPolicy(Arc::clone(&policy.name)))
    }
}

impl<'r> PolicyKey<'r> {
    /// The key of a request that charges this limit, under the quota at `place`. `None` if the
    /// request lacks the key.
    pub(super) fn of_request(
        limit: &'r Limit,
        head: &Head<'_>,
        place: Option<u32>,
    ) -> Option<Self> {
        let mut parts = HashedParts::default();
        limit.spec.descriptor.feed(head, &mut parts).ok()?;
        Some(PolicyKey {
            limit,
            parts,
            place,
            others: Vec::new(),
            is_exempt: false,
            is_whole: !(limit.spec.descriptor.parts.iter()).any(|part| part.is_missing(head)),
        })
    }

    /// True if Redis has the bucket.
    pub fn is_remote(&self) -> bool {
        self.quota().buckets.is_in_redis()
    }

    /// The policy's quota for the key.
    pub(super) fn quota(&self) -> &'r Quota {
        self.limit.quota(self.place)
    }

    /// The decision on a request, by the soft limit that it exceeds, and that limit.
    pub(super) fn soften(&self, decision: Decision, now: Timestamp) -> (Decision, Option<u64>) {
        let mut id = ChargeId::new(0, self.place);
        id.soft = self.limit.exceeded(id, &decision);
        let above = self.limit.soft_limit(id).map(|soft| soft.above);
        let decision = (self.limit).decide_softly(id, self.fingerprint(), decision, None, 1, now);
        (decision, above)
    }

    /// The exception that gives the key another quota, as the configuration has it.
    pub(super) fn override_for(&self) -> Option<String> {
        let policy = self.policy();
        Some(policy.requests_of(policy.override_at(self.place?)))
    }

    /// The effect of the policy's decisions on requests with this key: `enforce`, `shadow` or
    /// `disabled`.
    pub(super) fn mode(&self) -> &'static str {
        let mode = self.policy().mode.current();
        let hash = |secret: &Secret| self.is_whole.then(|| self.parts.fingerprint(secret));
        let enforcement = self.limit.enforcement_of(self.place, hash);
        match (mode, enforcement) {
            (Mode::Disabled, _) => Mode::Disabled.into_str(),
            (_, enforcement) => enforcement.into_str(),
        }
    }

    /// The fingerprint of the key's bucket in memory.
    pub fn fingerprint(&self) -> Fingerprint {
        self.parts.fingerprint(&self.limit.secret)
    }

    /// Requests of the key that wait for units.
    pub(super) fn waiting(&self) -> usize {
        let turns = self.policy().turns.as_ref();
        turns.map_or(0, |turns| turns.requests(self.fingerprint()))
    }

    /// The state of the key at `now`, and its stored states under further overrides.
    ///
    /// # Errors
    /// The store of the policy does not answer.
    pub async fn state(&self, now: Timestamp) -> Result<KeyState, SteeringError> {
        let mut state = self.facts(self.unit(), now).await?.state(self);
        state.others = self.other_states(now).await?;
        Ok(state)
    }

    async fn other_states(&self, now: Timestamp) -> Result<Vec<KeyState>, SteeringError> {
        let mut states = Vec::new();
        for other in self.others() {
            let state = other.facts(other.unit(), now).await?.state(&other);
            states.extend(state.stored.then_some(state));
        }
        Ok(states)
    }

    /// A request of one unit.
    fn unit(&self) -> Probe {
        Probe {
            demand: self.limit.demand(self.place, None, 1),
            window_end: None,
        }
    }

    /// The policy.
    pub fn policy(&self) -> &'r Policy {
        &self.limit.policy
    }

    /// Changes the key, and returns its state before and after.
    ///
    /// # Errors
    /// The change is impossible, or the store of the policy does not answer. A change that an error
    /// of the store interrupts may be repeated.
    pub async fn change(
        &self,
        change: KeyChange,
        by: &Attribution,
        execution: Execution,
        now: Timestamp,
    ) -> Result<ChangedKey, KeyChangeError> {
        self.check(change, now)?;
        let before = self.facts(self.unit(), now).await?;
        let others = self.other_states(now).await?;
        let after = match execution {
            Execution::DryRun => self.expected(before.clone(), change, by, now),
            Execution::Apply => {
                let (steering, key) = (&self.policy().steering, self.steering_key());
                let penalties = self.policy().penalties.as_deref();
                let penalties = penalties.map(|penalties| (penalties, self.ban_key()));
                steering.change(&key, change, by, penalties, now).await?;
                if change == KeyChange::Reset {
                    for other in self.others() {
                        let key = other.steering_key();
                        steering.change(&key, change, by, None, now).await?;
                    }
                }
                steering.keys().metrics.actions.record(change.action());
                self.facts(self.unit(), now).await?
            }
        };
        let with = |state: KeyState, others| KeyState { others, ..state };
        let others_after = match (execution, change) {
            (Execution::Apply, _) => self.other_states(now).await?,
            (Execution::DryRun, KeyChange::Reset) => Vec::new(),
            (Execution::DryRun, _) => others.clone(),
        };
        Ok(ChangedKey {
            replaced: before.replaced(change),
            before: with(before.state(self), others),
            after: with(after.state(self), others_after),
        })
    }

    /// # Errors
    /// The change makes no sense for this key.
    fn check(&self, change: KeyChange, now: Timestamp) -> Result<(), KeyChangeError> {
        let impossible = |why: &str| Err(KeyChangeError::Impossible(why.to_owned()));
        if self.is_exempt && change != KeyChange::Unban {
            return impossible("the key is exempt from the policy");
        }
        let algorithm = self.quota().algorithm();
        match (change, algorithm) {
            (KeyChange::Reset, Algorithm::Concurrency(_)) => impossible(
                "requests in flight return their units when they end: there is nothing to reset",
            ),
            (KeyChange::Grant { .. }, Algorithm::Concurrency(_)) => impossible(
                "units of `concurrency` are in use, not spent: raise `max`, also for this key alone by an override",
            ),
            (KeyChange::Grant { .. }, Algorithm::LeakyBucket(_)) => impossible(
                "a `leaky_bucket` spaces requests out, which granted units would undo: raise its quota, also for this key alone by an override",
            ),
            (KeyChange::Grant { units, until }, _) if units > 0 => check_end("grant", until, now),
            (KeyChange::Ban { until }, _) => check_end("ban", until, now),
            _ => Ok(()),
        }
    }

    /// The facts after a change, without making it.
    fn expected(
        &self,
        mut facts: KeyFacts,
        change: KeyChange,
        by: &Attribution,
        now: Timestamp,
    ) -> KeyFacts {
        let steered = &mut facts.steered;
        let rule = |units, until| KeyRule::new(units, until, by, now);
        match change {
            KeyChange::Reset => {
                steered.buckets[0] = self.whole_bucket(now);
                for tier in &mut steered.buckets[1..] {
                    // It admits again what it refused.
                    tier.next.outcome = Outcome::Admit;
                }
                steered.has_bucket = false;
            }
            KeyChange::Grant { units: 0, .. } => steered.granted = None,
            KeyChange::Grant { units, until } => steered.granted = Some(rule(units, until)),
            KeyChange::Ban { until } => steered.ban = Some(rule(0, until)),
            KeyChange::Unban => (steered.ban, facts.penalty) = (None, None),
        }
        facts
    }

    fn whole_bucket(&self, now: Timestamp) -> BucketFacts {
        let algorithm = self.quota().algorithm();
        let cell = algorithm.open(Cell::EMPTY, self.fingerprint(), None, now);
        algorithm.facts(cell, self.unit().demand, now)
    }

    /// The facts of the key at `now`, with the decisions on `probe`.
    ///
    /// # Errors
    /// The store of the policy does not answer.
    pub(super) async fn facts(
        &self,
        probe: Probe,
        now: Timestamp,
    ) -> Result<KeyFacts, SteeringError> {
        let steering = &self.policy().steering;
        let mut steered = steering.facts(&self.steering_key(), probe, now).await?;
        if steered.buckets.is_empty() {
            steered.buckets.push(self.whole_bucket(now));
        }
        let penalties = self.policy().penalties.as_ref();
        Ok(KeyFacts {
            now,
            steered,
            penalty: penalties.and_then(|penalties| penalties.ban_of(self.ban_key(), now)),
        })
    }

    /// The policy's penalty in words; empty without one.
    pub(super) fn penalty(&self) -> String {
        let strikes = self.policy().penalties.as_ref().map(|one| one.strikes());
        strikes.map_or_else(String::new, |(strikes, within)| {
            format!("{strikes} refusals within {} s", within.as_secs())
        })
    }

    /// The key under which penalties ban.
    fn ban_key(&self) -> Fingerprint {
        let penalties = self.policy().penalties.as_ref();
        let secret = penalties.and_then(|penalties| penalties.secret());
        secret.map_or(self.fingerprint(), |secret| self.parts.fingerprint(&secret))
    }

    /// The key under each further override that its requests may have, with buckets of its own.
    pub fn others(&self) -> impl Iterator<Item = Self> + '_ {
        let has_buckets = |place: &&u32| self.policy().override_at(**place).quota.is_some();
        let others = self.others.iter().filter(has_buckets);
        others.map(|place| Self {
            place: Some(*place),
            others: Vec::new(),
            ..self.clone()
        })
    }

    fn steering_key(&self) -> SteeringKey<'_> {
        let write = |parts: &mut dyn KeyParts| self.parts.feed(parts);
        let steering = &self.policy().steering;
        steering.key(self.fingerprint(), &self.quota().buckets, write)
    }
}

impl HashedParts {
    fn feed(&self, parts: &mut dyn KeyParts) {
        for (kind, value) in &self.0 {
            parts.part(*kind, value);
        }
    }

    fn fingerprint(&self, secret: &Secret) -> Fingerprint {
        let mut hasher = secret.hasher();
        self.feed(&mut hasher);
        hasher.finish()
    }
}

impl KeyParts for HashedParts {
    fn part(&mut self, kind: u8, value: &[u8]) {
        self.0.push((kind, value.into()));
    }
}

/// # Errors
/// The end of a ban or a grant is over, or too far away.
fn check_end(what: &str, until: Timestamp, now: Timestamp) -> Result<(), KeyChangeError> {
    let impossible = |why: String| Err(KeyChangeError::Impossible(why));
    match until.since(now) {
        length if length.is_zero() => {
            let now = rfc_3339(now);
            impossible(format!("`until` is in the past: it is {now} now"))
        }
        length if length > LONGEST => impossible(format!("a {what} lasts at most 366 days")),
        _ => Ok(()),
    }
}
