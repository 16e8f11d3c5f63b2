//! Policies of several buckets: a request that one cannot pay is tried on the next, and admitted at a lower priority.
//!
//! Each try decides by all policies at once, and charges all or none. At one instant no bucket gets back what it
//! lacked, so that it makes no difference that the tries are several steps.

use smallvec::SmallVec;

use super::{Admission, ChargeSet, MatchedLimit};
use crate::clock::Timestamp;
use crate::http::headers::Headers;
use crate::limiter::{Decision, Outcome, Verdict};
use crate::proxy::ruleset::Route;
use crate::store::{Refusals, charge_to, charge_watched};
use crate::upstream::Dscp;

/// Charges each of these limits to the first of its buckets that can pay, or none of them; the first `binding` may
/// refuse. Leaves in `asked` the buckets that were decided on. Refusals are what `last` says in the last try.
pub(crate) fn charge<'r>(
    route: &'r Route,
    asked: &mut ChargeSet<'r>,
    binding: usize,
    now: Timestamp,
    last: Refusals,
    verdict: &mut Verdict,
) {
    if !asked.overflows(route, binding) {
        charge_to(verdict, &asked.charges, binding, last, now);
        return watch_on(route, verdict, asked, now);
    }
    let attempt = Refusals::Free;
    charge_to(verdict, &asked.charges, binding, attempt, now);
    let mut given_up = GivenUp::default();
    while !verdict.is_admitted() {
        let refused = verdict.decisions[..binding].iter().enumerate();
        let refused = refused.filter(|(_, decision)| !decision.is_admitted());
        let mut goes_on = false;
        for (place, decision) in refused {
            goes_on |= given_up.note_and_go_on(route, asked, place, decision);
        }
        if !goes_on {
            break;
        }
        charge_to(verdict, &asked.charges, binding, attempt, now);
    }
    if !verdict.is_admitted() {
        // The last word: policies that charge refusals do so now, once.
        charge_to(verdict, &asked.charges, binding, last, now);
    }
    if !verdict.is_admitted() {
        given_up.shortest(verdict, asked);
    }
    watch_on(route, verdict, asked, now);
}

/// Those who only watch go on to their further buckets, too.
fn watch_on<'r>(
    route: &'r Route,
    verdict: &mut Verdict,
    asked: &mut ChargeSet<'r>,
    now: Timestamp,
) {
    let is_admitted = verdict.is_admitted();
    for place in verdict.binding()..verdict.decisions.len() {
        while !verdict.decisions[place].is_admitted() && asked.go_on(route, place) {
            let charge = asked.charges[place];
            verdict.decisions[place] = match is_admitted {
                true => charge_watched(&[charge], 0, now).decisions[0],
                false => charge.peek(now),
            };
        }
    }
}

/// What buckets said that were given up for others.
#[derive(Default)]
struct GivenUp(SmallVec<[(usize, MatchedLimit, Decision); 4]>);

impl GivenUp {
    /// Has the limit at this place ask its next bucket: whether there is one.
    fn note_and_go_on<'r>(
        &mut self,
        route: &'r Route,
        asked: &mut ChargeSet<'r>,
        place: usize,
        decision: &Decision,
    ) -> bool {
        let met = asked.applied[place];
        let goes_on = asked.go_on(route, place);
        if goes_on {
            self.0.push((place, met, *decision));
        }
        goes_on
    }

    /// The verdict in which each limit of which no bucket pays says how soon one does.
    fn shortest(self, verdict: &mut Verdict, asked: &mut ChargeSet<'_>) {
        let binding = verdict.binding();
        let mut decisions = std::mem::take(&mut verdict.decisions);
        for (place, met, earlier) in self.0.into_iter().rev() {
            let one = &mut decisions[place];
            if !one.is_admitted() && wait(&earlier) <= wait(one) {
                *one = earlier;
                asked.applied[place] = met;
            }
        }
        *verdict = Verdict::of(decisions, binding);
    }
}

/// Orders refusals by how long they last; never is the longest.
fn wait(decision: &Decision) -> (bool, Option<Timestamp>) {
    match decision.outcome {
        Outcome::Refuse { retry_at } => (retry_at.is_none(), retry_at),
        Outcome::Admit | Outcome::Delay { .. } => (false, None),
    }
}

/// Tells the upstream at what priority the request is admitted. What a client wrote in such a field goes: an
/// upstream believes it.
pub(crate) fn write(route: &Route, admission: Option<&Admission>, headers: &mut Headers) {
    for name in &route.priority_fields {
        headers.remove(name);
    }
    let lowered = admission.into_iter().flat_map(|one| one.lowered(route));
    for (name, value) in lowered.flat_map(|(_, overflow)| &overflow.fields) {
        headers.insert(name, value.clone());
    }
}

/// The code point with which the request is sent: that of the first limit that lowers its priority and names one.
pub(crate) fn dscp(route: &Route, admission: Option<&Admission>) -> Option<Dscp> {
    let mut lowered = admission?.lowered(route);
    lowered.find_map(|(_, overflow)| overflow.dscp)
}
