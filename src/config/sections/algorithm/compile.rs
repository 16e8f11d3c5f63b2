//! Compiles a policy's settings to its algorithm.

use std::sync::Arc;

use jiff::tz::TimeZone;

use crate::config::sections::prelude::*;
use crate::config::value;
use crate::limiter::algorithms::{
    Concurrency, FixedWindow, Gcra, IntervalRefill, LeakyBucket, OldestPart, SlidingCounters,
    SlidingLog, SlidingWindow, Start,
};
use crate::limiter::calendar::{Calendar, Period};
use crate::limiter::{Algorithm, Quota, QuotaError};

/// The algorithm of a checked policy.
pub(crate) fn algorithm(policy: &Policy) -> Result<Algorithm, QuotaError> {
    if let (Some(capacity), Some(refill)) = (&policy.amounts.capacity, &policy.amounts.refill) {
        let refill = IntervalRefill::new(capacity.get(), refill.amount, refill.interval)?;
        return Ok(Algorithm::IntervalRefill(refill));
    }
    let written = policy.amounts.quota.as_ref().map(|quota| quota.largest());
    let written = written.unwrap_or_default();
    let narrow = |units| u32::try_from(units).unwrap_or(u32::MAX);
    let quota = Quota::new(narrow(written.limit()), written.window())?;
    let most = narrow(policy.amounts.capacity());
    Ok(match policy.algorithm.value {
        AlgorithmName::Gcra => Algorithm::Gcra(Gcra::new(quota, most)?),
        AlgorithmName::TokenBucket => Algorithm::TokenBucket(Gcra::new(quota, most)?),
        AlgorithmName::FixedWindow => Algorithm::FixedWindow(fixed_window(policy, written, quota)),
        AlgorithmName::SlidingWindow => match policy.precision.get() {
            1 => Algorithm::SlidingWindow(SlidingWindow::new(quota, oldest(policy))),
            parts => {
                Algorithm::SlidingCounters(SlidingCounters::new(quota, parts, oldest(policy))?)
            }
        },
        AlgorithmName::LeakyBucket => Algorithm::LeakyBucket(leaky_bucket(policy, quota)?),
        AlgorithmName::SlidingLog => Algorithm::SlidingLog(SlidingLog::new(quota)?),
        AlgorithmName::Concurrency => Algorithm::Concurrency(Concurrency {
            max: policy.amounts.max.as_ref().map_or(0, |max| max.get()),
            retry_after: policy.retry_after.get(),
            queue: policy.queue.get(),
            max_wait: policy.longest_wait(),
        }),
    })
}

fn leaky_bucket(policy: &Policy, quota: Quota) -> Result<LeakyBucket, QuotaError> {
    let (queue, delay_after) = (policy.queue.get(), policy.delay_after.get());
    LeakyBucket::new(quota, queue, policy.longest_wait(), delay_after)
}

fn fixed_window(policy: &Policy, written: value::Quota, quota: Quota) -> FixedWindow {
    let start = match policy.start.value {
        WindowStart::FirstRequest => Start::FirstRequest,
        WindowStart::Staggered => Start::Staggered,
        WindowStart::Clock => match written.calendar() {
            None => Start::EPOCH,
            Some(unit) => return calendar_window(policy, unit, quota).with_limit(written.limit()),
        },
    };
    FixedWindow::new(quota, start).with_limit(written.limit())
}

/// Days and weeks in UTC are as regular as hours, and need no calendar.
fn calendar_window(policy: &Policy, unit: CalendarUnit, quota: Quota) -> FixedWindow {
    let written = policy.time_zone.as_ref().map(|zone| &zone.value);
    let zone = written.map_or(TimeZone::UTC, |zone| zone.fallback().get().clone());
    let calendar = |zone| Arc::new(Calendar::new(period(policy, unit), zone));
    if written.is_some_and(|zone| zone.part().is_some()) {
        return FixedWindow::periods(0, calendar(zone), Start::Local);
    }
    match unit {
        CalendarUnit::Day if zone == TimeZone::UTC => FixedWindow::new(quota, Start::EPOCH),
        CalendarUnit::Week if zone == TimeZone::UTC => FixedWindow::new(quota, Start::MONDAY),
        _ => FixedWindow::periods(0, calendar(zone), Start::Calendar),
    }
}

/// The period of windows that follow the calendar.
pub(crate) fn period(policy: &Policy, unit: CalendarUnit) -> Period {
    match unit {
        CalendarUnit::Day => Period::Day,
        CalendarUnit::Week => Period::Week,
        CalendarUnit::Month => Period::Month {
            anchor: policy.anchor.get() as i8,
        },
        CalendarUnit::Year => Period::Year,
    }
}

fn oldest(policy: &Policy) -> OldestPart {
    match policy.oldest.value {
        OldestWindow::Weighted => OldestPart::Weighted,
        OldestWindow::Whole => OldestPart::Whole,
        OldestWindow::Ignored => OldestPart::Ignored,
    }
}
