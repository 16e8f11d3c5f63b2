//! An explanation as machines read it: in `explain --json`, and in answers of the admin API.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, AnswerKind, Destination, Explanation, LimitOutcome, LimitTrace};
use crate::clock::Timestamp;
use crate::clock::text::{Millis, rfc_3339};
use crate::proxy::admission::mode::Enforcement;
use crate::proxy::inspect::key_state::KeyState;
use crate::rules::{Lookup, PartDescription};

/// An explanation. Fields that do not apply are absent.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExplanationReport {
    /// The instant of the decisions (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// The request.
    pub request: RequestReport,
    /// The client's address.
    pub client_ip: IpAddr,
    /// The host by which routes are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path by which routes are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The path that the upstream is sent, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded_path: Option<String>,
    /// The reason why the request's token is not used, if a limit reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The matched route; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<str>>,
    /// Routes that take precedence but do not match; all routes if none matches.
    /// The 100 that match most conditions, if there are more.
    pub not_matched: Vec<MismatchReport>,
    /// The number of such routes beside these.
    pub not_matched_omitted: usize,
    /// The limits of the route, in their order.
    pub limits: Vec<LimitReport>,
    /// The answer to the request.
    pub answer: AnswerReport,
    /// The explanation as text for people.
    pub text: String,
}

/// A request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RequestReport {
    /// The method.
    pub method: String,
    /// The URL, as it was given.
    pub url: String,
}

/// A route that does not match.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct MismatchReport {
    /// Its name.
    pub route: Arc<str>,
    /// The first mismatch.
    pub reason: String,
}

/// The decision of a limit on the request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct LimitReport {
    /// The policy.
    pub policy: Arc<str>,
    /// The algorithm.
    pub algorithm: Cow<'static, str>,
    /// The quota, as the configuration writes it.
    pub quota: String,
    /// The parts of the key, and those that replace missing ones.
    pub key: Vec<KeyPartReport>,
    /// Where its buckets are: `memory`, `redis`, or `synchronised` memory.
    pub store: Cow<'static, str>,
    /// The interval between synchronisations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_ms: Option<Millis>,
    /// The quota of the request, and its source, if the request can state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated_quota: Option<String>,
    /// The time zone of its windows, and its source, if a claim can name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// `enforce`, or `shadow` for a limit that refuses nothing.
    pub mode: Cow<'static, str>,
    /// The action on requests beyond the limit.
    pub action: Cow<'static, str>,
    /// The number of the deciding bucket; from 2 on at a lower priority.
    pub bucket: usize,
    /// The soft limit that the request exceeds, in units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_limit: Option<u32>,
    /// Units that the request costs.
    pub cost: u32,
    /// True if the response settles the cost.
    pub cost_is_settled: bool,
    /// The queue in which the request may have to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueReport>,
    /// The decision, in the words of the metrics; absent if the limit does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Cow<'static, str>>,
    /// The reason for a decision that is not the bucket's: `condition`, `disabled`, `exempt`,
    /// `key_skipped`, `key_missing`, `key_several`, `invalid_cost`, `queue`, `store`, or `not_asked`
    /// since memory refuses already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// Units that are left after the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u32>,
    /// The time until the same request is allowed; absent if it is allowed now, or never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<Millis>,
    /// The time that the request waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<Millis>,
    /// The time until the bucket is whole; absent if units come back with the end of requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_ms: Option<Millis>,
    /// The error of the store that should have decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_error: Option<String>,
    /// The state of the key in a running proxy, which the request would charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<KeyState>,
}

/// A part of a key.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyPartReport {
    /// The part, as the configuration writes it.
    pub part: String,
    /// Its value, short and printable; absent if there is none, or several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `present`, `missing`, or `several` for different values.
    pub state: Cow<'static, str>,
}

/// A queue for permits.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct QueueReport {
    /// Its places.
    pub places: u32,
    /// The longest wait.
    pub max_wait_ms: Millis,
}

/// The answer to the request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct AnswerReport {
    /// The outcome, in a word.
    pub decision: AnswerKind,
    /// The upstream that gets the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The policy that refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<str>>,
    /// Its action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Cow<'static, str>>,
    /// The status of the proxy's response; absent if the upstream answers, or nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The proxy's reason for an answer of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The time that the request waits before it is forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<Millis>,
    /// The time until the same request is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<Millis>,
}

impl ExplanationReport {
    /// The answer to the request: the last line of the text without its first word.
    pub fn answer_text(&self) -> &str {
        let last = self.text.lines().last().unwrap_or_default();
        last.strip_prefix("answer").unwrap_or(last).trim_start()
    }
}

