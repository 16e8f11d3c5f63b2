//! What the script says, and the verdict in it.

use std::num::NonZero;

use redis::Value;
use smallvec::SmallVec;

use super::config_drift::{ConfigDrift, Conversion};
use super::script_call::{BucketCharge, ChargeRequest, ScriptCall, Tier};
use super::value::{self, StoredBucket};
use crate::clock::Timestamp;
use crate::limiter::{Decision, Outcome, Verdict, WindowEnd};

/// What is to be done after a call.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is nearly always the large one, and lives as long as it takes to match it"
)]
pub enum ScriptReply {
    /// The request is decided.
    Decided(ChargeReply),
    /// Nothing is decided: the same request is to be asked again, of this.
    Retry(RetryInputs),
}

/// A request that is decided.
#[derive(Debug)]
pub struct ChargeReply {
    /// Of each charge, at its place among the charges, what the bucket says that decides. Instants are those of the caller's
    /// clock, but cells are as they are stored, in the server's time.
    pub verdict: Verdict,
    /// The places of those buckets among all that were asked.
    pub buckets: SmallVec<[usize; 4]>,
    /// How many units of each of those buckets were still to be settled before, and since when they are counted.
    pub unsettled: SmallVec<[(u64, Timestamp); 4]>,
    /// The instant at which it was decided, in the server's time.
    pub at: Timestamp,
}

/// What a charge was told.
#[derive(Clone, Copy, Debug)]
pub struct BucketReply {
    /// By the bucket that decides.
    pub decision: Decision,
    /// Which of its buckets that is; 0 is the first.
    pub tier: usize,
    /// When, in the server's time.
    pub at: Timestamp,
    /// How many units of that bucket were still to be settled before, and since when they are counted.
    pub unsettled: (u64, Timestamp),
}

/// What the script has to be told before it decides: values of another recipe under this one, and the server's time.
#[derive(Clone, Debug, Default)]
pub struct RetryInputs {
    at: Option<Timestamp>,
    instead: Vec<ConvertedValue>,
}

#[derive(Clone, Debug)]
struct ConvertedValue {
    place: usize,
    digest: Vec<u8>,
    value: Vec<u8>,
    /// Whether it takes the other's place, whatever is decided.
    is_left: bool,
}

/// What no script says of what was asked: another script answers, or there is a mistake in this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// It is not made as a reply is.
    #[error("the reply of the script is malformed")]
    Malformed,
    /// A bucket cannot be read, or not under the recipe that it has.
    #[error("the script replied a bucket that cannot be read")]
    Bucket,
    /// The state of a bucket does not say what the script did.
    #[error("the script decided otherwise than the state says that it replied")]
    Contradiction,
}

/// What a bucket says, and what of it was still to be settled.
struct BucketDecision {
    decision: Decision,
    unsettled: (u64, Timestamp),
}

/// What the script did about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChargeOutcome {
    Charged,
    Spared,
    Refused,
    Owed,
    Unasked,
}

impl RetryInputs {
    /// The server's time.
    pub(super) fn at(&self) -> Option<Timestamp> {
        self.at
    }

    /// The places of what took the other's place.
    pub(super) fn left(&self) -> impl Iterator<Item = usize> {
        let left = self.instead.iter().filter(|one| one.is_left);
        left.map(|one| one.place)
    }

    /// Of which buckets it is, and of each the digest of what is there, and what that is under its recipe.
    pub(super) fn push(&self, ask: &mut ScriptCall) {
        ask.number(self.instead.len() as u64);
        for known in &self.instead {
            ask.number(known.place as u64);
            ask.bytes(&known.digest);
            ask.bytes(&known.value);
            ask.text(if known.is_left { "left" } else { "" });
        }
    }
}

