use std::time::Duration;

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn here(rule: Penalty) -> Penalties {
    Penalties::new(rule, "p", None, &Store::Memory, &Registry::default())
}

/// Bans that other machines are to learn of.
fn shared(rule: Penalty) -> Penalties {
    let metrics = TrackingMetrics::new(&Registry::default(), "p");
    let reports = Reports {
        node: 7,
        ..Reports::default()
    };
    Penalties {
        bans: Arc::new(Bans::new(Some(reports), &metrics)),
        ..here(rule)
    }
}

fn key(bits: u64) -> Fingerprint {
    Fingerprint::from_bits(bits)
}

#[test]
fn keys_are_banned_one_by_one() {
    let penalty = Penalty::new(2, Duration::from_mins(1), vec![Duration::from_mins(10)]);
    let bans = here(penalty);
    assert_eq!(bans.banned_until(key(1), at(0)), None);
    assert_eq!(bans.strike(key(1), at(0)), None);
    assert_eq!(bans.strike(key(2), at(0)), None);
    assert_eq!(bans.strike(key(1), at(1)), Some(at(601)));
    assert_eq!(bans.banned_until(key(1), at(600)), Some(at(601)));
    assert_eq!(bans.banned_until(key(2), at(600)), None);
    // All but the last ban is over: it is forgotten, and the key strikes anew.
    assert_eq!(bans.strike(key(1), at(2_000)), None);
    assert_eq!(bans.bans.banned.keys(), 0);
}

/// A client with 200,000 keys, each of which is refused thrice, and one that is refused once in
/// 1,000 of its refusals.
#[test]
fn a_flood_of_keys_neither_prevents_nor_lifts_a_ban() {
    let minute = Duration::from_mins(1);
    let penalty = Penalty::new(10, 10 * minute, vec![10 * minute]);
    let bans = here(penalty);
    (0..10).for_each(|_| _ = bans.strike(key(1), at(0)));
    let mut refusals = 0;
    for flood in 1..=600_000_u64 {
        let now = at(1 + flood / 10_000);
        assert_eq!(bans.strike(key(100 + flood / 3), now), None);
        if flood > 300_000 && flood % 1_000 == 0 && refusals < 10 {
            refusals += 1;
            let banned = bans.strike(key(2), now);
            assert_eq!(banned.is_some(), refusals == 10, "{refusals}");
        }
    }
    assert!(bans.banned_until(key(2), at(61)).is_some());
    assert!(bans.banned_until(key(1), at(61)).is_some());
    assert!(bans.bans.strikes_only.keys() < 200_000);
}

#[test]
fn a_flood_of_bans_forgets_the_oldest_and_keeps_counting_strikes() {
    let minute = Duration::from_mins(1);
    let penalty = Penalty::new(2, minute, vec![10 * minute]);
    let bans = here(penalty);
    bans.set_room(1 << 20);
    for bits in 1..=100_000 {
        assert_eq!(bans.strike(key(bits), at(1)), None);
        assert!(bans.strike(key(bits), at(1)).is_some());
    }
    assert!(bans.banned_until(key(100_000), at(1)).is_some());
    assert!(bans.banned_until(key(1), at(1)).is_none());
    assert!((3_000..10_000).contains(&bans.bans.banned.keys()));
    assert_eq!(bans.bans.strikes_only.keys(), 0);
}

/// A client that is banned for a day has many keys banned for minutes.
#[test]
fn a_flood_of_short_bans_lifts_no_long_one() {
    let minute = Duration::from_mins(1);
    let penalty = Penalty::new(1, 60 * minute, vec![10 * minute, 24 * 60 * minute]);
    let bans = here(penalty);
    bans.set_room(1 << 20);
    for now in [1, 601] {
        assert!(bans.strike(key(1), at(now)).is_some());
    }
    for bits in 2..=50_000 {
        assert!(bans.strike(key(bits), at(700)).is_some());
    }
    let until = bans.banned_until(key(1), at(700));
    assert_eq!(until, Some(at(601 + 86_400)));
    assert!(bans.bans.banned.keys() < 10_000);
    // What is over goes first.
    for bits in 50_001..=53_000 {
        assert!(bans.strike(key(bits), at(1_400)).is_some());
    }
    let holds = |bits: &u64| bans.banned_until(key(*bits), at(1_400)).is_some();
    assert!((50_001..=53_000_u64).filter(holds).count() > 2_700);
}

