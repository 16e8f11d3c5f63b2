//! Histories that must pass, and those that must not.

use super::*;
use crate::history::Fault;

const SECOND: u64 = 1_000_000;
const START: Instant = 1_000 * SECOND;

/// A request of one unit at these milliseconds after the start, which took 2 ms.
fn event(ms: u64, outcome: Outcome) -> Event {
    Event {
        sent: START + ms * 1_000,
        received: START + ms * 1_000 + 2_000,
        proxy: 0,
        policy: 0,
        key: 0,
        units: 1,
        outcome,
    }
}

fn history(admitted: impl IntoIterator<Item = u64>) -> History {
    let events = admitted.into_iter().map(|ms| event(ms, Outcome::Admitted));
    History {
        events: events.collect(),
        ..History::default()
    }
}

fn span(from: u64, until: u64) -> Span {
    Span {
        from: START + from * 1_000,
        until: START + until * 1_000,
    }
}

fn promise(bound: Bound, excess: &[Excess]) -> Promise {
    Promise {
        policy: 0,
        bound,
        excess: excess.to_vec(),
    }
}

const RATE: Bound = Bound::Rate {
    burst: 5,
    limit: 10,
    window: SECOND,
};
const ROLLING: Bound = Bound::Rolling {
    most: 5,
    window: SECOND,
};
const ALIGNED: Bound = Bound::Aligned {
    most: 5,
    window: SECOND,
};

#[test]
fn a_burst_and_the_rate_after_it_are_admitted() {
    let all = [0, 0, 0, 0, 0, 100, 200, 300, 400];
    let seen = promise(RATE, &[]).check(&history(all)).expect("it holds");
    assert_eq!((seen.worst, seen.allowed), (100, 100));
}

#[test]
fn one_unit_more_than_the_rate_is_found_in_a_span_that_is_no_window() {
    let all = [700, 710, 720, 730, 740, 840, 890];
    let found = promise(RATE, &[])
        .check(&history(all))
        .expect_err("it does not");
    assert_eq!((found.admitted, found.allowed), (7, 6));
    assert_eq!(
        found.span,
        Span {
            from: START + 700_000,
            until: START + 892_000
        }
    );
}

#[test]
fn every_span_shorter_than_a_window_is_looked_at() {
    let all = [0, 600, 700, 800, 900, 1_001, 1_500];
    promise(ROLLING, &[])
        .check(&history(all))
        .expect_err("six from 600 to 1502");
    let all = [0, 600, 700, 800, 900, 1_001];
    promise(ROLLING, &[])
        .check(&history(all))
        .expect("1.003 s from the first to the last");
    let all = [0, 600, 700, 800, 900, 990];
    promise(ROLLING, &[])
        .check(&history(all))
        .expect_err("six in 992 ms");
}

#[test]
fn windows_of_the_clock_end_at_its_seconds() {
    let all = [995, 995, 995, 995, 995, 1_000, 1_000, 1_000, 1_000, 1_000];
    promise(ALIGNED, &[])
        .check(&history(all))
        .expect("five in each");
    let all = [1_000, 1_000, 1_000, 1_000, 1_000, 1_990];
    promise(ALIGNED, &[])
        .check(&history(all))
        .expect_err("six in one");
    // The last may have been decided in the next window.
    let all = [1_000, 1_000, 1_000, 1_000, 1_000, 1_999];
    promise(ALIGNED, &[])
        .check(&history(all))
        .expect("nobody knows");
}

#[test]
fn a_slow_request_counts_only_where_it_was_certainly_decided() {
    let mut slow = history([900, 910, 920, 930, 940]);
    slow.events.push(Event {
        sent: START,
        received: START + 950_000,
        ..slow.events[0]
    });
    promise(ROLLING, &[])
        .check(&slow)
        .expect_err("six from 0 to 950 ms");
    slow.events[5].received += 3 * SECOND;
    promise(ROLLING, &[])
        .check(&slow)
        .expect("it may have been admitted later");
}

