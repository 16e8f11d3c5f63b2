//! Refusals without a charge: by what is remembered of Redis, or because units are for others.

use smallvec::SmallVec;

use super::ChargeSet;
use crate::limiter::{Decision, Verdict};
use crate::store::ChargeResult;
use crate::store::charge_list::{ChargeList, ListedCharge};
use crate::store::memory::Ask;

impl<'a> ChargeSet<'a> {
    /// Refuses the request by this limit, whatever its bucket has: it is for others. Charges nothing, and
    /// other limits in Redis tell nothing.
    pub fn refuse_by(&self, ask: Ask, limit: u16, result: &mut ChargeResult) {
        let mut known = ChargeList::new(self.source.limits());
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        for listed in &self.list.charges {
            let is_its = listed.charge.id.limit == limit;
            if !is_its && (listed.charge.role.is_tag() || self.find_redis(listed).is_some()) {
                continue;
            }
            let (listed, decision) = listed.peek(Ask::Banned, self.now);
            known.push(listed);
            decisions.push(match decision.retry_at() {
                None if is_its && decision.is_admitted() => decision.limited_until(Some(self.now)),
                _ => decision,
            });
        }
        result.verdict = Verdict::of(decisions, known.enforced);
        known.conclude(ask, result, self.now);
    }

    /// Refuses by a cached refusal of Redis, or by bans if all of them in Redis have a cached
    /// decision: nothing is charged, and other policies in Redis tell no remaining units. Policies
    /// that charge refusals always call Redis, except for banned keys.
    pub(super) fn recall(&self, result: &mut ChargeResult) -> bool {
        let is_banned = self.is_banned();
        let mut charges = self.list.charges.iter();
        if !is_banned && charges.any(ListedCharge::is_charged_if_refused) {
            return false;
        }
        let refusal = |listed: &ListedCharge<'a>| {
            let redis = self.find_redis(listed).filter(|_| listed.can_refuse())?;
            redis.cached_refusal(*listed, self.now)
        };
        // Looked up once: answers to other requests come meanwhile.
        let refusals: SmallVec<[_; 4]> = self.list.charges.iter().map(refusal).collect();
        let is_known = if is_banned {
            let mut bans = self.list.bans();
            bans.all(|(place, one)| refusals[place].is_some() || self.find_redis(one).is_none())
        } else {
            refusals.iter().any(Option::is_some)
        };
        if !is_known {
            return false;
        }
        let store = self.store.redis();
        let decided_by = store.map_or(self.now, |store| store.decided_by(self.now));
        let mut known = ChargeList::new(self.source.limits());
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        for (listed, refusal) in self.list.charges.iter().zip(refusals) {
            let (listed, decision) = match refusal {
                Some(refusal) => refusal,
                None if listed.charge.role.is_tag() => continue,
                None if self.find_redis(listed).is_some() => continue,
                None if is_banned => listed.peek(Ask::Banned, self.now),
                None => listed.peek_spared(decided_by, self.now),
            };
            known.push(listed);
            decisions.push(decision);
        }
        result.verdict = Verdict::of(decisions, known.enforced);
        known.conclude(Ask::Charge, result, self.now);
        true
    }
}