impl Explanation<'_> {
    /// The explanation for machines.
    pub(super) fn report(&self) -> ExplanationReport {
        let trace = self.trace.as_ref().ok();
        let mismatches = trace.into_iter().flat_map(|trace| &trace.mismatches);
        let limits = trace.into_iter().flat_map(|trace| &trace.limits);
        ExplanationReport {
            at: rfc_3339(self.now),
            request: RequestReport {
                method: self.method.clone(),
                url: self.url.clone(),
            },
            client_ip: self.client_ip,
            host: trace.map(|trace| trace.host.clone()),
            path: trace.map(|trace| trace.path.clone()),
            forwarded_path: trace.and_then(|trace| trace.forwarded_path.clone()),
            token: trace.and_then(|trace| trace.token.clone()),
            route: trace.and_then(|trace| trace.route.cloned()),
            not_matched: mismatches
                .map(|(route, mismatch)| MismatchReport {
                    route: Arc::clone(route),
                    reason: mismatch.to_string(),
                })
                .collect(),
            not_matched_omitted: trace.map_or(0, |trace| trace.mismatches_omitted),
            limits: limits.map(|limit| limit.report(self.now)).collect(),
            answer: self.answer_report(),
            text: self.to_string(),
        }
    }

    fn answer_report(&self) -> AnswerReport {
        let report = |decision| AnswerReport {
            decision,
            upstream: None,
            policy: None,
            action: None,
            status: None,
            detail: None,
            delay_ms: None,
            retry_after_ms: None,
        };
        let wait = |until: Timestamp| Millis::from(until.since(self.now));
        let to = |destination: &Destination<'_>, decision| match destination {
            Destination::Upstream(upstream) => AnswerReport {
                upstream: Some(upstream.to_string()),
                ..report(decision)
            },
            Destination::Route(answer) => AnswerReport {
                status: Some(answer.status().as_u16()),
                detail: Some(answer.to_string()),
                ..report(decision)
            },
        };
        match self.answer() {
            Answer::Allowed { destination } => to(destination, AnswerKind::Allowed),
            Answer::Delayed { destination, until } => AnswerReport {
                delay_ms: until.map(wait),
                ..to(destination, AnswerKind::Delayed)
            },
            Answer::Refused(limit) => AnswerReport {
                policy: Some(Arc::clone(limit.name())),
                action: Some(limit.action().into_str().into()),
                status: limit.status().map(|status| status.as_u16()),
                retry_after_ms: limit.retry_at().map(wait),
                ..report(AnswerKind::Limited)
            },
            Answer::Own(error) => AnswerReport {
                status: Some(error.status().as_u16()),
                detail: Some(error.explanation()),
                ..report(AnswerKind::Answered)
            },
        }
    }
}

impl LimitTrace<'_> {
    fn report(&self, now: Timestamp) -> LimitReport {
        let wait = |until: Timestamp| Millis::from(until.since(now));
        let decision = match &self.outcome {
            LimitOutcome::Decided(decision) | LimitOutcome::Queued(decision) => Some(decision),
            _ => None,
        };
        let queue = self.queue_bounds();
        let (policy, home) = (&self.limit.policy, self.quota().buckets.home);
        LimitReport {
            policy: Arc::clone(&policy.name),
            algorithm: self.quota().algorithm().kind().into(),
            quota: self.quota().text.clone(),
            key: self.key.iter().map(KeyPartReport::new).collect(),
            store: home.name().into(),
            sync_ms: home.sync_interval().map(Millis::from),
            stated_quota: self.stated.clone(),
            time_zone: self.zone.clone(),
            mode: match self.enforcement {
                Enforcement::Enforced => "enforce".into(),
                Enforcement::Shadowed => "shadow".into(),
            },
            action: self.action().into_str().into(),
            bucket: usize::from(self.id.tier) + 1,
            soft_limit: self.limit.soft_limit(self.id).map(|soft| soft.above),
            cost: self.cost,
            cost_is_settled: self.limit.spec.settlement.is_some(),
            queue: queue.map(|(places, longest)| QueueReport {
                places,
                max_wait_ms: longest.into(),
            }),
            decision: self.applies().then(|| self.word.as_str().into()),
            reason: self.outcome.reason().map(Cow::from),
            remaining: decision.map(|decision| decision.remaining),
            retry_after_ms: self.retry_at().map(wait),
            delay_ms: decision.and_then(|decision| decision.delayed_until().map(wait)),
            reset_ms: decision
                .filter(|_| !self.returns_units())
                .map(|decision| wait(decision.reset)),
            store_error: self.store_error.clone(),
            state: self.state.clone(),
        }
    }

    /// The instant at which the same request is admitted.
    fn retry_at(&self) -> Option<Timestamp> {
        match &self.outcome {
            LimitOutcome::Decided(decision) => decision.retry_at(),
            _ => None,
        }
    }

    fn applies(&self) -> bool {
        !matches!(
            self.outcome,
            LimitOutcome::NotApplicable
                | LimitOutcome::Disabled
                | LimitOutcome::Skipped
                | LimitOutcome::NotAsked
        )
    }
}

impl LimitOutcome {
    /// The reason for a decision without a bucket.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Decided(_) => None,
            Self::NotAsked => Some("not_asked"),
            Self::Queued(_) => Some("queue"),
            Self::Undecided(_) => Some("store"),
            Self::NotApplicable => Some("condition"),
            Self::Disabled => Some("disabled"),
            Self::Exempt => Some("exempt"),
            Self::Skipped => Some("key_skipped"),
            Self::MissingKey => Some("key_missing"),
            Self::SeveralKeys => Some("key_several"),
            Self::InvalidCost => Some("invalid_cost"),
        }
    }
}

impl KeyPartReport {
    fn new(described: &PartDescription) -> Self {
        let (value, state) = match &described.value {
            Lookup::One(value) => (Some(value.clone()), "present"),
            Lookup::Missing => (None, "missing"),
            Lookup::Several => (None, "several"),
        };
        KeyPartReport {
            part: described.part.clone(),
            value,
            state: state.into(),
        }
    }
}
