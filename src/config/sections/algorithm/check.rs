//! Checks of a policy's algorithm: its settings, their combinations, and its amounts.

use super::algorithm;
use crate::config::sections::prelude::*;
use crate::config::sections::quota;
use crate::limiter::algorithms::SlidingLog;
use crate::limiter::ring::RingShape;

pub(crate) fn check(policy: &Policy, node: NodeId, config: &Config, findings: &Findings<'_>) {
    super::check_algorithm(policy, findings);
    if policy.algorithm.value == AlgorithmName::Concurrency {
        return check_concurrency(policy, node, config, findings);
    }
    check_refill(policy, node, findings);
    quota::check(policy, findings);
    check_calendar(policy, findings);
    check_width(policy, findings);
    check_amounts(policy, node, findings);
    check_turns(policy, config, findings);
    check_debt(policy, findings);
    check_rings(policy, config, findings);
    if let Some(quota) = &policy.amounts.quota {
        check_parts(policy, quota, findings);
        match policy.algorithm.value {
            AlgorithmName::LeakyBucket => check_queue(policy, quota, findings),
            AlgorithmName::SlidingLog => check_log(quota, findings),
            _ => {}
        }
    }
}

/// A bucket has a quota, or a capacity with a refill.
fn check_refill(policy: &Policy, node: NodeId, findings: &Findings<'_>) {
    let amounts = &policy.amounts;
    let (capacity, refill) = (amounts.capacity.given(), amounts.refill.given());
    let key = match (&amounts.quota, capacity, refill) {
        (Some(quota), Some(other), _) | (Some(quota), None, Some(other)) => {
            let message = "a quota says what `capacity` and `refill` say";
            let finding = conflict(other, message)
                .help("use `quota` and `burst`, or `capacity` and `refill`");
            return findings.add(finding.related(quota.node, "the quota"));
        }
        (None, Some(_), Some(_)) => {
            if let Some(burst) = amounts.burst.given() {
                let finding = conflict(burst, "the capacity is all that can be taken at once");
                findings.add(finding.help("remove `burst`, and raise `capacity`"));
            }
            return;
        }
        (Some(_), None, None) => return,
        // `max` in place of a quota is reported elsewhere.
        (None, None, None) if amounts.max.is_some() => return,
        (None, None, None) => "quota",
        (None, Some(_), None) => "refill",
        (None, None, Some(_)) => "capacity",
    };
    let help = match key {
        "quota" => "say how many in which time: `quota: 100/1m`",
        "refill" => "say how many tokens come back how often: `refill: 1 per 10ms`",
        _ => "say how many tokens there are: `capacity: 500`",
    };
    findings.add(missing(node, format!("the key `{key}` is missing")).help(help));
}

/// Only fixed windows with `start: clock` follow the calendar.
fn check_calendar(policy: &Policy, findings: &Findings<'_>) {
    let quota = policy.amounts.quota.as_ref();
    // Tokens may have none; where another algorithm lacks its quota, that is reported.
    if quota.is_none() && policy.algorithm.value != AlgorithmName::TokenBucket {
        return;
    }
    let fixed = policy.algorithm.value == AlgorithmName::FixedWindow;
    let by_clock = policy.start.value == WindowStart::Clock;
    let unit = quota.and_then(|quota| quota.largest().calendar());
    if let Some(quota) = quota.filter(|_| unit.is_some_and(|unit| !unit.has_length()))
        && !(fixed && by_clock)
    {
        let message =
            "only a fixed window that starts with the clock is as long as a month or a year";
        let help = "use days, as in `30d`, or `algorithm: fixed_window` and `start: clock`";
        findings.add(conflict(quota.node, message).help(help));
    }
    let followed = unit.filter(|_| fixed && by_clock);
    if let Some(zone) = policy.time_zone.as_ref().filter(|_| followed.is_none()) {
        let message = "only days, weeks, months and years of a fixed window begin by a time zone";
        let help = "remove `time_zone`, or use `algorithm: fixed_window`, `start: clock`, and a quota for `1d`, `1w`, `1mo` or `1y`";
        findings.add(no_effect(zone.node, message).help(help));
    }
    let month = followed == Some(CalendarUnit::Month);
    if let Some(anchor) = policy.anchor.given().filter(|_| !month) {
        let message = "only the months of a fixed window begin on a day of your choice";
        let help = "remove `anchor`, or use a quota for `1mo`";
        findings.add(no_effect(anchor, message).help(help));
    }
}

