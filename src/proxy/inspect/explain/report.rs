//! An explanation as machines read it: in `explain --json`, and in answers of the admin API.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AnswerKind, Destination, Explanation, LimitTrace};
use crate::clock::Timestamp;
use crate::clock::text::{Millis, Span};
use crate::proxy::answers::error::Error;
use crate::proxy::answers::route_answer::PreparedAnswer;
use crate::proxy::inspect::key_state::KeyState;
use crate::rules::PartDescription;

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
    /// The client by its key, or why there is none; absent if no clients are configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
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
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LimitReport {
    /// The policy.
    pub policy: Arc<str>,
    /// The algorithm.
    pub algorithm: Cow<'static, str>,
    /// The quota, as the configuration writes it.
    pub quota: String,
    /// The parts of the key, and those that replace missing ones.
    pub key: Vec<PartDescription>,
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
    pub soft_limit: Option<u64>,
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
    pub remaining: Option<u64>,
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

/// A queue for permits.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct QueueReport {
    /// Its places.
    pub places: u32,
    /// The longest wait.
    pub max_wait_ms: Millis,
}

/// The answer to the request.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
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
    /// The explanation with the decisions of all stores.
    pub(super) fn report(mut self) -> ExplanationReport {
        if let Ok(trace) = &mut self.trace {
            trace.conclude(self.now);
        }
        let (answer, line) = self.answer();
        let text = self.text(&line);
        let limits = self.trace.into_iter().flat_map(|trace| trace.limits);
        ExplanationReport {
            limits: limits.map(|limit| limit.report).collect(),
            answer,
            text,
            ..self.report
        }
    }

    /// The answer, also as a line for people.
    fn answer(&self) -> (AnswerReport, String) {
        let trace = match &self.trace {
            Ok(trace) => trace,
            Err(error) => return own_answer(error, &error.explanation()),
        };
        let awaited = trace.awaited(self.now);
        if let Some(limit) = trace.refusing().filter(|_| awaited.is_none()) {
            return limit.refusal(self.now);
        }
        let destination = match &trace.destination {
            _ if trace.is_undecided => return own_answer(&Error::Undecided, ""),
            Ok(destination) => destination,
            Err(error @ Error::Denied(_)) => return own_answer(error, &error.explanation()),
            // The line of the route says why.
            Err(error) => return own_answer(error, ""),
        };
        let is_queued = !trace.peeked.queued.is_empty();
        let until = trace.admission.delayed_until().filter(|_| !is_queued);
        let until = until.or(awaited);
        let delay = until.map(|until| until.since(self.now));
        let (decision, text) = match delay {
            Some(delay) => {
                let text = format!("delayed, and {destination} after {}", Span(delay));
                (AnswerKind::Delayed, text)
            }
            None if is_queued => {
                let text = format!("delayed, and {destination} once others have ended");
                (AnswerKind::Delayed, text)
            }
            None => (AnswerKind::Allowed, format!("allowed, and {destination}")),
        };
        let (upstream, own) = match destination {
            Destination::Upstream(upstream) => (Some(upstream.to_string()), None),
            Destination::Route(answer) => (None, Some(answer)),
        };
        let report = AnswerReport {
            decision,
            upstream,
            status: own.map(|answer| answer.status().as_u16()),
            detail: own.map(PreparedAnswer::to_string),
            delay_ms: delay.map(Millis::from),
            ..AnswerReport::default()
        };
        (report, text)
    }
}

/// The proxy's own answer, and a line with its status and a reason.
fn own_answer(error: &Error, reason: &str) -> (AnswerReport, String) {
    let status = error.status();
    let report = AnswerReport {
        decision: AnswerKind::Answered,
        status: Some(status.as_u16()),
        detail: Some(error.explanation()),
        ..AnswerReport::default()
    };
    match reason {
        "" => (report, status.to_string()),
        reason => (report, format!("{status}: {reason}")),
    }
}

impl LimitTrace<'_> {
    /// The answer to a request that the limit refuses.
    fn refusal(&self, now: Timestamp) -> (AnswerReport, String) {
        let (action, name, status) = (self.action(), self.name(), self.status());
        let retry_at = self.retry_at();
        let report = AnswerReport {
            decision: AnswerKind::Limited,
            policy: Some(Arc::clone(name)),
            action: Some(action.into_str().into()),
            status: status.map(|status| status.as_u16()),
            retry_after_ms: retry_at.map(|at| Millis::from(at.since(now))),
            ..AnswerReport::default()
        };
        let text = format!("{} by {name}", action.name());
        match status {
            Some(status) => (report, format!("{text}: {status}")),
            None => (report, text),
        }
    }
}