#[test]
fn keys_policies_units_and_refusals_are_told_apart() {
    let mut all = history([0, 0, 0, 0, 0]);
    for change in [
        Event {
            key: 1,
            ..all.events[0]
        },
        Event {
            policy: 1,
            ..all.events[0]
        },
        event(0, Outcome::Limited(Some(1))),
        event(0, Outcome::StoreError),
        event(0, Outcome::Lost),
    ] {
        all.events.push(change);
    }
    promise(ROLLING, &[]).check(&all).expect("five of each");
    all.events[0].units = 2;
    promise(ROLLING, &[]).check(&all).expect_err("six units");
    let mut other_key = history([0, 0, 0, 0, 0, 0]);
    other_key.events.iter_mut().for_each(|event| event.key = 3);
    assert_eq!(
        promise(ROLLING, &[])
            .check(&other_key)
            .expect_err("six")
            .key,
        3
    );
}

#[test]
fn another_bucket_counts_only_while_it_decides() {
    let alone = [Excess::Bucket(span(0, 500))];
    let ten = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1];
    promise(ROLLING, &alone)
        .check(&history(ten))
        .expect("two buckets");
    promise(ROLLING, &alone)
        .check(&history(ten.map(|ms| ms + 600)))
        .expect_err("it is over");
    promise(ROLLING, &alone)
        .check(&history([0; 11]))
        .expect_err("three buckets");
}

#[test]
fn no_more_than_what_was_forgotten_is_admitted_again() {
    let lost = [Excess::Forgotten(span(100, 200))];
    let again = [0, 0, 0, 150, 150, 300, 300];
    promise(ROLLING, &lost)
        .check(&history(again))
        .expect("two were forgotten");
    let again = [0, 0, 0, 150, 150, 300, 300, 300];
    promise(ROLLING, &lost)
        .check(&history(again))
        .expect_err("two, and not three");
    let later = [300, 300, 300, 300, 300, 300];
    promise(ROLLING, &lost)
        .check(&history(later))
        .expect_err("after it, nothing is");
}

#[test]
fn a_proxy_that_admits_all_uses_no_bucket_meanwhile() {
    let unlimited = [Excess::Unlimited(0, span(0, 500))];
    let mut all = history([100; 20]);
    promise(ROLLING, &unlimited).check(&all).expect("it may");
    all.events.iter_mut().for_each(|event| event.proxy = 1);
    promise(ROLLING, &unlimited)
        .check(&all)
        .expect_err("it is another one");
    promise(ROLLING, &unlimited)
        .check(&history([600; 6]))
        .expect_err("it is over");
}

#[test]
fn unheard_units_are_those_of_one_machine_in_the_time() {
    let mut all = history([0, 50, 60, 300, 310]);
    all.events[2].proxy = 1;
    assert_eq!(most_of_one(&all, 0, 100_000), 2);
    assert_eq!(most_of_one(&all, 0, 400_000), 4);
    assert_eq!(most_of_one(&all, 1, 400_000), 0);
    let unheard = [Excess::Unheard(2)];
    promise(ROLLING, &unheard)
        .check(&history([0; 7]))
        .expect("five and two");
    promise(ROLLING, &unheard)
        .check(&history([0; 8]))
        .expect_err("five and three");
}

fn liveness(may_fail: bool) -> Liveness {
    Liveness {
        deadline: SECOND,
        calm: span(4_000, 8_000),
        may_fail,
        longest_wait: None,
    }
}

#[test]
fn a_key_that_is_never_admitted_again_is_reported() {
    let promises = [promise(RATE, &[])];
    let asked = (0..100).map(|at| event(4_000 + at * 40, Outcome::Limited(Some(1))));
    let mut refused = history([]);
    refused.events.extend(asked);
    let found = liveness(false).check(&refused, &promises);
    assert!(
        found.len() == 1 && found[0].contains("0 of 100 units"),
        "{found:?}"
    );
    for place in 0..20 {
        refused.events[place * 5].outcome = Outcome::Admitted;
    }
    assert_eq!(liveness(false).check(&refused, &promises), [""; 0]);
    refused.events.truncate(90);
    assert_eq!(liveness(false).check(&refused, &promises).len(), 1);
    refused.stall = 200_000;
    assert_eq!(
        liveness(false).check(&refused, &promises),
        [""; 0],
        "it had less time"
    );
    // A key that nobody asks for is not starved.
    assert_eq!(liveness(false).check(&history([0]), &promises), [""; 0]);
}