/// Only fixed windows count more units than 32 bits have.
fn check_width(policy: &Policy, findings: &Findings<'_>) {
    let quota = policy.amounts.quota.as_ref();
    let is_wide = |quota: &&Located<Quota>| quota.largest().limit() > u32::MAX.into();
    let Some(quota) = quota.filter(is_wide) else {
        return;
    };
    if policy.algorithm.value != AlgorithmName::FixedWindow {
        let most = quota.largest().show_units(u32::MAX.into());
        let message = format!("only a fixed window counts more than {most}");
        let help = "use `algorithm: fixed_window`, or a quota for a shorter window";
        let finding = conflict(quota.node, message).help(help);
        findings.add(finding.related(policy.algorithm.node, "the algorithm"));
    }
}

/// A cost above the bucket's capacity could never be admitted.
fn check_amounts(policy: &Policy, node: NodeId, findings: &Findings<'_>) {
    let quota = policy.amounts.quota.as_ref();
    let quota = quota.map(|quota| (quota.largest().limit(), quota.node));
    if let (Some((0, quota)), Some(burst)) = (quota, &policy.amounts.burst) {
        let message = "a quota of 0 refuses always, and has no burst";
        let finding = conflict(burst.node, message).help("remove `burst`");
        return findings.add(finding.related(quota, "the quota"));
    }
    let most = policy.amounts.at_once().or(largest_queue(policy));
    if let Some((most, holder)) = most.or(quota) {
        check_cost(policy, node, most, holder, findings);
    }
}

/// Reports a cost above `capacity`, which the setting at `holder` determines.
fn check_cost(
    policy: &Policy,
    node: NodeId,
    capacity: u64,
    holder: NodeId,
    findings: &Findings<'_>,
) {
    let cost = match &policy.cost.value {
        Cost::Constant(cost) => cost.get(),
        // Tokens cost what the model does.
        Cost::Stated(stated) if stated.prices.is_some() => return,
        Cost::Stated(stated) => stated.reserved(),
    };
    if capacity > 0 && u64::from(cost) > capacity {
        let message =
            format!("a cost of {cost} can never be paid: the bucket holds {capacity} at most");
        let help = match policy.algorithm.value {
            AlgorithmName::LeakyBucket => "lower the cost, or raise `queue` or `max_wait`",
            _ => "lower the cost, or raise the quota or its burst",
        };
        let finding = conflict(policy.cost.node.or(node), message);
        findings.add(finding.help(help).related(holder, "what it holds"));
    }
}

/// The largest number of units in a queue, and the setting that determines it.
fn largest_queue(policy: &Policy) -> Option<(u64, NodeId)> {
    let quota = policy.amounts.quota.as_ref()?;
    let algorithm = algorithm(policy).ok()?;
    let holder = policy.queue.node.or(quota.node);
    (policy.algorithm.value == AlgorithmName::LeakyBucket).then(|| (algorithm.capacity(), holder))
}

/// Requests that are tagged or routed never wait.
fn check_turns(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let algorithm = &policy.algorithm;
    let action = policy.on_limit.action_over(&config.responses.on_limit);
    if algorithm.value == AlgorithmName::LeakyBucket && action.forwards() {
        let message = "a policy that tags or routes makes no request wait";
        let finding = conflict(algorithm.node, message);
        findings.add(finding.help("use another `algorithm`, or another `action`"));
    }
}

/// A queue that is longer than its longest wait never fills.
fn check_queue(policy: &Policy, quota: &Quota, findings: &Findings<'_>) {
    let queue = &policy.queue;
    let wait = policy.longest_wait();
    // The last place may be one for a part of a turn.
    let places = wait.as_micros() * u128::from(quota.largest().limit());
    let places = places.div_ceil(quota.largest().window().as_micros());
    if quota.largest().limit() > 0 && places < u128::from(queue.get()) {
        let message = format!(
            "only {places} of {} places are ever taken: a request whose turn is further away than {wait:?} is refused",
            queue.get()
        );
        let finding =
            warn_no_effect(queue.node, message).help("shorten the queue, or raise `max_wait`");
        findings.add(finding.related(policy.max_wait.given(), "the longest wait"));
    }
}

/// Reports `charge_refused` where refused requests cannot be charged.
fn check_debt(policy: &Policy, findings: &Findings<'_>) {
    let charged = &policy.charge_refused;
    if !charged.get() {
        return;
    }
    let finding = match policy.algorithm.value {
        _ if policy.overflow.is_some() => {
            let message = "a request that overflows was not refused";
            conflict(charged.node, message).help("remove `charge_refused`, or `overflow`")
        }
        AlgorithmName::LeakyBucket => {
            let message = "a refused request takes no place in the queue that could be charged";
            no_effect(charged.node, message)
                .help("remove `charge_refused`, or use another `algorithm`")
        }
        AlgorithmName::SlidingWindow if !counts_debt(policy) => {
            let message = "this many counters of a quota this large can't be charged beyond it";
            conflict(charged.node, message).help("count in a coarser unit, or lower `precision`")
        }
        _ => return,
    };
    findings.add(finding.related(policy.algorithm.node, "the algorithm"));
}

