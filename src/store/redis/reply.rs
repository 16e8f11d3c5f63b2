//! The replies of the charge script, and the decisions derived from them.

use redis::Value;
use smallvec::SmallVec;
use std::str::FromStr;

use super::client::{Fault, FaultKind};
use super::script_call::{BucketCharge, ChargeRequest, ChargedRefusals, Tier};
use super::value::StoredBucket;
use crate::clock::Timestamp;
use crate::limiter::algorithms::WindowEnd;
use crate::limiter::bucket::Debt;
use crate::limiter::{Algorithm, Decision, Demand, Outcome};
use crate::store::Ask;

/// The reply to one call.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is nearly always the large one, and lives as long as it takes to match it"
)]
pub enum ScriptReply {
    /// The request is decided.
    Decided(ChargeReply),
    /// Nothing is decided yet, since a calendar period of the caller does not contain this instant of
    /// the server: call again with its period.
    Retry(Timestamp),
}

/// The decision on a request.
#[derive(Debug)]
pub struct ChargeReply {
    /// The reply to each charge.
    pub replies: SmallVec<[BucketReply; 4]>,
    /// True if no enforced charge refuses.
    pub is_admitted: bool,
    /// The instant of the decision, in the server's time.
    pub at: Timestamp,
}

/// The decision on one charge.
#[derive(Clone, Copy, Debug)]
pub struct BucketReply {
    /// The decision of the deciding bucket. Instants are on the caller's clock; the cell is as
    /// stored, in the server's time.
    pub decision: Decision,
    /// The place of that bucket among all buckets of the call.
    pub bucket: usize,
    /// The place of that bucket in the overflow chain; 0 is the first.
    pub tier: usize,
    /// The instant of the decision, in the server's time.
    pub at: Timestamp,
    /// The bucket's units that were unsettled before, and the start of their count.
    pub unsettled: (u64, Timestamp),
    /// True for a refusal that is in doubt: charges of other requests may still be given back.
    pub is_doubted: bool,
    /// The decision on a request of no units, if buckets are only looked at.
    pub spared: Option<Decision>,
}

/// A reply that this version's script cannot have given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The reply has another structure.
    #[error("the reply of the script is malformed")]
    Malformed,
    /// A bucket's state cannot be read.
    #[error("the script replied a bucket that cannot be read")]
    Bucket,
    /// The script and the limiter decide differently on the same state.
    #[error("the script decided otherwise than the state says that it replied")]
    Contradiction,
}

impl From<ProtocolError> for Fault {
    fn from(error: ProtocolError) -> Self {
        FaultKind::Script.with(error)
    }
}

/// The script's treatment of a bucket, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
enum ChargeOutcome {
    Charged,
    Counted,
    Spared,
    Refused,
    Doubted,
    Owed,
    Unasked,
}