#[test]
fn a_report_has_the_present_history_of_each_key() {
    let minute = Duration::from_mins(1);
    let penalty = Penalty::new(3, minute, vec![minute]);
    let bans = shared(penalty);
    let strike = |bits, now| bans.strike(key(bits), at(now));
    strike(1, 0);
    strike(2, 0);
    strike(1, 1);
    let taken = bans.take_report(at(1), 1);
    let (told, strikes) = &taken.keys[0];
    assert_eq!(
        (*told, strikes.recent_strikes()),
        (key(1), &[at(0), at(1)][..])
    );
    // It is told again if that is not known to have worked, and if something has happened
    // since.
    drop(taken);
    let take = || bans.take_report(at(3), 2);
    take().confirm();
    assert!(take().keys.is_empty());
    strike(2, 2);
    let taken = take();
    assert_eq!(taken.keys.len(), 1);
    strike(2, 3);
    taken.confirm();
    let (_, strikes) = &take().keys[0];
    assert_eq!(strikes.last_ban().until, at(63));
}

#[test]
fn expired_bans_are_not_reported() {
    let minute = Duration::from_mins(1);
    let penalty = Penalty::new(1, minute, vec![minute]);
    let bans = shared(penalty);
    bans.strike(key(1), at(0));
    bans.strike(key(2), at(1));
    let told: Vec<_> = bans
        .take_report(at(120), 9)
        .keys
        .iter()
        .map(|(key, _)| *key)
        .collect();
    assert_eq!(told, [key(2)]);
    assert_eq!(bans.unreported(), 1, "it is put back");
}

#[test]
fn all_bans_in_force_are_reported_again() {
    let minute = Duration::from_mins(1);
    let penalty = Penalty::new(1, minute, vec![minute]);
    let bans = shared(penalty);
    for bits in 1..=3 {
        bans.strike(key(bits), at(bits));
    }
    bans.take_report(at(3), 3).confirm();
    bans.report_again(at(62));
    let again = bans.take_report(at(62), 9);
    let again: Vec<_> = again.keys.iter().map(|(key, _)| *key).collect();
    assert_eq!(again, [key(3)]);
}

#[test]
fn the_queue_of_reports_is_bounded() {
    let second = Duration::from_secs(1);
    let penalty = Penalty::new(2, second, vec![second]);
    let bans = shared(penalty);
    let all = MAX_UNREPORTED as u64;
    for bits in 1..=2 * all {
        // Those before are forgotten, and wait all the same.
        bans.strike(key(bits), at(bits / all * 10));
    }
    assert_eq!(bans.unreported(), all as usize);
    while bans.unreported() > 0 {
        bans.take_report(at(20), 64).confirm();
    }
    bans.strike(key(2 * all), at(21));
    assert_eq!(bans.take_report(at(21), 64).keys[0].0, key(2 * all));
}

#[test]
fn shared_bans_are_restored_without_their_strikes() {
    let minute = Duration::from_mins(1);
    let penalty = Penalty::new(2, minute, vec![minute, 2 * minute]);
    let before = here(penalty.clone());
    for (bits, now) in [(1, 0), (1, 0), (2, 0), (1, 60), (3, 60)] {
        before.strike(key(bits), at(now));
    }
    for (after, left) in [(here(penalty.clone()), 2), (shared(penalty.clone()), 1)] {
        for (key, strikes) in before.saved(at(61)).flatten() {
            after.restore(key, strikes, at(61));
        }
        assert_eq!(
            after.bans.strikes_only.keys() + after.bans.banned.keys(),
            left
        );
        let second = after.strike(key(1), at(62));
        assert_eq!(second.is_some(), left == 2);
        assert_eq!(
            after.unreported(),
            usize::from(left == 1),
            "only the new strike"
        );
        assert!(
            after.strike(key(1), at(63)).is_some(),
            "the second ban, either way"
        );
        assert_eq!(after.bans_so_far(), 1);
        let until = after.banned_until(key(1), at(64));
        assert_eq!(until, Some(at(if left == 2 { 182 } else { 183 })));
    }
}

#[test]
fn bans_that_are_not_shared_are_not_reported() {
    let minute = Duration::from_mins(1);
    let penalty = Penalty::new(1, minute, vec![minute]);
    let bans = here(penalty);
    bans.strike(key(1), at(0));
    assert!(bans.take_report(at(0), 1).keys.is_empty());
}
