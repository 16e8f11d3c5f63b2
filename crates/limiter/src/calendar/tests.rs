//! Periods in virtual time: changes of the clock, leap years, months that are too short.

use proptest::prelude::*;

use super::*;
use crate::algorithm::tests::{calendars, zone};

const HOUR: u64 = 3_600_000_000;

fn at(instant: &str) -> Timestamp {
    let instant: jiff::Timestamp = instant.parse().expect("an instant");
    Timestamp::from_micros(instant.as_microsecond() as u64)
}

fn end(period: Period, name: &str, now: &str) -> Timestamp {
    Timestamp::from_micros(Calendar::new(period, zone(name)).end(at(now)))
}

const fn month(anchor: i8) -> Period {
    Period::Month { anchor }
}

#[test]
fn a_day_has_23_or_25_hours_where_the_clock_changes() {
    let length = |now| {
        let calendar = Calendar::new(Period::Day, zone("Europe/Berlin"));
        let noon = calendar.end(at(now));
        (calendar.end(Timestamp::from_micros(noon)) - noon) / HOUR
    };
    assert_eq!(length("2026-03-28T12:00:00Z"), 23);
    assert_eq!(length("2026-10-24T12:00:00Z"), 25);
    assert_eq!(length("2026-06-01T12:00:00Z"), 24);
    assert_eq!(
        end(Period::Day, "Europe/Berlin", "2026-03-29T11:00:00Z"),
        at("2026-03-29T22:00:00Z")
    );
}

/// Instants lose what they are ahead, 1 µs in 32: the wall clock strikes when they are at the end.
#[test]
fn windows_end_by_the_wall_clock_while_instants_are_ahead_of_it() {
    let calendar = Calendar::new(Period::Day, zone("Europe/Berlin"));
    let midnight = at("2026-06-01T22:00:00Z");
    for ahead in [0, 1, 5_000_000, HOUR / 2, HOUR, 30 * HOUR] {
        for left in [1, 20_000_000, HOUR, 24 * HOUR] {
            let wall = midnight.saturating_sub_micros(left);
            let now = wall.saturating_add_micros(ahead);
            let end = end_ahead(now, ahead, |wall| calendar.end(wall));
            let lost = ahead.min(left / SLOWER);
            assert_eq!(end, midnight.as_micros() + ahead - lost, "{ahead} {left}");
            assert!(end > now.as_micros());
        }
    }
}

#[test]
fn a_day_begins_when_the_clock_says_so() {
    // In Beirut midnight of 2025-03-30 was left out: the day began at one.
    let beirut = "Asia/Beirut";
    assert_eq!(
        end(Period::Day, beirut, "2025-03-29T21:59:59Z"),
        at("2025-03-29T22:00:00Z")
    );
    // In St. John's one minute of 2006-10-29 came an hour before the rest of it.
    let day = |now| end(Period::Day, "America/St_Johns", now);
    assert_eq!(day("2006-10-29T02:29:59Z"), at("2006-10-29T02:30:00Z"));
    assert_eq!(day("2006-10-29T02:40:00Z"), at("2006-10-30T03:30:00Z"));
    // Apia had no 2011-12-30 at all.
    let apia = |now| end(Period::Day, "Pacific/Apia", now);
    assert_eq!(apia("2011-12-30T09:59:59Z"), at("2011-12-30T10:00:00Z"));
    assert_eq!(apia("2011-12-30T10:00:00Z"), at("2011-12-31T10:00:00Z"));
}

#[test]
fn weeks_begin_on_monday_and_years_on_new_years_day_in_their_zone() {
    assert_eq!(
        end(Period::Week, "America/New_York", "2026-11-23T04:59:59Z"),
        at("2026-11-23T05:00:00Z")
    );
    assert_eq!(
        end(Period::Week, "America/New_York", "2026-11-23T05:00:00Z"),
        at("2026-11-30T05:00:00Z")
    );
    assert_eq!(
        end(Period::Year, "Asia/Tokyo", "2023-12-31T15:00:00Z"),
        at("2024-12-31T15:00:00Z")
    );
}

#[test]
fn an_anchor_beyond_the_end_of_a_month_is_its_last_day() {
    let ends = |anchor, from: &str| {
        let calendar = Calendar::new(month(anchor), TimeZone::UTC);
        let mut now = at(from);
        let mut next = || {
            now = Timestamp::from_micros(calendar.end(now));
            let end = jiff::Timestamp::from_microsecond(now.as_micros() as i64).unwrap();
            end.to_zoned(TimeZone::UTC).date().to_string()
        };
        [next(), next(), next(), next()]
    };
    assert_eq!(
        ends(31, "2024-01-30T23:59:59Z"),
        ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"]
    );
    assert_eq!(
        ends(30, "2026-01-30T00:00:00Z"),
        ["2026-02-28", "2026-03-30", "2026-04-30", "2026-05-30"]
    );
    assert_eq!(
        ends(1, "2026-01-31T12:00:00Z"),
        ["2026-02-01", "2026-03-01", "2026-04-01", "2026-05-01"]
    );
    assert_eq!(
        ends(15, "2026-12-15T00:00:00Z"),
        ["2027-01-15", "2027-02-15", "2027-03-15", "2027-04-15"]
    );
}

#[test]
fn a_period_that_is_kept_says_what_a_fresh_one_would() {
    let kept = Calendar::new(month(15), zone("Europe/Berlin"));
    for now in [
        "2026-03-14T22:59:59Z",
        "2026-03-14T23:00:00Z",
        "2026-04-01T00:00:00Z",
        "2026-03-20T00:00:00Z",
        "2025-01-01T00:00:00Z",
    ] {
        let fresh = Calendar::new(month(15), zone("Europe/Berlin"));
        assert_eq!(kept.end(at(now)), fresh.end(at(now)), "{now}");
    }
}

#[test]
fn time_beyond_the_calendar_is_one_period() {
    let calendar = Calendar::new(Period::Day, TimeZone::UTC);
    assert_eq!(calendar.end(Timestamp::MAX), u64::MAX);
    assert_eq!(calendar.end(Timestamp::EPOCH), 24 * HOUR);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn periods_follow_one_another_without_a_gap(
        calendar in calendars(), second in 0..4_000_000_000_u64, within: prop::sample::Index,
    ) {
        let first = calendar.span(second).unwrap();
        prop_assert!(first.contains(second));
        prop_assert_eq!(Span::unpacked(first.packed()), first);
        let next = calendar.span(first.end).unwrap();
        prop_assert_eq!(next.start, first.end);
        let inside = first.start + within.index((first.end - first.start) as usize) as u64;
        prop_assert_eq!(calendar.span(inside).unwrap(), first);
    }
}
