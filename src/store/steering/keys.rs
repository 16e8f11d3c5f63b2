//! The steered keys of one policy, in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::clock::Timestamp;
use crate::limiter::bucket::Grant;
use crate::limiter::{Algorithm, Cell, Fingerprint};
use crate::store::bounded_map::{BoundedMap, HeapSize};
use crate::store::operator_action::{
    Attribution, KeyChange, KeyEvent, KeyRule, OperatorActionKind,
};
use crate::store::{Home, OnFull, Table};
use crate::telemetry::metrics::{KeyAction, SteeringMetrics};
use crate::telemetry::registry::Registry;

/// The largest number of steered keys of a policy.
const MOST_KEYS: usize = 65_536;
/// Enough that requests of different keys rarely wait for each other, and none for long.
const SHARDS: usize = 64;
/// The number of keys that the table of grants is made for.
const GRANTED_KEYS: usize = 4_096;

/// The steered keys of one policy. A reload keeps them.
#[derive(Debug)]
pub struct SteeredKeys {
    policy: Box<str>,
    /// In memory, keys are the fingerprints of their buckets. Otherwise all machines share them, and
    /// requests bring the fingerprints of synchronised buckets.
    pub(super) home: Home,
    pub(super) registry: Registry,
    /// The counters of what operators did.
    pub metrics: SteeringMetrics,
    /// At most [`MOST_KEYS`]. Requests read nothing but their number while that is 0.
    entries: BoundedMap<SteeredKey, SHARDS>,
    /// The first end of a ban or a grant, in microseconds since the epoch.
    next_end: AtomicU64,
    /// The granted units, made with the first grant.
    grants: OnceLock<Arc<Table>>,
    /// True once the warning about actions without room was logged.
    has_warned: AtomicBool,
}

/// The rules of one key.
#[derive(Clone, Debug, Default)]
struct SteeredKey {
    ban: Option<KeyRule>,
    grant: Option<KeyRule>,
    reset: Option<KeyRule>,
    /// True if the grant, or the reset, still has to be made in the buckets of this machine.
    is_grant_due: bool,
    is_reset_due: bool,
}

/// The effect of the actions on a key at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Steered {
    /// The end of the key's ban.
    pub banned_until: Option<Timestamp>,
    /// The end of the key's granted units.
    pub granted_until: Option<Timestamp>,
    /// The last instant at which its bucket or its grant changed, in the time of the store.
    pub at: Option<Timestamp>,
    /// False if the buckets of this machine still have to be changed.
    pub(super) is_applied: bool,
}

/// The error of an operator that steers more keys of a policy than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyKeys {
    /// The policy has as many steered keys as it may.
    #[error(
        "{MOST_KEYS} keys of the policy are banned, granted units or just reset, and more may not be: unban some, take grants back with `units: 0`, or wait until they end"
    )]
    Steered,
    /// Other keys have the places of the table of grants that the key may take.
    #[error(
        "the grants of other keys take all places that this key may have, in a table for {GRANTED_KEYS} keys of the policy: take some back with `units: 0`, or wait until they end"
    )]
    Granted,
}

impl HeapSize for SteeredKey {}

impl SteeredKey {
    fn rules(&self) -> impl Iterator<Item = &KeyRule> {
        [&self.ban, &self.grant, &self.reset].into_iter().flatten()
    }

    /// The rule that a change of this kind makes, replaces or ends.
    fn rule_of(&mut self, action: KeyAction) -> &mut Option<KeyRule> {
        match action {
            KeyAction::Ban | KeyAction::Unban => &mut self.ban,
            KeyAction::Grant => &mut self.grant,
            KeyAction::Reset => &mut self.reset,
        }
    }

    fn is_empty(&self) -> bool {
        self.rules().next().is_none()
    }

    /// The first end of what it has.
    fn first_end(&self) -> Option<Timestamp> {
        self.rules().map(|rule| rule.until).min()
    }

    /// Drops what is over.
    fn expire(&mut self, now: Timestamp) {
        for rule in [&mut self.ban, &mut self.grant, &mut self.reset] {
            rule.take_if(|rule| rule.until <= now);
        }
    }

    /// The ban or the grant in force.
    fn in_force(&self, kind: OperatorActionKind, now: Timestamp) -> Option<&KeyRule> {
        let rule = match kind {
            OperatorActionKind::Ban => self.ban.as_ref(),
            OperatorActionKind::Grant => self.grant.as_ref().filter(|grant| grant.units > 0),
        };
        rule.filter(|rule| now < rule.until)
    }
}

impl SteeredKeys {
    /// No key of the policy is steered yet.
    pub(super) fn new(policy: &str, home: Home, registry: &Registry) -> Self {
        Self {
            policy: policy.into(),
            home,
            registry: registry.clone(),
            metrics: SteeringMetrics::new(registry, policy),
            entries: BoundedMap::new(usize::MAX),
            next_end: AtomicU64::new(u64::MAX),
            grants: OnceLock::new(),
            has_warned: AtomicBool::new(false),
        }
    }

    fn is_in_redis(&self) -> bool {
        matches!(self.home, Home::Redis(_))
    }