impl ChargeRequest<'_> {
    /// Reads the reply to what was asked; `local` is now on the caller's clock.
    ///
    /// # Errors
    /// When it is no reply to that.
    pub fn read(&self, reply: &Value, local: Timestamp) -> Result<ScriptReply, ProtocolError> {
        let fields = fields(reply)?;
        let (words, rest) = fields.split_first().ok_or(ProtocolError::Malformed)?;
        let mut words = words.split(|byte| *byte == b' ');
        let kind = words.next();
        let at = number(words.next().ok_or(ProtocolError::Malformed)?)?;
        let at = Timestamp::from_micros(at);
        match kind {
            Some(b"told") => Ok(ScriptReply::Decided(self.told(words, rest, at, local)?)),
            Some(b"again") => Ok(ScriptReply::Retry(self.again(rest, at)?)),
            _ => Err(ProtocolError::Malformed),
        }
    }

    fn again(&self, others: &[&[u8]], at: Timestamp) -> Result<RetryInputs, ProtocolError> {
        let (others, rest) = others.as_chunks::<3>();
        if !rest.is_empty() {
            return Err(ProtocolError::Malformed);
        }
        let instead = |[place, digest, value]: &[&[u8]; 3]| {
            let place = number(place)? as usize;
            let charge = self.charges.get(place).ok_or(ProtocolError::Malformed)?;
            let meet = |leftovers: &ConfigDrift| leftovers.meet(charge, digest, at);
            let met = self.leftovers.map_or(Conversion::first(at), meet);
            let value =
                value::converted(charge.algorithm, value, met.at).ok_or(ProtocolError::Bucket)?;
            Ok(ConvertedValue {
                place,
                digest: digest.to_vec(),
                value,
                is_left: met.is_left,
            })
        };
        let instead = others.iter().map(instead).collect::<Result<_, _>>()?;
        Ok(RetryInputs {
            at: Some(at),
            instead,
        })
    }

    /// What was done is in the words, one for each state.
    fn told<'a>(
        &self,
        mut words: impl Iterator<Item = &'a [u8]>,
        states: &[&[u8]],
        at: Timestamp,
        local: Timestamp,
    ) -> Result<ChargeReply, ProtocolError> {
        if states.len() != self.charges.len() {
            return Err(ProtocolError::Malformed);
        }
        let mut decided: SmallVec<[(usize, BucketDecision); 4]> = SmallVec::new();
        for (place, (charge, state)) in self.charges.iter().zip(states).enumerate() {
            let did = ChargeOutcome::read(words.next().ok_or(ProtocolError::Malformed)?)?;
            if did == ChargeOutcome::Unasked && charge.tier == Tier::Further {
                continue;
            }
            if let (ChargeOutcome::Charged | ChargeOutcome::Owed, Some(leftovers)) =
                (did, self.leftovers)
                && charge.cost > 0
            {
                leftovers.wrote(charge, at);
            }
            let one = charge.decided(did, state, at)?;
            let is_watching = decided.len() > self.binding;
            match (charge.tier, decided.last_mut()) {
                (Tier::Further, Some(before)) => {
                    if is_watching || comes_sooner(&one.decision, &before.1.decision) {
                        *before = (place, one);
                    }
                }
                _ => decided.push((place, one)),
            }
        }
        let shifted = |(_, one): &(usize, BucketDecision)| shifted(one.decision, at, local);
        Ok(ChargeReply {
            verdict: Verdict::of(decided.iter().map(shifted), self.binding),
            buckets: decided.iter().map(|(place, _)| *place).collect(),
            unsettled: decided.iter().map(|(_, one)| one.unsettled).collect(),
            at,
        })
    }
}

impl ChargeReply {
    /// What each of the charges that these buckets were asked for was told.
    pub(super) fn said(&self, asked: &[BucketCharge<'_>]) -> impl Iterator<Item = BucketReply> {
        let all = self.buckets.iter().zip(&self.verdict.decisions);
        all.zip(&self.unsettled)
            .map(|((&bucket, &decision), &unsettled)| BucketReply {
                decision,
                unsettled,
                tier: asked[..=bucket]
                    .iter()
                    .rev()
                    .take_while(|one| one.tier == Tier::Further)
                    .count(),
                at: self.at,
            })
    }
}

impl BucketCharge<'_> {
    /// What the bucket says, of which the script told this.
    fn decided(
        &self,
        did: ChargeOutcome,
        state: &[u8],
        now: Timestamp,
    ) -> Result<BucketDecision, ProtocolError> {
        let held = StoredBucket::told(self.algorithm, state).ok_or(ProtocolError::Bucket)?;
        let end = self.period.map(WindowEnd::of);
        let cell = self.algorithm.opened_until(held.cell, self.key, end, now);
        let decide = |cost| self.algorithm.decide(held.state(cell), now, cost);
        let decision = decide(self.cost);
        let is_admitted = match did {
            ChargeOutcome::Charged | ChargeOutcome::Spared => true,
            ChargeOutcome::Refused | ChargeOutcome::Owed => false,
            ChargeOutcome::Unasked => return Err(ProtocolError::Malformed),
        };
        if decision.is_admitted() != is_admitted {
            return Err(ProtocolError::Contradiction);
        }
        let decision = match did {
            ChargeOutcome::Spared => decide(0),
            _ => decision,
        };
        let more_at = self.algorithm.more_at(&decision, now);
        let decision = Decision {
            more_at: more_at.and_then(|at| NonZero::new(at.as_micros())),
            ..decision
        };
        Ok(BucketDecision {
            decision,
            // Who is the first to reserve units has them counted from now on.
            unsettled: held.unsettled.unwrap_or((0, now)),
        })
    }
}

impl ChargeOutcome {
    fn read(word: &[u8]) -> Result<Self, ProtocolError> {
        Ok(match word {
            b"charged" => Self::Charged,
            b"spared" => Self::Spared,
            b"refused" => Self::Refused,
            b"owed" => Self::Owed,
            b"unasked" => Self::Unasked,
            _ => return Err(ProtocolError::Malformed),
        })
    }
}

/// Whether a further bucket says better than those before it: it admits, or its refusal ends sooner.
fn comes_sooner(further: &Decision, before: &Decision) -> bool {
    let wait = |decision: &Decision| match decision.outcome {
        Outcome::Refuse { retry_at } => (retry_at.is_none(), retry_at),
        Outcome::Admit | Outcome::Delay { .. } => (false, None),
    };
    wait(further) < wait(before)
}

/// The decision as the caller's clock sees it.
fn shifted(decision: Decision, at: Timestamp, local: Timestamp) -> Decision {
    let shift = |instant: Timestamp| match instant.as_micros().checked_sub(at.as_micros()) {
        Some(ahead) => local.saturating_add_micros(ahead),
        None => local.saturating_sub_micros(at.as_micros() - instant.as_micros()),
    };
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
        more_at: more_at.and_then(|at| NonZero::new(shift(at).as_micros())),
        ..decision
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

pub(super) fn number(digits: &[u8]) -> Result<u64, ProtocolError> {
    let digits = str::from_utf8(digits).map_err(|_| ProtocolError::Malformed)?;
    digits.parse().map_err(|_| ProtocolError::Malformed)
}