impl ChargeRequest<'_> {
    /// Reads the reply to this request; `local` is now on the caller's clock.
    ///
    /// # Errors
    /// If it is no reply to this request.
    pub fn read(&self, reply: &Value, local: Timestamp) -> Result<ScriptReply, ProtocolError> {
        let fields = fields(reply)?;
        let (words, rest) = fields.split_first().ok_or(ProtocolError::Malformed)?;
        let mut words = words.split(|byte| *byte == b' ');
        let kind = words.next();
        let at = parsed(words.next().ok_or(ProtocolError::Malformed)?)?;
        let at = Timestamp::from_micros(at);
        match kind {
            Some(b"told") => Ok(ScriptReply::Decided(
                self.parse_decisions(words, rest, at, local)?,
            )),
            Some(b"again") => Ok(ScriptReply::Retry(at)),
            _ => Err(ProtocolError::Malformed),
        }
    }

    /// Reads the decision: `words` has an outcome for each state.
    fn parse_decisions<'a>(
        &self,
        mut words: impl Iterator<Item = &'a [u8]>,
        states: &[&[u8]],
        at: Timestamp,
        local: Timestamp,
    ) -> Result<ChargeReply, ProtocolError> {
        if states.len() != self.charges.len() {
            return Err(ProtocolError::Malformed);
        }
        let mut outcomes: SmallVec<[ChargeOutcome; 4]> = SmallVec::new();
        for _ in self.charges {
            let word = words.next().ok_or(ProtocolError::Malformed)?;
            outcomes.push(parsed(word)?);
        }
        let is_grant = |charge: &BucketCharge<'_>| matches!(charge.algorithm, Algorithm::Grant(_));
        let mut replies: SmallVec<[BucketReply; 4]> = SmallVec::new();
        let (mut tier, mut first) = (0, None);
        for (bucket, (charge, state)) in self.charges.iter().zip(states).enumerate() {
            tier = match charge.tier {
                Tier::First => 0,
                Tier::Overflow => tier + 1,
            };
            let outcome = outcomes[bucket];
            if is_grant(charge) {
                let quota = replies.last_mut().zip(first);
                let quota = quota.ok_or(ProtocolError::Malformed)?;
                charge.add_granted(quota, (bucket, tier), (outcome, state), self.ask, at)?;
                continue;
            }
            if outcome == ChargeOutcome::Unasked && charge.tier == Tier::Overflow {
                continue;
            }
            let next = self.charges.get(bucket + 1).zip(outcomes.get(bucket + 1));
            // Then the refusal of the quota is charged nothing.
            let is_granted = next.is_some_and(|(charge, outcome)| {
                is_grant(charge) && outcome.is_admitted() == Some(true)
            });
            let ask = match self.ask {
                Ask::Peek if is_granted => Ask::Banned,
                ask => ask,
            };
            let one = charge.reply((bucket, tier), outcome, state, ask, at)?;
            let wait = |one: &BucketReply| one.decision.outcome.wait();
            match (charge.tier, replies.last_mut()) {
                (Tier::Overflow, Some(before)) => {
                    let is_doubted = before.is_doubted || one.is_doubted;
                    if wait(&one) < wait(before) {
                        *before = one;
                    }
                    before.is_doubted = is_doubted && !before.decision.is_admitted();
                }
                _ => {
                    first = Some(one.decision);
                    replies.push(one);
                }
            }
        }
        for reply in &mut replies {
            reply.decision = to_local_clock(reply.decision, at, local);
            reply.spared = reply.spared.map(|spared| to_local_clock(spared, at, local));
        }
        let mut enforced = replies.iter().take(self.enforced);
        Ok(ChargeReply {
            is_admitted: enforced.all(|reply| reply.decision.is_admitted()),
            replies,
            at,
        })
    }
}

impl BucketCharge<'_> {
    /// The reply of this bucket, which has this place among all and in the overflow chain.
    fn reply(
        &self,
        (place, tier): (usize, usize),
        outcome: ChargeOutcome,
        state: &[u8],
        ask: Ask,
        now: Timestamp,
    ) -> Result<BucketReply, ProtocolError> {
        let bucket =
            StoredBucket::from_reply(self.algorithm, state).ok_or(ProtocolError::Bucket)?;
        // Without a charge, the bucket goes on to recover at the rate of its last one.
        let is_left = matches!(
            outcome,
            ChargeOutcome::Refused | ChargeOutcome::Doubted | ChargeOutcome::Spared
        );
        let recovering = bucket.rate.filter(|_| is_left).and_then(|rate| {
            let algorithm = self.algorithm.with_rate(rate)?;
            let own = self.algorithm.cell_rate()?;
            Some((algorithm.convert_rate(bucket.cell, own, now), algorithm))
        });
        let (cell, algorithm) = match &recovering {
            Some((cell, algorithm)) => (*cell, algorithm),
            None => (bucket.cell, self.algorithm),
        };
        let end = self.period.map(WindowEnd::of);
        let cell = algorithm.open(cell, self.key, end, now);
        let state = bucket.state(cell);
        let decide = |state, demand| algorithm.decide_keeping(state, now, demand);
        let decision = decide(state, self.demand);
        let is_admitted = outcome.is_admitted().ok_or(ProtocolError::Malformed)?;
        if decision.is_admitted() != is_admitted {
            return Err(ProtocolError::Contradiction);
        }
        // A refused request is charged what it needs.
        let owed = self.demand.owed();
        let is_peek = ask == Ask::Peek;
        let spared = (outcome == ChargeOutcome::Spared).then(|| {
            let without_cost = Demand {
                cost: 0,
                ..self.demand
            };
            let is_owed = is_peek && self.is_owed();
            decide(state, if is_owed { owed } else { without_cost })
        });
        let decision = match (ask, outcome, spared) {
            (Ask::Charge | Ask::RefusedElsewhere, _, Some(spared)) => spared,
            (_, ChargeOutcome::Counted, _) => decide(state, owed),
            // Units in a ring are not counted.
            (Ask::Peek, _, None)
                if owed.cost > 0
                    && self.charged_refusals != ChargedRefusals::None
                    && algorithm.shape().is_none() =>
            {
                let (cell, _) = algorithm.owe(state, now, now, owed.cost, Debt::Refused);
                decide(cell.into(), owed)
            }
            _ => decision,
        };
        let with_more_at = |decision: Decision| match self.demand.kept {
            0 => decision.with_more_at(algorithm.more_at(&decision, now)),
            _ => decision,
        };
        Ok(BucketReply {
            decision: with_more_at(decision),
            spared: spared
                .filter(|_| matches!(ask, Ask::Peek | Ask::Banned))
                .map(with_more_at),
            bucket: place,
            tier,
            at: now,
            // The first reservation starts the count.
            unsettled: bucket.unsettled.unwrap_or((0, now)),
            is_doubted: outcome == ChargeOutcome::Doubted,
        })
    }

    /// Adds the granted units to the decision of the quota, which they replace if they pay.
    fn add_granted(
        &self,
        (quota, first): (&mut BucketReply, Decision),
        place: (usize, usize),
        (outcome, state): (ChargeOutcome, &[u8]),
        ask: Ask,
        now: Timestamp,
    ) -> Result<(), ProtocolError> {
        let told = |decision: Decision, granted: u64| {
            let more_at = decision.more_at.map(|at| Timestamp::from_micros(at.get()));
            decision.with_granted(granted, more_at)
        };
        if outcome == ChargeOutcome::Unasked {
            let granted =
                StoredBucket::from_reply(self.algorithm, state).ok_or(ProtocolError::Bucket)?;
            let left = self.algorithm.decide(granted.cell, now, 0).remaining;
            quota.decision = told(quota.decision, left);
            quota.spared = quota.spared.map(|spared| told(spared, left));
            return Ok(());
        }
        let granted = self.reply(place, outcome, state, ask, now)?;
        let Decision { outcome, cell, .. } = granted.decision;
        if granted.decision.is_admitted() {
            let paid = |decision: Decision| Decision {
                outcome,
                cell,
                ..told(first, decision.remaining)
            };
            *quota = BucketReply {
                decision: paid(granted.decision),
                spared: granted.spared.map(paid),
                is_doubted: false,
                ..granted
            };
        } else {
            quota.decision = told(quota.decision, granted.decision.remaining);
        }
        Ok(())
    }
}

