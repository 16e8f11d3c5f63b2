//! Requests that policies in Redis decide on. Buckets in memory are charged first, then Redis is asked, and what memory was
//! charged is given back if Redis refuses: all of it or none.

use std::sync::Arc;

use smallvec::SmallVec;

use super::admission::{Admission, Asked, Inquiry, Met, Remote};
use super::complaints::Complaints;
use super::error::Error;
use super::line::Stood;
use super::settle::Due;
use super::snapshot::{OnStoreError, Policy, Route};
use super::taken::Taken;
use crate::clock::Timestamp;
use crate::limiter::{Decision, Fingerprint, Secret, Verdict};
use crate::store::redis::{self, Decisions, Store, Tier, Unanswered};
use crate::store::{Charge, Refusals, Reservation, charge_to};
use crate::telemetry::metrics::LimitDecision;

/// What a policy in Redis has for its requests.
#[derive(Debug)]
pub struct Shared {
    /// What it is called there.
    pub(super) label: Box<str>,
    /// What becomes of requests that Redis says nothing of.
    pub(super) on_error: OnStoreError,
    /// What Redis has refused lately.
    pub(super) refusals: redis::RefusalCache,
    /// What it answered that nobody can use.
    pub(super) complaints: Complaints,
}

/// A bucket that is asked, as it is kept while Redis is waited for.
#[derive(Debug)]
pub(super) struct Entry {
    pub met: Met,
    pub key: Fingerprint,
    pub cost: u32,
    pub window_end: Option<Timestamp>,
    pub home: Home,
}

/// Where a bucket is.
#[derive(Debug)]
pub(super) enum Home {
    /// In memory, which decided so.
    Memory(Decision),
    Redis(Remote),
}

/// A request that Redis is asked about. Dropped meanwhile, what memory was charged stays so.
#[derive(Debug)]
pub(super) struct Asking {
    /// All that is asked, those first that may refuse.
    pub entries: SmallVec<[Entry; 4]>,
    pub binding: usize,
    /// What memory was charged, by the places among the entries.
    pub reserved: Vec<(usize, Reservation)>,
    pub taken: Vec<Taken>,
    pub stood: Stood,
    pub noted: SmallVec<[(u16, LimitDecision); 1]>,
    pub answer: Option<Result<Decisions, Unanswered>>,
}

/// What a bucket in memory says of a request that is refused by another.
pub(super) fn spared(charge: &Charge<'_>, now: Timestamp) -> Decision {
    let decision = charge.peek(now);
    match decision.is_admitted() {
        true => Charge { cost: 0, ..*charge }.peek(now),
        false => decision,
    }
}

impl Asking {
    /// Asks, and keeps the answer.
    pub(super) async fn pass(
        mut self: Box<Self>,
        store: &Arc<Store>,
        route: &Route,
        worker: usize,
        now: Timestamp,
    ) -> Box<Self> {
        let (charges, binding) = self.charges(route);
        let answer = store.charge(worker, &charges, binding, now).await;
        drop(charges);
        self.answer = Some(answer);
        self
    }