#[test]
fn a_request_may_wait_for_its_deadline_and_for_a_paused_proxy() {
    let mut slow = history([0]);
    slow.events[0].received += 7 * SECOND;
    assert_eq!(liveness(false).check(&slow, &[]).len(), 1);
    let pause = |proxy| Fault {
        what: "pause".to_owned(),
        span: span(100, 2_100),
        paused: Some(proxy),
    };
    slow.faults = vec![pause(1)];
    assert_eq!(
        liveness(false).check(&slow, &[]).len(),
        1,
        "another one stood"
    );
    slow.faults = vec![pause(0)];
    assert_eq!(liveness(false).check(&slow, &[]), [""; 0]);
    slow.faults.clear();
    slow.stall = 500_000;
    assert_eq!(
        liveness(false).check(&slow, &[]),
        [""; 0],
        "the machine stood"
    );
}

#[test]
fn errors_are_for_faults_only() {
    let fault = Fault {
        what: "cut".to_owned(),
        span: span(100, 200),
        paused: None,
    };
    let check = |ms, outcome, may_fail| {
        let all = History {
            events: vec![event(ms, outcome)],
            faults: vec![fault.clone()],
            ..History::default()
        };
        liveness(may_fail).check(&all, &[]).len()
    };
    assert_eq!(check(150, Outcome::StoreError, true), 0);
    assert_eq!(check(150, Outcome::StoreError, false), 1);
    assert_eq!(check(150, Outcome::Lost, false), 0);
    assert_eq!(check(300, Outcome::Lost, false), 1);
    assert_eq!(check(150, Outcome::Unexpected(500), true), 1);
}

#[test]
fn a_larger_quota_and_a_bucket_of_another_algorithm_are_for_their_time() {
    let larger = Bound::Rolling {
        most: 7,
        window: SECOND,
    };
    let check = |excess, admitted: usize, at: u64| {
        let all = history(vec![at; admitted]);
        promise(ROLLING, &[excess]).check(&all).is_ok()
    };
    let time = span(0, 500);
    let both = [Excess::Larger(larger, time), Excess::Also(larger, time)];
    assert_eq!(both.map(|excess| check(excess, 7, 100)), [true, true]);
    assert_eq!(both.map(|excess| check(excess, 8, 100)), [false, true]);
    assert_eq!(both.map(|excess| check(excess, 13, 100)), [false, false]);
    assert_eq!(both.map(|excess| check(excess, 6, 600)), [false, false]);
}

#[test]
fn each_refusal_announces_a_wait_that_a_bucket_can_need() {
    let check = |wait| {
        let mut all = history([]);
        all.events.push(event(0, Outcome::Limited(wait)));
        let liveness = Liveness {
            longest_wait: Some(2),
            ..liveness(false)
        };
        liveness.check(&all, &[]).len()
    };
    assert_eq!([Some(1), Some(2), Some(3), None].map(check), [0, 0, 1, 1]);
}

#[test]
fn a_store_that_stays_away_after_the_faults_is_reported() {
    let answers = (0..100).map(|at| event(4_100 + at, Outcome::Limited(None)));
    let mut all = history([]);
    all.events.extend(answers);
    all.events[..5]
        .iter_mut()
        .for_each(|event| event.outcome = Outcome::StoreError);
    assert_eq!(liveness(true).check(&all, &[]), [""; 0]);
    all.events[5].outcome = Outcome::StoreError;
    assert_eq!(liveness(true).check(&all, &[]).len(), 1);
    all.stall = 500_000;
    assert_eq!(
        liveness(true).check(&all, &[]),
        [""; 0],
        "it hadn't the time"
    );
}

#[test]
fn decisions_within_a_silence_are_those_of_a_machine_alone() {
    let all = history([0, 100, 298]);
    let wrong = |proxy, from, until| {
        let is_error = |outcome| outcome == Outcome::StoreError;
        decided_otherwise(&all, &[proxy], span(from, until), is_error).len()
    };
    assert_eq!(
        [wrong(0, 50, 300), wrong(0, 50, 301), wrong(1, 50, 301)],
        [1, 2, 0]
    );
}

