//! The steered keys of one policy, in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::clock::Timestamp;
use crate::limiter::{Algorithm, Cell, Fingerprint, Grant};
use crate::store::operator_action::{
    AnnouncedAction, Announcement, Attribution, GrantedUnits, OperatorAction, OperatorActionKind,
    OperatorBan,
};
use crate::store::{Home, OnFull, Table};
use crate::telemetry::metrics::SteeringMetrics;
use crate::telemetry::registry::Registry;

/// The largest number of steered keys of a policy.
const MOST_KEYS: usize = 65_536;
/// Enough that requests of different keys rarely wait for each other, and none for long.
const SHARDS: u64 = 64;
/// The number of keys that the table of grants is made for.
const GRANTED_KEYS: usize = 4_096;

/// The steered keys of one policy. A reload keeps them.
#[derive(Debug)]
pub struct SteeredKeys {
    policy: Box<str>,
    /// In memory, keys are the fingerprints of their buckets. Otherwise all machines share them, and
    /// requests bring the fingerprints of synchronised buckets.
    home: Home,
    registry: Registry,
    metrics: SteeringMetrics,
    /// The number of entries. Requests read nothing else while it is 0.
    count: AtomicUsize,
    /// The first end of a ban or a grant, in microseconds since the epoch.
    next_end: AtomicU64,
    /// Allocated for the first key: few policies ever have one.
    shards: OnceLock<Box<[Shard]>>,
    /// The granted units, made with the first grant.
    grants: OnceLock<Arc<Table>>,
    /// True once the warning about actions without room was logged.
    has_warned: AtomicBool,
}

type Shard = RwLock<HashMap<Fingerprint, SteeredKey>>;

/// The actions of operators on one key.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct SteeredKey {
    pub(in crate::store) ban: Option<OperatorBan>,
    pub(super) grant: Option<KeyGrant>,
    pub(super) reset: Option<KeyReset>,
}

/// A grant of units to a key.
#[derive(Clone, Debug)]
pub(super) struct KeyGrant {
    pub(super) units: u32,
    pub(super) until: Timestamp,
    /// When the operator granted it, in the time of the store.
    pub(super) at: Timestamp,
    pub(super) by: Attribution,
    /// True if the bucket has the units.
    pub(super) is_applied: bool,
}

/// A reset of a key on all machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyReset {
    /// When the operator reset it, in the time of the store.
    pub(super) at: Timestamp,
    /// The last instant at which it matters.
    pub(super) until: Timestamp,
    /// True if the bucket on this machine is reset.
    pub(super) is_applied: bool,
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

impl KeyGrant {
    /// The grant as long as nothing of it is spent.
    fn granted(&self) -> GrantedUnits {
        GrantedUnits {
            left: self.units,
            units: self.units,
            since: self.at,
            until: self.until,
            by: self.by.clone(),
        }
    }
}

impl SteeredKey {
    fn is_empty(&self) -> bool {
        self.ban.is_none() && self.grant.is_none() && self.reset.is_none()
    }

    /// The first end of what it has.
    fn first_end(&self) -> Option<Timestamp> {
        let ban = self.ban.as_ref().map(|ban| ban.until);
        let grant = self.grant.as_ref().map(|grant| grant.until);
        let reset = self.reset.map(|reset| reset.until);
        [ban, grant, reset].into_iter().flatten().min()
    }

    /// Drops what is over.
    fn expire(&mut self, now: Timestamp) {
        self.ban.take_if(|ban| ban.until <= now);
        self.grant.take_if(|grant| grant.until <= now);
        self.reset.take_if(|reset| reset.until <= now);
    }