    /// The charges in Redis, those first that may refuse, and how many those are.
    fn charges<'a>(&'a self, route: &'a Route) -> (Vec<redis::Charge<'a>>, usize) {
        let mut binding = 0;
        let remote = self
            .entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let Home::Redis(remote) = &entry.home else {
                    return None;
                };
                binding += usize::from(index < self.binding);
                let table = &entry.policy(route).table;
                Some(redis::Charge {
                    algorithm: table.algorithm(),
                    name: &remote.name.bytes,
                    key: remote.name.key,
                    cost: entry.cost,
                    refusals: table.refusals(),
                    period: remote.period,
                    tier: Tier::First,
                })
            });
        (remote.collect(), binding)
    }

    /// Makes `admission` what came of it.
    ///
    /// # Errors
    /// Where a limit refuses because its store does not answer.
    pub(super) fn conclude(
        mut self: Box<Self>,
        route: &Route,
        secret: &Secret,
        now: Timestamp,
        admission: &mut Admission,
    ) -> Result<(), Error> {
        let remote = match self.answer.take() {
            Some(Ok(decisions)) => {
                self.note(route, &decisions, now);
                decisions
            }
            Some(Err(error)) => self.without_store(route, &error, now)?,
            None => Decisions::new(),
        };
        let mut inquiry = Inquiry::new(route, secret, now, admission);
        inquiry.noted = std::mem::take(&mut self.noted);
        let dues = self.tell(remote, &mut inquiry);
        inquiry.strike(&[]);
        inquiry.conclude(dues, std::mem::take(&mut self.taken), self.stood);
        Ok(())
    }

    /// What the limits in Redis say while it says nothing, in their order; `None` of those that admit.
    fn without_store(
        &mut self,
        route: &Route,
        error: &Unanswered,
        now: Timestamp,
    ) -> Result<Decisions, Error> {
        let mut local = Asked::default();
        let mut binding = 0;
        let mut told: SmallVec<[Option<usize>; 4]> = SmallVec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let Home::Redis(_) = entry.home else {
                continue;
            };
            let policy = entry.policy(route);
            let on_error = policy.shared.as_ref().map(|shared| {
                if !error.is_of_the_server() {
                    shared.complaints.report_undecided(now, &policy.name, error);
                }
                shared.on_error
            });
            let is_binding = index < self.binding;
            if on_error == Some(OnStoreError::Local) {
                told.push(Some(local.charges.len()));
                local.push(entry.met, entry.charge(route));
                binding += usize::from(is_binding);
                continue;
            }
            let metrics = &route.limits[usize::from(entry.met.0)].metrics;
            metrics.record(LimitDecision::Error);
            if on_error == Some(OnStoreError::Refuse) && is_binding {
                for (_, reservation) in self.reserved.drain(..) {
                    reservation.give_back(now);
                }
                return Err(Error::Undecided);
            }
            told.push(None);
        }
        let mut verdict = Verdict::default();
        charge_to(
            &mut verdict,
            &local.charges,
            binding,
            Refusals::Charged,
            now,
        );
        let decisions = told.iter().map(|place| Some(verdict.decisions[(*place)?]));
        Ok(decisions.collect())
    }

    /// Puts together what memory and Redis said, gives back what memory was charged if Redis refuses, and returns what the
    /// response is to settle.
    fn tell<'r>(&mut self, remote: Decisions, inquiry: &mut Inquiry<'r, '_>) -> Vec<Due> {
        let (route, now) = (inquiry.route, inquiry.now);
        let refuses = |(one, may): (&Option<Decision>, bool)| {
            may && one.is_some_and(|decision| !decision.is_admitted())
        };
        let is_admitted = !remote.iter().zip(self.may_refuse()).any(refuses);
        let mut dues = Vec::new();
        for (index, reservation) in self.reserved.drain(..) {
            let entry = &self.entries[index];
            let place = usize::from(entry.met.0);
            let keeps = entry.policy(route).table.refusals() == Refusals::Charged;
            match is_admitted {
                true if route.limits[place].settlement.is_some() => {
                    dues.push(Due { place, reservation });
                }
                false if !keeps => reservation.give_back(now),
                _ => {}
            }
        }
        if !is_admitted {
            self.taken.clear();
        }
        let mut remote = remote.into_iter();
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let charge = entry.charge(route);
            let decision = match &entry.home {
                Home::Memory(decision) if is_admitted => *decision,
                Home::Memory(decision) if !decision.is_admitted() => *decision,
                Home::Memory(_) => spared(&charge, now),
                Home::Redis(_) => match remote.next().flatten() {
                    Some(decision) => decision,
                    None => continue,
                },
            };
            inquiry.asked.push(entry.met, charge);
            inquiry.binding += usize::from(index < self.binding);
            decisions.push(decision);
        }
        inquiry.admission.verdict = Verdict::of(decisions, inquiry.binding);
        dues
    }

    /// Remembers what Redis has refused. Where each refusal is charged, each has to be told.
    fn note(&self, route: &Route, decisions: &[Option<Decision>], now: Timestamp) {
        let remote = self.entries.iter().filter_map(|entry| match &entry.home {
            Home::Redis(remote) => Some((entry, remote)),
            Home::Memory(_) => None,
        });
        for ((entry, remote), decision) in remote.zip(decisions) {
            let policy = entry.policy(route);
            if let (Some(shared), Some(decision), Refusals::Free) =
                (&policy.shared, decision, policy.table.refusals())
            {
                let key = remote.name.key;
                shared.refusals.note(key, entry.cost, decision, now);
            }
        }
    }

    /// Of each charge in Redis whether it may refuse.
    fn may_refuse(&self) -> impl Iterator<Item = bool> {
        let remote = self.entries.iter().enumerate();
        remote
            .filter(|(_, entry)| matches!(entry.home, Home::Redis(_)))
            .map(|(index, _)| index < self.binding)
    }
}

impl Entry {
    fn policy<'r>(&self, route: &'r Route) -> &'r Policy {
        let (place, chosen) = self.met;
        route.limits[usize::from(place)].chosen(chosen)
    }

    /// The charge in memory.
    fn charge<'r>(&self, route: &'r Route) -> Charge<'r> {
        Charge {
            table: &self.policy(route).table,
            key: self.key,
            cost: self.cost,
            window_end: self.window_end,
        }
    }
}
