//! One policy that decides about all arrivals, with buckets of its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::header::{HOST, HeaderName, HeaderValue};

use super::request::Arrival;
use super::{DecisionRow, MAX_ARRIVALS, MAX_CELLS, PolicyAnswer};
use crate::clock::Timestamp;
use crate::clock::text::Millis;
use crate::http::message::Request;
use crate::limiter::Cell;
use crate::proxy::inspect::dry_run::{DryRun, Recorded, dry_run};
use crate::proxy::ruleset::{
    CompiledPolicy, CompiledRoute, LimitSpec, PolicySpec, RefusalSpec, RulesetSpec,
};
use crate::proxy::{ActionSpec, Mode, Ruleset};
use crate::replay::simulation::build_all;
use crate::rules::{Cost, Descriptor, KeyPart, OnMissingKey};
use crate::store::{Home, InUse};

/// The field of a request that has the client.
const KEY: HeaderName = HeaderName::from_static("x-client");
/// The field of a request that has the cost.
const COST: HeaderName = HeaderName::from_static("x-cost");
/// The sender of all requests.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Room for all clients, so that none is evicted.
const KEYS: usize = 2 * MAX_ARRIVALS;
/// Memory for its buckets, in bytes. Only those that are charged take any.
const MAX_SIZE: u64 = 64 << 20;

/// A policy and its buckets.
pub(super) struct Lane {
    ruleset: Arc<Ruleset>,
    /// Units in use by the end of their requests; the number tells equal ends apart.
    in_use: BTreeMap<(Timestamp, usize), Vec<InUse>>,
}

impl Lane {
    /// Enforces `policy` for every request, by the client that it names.
    pub(super) fn new(policy: CompiledPolicy) -> Self {
        Self {
            ruleset: build_all(rules(policy)),
            in_use: BTreeMap::new(),
        }
    }

    /// Decides about all arrivals, and tells the decisions from `from` on.
    pub(super) fn play(mut self, arrivals: &[Arrival], from: usize) -> PolicyAnswer {
        let first_cell = arrivals.len().saturating_sub(MAX_CELLS);
        let mut decisions = Vec::new();
        for (number, arrival) in arrivals.iter().enumerate() {
            let row = self.decide(number, arrival);
            decisions.extend(row.filter(|_| number >= from).map(|row| DecisionRow {
                cell: row.cell.filter(|_| number >= first_cell),
                ..row
            }));
        }
        let policy = &self.ruleset.policies[0];
        let algorithm = policy.quota.algorithm();
        PolicyAnswer {
            name: policy.name.to_string(),
            algorithm: algorithm.kind(),
            quota: policy.quota.text.clone(),
            limit_units: algorithm.limit(),
            window_ms: algorithm.window().map(Millis::from),
            capacity_units: algorithm.capacity(),
            new_cell: algorithm.view(Cell::EMPTY, Timestamp::EPOCH).into(),
            decisions,
        }
    }

    /// Decides about one arrival; `None` if the proxy answers before any limit.
    fn decide(&mut self, number: usize, arrival: &Arrival) -> Option<DecisionRow> {
        let now = arrival.at();
        while let Some(ended) = self.in_use.first_entry().filter(|one| one.key().0 <= now) {
            ended.remove();
        }
        let decided = dry_run(
            &self.ruleset,
            &request(arrival),
            PEER,
            now,
            Recorded::default(),
            |run| {
                let row = row(&run, arrival);
                (row, run.into_units_in_use())
            },
        );
        let (row, in_use) = decided.ok()?;
        if !in_use.is_empty() {
            self.in_use.insert((arrival.ends(), number), in_use);
        }
        row
    }
}

fn row(run: &DryRun<'_>, arrival: &Arrival) -> Option<DecisionRow> {
    let (now, decision) = (arrival.at(), run.decision()?);
    let wait = |until: Timestamp| Millis(until.since(now).as_micros() as u64);
    let view = run.views(now).next();
    Some(DecisionRow {
        arrival: arrival.clone(),
        decision: run.logged().as_str(),
        remaining: decision.remaining,
        reset_ms: wait(decision.reset),
        retry_after_ms: decision.retry_at().map(wait),
        delay_ms: decision.delayed_until().map(wait),
        cell: view.map(Into::into),
    })
}

/// The request of an arrival.
fn request(arrival: &Arrival) -> Request<()> {
    let mut request = Request::new(());
    let headers = request.headers_mut();
    headers.append(HOST, HeaderValue::from_static("localhost"));
    if let Ok(key) = HeaderValue::from_str(&arrival.key) {
        headers.append(KEY, key);
    }
    headers.append(COST, HeaderValue::from(arrival.cost));
    request
}

/// Rules with this policy for every request. It enforces, in memory, and without exceptions.
fn rules(policy: CompiledPolicy) -> RulesetSpec {
    let mut policy = CompiledPolicy {
        spec: PolicySpec {
            home: Home::Memory,
            settles: false,
            ..policy.spec
        },
        mode: Mode::Enforce,
        refusal: RefusalSpec {
            action: ActionSpec::Reject,
            ..policy.refusal
        },
        overrides: Vec::new(),
        ..policy
    };
    if !policy.quota.algorithm.is_concurrency() {
        policy.quota.set_max_keys(KEYS);
    }
    let limit = LimitSpec {
        is_top_level: true,
        policy: 0,
        when: None,
        exceptions: None,
        descriptor: Descriptor::new(vec![KeyPart::Header(KEY)], OnMissingKey::Refuse, 64),
        cost: Cost::Stated {
            from: vec![KeyPart::Header(COST)],
            default: 1,
            max: u32::MAX,
        },
        settlement: None,
    };
    RulesetSpec {
        policies: vec![policy],
        unmatched: CompiledRoute {
            limits: vec![limit],
            ..CompiledRoute::default()
        },
        max_size: MAX_SIZE,
        ..RulesetSpec::default()
    }
}