/// True if each counter of a sliding window can be as large as the quota.
pub(crate) fn counts_debt(policy: &Policy) -> bool {
    let counters = 1 + policy.precision.get();
    policy.amounts.limit() * u64::from(counters) <= u32::MAX.into()
}

/// All parts of a window are equally long, in whole microseconds.
fn check_parts(policy: &Policy, quota: &Located<Quota>, findings: &Findings<'_>) {
    let precision = &policy.precision;
    let (micros, parts) = (quota.largest().window().as_micros(), precision.get());
    if !micros.is_multiple_of(u128::from(parts)) {
        let message = format!("a window cannot be cut in {parts} parts of whole microseconds");
        let finding = conflict(precision.node, message);
        let help = "use a number that divides the window, as in 60 for `1h`";
        findings.add(finding.help(help).related(quota.node, "the window"));
    }
}

/// Logs of more units get a warning.
const LARGE_LOG: u32 = 1_000;

/// A log takes four bytes for each unit that counts, and each key has a log.
fn check_log(quota: &Located<Quota>, findings: &Findings<'_>) {
    let limit = quota.largest().limit();
    let help = "count them in parts: `algorithm: sliding_window`, `precision: 60`, `oldest: whole`";
    if limit > SlidingLog::MOST.into() {
        let message = format!("a log has at most {} units", SlidingLog::MOST);
        findings.add(conflict(quota.node, message).help(help));
    } else if limit > LARGE_LOG.into() {
        let kib = (ring_bytes(RingShape::new(limit as u32)) / 1024).max(1);
        let message = format!("a log of {limit} units takes up to {kib} KiB for each key");
        findings.add(Finding::warning(quota.node, Code::LargeLog, message).help(help));
    }
}

/// Warns if the rings of `max_keys` keys exceed the memory of the store.
fn check_rings(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let limit = u32::try_from(policy.amounts.limit()).unwrap_or(u32::MAX);
    let shape = match policy.algorithm.value {
        AlgorithmName::SlidingLog => RingShape::new(limit.min(SlidingLog::MOST)),
        _ if policy.has_counters() => RingShape::of_counters(policy.precision.get() + 1, limit),
        _ => return,
    };
    let Some(keys) = &policy.max_keys else { return };
    let (most, needed) = (
        config.store.memory.max_size.get(),
        u64::from(keys.get()) * ring_bytes(shape),
    );
    if needed > most {
        let mib = needed.div_ceil(1 << 20);
        let message = format!("this many keys may need {mib} MiB for their counters");
        let help =
            "raise `store.memory.max_size`; when it is full, the least used keys are forgotten";
        let finding = Finding::warning(keys.node, Code::Memory, message).help(help);
        findings.add(finding.related(config.store.memory.max_size.node, "all that there is"));
    }
}

fn ring_bytes(shape: RingShape) -> u64 {
    u64::from(shape.max_chunks()) * shape.chunk_bytes() as u64
}

/// A limit of requests in flight has a `max`, and perhaps a queue.
fn check_concurrency(policy: &Policy, node: NodeId, config: &Config, findings: &Findings<'_>) {
    match &policy.amounts.max {
        Some(max) => check_cost(policy, node, max.get().into(), max.node, findings),
        None => {
            let finding = missing(node, "the key `max` is missing");
            findings.add(finding.help("say how many at a time: `max: 20`"));
        }
    }
    check_permit_queue(policy, config, findings);
}

/// Requests that are tagged or routed never wait; a queue needs a `max_wait` above zero.
fn check_permit_queue(policy: &Policy, config: &Config, findings: &Findings<'_>) {
    let queue = &policy.queue;
    if queue.get() == 0 {
        if let Some(max_wait) = &policy.max_wait {
            let finding = no_effect(max_wait.node, "no request waits without a queue");
            findings.add(finding.help("say how many may wait with `queue`, or remove `max_wait`"));
        }
        return;
    }
    let action = policy.on_limit.action_over(&config.responses.on_limit);
    if action.forwards() {
        let message = "a policy that tags or routes makes no request wait";
        let finding = conflict(queue.node, message);
        findings.add(finding.help("remove `queue`, or use another `action`"));
    }
    if let Some(max_wait) = policy.max_wait.as_ref().filter(|wait| wait.get().is_zero()) {
        let message = "no request waits in a queue with a `max_wait` of 0";
        let finding = warn_no_effect(queue.node, message);
        let finding = finding.help("raise `max_wait`, or remove `queue`");
        findings.add(finding.related(max_wait.node, "the longest wait"));
    }
}