#[test]
fn permits_are_counted_while_they_are_certainly_in_use() {
    let of = |key, from, until| Use {
        span: span(from, until),
        proxy: 0,
        key,
    };
    let uses = [
        of(0, 0, 100),
        of(0, 50, 150),
        of(0, 100, 200),
        of(0, 400, 500),
        of(1, 60, 70),
    ];
    let most = |from, until| most_in_use(&uses, &[], span(from, until));
    assert_eq!(most(0, 1_000), 2);
    assert_eq!(most(210, 390), 0);
    assert_eq!(most(60, 70), 2, "they had begun before");
    assert_eq!(most(450, 460), 1);
    let share = |key, from, until| share_in_use(&uses, key, 2, span(from, until));
    assert_eq!(share(0, 0, 200), 75);
    assert_eq!(share(0, 50, 100), 100);
    assert_eq!(share(0, 200, 400), 0);
    assert_eq!(share(1, 0, 100), 5);
}

#[test]
fn forgotten_permits_do_not_count_but_newer_ones_do() {
    let of = |proxy, from, until| Use {
        span: span(from, until),
        proxy,
        key: 0,
    };
    let uses = [
        of(0, 0, 900),
        of(1, 0, 900),
        of(0, 300, 900),
        of(0, 310, 900),
    ];
    let most = |lapses: &[Lapse]| most_in_use(&uses, lapses, span(0, 1_000));
    let lapse = |proxy, from, until| Lapse {
        span: span(from, until),
        known_again: START + 305_000,
        proxy,
    };
    assert_eq!(most(&[]), 4);
    assert_eq!(
        most(&[lapse(None, 100, 200)]),
        4,
        "all are known when the last begins"
    );
    let uses = &uses[..3];
    let most = |lapses: &[Lapse]| most_in_use(uses, lapses, span(0, 1_000));
    assert_eq!(most(&[]), 3);
    assert_eq!(most(&[lapse(None, 100, 200)]), 2);
    assert_eq!(most(&[lapse(Some(1), 100, 200)]), 2);
    assert_eq!(most(&[lapse(Some(1), 950, 960)]), 3, "it came later");
}

#[test]
fn a_ban_holds_on_all_machines_once_they_know_it() {
    let mut all = history([]);
    all.events.push(event(0, Outcome::Limited(Some(4))));
    all.events.push(event(10, Outcome::Limited(Some(1))));
    let bans = bans(&all, 0, 3);
    assert_eq!(bans.len(), 1);
    assert_eq!(
        bans[0].span,
        Span {
            from: START + 2_000,
            until: START + 3 * SECOND
        }
    );
    let admitted = |ms| {
        let mut all = all.clone();
        all.events.push(event(ms, Outcome::Admitted));
        let found = admitted_in_bans(&all, 0, &bans);
        found.first().map(|(since, _)| *since)
    };
    let since = [1, 102, 2_990, 2_999].map(admitted);
    assert_eq!(since, [None, Some(100_000), Some(2_988_000), None]);
}

#[test]
fn a_machine_keeps_the_end_of_its_own_earlier_ban() {
    let refused = |proxy, ms, seconds| Event {
        proxy,
        ..event(ms, Outcome::Limited(Some(seconds)))
    };
    let admitted = |others: &[Event], proxy| {
        let mut all = history([4_500]);
        all.events[0].proxy = proxy;
        all.events.extend(others);
        admitted_in_bans(&all, 0, &bans(&all, 0, 3)).len()
    };
    // The second proxy bans until 7 s, and the first one until 4 s.
    let [late, early] = [refused(1, 2_000, 6), refused(0, 500, 4)];
    assert_eq!(admitted(&[late], 0), 1);
    assert_eq!(admitted(&[early, late], 0), 0);
    assert_eq!(admitted(&[early, late], 1), 1, "it has said so itself");
    assert_eq!(
        admitted(&[refused(0, 500, 6), late], 0),
        1,
        "that has not ended"
    );
}