    /// True if some key is steered.
    pub(super) fn is_any(&self) -> bool {
        self.entries.keys() > 0
    }

    /// The effect of the actions on `key` at `now`; `None` without any.
    pub(super) fn find(&self, key: Fingerprint, now: Timestamp) -> Option<Steered> {
        self.entries.read(key, |steered| {
            let end = |kind| steered.in_force(kind, now).map(|rule| rule.until);
            let changes = [&steered.grant, &steered.reset].into_iter().flatten();
            Some(Steered {
                banned_until: end(OperatorActionKind::Ban),
                granted_until: end(OperatorActionKind::Grant),
                at: changes.map(|rule| rule.since).max(),
                is_applied: !steered.is_grant_due && !steered.is_reset_due,
            })
        })
    }

    /// The table of granted units.
    pub(in crate::store) fn grants(&self) -> &Arc<Table> {
        self.grants.get_or_init(|| {
            let keys = Table::size_keeping(GRANTED_KEYS);
            let algorithm = Algorithm::Grant(Grant);
            Arc::new(Table::new(&*self.policy, algorithm, keys, OnFull::Forget))
        })
    }

    /// The ban or the grant of a key in force at `now`. Of a grant that machines share, the units
    /// that are left are those of the grant.
    pub fn rule(
        &self,
        key: Fingerprint,
        kind: OperatorActionKind,
        now: Timestamp,
    ) -> Option<KeyRule> {
        match kind {
            OperatorActionKind::Grant if !self.is_shared() => self.grant_of(key, key, now),
            _ => (self.entries).read(key, |steered| steered.in_force(kind, now).cloned()),
        }
    }

    /// The granted units of a key at `now`, whose bucket has the fingerprint `bucket` in memory.
    pub(in crate::store) fn grant_of(
        &self,
        key: Fingerprint,
        bucket: Fingerprint,
        now: Timestamp,
    ) -> Option<KeyRule> {
        let grant = |steered: &SteeredKey| {
            let grant = steered.in_force(OperatorActionKind::Grant, now)?;
            Some((grant.clone(), steered.is_grant_due || self.is_in_redis()))
        };
        let (mut grant, is_elsewhere) = self.entries.read(key, grant)?;
        if let Some(grants) = self.grants.get().filter(|_| !is_elsewhere) {
            grant.left = grants.peek(bucket, 0, now).remaining as u32;
        }
        Some(grant)
    }

    /// True if the grant of a key was taken back, and Redis may still have some of it.
    pub(super) fn is_taken_back(&self, key: Fingerprint) -> bool {
        let units = |steered: &SteeredKey| Some(steered.grant.as_ref()?.units);
        self.entries.read(key, units) == Some(0)
    }

