//! What of an inquiry is asked of Redis.

use smallvec::SmallVec;

use super::asked::{Asked, Met};
use super::inquiry::Inquiry;
use crate::clock::Timestamp;
use crate::limiter::{Decision, Verdict};
use crate::proxy::asking::{Asking, Entry, Home, spared};
use crate::proxy::line::Stood;
use crate::proxy::snapshot::{Limit, Policy};
use crate::proxy::synchronised;
use crate::rules::Head;
use crate::store::Refusals;
use crate::store::redis::{Name, Store};

/// What is asked of Redis for one limit.
#[derive(Debug)]
pub(in crate::proxy) struct Remote {
    /// The place of the limit among those of the route.
    pub place: u16,
    pub name: Name,
    /// The period that a window is which this opens, where the request says that.
    pub period: Option<(Timestamp, Timestamp)>,
}

impl Remote {
    /// What this limit asks of the store for a request that it meets; `None` where its buckets are in memory.
    pub(in crate::proxy) fn of(
        (place, limit): (u16, &Limit),
        policy: &Policy,
        store: &Store,
        head: &Head<'_>,
        now: Timestamp,
    ) -> Option<Self> {
        let shared = policy.shared.as_ref()?;
        let mut namer = store.naming().namer();
        limit.descriptor.feed(head, &mut namer).ok()?;
        Some(Self {
            place,
            name: namer.name(&shared.label),
            period: policy.period(head, store.time_at(now)),
        })
    }
}

impl<'r> Inquiry<'r, '_> {
    /// Charges memory, and says what is to be asked of Redis; `None` where it is decided without.
    pub(in crate::proxy) fn ask(&mut self, stood: Stood) -> Option<Box<Asking>> {
        if self.recall() {
            self.conclude(Vec::new(), Vec::new(), stood);
            return None;
        }
        let (mut local, places, binding) = self.in_memory();
        let settled = local.settled(self.route, |_| true);
        let verdict = &mut self.admission.verdict;
        let last = Refusals::Charged;
        let mut reserved =
            local.charge_reserving(self.route, &settled, binding, self.now, last, verdict);
        if let Some(head) = self.head.filter(|_| self.route.is_synchronised) {
            let of_limits = reserved
                .iter_mut()
                .map(|(index, its)| (usize::from(local.applied[*index].0), its));
            let (rules, said) = ((self.route, head), (&*verdict, last));
            synchronised::note(rules, &local, said, self.now, of_limits);
        }
        if !verdict.is_admitted() {
            (self.asked, self.binding) = (local, binding);
            self.strike(&[]);
            self.conclude(Vec::new(), Vec::new(), stood);
            return None;
        }
        let taken = local.taken(self.route, verdict);
        for (index, &place) in places.iter().enumerate() {
            self.asked.applied[place] = local.applied[index];
        }
        let mut decisions = self.admission.verdict.decisions.drain(..);
        let mut remote = std::mem::take(&mut self.remote);
        let entries = self.asked.applied.iter().zip(&self.asked.charges);
        let entries = entries.map(|(&met, charge)| Entry {
            met,
            key: charge.key,
            cost: charge.cost,
            window_end: charge.window_end,
            home: match remote.iter().position(|remote| remote.place == met.0) {
                Some(index) => Home::Redis(remote.swap_remove(index)),
                None => Home::Memory(decisions.next().expect("memory decided on all that is its")),
            },
        });
        Some(Box::new(Asking {
            entries: entries.collect(),
            binding: self.binding,
            reserved: reserved
                .into_iter()
                .map(|(index, reservation)| (places[index], reservation))
                .collect(),
            taken,
            stood,
            noted: std::mem::take(&mut self.noted),
            answer: None,
        }))
    }

    fn is_remote(&self, met: Met) -> bool {
        self.remote.iter().any(|remote| remote.place == met.0)
    }

    /// What is asked of memory, the places of that among all, and how many of it may refuse.
    fn in_memory(&self) -> (Asked<'r>, SmallVec<[usize; 4]>, usize) {
        let mut local = Asked::default();
        let mut places = SmallVec::new();
        let mut binding = 0;
        let all = self.asked.applied.iter().zip(&self.asked.charges);
        for (place, (&met, &charge)) in all.enumerate() {
            if !self.is_remote(met) {
                local.push(met, charge);
                places.push(place);
                binding += usize::from(place < self.binding);
            }
        }
        (local, places, binding)
    }

    /// Whether Redis has refused as much lately, for which nothing is charged, and nobody is asked. What others have
    /// remaining in Redis is not said then.
    fn recall(&mut self) -> bool {
        let mut recalled: SmallVec<[(u16, Decision); 1]> = SmallVec::new();
        let binding = self.asked.applied[..self.binding].iter();
        for (&(place, chosen), charge) in binding.zip(&self.asked.charges) {
            let Some(remote) = self.remote.iter().find(|remote| remote.place == place) else {
                continue;
            };
            let policy = self.route.limits[usize::from(place)].chosen(chosen);
            let refusals = policy.shared.as_ref().map(|shared| &shared.refusals);
            let told = refusals.and_then(|it| it.recall(remote.name.key, charge.cost, self.now));
            recalled.extend(told.map(|decision| (place, decision)));
        }
        if recalled.is_empty() {
            return false;
        }
        let mut known = Asked::default();
        let mut decisions: SmallVec<[Decision; 4]> = SmallVec::new();
        let mut known_binding = 0;
        for (index, (&met, &charge)) in self
            .asked
            .applied
            .iter()
            .zip(&self.asked.charges)
            .enumerate()
        {
            let told = recalled.iter().find(|(place, _)| *place == met.0);
            let decision = match told {
                Some((_, decision)) => *decision,
                None if self.is_remote(met) => continue,
                None => spared(&charge, self.now),
            };
            known.push(met, charge);
            decisions.push(decision);
            known_binding += usize::from(index < self.binding);
        }
        self.admission.verdict = Verdict::of(decisions, known_binding);
        (self.asked, self.binding) = (known, known_binding);
        self.strike(&[]);
        true
    }
}