    /// Drops what an action at `at` replaces.
    fn forget(&mut self, action: &AnnouncedAction, at: Timestamp) {
        match action {
            AnnouncedAction::Ban(_) | AnnouncedAction::Unban => {
                self.ban.take_if(|ban| ban.since < at);
            }
            AnnouncedAction::Grant { .. } => {
                self.grant.take_if(|grant| grant.at < at);
            }
            AnnouncedAction::Reset => {}
        }
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
            count: AtomicUsize::new(0),
            next_end: AtomicU64::new(u64::MAX),
            shards: OnceLock::new(),
            grants: OnceLock::new(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// The place of the keys' buckets.
    pub(super) fn home(&self) -> Home {
        self.home
    }

    fn is_in_redis(&self) -> bool {
        matches!(self.home, Home::Redis(_))
    }

    /// The registry of its metrics.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The counters of what operators did.
    pub fn metrics(&self) -> &SteeringMetrics {
        &self.metrics
    }

    /// True if some key is steered.
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// The effect of the actions on `key` at `now`; `None` without any.
    pub(super) fn find(&self, key: Fingerprint, now: Timestamp) -> Option<Steered> {
        self.read(key, |steered| {
            let ban = steered.ban.as_ref().map(|ban| ban.until);
            let (grant, reset) = (steered.grant.as_ref(), steered.reset);
            let instants = [grant.map(|grant| grant.at), reset.map(|reset| reset.at)];
            Steered {
                banned_until: ban.filter(|until| now < *until),
                granted_until: grant
                    .filter(|grant| now < grant.until && grant.units > 0)
                    .map(|grant| grant.until),
                at: instants.into_iter().flatten().max(),
                is_applied: grant.is_none_or(|grant| grant.is_applied)
                    && reset.is_none_or(|reset| reset.is_applied),
            }
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

    /// The ban of a key at `now`.
    pub fn ban_of(&self, key: Fingerprint, now: Timestamp) -> Option<OperatorBan> {
        let ban = self.read(key, |steered| steered.ban.clone()).flatten();
        ban.filter(|ban| now < ban.until)
    }

    /// The granted units of a key at `now`, whose bucket has the fingerprint `bucket` in memory.
    pub(in crate::store) fn grant_of(
        &self,
        key: Fingerprint,
        bucket: Fingerprint,
        now: Timestamp,
    ) -> Option<GrantedUnits> {
        let grant = self.read(key, |steered| steered.grant.clone()).flatten()?;
        let is_in_table = grant.is_applied && !self.is_in_redis();
        let table = self.grants.get().filter(|_| is_in_table);
        let left = table.map(|grants| grants.peek(bucket, 0, now).remaining);
        (now < grant.until && grant.units > 0).then(|| GrantedUnits {
            left: left.unwrap_or(grant.units),
            ..grant.granted()
        })
    }

    /// True if the grant of a key was taken back, and Redis may still have some of it.
    pub(super) fn is_taken_back(&self, key: Fingerprint) -> bool {
        let grant = self.read(key, |steered| {
            steered.grant.as_ref().map(|grant| grant.units)
        });
        grant.flatten() == Some(0)
    }

    /// The bans and grants in force at `now`, some at a time.
    pub fn actions(&self, now: Timestamp) -> impl Iterator<Item = (Fingerprint, OperatorAction)> {
        let shards = self.shards.get().into_iter().flatten();
        shards.flat_map(move |shard| {
            let keys: Vec<Fingerprint> = shard.read().keys().copied().collect();
            keys.into_iter().flat_map(move |key| {
                let kinds = [OperatorActionKind::Ban, OperatorActionKind::Grant];
                let actions = kinds.map(|kind| Some((key, self.action(key, kind, now)?)));
                actions.into_iter().flatten()
            })
        })
    }

    /// The ban or the grant of a key at `now`.
    pub fn action(
        &self,
        key: Fingerprint,
        kind: OperatorActionKind,
        now: Timestamp,
    ) -> Option<OperatorAction> {
        match kind {
            OperatorActionKind::Ban => self.ban_of(key, now).map(OperatorAction::Ban),
            OperatorActionKind::Grant if self.is_shared() => {
                let grant = self.read(key, |steered| steered.grant.clone()).flatten();
                let grant = grant.filter(|grant| now < grant.until && grant.units > 0)?;
                Some(OperatorAction::Grant(grant.granted()))
            }
            OperatorActionKind::Grant => self.grant_of(key, key, now).map(OperatorAction::Grant),
        }
    }

    /// The number of banned keys at `now`.
    pub fn banned_keys(&self, now: Timestamp) -> usize {
        let is_banned = |ban: &OperatorBan| now < ban.until;
        self.count(|steered| steered.ban.as_ref().is_some_and(is_banned))
    }

    /// The number of keys with a grant at `now`, spent or not.
    pub fn granted_keys(&self, now: Timestamp) -> usize {
        let is_granted = |grant: &KeyGrant| now < grant.until && grant.units > 0;
        self.count(|steered| steered.grant.as_ref().is_some_and(is_granted))
    }

    fn count(&self, counts: impl Fn(&SteeredKey) -> bool) -> usize {
        if !self.is_any() {
            return 0;
        }
        let shards = self.shards.get().into_iter().flatten();
        let counted = shards.map(|shard| {
            let keys = shard.read();
            keys.values().filter(|steered| counts(steered)).count()
        });
        counted.sum()
    }

    /// Bans a key, instead of any earlier ban.
    ///
    /// # Errors
    /// There is no room for another key.
    pub fn ban(&self, key: Fingerprint, ban: OperatorBan) -> Result<(), TooManyKeys> {
        self.change(key, |steered| steered.ban = Some(ban))
    }

    /// Lifts the ban of a key.
    pub fn unban(&self, key: Fingerprint) {
        self.change_known(key, |steered| steered.ban = None);
    }

    /// Grants units to a key until an instant, instead of any earlier grant. 0 units take that back.
    ///
    /// # Errors
    /// There is no room for another key.
    pub fn grant(
        &self,
        key: Fingerprint,
        units: u32,
        until: Timestamp,
        by: &Attribution,
        now: Timestamp,
    ) -> Result<(), TooManyKeys> {
        if units == 0 {
            self.take_back(key);
            return Ok(());
        }
        let granted = GrantedUnits {
            left: units,
            units,
            since: now,
            until,
            by: by.clone(),
        };
        self.start_grant(key, granted, now)
    }

    /// Takes the grant of a key back.
    pub fn take_back(&self, key: Fingerprint) {
        self.change_known(key, |steered| steered.grant = None);
        if let Some(grants) = self.grants.get() {
            grants.reset(key);
        }
    }

    fn start_grant(
        &self,
        key: Fingerprint,
        granted: GrantedUnits,
        now: Timestamp,
    ) -> Result<(), TooManyKeys> {
        let GrantedUnits {
            left,
            units,
            since,
            until,
            by,
        } = granted;
        let cell = Cell {
            a: left.min(units),
            ..Grant::cell(units, until)
        };
        self.has_room_for(key)?;
        if !self.grants().start(key, cell, now) {
            return Err(TooManyKeys::Granted);
        }
        let grant = KeyGrant {
            units,
            until,
            at: since,
            by,
            is_applied: true,
        };
        self.change(key, |steered| steered.grant = Some(grant))
    }

    /// Applies what an operator did, on this machine or another. `clock_offset` says how far the
    /// server's clock is ahead, in microseconds.
    pub(in crate::store) fn apply(&self, one: &Announcement, clock_offset: i64, now: Timestamp) {
        let (at, keep) = (one.at, one.keep);
        let until = match one.action {
            // Whatever the clocks say, it is the same number on all machines.
            AnnouncedAction::Grant { ends, .. } if self.home.sync_interval().is_some() => {
                ends.unwrap_or(keep)
            }
            _ => keep.saturating_add_signed(clock_offset.saturating_neg()),
        };
        if until <= now {
            // A process that starts reads it after what it replaced.
            self.change_known(one.key, |steered| steered.forget(&one.action, at));
            return;
        }
        let is_new = |known: Option<Timestamp>| known.is_none_or(|known| known < at);
        let applied = match &one.action {
            AnnouncedAction::Ban(by) => self.change(one.key, |steered| {
                if is_new(steered.ban.as_ref().map(|ban| ban.since)) {
                    steered.ban = Some(OperatorBan {
                        since: at,
                        until,
                        by: by.clone(),
                    });
                }
            }),
            AnnouncedAction::Unban => {
                self.change_known(one.key, |steered| steered.forget(&one.action, at));
                Ok(())
            }
            AnnouncedAction::Grant { units, by, .. } => self.change(one.key, |steered| {
                if is_new(steered.grant.as_ref().map(|grant| grant.at)) {
                    steered.grant = Some(KeyGrant {
                        units: *units,
                        until,
                        at,
                        by: by.clone(),
                        is_applied: self.is_in_redis(),
                    });
                }
            }),
            AnnouncedAction::Reset => self.change(one.key, |steered| {
                if is_new(steered.reset.map(|reset| reset.at)) {
                    steered.reset = Some(KeyReset {
                        at,
                        until,
                        is_applied: self.is_in_redis(),
                    });
                }
            }),
        };
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
        grant: impl FnOnce(&KeyGrant),
    ) {
        self.change_known(key, |steered| {
            if let Some(one) = steered.reset.as_mut().filter(|one| !one.is_applied) {
                one.is_applied = true;
                reset(one.at);
            }
            if let Some(one) = steered.grant.as_mut().filter(|one| !one.is_applied) {
                one.is_applied = true;
                grant(one);
            }
        });
    }

    /// True if other machines share the keys, and Redis has their grants.
    pub fn is_shared(&self) -> bool {
        self.home != Home::Memory
    }

    /// Restores a ban from a snapshot. False if it is over, or there is no room.
    pub(in crate::store) fn restore_ban(
        &self,
        key: Fingerprint,
        ban: OperatorBan,
        now: Timestamp,
    ) -> bool {
        now < ban.until && self.ban(key, ban).is_ok()
    }

    /// Restores a grant from a snapshot. False if it is over, or there is no room.
    pub(in crate::store) fn restore_grant(
        &self,
        key: Fingerprint,
        granted: GrantedUnits,
        now: Timestamp,
    ) -> bool {
        let is_its = now < granted.until && !self.is_shared();
        is_its && self.start_grant(key, granted, now).is_ok()
    }

    /// # Errors
    /// There is no room for another key.
    pub(super) fn has_room_for(&self, key: Fingerprint) -> Result<(), TooManyKeys> {
        let is_full = self.count.load(Relaxed) >= MOST_KEYS;
        if is_full && self.read(key, |_| ()).is_none() {
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
        for shard in self.shards() {
            let mut keys = shard.write();
            let before = keys.len();
            keys.retain(|_, steered| {
                steered.expire(now);
                !steered.is_empty()
            });
            let ends = keys.values().filter_map(SteeredKey::first_end);
            if let Some(first) = ends.min() {
                self.next_end.fetch_min(first.as_micros(), Relaxed);
            }
            self.count.fetch_sub(before - keys.len(), Relaxed);
        }
    }

    /// Copies of all entries that count at `now`, some at a time, without those that other machines
    /// or Redis tell.
    pub(in crate::store) fn saved(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = Vec<(Fingerprint, SteeredKey)>> {
        let shards = self.shards.get().into_iter().flatten();
        shards.map(move |shard| {
            let keys = shard.read();
            let copies = keys.iter().map(|(key, steered)| {
                let mut steered = steered.clone();
                steered.expire(now);
                steered.reset = None;
                steered.grant.take_if(|_| self.is_shared());
                (*key, steered)
            });
            copies.filter(|(_, steered)| !steered.is_empty()).collect()
        })
    }

    fn read<R>(&self, key: Fingerprint, read: impl FnOnce(&SteeredKey) -> R) -> Option<R> {
        if !self.is_any() {
            return None;
        }
        self.shard(key).read().get(&key).map(read)
    }

    /// Changes the entry of a key, and adds one if need be.
    fn change(
        &self,
        key: Fingerprint,
        change: impl FnOnce(&mut SteeredKey),
    ) -> Result<(), TooManyKeys> {
        let mut keys = self.shard(key).write();
        let steered = match keys.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if self.count.load(Relaxed) >= MOST_KEYS => {
                return Err(TooManyKeys::Steered);
            }
            Entry::Vacant(new) => {
                self.count.fetch_add(1, Relaxed);
                new.insert(SteeredKey::default())
            }
        };
        change(steered);
        if let Some(end) = steered.first_end() {
            self.next_end.fetch_min(end.as_micros(), Relaxed);
        }
        Ok(())
    }

    /// Changes the entry of a key, if it has one.
    fn change_known(&self, key: Fingerprint, change: impl FnOnce(&mut SteeredKey)) {
        let mut keys = self.shard(key).write();
        if let Some(steered) = keys.get_mut(&key) {
            change(steered);
            if steered.is_empty() {
                keys.remove(&key);
                self.count.fetch_sub(1, Relaxed);
            }
        }
    }

    fn shard(&self, key: Fingerprint) -> &Shard {
        &self.shards()[(key.bits() % SHARDS) as usize]
    }

    fn shards(&self) -> &[Shard] {
        self.shards
            .get_or_init(|| (0..SHARDS).map(|_| Shard::default()).collect())
    }
}