    /// The bans and grants in force at `now`, some at a time.
    pub fn rules(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (Fingerprint, OperatorActionKind, KeyRule)> {
        self.entries
            .copy_shards()
            .flatten()
            .flat_map(move |(key, _)| {
                let kinds = [OperatorActionKind::Ban, OperatorActionKind::Grant];
                let rules = kinds.map(|kind| Some((key, kind, self.rule(key, kind, now)?)));
                rules.into_iter().flatten()
            })
    }

    /// The bans and grants of the snapshot file, without grants that Redis has.
    pub(in crate::store) fn saved(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (Fingerprint, OperatorActionKind, KeyRule)> {
        let rules = self.rules(now);
        rules.filter(|(_, kind, _)| *kind == OperatorActionKind::Ban || !self.is_shared())
    }

    /// The number of banned keys at `now`, or of those with a grant, spent or not.
    pub fn count(&self, kind: OperatorActionKind, now: Timestamp) -> usize {
        self.entries
            .count(|steered| steered.in_force(kind, now).is_some())
    }

    /// Changes a key that no other machine knows. The caller resets its buckets.
    ///
    /// # Errors
    /// There is no room for another key.
    pub fn change(
        &self,
        key: Fingerprint,
        change: KeyChange,
        by: &Attribution,
        now: Timestamp,
    ) -> Result<(), TooManyKeys> {
        let rule = |units, until| KeyRule::new(units, until, by, now);
        match change {
            KeyChange::Reset => {}
            KeyChange::Unban => self.change_known(key, |steered| steered.ban = None),
            KeyChange::Ban { until } => {
                return self.put(key, OperatorActionKind::Ban, rule(0, until), now);
            }
            KeyChange::Grant { units: 0, .. } => {
                self.change_known(key, |steered| steered.grant = None);
                if let Some(grants) = self.grants.get() {
                    grants.reset(key);
                }
            }
            KeyChange::Grant { units, until } => {
                return self.put(key, OperatorActionKind::Grant, rule(units, until), now);
            }
        }
        Ok(())
    }

    /// Bans a key, or grants it units, instead of any rule before.
    ///
    /// # Errors
    /// There is no room for another key.
    fn put(
        &self,
        key: Fingerprint,
        kind: OperatorActionKind,
        rule: KeyRule,
        now: Timestamp,
    ) -> Result<(), TooManyKeys> {
        if kind == OperatorActionKind::Ban {
            return self.change_or_add(key, |steered| steered.ban = Some(rule));
        }
        let cell = Cell {
            a: rule.left.min(rule.units),
            ..Grant::cell(rule.units, rule.until)
        };
        self.has_room_for(key)?;
        if !self.grants().start(key, cell, now) {
            return Err(TooManyKeys::Granted);
        }
        self.change_or_add(key, |steered| steered.grant = Some(rule))
    }

    /// Restores a ban or a grant from a snapshot. False if it is over, Redis has it, or there is no
    /// room.
    pub(in crate::store) fn restore(
        &self,
        key: Fingerprint,
        kind: OperatorActionKind,
        rule: KeyRule,
        now: Timestamp,
    ) -> bool {
        let is_ours = kind == OperatorActionKind::Ban || !self.is_shared();
        is_ours && now < rule.until && self.put(key, kind, rule, now).is_ok()
    }

    /// Applies what an operator did, on this machine or another. `clock_offset` says how far the
    /// server's clock is ahead, in microseconds.
    pub(in crate::store) fn apply(&self, event: &KeyEvent, clock_offset: i64, now: Timestamp) {
        let until = match event.change {
            // Whatever the clocks say, it is the same number on all machines.
            KeyChange::Grant { until, .. } if self.home.sync_interval().is_some() => until,
            // It only ends a ban.
            KeyChange::Unban => now,
            _ => event
                .keep
                .saturating_add_signed(clock_offset.saturating_neg()),
        };
        let (action, units) = (event.change.action(), event.change.units());
        let is_older = |known: &KeyRule| known.since < event.at;
        if until <= now {
            // A process that starts reads it after what it replaced.
            return self.change_known(event.key, |steered| {
                steered.rule_of(action).take_if(|known| is_older(known));
            });
        }
        let applied = self.change_or_add(event.key, |steered| {
            let known = steered.rule_of(action);
            if !known.as_ref().is_none_or(is_older) {
                return;
            }
            *known = Some(KeyRule::new(units, until, &event.by, event.at));
            let is_due = !self.is_in_redis();
            match action {
                KeyAction::Grant => steered.is_grant_due = is_due,
                KeyAction::Reset => steered.is_reset_due = is_due,
                KeyAction::Ban | KeyAction::Unban => {}
            }
        });
        if let Err(error) = applied
            && !self.has_warned.swap(true, Relaxed)
        {
            tracing::warn!(policy = &*self.policy, %error, "an operator's action on another machine is not applied");
        }
    }

    /// Changes the buckets of a key, under the key's lock, unless another request has done that.
    pub(super) fn apply_to_buckets(
        &self,
        key: Fingerprint,
        reset: impl FnOnce(Timestamp),
        grant: impl FnOnce(&KeyRule),
    ) {
        self.change_known(key, |steered| {
            let is_reset_due = std::mem::take(&mut steered.is_reset_due);
            if let Some(rule) = steered.reset.as_ref().filter(|_| is_reset_due) {
                reset(rule.since);
            }
            let is_grant_due = std::mem::take(&mut steered.is_grant_due);
            if let Some(rule) = steered.grant.as_ref().filter(|_| is_grant_due) {
                grant(rule);
            }
        });
    }

    /// True if other machines share the keys, and Redis has their grants.
    pub fn is_shared(&self) -> bool {
        self.home != Home::Memory
    }

    /// # Errors
    /// There is no room for another key.
    pub(super) fn has_room_for(&self, key: Fingerprint) -> Result<(), TooManyKeys> {
        if self.entries.keys() >= MOST_KEYS && !self.entries.lock(key).is_known() {
            Err(TooManyKeys::Steered)
        } else {
            Ok(())
        }
    }

    /// Drops what is over, some keys at a time.
    pub fn sweep(&self, now: Timestamp) {
        if self.next_end.load(Relaxed) > now.as_micros() {
            return;
        }
        self.next_end.store(u64::MAX, Relaxed);
        self.entries.retain_all(|_, steered| {
            steered.expire(now);
            self.note_end(steered);
            !steered.is_empty()
        });
    }

    /// Has the entry swept at its first end.
    fn note_end(&self, steered: &SteeredKey) {
        if let Some(end) = steered.first_end() {
            self.next_end.fetch_min(end.as_micros(), Relaxed);
        }
    }

    /// Changes the entry of a key, and adds one if need be.
    fn change_or_add(
        &self,
        key: Fingerprint,
        change: impl FnOnce(&mut SteeredKey),
    ) -> Result<(), TooManyKeys> {
        self.has_room_for(key)?;
        let mut entry = self.entries.lock(key);
        let change = |steered: &mut SteeredKey| {
            change(steered);
            self.note_end(steered);
        };
        entry.change_or_insert(SteeredKey::default, |_| false, change);
        Ok(())
    }

    /// Changes the entry of a key, if it has one.
    fn change_known(&self, key: Fingerprint, change: impl FnOnce(&mut SteeredKey)) {
        let mut entry = self.entries.lock(key);
        let is_empty = entry.change(|steered| {
            change(steered);
            steered.is_empty()
        });
        if is_empty == Some(true) {
            entry.remove();
        }
    }
}