impl ChargeOutcome {
    /// True if the bucket can pay; `None` if it was not asked.
    const fn is_admitted(self) -> Option<bool> {
        match self {
            Self::Charged | Self::Counted | Self::Spared => Some(true),
            Self::Refused | Self::Doubted | Self::Owed => Some(false),
            Self::Unasked => None,
        }
    }
}

/// The instant that is as far from `to` as `instant` is from `at`.
pub(in crate::store) fn shifted(instant: Timestamp, at: Timestamp, to: Timestamp) -> Timestamp {
    match instant.as_micros().checked_sub(at.as_micros()) {
        Some(ahead) => to.saturating_add_micros(ahead),
        None => to.saturating_sub_micros(at.as_micros() - instant.as_micros()),
    }
}

/// Moves a decision's instants to the caller's clock.
pub(in crate::store) fn to_local_clock(
    decision: Decision,
    at: Timestamp,
    local: Timestamp,
) -> Decision {
    let shift = |instant| shifted(instant, at, local);
    let more_at = decision.more_at.map(|at| Timestamp::from_micros(at.get()));
    Decision {
        outcome: match decision.outcome {
            Outcome::Admit => Outcome::Admit,
            Outcome::Delay { until } => Outcome::Delay {
                until: shift(until),
            },
            Outcome::Refuse { retry_at } => Outcome::Refuse {
                retry_at: retry_at.map(shift),
            },
        },
        reset: shift(decision.reset),
        ..decision.with_more_at(more_at.map(shift))
    }
}

pub(super) fn fields(reply: &Value) -> Result<SmallVec<[&[u8]; 8]>, ProtocolError> {
    fn text(field: &Value) -> Result<&[u8], ProtocolError> {
        match field {
            Value::BulkString(text) => Ok(text),
            _ => Err(ProtocolError::Malformed),
        }
    }
    match reply {
        Value::Array(fields) => fields.iter().map(text).collect(),
        _ => Err(ProtocolError::Malformed),
    }
}

pub(super) fn parsed<T: FromStr>(word: &[u8]) -> Result<T, ProtocolError> {
    let parsed = str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    parsed.ok_or(ProtocolError::Malformed)
}
