//! Windows in the zone that each charge names, beside a plain model.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::*;
use crate::algorithms::WindowEnd;
use crate::calendar::{Calendar, Calendars, Period};

const ZONES: [&str; 5] = [
    "UTC",
    "Europe/Berlin",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
    "Australia/Lord_Howe",
];

fn calendars(period: Period) -> Calendars {
    let zones = ZONES.map(|name| (Arc::from(name), TimeZone::get(name).expect("a zone")));
    Calendars::new(period, &zones)
}

proptest! {
    /// A window ends by the zone of the request that opened it, whatever zones later requests name,
    /// but not before a period after the first charge of the window before it.
    #[test]
    fn a_zone_is_pinned_until_the_running_window_ends(
        limit in 1..4_u32, month: bool, strict: bool,
        steps in prop::collection::vec((0..40_u64, 0..3_u64, prop::option::of(0..ZONES.len()), 0..3_u32), 1..80),
    ) {
        let period = if month { Period::Month { anchor: 31 } } else { Period::Day };
        let calendars = calendars(period);
        let default = Arc::new(Calendar::new(period, TimeZone::get("Europe/Berlin").unwrap()));
        let window = FixedWindow::periods(limit.into(), default, Start::Local);
        let on_full = if strict { OnFull::Strict } else { OnFull::Forget };
        let table = Table::new("test", Algorithm::FixedWindow(window), 1_024, on_full);
        let mut model: HashMap<u64, (Timestamp, u32, Timestamp)> = HashMap::new();
        let nominal = Duration::from_secs(if month { 31 } else { 1 } * 24 * 3_600);
        let mut now = Timestamp::from_micros(1_782_864_000_000_000);
        for (gap, key, zone, cost) in steps {
            let gap = Duration::from_secs(gap * if month { 40 * 3_600 } else { 3_600 });
            now = now.saturating_add_micros(gap.as_micros() as u64);
            let period = |zone| calendars.period_at(zone, now);
            let window_end = zone.and_then(|zone| period(ZONES[zone])).map(WindowEnd::of);
            let named = window_end.or(period("Europe/Berlin").map(WindowEnd::of)).unwrap();
            let last = model.get(&key).copied();
            let began = last.map(|(_, _, began)| began);
            let began = began.filter(|began| began.saturating_add(nominal) > now);
            let least = began.map(|began| began.saturating_add_micros(named.length));
            let fresh = (least.map_or(named.at, |least| least.max(named.at)), 0, now);
            let running = last.filter(|(end, ..)| *end > now);
            let (end, count, began) = running.unwrap_or(fresh);
            let charge = Charge { table: &table, key: Fingerprint::from_bits(key + 1), demand: Demand::of(cost), window_end };
            let peek = charge.peek(now);
            let decision = charge_all(&[charge], now).decisions[0];
            prop_assert_eq!((peek.outcome, peek.reset), (decision.outcome, decision.reset));
            prop_assert_eq!(decision.is_admitted(), count + cost <= limit);
            if decision.is_admitted() && cost > 0 {
                model.insert(key, (end, count + cost, began));
                prop_assert_eq!(decision.reset, end);
            }
        }
    }
}

proptest! {
    /// For any claimed zones, no three windows begin within a period. A client that stays in its
    /// zone has the windows of its calendar.
    #[test]
    fn no_claims_open_more_than_two_windows_within_a_period(
        month: bool, moves: bool, first: u32,
        steps in prop::collection::vec((1..20_000_u64, 0..ZONES.len()), 1..400),
    ) {
        let period = if month { Period::Month { anchor: 31 } } else { Period::Day };
        let calendars = calendars(period);
        let default = Arc::new(Calendar::new(period, TimeZone::get("UTC").unwrap()));
        let window = FixedWindow::periods(1_000_000, default, Start::Local);
        let table = Table::new("test", Algorithm::FixedWindow(window), 1_024, OnFull::Forget);
        // Some instant of a year or so with both changes of the clocks.
        let mut now = Timestamp::from_micros(1_782_864_000_000_000 + u64::from(first % 31_000_000) * 1_000_000);
        let mut begun: Vec<(Timestamp, u64)> = Vec::new();
        for (gap, zone) in steps {
            now = now.saturating_add_micros(gap * if month { 31 } else { 1 } * 1_000_003);
            let zone = ZONES[if moves { zone } else { 1 }];
            let window_end = calendars.period_at(zone, now).map(WindowEnd::of);
            let charge = Charge { table: &table, key: Fingerprint::from_bits(1), demand: Demand::of(1), window_end };
            let decision = charge_all(&[charge], now).decisions[0];
            let named = window_end.unwrap();
            if !moves {
                prop_assert_eq!(decision.reset, named.at, "as in its calendar");
            }
            if decision.remaining == 999_999 {
                begun.push((now, named.length));
            }
        }
        for three in begun.windows(3).filter(|_| moves) {
            let [(first, _), (_, length), (third, _)] = three else { unreachable!("there are three") };
            let span = third.as_micros() - first.as_micros();
            prop_assert!(span >= *length, "{span} of {length}");
        }
    }
}
